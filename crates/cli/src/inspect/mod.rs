//! `myxtts inspect`: what the model will see, as numbers for tools and as a picture for people.

mod batch;
mod cache;
mod mel;
mod tokens;

use clap::Subcommand;
use myxtts_run::exit::Exit;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A sound file through one of the three mel front-ends
    Mel(mel::Args),
    /// A text as it is cleaned, cut into pieces and numbered
    Tokens(tokens::Args),
    /// A cache as a whole, or one utterance's arrays in it
    Cache(cache::Args),
    /// The batch of a step: its rows, its shape, its padding
    Batch(batch::Args),
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    match args.what {
        What::Mel(args) => mel::run(args),
        What::Tokens(args) => tokens::run(args),
        What::Cache(args) => cache::run(args),
        What::Batch(args) => batch::run(args),
    }
}
