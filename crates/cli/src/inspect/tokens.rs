//! `myxtts inspect tokens`: the cleaned text, pieces and ids of a text.

use std::path::PathBuf;

use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::exit::Exit;
use myxtts_text::{Cleaner, alphabet, clean};

use crate::output::{outln, print_json};
use crate::tokenizer::{cleaner_for, print_encoded, visible};

#[derive(clap::Args)]
pub struct Args {
    /// The text, as in a transcript
    text: String,
    /// Language of the text, such as en, fa or zh-cn
    #[arg(long)]
    language: String,
    /// Vocabulary file; without one only the cleaned text is shown
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Text cleaner: default, coqui (that of the released models) or phonemes (English as it is pronounced) [default: the one
    /// the vocabulary was trained with]
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

/// Prints the cleaned text, and its characters outside the alphabet of the language.
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
