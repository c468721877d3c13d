//! Builds the GPT's inputs, targets and attention masks from padded text and codes. Pure functions on the host; the
//! network is the same for all masks.
//!
//! | array | shape | content |
//! |---|---|---|
//! | `text_in` | `[rows, text]` | START t1 … tL STOP STOP … |
//! | `text_targets` | `[rows, text]` | t1 … tL STOP -1 … |
//! | `mel_in` | `[rows, mel]` | START c1 … cN STOP … |
//! | `mel_targets` | `[rows, mel]` | c1 … cN STOP -1 … |
//! | `key_mask` | `[rows, latents + text + mel]` | 1 where a position may be attended to |
//!
//! Two sets of masks:
//!
//! | | [`Masks::Corrected`] | [`Masks::Coqui`] |
//! |---|---|---|
//! | text STOP | visible, as in inference | hidden in training, visible in inference |
//! | code positions | the codes and START: N + 1 | N + 5, of which N + 4 are visible |
//! | audio STOP in the loss | once | four times |
//! | codes that the conditioning was cut from | excluded from the loss in every row | excluded in the last row only, over a span four times too far: samples / 256 where a code is 1024 |
//! | a row without codes | contributes nothing to the loss, sees its conditioning | the same (the original has no such rows) |
//! | conditioning shorter than its window | repeated to the window's end ([`repeat_frames`]) and attended to once ([`frame_lengths`]) | silence, attended to in training and absent in inference |
//!
//! On the last row: attention can be masked at a clip's end, but the conditioning encoder's norms take their statistics
//! over the whole window, including silence. A repeated clip has the statistics of the clip. So the window is filled
//! with repeats, for the norms, and masked behind the clip, for attention. With whole repeats the vectors are exactly
//! those of the clip alone; otherwise only the last partial repeat affects the norms.

use crate::gpt::GptSizes;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Which positions may be attended to, and which count for the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Masks {
    /// Training sees what inference sees.
    #[default]
    Corrected,
    /// As in Coqui's trainer, for comparison.
    Coqui,
}

/// Samples per code that the original assumes when it excludes the conditioning's codes from the loss: the hop of a mel
/// frame.
const COQUI_PROMPT_STRIDE: usize = 256;

/// Text and codes of a batch, padded to the longest row.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Token ids `[rows, tokens]`; values beyond a row's length are not read.
    pub text: &'a [i32],
    /// Number of tokens of each row `[rows]`.
    pub text_lengths: &'a [i32],
    /// Audio codes `[rows, codes]`; values beyond a row's length are not read.
    pub codes: &'a [i32],
    /// Number of codes of each row `[rows]`; 0 for a row without a record.
    pub code_lengths: &'a [i32],
    /// For each row, the samples of its own clip that its conditioning was cut from; empty if it comes from another
    /// clip. An empty slice means that no row has any.
    pub prompts: &'a [Range<usize>],
}

/// Inputs, targets and masks of the GPT; see the module's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequences {
    /// Text positions per row.
    pub text: usize,
    /// Code positions per row.
    pub mel: usize,
    /// Input ids of the text segment.
    pub text_in: Vec<i32>,
    /// Targets of the text segment; -1 is ignored.
    pub text_targets: Vec<i32>,
    /// Input ids of the audio segment.
    pub mel_in: Vec<i32>,
    /// Targets of the audio segment; -1 is ignored.
    pub mel_targets: Vec<i32>,
    /// 1 where a position may be attended to.
    pub key_mask: Vec<i32>,
}

