//! Tests the GPT against the reference: all intermediate results, its losses, and the gradient of every parameter.

use crate::goldens::{self, Tensor};
use crate::rig::{self, Rig, TRAINED, assert_near, assert_near_by_length, length, transposed};
use myxtts_model::conditioning::ConditioningSizes;
use myxtts_model::perceiver::PerceiverSizes;
use myxtts_model::sequence::frame_lengths;
use myxtts_model::*;
use myxtts_tensor::parameters::CHUNK;
use myxtts_tensor::{Backward, Control, DType, Device, Init, Program, Recompute, Value};

const LOGITS: f32 = 1e-4;
const LOSSES: f64 = 1e-5;
const GRADIENTS: f64 = 1e-4;

/// Sizes of the golden GPT, from its configuration.
pub fn sizes() -> GptSizes {
    let config = goldens::json("gpt/config.json");
    let number = |path: &str| {
        let value = config.pointer(path).and_then(serde_json::Value::as_u64);
        usize::try_from(value.unwrap_or_else(|| panic!("gpt/config.json has no {path}"))).unwrap()
    };
    let id = |path: &str| i32::try_from(number(path)).unwrap();
    let mels = goldens::tensors("gpt/inputs.safetensors")["cond_mels"].shape[2];
    let width = number("/model_dim");
    let sizes = GptSizes {
        layers: number("/layers"),
        width,
        heads: number("/heads"),
        text_vocabulary: number("/number_text_tokens"),
        audio_vocabulary: number("/num_audio_tokens"),
        max_text: number("/max_text_tokens"),
        max_audio: number("/max_mel_tokens"),
        start_text: id("/start_text_token"),
        stop_text: id("/stop_text_token"),
        start_audio: id("/start_audio_token"),
        stop_audio: id("/stop_audio_token"),
        code_stride: number("/code_stride_len"),
        conditioning: ConditioningSizes {
            mels,
            width,
            blocks: number("/cond_encoder/blocks"),
            heads: number("/cond_encoder/heads"),
            groups: number("/cond_encoder/groups"),
        },
        perceiver: PerceiverSizes {
            latents: number("/perceiver/latents"),
            width,
            depth: number("/perceiver/depth"),
            heads: number("/perceiver/heads"),
            head_size: number("/perceiver/dim_head"),
            inner: number("/perceiver/ff_inner"),
        },
    };
    assert_eq!(sizes.text_positions(), number("/text_pos_rows"));
    assert_eq!(sizes.audio_positions(), number("/mel_pos_rows"));
    sizes
}

/// Inputs of the reference run.
pub struct ReferenceInputs {
    pub batch: usize,
    pub frames: usize,
    /// `[batch, frames, mels]`.
    pub mels: Vec<f32>,
    pub text: Vec<i32>,
    pub text_lengths: Vec<i32>,
    pub codes: Vec<i32>,
    pub code_lengths: Vec<i32>,
}

pub fn reference_inputs() -> ReferenceInputs {
    let inputs = goldens::tensors("gpt/inputs.safetensors");
    let &[batch, 1, mels, frames] = &inputs["cond_mels"].shape[..] else {
        panic!("cond_mels are {:?}", inputs["cond_mels"].shape)
    };
    ReferenceInputs {
        batch,
        frames,
        mels: transposed(inputs["cond_mels"].floats(), &[batch, mels, frames]),
        text: ids(&inputs["text_inputs"]),
        text_lengths: ids(&inputs["text_lengths"]),
        codes: ids(&inputs["audio_codes"]),
        code_lengths: ids(&inputs["code_lengths"]),
    }
}

impl ReferenceInputs {
    pub fn rows(&self) -> Rows<'_> {
        Rows {
            text: &self.text,
            text_lengths: &self.text_lengths,
            codes: &self.codes,
            code_lengths: &self.code_lengths,
            prompts: &[],
        }
    }

    fn shape(&self, sequences: &Sequences) -> GptShape {
        GptShape { batch: self.batch, frames: self.frames, text: sequences.text, mel: sequences.mel }
    }
}

