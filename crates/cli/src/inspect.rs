//! `myxtts inspect`: look at what the model will see.

mod batch;

use myxtts_run::exit::Exit;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// A batch of training: its rows, its shape, its padding
    Batch(batch::Args),
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    match args.what {
        What::Batch(args) => batch::run(args),
    }
}
