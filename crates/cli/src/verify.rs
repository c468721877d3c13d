//! `myxtts verify`.

use myxtts_run::exit::Exit;

#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> anyhow::Result<Exit> {
    anyhow::bail!("skeleton only")
}
