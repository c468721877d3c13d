//! `myxtts inspect tokens`: what a text becomes before the model reads it.

use std::path::PathBuf;

use myxtts_data::text::{Cleaner, TextError, alphabet, clean};
use myxtts_data::tokenizer::{Tokenizer, TokenizerError};
use myxtts_run::exit::Exit;

use crate::tokenizer::{print_encoded, visible};

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
    /// default, or coqui for what the released models were trained with
    #[arg(long, default_value_t)]
    cleaner: Cleaner,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let outcome = match &args.tokenizer {
        Some(path) => with_vocabulary(&args, &Tokenizer::load(path)?),
        None => without_vocabulary(&args),
    };
    outcome.map(|()| Exit::Done).or_else(|error| {
        let exit = match (error.downcast_ref::<TokenizerError>(), error.downcast_ref::<TextError>()) {
            (Some(TokenizerError::NoLanguage { .. }), _) | (_, Some(TextError::BadLanguage(_))) => {
                Exit::Usage
            }
            (Some(TokenizerError::Text(_)), _) | (_, Some(_)) => Exit::BadData,
            _ => return Err(error),
        };
        eprintln!("error: {error:#}");
        Ok(exit)
    })
}

fn with_vocabulary(args: &Args, tokenizer: &Tokenizer) -> anyhow::Result<()> {
    let encoded = tokenizer.encode(&args.text, &args.language, args.cleaner)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&encoded)?);
    } else {
        print_encoded(&encoded);
    }
    Ok(())
}

/// The cleaned text, and what in it the language does not usually write.
fn without_vocabulary(args: &Args) -> anyhow::Result<()> {
    let cleaned = clean(&args.text, &args.language, args.cleaner)?;
    let letters = alphabet(&args.language);
    let mut unknown: Vec<char> =
        cleaned.chars().filter(|&c| letters.is_some_and(|letters| !letters.contains(c))).collect();
    unknown.sort_unstable();
    unknown.dedup();
    if args.json {
        println!("{}", serde_json::json!({ "cleaned": cleaned, "unexpected": unknown }));
        return Ok(());
    }
    println!("cleaned     {cleaned}");
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.into_iter().map(visible).collect();
        println!("unexpected  {}", unknown.join(", "));
    }
    println!("(--tokenizer FILE shows pieces and ids)");
    Ok(())
}
