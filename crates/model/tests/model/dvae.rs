//! Tests the DVAE against the reference: encoding, decoding and training.

use crate::goldens::{self, Tensor};
use crate::rig::{
    Rig, TRAINED, assert_near, assert_near_by_length, assert_released, devices, length, transposed,
};
use myxtts_model::codebook::{HostCodebook, codebook_from_rows, revive_codes};
use myxtts_model::declare::Declare;
use myxtts_model::dvae::{Dvae, DvaeLoss, DvaeSizes};
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::random::Stream;
use myxtts_tensor::{Backward, Control, DType, Device};

fn sizes() -> DvaeSizes {
    let config = goldens::json("dvae/config.json");
    let number = |name: &str| config[name].as_u64().unwrap_or_else(|| panic!("no {name}")) as usize;
    DvaeSizes {
        channels: number("channels"),
        hidden: number("hidden_dim"),
        layers: number("num_layers"),
        stride: number("stride"),
        taps: number("kernel_size"),
        blocks: number("num_resnet_blocks"),
        codes: number("num_tokens"),
        code_width: number("codebook_dim"),
    }
}

fn loaded(device: Device) -> (Rig, Dvae) {
    let weights = goldens::tensors("dvae/weights.safetensors");
    let mut declare = Declare::new(0.0, TRAINED);
    let dvae = Dvae::declare(&mut declare, &sizes(), "");
    let rig =
        Rig::new(device, declare, |name| weights.get(name).map(|t| (t.shape.clone(), t.floats().to_vec())));
    let extra: Vec<&String> =
        weights.keys().filter(|n| rig.layout.find(n).is_none() && !n.starts_with("discrete_loss.")).collect();
    assert!(extra.is_empty(), "weights without a parameter: {extra:?}");
    (rig, dvae)
}

fn ids(tensor: &Tensor) -> Vec<i32> {
    tensor.integers().iter().map(|&id| i32::try_from(id).unwrap()).collect()
}

fn assert_golden(device: Device, mel: &Tensor, encoded: &Tensor, codes: &Tensor, decoded: &Tensor) {
    let (mut rig, dvae) = loaded(device);
    let mut tape = rig.tape();
    let &[batch, channels, frames] = &mel.shape[..] else { panic!("{:?}", mel.shape) };
    let input = tape.input([batch, frames, channels], DType::F32);
    let rows = dvae.encode(&mut tape, input);
    let found = dvae.codes(&mut tape, rows);
    let made = dvae.decode(&mut tape, found);
    assert_eq!(tape.shape(rows).dim(1), dvae.sizes().codes_of(frames));
    [rows, found, made].into_iter().for_each(|v| tape.keep(v));
    let mut program = rig.engine.load(tape).unwrap();
    rig.engine.write(&program, input, &transposed(mel.floats(), &mel.shape)).unwrap();
    rig.engine.run(&mut program, &Control::default()).unwrap();
    let read = |v| rig.engine.read(&program, v).unwrap();
    let wanted = transposed(encoded.floats(), &encoded.shape);
    assert_near(&format!("{device} encoder_out of {frames}"), &read(rows), &wanted, 1e-4);
    assert_eq!(
        rig.engine.read_i32(&program, found).unwrap(),
        ids(codes),
        "{device} codes of {frames} frames"
    );
    let wanted = transposed(decoded.floats(), &decoded.shape);
    assert_near(&format!("{device} recon of {frames}"), &read(made), &wanted, 1e-4);
}

#[test]
fn rows_codes_and_mels_match_the_reference() {
    let io = goldens::tensors("dvae/io.safetensors");
    for device in devices("rows_codes_and_mels_match_the_reference") {
        assert_golden(device, &io["mel"], &io["encoder_out"], &io["codes"], &io["recon"]);
        let odd = ["mel_odd", "encoder_out_odd", "codes_odd", "decoded_from_codes_odd"].map(|n| &io[n]);
        assert_golden(device, odd[0], odd[1], odd[2], odd[3]);
    }
}

