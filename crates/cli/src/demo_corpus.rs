//! `myxtts demo-corpus`: a corpus to try everything with, made on the spot.

use std::path::PathBuf;

use myxtts_demo::{self as demo, DemoOptions, DemoReport, Language, MAX_SPEAKERS, VOICES};
use myxtts_run::exit::Exit;

use crate::output::print;
use crate::progress::Terminal;

#[derive(clap::Args)]
pub struct Args {
    /// Folder to write to; created where it does not exist
    dir: PathBuf,
    /// How many utterances to make, dealt evenly to languages and speakers
    #[arg(long, value_name = "N", default_value_t = 300)]
    utterances: usize,
    /// The same seed gives the same corpus, byte for byte, on any machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Languages to speak
    #[arg(long, value_name = "CODES", value_delimiter = ',', default_value = "en,fa", value_parser = language)]
    languages: Vec<Language>,
    /// How many speakers: mina, dara, kian, and up to 1000 in all
    #[arg(long, value_name = "N", default_value_t = VOICES.len(), value_parser = speakers)]
    speakers: usize,
    /// Write even where the folder holds something that is no synthetic speech
    #[arg(long)]
    force: bool,
}

pub fn language(code: &str) -> Result<Language, String> {
    Language::from_code(code).ok_or_else(|| "the built-in voices speak `en` and `fa`".to_owned())
}

pub fn speakers(count: &str) -> Result<usize, String> {
    let count = count.parse().map_err(|_| "not a whole number".to_owned())?;
    if (1..=MAX_SPEAKERS).contains(&count) {
        Ok(count)
    } else {
        Err(format!("there are 1 to {MAX_SPEAKERS} speakers"))
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

/// What was made, and what to do next.
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

/// A path as a shell reads it back.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !path.is_empty() && path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}
