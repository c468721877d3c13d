//! Texts for pretraining: word sequences that resemble sentences in length, punctuation and share of function words, but
//! have no meaning. Their words come from the whole dictionary, so that a model learns English spelling; for Persian from
//! its lexicon and the demo sentences.
//!
//! A text is a pure function of its seed and of the words mixed into it.

use std::sync::LazyLock;

use myxtts_run::seed::Seed;
use myxtts_text::english::pronunciation::dictionary;

use super::function_words::{FUNCTION_WORDS, Next, QUESTION_WORDS};
use super::number::{self, spell_out};
use super::persian::{LEXICON, WordClass};
use super::sentences::{self, Sentence};
use super::{Language, RandomStream, english};

/// Number of phones after which a sentence ends: less than ten seconds for the slowest voice.
const MAX_PHONES: usize = 66;
/// Minimum number of phones, for at least about one second.
const MIN_PHONES: usize = 10;
/// Number of words of a sentence.
const WORDS: std::ops::RangeInclusive<usize> = 3..=18;
/// Probability of a function word where one is allowed.
const FUNCTION_SHARE: f64 = 0.6;
/// Probability that a content word comes from the user's texts, if there are any.
const OWN_SHARE: f64 = 0.3;
/// Probability of each class of word frequency, from 1 to 5: mostly common words, and often enough rare words and names,
/// which show more spellings.
const COMMONNESS_SHARES: [f64; 5] = [0.08, 0.06, 0.16, 0.2, 0.5];

/// Indices of the dictionary's words by frequency class, from 1 to 5.
static BY_COMMONNESS: LazyLock<[Vec<u32>; 5]> = LazyLock::new(|| {
    let mut out: [Vec<u32>; 5] = Default::default();
    let all = dictionary();
    for number in 0..all.word_count() {
        if let Some(class) = usize::from(all.frequency_class(number)).checked_sub(1)
            && all.word(number).len() > 1
            && !all.word(number).starts_with('\'')
        {
            out[class].push(number as u32);
        }
    }
    out
});

/// Generates a text. `own` are words of the language to mix in.
pub(crate) fn text(language: Language, seed: Seed, own: &[String]) -> Sentence {
    let mut random = RandomStream::new(seed.derive("pretraining text"));
    let text = match language {
        Language::English => english_text(&mut random, own),
        Language::Persian => persian_text(&mut random, seed, own),
    };
    Sentence { language, normalised: text.clone(), text }
}