#[test]
fn training_pass_matches_the_reference() {
    let io = goldens::tensors("dvae/io.safetensors");
    let after = goldens::tensors("dvae/after_train_pass.safetensors");
    let scalars = goldens::json("dvae/scalars.json");
    for device in devices("training_pass_matches_the_reference") {
        let (mut rig, dvae) = loaded(device);
        let mut tape = rig.tape();
        let mel = &io["mel"];
        let &[batch, channels, frames] = &mel.shape[..] else { panic!("{:?}", mel.shape) };
        let input = tape.input([batch, frames, channels], DType::F32);
        let made = dvae.reconstruct(&mut tape, input, DvaeLoss::default());
        dvae.update_codebook(&mut tape, &made);
        [made.ids, made.mel, made.squared, made.commitment].into_iter().for_each(|v| tape.keep(v));
        tape.backward(made.loss, Backward::default());
        tape.report_loss(made.loss);
        let mut program = rig.engine.load(tape).unwrap();
        rig.engine.write(&program, input, &transposed(mel.floats(), &mel.shape)).unwrap();
        let report = rig.engine.run(&mut program, &Control::default()).unwrap();
        let wanted = |name: &str| scalars[name].as_f64().unwrap() as f32;
        let [squared, commitment] =
            [made.squared, made.commitment].map(|v| rig.engine.read(&program, v).unwrap()[0]);
        assert_near("recon loss", &[squared / wanted("recon_loss_mean")], &[1.0], 1e-5);
        assert_near("commitment", &[commitment / wanted("commitment_loss")], &[1.0], 1e-5);
        assert_near("loss", &[report.loss / (squared + commitment)], &[1.0], 1e-6);
        assert_eq!(rig.engine.read_i32(&program, made.ids).unwrap(), ids(&io["codes"]));
        for name in ["codebook.embed", "codebook.cluster_size", "codebook.embed_avg"] {
            assert_near_by_length(&format!("{device} {name}"), &rig.weight(name), after[name].floats(), 1e-5);
        }
        let mut checked = 0;
        for (name, wanted) in &after {
            let Some(name) = name.strip_prefix("grad.") else { continue };
            let what = format!("{device} gradient of {name}");
            assert_near_by_length(&what, &rig.gradient(name), wanted.floats(), 1e-4);
            checked += 1;
        }
        assert!(checked >= 3, "{checked} gradients");
        let norms = scalars["train_pass_grad_l2_norms"].as_object().unwrap();
        for (name, norm) in norms {
            let (found, wanted) = (length(&rig.gradient(name)), norm.as_f64().unwrap());
            assert!((found - wanted).abs() <= 1e-4 * wanted, "{device} {name}: {found} instead of {wanted}");
        }
        let trained = rig.released.iter().filter(|one| !one.name.starts_with("codebook.")).count();
        assert_eq!(norms.len(), trained, "every parameter has a norm to be compared with");
    }
}

#[test]
fn names_and_shapes_match_a_release() {
    let mut declare = Declare::new(0.0, TRAINED);
    Dvae::declare(&mut declare, &DvaeSizes::v2(), "dvae.");
    // The reference does not have these buffers at run time.
    assert_released(declare, "dvae.", |name| name.starts_with("discrete_loss."), 51_567_184);
}

/// A few steps on smooth shapes: the loss decreases, and the codebook initialised from the first batch is used.
#[test]
fn fresh_dvae_trains() {
    let sizes = DvaeSizes {
        channels: 8,
        hidden: 16,
        layers: 2,
        stride: 2,
        taps: 3,
        blocks: 1,
        codes: 16,
        code_width: 12,
    };
    let (batch, frames) = (4, 32);
    let mut declare = Declare::new(0.0, TRAINED);
    let dvae = Dvae::declare(&mut declare, &sizes, "");
    let mut rig = Rig::fresh(Device::Cpu, declare);
    let mut random = Stream::new(3);
    let mut mel = Vec::new();
    for _ in 0..batch {
        let (phase, speed) = (random.uniform() * 6.0, 0.2 + random.uniform());
        for t in 0..frames {
            mel.extend((0..sizes.channels).map(|c| (phase + speed * t as f32 + c as f32 * 0.5).sin()));
        }
    }
    let mut tape = rig.tape();
    let input = tape.input([batch, frames, sizes.channels], DType::F32);
    let rows = dvae.encode(&mut tape, input);
    tape.keep(rows);
    let mut encoder = rig.engine.load(tape).unwrap();
    let mut encoded = |rig: &mut Rig| {
        rig.engine.write(&encoder, input, &mel).unwrap();
        rig.engine.run(&mut encoder, &Control::default()).unwrap();
        rig.engine.read(&encoder, rows).unwrap()
    };
    let first = encoded(&mut rig);
    let book = codebook_from_rows(&first, sizes.code_width, sizes.codes, 1);
    book.write(&mut rig.engine, dvae.codebook()).unwrap();
    let mut tape = rig.tape();
    let input = tape.input([batch, frames, sizes.channels], DType::F32);
    let weights = DvaeLoss { absolute: 0.1, ..DvaeLoss::default() };
    let made = dvae.reconstruct(&mut tape, input, weights);
    dvae.update_codebook(&mut tape, &made);
    tape.keep(made.ids);
    tape.backward(made.loss, Backward::default());
    tape.update(made.loss, AdamW::default());
    let mut program = rig.engine.load(tape).unwrap();
    rig.engine.write(&program, input, &mel).unwrap();
    let mut losses = Vec::new();
    for step in 0..200 {
        let control = Control { rate: 3e-3, clip: 1.0, ..Control::default() };
        let report = rig.engine.run(&mut program, &control).unwrap();
        assert!(report.good, "step {step}: {report:?}");
        losses.push(report.loss);
        if step % 50 == 49 && step < 150 {
            let mut book = HostCodebook::read(&rig.engine, dvae.codebook()).unwrap();
            let rows = encoded(&mut rig);
            let revived = revive_codes(&mut book, &rows, sizes.code_width, 0.5, step);
            book.write(&mut rig.engine, dvae.codebook()).unwrap();
            println!("step {step}: loss {}, {} codes revived", report.loss, revived.len());
        }
    }
    let chosen = rig.engine.read_i32(&program, made.ids).unwrap();
    let distinct: std::collections::BTreeSet<i32> = chosen.into_iter().collect();
    println!("loss {} to {}, {} codes in use", losses[0], losses[losses.len() - 1], distinct.len());
    assert!(losses[losses.len() - 1] < 0.25 * losses[0], "from {} to {}", losses[0], losses[199]);
    assert!(distinct.len() >= 8, "only {} of {} codes are in use", distinct.len(), sizes.codes);
}
