//! Learns byte-pair merges from word counts.
//!
//! The trainer of the `tokenizers` crate is not used, for two reasons: it keeps several queue entries for one pair and
//! breaks their ties by hash order, so that two runs may differ; and it cannot start from words that an existing vocabulary
//! has already split, which extending one needs. Here the next merge is always the pair with the largest count, then the
//! smallest ids: a function of the counts alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

/// Pieces by number, without gaps.
#[derive(Default)]
pub(super) struct Pieces {
    pub names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Pieces {
    /// Returns the number of a piece, assigning one to a new piece.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

type Pair = (u32, u32);

/// A word split into pieces, and its number of occurrences.
pub(super) struct Word {
    pub pieces: Vec<u32>,
    pub count: u64,
}

/// Limits of learning.
pub(super) struct Limits<'a> {
    /// Maximum number of new pieces.
    pub room: usize,
    /// Minimum number of occurrences of a pair.
    pub min_frequency: u64,
    /// Whether a piece may be created; called once for each candidate.
    pub admissible: &'a dyn Fn(&str) -> bool,
}

/// Learns merges, adds their results to `pieces`, and returns them in order.
pub(super) fn learn(mut words: Vec<Word>, pieces: &mut Pieces, limits: &Limits) -> Vec<Pair> {
    let mut table = Table::default();
    for (index, word) in words.iter().enumerate() {
        table.add(index, word);
    }
    let mut queue = BinaryHeap::new();
    for (pair, count) in table.take_changed() {
        table.enqueue(&mut queue, pair, count, pieces, limits);
    }
    let mut merges = Vec::new();
    let target = pieces.names.len().saturating_add(limits.room);
    while pieces.names.len() < target {
        let Some((count, Reverse(pair))) = queue.pop() else { break };
        if table.count(pair) != count {
            // Stale: the count changed after queueing, and the current count has its own entry.
            continue;
        }
        let merged = pieces.number(&concatenated(pieces, pair));
        merges.push(pair);
        for index in table.words_of(pair) {
            table.remove(&words[index]);
            merge(&mut words[index].pieces, pair, merged);
            table.add(index, &words[index]);
        }
        for (pair, count) in table.take_changed() {
            table.enqueue(&mut queue, pair, count, pieces, limits);
        }
    }
    merges
}

fn concatenated(pieces: &Pieces, (a, b): Pair) -> String {
    format!("{}{}", pieces.names[a as usize], pieces.names[b as usize])
}

fn merge(word: &mut Vec<u32>, (a, b): Pair, merged: u32) {
    let mut kept = 0;
    let mut at = 0;
    while at < word.len() {
        if word[at] == a && word.get(at + 1) == Some(&b) {
            word[kept] = merged;
            at += 2;
        } else {
            word[kept] = word[at];
            at += 1;
        }
        kept += 1;
    }
    word.truncate(kept);
}

/// Number of occurrences of each pair, and the words that may contain it.
#[derive(Default)]
struct Table {
    counts: HashMap<Pair, u64>,
    words_by_pair: HashMap<Pair, HashSet<usize>>,
    changed: HashSet<Pair>,
    rejected: HashSet<Pair>,
}

impl Table {
    fn add(&mut self, index: usize, word: &Word) {
        for pair in word.pieces.windows(2).map(|two| (two[0], two[1])) {
            *self.counts.entry(pair).or_default() += word.count;
            self.words_by_pair.entry(pair).or_default().insert(index);
            self.changed.insert(pair);
        }
    }

    fn remove(&mut self, word: &Word) {
        for pair in word.pieces.windows(2).map(|two| (two[0], two[1])) {
            if let Some(count) = self.counts.get_mut(&pair) {
                *count = count.saturating_sub(word.count);
            }
            self.changed.insert(pair);
        }
    }

    fn count(&self, pair: Pair) -> u64 {
        self.counts.get(&pair).copied().unwrap_or(0)
    }

    /// Removes and returns the words that contain a pair; it is about to be merged in all of them.
    fn words_of(&mut self, pair: Pair) -> Vec<usize> {
        let mut words: Vec<usize> =
            self.words_by_pair.remove(&pair).unwrap_or_default().into_iter().collect();
        words.sort_unstable();
        words
    }

    /// Returns the pairs whose count changed since the last call, with their counts, in order.
    fn take_changed(&mut self) -> BTreeMap<Pair, u64> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|pair| (pair, self.count(pair))).collect()
    }

    fn enqueue(
        &mut self,
        queue: &mut BinaryHeap<(u64, Reverse<Pair>)>,
        pair: Pair,
        count: u64,
        pieces: &Pieces,
        limits: &Limits,
    ) {
        if count < limits.min_frequency.max(1) || self.rejected.contains(&pair) {
            return;
        }
        if (limits.admissible)(&concatenated(pieces, pair)) {
            queue.push((count, Reverse(pair)));
        } else {
            self.rejected.insert(pair);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[(&str, u64)], pieces: &mut Pieces) -> Vec<Word> {
        list.iter()
            .map(|&(word, count)| Word {
                pieces: word.chars().map(|c| pieces.number(&c.to_string())).collect(),
                count,
            })
            .collect()
    }

    #[test]
    fn the_most_frequent_pair_is_merged_first() {
        let mut pieces = Pieces::default();
        let words = words(&[("aab", 5), ("ab", 3), ("bc", 4)], &mut pieces);
        let limits = Limits { room: 2, min_frequency: 1, admissible: &|_| true };
        let merges = learn(words, &mut pieces, &limits);
        assert_eq!(pieces.names, ["a", "b", "c", "ab", "aab"]);
        assert_eq!(merges, [(0, 1), (0, 3)]);
    }

    #[test]
    fn inadmissible_and_rare_pieces_are_not_created() {
        let mut pieces = Pieces::default();
        let list = words(&[("xyz", 5), ("yq", 1)], &mut pieces);
        let limits = Limits { room: 10, min_frequency: 2, admissible: &|piece| piece.contains('x') };
        learn(list, &mut pieces, &limits);
        assert_eq!(&pieces.names[4..], ["xy", "xyz"]);
    }

    #[test]
    fn repeated_letters_are_counted_after_every_merge() {
        let mut pieces = Pieces::default();
        let words = words(&[("aaaa", 2)], &mut pieces);
        let limits = Limits { room: 5, min_frequency: 1, admissible: &|_| true };
        let merges = learn(words, &mut pieces, &limits);
        assert_eq!(pieces.names, ["a", "aa", "aaaa"]);
        assert_eq!(merges, [(0, 0), (1, 1)]);
    }
}
