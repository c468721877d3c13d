//! Training and validation. All readings of a text are on the same side, and with enough speakers some are held out whole, so
//! that nothing that was heard in training is ever tested on. The side follows from text and speaker, not from position: a
//! corpus can be read in any order.
//!
//! | rule | value |
//! |---|---|
//! | a text | letters and digits in lower case; punctuation and spacing do not count |
//! | texts are held out | by the lot of each text, the share asked for; half of it where speakers are held out too |
//! | clips are held out one by one instead | where fewer than 40 texts are read more than twice each: a held-out digit could never be learnt |
//! | speakers are held out | from 8 speakers on; by the lot of each, up to half of the share of clips, at least one |
//! | too large to be held out | a text or speaker with more than twice the share of all clips |
//! | set aside, on neither side | clips of held-out speakers that read a text that training needs |

use std::collections::{BTreeMap, BTreeSet};

use myxtts_run::seed::Seed;
use serde::{Deserialize, Serialize};

/// With fewer texts than this, and several readings of each, texts are no units to hold out.
const FEW_TEXTS: usize = 40;
/// With fewer speakers than this each of them is needed for training.
const ENOUGH_SPEAKERS: usize = 8;

/// Positions of the two sides, each in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// What is learnt from.
    pub train: Vec<usize>,
    /// What is only measured on.
    pub validation: Vec<usize>,
}

/// What decides on which side a clip is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clip<'a> {
    /// Unique in the corpus.
    pub id: &'a str,
    /// The transcript.
    pub text: &'a str,
    /// Who reads it.
    pub speaker: &'a str,
}

/// A split, and what it was made by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldOut {
    /// The two sides.
    pub split: Split,
    /// Positions on neither side: held-out speakers reading texts of training.
    pub set_aside: Vec<usize>,
    /// Speakers without a clip in training, in alphabetical order.
    pub speakers: Vec<String>,
    /// What was held out one by one.
    pub unit: Unit,
}

/// What is on one side as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// All readings of a text.
    #[default]
    Text,
    /// A clip.
    Clip,
}

/// What counts of a text: two readings with the same key say the same.
pub fn text_key(text: &str) -> String {
    let mut key = String::with_capacity(text.len());
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if !key.is_empty() {
            key.push(' ');
        }
        key.extend(word.chars().flat_map(char::to_lowercase));
    }
    // Nothing but signs is a text of its own.
    if key.is_empty() { text.to_owned() } else { key }
}

/// Splits clips. Pure in its arguments, whatever their order. There is always one clip to learn from, and where there are two
/// and a fraction above 0 also one to measure on.
pub fn hold_out(clips: &[Clip<'_>], fraction: f64, seed: u64) -> HeldOut {
    if fraction.is_nan() || fraction <= 0.0 {
        let split = Split { train: (0..clips.len()).collect(), validation: Vec::new() };
        return HeldOut { split, ..HeldOut::default() };
    }
    let keys: Vec<String> = clips.iter().map(|clip| text_key(clip.text)).collect();
    let texts: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
    let few = texts.len() < FEW_TEXTS && clips.len() > 2 * texts.len();
    let by_id = || clips.iter().map(|clip| clip.id).collect::<Vec<_>>();
    let by_text = || keys.iter().map(String::as_str).collect::<Vec<_>>();
    let (unit, units) = if few { (Unit::Clip, by_id()) } else { (Unit::Text, by_text()) };
    let speakers = held_out_speakers(clips, fraction, seed);
    let mut sides = Sides::of(clips, &units, &speakers, fraction, seed);
    let mut speakers = speakers;
    if sides.train.is_empty() || sides.validation.is_empty() {
        // Too few for all rules: what draws the nearest lot crosses over.
        speakers = BTreeSet::new();
        sides = Sides::of(clips, &units, &speakers, fraction, seed);
        sides.balance(&units, seed);
    }
    HeldOut {
        split: Split { train: sides.train, validation: sides.validation },
        set_aside: sides.set_aside,
        speakers: speakers.into_iter().map(str::to_owned).collect(),
        unit,
    }
}

/// The lot a name draws, in `[0, 1)`.
fn lot(name: &str, seed: u64) -> f64 {
    Seed::new(seed).derive("validation").derive(name).unit(0)
}

/// Clips that something held out as a whole may have at most.
fn most_clips(clips: usize, fraction: f64) -> usize {
    ((2.0 * fraction * clips as f64) as usize).max(1)
}

fn held_out_speakers<'a>(clips: &[Clip<'a>], fraction: f64, seed: u64) -> BTreeSet<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for clip in clips {
        *counts.entry(clip.speaker).or_default() += 1;
    }
    let mut chosen = BTreeSet::new();
    if counts.len() < ENOUGH_SPEAKERS {
        return chosen;
    }
    let most = most_clips(clips.len(), fraction);
    let mut drawn: Vec<(f64, &str, usize)> = counts
        .into_iter()
        .filter(|(_, count)| *count <= most)
        .map(|(name, count)| (Seed::new(seed).derive("held-out speaker").derive(name).unit(0), name, count))
        .collect();
    drawn.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
    let mut held = 0;
    for (_, name, count) in drawn {
        if chosen.is_empty() || (held + count) as f64 <= 0.5 * fraction * clips.len() as f64 {
            chosen.insert(name);
            held += count;
        }
    }
    chosen
}

