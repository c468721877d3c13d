//! `myxtts import`: converts files of Coqui's XTTS to a model folder.

use std::path::{Path, PathBuf};

use myxtts_model::weights::import::{ImportReport, Sources, import};
use myxtts_run::durable::OsDisk;
use myxtts_run::exit::Exit;

use crate::output::{print, print_json};

#[derive(clap::Args)]
pub struct Args {
    /// model.pth of a release, or a checkpoint of Coqui's trainer
    model: PathBuf,
    /// Model folder to write
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// dvae.pth: required for training, not for speaking [default: the one next to MODEL]
    #[arg(long, value_name = "FILE")]
    dvae: Option<PathBuf>,
    /// mel_stats.pth [default: the one next to MODEL]
    #[arg(long, value_name = "FILE")]
    mel_stats: Option<PathBuf>,
    /// vocab.json [default: the one next to MODEL]
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// config.json [default: the one next to MODEL]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// speakers_xtts.pth: named voices [default: the one next to MODEL]
    #[arg(long, value_name = "FILE")]
    speakers: Option<PathBuf>,
    /// Use only the files that are named here, not those next to MODEL
    #[arg(long)]
    alone: bool,
    /// Accept files with wrong checksums (torch can be configured not to write them)
    #[arg(long)]
    unchecked: bool,
    /// Replace the model that is in the folder
    #[arg(long)]
    force: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let next_to_model = |given: Option<PathBuf>, name: &str| {
        let there = args.model.with_file_name(name);
        given.or_else(|| (!args.alone && there != args.model && there.is_file()).then_some(there))
    };
    let sources = Sources {
        dvae: next_to_model(args.dvae, "dvae.pth"),
        mel_stats: next_to_model(args.mel_stats, "mel_stats.pth"),
        vocabulary: next_to_model(args.vocab, "vocab.json"),
        config: next_to_model(args.config, "config.json"),
        voices: next_to_model(args.speakers, "speakers_xtts.pth"),
        unchecked: args.unchecked,
        model: args.model,
    };
    let report = import(&sources, &OsDisk, &args.output, args.force)?;
    if args.json {
        print_json(&report)?
    } else {
        print(&as_text(&sources, &report, &args.output))?
    }
    Ok(Exit::Done)
}

fn as_text(sources: &Sources, report: &ImportReport, output: &Path) -> String {
    let gpt = &report.sizes.gpt;
    let named = |label: &str, path: &Option<PathBuf>| match path {
        Some(path) => format!("{label:<12} {}\n", path.display()),
        None => format!("{label:<12} none\n"),
    };
    let mut text = format!("{:<12} {}\n", "model", sources.model.display());
    text += &match (&sources.dvae, &report.sizes.dvae) {
        (None, Some(_)) => format!("{:<12} part of the checkpoint\n", "dvae"),
        (path, _) => named("dvae", path),
    };
    text += &named("vocabulary", &sources.vocabulary);
    text += &named("config", &sources.config);
    text += &format!("{:<12} {}\n", "voices", report.voices.len());
    text += &format!("{:<12} {} with {} values\n", "tensors", report.tensors, report.numbers);
    text += &format!(
        "{:<12} {} layers of {} channels, {} heads, {} text and {} audio tokens\n",
        "gpt", gpt.layers, gpt.dim, gpt.heads, gpt.text_tokens, gpt.audio_tokens
    );
    if !report.dropped.is_empty() {
        text += &format!("{:<12} {} tensors that are not needed\n", "left out", report.dropped.len());
    }
    for note in &report.notes {
        text += &format!("{:<12} {note}\n", "note");
    }
    text += &format!("{:<12} {}\n", "written", output.display());
    text
}
