//! `myxtts tokenizer`: trains, extends or inspects a vocabulary.

use std::path::{Path, PathBuf};

use anyhow::Context;
use myxtts_data::dataset::{self, Corpus, ReadOptions};
use myxtts_data::tokenizer::{
    Coverage, ExtendOptions, ExtendReport, TEXT_TOKEN_LIMIT, Tokenizer, TrainOptions, choose_cleaner,
    coverage, extend, train,
};
use myxtts_data::utterance::Utterance;
use myxtts_run::exit::Exit;
use myxtts_run::output_path::OutputPath;
use myxtts_run::regular_file;
use myxtts_text::Cleaner;

use crate::UsageError;
use crate::inputs::Inputs;
use crate::output::{errln, outln, print_json};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Train a vocabulary on texts
    Train(TrainArgs),
    /// Add a language to an existing vocabulary without moving an id
    Extend(ExtendArgs),
    /// Show size, languages and special tokens of a vocabulary, and how well it covers texts
    Show(ShowArgs),
}

#[derive(clap::Args)]
struct TrainArgs {
    /// Corpus folders, or text files with one sentence per line
    #[arg(long, required = true, num_args = 1.., value_name = "PATH")]
    data: Vec<PathBuf>,
    /// File to write the vocabulary to
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Number of tokens, including special tokens and characters
    #[arg(long, default_value_t = TrainOptions::default().vocab_size)]
    vocab_size: usize,
    /// Language of texts that do not name one
    #[arg(long)]
    language: Option<String>,
    /// Text cleaner: default, coqui (that of the released models) or phonemes (English as it is pronounced) [default: as
    /// `train` chooses for these texts]
    #[arg(long)]
    cleaner: Option<Cleaner>,
    /// How often two pieces must occur together to be merged
    #[arg(long, default_value_t = TrainOptions::default().min_frequency)]
    min_frequency: u64,
}

#[derive(clap::Args)]
struct ExtendArgs {
    /// The vocabulary to start from
    base: PathBuf,
    /// Corpus folders, or text files in the new language with one sentence per line
    #[arg(long, required = true, num_args = 1.., value_name = "PATH")]
    data: Vec<PathBuf>,
    /// The language to add
    #[arg(long)]
    language: String,
    /// File to write the new vocabulary to
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Maximum number of new tokens
    #[arg(long, default_value_t = 2000)]
    new_tokens: usize,
    /// Also build pieces from letters that other languages share: fewer tokens in the new language, but some texts in the old
    /// languages get other ids
    #[arg(long)]
    shared: bool,
    /// Sample texts of a language that the vocabulary already has, to count those whose ids change
    #[arg(long, num_args = 1.., value_name = "LANGUAGE=PATH")]
    old_data: Vec<String>,
    /// Text cleaner: default, coqui (that of the released models) or phonemes (English as it is pronounced) [default: the one
    /// the vocabulary was trained with]
    #[arg(long)]
    cleaner: Option<Cleaner>,
    /// How often two pieces must occur together to be merged
    #[arg(long, default_value_t = 2)]
    min_frequency: u64,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// The vocabulary
    file: PathBuf,
    /// Measure the coverage of these corpus folders, or text files with one sentence per line
    #[arg(long, num_args = 1.., value_name = "PATH")]
    data: Vec<PathBuf>,
    /// A text to encode
    #[arg(long)]
    text: Option<String>,
    /// Language of texts that do not name one
    #[arg(long)]
    language: Option<String>,
    /// Text cleaner: default, coqui (that of the released models) or phonemes (English as it is pronounced) [default: the one
    /// the vocabulary was trained with]
    #[arg(long)]
    cleaner: Option<Cleaner>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Train(args) => run_train(args),
        Command::Extend(args) => run_extend(args),
        Command::Show(args) => run_show(args),
    }?;
    Ok(Exit::Done)
}

