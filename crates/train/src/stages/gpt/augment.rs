//! Augmentation of training batches, so that the GPT reads the text instead of memorising clips.
//!
//! | part | effect |
//! |---|---|
//! | masking | hides a share of the input codes, so that the next code must be predicted from the text |
//! | recombination | joins segments of several clips of a speaker, cut between words, into new sentences |
//! | alignment head | a middle block predicts the token being spoken ([`myxtts_model::Gpt::add_alignment_head`]) |
//! | text dropout | removes the text of some rows, so that the GPT also learns unconditional prediction |
//! | codebook start | initialises code embeddings with the DVAE's vectors (`gpt/codebook_start.rs`) |
//! | diagonal start | initialises attention along the text (`myxtts_model`'s `gpt/diagonal.rs`) |
//!
//! Every random number is a function of seed, batch and record: batches are the same with any number of workers and
//! replicas, and after a resume.

mod recombination;

use super::GptSettings;
use super::acoustic_targets::Segment;
use crate::align::Alignments;
use crate::overlay::WithCodes;
use myxtts_data::record::RecordSource;
use myxtts_model::{GptSizes, Rows, Sequences};
use myxtts_run::seed::Seed;
use recombination::Draw;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Share of the batches after which clips stay whole: training ends on speech as it was recorded.
const WHOLE_FROM: f64 = 0.85;
/// Augments training batches.
pub(in crate::stages) struct Augmenter {
    seed: Seed,
    /// The slice of every batch that its rows are: random numbers depend on the position in the whole batch.
    slice: u64,
    masking: f64,
    text_dropout: f64,
    recombination: f64,
    whole_from: u64,
    alignments: Option<Arc<Alignments>>,
    space: i32,
    mask_id: i32,
    source: Arc<WithCodes>,
    /// Aligned training records of each speaker and language.
    together: HashMap<(u32, u32), Vec<u32>>,
}

/// The rows of a batch after augmentation.
pub(super) struct Augmented {
    text: Vec<i32>,
    text_lengths: Vec<i32>,
    codes: Vec<i32>,
    code_lengths: Vec<i32>,
    /// The token spoken at each code, `[rows, codes]`; -1 where it is unknown.
    spoken: Vec<i32>,
    /// Per row: where its codes are from.
    segments: Vec<Vec<Segment>>,
    /// Per row: whether its text was removed.
    without_text: Vec<bool>,
}

impl Augmented {
    pub fn rows<'a>(&'a self, prompts: &'a [Range<usize>]) -> Rows<'a> {
        let Augmented { text, text_lengths, codes, code_lengths, .. } = self;
        Rows { text, text_lengths, codes, code_lengths, prompts }
    }

    /// Per row: where its codes are from.
    pub fn segments(&self) -> &[Vec<Segment>] {
        &self.segments
    }

    /// Whether the text of a row was removed.
    pub fn lost_text(&self, row: usize) -> bool {
        self.without_text[row]
    }

    /// The records that the codes of all rows are from, as often as they occur.
    pub fn sources(&self) -> Vec<i32> {
        self.segments.iter().flatten().map(|segment| segment.record as i32).collect()
    }

    /// Targets of the alignment head: for every code the token spoken there, and STOP after the last.
    pub fn alignment_targets(&self, sizes: &GptSizes, sequences: &Sequences) -> Vec<i32> {
        let rows = self.code_lengths.len().max(1);
        let room = self.codes.len() / rows;
        let mut targets = vec![-1; sequences.mel_targets.len()];
        for (row, targets) in targets.chunks_exact_mut(sequences.mel.max(1)).enumerate() {
            let length = self.code_lengths[row] as usize;
            for (place, target) in targets.iter_mut().enumerate() {
                if sequences.mel_targets[row * sequences.mel + place] >= 0 {
                    *target = if place < length { self.spoken[row * room + place] } else { sizes.stop_text };
                }
            }
        }
        targets
    }
}

impl Augmenter {
    /// An augmenter for a stage of `batches` batches and this slice of them; `None` if nothing is augmented.
    pub fn new(
        settings: &GptSettings,
        source: &Arc<WithCodes>,
        train: &[u32],
        (batches, slice): (u64, u32),
    ) -> Option<Augmenter> {
        let own = &settings.regularization;
        if own.masking <= 0.0 && own.text_dropout <= 0.0 && own.alignments.is_none() {
            return None;
        }
        let mut together: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
        for &record in train {
            if own.alignments.as_ref().is_some_and(|all| all.get(record).is_some()) {
                let (speaker, language) = (source.speaker(record as usize), source.language(record as usize));
                together.entry((speaker, language)).or_default().push(record);
            }
        }
        together.values_mut().for_each(|records| records.sort_unstable());
        Some(Augmenter {
            seed: Seed::new(settings.seed).derive("augment"),
            slice: u64::from(slice),
            masking: own.masking,
            text_dropout: own.text_dropout,
            recombination: own.recombination,
            whole_from: (batches as f64 * WHOLE_FROM) as u64,
            alignments: own.alignments.clone(),
            space: own.space,
            mask_id: settings.sizes.start_audio,
            source: source.clone(),
            together,
        })
    }

