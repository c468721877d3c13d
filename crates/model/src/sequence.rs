//! From padded text and codes to what the GPT is fed, what it is to predict, what may be looked at and what counts.
//! Pure functions of the host; the network is the same whatever they decide.
//!
//! | array | shape | content |
//! |---|---|---|
//! | `text_in` | `[rows, text]` | START t1 … tL STOP STOP … |
//! | `text_targets` | `[rows, text]` | t1 … tL STOP -1 … |
//! | `mel_in` | `[rows, mel]` | START c1 … cN STOP … |
//! | `mel_targets` | `[rows, mel]` | c1 … cN STOP -1 … |
//! | `key_mask` | `[rows, latents + text + mel]` | 1 where a place may be looked at |
//!
//! Two sets of masks:
//!
//! | | [`Masks::Corrected`] | [`Masks::Coqui`] |
//! |---|---|---|
//! | text STOP | seen, as it is when speaking | hidden in training, seen when speaking |
//! | places of codes | the codes and START: N + 1 | N + 5, of which N + 4 are seen |
//! | audio STOP in the loss | once | four times |
//! | codes that the conditioning was cut from | not in the loss, in every row | the last row's alone, and a span four times too far: samples over 256 where a code is 1024 |
//! | a row without codes | counts nothing, sees its conditioning | the same (the original has no such rows) |
//! | conditioning shorter than its window | said again to the window's end ([`repeat_frames`]), and looked at once ([`frame_lengths`]) | silence, that is listened to in training and is not there when speaking |
//!
//! On the last: attention can be told to stop at a clip's end, but the conditioning encoder's norms take their statistics
//! over the whole window, and to them silence is sound. A clip said twice has the statistics of the clip. So both: the
//! window is filled with the clip, for the norms, and hidden behind it, for attention. For whole repeats the vectors are
//! exactly those of the clip alone; what is left otherwise is the weight of the last partial one in the norms.

use crate::gpt::GptSizes;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What may be looked at, and what counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Masks {
    /// Training sees what speaking sees.
    #[default]
    Corrected,
    /// As Coqui's trainer has it, to compare with.
    Coqui,
}

/// Samples the original takes one code for when it leaves the conditioning's codes out of the loss: a mel frame's hop.
const COQUI_PROMPT_STRIDE: usize = 256;

/// Text and codes of a batch; every row of the two tables is as long as the longest may be.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Token ids `[rows, tokens]`; what is beyond a row's length is not read.
    pub text: &'a [i32],
    /// How many tokens each row has `[rows]`.
    pub text_lengths: &'a [i32],
    /// Audio codes `[rows, codes]`; what is beyond a row's length is not read.
    pub codes: &'a [i32],
    /// How many codes each row has `[rows]`: 0 where there is no record in the row.
    pub code_lengths: &'a [i32],
    /// The samples of the row's own clip that its conditioning was cut from, empty where it is from another clip;
    /// no slice at all where none is.
    pub prompts: &'a [Range<usize>],
}

/// What the GPT is fed and held to; see the table of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequences {
    /// Places of text.
    pub text: usize,
    /// Places of codes.
    pub mel: usize,
    /// Ids of the text segment.
    pub text_in: Vec<i32>,
    /// What each place of it is to predict.
    pub text_targets: Vec<i32>,
    /// Ids of the audio segment.
    pub mel_in: Vec<i32>,
    /// What each place of it is to predict.
    pub mel_targets: Vec<i32>,
    /// Which places may be looked at.
    pub key_mask: Vec<i32>,
}