fn run_train(args: TrainArgs) -> anyhow::Result<()> {
    let output = destination(&args.output, &args.data, None, args.language.as_deref())?;
    let texts = texts_of(&args.data, args.language.as_deref())?;
    let pairs: Vec<(&str, &str)> = texts.iter().map(|text| (&*text.language, &*text.text)).collect();
    let cleaner = cleaner_for(args.cleaner, None, &pairs);
    let options = TrainOptions {
        vocab_size: args.vocab_size,
        languages: args.language.into_iter().collect(),
        cleaner,
        min_frequency: args.min_frequency,
    };
    let trained = train(texts.iter().map(|text| (&text.language, &text.text)), &options)?;
    write(&output, &trained.to_json())?;
    describe(&args.output, &trained);
    let measured = measure(&trained, &texts, cleaner);
    print_coverage(&measured);
    if trained.vocabulary_size() < args.vocab_size {
        outln!(
            "Only {} of {} tokens were found in {} texts: train on more text to get more.",
            trained.vocabulary_size(),
            args.vocab_size,
            texts.len()
        );
    }
    Ok(())
}

fn run_extend(args: ExtendArgs) -> anyhow::Result<()> {
    let output = destination(&args.output, &args.data, Some(&args.base), Some(&args.language))?;
    let base = Tokenizer::load(&args.base)?;
    let cleaner = cleaner_for(args.cleaner, Some(&base), &[]);
    let mut texts = texts_of(&args.data, Some(&args.language))?;
    for sample in &args.old_data {
        let Some((language, path)) = sample.split_once('=') else {
            return Err(UsageError(format!(
                "--old-data {sample}: expected a language and a file, such as ar=texts.txt"
            ))
            .into());
        };
        texts.extend(texts_of(&[PathBuf::from(path)], Some(language))?);
    }
    let options = ExtendOptions {
        new_tokens: args.new_tokens,
        cleaner,
        min_frequency: args.min_frequency,
        shared: args.shared,
        ..ExtendOptions::new(&args.language)
    };
    let (extended, report) = extend(&base, texts.iter().map(|text| (&text.language, &text.text)), &options)?;
    write(&output, &extended.to_json())?;
    if args.json {
        print_json(&report)?;
        return Ok(());
    }
    describe(&args.output, &extended);
    print_report(&report, args.shared);
    Ok(())
}

fn run_show(args: ShowArgs) -> anyhow::Result<()> {
    let tokenizer = Tokenizer::load(&args.file)?;
    let cleaner = cleaner_for(args.cleaner, Some(&tokenizer), &[]);
    let covered = match args.data.is_empty() {
        true => None,
        false => Some(measure(&tokenizer, &texts_of(&args.data, args.language.as_deref())?, cleaner)),
    };
    let encoded = match &args.text {
        None => None,
        Some(text) => {
            let language =
                args.language.as_deref().ok_or_else(|| UsageError("--text needs --language".to_owned()))?;
            Some(tokenizer.encode(text, language, cleaner)?)
        }
    };
    if args.json {
        let languages: serde_json::Map<String, serde_json::Value> = tokenizer
            .languages()
            .into_iter()
            .map(|language| (language.clone(), tokenizer.language_id(&language).into()))
            .collect();
        let report = serde_json::json!({
            "vocabulary_size": tokenizer.vocabulary_size(),
            "pieces": tokenizer.pieces(),
            "merges": tokenizer.merges(),
            "languages": languages,
            "start": tokenizer.start_id(),
            "stop": tokenizer.stop_id(),
            "unk": tokenizer.unk_id(),
            "space": tokenizer.space_id(),
            "fingerprint": hex(&tokenizer.fingerprint()),
            "coverage": covered,
            "text": encoded,
        });
        print_json(&report)?;
        return Ok(());
    }
    describe(&args.file, &tokenizer);
    if let Some(encoded) = &encoded {
        print_encoded(encoded);
    }
    if let Some(covered) = &covered {
        print_coverage(covered);
    }
    Ok(())
}

/// The cleaner that the user names, else the one that fits the texts or the vocabulary; a choice is reported.
pub fn cleaner_for(
    written: Option<Cleaner>,
    vocabulary: Option<&Tokenizer>,
    texts: &[(&str, &str)],
) -> Cleaner {
    let chosen = choose_cleaner(written, vocabulary, texts);
    if let Some(why) = chosen.why {
        errln!("--cleaner {}: {why}", chosen.cleaner);
    }
    chosen.cleaner
}

