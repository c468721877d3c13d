//! The programs of the DVAE: a training step, and the same network without an update.

use super::DvaeSettings;
use crate::error::TrainError;
use crate::replica_slice::ReplicaSlice;
use myxtts_model::dvae::{Dvae, DvaeLoss};
use myxtts_run::plan::Recipe;
use myxtts_tensor::engine::InputLayout;
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::{Backward, DType, Engine, Program, Tape, Value as Node};

/// A program, with its input and output nodes.
pub(super) struct Ready {
    pub program: Program,
    pub mel: Node,
    pub encoded: Node,
    /// The token of every code, if codes have to predict it.
    pub tokens: Option<Node>,
    /// `[1]`: the slice's fraction of the tokens of the whole batch, where there are several slices.
    pub token_share: Option<Node>,
    /// Layout of the mels in a batch.
    pub image: InputLayout,
}

/// The tape of a program, and the nodes that [`Ready`] has.
pub(super) struct Built {
    pub tape: Tape,
    mel: Node,
    encoded: Node,
    tokens: Option<Node>,
    token_share: Option<Node>,
    pub image: InputLayout,
}

/// Builds the training step of a slice, or the measuring program if `train` is `None`.
pub(super) fn ready(
    engine: &mut Engine,
    dvae: &Dvae,
    settings: &DvaeSettings,
    recipe: &Recipe,
    train: Option<&ReplicaSlice>,
) -> Result<Ready, TrainError> {
    let empty = Tape::new(engine.layout().clone(), engine.precision());
    let Built { tape, mel, encoded, tokens, token_share, image } =
        build(empty, dvae, settings, recipe, train)?;
    crate::stages::check_memory_limit(
        engine,
        &tape,
        ("dvae", "data.dvae_batch_size"),
        settings.memory_limit,
    )?;
    Ok(Ready { program: engine.load(tape)?, mel, encoded, tokens, token_share, image })
}

/// Writes that program to an empty tape.
pub(super) fn build(
    mut tape: Tape,
    dvae: &Dvae,
    settings: &DvaeSettings,
    recipe: &Recipe,
    train: Option<&ReplicaSlice>,
) -> Result<Built, TrainError> {
    let slice = train.unwrap_or(&ReplicaSlice::WHOLE);
    slice.begin(&mut tape);
    let shape = [slice.rows(settings.rows)? as usize, settings.frames as usize, settings.sizes.channels];
    let mel = tape.input(shape, DType::F32);
    let asked_for = settings.token_targets.as_ref().filter(|_| train.is_some());
    let codes = shape[0] * settings.sizes.codes_of(shape[1]);
    let tokens = asked_for.map(|_| tape.input([codes], DType::I32));
    let image = InputLayout::new(&tape);
    let dtype = tape.dtype();
    let given = if dtype == DType::F32 { mel } else { tape.cast(mel, dtype) };
    // The absolute error prevents smearing of quiet bands, to which the squared error is almost insensitive.
    let weights = DvaeLoss { squared: 1.0, absolute: 0.5, commitment: 0.25 };
    let made = dvae.reconstruct(&mut tape, given, weights);
    let mut loss = slice.part(&mut tape, made.loss);
    let mut token_share = None;
    if let Some((spoken, tokens)) = asked_for.zip(tokens)
        && let Some(prediction) = dvae.classify_tokens(&mut tape, &made, tokens)
    {
        // A mean over this slice's tokens, whose number differs between slices: scaled to its part of the mean over the batch.
        let mut prediction_loss = prediction.loss;
        if slice.world() > 1 {
            let share = tape.input([1], DType::F32);
            prediction_loss = tape.multiply(prediction_loss, share);
            token_share = Some(share);
        }
        loss = tape.weighted_sum(&[(loss, 1.0), (prediction_loss, spoken.weight as f32)]);
        // Counts of a slice are parts of a sum already.
        for (slot, value) in [(3, prediction_loss), (4, prediction.correct), (5, prediction.count)] {
            tape.note(slot, value);
        }
    }
    tape.keep(made.encoded);
    for (slot, value) in [(0, Some(made.squared)), (1, Some(made.commitment)), (2, made.absolute)] {
        if let Some(value) = value {
            let part = slice.part(&mut tape, value);
            tape.note(slot, part);
        }
    }
    if train.is_some() {
        dvae.update_codebook(&mut tape, &made);
        tape.backward(loss, Backward::default());
        slice.reduce(&mut tape);
        tape.update(loss, AdamW { average: recipe.ema_decay.is_some(), ..AdamW::default() });
    } else {
        tape.report_loss(loss);
    }
    Ok(Built { tape, mel, encoded: made.encoded, tokens, token_share, image })
}
