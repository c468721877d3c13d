//! `myxtts demo-corpus`: generates a small corpus for trying all commands.

use std::path::PathBuf;

use myxtts_demo::{self as demo, DemoOptions, DemoReport, Language, MAX_SPEAKERS, VOICES};
use myxtts_run::exit::Exit;

use crate::output::print;
use crate::progress::Terminal;

#[derive(clap::Args)]
pub struct Args {
    /// Folder to write to; created if it does not exist
    dir: PathBuf,
    /// Number of utterances, distributed evenly over languages and speakers
    #[arg(long, value_name = "N", default_value_t = 300)]
    utterances: usize,
    /// Random seed; the same seed gives the same corpus, byte for byte, on any machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Languages to speak
    #[arg(long, value_name = "CODES", value_delimiter = ',', default_value = "en,fa", value_parser = language)]
    languages: Vec<Language>,
    /// Number of speakers, up to 1000; the first are mina, dara and kian
    #[arg(long, value_name = "N", default_value_t = VOICES.len(), value_parser = speakers)]
    speakers: usize,
    /// Write even if the folder contains other files than synthetic speech
    #[arg(long)]
    force: bool,
}

pub fn language(code: &str) -> Result<Language, String> {
    Language::from_code(code).ok_or_else(|| "the built-in voices speak `en` and `fa`".to_owned())
}

pub fn speakers(count: &str) -> Result<usize, String> {
    let count = count.parse().map_err(|_| "expected a whole number".to_owned())?;
    if (1..=MAX_SPEAKERS).contains(&count) {
        Ok(count)
    } else {
        Err(format!("expected a number from 1 to {MAX_SPEAKERS}"))
    }
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let options = DemoOptions {
        utterances: args.utterances,
        seed: args.seed,
        speakers: args.speakers,
        languages: args.languages,
        max_seconds: None,
        overwrite: args.force,
    };
    let report = demo::write(&args.dir, &options, &Terminal::new())?;
    print(&described(&report))?;
    Ok(Exit::Done)
}

/// Describes the corpus, and the next step.
pub fn described(report: &DemoReport) -> String {
    let speakers = match &report.speakers[..] {
        few if few.len() <= VOICES.len() => format!("speakers {}", few.join(", ")),
        many => format!("{} speakers", many.len()),
    };
    format!(
        "{} utterances, {:.1} minutes, {speakers}, languages {}: {}\nnext: myxtts check {}\n",
        report.utterances,
        report.seconds / 60.0,
        report.languages.join(", "),
        report.dir.display(),
        quoted(&report.dir.display().to_string())
    )
}

/// Quotes a path for a shell.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !path.is_empty() && path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}
