//! Tests the discriminators against plain loops over their definition, and which network is trained by which loss.

use crate::rig::{Rig, TRAINED, assert_near, assert_near_by_length, devices, length};
use myxtts_model::declare::Declare;
use myxtts_model::decoder::{Decoder, DecoderSizes, Residual, Upsampling};
use myxtts_model::discriminator::{
    DiscriminatorSizes, Discriminators, Layer, discriminator_loss, feature_matching_loss, generator_loss,
};
use myxtts_tensor::random::Stream;
use myxtts_tensor::{Backward, Control, DType, Device, Tape, Value};

fn small() -> DiscriminatorSizes {
    let layer = |channels, taps, stride, groups| Layer { channels, taps, stride, groups };
    DiscriminatorSizes {
        periods: vec![2, 3, 5],
        period_layers: vec![layer(4, 5, 3, 1), layer(8, 5, 3, 1), layer(8, 5, 1, 1)],
        scales: 3,
        scale_layers: vec![layer(4, 15, 1, 1), layer(8, 41, 2, 4), layer(8, 5, 1, 1)],
    }
}

/// `[channels][height][width]`.
type Picture = Vec<Vec<Vec<f64>>>;

/// A convolution along the height only, with weights in PyTorch's layout.
fn conv(x: &Picture, weight: &[f64], bias: &[f32], layer: Layer) -> Picture {
    let (height, width) = (x[0].len() as isize, x[0][0].len());
    let (pad, from) = ((layer.taps as isize - 1) / 2, x.len() / layer.groups);
    let places = (height + 2 * pad - layer.taps as isize) as usize / layer.stride + 1;
    let mut out = vec![vec![vec![0.0; width]; places]; layer.channels];
    for (o, plane) in out.iter_mut().enumerate() {
        let first = o / (layer.channels / layer.groups) * from;
        for (i, row) in plane.iter_mut().enumerate() {
            for (j, y) in row.iter_mut().enumerate() {
                *y = f64::from(bias[o]);
                for c in 0..from {
                    for tap in 0..layer.taps {
                        let at = (i * layer.stride + tap) as isize - pad;
                        if (0..height).contains(&at) {
                            let w = weight[(o * from + c) * layer.taps + tap];
                            *y += w * x[first + c][at as usize][j];
                        }
                    }
                }
            }
        }
    }
    out
}

fn outputs_of(rig: &Rig, name: &str, layers: &[Layer], mut x: Picture) -> Vec<Picture> {
    let last = Layer { channels: 1, taps: 3, stride: 1, groups: 1 };
    let mut features = Vec::new();
    for (i, layer) in layers.iter().copied().chain([last]).enumerate() {
        let conv_name =
            if i < layers.len() { format!("{name}.convs.{i}") } else { format!("{name}.conv_post") };
        let g = rig.weight(&format!("{conv_name}.parametrizations.weight.original0"));
        let v = rig.weight(&format!("{conv_name}.parametrizations.weight.original1"));
        let bias = rig.weight(&format!("{conv_name}.bias"));
        let rows = v.chunks_exact(v.len() / layer.channels).zip(g);
        let weight: Vec<f64> = rows
            .flat_map(|(row, g)| {
                let norm = length(row);
                row.iter().map(move |v| f64::from(*v) * f64::from(g) / norm)
            })
            .collect();
        x = conv(&x, &weight, &bias, layer);
        if i < layers.len() {
            let leaky = |y: &mut f64| *y = if *y < 0.0 { 0.1 * *y } else { *y };
            x.iter_mut().flatten().flatten().for_each(leaky);
        }
        features.push(x.clone());
    }
    features
}

/// Outputs of all discriminators for one waveform: features as `[channels, height, width]`.
fn definition(rig: &Rig, sizes: &DiscriminatorSizes, wave: &[f32]) -> Vec<Vec<Picture>> {
    let mut all = Vec::new();
    for (i, &period) in sizes.periods.iter().enumerate() {
        let mut padded: Vec<f64> = wave.iter().map(|x| f64::from(*x)).collect();
        let n = padded.len();
        while !padded.len().is_multiple_of(period) {
            padded.push(padded[2 * (n - 1) - padded.len()]);
        }
        let picture = padded.chunks(period).map(<[f64]>::to_vec).collect();
        let name = format!("d.mpd.discriminators.{i}");
        all.push(outputs_of(rig, &name, &sizes.period_layers, vec![picture]));
    }
    let mut heard: Vec<f64> = wave.iter().map(|x| f64::from(*x)).collect();
    for i in 0..sizes.scales {
        if i > 0 {
            let padded: Vec<f64> =
                [0.0; 2].into_iter().chain(heard.iter().copied()).chain([0.0; 2]).collect();
            heard = padded.windows(4).step_by(2).map(|w| w.iter().sum::<f64>() / 4.0).collect();
        }
        let picture = heard.iter().map(|x| vec![*x]).collect();
        all.push(outputs_of(rig, &format!("d.msd.discriminators.{i}"), &sizes.scale_layers, vec![picture]));
    }
    all
}

