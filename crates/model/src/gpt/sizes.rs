//! Sizes of the GPT.

use crate::conditioning::ConditioningSizes;
use crate::perceiver::PerceiverSizes;
use serde::{Deserialize, Serialize};

/// Sizes of the GPT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GptSizes {
    /// Number of blocks.
    pub layers: usize,
    /// Hidden channels.
    pub width: usize,
    /// Attention heads per block.
    pub heads: usize,
    /// Rows of the text embedding.
    pub text_vocabulary: usize,
    /// Rows of the audio embedding: the codes, START and STOP.
    pub audio_vocabulary: usize,
    /// Maximum text tokens per sequence, without START and STOP.
    pub max_text: usize,
    /// Maximum codes per sequence, without START and STOP.
    pub max_audio: usize,
    /// Id of the text START.
    pub start_text: i32,
    /// Id of the text STOP, also used for padding.
    pub stop_text: i32,
    /// Id of the audio START.
    pub start_audio: i32,
    /// Id of the audio STOP, also used for padding.
    pub stop_audio: i32,
    /// Samples per code.
    pub code_stride: usize,
    /// Sizes of the conditioning encoder.
    pub conditioning: ConditioningSizes,
    /// Sizes of the perceiver.
    pub perceiver: PerceiverSizes,
}

impl GptSizes {
    /// Sizes of a GPT with everything else derived as in the release; `codes` is the DVAE's number of codes.
    pub fn of(layers: usize, width: usize, heads: usize, text_vocabulary: usize, codes: usize) -> GptSizes {
        GptSizes {
            layers,
            width,
            heads,
            text_vocabulary,
            audio_vocabulary: codes + 2,
            max_text: 402,
            max_audio: 605,
            start_text: 261,
            stop_text: 0,
            start_audio: codes as i32,
            stop_audio: codes as i32 + 1,
            code_stride: 1024,
            conditioning: ConditioningSizes::of(width, heads),
            perceiver: PerceiverSizes::of(width),
        }
    }

    /// XTTS-v2 as released since 2.0.3.
    pub fn v2() -> GptSizes {
        GptSizes::of(30, 1024, 16, 6681, 1024)
    }

    /// Rows of the text position table, including START and STOP.
    pub fn text_positions(&self) -> usize {
        self.max_text + 2
    }

    /// Rows of the audio position table: the codes, START, STOP, and one that the original counts for its conditioning.
    pub fn audio_positions(&self) -> usize {
        self.max_audio + 3
    }
}