    /// The rows of a batch, some of them recombined, with the token spoken at each code. The rows `whole` are not recombined.
    pub fn rows(&self, batch: u64, records: &[i32], rows: &Rows<'_>, whole: &[usize]) -> Augmented {
        let mut made = Augmented {
            text: rows.text.to_vec(),
            text_lengths: rows.text_lengths.to_vec(),
            codes: rows.codes.to_vec(),
            code_lengths: rows.code_lengths.to_vec(),
            spoken: vec![-1; rows.codes.len()],
            segments: whole_rows(records, rows.code_lengths),
            without_text: vec![false; records.len()],
        };
        if let Some(alignments) = &self.alignments {
            self.recombine(batch, (records, rows), (alignments, whole), &mut made);
        }
        self.drop_texts(batch, records, &mut made);
        made
    }

    /// Removes the text of a share of the rows, except for its first token, the language.
    fn drop_texts(&self, batch: u64, records: &[i32], made: &mut Augmented) {
        if self.text_dropout <= 0.0 {
            return;
        }
        let count = made.text_lengths.len().max(1);
        let (tokens, codes) = (made.text.len() / count, made.codes.len() / count);
        let first = self.slice * count as u64;
        for (row, &record) in records.iter().enumerate().take(count) {
            let seed = self.seed.derive("text").with(batch).with(record as u64);
            if record >= 0 && made.text_lengths[row] >= 2 && seed.unit(first + row as u64) < self.text_dropout
            {
                made.text[row * tokens + 1] = self.space;
                made.text_lengths[row] = 2;
                made.without_text[row] = true;
                made.spoken[row * codes..][..codes].fill(-1);
            }
        }
    }