pub fn ids(tensor: &Tensor) -> Vec<i32> {
    tensor.integers().iter().map(|&id| i32::try_from(id).unwrap()).collect()
}

/// A GPT with the golden weights.
fn golden(device: Device) -> (Rig, Gpt) {
    let weights = goldens::tensors("gpt/weights.safetensors");
    let mut declare = Declare::new(0.01, TRAINED);
    let gpt = Gpt::declare(&mut declare, sizes());
    let rig = Rig::new(device, declare, |name| weights.get(name).map(stored));
    assert_eq!(rig.released.len(), weights.len(), "weights are left over");
    (rig, gpt)
}

fn stored(tensor: &Tensor) -> (Vec<usize>, Vec<f32>) {
    (tensor.shape.clone(), tensor.floats().to_vec())
}

pub fn feed(
    gpt: &Gpt,
    rig: &Rig,
    program: &Program,
    inputs: &GptInputs,
    mels: &[f32],
    sequences: &Sequences,
) {
    let Condition::Mels { mels: input, lengths } = inputs.condition else { panic!("the input is not mels") };
    rig.engine.write(program, input, mels).unwrap();
    if let Some(lengths) = lengths {
        let shape = program.tape().shape(input);
        write_lengths(rig, program, lengths, gpt, &vec![shape.dim(1) as i32; shape.dim(0)]);
    }
    rig.engine.write_i32(program, inputs.text_in, &sequences.text_in).unwrap();
    rig.engine.write_i32(program, inputs.mel_in, &sequences.mel_in).unwrap();
    rig.engine.write_i32(program, inputs.key_mask, &sequences.key_mask).unwrap();
}

pub fn write_lengths(rig: &Rig, program: &Program, values: FrameLengths, gpt: &Gpt, lengths: &[i32]) {
    let (alone, with_latents) = frame_lengths(&gpt.sizes, lengths);
    rig.engine.write_i32(program, values.frames, &alone).unwrap();
    rig.engine.write_i32(program, values.with_latents, &with_latents).unwrap();
}

pub fn write_targets(rig: &Rig, program: &Program, targets: &GptTargets, sequences: &Sequences) {
    rig.engine.write_i32(program, targets.text, &sequences.text_targets).unwrap();
    rig.engine.write_i32(program, targets.mel, &sequences.mel_targets).unwrap();
}

fn relative(what: &str, found: f32, wanted: f64) {
    let far = (f64::from(found) - wanted).abs() / wanted.abs();
    println!("{what}: {found}, expected {wanted}, relative error {far:.1e}");
    assert!(far <= LOSSES, "{what}: {found}, expected {wanted}");
}

