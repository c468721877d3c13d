//! Sampling flags shared by the commands that speak.

use myxtts_model::sampling::SamplingOptions;
use myxtts_speak::{Decoding, SpeakOptions, Synthesizer};

/// Flags that control how codes are sampled and how candidates are ranked.
#[derive(clap::Args, Clone, Debug)]
pub struct Sampling {
    /// Sampling temperature, above 0; higher values vary more [default: 0.75; 0.5 for models with few codes or little training
    /// speech]
    #[arg(long, value_name = "T", value_parser = positive, allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Sample from the N most likely codes; 0 for all
    #[arg(long, value_name = "N", default_value_t = SamplingOptions::default().top_k)]
    top_k: usize,
    /// Sample from the most likely codes whose probabilities sum to this share, above 0 and at most 1
    #[arg(long, value_name = "SHARE", default_value_t = SamplingOptions::default().top_p, value_parser = share, allow_negative_numbers = true)]
    top_p: f32,
    /// Reduce the probability of codes already used by this factor, above 0; 1 turns it off [default: 5; 1 for models with few codes
    /// or little training speech]
    #[arg(long, value_name = "FACTOR", value_parser = positive, allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,
    /// Weight of classifier-free guidance, which prefers codes that the text makes more likely; 0 turns it off [default: 0; 1 for
    /// models trained with training.text_dropout]
    #[arg(long, value_name = "WEIGHT", value_parser = not_negative, allow_negative_numbers = true)]
    guidance: Option<f32>,
    /// Always take the most likely code
    #[arg(long)]
    greedy: bool,
    /// Generate N candidates of every text and keep the one whose codes fit the text best; needs a model trained by
    /// myxtts, which can check its own codes [default: 6 on a GPU; 1 on a CPU and for streamed audio]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    takes: Option<usize>,
    /// Rank the candidates of --takes by mismatch / length^PENALTY, from -10 to 10: above 0 prefers longer ones, below 0 shorter
    /// ones, 0 ignores the length. There is no beam search, so it has no effect on a single candidate
    #[arg(long, value_name = "PENALTY", default_value_t = 0.0, value_parser = length_penalty, allow_negative_numbers = true)]
    length_penalty: f64,
}

/// Default number of candidates on a GPU, where several take hardly longer than one.
const CANDIDATES_ON_GPU: usize = 6;

/// Largest absolute value of `--length-penalty`.
const LARGEST_LENGTH_PENALTY: f64 = 10.0;

impl Sampling {
    /// Options for speaking with a model; flags override the model's defaults.
    pub fn speak_options(&self, synthesizer: &Synthesizer, seed: u64) -> SpeakOptions {
        let sampling = self.options(synthesizer.default_sampling(), seed);
        let default = if synthesizer.is_on_gpu() { CANDIDATES_ON_GPU } else { 1 };
        let candidates = if synthesizer.can_proofread() { self.takes.unwrap_or(default) } else { 1 };
        SpeakOptions { candidates, length_penalty: self.length_penalty, ..sampling.into() }
    }

    /// Says why `--length-penalty` has no effect, where it was set and each text has one candidate.
    pub fn length_penalty_note(
        &self,
        synthesizer: &Synthesizer,
        options: &SpeakOptions,
        is_streamed: bool,
    ) -> Option<String> {
        if options.length_penalty == 0.0 || (!is_streamed && synthesizer.candidates(options) > 1) {
            return None;
        }
        let reason = if is_streamed {
            "streamed and played speech has one candidate"
        } else if options.sampling.greedy {
            "--greedy has one candidate"
        } else if !synthesizer.can_proofread() {
            "this model cannot check its codes against the text, so each text has one candidate"
        } else {
            "each text has one candidate; --takes N generates more"
        };
        Some(format!("--length-penalty has no effect: {reason}"))
    }

    /// Decoding with room for all candidates of one text at the same time, where the device supports it.
    pub fn decoding(&self) -> Decoding {
        Decoding::Fast { slots: self.takes.unwrap_or(CANDIDATES_ON_GPU) }
    }

    /// Sampling options; flags override `defaults`.
    pub fn options(&self, defaults: SamplingOptions, seed: u64) -> SamplingOptions {
        SamplingOptions {
            greedy: self.greedy,
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k,
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty.unwrap_or(defaults.repetition_penalty),
            guidance: self.guidance.unwrap_or(defaults.guidance),
            seed,
            ..defaults
        }
    }
}

fn positive(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && f32::is_finite(value) => Ok(value),
        _ => Err("expected a number above 0".to_owned()),
    }
}

fn not_negative(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(value) if value >= 0.0 && f32::is_finite(value) => Ok(value),
        _ => Err("expected a number of at least 0".to_owned()),
    }
}

fn share(text: &str) -> Result<f32, String> {
    positive(text)
        .ok()
        .filter(|&value| value <= 1.0)
        .ok_or_else(|| "expected a number above 0 and at most 1".to_owned())
}

fn length_penalty(text: &str) -> Result<f64, String> {
    let parsed: Option<f64> = text.parse().ok();
    parsed.filter(|penalty| penalty.abs() <= LARGEST_LENGTH_PENALTY).ok_or_else(|| {
        format!("expected a number from -{LARGEST_LENGTH_PENALTY} to {LARGEST_LENGTH_PENALTY}")
    })
}

/// Parses a whole number above 0.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| "expected a whole number above 0".to_owned())
}
