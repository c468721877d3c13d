//! Splits clips into training and validation sets. All readings of a text are in the same set, and with enough speakers some
//! are held out entirely, so that validation never uses a text or voice seen in training. The set depends on text and
//! speaker, not on position, so a corpus can be read in any order.
//!
//! | rule | value |
//! |---|---|
//! | text identity | letters and digits in lower case; punctuation and spacing are ignored |
//! | held-out texts | sampled by a hash of each text with the requested fraction; half of it if speakers are held out too |
//! | held-out clips instead of texts | with fewer than 40 texts read more than twice each: a held-out digit could never be learnt |
//! | held-out speakers | from 8 speakers on; sampled by a hash of each, up to half of the fraction of clips, at least one |
//! | never held out | a text or speaker with more than twice the requested fraction of all clips |
//! | set aside, in neither set | clips of held-out speakers with a text that training needs |

use std::collections::{BTreeMap, BTreeSet};

use myxtts_run::seed::Seed;
use serde::{Deserialize, Serialize};

/// With fewer texts than this and several readings of each, single clips are held out instead of texts.
const FEW_TEXTS: usize = 40;
/// With fewer speakers than this, every speaker is needed for training.
const MIN_SPEAKERS: usize = 8;

/// Indices of the clips in each set, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Training set.
    pub train: Vec<usize>,
    /// Validation set.
    pub validation: Vec<usize>,
}

/// The properties of a clip that determine its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clip<'a> {
    /// Unique in the corpus.
    pub id: &'a str,
    /// Transcript.
    pub text: &'a str,
    /// Speaker name.
    pub speaker: &'a str,
}

/// A split and how it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldOut {
    /// Training and validation sets.
    pub split: Split,
    /// Indices in neither set: held-out speakers reading texts of the training set.
    pub set_aside: Vec<usize>,
    /// Speakers without a clip in training, in alphabetical order.
    pub speakers: Vec<String>,
    /// The unit of holding out.
    pub unit: Unit,
}

/// The group of clips that always stays in one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// All readings of a text.
    #[default]
    Text,
    /// A single clip.
    Clip,
}

/// Normalises a text for comparison: two readings with the same key have the same text.
pub fn text_key(text: &str) -> String {
    let mut key = String::with_capacity(text.len());
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if !key.is_empty() {
            key.push(' ');
        }
        key.extend(word.chars().flat_map(char::to_lowercase));
    }
    // A text of punctuation only is its own key.
    if key.is_empty() { text.to_owned() } else { key }
}

/// Splits clips. A pure function, independent of the order of the clips. Training always gets at least one clip; with two or
/// more and a fraction above 0, so does validation.
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
    let mut sides = Sides::assign(clips, &units, &speakers, fraction, seed);
    let mut speakers = speakers;
    if sides.train.is_empty() || sides.validation.is_empty() {
        // Too few units for all rules: move the unit nearest to the threshold to the empty set.
        speakers = BTreeSet::new();
        sides = Sides::assign(clips, &units, &speakers, fraction, seed);
        sides.balance(&units, seed);
    }
    HeldOut {
        split: Split { train: sides.train, validation: sides.validation },
        set_aside: sides.set_aside,
        speakers: speakers.into_iter().map(str::to_owned).collect(),
        unit,
    }
}

/// A uniform sample in `[0, 1)` determined by the name and the seed.
fn uniform(name: &str, seed: u64) -> f64 {
    Seed::new(seed).derive("validation").derive(name).unit(0)
}

/// Maximum number of clips of a unit or speaker that may be held out.
fn max_held_out_clips(clips: usize, fraction: f64) -> usize {
    ((2.0 * fraction * clips as f64) as usize).max(1)
}

fn held_out_speakers<'a>(clips: &[Clip<'a>], fraction: f64, seed: u64) -> BTreeSet<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for clip in clips {
        *counts.entry(clip.speaker).or_default() += 1;
    }
    let mut chosen = BTreeSet::new();
    if counts.len() < MIN_SPEAKERS {
        return chosen;
    }
    let most = max_held_out_clips(clips.len(), fraction);
    let mut ordered: Vec<(f64, &str, usize)> = counts
        .into_iter()
        .filter(|(_, count)| *count <= most)
        .map(|(name, count)| (Seed::new(seed).derive("held-out speaker").derive(name).unit(0), name, count))
        .collect();
    ordered.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
    let mut held = 0;
    for (_, name, count) in ordered {
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
    /// Assigns every clip to a set. `units` names the unit of each clip, which stays in one set.
    fn assign(
        clips: &[Clip<'_>],
        units: &[&str],
        speakers: &BTreeSet<&str>,
        fraction: f64,
        seed: u64,
    ) -> Sides {
        let share = if speakers.is_empty() { fraction } else { 0.5 * fraction };
        let most = max_held_out_clips(clips.len(), fraction);
        let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, unit) in units.iter().enumerate() {
            groups.entry(unit).or_default().push(at);
        }
        let mut sides = Sides { train: Vec::new(), validation: Vec::new(), set_aside: Vec::new() };
        for (unit, members) in groups {
            if members.len() <= most && uniform(unit, seed) < share {
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

    /// Moves the nearest unit to an empty set if the other set has more than one.
    fn balance(&mut self, units: &[&str], seed: u64) {
        let (to, from, highest) = match (self.train.is_empty(), self.validation.is_empty()) {
            (false, true) => (&mut self.validation, &mut self.train, false),
            (true, false) => (&mut self.train, &mut self.validation, true),
            _ => return,
        };
        let different: BTreeSet<&str> = from.iter().map(|&at| units[at]).collect();
        let order = |a: &&str, b: &&str| uniform(a, seed).total_cmp(&uniform(b, seed)).then_with(|| a.cmp(b));
        let nearest = match highest {
            true => different.iter().copied().max_by(order),
            false => different.iter().copied().min_by(order),
        };
        let Some(nearest) = nearest.filter(|_| highest || different.len() > 1) else { return };
        let (moved, kept) = from.iter().partition(|&&at| units[at] == nearest);
        (*to, *from) = (moved, kept);
    }
}

/// The split used by older versions, by id alone, for runs that were started with one.
pub fn split_by_id<'a>(ids: impl IntoIterator<Item = &'a str>, fraction: f64, seed: u64) -> Split {
    let ids: Vec<&str> = ids.into_iter().collect();
    let (validation, train) = (0..ids.len()).partition(|&i| uniform(ids[i], seed) < fraction);
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
        // Changing these would move utterances of existing runs between the sets.
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
    fn fractions_out_of_range_are_harmless() {
        let validation = |ids: &[&str], fraction| hold_out(&clips(ids), fraction, 0).split.validation.len();
        assert_eq!(validation(&["a", "b"], f64::NAN), 0);
        assert_eq!(validation(&["a", "b"], -1.0), 0);
        assert_eq!(validation(&["a", "b", "c"], 7.0), 2);
        // A single clip is always in the training set.
        for id in ["a", "b", "c", "d", "e", "f"] {
            assert_eq!(hold_out(&clips(&[id]), 0.5, 0).split, Split { train: vec![0], validation: vec![] });
        }
        assert_eq!(hold_out(&[], 0.5, 0), HeldOut::default());
    }

    #[test]
    fn punctuation_and_capitals_do_not_change_the_text_key() {
        for (one, other) in [("Hello, World!", "hello  world"), ("سلام، دنیا", "سلام دنیا")]
        {
            assert_eq!(text_key(one), text_key(other));
        }
        assert_ne!(text_key("one two"), text_key("onetwo"));
        assert_ne!(text_key("..."), text_key("?"));
    }
}
