//! A corpus for pretraining: generated texts in hundreds of voices, mixed with texts of the user.

use std::collections::BTreeSet;
use std::path::Path;

use myxtts_run::progress::Progress;
use myxtts_run::seed::Seed;
use myxtts_text::{Cleaner, clean};
use rayon::prelude::*;

use super::corpus::check;
use super::folder::{DemoError, DemoReport, Item, Marker, existing_seconds, write_corpus};
use super::pretraining_texts;
use super::sentences::Sentence;
use super::voice::Voice;
use super::{Language, ReadError, phonemes};

/// Options of a pretraining corpus.
#[derive(Clone, Debug)]
pub struct PretrainingOptions {
    /// Number of utterances, distributed evenly over languages and speakers.
    pub utterances: usize,
    /// The same seed gives the same corpus, byte for byte.
    pub seed: u64,
    /// Number of voices, counted from the first of [`Voice::all`].
    pub speakers: usize,
    /// The languages, each once.
    pub languages: Vec<Language>,
    /// Texts to use in addition to generated ones, such as those of a corpus to train on later; see [`read_texts`].
    pub texts: Vec<Sentence>,
    /// Share of the utterances that use one of `texts`, from 0 to 1; the others are generated and include words of `texts`.
    /// Ignored for a language without texts.
    pub texts_share: f64,
    /// Write into a folder with other content, replacing files of the same names.
    pub overwrite: bool,
}

impl Default for PretrainingOptions {
    fn default() -> Self {
        PretrainingOptions {
            utterances: 20_000,
            seed: 1,
            speakers: 300,
            languages: vec![Language::English],
            texts: Vec::new(),
            texts_share: 0.5,
            overwrite: false,
        }
    }
}

const MARKER: &str = "synthetic-corpus.json";
/// Raised whenever the same options give different texts or audio.
const EDITION: u32 = 1;

/// Writes the corpus to `dir`, on all cores, unless the folder already contains exactly this corpus.
pub fn write_pretraining(
    dir: &Path,
    options: &PretrainingOptions,
    progress: &dyn Progress,
) -> Result<DemoReport, DemoError> {
    let items = plan(options)?;
    let marker = marker(options);
    let seconds = match existing_seconds(dir, &items, &marker)? {
        Some(seconds) => seconds,
        None => write_corpus(dir, &items, &marker, options.overwrite, progress)?,
    };
    Ok(DemoReport {
        dir: dir.to_owned(),
        utterances: items.len(),
        seconds,
        speakers: Voice::all()[..options.speakers].iter().map(|voice| voice.name).collect(),
        languages: options.languages.iter().map(|language| language.code()).collect(),
    })
}

/// Returns the texts of `lines` that can be spoken in one of `languages`, with numbers and abbreviations expanded by the
/// default cleaner; and the line numbers, from 1, of those that cannot, with the reason. Empty lines and comments (`#`) are
/// skipped.
///
/// For a line `id|text|...`, as in `metadata.csv` of LJSpeech's layout, the text column is used.
pub fn read_texts(lines: &str, languages: &[Language]) -> (Vec<Sentence>, Vec<(usize, ReadError)>) {
    let (mut read, mut rejected) = (Vec::new(), Vec::new());
    for (n, line) in lines.lines().enumerate() {
        let text =
            line.trim_start_matches('\u{feff}').split('|').nth(usize::from(line.contains('|'))).unwrap_or("");
        let text = text.trim();
        if text.is_empty() || line.starts_with('#') {
            continue;
        }
        match read_text(text, languages) {
            Ok(sentence) => read.push(sentence),
            Err(error) => rejected.push((n + 1, error)),
        }
    }
    (read, rejected)
}

fn read_text(text: &str, languages: &[Language]) -> Result<Sentence, ReadError> {
    let mut rejected = None;
    for &language in languages {
        // The two languages share no letter: at most one of them can read a text.
        let normalised = clean(text, language.code(), Cleaner::Default).unwrap_or_else(|_| text.to_owned());
        match phonemes(&normalised, language) {
            Ok(_) => return Ok(Sentence { language, text: text.to_owned(), normalised }),
            Err(error) => _ = rejected.get_or_insert(error),
        }
    }
    Err(rejected.unwrap_or_else(|| ReadError::NothingToSay { text: text.to_owned() }))
}