/// Reasons why text and codes cannot form sequences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// The arrays have different numbers of rows.
    #[error("{found} {what} cannot be divided evenly among {rows} rows")]
    Uneven {
        /// Number of rows, from the lengths of the text.
        rows: usize,
        /// Name of the array that differs.
        what: &'static str,
        /// Number of values found.
        found: usize,
    },
    /// A row's length exceeds the padded length.
    #[error("row {row} declares {found} {what}, but the padded length is {room}")]
    Length {
        /// Row index.
        row: usize,
        /// `tokens` or `codes`.
        what: &'static str,
        /// Declared length.
        found: i32,
        /// Padded length.
        room: usize,
    },
    /// The position table is too short.
    #[error(
        "{found} {what} in a row need {needed} positions and the model has {positions}: leave longer clips out"
    )]
    TooLong {
        /// `tokens` or `codes`.
        what: &'static str,
        /// Padded length.
        found: usize,
        /// Positions needed.
        needed: usize,
        /// Rows of the position table.
        positions: usize,
    },
    /// An id is outside its vocabulary.
    #[error("row {row} has {what} {id} at position {position}, but the model has 0 to {last}: was it made with another vocabulary?", last = .vocabulary - 1)]
    Id {
        /// Row index.
        row: usize,
        /// Position in the row.
        position: usize,
        /// `token` or `code`.
        what: &'static str,
        /// The id found.
        id: i32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
}

impl Masks {
    /// Number of text positions and of code positions that rows padded to `tokens` and `codes` need.
    pub fn positions(self, tokens: usize, codes: usize) -> (usize, usize) {
        match self {
            Masks::Corrected => (tokens + 2, codes + 1),
            Masks::Coqui => (tokens + 2, codes + 5),
        }
    }

    /// Number of visible text and code positions of a row.
    fn seen(self, tokens: usize, codes: usize) -> (usize, usize) {
        match self {
            Masks::Corrected => (tokens + 2, codes + 1),
            Masks::Coqui => (tokens + 1, codes + 4),
        }
    }

    /// How often the audio STOP is a target.
    fn stops(self) -> usize {
        match self {
            Masks::Corrected => 1,
            Masks::Coqui => 4,
        }
    }

    /// The targets of a row that its conditioning was cut from.
    fn prompt(self, sizes: &GptSizes, samples: &Range<usize>, codes: usize, last: bool) -> Range<usize> {
        if samples.is_empty() {
            return 0..0;
        }
        match self {
            Masks::Corrected => {
                let stride = sizes.code_stride;
                (samples.start / stride).min(codes)..samples.end.div_ceil(stride).min(codes)
            }
            Masks::Coqui if last => {
                let end = self.positions(0, codes).1;
                (samples.start / COQUI_PROMPT_STRIDE).min(end)..(samples.end / COQUI_PROMPT_STRIDE).min(end)
            }
            Masks::Coqui => 0..0,
        }
    }

