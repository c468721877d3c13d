//! Losses that are means of distances; each is one f32. The sums are computed in `reduce.rs`.

use super::reduce::Term;
use crate::tape::{Tape, Value};

impl Tape {
    /// The mean of `|x - target|` over all elements; gradients flow to both.
    pub fn l1_loss(&mut self, x: Value, target: Value) -> Value {
        let share = 1.0 / self.shape(x).len() as f32;
        self.reduce(x, Some(target), Term::Absolute, 0.0, share)
    }

    /// The mean of `(x - target)²` over all elements; gradients flow to both.
    pub fn mse_loss(&mut self, x: Value, target: Value) -> Value {
        let share = 1.0 / self.shape(x).len() as f32;
        self.reduce(x, Some(target), Term::Square, 0.0, share)
    }

    /// The mean of `(x - target)²` over all elements with one target for all: the loss of a least-squares GAN.
    pub fn mse_to_constant(&mut self, x: Value, target: f32) -> Value {
        let share = 1.0 / self.shape(x).len() as f32;
        self.reduce(x, None, Term::Square, target, share)
    }
}