/// Converts to `[width, height, channels]`.
fn as_ours(picture: &Picture) -> Vec<f32> {
    let (height, width) = (picture[0].len(), picture[0][0].len());
    let places = (0..width).flat_map(|x| (0..height).map(move |y| (y, x)));
    places.flat_map(|(y, x)| picture.iter().map(move |plane| plane[y][x] as f32)).collect()
}

fn waves(batch: usize, samples: usize, seed: u64) -> Vec<f32> {
    Stream::new(seed).normals(batch * samples).into_iter().map(|x| 0.3 * x).collect()
}

/// Randomises all parameters: biases start at zero and magnitudes at constants, which would hide mix-ups.
fn randomise(rig: &mut Rig, seed: u64) {
    let mut random = Stream::new(seed);
    for parameter in rig.released.clone() {
        let mut data = rig.engine.read_parameter(parameter.id).unwrap();
        data.iter_mut().for_each(|x| *x += 0.2 * random.normal());
        rig.engine.write_parameter(parameter.id, &data).unwrap();
    }
}

#[test]
fn outputs_match_the_definition() {
    for device in devices("outputs_match_the_definition") {
        // 211 is not a multiple of any period, and 210 leaves an even half.
        for samples in [211, 210] {
            let (sizes, batch) = (small(), 2);
            let mut declare = Declare::new(0.0, TRAINED);
            let discriminators = Discriminators::declare(&mut declare, &sizes, "d.");
            let mut rig = Rig::fresh(device, declare);
            randomise(&mut rig, 5);
            let mut tape = rig.tape();
            let wave = tape.input([batch, samples, 1], DType::F32);
            let weights = discriminators.weights(&mut tape);
            let outputs = discriminators.apply(&mut tape, &weights, wave);
            outputs.iter().flat_map(|j| &j.features).for_each(|&v| tape.keep(v));
            let mut program = rig.engine.load(tape).unwrap();
            let data = waves(batch, samples, 9);
            rig.engine.write(&program, wave, &data).unwrap();
            rig.engine.run(&mut program, &Control::default()).unwrap();
            for item in 0..batch {
                let wanted = definition(&rig, &sizes, &data[item * samples..][..samples]);
                assert_eq!(wanted.len(), outputs.len());
                for (i, (output, wanted)) in outputs.iter().zip(&wanted).enumerate() {
                    assert_eq!(output.features.len(), wanted.len());
                    assert_eq!(output.score, output.features[wanted.len() - 1]);
                    for (j, (&feature, wanted)) in output.features.iter().zip(wanted).enumerate() {
                        let found = rig.engine.read(&program, feature).unwrap();
                        let found = &found[item * found.len() / batch..][..found.len() / batch];
                        assert_near(
                            &format!("{device} discriminator {i} layer {j}"),
                            found,
                            &as_ours(wanted),
                            1e-4,
                        );
                    }
                }
            }
        }
    }
}