/// A text to train on or to measure.
struct Text {
    /// Its utterance id, or `file:line`.
    id: String,
    language: String,
    text: String,
}

/// Reads the texts of paths: corpora, which name their languages, or plain files with one text per line, which do not.
fn texts_of(paths: &[PathBuf], language: Option<&str>) -> anyhow::Result<Vec<Text>> {
    let mut texts = Vec::new();
    for path in paths {
        texts.extend(if path.is_dir() {
            texts_of_corpus(path, language)?
        } else {
            texts_of_file(path, language)?
        });
    }
    Ok(texts)
}

fn texts_of_corpus(root: &Path, language: Option<&str>) -> anyhow::Result<Vec<Text>> {
    let corpus = dataset::read(root, &read_options(language))?;
    errln!("{}", corpus.why);
    corpus.notes.iter().chain(&problem_count(&corpus)).for_each(|note| errln!("{note}"));
    Ok(corpus
        .utterances
        .into_iter()
        .map(|Utterance { id, language, text, .. }| Text { id, language, text })
        .collect())
}

/// A note on the lines of a corpus that are not utterances.
fn problem_count(corpus: &Corpus) -> Option<String> {
    let count = corpus.problems.len();
    (count > 0).then(|| format!("{count} lines are not valid utterances: `myxtts check` lists them"))
}

fn texts_of_file(path: &Path, language: Option<&str>) -> anyhow::Result<Vec<Text>> {
    let bytes = regular_file::read(path).with_context(|| format!("reading {}", path.display()))?;
    let language = language.ok_or_else(|| {
        UsageError(format!("{} does not name its language: give --language", path.display()))
    })?;
    // Invalid UTF-8 spoils one line, not the whole file.
    let content = String::from_utf8_lossy(&bytes);
    let lines = content.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    Ok(lines
        .map(|(number, line)| Text {
            id: format!("{}:{}", path.display(), number + 1),
            language: language.to_owned(),
            text: line.to_owned(),
        })
        .collect())
}

fn measure(tokenizer: &Tokenizer, texts: &[Text], cleaner: Cleaner) -> Coverage {
    coverage(tokenizer, texts.iter().map(|text| (text.id.as_str(), &text.language, &text.text)), cleaner)
}

/// Checks the output before the work: it must not be one of the texts. A vocabulary may be extended in place.
fn destination(
    output: &Path,
    data: &[PathBuf],
    base: Option<&Path>,
    language: Option<&str>,
) -> anyhow::Result<OutputPath> {
    let mut inputs = Inputs::default();
    let in_place = base.is_some_and(|base| regular_file::is_same(base, output));
    if output.exists() && !in_place {
        for path in data {
            match path.is_dir() {
                true => inputs.add_corpus(&dataset::read(path, &read_options(language))?),
                false => inputs.add(path, "a text that is read"),
            }
        }
    }
    Ok(inputs.check("-o", output)?)
}

fn read_options(language: Option<&str>) -> ReadOptions {
    ReadOptions { language: language.map(str::to_owned), ..ReadOptions::default() }
}

fn write(output: &OutputPath, bytes: &[u8]) -> anyhow::Result<()> {
    output.write(bytes).with_context(|| format!("writing {}", output.path().display()))
}

fn describe(path: &Path, tokenizer: &Tokenizer) {
    let (size, pieces) = (tokenizer.vocabulary_size(), tokenizer.pieces());
    outln!("{}", path.display());
    outln!("  tokens       {pieces} (ids 0 to {}, {} unused)", size.saturating_sub(1), size - pieces);
    outln!("  merges       {}", tokenizer.merges());
    let languages: Vec<String> = tokenizer
        .languages()
        .into_iter()
        .map(|language| format!("{language} {}", tokenizer.language_id(&language).unwrap_or_default()))
        .collect();
    outln!("  languages    {}", languages.join(", "));
    outln!(
        "  specials     [STOP] {}, [UNK] {}, [SPACE] {}, [START] {}",
        tokenizer.stop_id(),
        tokenizer.unk_id(),
        tokenizer.space_id(),
        tokenizer.start_id()
    );
    outln!("  fingerprint  {}", &hex(&tokenizer.fingerprint())[..16]);
}

