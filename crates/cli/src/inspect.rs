//! `myxtts inspect`: look at what the model will see.

mod batch;
mod cache;

use myxtts_run::exit::Exit;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// What a cache holds, or one utterance's arrays and where they lie
    Cache(cache::Args),
    /// A batch of training: its rows, its shape, its padding
    Batch(batch::Args),
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Cache(args) => cache::run(args),
        Command::Batch(args) => batch::run(args),
    }
}
