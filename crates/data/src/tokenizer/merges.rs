//! Learning byte-pair merges from word counts.
//!
//! Our own and not the `tokenizers` trainer, for two reasons: that one keeps several queue entries for one
//! pair and breaks their ties by hash order, so that two runs may differ; and it cannot start from words that
//! an existing vocabulary has cut already, which is what extending one needs. Here the next merge is always
//! the pair with the largest count and then the smallest ids: a function of the counts alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

/// Pieces by number, without holes.
#[derive(Default)]
pub(super) struct Pieces {
    pub names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Pieces {
    /// The number of a piece, new or old.
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

/// A word cut into pieces, and how often it occurs.
pub(super) struct Word {
    pub pieces: Vec<u32>,
    pub count: u64,
}

/// What may be learned.
pub(super) struct Limits<'a> {
    /// How many new pieces at most.
    pub room: usize,
    /// How often a pair must occur.
    pub min_frequency: u64,
    /// Whether a piece may come into being; asked once for each candidate.
    pub admissible: &'a dyn Fn(&str) -> bool,
}

/// Learns merges, adds their results to `pieces`, and returns them in order.
pub(super) fn learn(mut words: Vec<Word>, pieces: &mut Pieces, limits: &Limits) -> Vec<Pair> {
    let mut table = Table::default();
    for (index, word) in words.iter().enumerate() {
        table.add(index, word);
    }
    let mut queue = BinaryHeap::new();
    for (pair, count) in table.take_touched() {
        table.enqueue(&mut queue, pair, count, pieces, limits);
    }
    let mut merges = Vec::new();
    let enough = pieces.names.len().saturating_add(limits.room);
    while pieces.names.len() < enough {
        let Some((count, Reverse(pair))) = queue.pop() else { break };
        if table.count(pair) != count {
            // Counted anew since it was queued; its present count has an entry of its own.
            continue;
        }
        let merged = pieces.number(&joined(pieces, pair));
        merges.push(pair);
        for index in table.words_of(pair) {
            table.remove(&words[index]);
            merge(&mut words[index].pieces, pair, merged);
            table.add(index, &words[index]);
        }
        for (pair, count) in table.take_touched() {
            table.enqueue(&mut queue, pair, count, pieces, limits);
        }
    }
    merges
}

fn joined(pieces: &Pieces, (a, b): Pair) -> String {
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

/// How often each pair occurs, and in which words it may be found.
#[derive(Default)]
struct Table {
    counts: HashMap<Pair, u64>,
    places: HashMap<Pair, HashSet<usize>>,
    touched: HashSet<Pair>,
    refused: HashSet<Pair>,
}

impl Table {
    fn add(&mut self, index: usize, word: &Word) {
        for pair in word.pieces.windows(2).map(|two| (two[0], two[1])) {
            *self.counts.entry(pair).or_default() += word.count;
            self.places.entry(pair).or_default().insert(index);
            self.touched.insert(pair);
        }
    }

    fn remove(&mut self, word: &Word) {
        for pair in word.pieces.windows(2).map(|two| (two[0], two[1])) {
            if let Some(count) = self.counts.get_mut(&pair) {
                *count = count.saturating_sub(word.count);
            }
            self.touched.insert(pair);
        }
    }

    fn count(&self, pair: Pair) -> u64 {
        self.counts.get(&pair).copied().unwrap_or(0)
    }

    /// The words a pair was seen in; it is about to be merged in all of them.
    fn words_of(&mut self, pair: Pair) -> Vec<usize> {
        let mut words: Vec<usize> = self.places.remove(&pair).unwrap_or_default().into_iter().collect();
        words.sort_unstable();
        words
    }

    /// Pairs whose count changed since the last call, with their counts, in order.
    fn take_touched(&mut self) -> BTreeMap<Pair, u64> {
        let touched = std::mem::take(&mut self.touched);
        touched.into_iter().map(|pair| (pair, self.count(pair))).collect()
    }

    fn enqueue(
        &mut self,
        queue: &mut BinaryHeap<(u64, Reverse<Pair>)>,
        pair: Pair,
        count: u64,
        pieces: &Pieces,
        limits: &Limits,
    ) {
        if count < limits.min_frequency.max(1) || self.refused.contains(&pair) {
            return;
        }
        if (limits.admissible)(&joined(pieces, pair)) {
            queue.push((count, Reverse(pair)));
        } else {
            self.refused.insert(pair);
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
    fn the_commonest_pair_is_merged_first() {
        let mut pieces = Pieces::default();
        let words = words(&[("aab", 5), ("ab", 3), ("bc", 4)], &mut pieces);
        let limits = Limits { room: 2, min_frequency: 1, admissible: &|_| true };
        let merges = learn(words, &mut pieces, &limits);
        assert_eq!(pieces.names, ["a", "b", "c", "ab", "aab"]);
        assert_eq!(merges, [(0, 1), (0, 3)]);
    }

    #[test]
    fn inadmissible_and_rare_pieces_are_not_made() {
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
