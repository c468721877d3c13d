//! Texts to pretrain on: sequences of words that are sentences by their length, punctuation and share of
//! function words, not by their sense. Their words come from the whole dictionary, so that a model that reads
//! them learns how English is spelled; for Persian from its lexicon and the sentences of the demo.
//!
//! A text is a pure function of its seed and of the words that are mixed in.

use std::sync::LazyLock;

use myxtts_run::seed::Seed;
use myxtts_text::english::pronunciation::dictionary;

use super::function_words::{FUNCTION_WORDS, Next, QUESTION_WORDS};
use super::number::{self, spell_out};
use super::persian::{Class, LEXICON};
use super::sentences::{self, Sentence};
use super::{Draw, Language, english};

/// Sounds after which a sentence ends: the slowest voice says these in less than ten seconds.
const MOST_SOUNDS: usize = 66;
/// Sounds without which it does not: nothing is said in less than a second.
const LEAST_SOUNDS: usize = 10;
/// Words of a sentence.
const WORDS: std::ops::RangeInclusive<usize> = 3..=18;
/// Share of function words where one may stand.
const FUNCTION_SHARE: f64 = 0.6;
/// Share of the words with a meaning that are taken from the user's texts, where there are any.
const OWN_SHARE: f64 = 0.3;
/// How often words of each commonness are drawn, from 1 to 5: most often those that texts are made of, and often enough
/// rare ones and names, which show more ways to spell.
const COMMONNESS_SHARES: [f64; 5] = [0.08, 0.06, 0.16, 0.2, 0.5];

/// Numbers of the dictionary's words by their commonness, from 1 to 5.
static BY_COMMONNESS: LazyLock<[Vec<u32>; 5]> = LazyLock::new(|| {
    let mut out: [Vec<u32>; 5] = Default::default();
    let all = dictionary();
    for number in 0..all.word_count() {
        if let Some(class) = usize::from(all.commonness(number)).checked_sub(1)
            && all.word(number).len() > 1
            && !all.word(number).starts_with('\'')
        {
            out[class].push(number as u32);
        }
    }
    out
});

/// A text to pretrain on. `own` are words in the language that are mixed in.
pub(crate) fn text(language: Language, seed: Seed, own: &[String]) -> Sentence {
    let mut draw = Draw::new(seed.derive("pretraining text"));
    let text = match language {
        Language::English => english_text(&mut draw, own),
        Language::Persian => persian_text(&mut draw, seed, own),
    };
    Sentence { language, normalised: text.clone(), text }
}

