//! `myxtts inspect`: the inputs of the model, as numbers and as images.

mod augmented_slab;
mod batch;
mod cache;
mod mel;
mod tokens;

use clap::Subcommand;
use myxtts_run::exit::Exit;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compute the mel spectrogram of an audio file
    Mel(mel::Args),
    /// Show the cleaned text, pieces and ids of a text
    Tokens(tokens::Args),
    /// Show the content of a cache, or the arrays of one utterance
    Cache(cache::Args),
    /// Show the batch of a step: rows, shape and padding
    Batch(batch::Args),
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Mel(args) => mel::run(args),
        Command::Tokens(args) => tokens::run(args),
        Command::Cache(args) => cache::run(args),
        Command::Batch(args) => batch::run(args),
    }
}
