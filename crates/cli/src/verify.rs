//! `myxtts verify`: is the cache what was written, and is it still that of the corpus?

use std::path::PathBuf;

use anyhow::Context;
use myxtts_data::cache::{self, Finding, PrepareReport, VerifyReport};
use myxtts_run::exit::Exit;
use serde::Serialize;

use crate::output::{errln, print, print_json, size};
use crate::prepare::{options_of, summary};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::{UsageError, corpus};

/// Findings that are printed one by one; `--json` has all of them.
const PRINTED: usize = 50;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folder (its cache is compared with it), or the folder of a cache (its bytes are checked)
    corpus: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
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
    let mut settings = args.settings;
    settings.set_path("CORPUS", "data.train_data", args.corpus.as_deref())?;
    let plan = settings.resolve()?.data;
    let options = options_of(&plan)?;
    let progress = Terminal::new();

    let given = match &plan.train_data[..] {
        [one] => Some(one.as_path()),
        _ => None,
    };
    let outcome = if let Some(dir) = given.filter(|folder| corpus::is_cache(folder)) {
        // There is nothing to compare a cache by itself with, and nothing to rebuild it from.
        if args.fix {
            let message =
                format!("--fix needs the corpus: `myxtts verify CORPUS --cache-dir {} --fix`", dir.display());
            return Err(UsageError(message).into());
        }
        let found = cache::verify(dir, None, options.workers, &progress)?;
        Outcome { sound: found.is_sound(), found, fixed: None }
    } else {
        let corpus = corpus::read(&plan, &progress)?;
        let dir = corpus::cache_of(&corpus, &plan);
        let computing = corpus::extractor(&[&corpus], &dir, &plan, &progress)?;
        let extractor = &computing.extractor;
        let against = Some((&corpus.utterances[..], extractor as &dyn cache::Featurizer));
        let found = cache::verify(&dir, against, options.workers, &progress)?;
        let mut outcome = Outcome { sound: found.is_sound(), found, fixed: None };
        if args.fix && !outcome.sound {
            computing.keep_vocabulary(options.disk.as_ref()).context("keeping the vocabulary")?;
            let fixed = cache::repair(&dir, &corpus.utterances, extractor, &options, &progress)?;
            outcome.fixed = Some(fixed);
        }
        if let (Some(fixed), false) = (&outcome.fixed, args.json) {
            print(&summary(&dir, fixed))?;
        }
        outcome
    };
    print_findings(&outcome.found.findings);
    if args.json {
        print_json(&outcome)?;
    } else {
        print(&verdict(&outcome))?;
    }
    Ok(if outcome.sound || outcome.fixed.is_some() { Exit::Done } else { Exit::BadData })
}

fn verdict(outcome: &Outcome) -> String {
    let VerifyReport { records, shards, bytes, failures, findings } = &outcome.found;
    let verdict = match &outcome.fixed {
        None if outcome.sound => "sound        everything is as it was written".to_owned(),
        None => format!("damaged      {} findings; --fix rebuilds what they concern", findings.len()),
        Some(_) => format!("fixed        {} findings", findings.len()),
    };
    format!(
        "checked      {records} records in {shards} shards, {}, {failures} known failures\n{verdict}\n",
        size(*bytes)
    )
}

fn print_findings(findings: &[Finding]) {
    for finding in findings.iter().take(PRINTED) {
        errln!("{finding}");
    }
    if findings.len() > PRINTED {
        errln!("... and {} more; --json has them all", findings.len() - PRINTED);
    }
}
