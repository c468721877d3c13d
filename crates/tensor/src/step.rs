//! Scalars exchanged between the host and a step: small f32 buffers copied through pinned ring buffers, so that
//! neither side waits for the other.

/// Size of each buffer, in f32 elements.
pub const SLOTS: usize = 32;

/// Scalars the host passes to a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control {
    /// Learning rate.
    pub rate: f32,
    /// Gradient of the loss with respect to itself: 1, or 1 / n when n steps are accumulated.
    pub weight: f32,
    /// Upper limit for the global gradient norm; 0 disables clipping.
    pub clip: f32,
    /// Decay of the moving average per step.
    pub average: f32,
    /// Key of all random numbers in this step.
    pub seed: u64,
}

impl Default for Control {
    fn default() -> Control {
        Control { rate: 0.0, weight: 1.0, clip: 0.0, average: 0.0, seed: 0 }
    }
}

/// Indices into the control buffer.
pub(crate) mod control {
    pub const RATE: usize = 0;
    pub const WEIGHT: usize = 1;
    pub const CLIP: usize = 2;
    pub const AVERAGE: usize = 3;
    pub const SEED: usize = 4;
}

/// Indices into the report buffer.
pub(crate) mod report {
    pub const LOSS: usize = 0;
    pub const NORM: usize = 1;
    pub const GOOD: usize = 2;
    pub const STEPS: usize = 3;
    /// Factor applied to the gradients for clipping; 0 where they exploded.
    pub const SCALE: usize = 4;
    /// Adam's two bias corrections for this step.
    pub const CORRECTIONS: usize = 5;
    /// Milliseconds the step waited for sums over replicas.
    pub const REDUCE_WAIT_MS: usize = 7;
    pub const NOTES: usize = 8;
}

/// Indices into the counters, which persist across steps.
pub(crate) mod counter {
    /// Number of good steps so far: Adam's t.
    pub const STEPS: usize = 0;
}

impl Control {
    pub(crate) fn encode(&self) -> [f32; SLOTS] {
        let mut slots = [0.0; SLOTS];
        slots[control::RATE] = self.rate;
        slots[control::WEIGHT] = self.weight;
        slots[control::CLIP] = self.clip;
        slots[control::AVERAGE] = self.average;
        slots[control::SEED] = f32::from_bits(self.seed as u32);
        slots[control::SEED + 1] = f32::from_bits((self.seed >> 32) as u32);
        slots
    }
}

/// Scalars a step returns to the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The loss; NaN or Inf if the step was not good.
    pub loss: f32,
    /// The global gradient norm before clipping.
    pub norm: f32,
    /// Whether loss and gradients were finite, so that the update was applied.
    pub good: bool,
    /// Number of good steps so far.
    pub steps: u64,
    /// Milliseconds the step waited for sums over replicas after its own work was done; 0 on the CPU.
    pub reduce_wait_ms: f32,
    /// Values recorded with `Tape::note`.
    pub notes: [f32; SLOTS - report::NOTES],
}

impl Report {
    pub(crate) fn decode(slots: &[f32]) -> Report {
        let mut notes = [0.0; SLOTS - report::NOTES];
        notes.copy_from_slice(&slots[report::NOTES..SLOTS]);
        Report {
            loss: slots[report::LOSS],
            norm: slots[report::NORM],
            good: slots[report::GOOD] == 1.0,
            steps: slots[report::STEPS] as u64,
            reduce_wait_ms: slots[report::REDUCE_WAIT_MS],
            notes,
        }
    }
}