/// Why text and codes are no sequences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// The arrays do not fit each other.
    #[error("a batch of {rows} rows has {found} {what}: give every row as many as the others")]
    Uneven {
        /// Rows, by the lengths of the text.
        rows: usize,
        /// Of what there is another number.
        what: &'static str,
        /// How many there are.
        found: usize,
    },
    /// A row says it is longer than it can be.
    #[error("row {row} says it has {found} {what} where {room} fit")]
    Length {
        /// The row.
        row: usize,
        /// Of what.
        what: &'static str,
        /// What it says.
        found: i32,
        /// How long rows are.
        room: usize,
    },
    /// There are fewer positions than places.
    #[error(
        "{found} {what} in a row need {places} positions and the model has {positions}: leave longer clips out"
    )]
    TooLong {
        /// Of what.
        what: &'static str,
        /// How long rows are.
        found: usize,
        /// The places they take.
        places: usize,
        /// Rows of the table of positions.
        positions: usize,
    },
    /// An id that no table has.
    #[error("row {row} has {what} {id} at place {place}, and the model knows 0 to {last}: were they made with another vocabulary?", last = .vocabulary - 1)]
    Id {
        /// The row.
        row: usize,
        /// The place in it.
        place: usize,
        /// Of what.
        what: &'static str,
        /// The id.
        id: i32,
        /// Rows of the table.
        vocabulary: usize,
    },
}

impl Masks {
    /// The places that rows of so many tokens and codes take.
    pub fn places(self, tokens: usize, codes: usize) -> (usize, usize) {
        match self {
            Masks::Corrected => (tokens + 2, codes + 1),
            Masks::Coqui => (tokens + 2, codes + 5),
        }
    }

    /// How many of a row's places of text and of codes may be looked at.
    fn seen(self, tokens: usize, codes: usize) -> (usize, usize) {
        match self {
            Masks::Corrected => (tokens + 2, codes + 1),
            Masks::Coqui => (tokens + 1, codes + 4),
        }
    }

    /// How often the audio STOP is to be predicted.
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
                let end = self.places(0, codes).1;
                (samples.start / COQUI_PROMPT_STRIDE).min(end)..(samples.end / COQUI_PROMPT_STRIDE).min(end)
            }
            Masks::Coqui => 0..0,
        }
    }

    /// What the GPT is fed and held to.
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
        let (text, mel) = self.places(tokens, codes);
        let limit = |what, found, places, positions| {
            let long = SequenceError::TooLong { what, found, places, positions };
            if places > positions { Err(long) } else { Ok(()) }
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

/// The ids of one row, as many as it says.
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
        Some(place) => Err(SequenceError::Id { row, place, what, id: ids[place], vocabulary }),
        None => Ok(ids),
    }
}

/// How many codes a clip of so many samples has. The DVAE gives one more for a clip of whole strides; it is not used.
pub fn code_count(samples: usize, stride: usize) -> usize {
    samples.div_ceil(stride)
}

/// Fills the windows of mel frames `[rows, frames, channels]`, or of what stands for frames, from their first
/// `lengths[row]` frames, said again and again. A row of none is left as it is.
pub fn repeat_frames<T: Copy>(mels: &mut [T], channels: usize, lengths: &[i32]) {
    let row = mels.len() / lengths.len().max(1);
    assert!(channels > 0 && row.is_multiple_of(channels), "windows are whole frames");
    for (window, &length) in mels.chunks_exact_mut(row.max(1)).zip(lengths) {
        let sound = usize::try_from(length).unwrap_or(0) * channels;
        if sound == 0 {
            continue;
        }
        // Twice as much every time: what has been copied is copied on.
        let mut filled = sound;
        while filled < window.len() {
            let more = filled.min(window.len() - filled);
            window.copy_within(..more, filled);
            filled += more;
        }
    }
}

/// The numbers of [`crate::gpt::FrameLengths`]: frames, and the same with the perceiver's latents before them. A row
/// without a clip looks at one frame, so that there is something to look at.
pub fn frame_lengths(sizes: &GptSizes, lengths: &[i32]) -> (Vec<i32>, Vec<i32>) {
    let latents = sizes.perceiver.latents as i32;
    let frames: Vec<i32> = lengths.iter().map(|&length| length.max(1)).collect();
    let with_latents = frames.iter().map(|frames| frames + latents).collect();
    (frames, with_latents)
}
