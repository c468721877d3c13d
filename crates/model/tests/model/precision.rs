//! Tests every network at its released size in both precisions: whether a training step can be built and how much
//! memory it needs, without a device.

use crate::rig::TRAINED;
use myxtts_model::declare::Declare;
use myxtts_model::decoder::{Decoder, DecoderSizes};
use myxtts_model::discriminator::{
    DiscriminatorSizes, Discriminators, discriminator_loss, feature_matching_loss, generator_loss,
};
use myxtts_model::dvae::{Dvae, DvaeLoss, DvaeSizes};
use myxtts_model::speaker::{SpeakerEncoder, SpeakerSizes};
use myxtts_tensor::memory::MemoryPlan;
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::{Backward, Precision, Tape, Value};

/// Builds a step around a loss; returns the scratch memory in both precisions.
fn planned<N>(
    name: &str,
    network: impl Fn(&mut Declare) -> N,
    loss: impl Fn(&mut Tape, &N) -> Value,
) -> [usize; 2] {
    let bytes = [Precision::F32, Precision::Bf16].map(|precision| {
        let mut declare = Declare::new(0.01, TRAINED);
        let network = network(&mut declare);
        let (layout, _) = declare.finish();
        let mut tape = Tape::new(layout, precision);
        let loss = loss(&mut tape, &network);
        tape.backward(loss, Backward::default());
        tape.update(loss, AdamW::default());
        MemoryPlan::new(&tape).scratch_bytes
    });
    println!("{name}: {} MB of scratch in f32, {} in bf16", bytes[0] >> 20, bytes[1] >> 20);
    bytes
}

#[test]
fn released_sizes_can_be_trained_in_both_precisions() {
    let dvae = planned(
        "dvae, 16 x 128 frames",
        |declare| Dvae::declare(declare, &DvaeSizes::v2(), "dvae."),
        |tape, dvae| {
            let mel = tape.input([16, 128, dvae.sizes().channels], tape.dtype());
            let weights = DvaeLoss { absolute: 0.5, ..DvaeLoss::default() };
            let made = dvae.reconstruct(tape, mel, weights);
            dvae.update_codebook(tape, &made);
            made.loss
        },
    );
    let decoder = planned(
        "decoder and discriminators, 2 x 8192 samples",
        |declare| {
            let decoder = Decoder::declare(declare, &DecoderSizes::v2());
            (decoder, Discriminators::declare(declare, &DiscriminatorSizes::hifigan(), ""))
        },
        |tape, (decoder, discriminators)| {
            let latents = tape.input([2, 7, decoder.sizes().latent], tape.dtype());
            let stretched = decoder.upsample_latents(tape, latents);
            let z = tape.slice_time(stretched, 0..28);
            let speaker = tape.input([2, decoder.sizes().speaker], tape.dtype());
            let wave = decoder.wave(tape, z, speaker);
            let real = tape.input(tape.shape(wave), tape.dtype());
            let weights = discriminators.weights(tape);
            let of_real = discriminators.apply(tape, &weights, real);
            let detached = tape.detach(wave);
            let of_detached = discriminators.apply(tape, &weights, detached);
            let fixed = weights.fixed(tape);
            let of_made = discriminators.apply(tape, &fixed, wave);
            let losses = [
                (discriminator_loss(tape, &of_real, &of_detached), 1.0),
                (generator_loss(tape, &of_made), 1.0),
                (feature_matching_loss(tape, &of_real, &of_made), 2.0),
            ];
            tape.weighted_sum(&losses)
        },
    );
    let speaker = planned(
        "speaker encoder, 4 x 200 frames",
        |declare| SpeakerEncoder::declare(declare, &SpeakerSizes::v2()),
        |tape, encoder| {
            let features = tape.input([4, 200, encoder.sizes().mels], tape.dtype());
            let vector = encoder.embed(tape, features);
            tape.mse_to_constant(vector, 1.0)
        },
    );
    for [f32, bf16] in [dvae, decoder, speaker] {
        assert!(bf16 < f32, "{bf16} bytes in bf16, {f32} in f32");
    }
}