struct Sides {
    train: Vec<usize>,
    validation: Vec<usize>,
    set_aside: Vec<usize>,
}

impl Sides {
    /// `units` names, for every clip, what is on one side as a whole.
    fn of(clips: &[Clip<'_>], units: &[&str], speakers: &BTreeSet<&str>, fraction: f64, seed: u64) -> Sides {
        let share = if speakers.is_empty() { fraction } else { 0.5 * fraction };
        let most = most_clips(clips.len(), fraction);
        let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, unit) in units.iter().enumerate() {
            groups.entry(unit).or_default().push(at);
        }
        let mut sides = Sides { train: Vec::new(), validation: Vec::new(), set_aside: Vec::new() };
        for (unit, members) in groups {
            if members.len() <= most && lot(unit, seed) < share {
                sides.validation.extend(members);
                continue;
            }
            let (theirs, others): (Vec<usize>, Vec<usize>) =
                members.into_iter().partition(|&at| speakers.contains(clips[at].speaker));
            if others.is_empty() {
                sides.validation.extend(theirs);
            } else {
                sides.set_aside.extend(theirs);
                sides.train.extend(others);
            }
        }
        for side in [&mut sides.train, &mut sides.validation, &mut sides.set_aside] {
            side.sort_unstable();
        }
        sides
    }

    /// Gives an empty side the unit nearest to it, where the other side has more than one.
    fn balance(&mut self, units: &[&str], seed: u64) {
        let (to, from, highest) = match (self.train.is_empty(), self.validation.is_empty()) {
            (false, true) => (&mut self.validation, &mut self.train, false),
            (true, false) => (&mut self.train, &mut self.validation, true),
            _ => return,
        };
        let different: BTreeSet<&str> = from.iter().map(|&at| units[at]).collect();
        let order = |a: &&str, b: &&str| lot(a, seed).total_cmp(&lot(b, seed)).then_with(|| a.cmp(b));
        let nearest = match highest {
            true => different.iter().copied().max_by(order),
            false => different.iter().copied().min_by(order),
        };
        let Some(nearest) = nearest.filter(|_| highest || different.len() > 1) else { return };
        let (moved, kept) = from.iter().partition(|&&at| units[at] == nearest);
        (*to, *from) = (moved, kept);
    }
}

/// The split of versions that held clips out by their ids alone, for runs that were begun with one.
pub fn split_by_id<'a>(ids: impl IntoIterator<Item = &'a str>, fraction: f64, seed: u64) -> Split {
    let ids: Vec<&str> = ids.into_iter().collect();
    let (validation, train) = (0..ids.len()).partition(|&i| lot(ids[i], seed) < fraction);
    let mut sides = Sides { train, validation, set_aside: Vec::new() };
    if fraction > 0.0 {
        sides.balance(&ids, seed);
    }
    Split { train: sides.train, validation: sides.validation }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clips<'a>(ids: &[&'a str]) -> Vec<Clip<'a>> {
        ids.iter().map(|id| Clip { id, text: id, speaker: "one" }).collect()
    }

    #[test]
    fn the_split_of_runs_begun_by_older_versions_never_changes() {
        // A change of these would move utterances of existing runs between the sides.
        let ids: Vec<String> = (0..40).map(|i| format!("LJ001-{i:04}")).collect();
        let chosen = split_by_id(ids.iter().map(String::as_str), 0.1, 0);
        assert_eq!(chosen.validation, [22, 29, 34]);
    }

    #[test]
    fn the_split_of_known_texts_never_changes() {
        let ids: Vec<String> = (0..60).map(|i| format!("sentence {i}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        assert_eq!(hold_out(&clips(&ids), 0.1, 0).split.validation, [4, 27, 39, 56, 57]);
    }

    #[test]
    fn strange_fractions_are_harmless() {
        let validation = |ids: &[&str], fraction| hold_out(&clips(ids), fraction, 0).split.validation.len();
        assert_eq!(validation(&["a", "b"], f64::NAN), 0);
        assert_eq!(validation(&["a", "b"], -1.0), 0);
        assert_eq!(validation(&["a", "b", "c"], 7.0), 2);
        // One alone is learnt from, whatever lot it draws.
        for id in ["a", "b", "c", "d", "e", "f"] {
            assert_eq!(hold_out(&clips(&[id]), 0.5, 0).split, Split { train: vec![0], validation: vec![] });
        }
        assert_eq!(hold_out(&[], 0.5, 0), HeldOut::default());
    }

    #[test]
    fn signs_and_capitals_make_no_other_text() {
        for (one, other) in [("Hello, World!", "hello  world"), ("سلام، دنیا", "سلام دنیا")]
        {
            assert_eq!(text_key(one), text_key(other));
        }
        assert_ne!(text_key("one two"), text_key("onetwo"));
        assert_ne!(text_key("..."), text_key("?"));
    }
}
