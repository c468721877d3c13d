//! Sentences from two small grammars: short, correct, all different, some with numbers in digits.

mod english;
mod persian;

use std::collections::HashSet;

use myxtts_run::seed::Seed;

use super::number::spell_out;
use super::{Language, RandomStream};

/// A sentence as written, and with its numbers in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Language of the sentence.
    pub language: Language,
    /// As written, with digits.
    pub text: String,
    /// As spoken, with numbers in words.
    pub normalised: String,
}

impl Sentence {
    fn new(language: Language, text: String) -> Self {
        let normalised = spell_out(&text, language);
        Sentence { language, text, normalised }
    }
}

/// A context-free grammar: each rule has a name and its alternatives, in which `{name}` refers to a rule. The first rule is
/// the sentence.
pub(crate) type Grammar = [(&'static str, &'static [&'static str])];

pub(crate) fn grammar(language: Language) -> &'static Grammar {
    match language {
        Language::English => english::GRAMMAR,
        Language::Persian => persian::GRAMMAR,
    }
}

/// Three sentences of each language that the generator never produces, with words it uses and some others: to hear whether a
/// model generalises or has only memorised.
pub fn held_out() -> Vec<Sentence> {
    [(Language::English, english::HELD_OUT), (Language::Persian, persian::HELD_OUT)]
        .into_iter()
        .flat_map(|(language, texts)| texts.map(|text| Sentence::new(language, text.to_owned())))
        .collect()
}

/// Number of repeated sentences in a row after which the grammar counts as exhausted.
const MAX_REPEATS: u32 = 10_000;

/// Returns `count` different sentences, or fewer if the grammar has no more. The first n of them do not depend on `count`.
pub(crate) fn sentences(language: Language, seed: Seed, count: usize) -> Vec<Sentence> {
    let mut random = RandomStream::new(seed.derive("sentences").derive(language.code()));
    let mut seen: HashSet<String> = held_out().into_iter().map(|sentence| sentence.text).collect();
    let mut generated = Vec::with_capacity(count.min(1 << 16));
    let mut repeats = 0;
    while generated.len() < count && repeats < MAX_REPEATS {
        let text = generate(language, &mut random);
        if seen.insert(text.clone()) {
            generated.push(Sentence::new(language, text));
            repeats = 0;
        } else {
            repeats += 1;
        }
    }
    generated
}

fn generate(language: Language, random: &mut RandomStream) -> String {
    let grammar = grammar(language);
    let mut text = String::new();
    expand(grammar, random.pick(grammar[0].1), random, &mut text);
    // Rules are written in lower case; capitalise the first letter of the sentence.
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => text,
    }
}

fn expand(grammar: &'static Grammar, pattern: &str, random: &mut RandomStream, out: &mut String) {
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').expect("the grammar closes every brace");
        out.push_str(before);
        let rule = grammar.iter().find(|(rule, _)| *rule == name);
        let (_, choices) = rule.expect("the grammar refers only to its own rules");
        expand(grammar, random.pick(choices), random, out);
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
    fn ten_thousand_sentences_are_short_and_distinct() {
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
    fn a_longer_list_begins_with_the_same_sentences() {
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
