//! The recipe of a stage: what stands behind settings that nobody made.
//!
//! | | basic | enhanced | experimental |
//! |---|---|---|---|
//! | what it is | upstream's fine-tuning | what has proved itself elsewhere | and what has not yet |
//! | rate | constant | warm-up, cosine to a tenth | the same |
//! | clipping | none | 1, for small networks 2 | the same |
//! | average of the weights | none | 0.999 | 0.9995 |
//! | label smoothing | 0 | 0 | 0.05 |
//!
//! The guard against steps that are no numbers is on in all of them: it costs nothing and harms nothing.

use serde::{Deserialize, Serialize};

use super::{OptimizationLevel, Plan, Preset, ScheduleKind};
use crate::schedule::{Schedule, Then};

/// A stage that trains a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Sound to codes.
    Dvae,
    /// Text to codes.
    Gpt,
    /// Latents to sound.
    Decoder,
}

/// How a stage is trained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// Steps of the stage; 0 leaves it out.
    pub steps: u64,
    /// The learning rate.
    pub schedule: Schedule,
    /// Largest norm of the gradient.
    pub clip: Option<f64>,
    /// Decay of weights that have one.
    pub weight_decay: f64,
    /// Share of the weights' average kept each step.
    pub ema_decay: Option<f64>,
    /// Share of activations left out.
    pub dropout: f64,
    /// Share of probability spread over all codes.
    pub label_smoothing: f64,
}

impl Plan {
    /// The recipe of a stage, for weights that begin from nothing or from a trained model.
    pub fn recipe(&self, stage: Stage, fine_tune: bool) -> Recipe {
        let (training, preset) = (&self.training, self.model.preset);
        let level = training.optimization_level;
        let basic = level == OptimizationLevel::Basic;
        let written = match stage {
            Stage::Dvae => training.dvae_steps,
            Stage::Gpt => training.gpt_steps,
            Stage::Decoder => training.decoder_steps,
        };
        let steps = written.unwrap_or_else(|| steps(stage, preset, fine_tune));
        let kind = if basic { ScheduleKind::Constant } else { ScheduleKind::Cosine };
        let then = match training.schedule.unwrap_or(kind) {
            ScheduleKind::Constant => Then::Constant,
            ScheduleKind::Cosine => Then::Cosine { steps, floor: training.learning_rate_floor },
        };
        // Longer helps nothing once Adam's second moments have settled.
        let warmup = if basic { 0 } else { (steps / 20).min(1000) };
        let schedule = Schedule {
            rate: training.learning_rate.unwrap_or_else(|| rate(stage, preset, fine_tune)),
            warmup: training.warmup_steps.unwrap_or(warmup),
            then,
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

/// The highest rate. For the GPT it falls as the network widens, as rates for Adam do; the v2 shape
/// fine-tunes at 5e-6, which is upstream's and a 20th of what it would begin with.
fn rate(stage: Stage, preset: Preset, fine_tune: bool) -> f64 {
    let from_nothing = match (stage, preset) {
        (Stage::Gpt, Preset::Tiny) => 1e-3,
        (Stage::Gpt, Preset::Small) => 5e-4,
        (Stage::Gpt, Preset::Normal) => 3e-4,
        (Stage::Gpt, Preset::Big) => 2e-4,
        (Stage::Gpt, Preset::V2) => 1e-4,
        (Stage::Dvae, Preset::Tiny) => 2e-3,
        (Stage::Dvae, _) => 3e-4,
        // Measured on the demo corpus: after 1,900 steps mels were 0.67 off at 4e-4, 0.56 at 1e-3, 0.51 at 2e-3. Of 40
        // sentences after 700 steps on a processor 38 were in the right voice at 2e-3, 39 at 4e-3.
        (Stage::Decoder, Preset::Tiny) => 3e-3,
        // On 2.1 hours of speech mels were 1.03 off after 250 steps at 2e-4, 0.89 at 1e-3.
        (Stage::Decoder, Preset::Small) => 1e-3,
        // HiFi-GAN's own.
        (Stage::Decoder, _) => 2e-4,
    };
    match stage {
        _ if !fine_tune => from_nothing,
        // A discriminator that begins from nothing is trained along: slower would let it run away.
        Stage::Decoder => from_nothing / 2.0,
        Stage::Dvae | Stage::Gpt => from_nothing / 20.0,
    }
}

/// Small networks are trained with high rates and few clips in a batch: their gradients are larger, and
/// cutting them as early would only slow the beginning. The decoder's losses are weighted with 45 and
/// 108, so that any such limit would cut every step.
fn clip(stage: Stage, preset: Preset) -> f64 {
    match (stage, preset) {
        (Stage::Decoder, _) => 0.0,
        (_, Preset::Tiny | Preset::Small) => 2.0,
        (_, Preset::Normal | Preset::Big | Preset::V2) => 1.0,
    }
}

/// Steps at the default batch size.
fn steps(stage: Stage, preset: Preset, fine_tune: bool) -> u64 {
    let (dvae, gpt, decoder) = match preset {
        Preset::Tiny => (900, 700, 700),
        Preset::Small => (10_000, 30_000, 30_000),
        Preset::Normal => (30_000, 100_000, 100_000),
        Preset::Big => (50_000, 200_000, 200_000),
        Preset::V2 => (50_000, 300_000, 300_000),
    };
    let from_nothing = match stage {
        Stage::Dvae => dvae,
        Stage::Gpt => gpt,
        Stage::Decoder => decoder,
    };
    // A voice is learnt in a small part of the time that a language takes.
    if fine_tune { from_nothing / 20 } else { from_nothing }
}
