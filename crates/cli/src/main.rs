//! The `myxtts` program: parses arguments, runs a command, returns an exit code. Every command is one file.

// `print!` and `eprint!` panic when the reader has closed the pipe: see `output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod bench;
mod check;
mod compact;
mod config;
mod demo_corpus;
mod devices;
mod diagnose;
#[cfg(test)]
mod effects;
mod evaluate;
mod export;
mod failure;
mod import;
mod inputs;
mod inspect;
mod launch;
mod machine_sampler;
mod models_folder;
mod monitor;
mod output;
mod prepare;
mod progress;
mod ranks;
mod resynthesize;
mod sampling;
mod serve;
mod settings;
mod shard;
mod signal;
mod speak;
mod stage_bar;
mod synthesize_corpus;
mod target;
mod tokenizer;
mod train;
mod tune;
mod verify;
mod voice;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::{UsageError, exit_of};
use output::errln;

/// Train, fine-tune and run XTTS voice-cloning models
#[derive(Parser)]
#[command(name = "myxtts", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the CPU, the GPUs and the CUDA libraries that were found
    Devices(devices::Args),
    /// Show the resolved settings with the origin of each, or write a commented settings file
    Config(config::Args),
    /// Generate a small corpus of synthetic English and Persian speech, for trying all commands
    DemoCorpus(demo_corpus::Args),
    /// Generate a large corpus of synthetic speech in hundreds of voices, to pretrain on
    SynthesizeCorpus(synthesize_corpus::Args),
    /// Read a whole corpus and report every file that cannot be used, with the reason
    Check(check::Args),
    /// Train, extend or inspect a vocabulary
    Tokenizer(tokenizer::Args),
    /// Compute all features of a corpus and store them in a cache
    Prepare(prepare::Args),
    /// Check every record of a cache, and rebuild those that are damaged or outdated
    Verify(verify::Args),
    /// Inspect the inputs of the model: mels, tokens, cache records, batches
    Inspect(inspect::Args),
    /// Train or fine-tune a voice: all stages in order, or a single one
    Train(train::Args),
    /// Start a training run of several processes on this machine, one per GPU
    Launch(launch::Args),
    /// Time training steps with different ways of loading data, and show how busy the GPU is with each
    Bench(bench::Args),
    /// Measure which batch size and number of loader threads are fastest here, and write them as settings
    Tune(tune::Args),
    /// Monitor GPUs, CPU, memory and a training run: live view, log and statistics
    Monitor(monitor::Args),
    /// Find the bottleneck of training on this machine, and the setting that removes it
    Diagnose(diagnose::Args),
    /// Speak the validation set of a run, or a list of texts, and compare with the recordings
    Evaluate(evaluate::Args),
    /// Pass recordings through the DVAE and through the whole model, and measure what each loses
    Resynthesize(resynthesize::Args),
    /// Speak a text in the voice of a recording
    Speak(speak::Args),
    /// Manage the saved voices of a model: add, list, show, remove, export
    Voice(voice::Args),
    /// Serve speech over HTTP: the OpenAI speech API and the routes of XTTS servers
    Serve(serve::Args),
    /// Convert Coqui files (an XTTS-v2 release or a trainer checkpoint) to a model folder
    Import(import::Args),
    /// Convert a model folder to files in the layout of Coqui's releases
    Export(export::Args),
    /// Write a model folder that takes about a fifth of the space, for publishing
    Compact(compact::Args),
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
        Command::Compact(args) => compact::run(args),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            errln!("error: {}", failure::message(&error));
            if let Some(hint) = failure::hint(&error) {
                errln!("{hint}");
            }
            for note in failure::notes(&error) {
                errln!("{note}");
            }
            exit_of(&error).into()
        }
    }
}
