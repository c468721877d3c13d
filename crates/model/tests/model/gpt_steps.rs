//! Tests what the reference does not cover: training, dropout, adapters, short conditioning clips, bf16.

use crate::gpt::{feed, write_lengths, write_targets};
use crate::rig::{self, Rig, TRAINED, assert_near, length};
use myxtts_model::lora::is_adapter;
use myxtts_model::sequence::repeat_frames;
use myxtts_model::*;
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::random::Stream;
use myxtts_tensor::{Backward, Control, DType, Device, Layout, Precision, Recompute, Tape};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A small GPT with random inputs.
struct Small {
    rig: Rig,
    gpt: Gpt,
    sequences: Sequences,
    shape: GptShape,
    mels: Vec<f32>,
}

fn small(device: Device, lora: Option<&LoraSizes>) -> Small {
    let only: TrainedFilter<'_> = &is_adapter;
    let mut declare = Declare::new(0.01, if lora.is_some() { only } else { TRAINED });
    let mut sizes = GptSizes::of(2, 64, 2, 300, 30);
    sizes.conditioning.blocks = 2;
    let mut gpt = Gpt::declare(&mut declare, sizes);
    if let Some(lora) = lora {
        gpt.add_lora(&mut declare, lora);
    }
    let mut random = Stream::new(3);
    let text: Vec<i32> = (0..3 * 8).map(|_| 2 + random.below(298) as i32).collect();
    let codes: Vec<i32> = (0..3 * 12).map(|_| random.below(30) as i32).collect();
    let rows = Rows {
        text: &text,
        text_lengths: &[8, 5, 3],
        codes: &codes,
        code_lengths: &[12, 7, 4],
        prompts: &[],
    };
    let sequences = Masks::Corrected.sequences(&gpt.sizes, &rows).unwrap();
    let shape = GptShape { batch: 3, frames: 20, text: sequences.text, mel: sequences.mel };
    let mels = random.normals(3 * 20 * 80);
    Small { rig: Rig::fresh(device, declare), gpt, sequences, shape, mels }
}

impl Small {
    /// Trains on one batch and returns the loss and the fraction of correct codes at the first and the last step.
    fn train(&mut self, steps: usize, options: GptOptions) -> [(f32, f32); 2] {
        let mut tape = self.rig.tape();
        let inputs = GptInputs::new(&mut tape, &self.gpt.sizes, self.shape, Masks::Corrected);
        let targets = GptTargets::new(&mut tape, self.shape);
        let outputs = self.gpt.forward(&mut tape, &inputs, &options);
        let losses = self.gpt.losses(&mut tape, &outputs, &targets, LossWeights::default());
        tape.backward(losses.total, Backward { recompute: Recompute::Norms, accumulate: false });
        losses.note(&mut tape, 4);
        tape.update(losses.total, AdamW::default());
        let mut program = self.rig.engine.load(tape).unwrap();
        feed(&self.gpt, &self.rig, &program, &inputs, &self.mels, &self.sequences);
        write_targets(&self.rig, &program, &targets, &self.sequences);
        let mut seen = Vec::new();
        for step in 0..steps as u64 {
            let control = Control { rate: 3e-3, seed: step, ..Control::default() };
            let report = self.rig.engine.run(&mut program, &control).unwrap();
            assert!(report.good, "step {step}: {report:?}");
            seen.push((report.loss, report.notes[6] / report.notes[7]));
        }
        [seen[0], seen[steps - 1]]
    }

    fn logits(&mut self) -> Vec<f32> {
        let mut tape = self.rig.tape();
        let inputs = GptInputs::new(&mut tape, &self.gpt.sizes, self.shape, Masks::Corrected);
        let logits = self.gpt.forward(&mut tape, &inputs, &GptOptions::default()).mel_logits;
        tape.keep(logits);
        let mut program = self.rig.engine.load(tape).unwrap();
        feed(&self.gpt, &self.rig, &program, &inputs, &self.mels, &self.sequences);
        self.rig.engine.run(&mut program, &Control::default()).unwrap();
        self.rig.engine.read(&program, logits).unwrap()
    }
}

#[test]
fn gpt_overfits_one_batch() {
    for device in rig::devices("gpt_overfits_one_batch") {
        let options = GptOptions { dropout: 0.1, recomputed_blocks: 1 };
        let [first, last] = small(device, None).train(60, options);
        println!("{device}: {first:?} to {last:?}");
        assert!(first.0 > 3.0 && first.1 < 0.3, "{first:?}");
        assert!(last.0 < 0.5 && last.1 > 0.95, "{last:?}");
    }
}

/// Recomputing a block samples the same dropout mask as the first time.
#[test]
fn recomputed_blocks_use_the_same_dropout() {
    let [kept, again] = [0, 2].map(|recomputed_blocks| {
        small(Device::Cpu, None).train(4, GptOptions { dropout: 0.1, recomputed_blocks })
    });
    assert_eq!(kept, again);
}

