//! The programs of the decoder: validation, training by mel distance only, and training with discriminators.

use super::fill::{Inputs, SHARPNESS, SpeakerTargets};
use super::{DecoderSettings, MEL_WEIGHT};
use crate::error::TrainError;
use crate::replica_slice::ReplicaSlice;
use myxtts_model::decoder::Decoder;
use myxtts_model::discriminator::{
    Discriminators, discriminator_loss, feature_matching_loss, generator_loss,
};
use myxtts_model::speaker::{SpeakerEncoder, Statistics};
use myxtts_run::plan::Recipe;
use myxtts_tensor::engine::InputLayout;
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::ops::mel::{Log, Mel, Scale};
use myxtts_tensor::ops::stft::{Spectrum, Stft, Window};
use myxtts_tensor::{Backward, DType, Engine, ParameterId, Program, Recompute, Tape, Value as Node};

/// HiFi-GAN's weight of the feature loss, relative to the discriminators' loss.
const FEATURE_WEIGHT: f32 = 1.0;

/// A program with the layout of its inputs.
pub(super) struct Ready {
    pub program: Program,
    pub inputs: Inputs,
}

/// The purpose of a program.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ProgramKind {
    /// Trains by mel distance only.
    Plain,
    /// Trains by mel distance and discriminators.
    Adversarial,
    /// Measures without an update.
    Measured,
}

/// The networks, and the table of speakers if the speaker encoder is trained.
pub(super) struct Parts<'a> {
    pub decoder: &'a Decoder,
    pub speakers: &'a SpeakerEncoder,
    pub discriminators: &'a Discriminators,
    pub who: Option<ParameterId>,
    pub known_speaker: bool,
}

/// The tape of a program, its inputs, and the constants that are written to some of them once.
pub(super) struct Built {
    pub tape: Tape,
    pub inputs: Inputs,
    constants: Vec<(Node, Vec<f32>)>,
}

/// Builds and loads a program.
pub(super) fn ready(
    engine: &mut Engine,
    settings: &DecoderSettings,
    recipe: &Recipe,
    parts: Parts<'_>,
    what: ProgramKind,
    slice: &ReplicaSlice,
) -> Result<Ready, TrainError> {
    let empty = Tape::new(engine.layout().clone(), engine.precision());
    let Built { tape, inputs, constants } = build(empty, settings, recipe, parts, what, slice)?;
    super::super::check_memory_limit(
        engine,
        &tape,
        ("decoder", "data.decoder_batch_size"),
        settings.memory_limit,
    )?;
    let program = engine.load(tape)?;
    for (value, data) in constants {
        engine.write(&program, value, &data)?;
    }
    Ok(Ready { program, inputs })
}