/// Compares forward and backward passes on one device, with some blocks recomputed.
fn assert_matches(device: Device, recomputed_blocks: usize, recompute: Recompute) {
    println!("{device}, {recomputed_blocks} blocks computed again, {recompute:?}");
    let (mut rig, gpt) = golden(device);
    let given = reference_inputs();
    let sequences = Masks::Coqui.sequences(&gpt.sizes, &given.rows()).unwrap();
    let shape = given.shape(&sequences);
    let mut tape = rig.tape();
    let inputs = GptInputs::new(&mut tape, &gpt.sizes, shape, Masks::Coqui);
    let targets = GptTargets::new(&mut tape, shape);
    let outputs = gpt.forward(&mut tape, &inputs, &GptOptions { dropout: 0.0, recomputed_blocks });
    let losses = gpt.losses(&mut tape, &outputs, &targets, LossWeights::default());
    let states = tape.concatenate_time(&[outputs.text_states, outputs.latents]);
    let trace = &outputs.trace;
    let mut kept = vec![
        ("cond_latents".to_owned(), trace.condition.unwrap()),
        ("gpt_input".to_owned(), trace.input.unwrap()),
        ("final_norm_out".to_owned(), states),
        ("text_logits".to_owned(), outputs.text_logits),
        ("mel_logits".to_owned(), outputs.mel_logits),
    ];
    kept.extend(trace.blocks.iter().enumerate().map(|(i, &v)| (format!("gpt_block_{i}_out"), v)));
    let frames = trace.frames.unwrap();
    let all = kept.iter().map(|(_, v)| *v).chain([frames, losses.total]);
    all.for_each(|value| tape.keep(value));
    tape.backward(losses.total, Backward { recompute, accumulate: false });
    losses.note(&mut tape, 0);
    tape.report_loss(losses.total);
    let mut program = rig.engine.load(tape).unwrap();
    feed(&gpt, &rig, &program, &inputs, &given.mels, &sequences);
    write_targets(&rig, &program, &targets, &sequences);
    let report = rig.engine.run(&mut program, &Control::default()).unwrap();

    let wanted = goldens::tensors("gpt/outputs.safetensors");
    assert_eq!(wanted.len(), kept.len() + 1, "every golden value is compared");
    let read = |value: Value| rig.engine.read(&program, value).unwrap();
    let theirs = &wanted["cond_encoder_out"];
    assert_near("cond_encoder_out", &read(frames), &transposed(theirs.floats(), &theirs.shape), LOGITS);
    for (name, value) in &kept {
        assert_eq!(program.tape().shape(*value).dims(), wanted[name].shape, "{name}");
        assert_near(name, &read(*value), wanted[name].floats(), LOGITS);
    }
    let scalars = goldens::json("gpt/scalars.json");
    let scalar = |name: &str| scalars[name].as_f64().unwrap();
    relative("loss_total", report.loss, scalar("loss_total"));
    relative("loss_text", report.notes[0], scalar("loss_text"));
    relative("loss_mel", report.notes[1], scalar("loss_mel"));
    let counted = sequences.mel_targets.iter().filter(|&&t| t >= 0).count();
    assert_eq!(report.notes[3], counted as f32);
    assert_eq!(report.notes[2], correct(&read(outputs.mel_logits), &sequences.mel_targets));

    let gradients = goldens::tensors("gpt_grads/grads.safetensors");
    let mut square = 0.0;
    assert_eq!(gradients.len(), rig.released.len(), "every gradient is compared");
    for (name, gradient) in &gradients {
        assert_near_by_length(name, &rig.gradient(name), gradient.floats(), GRADIENTS);
        square += length(&rig.gradient(name)).powi(2);
    }
    relative("grad_l2_norm", square.sqrt() as f32, scalar("grad_l2_norm"));
}

/// Number of rows of logits whose maximum is at the target.
fn correct(logits: &[f32], targets: &[i32]) -> f32 {
    let rows = logits.chunks_exact(logits.len() / targets.len()).zip(targets);
    let right = rows.filter(|(row, target)| {
        let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        i32::try_from(best).unwrap() == **target
    });
    right.count() as f32
}

#[test]
fn gpt_matches_the_reference() {
    for device in rig::devices("gpt_matches_the_reference") {
        assert_matches(device, 0, Recompute::Marked);
    }
}

#[test]
fn gpt_with_recomputation_matches_the_reference() {
    for device in rig::devices("gpt_with_recomputation_matches_the_reference") {
        assert_matches(device, 1, Recompute::Norms);
    }
}

