//! `myxtts verify`: is the cache what was written, and is it still that of the corpus?

use myxtts_data::cache::{self, Finding, PrepareReport, VerifyReport};
use myxtts_run::exit::Exit;
use serde::Serialize;

use crate::prepare::{Place, corpus, ended, featurizer, size, summary};
use crate::progress::Terminal;

/// Findings that are printed one by one; `--json` has all of them.
const PRINTED: usize = 50;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Rebuild what is broken or stale, and nothing else
    #[arg(long)]
    fix: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Outcome {
    #[serde(flatten)]
    found: VerifyReport,
    sound: bool,
    fixed: Option<PrepareReport>,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let progress = Terminal::new();
    let dir = args.place.cache();
    let options = args.place.options();
    // The cache's own folder was given: its bytes can be checked, but there is nothing to compare with.
    let alone = dir == args.place.corpus;
    if alone && args.fix {
        eprintln!(
            "error: --fix needs the corpus: `myxtts verify CORPUS --cache-dir {} --fix`",
            dir.display()
        );
        return Ok(Exit::Usage);
    }
    let utterances = if alone { Vec::new() } else { corpus(&args.place.corpus)? };
    let featurizer = featurizer(&progress);
    let against = (!alone).then_some((&utterances[..], featurizer.as_ref()));
    let found = match cache::verify(&dir, against, options.workers, &progress) {
        Ok(found) => found,
        Err(error) => return Ok(ended(error)),
    };
    print_findings(&found.findings);

    let mut outcome = Outcome { sound: found.is_sound(), found, fixed: None };
    if args.fix && !outcome.sound {
        match cache::repair(&dir, &utterances, featurizer.as_ref(), &options, &progress) {
            Ok(fixed) => outcome.fixed = Some(fixed),
            Err(error) => return Ok(ended(error)),
        }
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&outcome)?);
    } else {
        let VerifyReport { records, shards, bytes, failures, findings } = &outcome.found;
        println!(
            "checked      {records} records in {shards} shards, {}, {failures} known failures",
            size(*bytes)
        );
        match &outcome.fixed {
            None if outcome.sound => println!("sound        everything is as it was written"),
            None => println!("damaged      {} findings; --fix rebuilds what they concern", findings.len()),
            Some(fixed) => print!("fixed        {} findings\n{}", findings.len(), summary(&dir, fixed)),
        }
    }
    Ok(if outcome.sound || outcome.fixed.is_some() { Exit::Done } else { Exit::BadData })
}

fn print_findings(findings: &[Finding]) {
    for finding in findings.iter().take(PRINTED) {
        eprintln!("{finding}");
    }
    if findings.len() > PRINTED {
        eprintln!("... and {} more; --json has them all", findings.len() - PRINTED);
    }
}