/// Writes a program to an empty tape.
pub(super) fn build(
    mut tape: Tape,
    settings: &DecoderSettings,
    recipe: &Recipe,
    Parts { decoder, speakers, discriminators, who, known_speaker }: Parts<'_>,
    what: ProgramKind,
    slice: &ReplicaSlice,
) -> Result<Built, TrainError> {
    let slice = if what == ProgramKind::Measured { &ReplicaSlice::WHOLE } else { slice };
    slice.begin(&mut tape);
    let rows = slice.rows(settings.rows as u32)? as usize;
    let count = settings.decoder.samples_of(settings.window);
    let latents = tape.input([rows, settings.window, settings.decoder.latent], DType::F32);
    let speaker = tape.input([rows, settings.speaker_frames, settings.speaker.mels], DType::F32);
    let wave = tape.input([rows, count, 1], DType::F32);
    let asked = who.map(|table| {
        let people = tape.layout().get(table).shape.dim(0);
        let targets = tape.input([rows], DType::I32);
        let margins = tape.input([rows, people], DType::F32);
        SpeakerTargets { targets, margins, people }
    });
    let inputs = Inputs { image: InputLayout::new(&tape), latents, speaker, wave, who: asked };
    let dtype = tape.dtype();
    let [given, features, real] = [latents, speaker, wave]
        .map(|value| if dtype == DType::F32 { value } else { tape.cast(value, dtype) });
    let note = |tape: &mut Tape, slot, value| {
        let part = slice.part(tape, value);
        tape.note(slot, part);
    };
    let statistics = match known_speaker || what == ProgramKind::Measured {
        true => Statistics::Running,
        false => Statistics::Batch,
    };
    let voice = speakers.forward(&mut tape, features, statistics).embedding;
    let z = decoder.upsample_latents(&mut tape, given);
    // A speaker encoder in training only learns to classify speakers, as those of the released models did: gradients of the
    // audio would pull voices together that the decoder cannot distinguish yet.
    let heard = if who.is_some() { tape.detach(voice) } else { voice };
    let made = decoder.wave(&mut tape, z, heard);
    let (distance, constants) = mel_distance(&mut tape, made, wave, settings.decoder.wave_rate);
    note(&mut tape, 0, distance);
    let told = who.zip(asked).filter(|_| what != ProgramKind::Measured).map(|(table, asked)| {
        let table = tape.master(table);
        let SpeakerTargets { targets, margins, people } = asked;
        // Both have length 1: a table that could grow would separate vectors that hardly differ, and leave them so.
        let table = tape.l2_normalize(table);
        let table = tape.reshape(table, [1, people, settings.speaker.result]);
        let vectors = if dtype == DType::F32 { voice } else { tape.cast(voice, DType::F32) };
        let vectors = tape.reshape(vectors, [1, rows, settings.speaker.result]);
        let cosines = tape.matmul(vectors, table, (false, true));
        let logits = tape.scale(cosines, SHARPNESS);
        let logits = tape.reshape(logits, [rows, people]);
        let logits = tape.add(logits, margins);
        let told = tape.cross_entropy(logits, targets, 0.0);
        note(&mut tape, 4, told.loss);
        told.loss
    });
    if what == ProgramKind::Measured {
        tape.report_loss(distance);
    } else {
        let mel_weight = if what == ProgramKind::Adversarial { settings.mel_weight } else { MEL_WEIGHT };
        let mut parts = vec![(distance, mel_weight as f32)];
        parts.extend(told.map(|told| (told, 1.0)));
        if what == ProgramKind::Adversarial {
            let weights = discriminators.weights(&mut tape);
            let fixed = weights.fixed(&mut tape);
            let detached = tape.detach(made);
            let of_real = discriminators.apply(&mut tape, &weights, real);
            let of_detached = discriminators.apply(&mut tape, &weights, detached);
            let discriminator = discriminator_loss(&mut tape, &of_real, &of_detached);
            let of_made = discriminators.apply(&mut tape, &fixed, made);
            let generator = generator_loss(&mut tape, &of_made);
            let features = feature_matching_loss(&mut tape, &of_real, &of_made);
            note(&mut tape, 1, discriminator);
            note(&mut tape, 2, generator);
            note(&mut tape, 3, features);
            // Two sums: one takes at most four terms.
            let adversarial =
                tape.weighted_sum(&[(discriminator, 1.0), (generator, 1.0), (features, FEATURE_WEIGHT)]);
            parts.push((adversarial, 1.0));
        }
        let loss = tape.weighted_sum(&parts);
        let loss = slice.part(&mut tape, loss);
        tape.backward(loss, Backward { recompute: Recompute::Marked, accumulate: false });
        slice.reduce(&mut tape);
        let average = recipe.ema_decay.is_some();
        // HiFi-GAN's betas: adversarial training does not benefit from long averages.
        tape.update(loss, AdamW { beta1: 0.8, beta2: 0.99, average, ..AdamW::default() });
    }
    Ok(Built { tape, inputs, constants })
}

/// FFT size, hop and bands of the mels that audio is compared by: with a single window length, clicks or hum would not show.
/// The longest has bands of 21 Hz, narrow enough to resolve the harmonics of a low voice; with wider ones a wrong pitch
/// would cost nothing.
const RESOLUTIONS: [(usize, usize, usize); 3] = [(512, 128, 40), (1024, 256, 80), (2048, 512, 160)];

/// Mean distance of log-mels of waveforms `[rows, samples, 1]`, and the constants of its inputs.
fn mel_distance(tape: &mut Tape, made: Node, real: Node, rate: usize) -> (Node, Vec<(Node, Vec<f32>)>) {
    let shape = tape.shape(made);
    let [made, real] = [made, real].map(|wave| {
        let wave = if tape.info(wave).dtype == DType::F32 { wave } else { tape.cast(wave, DType::F32) };
        tape.reshape(wave, [shape.dim(0), shape.dim(1)])
    });
    let (mut parts, mut written) = (Vec::new(), Vec::new());
    for (points, hop, channels) in RESOLUTIONS {
        let mel = Mel {
            stft: Stft { points, length: points, window: Window::Hann, hop },
            spectrum: Spectrum::Magnitude { epsilon: 1e-9 },
            rate: rate as f64,
            channels,
            range: (0.0, rate as f64 / 2.0),
            scale: Scale::Slaney,
            area: true,
            log: Log::Floor(1e-5),
        };
        let basis = tape.input([2 * mel.stft.bins(), points], DType::F32);
        let filters = tape.input([channels, mel.stft.bins()], DType::F32);
        written.push((basis, mel.stft.basis()));
        written.push((filters, mel.filters()));
        let [a, b] = [made, real].map(|wave| tape.mel(wave, &mel, basis, filters));
        parts.push((tape.l1_loss(a, b), 1.0 / RESOLUTIONS.len() as f32));
    }
    (tape.weighted_sum(&parts), written)
}
