//! The `myxtts` program: arguments in, a command run, an exit code out. Every command is one file.

// `print!` and `eprint!` panic where nobody reads: see `output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod advice;
mod bench;
mod beside;
mod caveats;
mod check;
mod config;
mod corpora;
mod corpus;
mod demo_corpus;
mod devices;
mod diagnose;
#[cfg(test)]
mod effects;
mod evaluate;
mod export;
mod failure;
mod held_out;
mod import;
mod inspect;
mod launch;
mod monitor;
mod output;
mod place;
mod prepare;
mod progress;
mod ranks;
mod records;
mod request;
mod resume;
mod resynthesize;
mod sampling;
mod serve;
mod settings;
mod shard;
mod signal;
mod speak;
mod synthesize_corpus;
mod target;
mod tokenizer;
mod train;
mod tune;
mod verify;
mod voice;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::{UsageError, exit_of};
use output::errln;

/// Trains, fine-tunes and speaks XTTS voices, and keeps the GPU busy while it does.
#[derive(Parser)]
#[command(name = "myxtts", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what there is to compute with: CPU, GPUs, CUDA's libraries
    Devices(devices::Args),
    /// Show the resolved settings with the origin of each, or write a commented file to start from
    Config(config::Args),
    /// Make a small corpus of synthetic speech, English and Persian, to try everything with
    DemoCorpus(demo_corpus::Args),
    /// Make a large corpus of synthetic speech in hundreds of voices, of any English words, to pretrain on
    SynthesizeCorpus(synthesize_corpus::Args),
    /// Read a whole corpus and report per file what is wrong and why
    Check(check::Args),
    /// Train, extend or look at a vocabulary
    Tokenizer(tokenizer::Args),
    /// Precompute everything training reads into a cache
    Prepare(prepare::Args),
    /// Check every record of a cache, and rebuild what is broken or stale
    Verify(verify::Args),
    /// Look at what the model will see: mels, tokens, cache records, batches
    Inspect(inspect::Args),
    /// Train a voice: everything that is missing, stage by stage, or one stage alone
    Train(train::Args),
    /// Start several ranks of a training on this machine: one process for each GPU
    Launch(launch::Args),
    /// Time the real steps of a stage, fed in different ways: what keeps the GPU busy, and what does not
    Bench(bench::Args),
    /// Measure which batch size, threads and buffers suit this machine, and write them as settings
    Tune(tune::Args),
    /// Watch GPUs, processor, memory and a run while it trains; log, mean, spread and oscillation
    Monitor(monitor::Args),
    /// Find what keeps training from being faster, and what to set against it
    Diagnose(diagnose::Args),
    /// Speak what a run held out, or a list of texts, and measure how near it is to the recordings
    Evaluate(evaluate::Args),
    /// Pass recordings through the DVAE alone and through all parts: which of them loses what
    Resynthesize(resynthesize::Args),
    /// Say a text in the voice of a recording
    Speak(speak::Args),
    /// Keep voices beside a model: add, list, show, remove, export
    Voice(voice::Args),
    /// Speak for other programs: OpenAI's speech API and the routes of XTTS servers, over HTTP
    Serve(serve::Args),
    /// Make a model folder of Coqui's files: a release of XTTS-v2 or a checkpoint of its trainer
    Import(import::Args),
    /// Write a model folder as files in the layout of Coqui's releases
    Export(export::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Devices(args) => devices::run(args),
        Command::Config(args) => config::run(args),
        Command::DemoCorpus(args) => demo_corpus::run(args),
        Command::SynthesizeCorpus(args) => synthesize_corpus::run(args),
        Command::Check(args) => check::run(args),
        Command::Tokenizer(args) => tokenizer::run(args),
        Command::Prepare(args) => prepare::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Train(args) => train::run(args),
        Command::Launch(args) => launch::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Monitor(args) => monitor::run(args),
        Command::Diagnose(args) => diagnose::run(args),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Resynthesize(args) => resynthesize::run(args),
        Command::Speak(args) => speak::run(args),
        Command::Voice(args) => voice::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Import(args) => import::run(args),
        Command::Export(args) => export::run(args),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            errln!("error: {}", failure::words(&error));
            if let Some(hint) = failure::hint(&error) {
                errln!("{hint}");
            }
            exit_of(&error).into()
        }
    }
}
