//! The split into training and validation: each text and each held-out speaker is in one set only.

use std::collections::{BTreeMap, BTreeSet};

use myxtts_data::dataset::split::{Clip, HeldOut, Unit, hold_out, text_key};
use proptest::prelude::*;

/// Checks the properties of every split and returns it.
fn checked_split(clips: &[Clip<'_>], fraction: f64, seed: u64) -> HeldOut {
    let found = hold_out(clips, fraction, seed);
    let HeldOut { split, set_aside, speakers, unit } = &found;
    let mut all: Vec<usize> = split.train.iter().chain(&split.validation).chain(set_aside).copied().collect();
    all.sort_unstable();
    assert_eq!(all, (0..clips.len()).collect::<Vec<_>>(), "every clip must occur exactly once");
    assert!(clips.is_empty() || !split.train.is_empty());
    let texts =
        |side: &[usize]| -> BTreeSet<String> { side.iter().map(|&i| text_key(clips[i].text)).collect() };
    if *unit == Unit::Text {
        assert!(texts(&split.train).is_disjoint(&texts(&split.validation)), "a text is in both sets");
    }
    for &at in &split.train {
        assert!(
            !speakers.iter().any(|held| held == clips[at].speaker),
            "a held-out speaker is in the training set"
        );
    }
    for &at in set_aside {
        assert!(speakers.iter().any(|held| held == clips[at].speaker), "a clip was set aside without need");
    }
    if !split.validation.is_empty() {
        for held in speakers {
            assert!(split.validation.iter().any(|&i| clips[i].speaker == held) || !set_aside.is_empty());
        }
    }
    found
}

proptest! {
    #[test]
    fn no_text_or_held_out_speaker_is_in_both_sets(
        sampled in proptest::collection::vec((0u32..60, 0u32..20), 0..200),
        fraction in 0.0..0.6f64,
        seed: u64,
    ) {
        let names: Vec<(String, String, String)> = sampled
            .iter()
            .enumerate()
            .map(|(i, (text, speaker))| (format!("clip {i}"), format!("Text number {text}."), format!("s{speaker}")))
            .collect();
        let clips: Vec<Clip<'_>> =
            names.iter().map(|(id, text, speaker)| Clip { id, text, speaker }).collect();
        let found = checked_split(&clips, fraction, seed);
        // The order in which a corpus is read must not matter.
        let backwards: Vec<Clip<'_>> = clips.iter().rev().copied().collect();
        let again = hold_out(&backwards, fraction, seed);
        let ids = |clips: &[Clip<'_>], side: &[usize]| -> BTreeSet<String> {
            side.iter().map(|&i| clips[i].id.to_owned()).collect()
        };
        prop_assert_eq!(ids(&clips, &found.split.validation), ids(&backwards, &again.split.validation));
        prop_assert_eq!(ids(&clips, &found.split.train), ids(&backwards, &again.split.train));
    }

    #[test]
    fn two_texts_fill_both_sets(
        texts in proptest::collection::btree_set("[a-z]{1,6}", 2..20),
        fraction in 0.0001..1.0f64,
        seed: u64,
    ) {
        let clips: Vec<Clip<'_>> = texts.iter().map(|t| Clip { id: t, text: t, speaker: "one" }).collect();
        let found = checked_split(&clips, fraction, seed);
        prop_assert!(!found.split.validation.is_empty());
    }
}

/// A corpus in which every sentence is read `readings` times by rotating speakers.
fn corpus(texts: usize, speakers: usize, readings: usize) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for text in 0..texts {
        for reading in 0..readings {
            let speaker = (text + reading) % speakers;
            all.push((format!("{text}-{reading}"), format!("Sentence {text}"), format!("speaker {speaker}")));
        }
    }
    all
}

fn clips(all: &[(String, String, String)]) -> Vec<Clip<'_>> {
    all.iter().map(|(id, text, speaker)| Clip { id, text, speaker }).collect()
}

#[test]
fn all_readings_of_a_sentence_are_in_one_set() {
    let all = corpus(600, 1, 2);
    let clips = clips(&all);
    let found = checked_split(&clips, 0.05, 1234);
    assert_eq!((found.unit, found.speakers.len(), found.set_aside.len()), (Unit::Text, 0, 0));
    let share = found.split.validation.len() as f64 / clips.len() as f64;
    assert!((0.03..0.07).contains(&share), "{share} instead of 0.05");
    let mut readings: BTreeMap<&str, usize> = BTreeMap::new();
    found.split.validation.iter().for_each(|&i| *readings.entry(clips[i].text).or_default() += 1);
    assert!(readings.values().all(|count| *count == 2), "a reading is in the other set");
}

#[test]
fn with_many_speakers_some_are_held_out_entirely() {
    let all = corpus(2000, 50, 1);
    let clips = clips(&all);
    let found = checked_split(&clips, 0.05, 1);
    assert_eq!(found.speakers.len(), 1, "half of 5 % of 50 speakers is one");
    let theirs = clips.iter().filter(|clip| clip.speaker == found.speakers[0]).count();
    let tested = found.split.validation.iter().filter(|&&i| clips[i].speaker == found.speakers[0]).count();
    assert_eq!((tested, found.set_aside.len()), (theirs, 0), "no other speaker reads their texts");
    let share = found.split.validation.len() as f64 / clips.len() as f64;
    assert!((0.03..0.07).contains(&share), "{share} instead of 0.05");
    // Seven speakers are too few to hold one out; of eight, each has too many clips to lose.
    assert!(checked_split(&self::clips(&corpus(400, 7, 1)), 0.05, 1).speakers.is_empty());
    assert!(checked_split(&self::clips(&corpus(400, 8, 1)), 0.05, 1).speakers.is_empty());
}

#[test]
fn ten_words_read_by_all_speakers_stay_in_training() {
    // Holding out a text would leave a word that can never be learnt.
    let all = corpus(10, 60, 60);
    let clips = clips(&all);
    let found = checked_split(&clips, 0.05, 3);
    assert_eq!((found.unit, found.speakers.is_empty()), (Unit::Clip, false));
    let learnt: BTreeSet<&str> = found.split.train.iter().map(|&i| clips[i].text).collect();
    assert_eq!(learnt.len(), 10);
    assert!(found.set_aside.is_empty());
}
