//! `myxtts verify`: checks that a cache is intact and still matches its corpus.

use std::path::PathBuf;

use anyhow::Context;
use myxtts_data::cache::{self, Finding, PrepareReport, VerifyReport};
use myxtts_run::exit::Exit;
use myxtts_train::corpus::{FeatureSetup, prepare_options, read};
use serde::Serialize;

use crate::UsageError;
use crate::output::{errln, print, print_json, size};
use crate::prepare::summary;
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::signal::stop_requested;

/// Number of findings that are printed; `--json` has all of them.
const PRINTED: usize = 50;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folder, whose cache is compared with it; or a cache folder, whose checksums are checked
    corpus: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Rebuild the records that are damaged or outdated
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
    let options = prepare_options(&plan, &stop_requested()?);
    let progress = Terminal::new();

    let given = match &plan.train_data[..] {
        [one] => Some(one.as_path()),
        _ => None,
    };
    let outcome = if let Some(dir) = given.filter(|folder| read::is_cache(folder)) {
        // Without its corpus a cache cannot be compared or rebuilt.
        if args.fix {
            let message =
                format!("--fix needs the corpus: `myxtts verify CORPUS --cache-dir {} --fix`", dir.display());
            return Err(UsageError(message).into());
        }
        let found = cache::verify(dir, None, options.workers, &progress)?;
        Outcome { sound: found.is_ok(), found, fixed: None }
    } else {
        let corpus = read::read(&plan, &progress)?;
        let dir = read::cache_of(&corpus, &plan);
        let setup = FeatureSetup::for_cache(&[&corpus], &dir, &plan, &progress)?;
        let extractor = &setup.extractor;
        let against = Some((&corpus.utterances[..], extractor as &dyn cache::Featurizer));
        let found = cache::verify(&dir, against, options.workers, &progress)?;
        let mut outcome = Outcome { sound: found.is_ok(), found, fixed: None };
        if args.fix && !outcome.sound {
            setup.save_vocabulary(options.disk.as_ref()).context("saving the vocabulary")?;
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
        None if outcome.sound => "ok           all records are intact".to_owned(),
        None => format!("damaged      {} findings; --fix rebuilds these records", findings.len()),
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
        errln!("... and {} more; --json lists them all", findings.len() - PRINTED);
    }
}
