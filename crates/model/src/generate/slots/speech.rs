//! The host's view of one text being spoken: sampled codes, taken codes, and why it ended.

use super::super::{GenerateError, RESERVED_POSITIONS};
use crate::gpt::GptSizes;
use crate::sampling::{SamplingOptions, StopReason};

/// What a slot has generated since the last call.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotOutput {
    /// The codes, without STOP.
    pub codes: Vec<i32>,
    /// The states `[rows, width]` that predicted them, and the one that predicted STOP if it came.
    pub latents: Vec<f32>,
    /// Why it ended; `None` while more codes may come.
    pub ended: Option<StopReason>,
    /// Codes of the whole text. After a loop this may be less than was taken: the rest belongs to the loop.
    pub total: usize,
}

pub(super) struct Speech {
    pub options: SamplingOptions,
    /// Maximum codes, and the reason when it is reached.
    pub limit: usize,
    at_limit: StopReason,
    width: usize,
    stop: i32,
    codes: Vec<i32>,
    taken_codes: usize,
    /// Only those not taken yet, to bound memory.
    latents: Vec<f32>,
    taken_latents: usize,
    ended: Option<StopReason>,
    /// Number of codes after which the outputs were NaN or Inf.
    failed: Option<usize>,
}

impl Speech {
    pub fn new(sizes: &GptSizes, options: &SamplingOptions, tokens: usize) -> Speech {
        let room = sizes.max_audio.saturating_sub(RESERVED_POSITIONS).min(options.max_codes);
        let most = options.guards.most(tokens);
        let (limit, at_limit) =
            if room <= most { (room, StopReason::Limit) } else { (most, StopReason::TooManyForText) };
        Speech {
            options: options.clone(),
            limit,
            at_limit,
            width: sizes.width,
            stop: sizes.stop_audio,
            codes: Vec::new(),
            taken_codes: 0,
            latents: Vec::new(),
            taken_latents: 0,
            ended: (limit == 0).then_some(at_limit),
            failed: None,
        }
    }

    pub fn is_running(&self) -> bool {
        self.ended.is_none() && self.failed.is_none()
    }

    /// Adds a sampled code and the state that predicted it; ignored after the end.
    pub fn push(&mut self, code: i32, latent: &[f32]) {
        if !self.is_running() {
            return;
        }
        self.latents.extend_from_slice(latent);
        if code == self.stop {
            self.ended = Some(StopReason::Stop);
            return;
        }
        self.codes.push(code);
        if let Some(left) = self.options.guards.length_before_loop(&self.codes) {
            self.codes.truncate(left);
            self.latents.truncate((left * self.width).saturating_sub(self.taken_latents));
            self.ended = Some(StopReason::Loop);
        } else if self.codes.len() >= self.limit {
            self.ended = Some(self.at_limit);
        }
    }

    /// Marks that the outputs were NaN or Inf.
    pub fn fail(&mut self) {
        if self.is_running() {
            self.failed = Some(self.codes.len());
        }
    }

    pub fn take(&mut self) -> Result<SlotOutput, GenerateError> {
        if let Some(codes) = self.failed {
            return Err(GenerateError::NotNumbers { codes });
        }
        // A loop removes codes that may have been taken already.
        let codes = self.codes.get(self.taken_codes..).unwrap_or_default().to_vec();
        let latents = std::mem::take(&mut self.latents);
        self.taken_codes = self.taken_codes.max(self.codes.len());
        self.taken_latents += latents.len();
        Ok(SlotOutput { codes, latents, ended: self.ended, total: self.codes.len() })
    }
}
