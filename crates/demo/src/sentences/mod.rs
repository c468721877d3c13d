//! Sentences from two small grammars: short, right, all different, some with numbers in digits.

mod english;
mod persian;

use std::collections::HashSet;

use myxtts_run::seed::Seed;

use super::number::spell_out;
use super::{Draw, Language};

/// A sentence as written, and with its numbers in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Its language.
    pub language: Language,
    /// As a person would write it: digits and all.
    pub text: String,
    /// As it is spoken: numbers in words.
    pub normalised: String,
}

impl Sentence {
    fn new(language: Language, text: String) -> Self {
        let normalised = spell_out(&text, language);
        Sentence { language, text, normalised }
    }
}

/// A context-free grammar: each rule a name and what it may become, `{name}` standing for a rule.
/// The first rule is the sentence.
pub(crate) type Grammar = [(&'static str, &'static [&'static str])];

pub(crate) fn grammar(language: Language) -> &'static Grammar {
    match language {
        Language::English => english::GRAMMAR,
        Language::Persian => persian::GRAMMAR,
    }
}

/// Three sentences of each language that the generator never makes, of words it uses and some more:
/// for hearing whether a model has learnt to speak or only to repeat.
pub fn held_out() -> Vec<Sentence> {
    [(Language::English, english::HELD_OUT), (Language::Persian, persian::HELD_OUT)]
        .into_iter()
        .flat_map(|(language, texts)| texts.map(|text| Sentence::new(language, text.to_owned())))
        .collect()
}

/// Draws in vain after which the grammar counts as exhausted.
const PATIENCE: u32 = 10_000;

/// `count` different sentences; fewer only where the grammar has no more. The first n of them do not
/// depend on `count`.
pub(crate) fn sentences(language: Language, seed: Seed, count: usize) -> Vec<Sentence> {
    let mut draw = Draw::new(seed.derive("sentences").derive(language.code()));
    let mut seen: HashSet<String> = held_out().into_iter().map(|sentence| sentence.text).collect();
    let mut made = Vec::with_capacity(count.min(1 << 16));
    let mut in_vain = 0;
    while made.len() < count && in_vain < PATIENCE {
        let text = written(language, &mut draw);
        if seen.insert(text.clone()) {
            made.push(Sentence::new(language, text));
            in_vain = 0;
        } else {
            in_vain += 1;
        }
    }
    made
}

fn written(language: Language, draw: &mut Draw) -> String {
    let grammar = grammar(language);
    let mut text = String::new();
    expand(grammar, draw.pick(grammar[0].1), draw, &mut text);
    // Rules are written as they stand inside a sentence; the first letter of one is a capital.
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => text,
    }
}

fn expand(grammar: &'static Grammar, pattern: &str, draw: &mut Draw, out: &mut String) {
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').expect("a brace of our own grammar is closed");
        out.push_str(before);
        let rule = grammar.iter().find(|(rule, _)| *rule == name);
        let (_, choices) = rule.expect("our own grammar names only its own rules");
        expand(grammar, draw.pick(choices), draw, out);
        rest = after;
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_words(text: &str) -> usize {
        text.split_whitespace().count()
    }

    #[test]
    fn ten_thousand_sentences_are_short_and_all_different() {
        for language in Language::ALL {
            let made = sentences(language, Seed::new(5), 10_000);
            assert_eq!(made.len(), 10_000, "{language:?} ran out of sentences");
            let distinct: HashSet<&str> = made.iter().map(|sentence| sentence.text.as_str()).collect();
            assert_eq!(distinct.len(), made.len());
            for sentence in &made {
                assert!((3..=12).contains(&count_words(&sentence.text)), "{}", sentence.text);
                assert!(!sentence.text.contains(['{', '}', '|']), "{}", sentence.text);
                assert!(!sentence.text.contains("  "), "{}", sentence.text);
            }
            let share = |test: &dyn Fn(&Sentence) -> bool| {
                made.iter().filter(|sentence| test(sentence)).count() as f64 / made.len() as f64
            };
            assert!(share(&|sentence| sentence.text != sentence.normalised) > 0.1, "digits");
            assert!(share(&|sentence| sentence.text.ends_with(['?', '؟'])) > 0.1, "questions");
            assert!(share(&|sentence| sentence.text.contains([',', '،'])) > 0.1, "commas");
        }
    }

    #[test]
    fn more_sentences_begin_with_the_same_ones() {
        for language in Language::ALL {
            let few = sentences(language, Seed::new(1), 20);
            let many = sentences(language, Seed::new(1), 50);
            assert_eq!(few, many[..20]);
            assert_ne!(few, sentences(language, Seed::new(2), 20));
        }
    }

    #[test]
    fn every_rule_is_used_and_every_use_has_a_rule() {
        for language in Language::ALL {
            let grammar = grammar(language);
            let uses: Vec<&str> = grammar
                .iter()
                .flat_map(|(_, choices)| choices.iter())
                .flat_map(|choice| choice.split('{').skip(1).filter_map(|rest| rest.split('}').next()))
                .collect();
            for name in &uses {
                assert_eq!(grammar.iter().filter(|(rule, _)| rule == name).count(), 1, "{name}");
            }
            for (name, choices) in &grammar[1..] {
                assert!(uses.contains(name), "{name} is never used");
                let distinct: HashSet<&&str> = choices.iter().collect();
                assert_eq!(distinct.len(), choices.len(), "{name} has a choice twice");
            }
        }
    }
}