    /// Builds the inputs, targets and masks of a batch.
    pub fn sequences(self, sizes: &GptSizes, batch: &Rows<'_>) -> Result<Sequences, SequenceError> {
        let rows = batch.text_lengths.len();
        let even = |what, found: usize, fits: bool| {
            if fits { Ok(()) } else { Err(SequenceError::Uneven { rows, what, found }) }
        };
        even("rows", rows, rows > 0)?;
        even("tokens", batch.text.len(), batch.text.len().is_multiple_of(rows))?;
        even("codes", batch.codes.len(), batch.codes.len().is_multiple_of(rows))?;
        even("lengths of codes", batch.code_lengths.len(), batch.code_lengths.len() == rows)?;
        let prompts = batch.prompts.len();
        even("spans of conditioning", prompts, prompts == 0 || prompts == rows)?;

        let (tokens, codes) = (batch.text.len() / rows, batch.codes.len() / rows);
        let (text, mel) = self.positions(tokens, codes);
        let limit = |what, found, needed, positions| {
            let long = SequenceError::TooLong { what, found, needed, positions };
            if needed > positions { Err(long) } else { Ok(()) }
        };
        limit("tokens", tokens, text, sizes.text_positions())?;
        limit("codes", codes, mel, sizes.audio_positions())?;

        let latents = sizes.perceiver.latents;
        let mut out = Sequences {
            text,
            mel,
            text_in: vec![sizes.stop_text; rows * text],
            text_targets: vec![-1; rows * text],
            mel_in: vec![sizes.stop_audio; rows * mel],
            mel_targets: vec![-1; rows * mel],
            key_mask: vec![0; rows * (latents + text + mel)],
        };
        for row in 0..rows {
            let own = ids(row, "token", batch.text, batch.text_lengths[row], tokens, sizes.text_vocabulary)?;
            let sound =
                ids(row, "code", batch.codes, batch.code_lengths[row], codes, sizes.audio_vocabulary)?;
            let text_in = &mut out.text_in[row * text..][..text];
            text_in[0] = sizes.start_text;
            text_in[1..=own.len()].copy_from_slice(own);
            let mel_in = &mut out.mel_in[row * mel..][..mel];
            mel_in[0] = sizes.start_audio;
            mel_in[1..=sound.len()].copy_from_slice(sound);
            let (conditioning, keys) =
                out.key_mask[row * (latents + text + mel)..][..latents + text + mel].split_at_mut(latents);
            conditioning.fill(1);
            if sound.is_empty() {
                continue;
            }
            let (text_seen, mel_seen) = self.seen(own.len(), sound.len());
            keys[..text_seen].fill(1);
            keys[text..text + mel_seen].fill(1);
            let text_targets = &mut out.text_targets[row * text..][..own.len() + 1];
            text_targets[..own.len()].copy_from_slice(own);
            text_targets[own.len()] = sizes.stop_text;
            let mel_targets = &mut out.mel_targets[row * mel..][..sound.len() + self.stops()];
            mel_targets.fill(sizes.stop_audio);
            mel_targets[..sound.len()].copy_from_slice(sound);
            if let Some(samples) = batch.prompts.get(row) {
                let hidden = self.prompt(sizes, samples, sound.len(), row + 1 == rows);
                let end = mel_targets.len();
                mel_targets[hidden.start.min(end)..hidden.end.min(end)].fill(-1);
            }
        }
        Ok(out)
    }
}

/// Returns the ids of one row, checked.
fn ids<'a>(
    row: usize,
    what: &'static str,
    table: &'a [i32],
    length: i32,
    room: usize,
    vocabulary: usize,
) -> Result<&'a [i32], SequenceError> {
    let plural = if what == "token" { "tokens" } else { "codes" };
    let bad = SequenceError::Length { row, what: plural, found: length, room };
    let length = usize::try_from(length).ok().filter(|&l| l <= room).ok_or(bad)?;
    let ids = &table[row * room..][..length];
    let known = |id: i32| usize::try_from(id).is_ok_and(|id| id < vocabulary);
    match ids.iter().position(|&id| !known(id)) {
        Some(position) => Err(SequenceError::Id { row, position, what, id: ids[position], vocabulary }),
        None => Ok(ids),
    }
}

/// Fills each window of `[rows, frames, channels]` by repeating its first `lengths[row]` frames. A row of length 0 is left
/// unchanged.
pub fn repeat_frames<T: Copy>(mels: &mut [T], channels: usize, lengths: &[i32]) {
    let row = mels.len() / lengths.len().max(1);
    assert!(channels > 0 && row.is_multiple_of(channels), "windows are whole frames");
    for (window, &length) in mels.chunks_exact_mut(row.max(1)).zip(lengths) {
        let sound = usize::try_from(length).unwrap_or(0) * channels;
        if sound == 0 {
            continue;
        }
        // Doubles the filled part each time.
        let mut filled = sound;
        while filled < window.len() {
            let more = filled.min(window.len() - filled);
            window.copy_within(..more, filled);
            filled += more;
        }
    }
}

/// Returns the values of [`crate::gpt::FrameLengths`]: frames, and frames plus the perceiver's latents. A row without a
/// clip gets one frame, since attention needs at least one key.
pub fn frame_lengths(sizes: &GptSizes, lengths: &[i32]) -> (Vec<i32>, Vec<i32>) {
    let latents = sizes.perceiver.latents as i32;
    let frames: Vec<i32> = lengths.iter().map(|&length| length.max(1)).collect();
    let with_latents = frames.iter().map(|frames| frames + latents).collect();
    (frames, with_latents)
}
