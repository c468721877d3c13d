//! A corpus to pretrain on: generated texts in hundreds of voices, with the texts of a user among them.

use std::collections::BTreeSet;
use std::path::Path;

use myxtts_run::progress::Progress;
use myxtts_run::seed::Seed;
use myxtts_text::{Cleaner, clean};
use rayon::prelude::*;

use super::corpus::check;
use super::folder::{DemoError, DemoReport, Item, Marker, made, make};
use super::pretraining_texts;
use super::sentences::Sentence;
use super::voice::Voice;
use super::{Language, ReadError, phonemes};

/// What to make.
#[derive(Clone, Debug)]
pub struct PretrainingOptions {
    /// How many utterances, dealt evenly to languages and speakers.
    pub utterances: usize,
    /// The same seed gives the same corpus, byte for byte.
    pub seed: u64,
    /// How many of [`Voice::all`] speak, from the first on.
    pub speakers: usize,
    /// The languages, each once.
    pub languages: Vec<Language>,
    /// Texts to read beside generated ones: those of a corpus that is trained on later. [`read_texts`] gives them.
    pub texts: Vec<Sentence>,
    /// Share of the utterances that read one of `texts`, from 0 to 1; the others are generated, with words of `texts`
    /// among theirs. Without effect where there are no texts in a language.
    pub texts_share: f64,
    /// Write into a folder that holds something else, replacing files of the same names.
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
/// Raised whenever the same options begin to give other texts or other sound.
const EDITION: u32 = 1;

/// Makes the corpus in `dir`, on all cores, unless the folder holds exactly this corpus already.
pub fn write_pretraining(
    dir: &Path,
    options: &PretrainingOptions,
    progress: &dyn Progress,
) -> Result<DemoReport, DemoError> {
    let items = plan(options)?;
    let marker = marker(options);
    let seconds = match made(dir, &items, &marker)? {
        Some(seconds) => seconds,
        None => make(dir, &items, &marker, options.overwrite, progress)?,
    };
    Ok(DemoReport {
        dir: dir.to_owned(),
        utterances: items.len(),
        seconds,
        speakers: Voice::all()[..options.speakers].iter().map(|voice| voice.name).collect(),
        languages: options.languages.iter().map(|language| language.code()).collect(),
    })
}

/// The texts of `lines` that can be read aloud in one of `languages`, numbers and abbreviations as the default cleaner
/// reads them; and the numbers of the lines that cannot, from 1, with the reason. Empty lines and remarks (`#`) are
/// neither.
///
/// Of a line `id|text|...`, as `metadata.csv` of LJSpeech's layout has it, the text is taken.
pub fn read_texts(lines: &str, languages: &[Language]) -> (Vec<Sentence>, Vec<(usize, ReadError)>) {
    let (mut read, mut refused) = (Vec::new(), Vec::new());
    for (n, line) in lines.lines().enumerate() {
        let text =
            line.trim_start_matches('\u{feff}').split('|').nth(usize::from(line.contains('|'))).unwrap_or("");
        let text = text.trim();
        if text.is_empty() || line.starts_with('#') {
            continue;
        }
        match read_text(text, languages) {
            Ok(sentence) => read.push(sentence),
            Err(error) => refused.push((n + 1, error)),
        }
    }
    (read, refused)
}

fn read_text(text: &str, languages: &[Language]) -> Result<Sentence, ReadError> {
    let mut refused = None;
    for &language in languages {
        // The two have no letter in common: at most one of them can read a text.
        let normalised = clean(text, language.code(), Cleaner::Default).unwrap_or_else(|_| text.to_owned());
        match phonemes(&normalised, language) {
            Ok(_) => return Ok(Sentence { language, text: text.to_owned(), normalised }),
            Err(error) => _ = refused.get_or_insert(error),
        }
    }
    Err(refused.unwrap_or_else(|| ReadError::NothingToSay { text: text.to_owned() }))
}

/// Deals texts to languages and speakers. The first n utterances do not depend on how many follow.
fn plan(options: &PretrainingOptions) -> Result<Vec<Item>, DemoError> {
    let PretrainingOptions { utterances, speakers, ref languages, texts_share, .. } = *options;
    check(utterances, speakers, languages)?;
    if !(0.0..=1.0).contains(&texts_share) {
        return Err(DemoError::Options(format!("a share of {texts_share} was asked for: it is from 0 to 1")));
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
        // The how-manieth of its language; the speakers take turns.
        let n = i / languages.len();
        let voice = &Voice::all()[n % speakers];
        // So many of the first n + 1 read a given text: in turns, whatever the share.
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

/// The `n`-th of `texts` in an order of its own in every round: each is read once before any is read again.
fn shuffled<'a>(texts: &[&'a Sentence], n: usize, seed: Seed) -> &'a Sentence {
    let round = seed.with((n / texts.len()) as u64);
    let (count, place) = (texts.len() as u64, (n % texts.len()) as u64);
    // A step without a common divisor with the count visits every text once.
    let mut step = 1 + round.below(0, count);
    while gcd(step, count) > 1 {
        step += 1;
    }
    texts[((round.below(1, count) + place * step) % count) as usize]
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
        let (texts, refused) = read_texts(texts, &Language::ALL);
        assert!(refused.is_empty(), "{refused:?}");
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
    fn texts_are_read_in_their_share_each_once_before_any_again() {
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
    fn a_line_that_cannot_be_read_is_named() {
        let (read, refused) = read_texts("good\nдень\n—\n# день\n", &[Language::English]);
        assert_eq!(read.len(), 1);
        let lines: Vec<usize> = refused.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 3]);
        assert!(matches!(refused[0].1, ReadError::UnknownCharacter { character: 'д', .. }));
    }
}