    fn recombine(
        &self,
        batch: u64,
        (records, rows): (&[i32], &Rows<'_>),
        (alignments, whole): (&Alignments, &[usize]),
        made: &mut Augmented,
    ) {
        let count = rows.text_lengths.len().max(1);
        let (tokens, codes) = (rows.text.len() / count, rows.codes.len() / count);
        for (row, &record) in records.iter().enumerate().take(count) {
            let Some(own) = u32::try_from(record).ok().and_then(|record| alignments.get(record)) else {
                continue;
            };
            let spoken = &mut made.spoken[row * codes..][..codes];
            for (spoken, &token) in spoken.iter_mut().zip(&own.at_code) {
                *spoken = own.tokens[token as usize];
            }
            let draw = Draw { seed: self.seed.with(batch).with(record as u64), next: 0 };
            // Conditioning cut from the row's own clip belongs to that clip's codes, so the row stays.
            let conditioned_by_itself = rows.prompts.get(row).is_some_and(|prompt| !prompt.is_empty());
            if batch >= self.whole_from || conditioned_by_itself || whole.contains(&row) {
                continue;
            }
            let Some(joined) = self.recombined_row(record as u32, own, (tokens, codes), draw) else {
                continue;
            };
            let (text, sound) = (joined.tokens.len(), joined.codes.len());
            made.text[row * tokens..][..text].copy_from_slice(&joined.tokens);
            made.text_lengths[row] = text as i32;
            made.codes[row * codes..][..sound].copy_from_slice(&joined.codes);
            made.code_lengths[row] = sound as i32;
            made.spoken[row * codes..][..sound].copy_from_slice(&joined.spoken);
            made.segments[row] = joined.segments;
        }
    }

    /// Masks a share of the input codes `[rows, positions]`: START, codes, STOP. A masked code reads as START.
    pub fn mask(&self, batch: u64, records: &[i32], mel_in: &mut [i32]) {
        if self.masking <= 0.0 || records.is_empty() {
            return;
        }
        let places = mel_in.len() / records.len();
        for (row, &record) in mel_in.chunks_exact_mut(places.max(1)).zip(records) {
            let seed = self.seed.derive("mask").with(batch).with(record as u64);
            for (place, code) in row.iter_mut().enumerate().skip(1) {
                if *code < self.mask_id && seed.unit(place as u64) < self.masking {
                    *code = self.mask_id;
                }
            }
        }
    }
}

/// The segments of rows that are whole clips; rows without a record have none.
pub(super) fn whole_rows(records: &[i32], code_lengths: &[i32]) -> Vec<Vec<Segment>> {
    let row = |(&record, &codes): (&i32, &i32)| match u32::try_from(record) {
        Ok(record) => vec![Segment { record, codes: 0..codes.max(0) as usize }],
        Err(_) => Vec::new(),
    };
    records.iter().zip(code_lengths).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::align::Aligned;
    use myxtts_data::record::{Column, RecordError, TOKENS};

    const SPACE: i32 = 2;
    const LANGUAGE: i32 = 4;
    const MASK: i32 = 1000;
    /// Maximum tokens and codes of a row.
    const ROOM: (usize, usize) = (40, 60);

    struct Names(Vec<String>, usize);

    impl RecordSource for Names {
        fn columns(&self) -> &[Column] {
            &[TOKENS]
        }
        fn len(&self) -> usize {
            self.1
        }
        fn rows(&self, _: usize, _: usize) -> u32 {
            0
        }
        fn speaker(&self, record: usize) -> u32 {
            record as u32 % 2
        }
        fn language(&self, _: usize) -> u32 {
            0
        }
        fn speakers(&self) -> &[String] {
            &self.0
        }
        fn languages(&self) -> &[String] {
            &self.0
        }
        fn id(&self, record: usize) -> String {
            record.to_string()
        }
        fn read(&self, _: usize, _: usize, _: u32, _: &mut [u8]) -> Result<u32, RecordError> {
            Ok(0)
        }
        fn fingerprint(&self) -> [u8; 32] {
            [0; 32]
        }
    }

    /// Clips of three to six words. A letter is a token above 10 and is spoken by one code, which identifies clip and
    /// position.
    fn clips(count: u32) -> (Vec<Vec<i32>>, Vec<(u32, Aligned)>) {
        let (mut codes, mut aligned) = (Vec::new(), Vec::new());
        for clip in 0..count {
            let (mut tokens, mut at_code, mut words) = (vec![LANGUAGE], Vec::new(), Vec::new());
            for word in 0..3 + clip % 4 {
                if word > 0 {
                    tokens.push(SPACE);
                }
                words.push((tokens.len() as u32, at_code.len() as u32));
                for letter in 0..2 + (clip + word) % 3 {
                    at_code.push(tokens.len() as u32);
                    tokens.push(10 + (clip * 100 + word * 10 + letter) as i32);
                }
            }
            codes.push(at_code.iter().map(|&token| tokens[token as usize] % MASK).collect());
            aligned.push((clip, Aligned { tokens, at_code, words }));
        }
        (codes, aligned)
    }

    fn augmenter(recombination: f64, masking: f64) -> (Augmenter, Vec<(u32, Aligned)>) {
        let (codes, aligned) = clips(8);
        let base = Arc::new(Names(vec!["a".into(), "b".into()], codes.len()));
        let source = Arc::new(WithCodes::new(base, codes));
        let mut together: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
        (0..8).for_each(|record| together.entry((record % 2, 0)).or_default().push(record));
        let augmenter = Augmenter {
            seed: Seed::new(1),
            slice: 0,
            masking,
            text_dropout: 0.0,
            recombination,
            whole_from: 100,
            alignments: Some(Arc::new(aligned.clone().into_iter().collect())),
            space: SPACE,
            mask_id: MASK,
            source,
            together,
        };
        (augmenter, aligned)
    }

    /// A batch of all clips, as the loader makes it.
    fn batch(augmenter: &Augmenter, aligned: &[(u32, Aligned)], number: u64) -> Augmented {
        let (mut text, mut codes) = (Vec::new(), Vec::new());
        let (mut text_lengths, mut code_lengths) = (Vec::new(), Vec::new());
        for (record, clip) in aligned {
            let own = augmenter.source.codes(*record as usize);
            text.extend(clip.tokens.iter().copied().chain([0; ROOM.0]).take(ROOM.0));
            codes.extend(own.iter().copied().chain([0; ROOM.1]).take(ROOM.1));
            text_lengths.push(clip.tokens.len() as i32);
            code_lengths.push(own.len() as i32);
        }
        let rows = Rows {
            text: &text,
            text_lengths: &text_lengths,
            codes: &codes,
            code_lengths: &code_lengths,
            prompts: &[],
        };
        let records: Vec<i32> = aligned.iter().map(|(record, _)| *record as i32).collect();
        augmenter.rows(number, &records, &rows, &[])
    }

    #[test]
    fn text_dropout_depended_on_the_number_of_replicas() {
        let (mut augmenter, aligned) = augmenter(0.0, 0.0);
        augmenter.text_dropout = 0.5;
        let whole: Vec<i32> =
            (0..20).flat_map(|number| batch(&augmenter, &aligned, number).text_lengths).collect();
        let mut halves = Vec::new();
        for number in 0..20 {
            for (slice, rows) in aligned.chunks(aligned.len() / 2).enumerate() {
                augmenter.slice = slice as u64;
                halves.extend(batch(&augmenter, rows, number).text_lengths);
            }
        }
        assert_eq!(whole, halves);
    }

    #[test]
    fn rows_without_their_text_keep_their_language_and_their_codes() {
        let (mut augmenter, aligned) = augmenter(0.0, 0.0);
        let whole = batch(&augmenter, &aligned, 0);
        augmenter.text_dropout = 0.5;
        let mut dropped = 0;
        for number in 0..50 {
            let made = batch(&augmenter, &aligned, number);
            assert_eq!((&made.codes, &made.code_lengths), (&whole.codes, &whole.code_lengths));
            for (row, (_, clip)) in aligned.iter().enumerate() {
                let text = &made.text[row * ROOM.0..][..made.text_lengths[row] as usize];
                let spoken = &made.spoken[row * ROOM.1..][..ROOM.1];
                if text == [LANGUAGE, SPACE] {
                    dropped += 1;
                    assert!(spoken.iter().all(|&token| token == -1), "the spoken token is unknown");
                } else {
                    assert_eq!(text, &clip.tokens[..]);
                    assert_eq!(spoken, &whole.spoken[row * ROOM.1..][..ROOM.1]);
                }
            }
        }
        assert!((120..280).contains(&dropped), "{dropped} of {} rows", 50 * aligned.len());
    }

    #[test]
    fn recombined_rows_match_their_text_and_speaker() {
        let (augmenter, aligned) = augmenter(1.0, 0.0);
        let mut changed = 0;
        for number in 0..50 {
            let made = batch(&augmenter, &aligned, number);
            for (row, (record, whole)) in aligned.iter().enumerate() {
                let text = &made.text[row * ROOM.0..][..made.text_lengths[row] as usize];
                let codes = &made.codes[row * ROOM.1..][..made.code_lengths[row] as usize];
                let spoken = &made.spoken[row * ROOM.1..][..codes.len()];
                changed += usize::from(text != &whole.tokens[..]);
                assert_eq!(text[0], LANGUAGE);
                assert!(text.last() != Some(&SPACE) && !text.windows(2).any(|pair| pair == [SPACE, SPACE]));
                // Every letter of the text is spoken once, in order, by its own code, and by this row's speaker.
                let letters: Vec<i32> = text.iter().copied().filter(|&token| token >= 10).collect();
                assert_eq!(letters, spoken);
                assert!(codes.iter().zip(spoken).all(|(code, token)| *code == token % MASK));
                // Every code is the one at its place in its segment's clip.
                let placed = made.segments[row].iter().flat_map(|segment| {
                    augmenter.source.codes(segment.record as usize)[segment.codes.clone()].to_vec()
                });
                assert_eq!(placed.collect::<Vec<i32>>(), codes);
                assert!(letters.iter().all(|token| ((token - 10) / 100) as u32 % 2 == record % 2));
            }
        }
        assert!(changed > 300, "{changed} of 400 rows are new sentences");
    }

    #[test]
    fn rows_stay_whole_at_the_end_and_sampling_is_repeatable() {
        let (augmenter, aligned) = augmenter(1.0, 0.0);
        let whole = batch(&augmenter, &aligned, 100);
        for (row, (_, clip)) in aligned.iter().enumerate() {
            assert_eq!(made_text(&whole, row), &clip.tokens[..]);
        }
        let (once, twice) = (batch(&augmenter, &aligned, 7), batch(&augmenter, &aligned, 7));
        assert_eq!((once.text, once.codes), (twice.text, twice.codes));
    }

    fn made_text(made: &Augmented, row: usize) -> &[i32] {
        &made.text[row * ROOM.0..][..made.text_lengths[row] as usize]
    }

    #[test]
    fn a_share_of_codes_is_masked_and_nothing_else() {
        let (augmenter, _) = augmenter(0.0, 0.3);
        let row: Vec<i32> = [MASK].into_iter().chain((0..998).map(|i| i % 900)).chain([MASK + 1]).collect();
        let mut masked = row.clone();
        augmenter.mask(3, &[5], &mut masked);
        let hidden = row.iter().zip(&masked).filter(|(before, after)| before != after).count();
        assert!((240..360).contains(&hidden), "{hidden} of 998 codes");
        assert!(masked[0] == MASK && masked.last() == Some(&(MASK + 1)));
        assert!(row.iter().zip(&masked).all(|(before, after)| after == before || *after == MASK));
    }
}
