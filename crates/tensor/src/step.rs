//! What the host and a step say to each other: small buffers of f32 that are copied through pinned rings, so that
//! neither waits for the other.

/// Size of each of the buffers, in f32.
pub const SLOTS: usize = 32;

/// What the host says about a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control {
    /// Learning rate.
    pub rate: f32,
    /// The gradient of the loss with respect to itself: 1, or 1 / n when n steps are accumulated.
    pub weight: f32,
    /// The global gradient norm is cut to this; 0 leaves it as it is.
    pub clip: f32,
    /// How much of the moving average is kept each step.
    pub average: f32,
    /// The key of every random number in this step.
    pub seed: u64,
}

impl Default for Control {
    fn default() -> Control {
        Control { rate: 0.0, weight: 1.0, clip: 0.0, average: 0.0, seed: 0 }
    }
}

/// Places in the control buffer.
pub(crate) mod control {
    pub const RATE: usize = 0;
    pub const WEIGHT: usize = 1;
    pub const CLIP: usize = 2;
    pub const AVERAGE: usize = 3;
    pub const SEED: usize = 4;
}

/// Places in the report buffer.
pub(crate) mod report {
    pub const LOSS: usize = 0;
    pub const NORM: usize = 1;
    pub const GOOD: usize = 2;
    pub const STEPS: usize = 3;
    /// What gradients are multiplied with: clipping; 0 where they exploded.
    pub const SCALE: usize = 4;
    /// Adam's two corrections for this step.
    pub const CORRECTIONS: usize = 5;
    /// Milliseconds that the step stood still for sums over replicas.
    pub const SUMS: usize = 7;
    pub const NOTES: usize = 8;
}

/// Places in the counters, which outlive a step.
pub(crate) mod counter {
    /// Good steps so far: Adam's t.
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

/// What a step says to the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The loss.
    pub loss: f32,
    /// The global gradient norm before clipping.
    pub norm: f32,
    /// Whether loss and gradients were finite, so that the step was taken.
    pub good: bool,
    /// Good steps so far.
    pub steps: u64,
    /// Milliseconds that the step stood still for sums over replicas, after its own work was done; 0 on the processor.
    pub sums: f32,
    /// What `Tape::note` reported.
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
            sums: slots[report::SUMS],
            notes,
        }
    }
}
