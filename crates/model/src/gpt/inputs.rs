//! Inputs and targets of the GPT on a tape. `sequence` builds their values.

use super::GptSizes;
use crate::sequence::Masks;
use myxtts_tensor::{DType, Tape, Value};

/// Source of the conditioning vectors.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    /// Mel frames of another clip of the speaker.
    Mels {
        /// f32 `[batch, frames, mels]`.
        mels: Value,
        /// Number of valid frames, if some are padding.
        lengths: Option<FrameLengths>,
    },
    /// The vectors themselves, `[batch, latents, width]` in the activation type.
    Latents(Value),
}

/// Number of frames of each window that may be attended to; see `sequence::frame_lengths`.
#[derive(Clone, Copy, Debug)]
pub struct FrameLengths {
    /// i32 `[batch]`.
    pub frames: Value,
    /// Frames plus the perceiver's latents, i32 `[batch]`.
    pub with_latents: Value,
}

/// Inputs of the GPT.
#[derive(Clone, Copy, Debug)]
pub struct GptInputs {
    /// The voice.
    pub condition: Condition,
    /// i32 `[batch, text]`: START, tokens, STOP.
    pub text_in: Value,
    /// i32 `[batch, mel]`: START, codes, STOP.
    pub mel_in: Value,
    /// i32 `[batch, latents + text + mel]`: 0 where a position is masked.
    pub key_mask: Value,
}

/// Targets of the GPT.
#[derive(Clone, Copy, Debug)]
pub struct GptTargets {
    /// i32 `[batch, text]`: the next token; -1 is ignored.
    pub text: Value,
    /// i32 `[batch, mel]`: the next code; -1 is ignored.
    pub mel: Value,
    /// i32 `[batch, mel]`: the text token that the next code speaks, STOP at the end; -1 is ignored. Only with an alignment
    /// head.
    pub spoken: Option<Value>,
    /// `[batch, mel, frames per code * mel bands]` in the activation type: the mels of the code that a position has read,
    /// divided by `mel_stats`; zeros where it has read none. Only with an acoustic head.
    pub acoustic: Option<Value>,
}

/// The shape of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GptShape {
    /// Number of sequences.
    pub batch: usize,
    /// Conditioning frames.
    pub frames: usize,
    /// Text positions, including START and STOP.
    pub text: usize,
    /// Code positions, including START and what follows the codes.
    pub mel: usize,
}

impl GptInputs {
    /// Declares inputs of this shape on a tape. Corrected masks have frame lengths.
    pub fn new(tape: &mut Tape, sizes: &GptSizes, shape: GptShape, masks: Masks) -> GptInputs {
        let GptShape { batch, frames, text, mel } = shape;
        let mels = tape.input([batch, frames, sizes.conditioning.mels], DType::F32);
        let lengths = (masks == Masks::Corrected).then(|| {
            let [frames, with_latents] = [(); 2].map(|()| tape.input([batch], DType::I32));
            FrameLengths { frames, with_latents }
        });
        let [text_in, mel_in, key_mask] = [text, mel, sizes.perceiver.latents + text + mel]
            .map(|time| tape.input([batch, time], DType::I32));
        GptInputs { condition: Condition::Mels { mels, lengths }, text_in, mel_in, key_mask }
    }
}

impl GptTargets {
    /// Declares targets of this shape on a tape.
    pub fn new(tape: &mut Tape, shape: GptShape) -> GptTargets {
        let [text, mel] = [shape.text, shape.mel].map(|time| tape.input([shape.batch, time], DType::I32));
        GptTargets { text, mel, spoken: None, acoustic: None }
    }

    /// Adds targets of the alignment head.
    pub fn add_spoken(&mut self, tape: &mut Tape, shape: GptShape) {
        self.spoken = Some(tape.input([shape.batch, shape.mel], DType::I32));
    }

    /// Adds targets of the acoustic head, `channels` for each position.
    pub fn add_acoustic(&mut self, tape: &mut Tape, shape: GptShape, channels: usize) {
        let dtype = tape.dtype();
        self.acoustic = Some(tape.input([shape.batch, shape.mel, channels], dtype));
    }
}