/// How a text ends, in the proportion of prose read aloud; sometimes without a sign.
fn ending(draw: &mut Draw, question: &'static str) -> &'static str {
    match draw.unit() {
        ..0.78 => ".",
        ..0.93 => question,
        ..0.96 => "!",
        _ => "",
    }
}

fn count_words(draw: &mut Draw) -> usize {
    let spread = (WORDS.end() - WORDS.start() + 1) as f64;
    // The lesser of two draws: short sentences are more frequent than long ones.
    WORDS.start() + (spread * draw.unit().min(draw.unit())) as usize
}

fn english_text(draw: &mut Draw, own: &[String]) -> String {
    let (wanted, end) = (count_words(draw), ending(draw, "?"));
    if draw.unit() < 0.03 {
        return digits(draw, wanted.min(9)) + end;
    }
    let mut words: Vec<String> = Vec::new();
    let (mut sounds, mut since_comma, mut next) = (0, 0, Next::Anything);
    if end == "?" && draw.unit() < 0.8 {
        words.push(draw.pick(&QUESTION_WORDS).to_owned());
        next = Next::Anything;
    }
    loop {
        let last = words.len() + 1 >= wanted || sounds >= MOST_SOUNDS;
        let mut word = if last || next == Next::Content || draw.unit() >= FUNCTION_SHARE {
            next = Next::Anything;
            english_content(draw, own)
        } else {
            let (word, after) = function_word(draw);
            next = after;
            word.to_owned()
        };
        if words.last() == Some(&word) {
            word = english_content(draw, own);
            next = Next::Anything;
        }
        let phones = word.split([' ', '-']).map(|part| english::pronounce(part).phones);
        let phones: Vec<_> = phones.flatten().collect();
        if let Some(article) = words.last_mut().filter(|word| matches!(word.as_str(), "a" | "an")) {
            let vowel = phones.first().is_some_and(|phone| phone.phoneme.is_vowel());
            *article = if vowel { "an" } else { "a" }.to_owned();
        }
        sounds += phones.len();
        since_comma += 1;
        let ends = last && sounds >= LEAST_SOUNDS;
        if !ends && next == Next::Anything && since_comma >= 3 && draw.unit() < 0.12 {
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

/// Digits read one by one, as telephone numbers are.
fn digits(draw: &mut Draw, count: usize) -> String {
    let names: Vec<&str> = number::english_words().take(10).collect();
    let mut words: Vec<String> = (0..count.max(3)).map(|_| draw.pick(&names).to_owned()).collect();
    capitalise(&mut words[0]);
    words.join(" ")
}

fn function_word(draw: &mut Draw) -> (&'static str, Next) {
    static TOTAL: LazyLock<u32> = LazyLock::new(|| FUNCTION_WORDS.iter().map(|(_, share, _)| share).sum());
    let mut at = (draw.unit() * f64::from(*TOTAL)) as u32;
    for &(word, share, next) in FUNCTION_WORDS {
        if at < share {
            return (word, next);
        }
        at -= share;
    }
    ("the", Next::Content)
}

fn english_content(draw: &mut Draw, own: &[String]) -> String {
    if !own.is_empty() && draw.unit() < OWN_SHARE {
        return own[(draw.unit() * own.len() as f64) as usize].clone();
    }
    if draw.unit() < 0.03 {
        // As many numbers of two digits as of three.
        let size = draw.pick(&[10.0, 100.0, 1000.0, 10_000.0]);
        return spell_out(&format!("{}", (draw.unit() * size) as u32), Language::English);
    }
    let mut share = draw.unit();
    let mut class = 0;
    while class + 1 < COMMONNESS_SHARES.len() && share >= COMMONNESS_SHARES[class] {
        share -= COMMONNESS_SHARES[class];
        class += 1;
    }
    dictionary().word(draw.pick(&BY_COMMONNESS[class]) as usize).to_owned()
}

fn persian_text(draw: &mut Draw, seed: Seed, own: &[String]) -> String {
    if draw.unit() < 0.5 {
        // A sentence that makes sense.
        let made = sentences::sentences(Language::Persian, seed, 1);
        if let Some(sentence) = made.into_iter().next() {
            return sentence.normalised;
        }
    }
    let (wanted, end) = (count_words(draw).min(13), ending(draw, "؟"));
    let mut words: Vec<String> = Vec::new();
    let (mut since_comma, mut leans) = (0, false);
    while words.len() < wanted {
        let last = words.len() + 1 == wanted;
        let (mut word, particle) = persian_word(draw, own);
        if particle && (leans || last) || words.last() == Some(&word) {
            continue;
        }
        leans = particle;
        since_comma += 1;
        if !last && !leans && since_comma >= 3 && draw.unit() < 0.12 {
            word.push('،');
            since_comma = 0;
        }
        words.push(word);
    }
    words.join(" ") + end
}

/// A word, and whether it leans on the next.
fn persian_word(draw: &mut Draw, own: &[String]) -> (String, bool) {
    if !own.is_empty() && draw.unit() < OWN_SHARE {
        return (own[(draw.unit() * own.len() as f64) as usize].clone(), false);
    }
    let (word, _, class) = draw.pick(LEXICON);
    let plural = class == Class::Noun && draw.unit() < 0.15;
    (if plural { format!("{word}\u{200c}ها") } else { word.to_owned() }, class == Class::Particle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Voice, phonemes, seconds};

    fn texts(language: Language, count: u64, own: &[String]) -> Vec<Sentence> {
        (0..count).map(|n| text(language, Seed::new(3).with(n), own)).collect()
    }

    #[test]
    fn texts_are_as_long_as_sentences_and_can_be_said() {
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
    fn english_texts_have_many_words_and_few_of_them_most_of_the_time() {
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