/// Distributes texts over languages and speakers. The first n utterances do not depend on how many follow.
fn plan(options: &PretrainingOptions) -> Result<Vec<Item>, DemoError> {
    let PretrainingOptions { utterances, speakers, ref languages, texts_share, .. } = *options;
    check(utterances, speakers, languages)?;
    if !(0.0..=1.0).contains(&texts_share) {
        return Err(DemoError::Options(format!("a texts share of {texts_share} requested: choose 0 to 1")));
    }
    let seed = Seed::new(options.seed).derive("pretraining corpus");
    let of_language = |language: Language| -> (Vec<&Sentence>, Vec<String>) {
        let own: Vec<&Sentence> =
            options.texts.iter().filter(|sentence| sentence.language == language).collect();
        let letters = |c: char| c.is_alphabetic() || "'\u{200c}".contains(c);
        let words = own.iter().flat_map(|sentence| sentence.normalised.split(|c| !letters(c)));
        let words: BTreeSet<String> = words
            .map(|word| word.trim_matches('\'').to_owned())
            .filter(|word| word.chars().count() > 1)
            .collect();
        (own, words.into_iter().collect())
    };
    let own: Vec<_> = languages.iter().map(|&language| of_language(language)).collect();
    let items = (0..utterances).into_par_iter().map(|i| {
        let at = i % languages.len();
        let (texts, words) = &own[at];
        // Index within its language; the speakers alternate.
        let n = i / languages.len();
        let voice = &Voice::all()[n % speakers];
        // Number of given texts among the first n: spreads them evenly for any share.
        let given = |n: usize| (n as f64 * texts_share) as usize;
        let sentence = if !texts.is_empty() && given(n + 1) > given(n) {
            shuffled(texts, given(n), seed.derive("texts")).clone()
        } else {
            pretraining_texts::text(languages[at], seed.derive("text").with(i as u64), words)
        };
        Item::new(i, sentence, voice, seed)
    });
    Ok(items.collect())
}

/// The `n`-th of `texts` in a different order in every round: each is used once before any is repeated.
fn shuffled<'a>(texts: &[&'a Sentence], n: usize, seed: Seed) -> &'a Sentence {
    let round = seed.with((n / texts.len()) as u64);
    let (count, position) = (texts.len() as u64, (n % texts.len()) as u64);
    // A step coprime to the count visits every text once.
    let mut step = 1 + round.below(0, count);
    while gcd(step, count) > 1 {
        step += 1;
    }
    texts[((round.below(1, count) + position * step) % count) as usize]
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn marker(options: &PretrainingOptions) -> Marker {
    let languages: Vec<String> =
        options.languages.iter().map(|language| format!("\"{}\"", language.code())).collect();
    let mut texts = blake3::Hasher::new();
    for sentence in &options.texts {
        texts
            .update(sentence.text.as_bytes())
            .update(b"\n")
            .update(sentence.normalised.as_bytes())
            .update(b"\n");
    }
    Marker::new(
        MARKER,
        "synthesize-corpus",
        &[
            format!("\"edition\": {EDITION}"),
            format!("\"utterances\": {}", options.utterances),
            format!("\"seed\": {}", options.seed),
            format!("\"speakers\": {}", options.speakers),
            format!("\"languages\": [{}]", languages.join(", ")),
            format!("\"texts\": {}", options.texts.len()),
            format!("\"texts_hash\": \"{}\"", texts.finalize().to_hex()),
            format!("\"texts_share\": {}", options.texts_share),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(utterances: usize, texts: &str, texts_share: f64) -> Vec<Item> {
        let (texts, rejected) = read_texts(texts, &Language::ALL);
        assert!(rejected.is_empty(), "{rejected:?}");
        let languages = Language::ALL.to_vec();
        let options = PretrainingOptions {
            utterances,
            speakers: 7,
            languages,
            texts,
            texts_share,
            ..Default::default()
        };
        plan(&options).expect("in range")
    }

    #[test]
    fn texts_have_their_share_and_are_used_once_per_round() {
        let texts = "a|Mr. Smith has 3 dogs.|x\nTwo.\nThree!\n\nسلام دنیا\n";
        let items = planned(40, texts, 0.25);
        let given = |text: &str| items.iter().filter(|item| item.sentence.text == text).count();
        // 20 utterances of each language, a quarter of them: five.
        let counts = ["Mr. Smith has 3 dogs.", "Two.", "Three!"].map(given);
        assert_eq!(counts.iter().sum::<usize>(), 5);
        assert!(counts.iter().all(|count| (1..=2).contains(count)), "{counts:?}");
        assert_eq!(given("سلام دنیا"), 5);
        let smith = items.iter().find(|item| item.sentence.text.starts_with("Mr.")).expect("it is read");
        assert_eq!(smith.sentence.normalised, "mister smith has three dogs.");
        assert!(planned(12, texts, 1.0).iter().all(|item| texts.contains(&item.sentence.text)));
        let few = planned(8, texts, 0.25);
        assert!(few.iter().zip(&items).all(|(a, b)| a.id == b.id && a.sentence == b.sentence));
    }

    #[test]
    fn unreadable_lines_are_reported() {
        let (read, rejected) = read_texts("good\nдень\n—\n# день\n", &[Language::English]);
        assert_eq!(read.len(), 1);
        let lines: Vec<usize> = rejected.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 3]);
        assert!(matches!(rejected[0].1, ReadError::UnknownCharacter { character: 'д', .. }));
    }
}
