//! How codes are chosen, as every command that speaks lets it be said.

use myxtts_model::sampling::SamplingOptions;
use myxtts_speak::{Decoding, SpeakOptions, Synthesizer};

/// Flags of sampling.
#[derive(clap::Args, Clone, Debug)]
pub struct Sampling {
    /// Above 1 bolder, below more careful [default: 0.75; 0.5 for a model of few codes or little speech]
    #[arg(long, value_name = "T", value_parser = positive, allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Choose among the so many most likely codes; 0 for all
    #[arg(long, value_name = "N", default_value_t = SamplingOptions::default().top_k)]
    top_k: usize,
    /// Choose among the most likely codes that together have this share
    #[arg(long, value_name = "SHARE", default_value_t = SamplingOptions::default().top_p, value_parser = share, allow_negative_numbers = true)]
    top_p: f32,
    /// How much less likely a code becomes once it was said; 1 for not at all [default: 5; 1 for a model of few codes or little speech]
    #[arg(long, value_name = "FACTOR", value_parser = positive, allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,
    /// Prefer codes that the text makes more likely than they would be without it, by so much [default: 0; 1 for a model
    /// trained with training.text_dropout]
    #[arg(long, value_name = "WEIGHT", value_parser = not_negative, allow_negative_numbers = true)]
    guidance: Option<f32>,
    /// Always the most likely code
    #[arg(long)]
    greedy: bool,
    /// Read every text so many times, and keep the reading that says it best; for models that were trained here, which can
    /// tell [default: 6 on a GPU, 1 on a processor and for sound that is heard while it is made]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    takes: Option<usize>,
}

/// Readings to choose from on a GPU, where several take hardly longer than one.
const TAKES_ON_GPU: usize = 6;

impl Sampling {
    /// What was said, over what is usual for a model.
    pub fn speaking(&self, synthesizer: &Synthesizer, seed: u64) -> SpeakOptions {
        let sampling = self.options(synthesizer.usual_options(), seed);
        let usual = if synthesizer.is_on_gpu() { TAKES_ON_GPU } else { 1 };
        let takes = if synthesizer.can_proofread() { self.takes.unwrap_or(usual) } else { 1 };
        SpeakOptions { takes, ..sampling.into() }
    }

    /// Several readings of one text at the same time, where the device can.
    pub fn decoding(&self) -> Decoding {
        Decoding::Fast { at_once: self.takes.unwrap_or(TAKES_ON_GPU) }
    }

    /// What was said, over what is usual for a model.
    pub fn options(&self, usual: SamplingOptions, seed: u64) -> SamplingOptions {
        SamplingOptions {
            greedy: self.greedy,
            temperature: self.temperature.unwrap_or(usual.temperature),
            top_k: self.top_k,
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty.unwrap_or(usual.repetition_penalty),
            guidance: self.guidance.unwrap_or(usual.guidance),
            seed,
            ..usual
        }
    }
}

fn positive(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && f32::is_finite(value) => Ok(value),
        _ => Err("a number above 0 is needed".to_owned()),
    }
}

fn not_negative(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(value) if value >= 0.0 && f32::is_finite(value) => Ok(value),
        _ => Err("a number from 0 up is needed".to_owned()),
    }
}

fn share(text: &str) -> Result<f32, String> {
    positive(text).ok().filter(|&value| value <= 1.0).ok_or_else(|| "a number up to 1 is needed".to_owned())
}

/// A count that may not be 0.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| "a whole number above 0 is needed".to_owned())
}
