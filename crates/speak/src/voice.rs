//! A voice: what a model has heard of a speaker.

/// A voice as the model is given it.
#[derive(Clone, Debug, PartialEq)]
pub struct Voice {
    /// What the GPT is given `[latents, width]`.
    pub conditioning: Vec<f32>,
    /// What the decoder is given; none where there is no decoder.
    pub speaker: Option<Vec<f32>>,
}