/// Teacher-forced with the corrected masks, the states equal those of the reference during generation.
#[test]
fn teacher_forced_states_match_the_generation_of_the_reference() {
    let decode = goldens::tensors("decode/decode.safetensors");
    let codes: Vec<&String> = decode.keys().filter(|name| name.ends_with(".codes")).collect();
    assert!(!codes.is_empty(), "nothing was decoded");
    for device in rig::devices("teacher_forced_states_match_the_generation_of_the_reference") {
        let (mut rig, gpt) = golden(device);
        let given = reference_inputs();
        let mels = &given.mels[..given.mels.len() / given.batch];
        for name in &codes {
            let (run, text) = (name.trim_end_matches(".codes"), name.split('.').next().unwrap());
            let (text, codes) = (ids(&decode[&format!("{text}.ids")]), ids(&decode[*name]));
            // Row i predicted code i: the last code is predicted but not fed.
            let fed = &codes[..codes.len() - 1];
            let rows = Rows {
                text: &text,
                text_lengths: &[text.len() as i32],
                codes: fed,
                code_lengths: &[fed.len() as i32],
                prompts: &[],
            };
            let sequences = Masks::Corrected.sequences(&gpt.sizes, &rows).unwrap();
            let shape = GptShape { batch: 1, ..given.shape(&sequences) };
            let mut tape = rig.tape();
            let inputs = GptInputs::new(&mut tape, &gpt.sizes, shape, Masks::Corrected);
            let outputs = gpt.forward(&mut tape, &inputs, &GptOptions::default());
            // Again, from the voice's conditioning vectors only.
            let voice = tape.input([1, gpt.sizes.perceiver.latents, gpt.sizes.width], DType::F32);
            let latents =
                gpt.latents(&mut tape, &GptInputs { condition: Condition::Latents(voice), ..inputs });
            let kept = [outputs.trace.condition.unwrap(), outputs.mel_logits, outputs.latents, latents];
            kept.into_iter().for_each(|value| tape.keep(value));
            let mut program = rig.engine.load(tape).unwrap();
            feed(&gpt, &rig, &program, &inputs, mels, &sequences);
            rig.engine.write(&program, voice, decode["cond_latents"].floats()).unwrap();
            rig.engine.run(&mut program, &Control::default()).unwrap();
            let wanted =
                ["cond_latents", &format!("{run}.logits"), &format!("{run}.latents")].map(str::to_owned);
            let wanted = wanted.iter().chain([&wanted[2]]);
            for (name, value) in wanted.zip(kept) {
                let found = rig.engine.read(&program, value).unwrap();
                assert_near(&format!("{device} {name}"), &found, decode[name].floats(), LOGITS);
            }
        }
    }
}

#[test]
fn v2_matches_the_release() {
    let mut declare = Declare::new(0.01, TRAINED);
    let sizes = GptSizes::v2();
    Gpt::declare(&mut declare, sizes.clone());
    rig::assert_released(declare, "gpt.", |_| false, 441_018_563);
    let mut declare = Declare::new(0.01, TRAINED);
    Gpt::declare(&mut declare, sizes);
    let (layout, _) = declare.finish();
    assert_eq!(layout.trained_count(), 441_018_563);
    let groups = layout.chunk_groups();
    let decay = |name: &str| {
        let parameter = layout.get(layout.find(name).unwrap());
        layout.groups()[usize::from(groups[parameter.offset / CHUNK])].weight_decay
    };
    for name in ["gpt.h.29.attn.c_attn.weight", "mel_head.weight", "conditioning_encoder.init.weight"] {
        assert_eq!(decay(&format!("gpt.{name}")), 0.01, "{name}");
    }
    for name in ["conditioning_perceiver.latents", "conditioning_perceiver.norm.gamma"] {
        assert_eq!(decay(&format!("gpt.{name}")), 0.01, "{name}");
    }
    let spared =
        ["text_embedding.weight", "mel_pos_embedding.emb.weight", "gpt.ln_f.weight", "mel_head.bias"];
    for name in spared.into_iter().chain(["conditioning_encoder.attn.0.norm.weight", "final_norm.bias"]) {
        assert_eq!(decay(&format!("gpt.{name}")), 0.0, "{name}");
    }
}

#[test]
fn initial_parameters_match_the_original() {
    let mut declare = Declare::new(0.01, TRAINED);
    Gpt::declare(&mut declare, GptSizes::v2());
    let (layout, _) = declare.finish();
    let init = |name: &str| layout.get(layout.find(name).unwrap()).init;
    assert_eq!(init("gpt.gpt.h.0.attn.c_attn.weight"), Init::Normal(0.02));
    assert_eq!(init("gpt.gpt.h.0.mlp.c_proj.weight"), Init::Normal(0.02 / 60f32.sqrt()));
    assert_eq!(init("gpt.conditioning_encoder.attn.0.proj_out.weight"), Init::Zeros);
    assert_eq!(init("gpt.conditioning_encoder.init.bias"), Init::Uniform(1.0 / 80f32.sqrt()));
    assert_eq!(init("gpt.conditioning_perceiver.latents"), Init::Normal(0.02));
    assert_eq!(init("gpt.mel_head.weight"), Init::Uniform(1.0 / 32.0));
}
