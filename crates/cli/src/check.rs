//! `myxtts check`: read a corpus, examine all of it, say what is wrong, judge it.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use myxtts_data::check::{self, CheckOptions, Report, Senses, Summary};
use myxtts_data::dataset::{self, Format, ReadOptions};
use myxtts_data::text::Cleaner;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::exit::Exit;
use myxtts_run::progress::{Progress, Silent};

use crate::progress::Terminal;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folder, or one of its metadata files
    corpus: PathBuf,
    /// Layout, instead of finding it out: ljspeech, vctk, libritts, common_voice, coqui, folder, jsonl
    #[arg(long)]
    format: Option<Format>,
    /// Language of utterances for which the corpus names none; guessed from the script otherwise
    #[arg(long)]
    language: Option<String>,
    /// Speaker of utterances for which the corpus names none; the folder's name otherwise
    #[arg(long)]
    speaker: Option<String>,
    /// Vocabulary to read the texts with: unknown characters become errors, tokens are counted
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Text cleaner: default, or coqui for the released XTTS models
    #[arg(long, default_value_t)]
    cleaner: Cleaner,
    /// Shorter sounds cannot be used
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value_t = CheckOptions::default().min_seconds)]
    min_seconds: f64,
    /// Longer sounds cannot be used [default: the length of 1000 mel frames]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_seconds: Option<f64>,
    /// Texts of more tokens cannot be used
    #[arg(long, value_name = "TOKENS", default_value_t = CheckOptions::default().max_text_tokens)]
    max_text_tokens: usize,
    /// Share of items that may be unusable; past it the exit code is 65
    #[arg(long, value_name = "SHARE", value_parser = share, default_value_t = CheckOptions::default().failure_budget)]
    failure_budget: f64,
    /// Write the whole report as JSON to a file, or to standard output with `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write every problem as one line of JSON to a file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// How many problems of each kind to print
    #[arg(long, value_name = "N", default_value_t = 5)]
    limit: usize,
    /// Print the verdict only
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let options = CheckOptions {
        min_seconds: args.min_seconds,
        max_seconds: args.max_seconds.unwrap_or(CheckOptions::default().max_seconds),
        max_text_tokens: args.max_text_tokens,
        failure_budget: args.failure_budget,
    };
    let tokenizer = match &args.tokenizer {
        Some(file) => match Tokenizer::load(file) {
            Ok(tokenizer) => Some(tokenizer),
            Err(error) => return Ok(refused(&error, Exit::Usage)),
        },
        None => None,
    };
    let read = ReadOptions { format: args.format, language: args.language, speaker: args.speaker };
    let corpus = match dataset::read(&args.corpus, &read) {
        Ok(corpus) => corpus,
        Err(error) => return Ok(refused(&error, error.exit())),
    };
    let progress: &dyn Progress = if args.quiet { &Silent } else { &Terminal::new() };
    progress.say(&corpus.why);
    let senses = Senses::new(tokenizer.as_ref(), args.cleaner);
    let report = check::examine(&corpus, &options, &senses, progress);
    if let Some(file) = &args.report {
        write_problems(&report, file)?;
    }
    let summary = Summary { report: &report, limit: args.limit };
    let text = if args.quiet { summary.verdict() } else { summary.to_string() };
    match args.json.as_deref() {
        // Standard output belongs to the machine that reads it.
        Some(file) if file == Path::new("-") => {
            eprint!("{text}");
            print(&json_of(&report)?)?;
        }
        Some(file) => {
            write(file, &json_of(&report)?)?;
            print(text.as_bytes())?;
        }
        None => print(text.as_bytes())?,
    }
    Ok(report.exit())
}

fn refused(error: &dyn std::error::Error, exit: Exit) -> Exit {
    eprintln!("error: {error}");
    exit
}

fn json_of(report: &Report) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(report)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn write_problems(report: &Report, file: &Path) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    for problem in &report.problems {
        serde_json::to_writer(&mut bytes, problem)?;
        bytes.push(b'\n');
    }
    write(file, &bytes)
}

fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(file, bytes).with_context(|| format!("writing {}", file.display()))
}

/// To standard output; a reader that has seen enough (`| head`) is no failure.
fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("writing to standard output"),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("a number of seconds is wanted, such as 11.6".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("a share between 0 and 1 is wanted, such as 0.05".to_owned()),
    }
}