/// Prints the cleaned text, pieces and ids of a text.
pub fn print_encoded(encoded: &myxtts_data::tokenizer::Encoded) {
    outln!("cleaned  {}", encoded.cleaned);
    outln!("tokens   {}", encoded.ids.len());
    for (id, piece) in encoded.ids.iter().zip(&encoded.pieces) {
        outln!("{id:>7}  {piece}");
    }
    if !encoded.unknown.is_empty() {
        let unknown: Vec<String> = encoded.unknown.iter().map(|&c| visible(c)).collect();
        outln!("unknown  {}", unknown.join(", "));
    }
}

fn print_coverage(covered: &Coverage) {
    outln!(
        "coverage: {} texts, {} characters, {} unknown ({:.4} %), {:.3} tokens per character",
        covered.texts,
        covered.characters,
        covered.unknown,
        100.0 * covered.unknown_rate(),
        covered.tokens_per_character()
    );
    for language in &covered.missing_languages {
        outln!("  the vocabulary has no [{language}] token; `myxtts tokenizer extend` adds one");
    }
    let unknown: Vec<_> = covered.per_character.iter().filter(|c| c.unknown > 0).collect();
    if !unknown.is_empty() {
        outln!("  {:<14} {:>9}  for example", "unknown", "count");
        for character in unknown.iter().take(30) {
            outln!(
                "  {:<14} {:>9}  {}",
                visible(character.character),
                character.count,
                character.examples.join(" ")
            );
        }
        if unknown.len() > 30 {
            outln!("  and {} more (--json lists all)", unknown.len() - 30);
        }
    }
    if let Some(longest) = covered.longest.first() {
        outln!("  longest text: {} tokens of at most {TEXT_TOKEN_LIMIT} ({})", longest.tokens, longest.id);
    }
    if covered.over_limit > 0 {
        outln!(
            "  {} texts are longer than the model's limit: split them or leave them out",
            covered.over_limit
        );
        for text in covered.longest.iter().filter(|text| text.tokens > TEXT_TOKEN_LIMIT) {
            outln!("    {} tokens  {}", text.tokens, text.id);
        }
    }
    if covered.uncleanable > 0 {
        outln!("  {} texts could not be cleaned:", covered.uncleanable);
        for (id, reason) in &covered.uncleanable_examples {
            outln!("    {id}: {reason}");
        }
    }
}

fn print_report(report: &ExtendReport, shared: bool) {
    let characters: Vec<String> = report.characters.iter().map(|&c| visible(c)).collect();
    outln!("added [{}] as {}", report.language, report.language_id);
    outln!("  ids          {} to {}", report.first_id, report.size_after.saturating_sub(1));
    outln!("  characters   {}: {}", characters.len(), characters.join(" "));
    outln!("  pieces       {}", report.pieces);
    outln!("  {:<12} {:>12} {:>12}", "", "before", "after");
    outln!("  {:<12} {:>12} {:>12}", "embedding", report.size_before, report.size_after);
    outln!("  {:<12} {:>12} {:>12}", "unknown", report.before.unknown, report.after.unknown);
    outln!("  {:<12} {:>12} {:>12}", "tokens", report.before.tokens, report.after.tokens);
    outln!(
        "  {:<12} {:>12.3} {:>12.3}",
        "per character",
        report.before.tokens_per_character(),
        report.after.tokens_per_character()
    );
    if report.old_texts > 0 {
        outln!(
            "  {} of {} texts in old languages have other ids now",
            report.old_texts_changed,
            report.old_texts
        );
    }
    if !shared {
        outln!(
            "  Every new piece has a letter that no other language uses, so that old texts keep their ids. \
             --shared lifts this limit and needs fewer tokens per text."
        );
    }
}

/// A character with its code point; the code point alone if the character has no width of its own.
pub fn visible(c: char) -> String {
    let plain = c.is_alphanumeric() || c.is_ascii_punctuation();
    if plain { format!("{c} U+{:04X}", u32::from(c)) } else { format!("U+{:04X}", u32::from(c)) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