/// Samples the end of a text, in the proportions of prose; sometimes without punctuation.
fn ending(random: &mut RandomStream, question: &'static str) -> &'static str {
    match random.unit() {
        ..0.78 => ".",
        ..0.93 => question,
        ..0.96 => "!",
        _ => "",
    }
}

fn count_words(random: &mut RandomStream) -> usize {
    let spread = (WORDS.end() - WORDS.start() + 1) as f64;
    // The smaller of two samples: short sentences are more frequent than long ones.
    WORDS.start() + (spread * random.unit().min(random.unit())) as usize
}

fn english_text(random: &mut RandomStream, own: &[String]) -> String {
    let (wanted, end) = (count_words(random), ending(random, "?"));
    if random.unit() < 0.03 {
        return digits(random, wanted.min(9)) + end;
    }
    let mut words: Vec<String> = Vec::new();
    let (mut phone_count, mut since_comma, mut next) = (0, 0, Next::Anything);
    if end == "?" && random.unit() < 0.8 {
        words.push(random.pick(&QUESTION_WORDS).to_owned());
        next = Next::Anything;
    }
    loop {
        let last = words.len() + 1 >= wanted || phone_count >= MAX_PHONES;
        let mut word = if last || next == Next::Content || random.unit() >= FUNCTION_SHARE {
            next = Next::Anything;
            english_content(random, own)
        } else {
            let (word, after) = function_word(random);
            next = after;
            word.to_owned()
        };
        if words.last() == Some(&word) {
            word = english_content(random, own);
            next = Next::Anything;
        }
        let phones = word.split([' ', '-']).map(|part| english::pronounce(part).phones);
        let phones: Vec<_> = phones.flatten().collect();
        if let Some(article) = words.last_mut().filter(|word| matches!(word.as_str(), "a" | "an")) {
            let vowel = phones.first().is_some_and(|phone| phone.phoneme.is_vowel());
            *article = if vowel { "an" } else { "a" }.to_owned();
        }
        phone_count += phones.len();
        since_comma += 1;
        let ends = last && phone_count >= MIN_PHONES;
        if !ends && next == Next::Anything && since_comma >= 3 && random.unit() < 0.12 {
            word.push(',');
            since_comma = 0;
        }
        words.push(word);
        if ends {
            break;
        }
    }
    for word in &mut words {
        if word.trim_end_matches(',') == "i" || word.starts_with("i'") {
            capitalise(word);
        }
    }
    capitalise(&mut words[0]);
    words.join(" ") + end
}

fn capitalise(word: &mut str) {
    if let Some(first) = word.get_mut(..1) {
        first.make_ascii_uppercase();
    }
}

/// Digits read one by one, like a telephone number.
fn digits(random: &mut RandomStream, count: usize) -> String {
    let names: Vec<&str> = number::english_words().take(10).collect();
    let mut words: Vec<String> = (0..count.max(3)).map(|_| random.pick(&names).to_owned()).collect();
    capitalise(&mut words[0]);
    words.join(" ")
}

fn function_word(random: &mut RandomStream) -> (&'static str, Next) {
    static TOTAL: LazyLock<u32> = LazyLock::new(|| FUNCTION_WORDS.iter().map(|(_, share, _)| share).sum());
    let mut at = (random.unit() * f64::from(*TOTAL)) as u32;
    for &(word, share, next) in FUNCTION_WORDS {
        if at < share {
            return (word, next);
        }
        at -= share;
    }
    ("the", Next::Content)
}

fn english_content(random: &mut RandomStream, own: &[String]) -> String {
    if !own.is_empty() && random.unit() < OWN_SHARE {
        return own[(random.unit() * own.len() as f64) as usize].clone();
    }
    if random.unit() < 0.03 {
        // Two-digit numbers are as frequent as three-digit ones.
        let size = random.pick(&[10.0, 100.0, 1000.0, 10_000.0]);
        return spell_out(&format!("{}", (random.unit() * size) as u32), Language::English);
    }
    let mut share = random.unit();
    let mut class = 0;
    while class + 1 < COMMONNESS_SHARES.len() && share >= COMMONNESS_SHARES[class] {
        share -= COMMONNESS_SHARES[class];
        class += 1;
    }
    dictionary().word(random.pick(&BY_COMMONNESS[class]) as usize).to_owned()
}

fn persian_text(random: &mut RandomStream, seed: Seed, own: &[String]) -> String {
    if random.unit() < 0.5 {
        // A meaningful sentence of the demo.
        let generated = sentences::sentences(Language::Persian, seed, 1);
        if let Some(sentence) = generated.into_iter().next() {
            return sentence.normalised;
        }
    }
    let (wanted, end) = (count_words(random).min(13), ending(random, "؟"));
    let mut words: Vec<String> = Vec::new();
    let (mut since_comma, mut after_particle) = (0, false);
    while words.len() < wanted {
        let last = words.len() + 1 == wanted;
        let (mut word, particle) = persian_word(random, own);
        if particle && (after_particle || last) || words.last() == Some(&word) {
            continue;
        }
        after_particle = particle;
        since_comma += 1;
        if !last && !after_particle && since_comma >= 3 && random.unit() < 0.12 {
            word.push('،');
            since_comma = 0;
        }
        words.push(word);
    }
    words.join(" ") + end
}

/// A word, and whether it is a particle that needs a following word.
fn persian_word(random: &mut RandomStream, own: &[String]) -> (String, bool) {
    if !own.is_empty() && random.unit() < OWN_SHARE {
        return (own[(random.unit() * own.len() as f64) as usize].clone(), false);
    }
    let (word, _, class) = random.pick(LEXICON);
    let plural = class == WordClass::Noun && random.unit() < 0.15;
    (if plural { format!("{word}\u{200c}ها") } else { word.to_owned() }, class == WordClass::Particle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Voice, phonemes, seconds};

    fn texts(language: Language, count: u64, own: &[String]) -> Vec<Sentence> {
        (0..count).map(|n| text(language, Seed::new(3).with(n), own)).collect()
    }

    #[test]
    fn texts_have_the_length_of_sentences_and_can_be_spoken() {
        for language in Language::ALL {
            let all = Voice::all();
            for (n, sentence) in texts(language, 600, &[]).iter().enumerate() {
                assert!(phonemes(&sentence.text, language).is_ok(), "{}", sentence.text);
                assert!(!sentence.text.contains(|c: char| c.is_numeric() || c == '|'), "{}", sentence.text);
                let length = seconds(sentence, &all[n % all.len()], Seed::new(1));
                assert!((0.9..=10.5).contains(&length), "{length} s: {}", sentence.text);
            }
        }
    }

    #[test]
    fn english_texts_have_realistic_word_frequencies() {
        let all = texts(Language::English, 2000, &[]);
        let mut counts = std::collections::HashMap::new();
        let words = all.iter().flat_map(|sentence| sentence.text.split(' '));
        let mut total = 0;
        for word in words {
            *counts.entry(word.trim_end_matches([',', '.', '?', '!']).to_lowercase()).or_insert(0) += 1;
            total += 1;
        }
        let share = |word: &str| f64::from(counts[word]) / f64::from(total);
        assert!((0.03..0.1).contains(&share("the")) && share("the") > share("of"), "{}", share("the"));
        assert!(counts.len() > 4000, "{} distinct words", counts.len());
        let ends = |sign| all.iter().filter(|sentence| sentence.text.ends_with(sign)).count();
        assert!(ends('?') > 200 && ends('.') > 1400 && ends('!') > 20);
        assert!(all.iter().filter(|sentence| sentence.text.contains(',')).count() > 200);
        assert!(all.iter().all(|sentence| !sentence.text.contains(" a e")), "a before a vowel");
        let distinct: std::collections::HashSet<&str> =
            all.iter().map(|sentence| sentence.text.as_str()).collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn own_words_are_mixed_in() {
        let own = ["psychopomp".to_owned(), "quux".to_owned()];
        let with = texts(Language::English, 300, &own);
        assert!(
            with.iter().filter(|sentence| sentence.text.to_lowercase().contains("psychopomp")).count() > 60
        );
    }
}
