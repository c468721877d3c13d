//! What the GPT is fed and held to: places on a tape. `sequence` makes what is written there.

use super::GptSizes;
use crate::sequence::Masks;
use myxtts_tensor::{DType, Tape, Value};

/// Where the conditioning vectors come from.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    /// Mel frames of another clip of the speaker.
    Mels {
        /// f32 `[batch, frames, mels]`.
        mels: Value,
        /// How many frames are the clip's own, where they are not all.
        lengths: Option<FrameLengths>,
    },
    /// The vectors themselves, `[batch, latents, width]` in the type of activations.
    Latents(Value),
}

/// How many frames of each window are to be looked at; made by `sequence::frame_lengths`.
#[derive(Clone, Copy, Debug)]
pub struct FrameLengths {
    /// i32 `[batch]`.
    pub frames: Value,
    /// The same and the perceiver's latents, i32 `[batch]`.
    pub with_latents: Value,
}

/// What the GPT is fed.
#[derive(Clone, Copy, Debug)]
pub struct GptInputs {
    /// The voice.
    pub condition: Condition,
    /// i32 `[batch, text]`: START, tokens, STOP.
    pub text_in: Value,
    /// i32 `[batch, mel]`: START, codes, STOP.
    pub mel_in: Value,
    /// i32 `[batch, latents + text + mel]`: 0 where a place may not be looked at.
    pub key_mask: Value,
}

/// What it is to predict.
#[derive(Clone, Copy, Debug)]
pub struct GptTargets {
    /// i32 `[batch, text]`: the next token; -1 does not count.
    pub text: Value,
    /// i32 `[batch, mel]`: the next code; -1 does not count.
    pub mel: Value,
    /// i32 `[batch, mel]`: the text token that the next code speaks, STOP at the end; -1 does not count. Only where an
    /// alignment head is trained.
    pub spoken: Option<Value>,
}

/// The shape of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GptShape {
    /// Sequences.
    pub batch: usize,
    /// Frames of conditioning.
    pub frames: usize,
    /// Places of text, with START and STOP.
    pub text: usize,
    /// Places of codes, with START and what follows.
    pub mel: usize,
}

impl GptInputs {
    /// Inputs of that shape on a tape; corrected masks tell how long each clip of conditioning is.
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
    /// Targets of that shape on a tape.
    pub fn new(tape: &mut Tape, shape: GptShape) -> GptTargets {
        let [text, mel] = [shape.text, shape.mel].map(|time| tape.input([shape.batch, time], DType::I32));
        GptTargets { text, mel, spoken: None }
    }

    /// The same with targets of the alignment head.
    pub fn aligned(tape: &mut Tape, shape: GptShape) -> GptTargets {
        let targets = GptTargets::new(tape, shape);
        GptTargets { spoken: Some(tape.input([shape.batch, shape.mel], DType::I32)), ..targets }
    }
}
