//! `myxtts inspect tokens`: what a text becomes before the model reads it.

use std::path::PathBuf;

use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::exit::Exit;
use myxtts_text::{Cleaner, alphabet, clean};

use crate::output::{outln, print_json};
use crate::tokenizer::{cleaner_for, print_encoded, visible};

#[derive(clap::Args)]
pub struct Args {
    /// The text, as a transcript has it
    text: String,
    /// Its language: en, fa, zh-cn
    #[arg(long)]
    language: String,
    /// The vocabulary; without one only the cleaned text is shown
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// default, coqui for what the released models were trained with, or phonemes for English as it sounds; by itself what the
    /// vocabulary was made with
    #[arg(long)]
    cleaner: Option<Cleaner>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    match &args.tokenizer {
        Some(path) => with_vocabulary(&args, &Tokenizer::load(path)?),
        None => without_vocabulary(&args),
    }?;
    Ok(Exit::Done)
}

fn with_vocabulary(args: &Args, tokenizer: &Tokenizer) -> anyhow::Result<()> {
    let cleaner = cleaner_for(args.cleaner, Some(tokenizer), &[]);
    let encoded = tokenizer.encode(&args.text, &args.language, cleaner)?;
    if args.json {
        print_json(&encoded)?;
    } else {
        print_encoded(&encoded);
    }
    Ok(())
}

/// The cleaned text, and what in it the language does not usually write.
fn without_vocabulary(args: &Args) -> anyhow::Result<()> {
    let cleaner = args.cleaner.unwrap_or_default();
    let cleaned = clean(&args.text, &args.language, cleaner)?;
    let letters = alphabet(&args.language, cleaner);
    let mut unknown: Vec<char> =
        cleaned.chars().filter(|&c| letters.is_some_and(|letters| !letters.contains(c))).collect();
    unknown.sort_unstable();
    unknown.dedup();
    if args.json {
        return print_json(&serde_json::json!({ "cleaned": cleaned, "unexpected": unknown }));
    }
    outln!("cleaned     {cleaned}");
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.into_iter().map(visible).collect();
        outln!("unexpected  {}", unknown.join(", "));
    }
    outln!("(--tokenizer FILE shows pieces and ids)");
    Ok(())
}
