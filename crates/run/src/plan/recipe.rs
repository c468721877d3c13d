//! The recipe of a stage: values for the training settings that are left unset.
//!
//! | | basic | enhanced | experimental |
//! |---|---|---|---|
//! | origin | upstream's fine-tuning | proven techniques | and unproven ones |
//! | learning rate | constant | warm-up, cosine to a tenth | the same |
//! | gradient clipping | none | 1, for small networks 2 | the same |
//! | EMA of the weights | none | 0.999 | 0.9995 |
//! | label smoothing | 0 | 0 | 0.05 |
//!
//! Steps with a NaN or Inf loss or gradient are skipped at every level: the check takes less than 1 % of a step.

use serde::{Deserialize, Serialize};

use super::{OptimizationLevel, Plan, Preset, ScheduleKind};
use crate::schedule::{Decay, Schedule};

/// A training stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageKind {
    /// Audio to codes.
    Dvae,
    /// Text to codes.
    Gpt,
    /// Latents to audio.
    Decoder,
}

/// Hyperparameters of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// Number of steps; 0 skips the stage.
    pub steps: u64,
    /// The learning rate.
    pub schedule: Schedule,
    /// Maximum gradient norm; `None` for no clipping.
    pub clip: Option<f64>,
    /// Weight decay of AdamW, for parameters that are not exempt.
    pub weight_decay: f64,
    /// Decay of the exponential moving average of the weights per step; `None` for no average.
    pub ema_decay: Option<f64>,
    /// Dropout rate.
    pub dropout: f64,
    /// Probability mass spread over all codes.
    pub label_smoothing: f64,
}

impl Plan {
    /// The recipe of a stage that trains from scratch or fine-tunes a model.
    pub fn recipe(&self, stage: StageKind, fine_tune: bool) -> Recipe {
        let (training, preset) = (&self.training, self.model.preset);
        let level = training.optimization_level;
        let basic = level == OptimizationLevel::Basic;
        let explicit = match stage {
            StageKind::Dvae => training.dvae_steps,
            StageKind::Gpt => training.gpt_steps,
            StageKind::Decoder => training.decoder_steps,
        };
        let steps = explicit.unwrap_or_else(|| steps(stage, preset, fine_tune));
        let kind = if basic { ScheduleKind::Constant } else { ScheduleKind::Cosine };
        let decay = match training.schedule.unwrap_or(kind) {
            ScheduleKind::Constant => Decay::Constant,
            ScheduleKind::Cosine => Decay::Cosine { steps, floor: training.learning_rate_floor },
        };
        // A longer warm-up does not help once Adam's second moments have settled.
        let warmup = if basic { 0 } else { (steps / 20).min(1000) };
        let schedule = Schedule {
            rate: training.learning_rate.unwrap_or_else(|| rate(stage, preset, fine_tune)),
            warmup: training.warmup_steps.unwrap_or(warmup),
            decay,
        };
        let (ema, smoothing) = match level {
            OptimizationLevel::Basic => (0.0, 0.0),
            OptimizationLevel::Enhanced => (0.999, 0.0),
            OptimizationLevel::Experimental => (0.9995, 0.05),
        };
        let some = |value: f64| (value > 0.0).then_some(value);
        let clip = if basic { 0.0 } else { clip(stage, preset) };
        Recipe {
            steps,
            schedule,
            clip: some(training.gradient_clip.unwrap_or(clip)),
            weight_decay: training.weight_decay,
            ema_decay: some(training.ema_decay.unwrap_or(ema)),
            dropout: training.dropout.unwrap_or(0.1),
            label_smoothing: training.label_smoothing.unwrap_or(smoothing),
        }
    }
}

/// Peak learning rate. For the GPT it falls as the network widens, as usual for Adam; the v2 shape fine-tunes at 5e-6,
/// which is upstream's rate and a 20th of the rate from scratch.
fn rate(stage: StageKind, preset: Preset, fine_tune: bool) -> f64 {
    let from_scratch = match (stage, preset) {
        (StageKind::Gpt, Preset::Tiny) => 1e-3,
        (StageKind::Gpt, Preset::Small) => 5e-4,
        (StageKind::Gpt, Preset::Normal) => 3e-4,
        (StageKind::Gpt, Preset::Big) => 2e-4,
        (StageKind::Gpt, Preset::V2) => 1e-4,
        (StageKind::Dvae, Preset::Tiny) => 2e-3,
        (StageKind::Dvae, _) => 3e-4,
        // Measured on the demo corpus: mel error after 1,900 steps was 0.67 at 4e-4, 0.56 at 1e-3, 0.51 at 2e-3. After
        // 700 steps on a CPU, 38 of 40 sentences had the right voice at 2e-3, 39 at 4e-3.
        (StageKind::Decoder, Preset::Tiny) => 3e-3,
        // On 2.1 hours of speech the mel error after 250 steps was 1.03 at 2e-4, 0.89 at 1e-3.
        (StageKind::Decoder, Preset::Small) => 1e-3,
        // HiFi-GAN's rate.
        (StageKind::Decoder, _) => 2e-4,
    };
    match stage {
        _ if !fine_tune => from_scratch,
        // The discriminators still train from scratch and would outrun a slower decoder.
        StageKind::Decoder => from_scratch / 2.0,
        StageKind::Dvae | StageKind::Gpt => from_scratch / 20.0,
    }
}

/// Maximum gradient norm. Small networks use high rates and small batches: their gradients are larger, and a tighter
/// limit would only slow the start. The decoder's losses have weights of 45 and 108, so that any such limit would clip
/// every step.
fn clip(stage: StageKind, preset: Preset) -> f64 {
    match (stage, preset) {
        (StageKind::Decoder, _) => 0.0,
        (_, Preset::Tiny | Preset::Small) => 2.0,
        (_, Preset::Normal | Preset::Big | Preset::V2) => 1.0,
    }
}

/// Number of steps at the default batch size.
fn steps(stage: StageKind, preset: Preset, fine_tune: bool) -> u64 {
    let (dvae, gpt, decoder) = match preset {
        Preset::Tiny => (900, 700, 700),
        Preset::Small => (10_000, 30_000, 30_000),
        Preset::Normal => (30_000, 100_000, 100_000),
        Preset::Big => (50_000, 200_000, 200_000),
        Preset::V2 => (50_000, 300_000, 300_000),
    };
    let from_scratch = match stage {
        StageKind::Dvae => dvae,
        StageKind::Gpt => gpt,
        StageKind::Decoder => decoder,
    };
    // Learning a voice takes a fraction of the steps that learning a language takes.
    if fine_tune { from_scratch / 20 } else { from_scratch }
}
