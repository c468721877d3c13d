//! Records by speaker, the source of a row's conditioning.

use myxtts_run::seed::Seed;

/// Records grouped by speaker.
#[derive(Clone, Debug)]
pub struct Speakers {
    /// Start of each speaker's records in `records`, plus the end of the last.
    starts: Vec<u32>,
    /// Record numbers, ascending within each speaker.
    records: Vec<u32>,
}

impl Speakers {
    /// Groups `records` (ascending) by the speaker number that `speaker_of` returns, which must be below `count`. Returns
    /// the first record with a number out of range as the error.
    pub fn group(records: &[u32], count: usize, speaker_of: impl Fn(u32) -> u32) -> Result<Self, u32> {
        // Counting sort. The speakers are kept, because calling `speaker_of` again reads the index again.
        let mut speakers = Vec::with_capacity(records.len());
        let mut starts = vec![0u32; count + 1];
        for &record in records {
            let speaker = speaker_of(record);
            *starts[1..].get_mut(speaker as usize).ok_or(record)? += 1;
            speakers.push(speaker);
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut grouped = vec![0u32; records.len()];
        for (&record, &speaker) in records.iter().zip(&speakers) {
            let slot = &mut next[speaker as usize];
            grouped[*slot as usize] = record;
            *slot += 1;
        }
        Ok(Speakers { starts, records: grouped })
    }

    /// Returns all records of a speaker, ascending.
    pub(crate) fn records_of(&self, speaker: u32) -> &[u32] {
        match self.starts.get(speaker as usize..speaker as usize + 2) {
            Some(&[start, end]) => &self.records[start as usize..end as usize],
            _ => &[],
        }
    }

    /// Returns another record of the same speaker, each equally likely, or the record itself if it is the only one. A pure
    /// function of its arguments: derive `seed` from epoch and record.
    pub fn companion(&self, record: u32, speaker: u32, seed: Seed) -> u32 {
        let group = self.records_of(speaker);
        match group.binary_search(&record) {
            Ok(own) if group.len() > 1 => {
                let ahead = 1 + seed.below(0, group.len() as u64 - 1) as usize;
                group[(own + ahead) % group.len()]
            }
            _ => record,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_hold_every_record_once_in_ascending_order() {
        let records = [1, 3, 4, 8, 9];
        let speakers = Speakers::group(&records, 3, |record| record % 3).unwrap();
        assert_eq!(speakers.records_of(0), [3, 9]);
        assert_eq!(speakers.records_of(1), [1, 4]);
        assert_eq!(speakers.records_of(2), [8]);
        assert!(speakers.records_of(3).is_empty());
        assert!(Speakers::group(&[], 0, |_| 0).unwrap().records_of(0).is_empty());
        assert_eq!(Speakers::group(&records, 2, |record| record % 3).err(), Some(8));
    }

    #[test]
    fn a_companion_is_another_record_of_the_same_speaker_and_all_occur() {
        let records: Vec<u32> = (0..21).collect();
        let speakers = Speakers::group(&records, 3, |record| record / 7).unwrap();
        let mut counts = [0u32; 21];
        for sample in 0..6000 {
            let companion = speakers.companion(9, 1, Seed::new(4).with(sample));
            assert!((7..14).contains(&companion) && companion != 9);
            counts[companion as usize] += 1;
        }
        assert!(counts.iter().filter(|&&n| n > 0).all(|n| (850..1150).contains(n)), "{counts:?}");
        assert_eq!(counts.iter().filter(|&&n| n > 0).count(), 6);
    }

    #[test]
    fn a_single_record_is_its_own_companion() {
        let speakers = Speakers::group(&[5], 1, |_| 0).unwrap();
        assert_eq!(speakers.companion(5, 0, Seed::new(1)), 5);
    }
}
