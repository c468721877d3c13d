//! `myxtts synthesize-corpus`: synthetic speech in hundreds of voices to pretrain on.

use std::path::PathBuf;

use anyhow::Context;
use myxtts_demo::{self as demo, Language, PretrainingOptions, Sentence};
use myxtts_run::exit::Exit;
use myxtts_run::regular_file;

use crate::demo_corpus::{described, language, speakers};
use crate::failure::UsageError;
use crate::output::{errln, print};
use crate::progress::Terminal;

/// Number of unreadable lines of a text file that are listed one by one.
const NAMED_LINES: usize = 5;

#[derive(clap::Args)]
pub struct Args {
    /// Folder to write to; created if it does not exist
    dir: PathBuf,
    /// Number of utterances, 1 to 10 seconds each, distributed evenly over languages and speakers
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    utterances: usize,
    /// Random seed; the same seed gives the same corpus, byte for byte, on any machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Languages to speak: en, fa
    #[arg(long, value_name = "CODES", value_delimiter = ',', default_value = "en", value_parser = language)]
    languages: Vec<Language>,
    /// Number of speakers, up to 1000: men, women and children
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = speakers)]
    speakers: usize,
    /// Also use the texts of this file: one per line, or `id|text` as in metadata.csv; `#` starts a comment. May be repeated
    #[arg(long, value_name = "FILE")]
    texts: Vec<PathBuf>,
    /// Share of the utterances that use a text of --texts; the others are generated, partly from words of --texts
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, requires = "texts")]
    texts_share: f64,
    /// Write even if the folder contains other files than synthetic speech
    #[arg(long)]
    force: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let options = PretrainingOptions {
        utterances: args.utterances,
        seed: args.seed,
        speakers: args.speakers,
        texts: read_texts(&args.texts, &args.languages)?,
        texts_share: args.texts_share,
        languages: args.languages,
        overwrite: args.force,
    };
    let report = demo::write_pretraining(&args.dir, &options, &Terminal::new())?;
    print(&described(&report))?;
    Ok(Exit::Done)
}

/// Reads the texts of all files. Lines that cannot be used are reported and left out.
fn read_texts(files: &[PathBuf], languages: &[Language]) -> anyhow::Result<Vec<Sentence>> {
    let mut all = Vec::new();
    for path in files {
        let bytes = regular_file::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines = String::from_utf8(bytes)
            .map_err(|_| UsageError(format!("--texts {} is not UTF-8: save it as UTF-8", path.display())))?;
        let (read, refused) = demo::read_texts(&lines, languages);
        for (line, why) in refused.iter().take(NAMED_LINES) {
            errln!("note: {}:{line} is left out: {why}", path.display());
        }
        if refused.len() > NAMED_LINES {
            errln!("note: {} more lines of {} are left out", refused.len() - NAMED_LINES, path.display());
        }
        if read.is_empty() {
            let codes: Vec<&str> = languages.iter().map(|language| language.code()).collect();
            let codes = codes.join(", ");
            return Err(UsageError(format!(
                "--texts {}: no line can be spoken in {codes}: write one text per line, and name its language with --languages",
                path.display()
            ))
            .into());
        }
        all.extend(read);
    }
    Ok(all)
}
