//! One speech as the host knows it: what was drawn, what was taken, why it ended.

use super::super::{GenerateError, KEPT_FREE};
use crate::gpt::GptSizes;
use crate::sampling::{Ended, SamplingOptions};

/// What a slot has said since it was last asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// The codes, without STOP.
    pub codes: Vec<i32>,
    /// The states `[rows, width]` that predicted them, and the one that predicted STOP where it came.
    pub latents: Vec<f32>,
    /// Why no more will come; none as long as some may.
    pub ended: Option<Ended>,
    /// Codes of the whole speech. Where it ended in a loop these may be fewer than were taken: the rest is the loop's.
    pub total: usize,
}

pub(super) struct Speech {
    pub options: SamplingOptions,
    /// The most codes, and why no more.
    pub limit: usize,
    at_limit: Ended,
    width: usize,
    stop: i32,
    codes: Vec<i32>,
    taken_codes: usize,
    /// Only those that were not taken yet: they are many.
    latents: Vec<f32>,
    taken_latents: usize,
    ended: Option<Ended>,
    /// After how many codes the network computed no numbers.
    failed: Option<usize>,
}

impl Speech {
    pub fn new(sizes: &GptSizes, options: &SamplingOptions, tokens: usize) -> Speech {
        let room = sizes.max_audio.saturating_sub(KEPT_FREE).min(options.max_codes);
        let most = options.guards.most(tokens);
        let (limit, at_limit) =
            if room <= most { (room, Ended::Limit) } else { (most, Ended::TooManyForText) };
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

    pub fn goes_on(&self) -> bool {
        self.ended.is_none() && self.failed.is_none()
    }

    /// A code that was drawn and the state that predicted it; after the end nothing counts.
    pub fn push(&mut self, code: i32, latent: &[f32]) {
        if !self.goes_on() {
            return;
        }
        self.latents.extend_from_slice(latent);
        if code == self.stop {
            self.ended = Some(Ended::Stop);
            return;
        }
        self.codes.push(code);
        if let Some(left) = self.options.guards.before_loop(&self.codes) {
            self.codes.truncate(left);
            self.latents.truncate((left * self.width).saturating_sub(self.taken_latents));
            self.ended = Some(Ended::Loop);
        } else if self.codes.len() >= self.limit {
            self.ended = Some(self.at_limit);
        }
    }

    /// The network computed no numbers.
    pub fn fail(&mut self) {
        if self.goes_on() {
            self.failed = Some(self.codes.len());
        }
    }

    pub fn take(&mut self) -> Result<Taken, GenerateError> {
        if let Some(codes) = self.failed {
            return Err(GenerateError::NotNumbers { codes });
        }
        // A loop takes back what may have been taken already.
        let codes = self.codes.get(self.taken_codes..).unwrap_or_default().to_vec();
        let latents = std::mem::take(&mut self.latents);
        self.taken_codes = self.taken_codes.max(self.codes.len());
        self.taken_latents += latents.len();
        Ok(Taken { codes, latents, ended: self.ended, total: self.codes.len() })
    }
}