#[test]
fn adapters_start_as_identity_are_trained_alone_and_can_be_folded() {
    for device in rig::devices("adapters_start_as_identity_are_trained_alone_and_can_be_folded") {
        let sizes = LoraSizes { rank: 4, alpha: 8.0, ..LoraSizes::default() };
        let plain = small(device, None).logits();
        let mut small = small(device, Some(&sizes));
        assert_near("before", &small.logits(), &plain, 1e-6);
        let weights = |rig: &Rig, adapters: bool| -> BTreeMap<String, Vec<f32>> {
            let some = rig.released.iter().filter(|one| is_adapter(&one.name) == adapters);
            some.map(|one| (one.name.clone(), rig.weight(&one.name))).collect()
        };
        let before = [false, true].map(|which| weights(&small.rig, which));
        let [first, last] = small.train(30, GptOptions { dropout: 0.1, recomputed_blocks: 1 });
        println!("{device}: {first:?} to {last:?}");
        assert!(last.0 < first.0 - 0.2, "{first:?} to {last:?}");
        let after = [false, true].map(|which| weights(&small.rig, which));
        assert!(before[0] == after[0], "a weight that is not an adapter has moved");
        assert_eq!(after[1].len(), 2 * 4 * small.gpt.sizes.layers);
        assert!(after[1].iter().all(|(name, data)| *data != before[1][name]), "an adapter has not moved");
        let adapted = small.logits();
        assert!(adapted.iter().zip(&plain).any(|(a, b)| (a - b).abs() > 0.1), "adapters do nothing");
        for adapter in small.gpt.adapters().collect::<Vec<_>>() {
            let engine = &mut small.rig.engine;
            let [w, a, b] =
                [adapter.weight, adapter.a, adapter.b].map(|id| engine.read_parameter(id).unwrap());
            let merged = adapter.merged(&w, &a, &b, sizes.rank);
            engine.write_parameter(adapter.weight, &merged).unwrap();
            engine.write_parameter(adapter.b, &vec![0.0; b.len()]).unwrap();
        }
        assert_near("folded in", &small.logits(), &adapted, 1e-4);
    }
}

/// Conditioning vectors of windows of frames, with or without lengths.
fn condition(small: &mut Small, mels: &[f32], frames: usize, lengths: Option<&[i32]>) -> Vec<f32> {
    let batch = mels.len() / 80 / frames;
    let mut tape = small.rig.tape();
    let input = tape.input([batch, frames, 80], DType::F32);
    let values = lengths.map(|_| FrameLengths {
        frames: tape.input([batch], DType::I32),
        with_latents: tape.input([batch], DType::I32),
    });
    let vectors = small.gpt.condition(&mut tape, input, values);
    tape.keep(vectors);
    let mut program = small.rig.engine.load(tape).unwrap();
    small.rig.engine.write(&program, input, mels).unwrap();
    if let (Some(values), Some(lengths)) = (values, lengths) {
        write_lengths(&small.rig, &program, values, &small.gpt, lengths);
    }
    small.rig.engine.run(&mut program, &Control::default()).unwrap();
    small.rig.engine.read(&program, vectors).unwrap()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    let difference: Vec<f32> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    length(&difference) / length(b)
}

/// Short clips: padded by repetition and masked after their end, they keep their voice; one of the two alone is not
/// enough.
#[test]
fn short_clip_in_a_long_window_keeps_its_voice() {
    let mut small = small(Device::Cpu, None);
    // Frames that are all away from silence, like log-mels.
    let clip: Vec<f32> = Stream::new(8).normals(10 * 80).iter().map(|x| x + 2.0).collect();
    let alone = condition(&mut small, &clip, 10, None);
    for (frames, allowed) in [(20, 1e-5), (24, 0.05)] {
        let mut window = vec![0.0; frames * 80];
        window[..clip.len()].copy_from_slice(&clip);
        let silent = [None, Some(&[10][..])].map(|l| condition(&mut small, &window, frames, l));
        repeat_frames(&mut window, 80, &[10]);
        let repeated = [None, Some(&[10][..])].map(|l| condition(&mut small, &window, frames, l));
        let [silent, hidden] = silent.map(|x| distance(&x, &alone));
        let [twice, ours] = repeated.map(|x| distance(&x, &alone));
        println!("{frames}: silence {silent:.4}, hidden {hidden:.4}; repeated {twice:.4}, hidden {ours:.1e}");
        assert!(ours < allowed && ours < 0.2 * silent.min(hidden).min(twice));
    }
}

/// A bf16 tape can be built for every part, though only CUDA runs it.
#[test]
fn step_can_be_built_in_bf16() {
    let mut declare = Declare::new(0.01, TRAINED);
    let mut gpt = Gpt::declare(&mut declare, GptSizes::of(2, 64, 2, 300, 30));
    gpt.add_lora(&mut declare, &LoraSizes { feed_forward: false, ..LoraSizes::default() });
    let layout: Arc<Layout> = declare.finish().0;
    let mut tape = Tape::new(layout, Precision::Bf16);
    let shape = GptShape { batch: 2, frames: 9, text: 7, mel: 11 };
    let (inputs, targets) =
        (GptInputs::new(&mut tape, &gpt.sizes, shape, Masks::Corrected), GptTargets::new(&mut tape, shape));
    let outputs = gpt.forward(&mut tape, &inputs, &GptOptions { dropout: 0.1, recomputed_blocks: 1 });
    let losses =
        gpt.losses(&mut tape, &outputs, &targets, LossWeights { smoothing: 0.1, ..Default::default() });
    tape.backward(losses.total, Backward { recompute: Recompute::Norms, accumulate: false });
    losses.note(&mut tape, 0);
    tape.update(losses.total, AdamW::default());
    assert_eq!(tape.info(outputs.mel_logits).dtype, DType::Bf16);
}
