//! `myxtts export`: converts a model folder to files that other programs load.

use std::path::PathBuf;

use myxtts_model::weights::ModelFolder;
use myxtts_model::weights::export::export;
use myxtts_run::durable::OsDisk;
use myxtts_run::exit::Exit;

use crate::output::{print, print_json};

#[derive(clap::Args)]
pub struct Args {
    /// Model folder
    model: PathBuf,
    /// Format to write
    #[arg(long, value_enum, default_value_t = Format::XttsV2)]
    format: Format,
    /// Folder to write to
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Overwrite model files that exist in the folder
    #[arg(long)]
    force: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// The files of an XTTS-v2 release, for Coqui's own code: model.pth, dvae.pth, config.json and so on
    XttsV2,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let folder = ModelFolder::open(&args.model)?;
    let report = match args.format {
        Format::XttsV2 => export(&folder, &OsDisk, &args.output, args.force)?,
    };
    if args.json {
        print_json(&report)?;
        return Ok(Exit::Done);
    }
    let mut text = format!("{:<12} {}: {}\n", "written", args.output.display(), report.files.join(", "));
    text += &format!("{:<12} {} in model.pth\n", "tensors", report.tensors);
    for note in &report.notes {
        text += &format!("{:<12} {note}\n", "note");
    }
    print(&text)?;
    Ok(Exit::Done)
}