fn decoder_sizes() -> DecoderSizes {
    DecoderSizes {
        latent: 6,
        speaker: 4,
        channels: 8,
        upsampling: vec![Upsampling { rate: 8, taps: 16 }, Upsampling { rate: 4, taps: 8 }],
        residuals: vec![Residual { taps: 3, dilations: vec![1, 3] }],
        ..DecoderSizes::v2()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Discriminators,
    Decoder,
    Both,
}

/// Gradients of every parameter by name, with both sides of the game on one tape, or only one of them.
fn gradients(side: Side) -> Vec<(String, Vec<f32>)> {
    let (batch, frames) = (2, 9);
    let mut declare = Declare::new(0.0, TRAINED);
    let decoder = Decoder::declare(&mut declare, &decoder_sizes());
    let discriminators = Discriminators::declare(&mut declare, &small(), "d.");
    let mut rig = Rig::fresh(Device::Cpu, declare);
    randomise(&mut rig, 2);
    let samples = frames * decoder.sizes().hop();
    let mut tape = rig.tape();
    let z = tape.input([batch, frames, decoder.sizes().latent], DType::F32);
    let speaker = tape.input([batch, decoder.sizes().speaker], DType::F32);
    let real = tape.input([batch, samples, 1], DType::F32);
    let made = decoder.wave(&mut tape, z, speaker);
    let weights = discriminators.weights(&mut tape);
    let of_real = discriminators.apply(&mut tape, &weights, real);
    let mut losses: Vec<(Value, f32)> = Vec::new();
    if side != Side::Decoder {
        let detached = tape.detach(made);
        let of_made = discriminators.apply(&mut tape, &weights, detached);
        losses.push((discriminator_loss(&mut tape, &of_real, &of_made), 1.0));
    }
    if side != Side::Discriminators {
        let fixed = weights.fixed(&mut tape);
        let of_made = discriminators.apply(&mut tape, &fixed, made);
        losses.push((generator_loss(&mut tape, &of_made), 1.0));
        losses.push((feature_matching_loss(&mut tape, &of_real, &of_made), 2.0));
    }
    let loss = tape.weighted_sum(&losses);
    tape.backward(loss, Backward::default());
    tape.report_loss(loss);
    let mut program = rig.engine.load(tape).unwrap();
    let mut random = Stream::new(8);
    for value in [z, speaker] {
        let data = random.normals(program.tape().shape(value).len());
        rig.engine.write(&program, value, &data).unwrap();
    }
    rig.engine.write(&program, real, &waves(batch, samples, 4)).unwrap();
    rig.engine.run(&mut program, &Control::default()).unwrap();
    let names = rig.released.iter().map(|parameter| parameter.name.clone());
    names.map(|name| (name.clone(), rig.gradient(&name))).collect()
}

#[test]
fn each_loss_trains_only_its_own_side() {
    let [both, discriminators, decoder] = [Side::Both, Side::Discriminators, Side::Decoder].map(gradients);
    for (i, (name, gradient)) in both.iter().enumerate() {
        let (own, other) =
            if name.starts_with("d.") { (&discriminators, &decoder) } else { (&decoder, &discriminators) };
        assert_eq!(length(&other[i].1), 0.0, "{name} learns from the other side's loss");
        assert!(length(&own[i].1) > 0.0, "{name} learns nothing");
        assert_near_by_length(name, gradient, &own[i].1, 1e-5);
    }
}

#[test]
fn losses_match_their_definition() {
    let mut declare = Declare::new(0.0, TRAINED);
    let discriminators = Discriminators::declare(&mut declare, &small(), "d.");
    let mut rig = Rig::fresh(Device::Cpu, declare);
    randomise(&mut rig, 7);
    let mut tape = rig.tape();
    let waves_in = [0, 1].map(|_| tape.input([1, 240, 1], DType::F32));
    let weights = discriminators.weights(&mut tape);
    let [real, made] = waves_in.map(|wave| discriminators.apply(&mut tape, &weights, wave));
    let keep = |tape: &mut Tape, v: Value| {
        tape.keep(v);
        v
    };
    let losses = [
        discriminator_loss(&mut tape, &real, &made),
        generator_loss(&mut tape, &made),
        feature_matching_loss(&mut tape, &real, &made),
    ]
    .map(|v| keep(&mut tape, v));
    real.iter().chain(&made).flat_map(|j| &j.features).for_each(|&v| tape.keep(v));
    let mut program = rig.engine.load(tape).unwrap();
    for (i, wave) in waves_in.into_iter().enumerate() {
        rig.engine.write(&program, wave, &waves(1, 240, i as u64)).unwrap();
    }
    rig.engine.run(&mut program, &Control::default()).unwrap();
    let read = |v: Value| rig.engine.read(&program, v).unwrap();
    let mean =
        |x: &[f32], f: &dyn Fn(f64) -> f64| x.iter().map(|x| f(f64::from(*x))).sum::<f64>() / x.len() as f64;
    let (mut discriminator, mut generator, mut distance) = (0.0, 0.0, 0.0);
    for (real, made) in real.iter().zip(&made) {
        let (a, b) = (read(real.score), read(made.score));
        discriminator += mean(&a, &|x| (x - 1.0).powi(2)) + mean(&b, &|x| x * x);
        generator += mean(&b, &|x| (x - 1.0).powi(2));
        for (&real, &made) in real.features.iter().zip(&made.features) {
            let difference: Vec<f32> = read(real).iter().zip(read(made)).map(|(a, b)| a - b).collect();
            distance += 2.0 * mean(&difference, &f64::abs);
        }
    }
    for (loss, wanted) in losses.into_iter().zip([discriminator, generator, distance]) {
        assert_near("loss", &[read(loss)[0] / wanted as f32], &[1.0], 1e-5);
    }
}

#[test]
fn discriminators_have_the_sizes_of_hifigan() {
    let count = |sizes: &DiscriminatorSizes, part: &str| -> usize {
        let mut declare = Declare::new(0.0, TRAINED);
        Discriminators::declare(&mut declare, sizes, "");
        let (_, released) = declare.finish();
        let of = released.iter().filter(|parameter| parameter.name.starts_with(part));
        of.map(|parameter| parameter.shape.iter().product::<usize>()).sum()
    };
    let full = DiscriminatorSizes::hifigan();
    // Counted by hand from the paper's sizes, with one magnitude per channel of a layer.
    assert_eq!([count(&full, "mpd."), count(&full, "msd.")], [41_105_770, 29_622_918]);
    let quarter = DiscriminatorSizes::scaled(0.25);
    assert!(count(&quarter, "") * 10 < count(&full, ""));
}
