//! Tests slots: each generates the same speech as on its own, whatever the others do; on CUDA, bf16 gives the same as
//! f32 except where rounding decides.

use crate::goldens;
use crate::gpt::{ids, sizes};
use crate::rig::{assert_near, devices, length};
use myxtts_model::generate::{Guided, SpeechRequest};
use myxtts_model::sampling::{Guards, Sampler};
use myxtts_model::{
    GenerateError, Generator, GptSizes, Released, SamplingOptions, SlotOptions, Slots, Spoken, StopReason,
};
use myxtts_tensor::random::Stream;
use myxtts_tensor::{Device, Error, Precision};

type Weights = dyn Fn(&Released) -> Result<Vec<f32>, Error>;

fn golden_weights() -> impl Fn(&Released) -> Result<Vec<f32>, Error> {
    let weights = goldens::tensors("gpt/weights.safetensors");
    move |parameter| Ok(parameter.to_ours(weights[&parameter.name].floats()))
}

fn generator(device: Device, sizes: &GptSizes, guided: bool, weights: &Weights) -> Generator {
    let new = if guided { Generator::guided } else { Generator::new };
    let mut generator = new(device, Precision::F32, sizes).unwrap();
    generator.load(weights).unwrap();
    generator
}

fn slots(device: Device, sizes: &GptSizes, slots: usize, guided: bool, weights: &Weights) -> Slots {
    let options = SlotOptions { slots, guided, ..SlotOptions::default() };
    let mut slots = Slots::new(device, sizes, options).unwrap();
    slots.load(weights).unwrap();
    slots
}

fn greedy(penalty: f32) -> SamplingOptions {
    let guards = Guards::none();
    SamplingOptions { greedy: true, repetition_penalty: penalty, guards, ..SamplingOptions::default() }
}

fn sampled(seed: u64) -> SamplingOptions {
    SamplingOptions { seed, guards: Guards::none(), ..SamplingOptions::default() }
}

fn texts() -> Vec<Vec<i32>> {
    let decode = goldens::tensors("decode/decode.safetensors");
    ["text0.ids", "text1.ids"].map(|name| ids(&decode[name])).to_vec()
}

fn voice() -> Vec<f32> {
    goldens::tensors("decode/decode.safetensors")["cond_latents"].floats().to_vec()
}

/// An untrained GPT of a size whose matrix products are split between warps.
fn untrained(layers: usize, width: usize, heads: usize) -> (GptSizes, Box<Weights>) {
    let mut sizes = GptSizes::of(layers, width, heads, 50, 94);
    (sizes.start_text, sizes.max_text, sizes.max_audio) = (7, 150, 120);
    sizes.conditioning.blocks = 1;
    (sizes.perceiver.latents, sizes.perceiver.depth) = (8, 1);
    let weights = |parameter: &Released| {
        let count: usize = parameter.shape.iter().product();
        let hash: u64 =
            parameter.name.bytes().fold(7, |hash, b| hash.wrapping_mul(31).wrapping_add(u64::from(b)));
        let mut stream = Stream::new(hash);
        let wide = if parameter.name.contains("embedding") { 0.7 } else { 0.06 };
        let norm = parameter.name.contains("ln_") || parameter.name.contains("final_norm");
        let base = if norm && parameter.name.ends_with("weight") { 1.0 } else { 0.0 };
        Ok((0..count).map(|_| base + wide * stream.normal()).collect())
    };
    (sizes, Box::new(weights))
}

/// Networks for a device: with a GPU, also one of XTTS-v2's width.
fn untrained_for(device: Device) -> Vec<(GptSizes, Box<Weights>)> {
    let mut all = vec![untrained(3, 256, 8)];
    if device != Device::Cpu {
        all.push(untrained(2, 1024, 16));
    }
    all
}

fn random_voice(sizes: &GptSizes, seed: u64) -> Vec<f32> {
    Stream::new(seed).normals(sizes.perceiver.latents * sizes.width)
}

fn random_text(sizes: &GptSizes, count: usize, seed: u64) -> Vec<i32> {
    let mut stream = Stream::new(seed);
    (0..count).map(|_| stream.below(sizes.text_vocabulary) as i32).collect()
}

/// On the CPU, slots are the generator itself.
#[test]
fn slots_match_the_generator() {
    let weights = golden_weights();
    let mut generator = generator(Device::Cpu, &sizes(), false, &weights);
    let mut slots = slots(Device::Cpu, &sizes(), 2, false, &weights);
    assert!(!slots.advances_together());
    for text in &texts() {
        for options in [greedy(5.0), sampled(1), sampled(2), SamplingOptions { max_codes: 3, ..sampled(1) }] {
            let alone = generator.speak(&voice(), text, &options).unwrap();
            assert_eq!(slots.speak(&voice(), text, &options).unwrap(), alone);
        }
    }
    let mut guided = self::slots(Device::Cpu, &sizes(), 1, true, &weights);
    let mut generator = self::generator(Device::Cpu, &sizes(), true, &weights);
    let text = Guided { text: &texts()[0], textless: Some(&texts()[1]) };
    let options = SamplingOptions { guidance: 3.0, ..greedy(1.0) };
    let alone = generator.speak(&voice(), text, &options).unwrap();
    assert_eq!(guided.speak(&voice(), text, &options).unwrap(), alone);
    let refused = slots.join(&voice(), text, &options);
    assert!(matches!(refused, Err(GenerateError::NotGuided)), "{refused:?}");
}

#[test]
fn slots_can_be_joined_and_released_at_any_time() {
    let weights = golden_weights();
    let (voice, texts) = (voice(), texts());
    for device in devices("slots_can_be_joined_and_released_at_any_time") {
        let mut slots = slots(device, &sizes(), 2, false, &weights);
        let whole = slots.speak(&voice, &texts[0], &sampled(1)).unwrap();
        let first = slots.join(&voice, &texts[1], &sampled(4)).unwrap();
        slots.advance(2).unwrap();
        let second = slots.join(&voice, &texts[0], &sampled(1)).unwrap();
        let refused = slots.join(&voice, &texts[0], &sampled(1));
        assert!(matches!(refused, Err(GenerateError::NoFreeSlot { slots: 2 })), "{refused:?}");
        slots.advance(1).unwrap();
        slots.leave(first).unwrap();
        assert!(matches!(slots.take(first), Err(GenerateError::ReleasedSlot)));
        assert_eq!(slots.free(), 1);
        let third = slots.join(&voice, &texts[1], &sampled(5)).unwrap();
        assert!(matches!(slots.take(first), Err(GenerateError::ReleasedSlot)));
        let (mut codes, mut latents, mut ended) = (Vec::new(), Vec::new(), None);
        while ended.is_none() {
            slots.advance(3).unwrap();
            let taken = slots.take(second).unwrap();
            codes.extend(taken.codes);
            latents.extend(taken.latents);
            ended = taken.ended;
        }
        assert_eq!(Spoken { codes, latents, ended: ended.unwrap() }, whole, "{device}");
        // A slot that has ended generates no more.
        let taken = slots.take(second).unwrap();
        assert!(taken.codes.is_empty() && taken.ended.is_some());
        slots.advance(2).unwrap();
        assert!(!slots.take(third).unwrap().codes.is_empty());
        [second, third].into_iter().for_each(|slot| slots.leave(slot).unwrap());
        assert_eq!(slots.free(), 2);
    }
}

#[test]
fn stop_reasons_match_the_generator() {
    let sizes = sizes();
    let stuck = |parameter: &Released| {
        let mut data = vec![0.0; parameter.shape.iter().product()];
        if parameter.name == "gpt.mel_head.bias" {
            data[5] = 1.0;
        }
        Ok::<_, Error>(data)
    };
    let (voice, text) = (voice(), texts()[0].clone());
    for device in devices("stop_reasons_match_the_generator") {
        let mut slots = slots(device, &sizes, 1, false, &stuck);
        let guarded =
            SamplingOptions { guards: Guards { loop_codes: 9, codes_per_token: 0.0 }, ..greedy(1.0) };
        let spoken = slots.speak(&voice, &text, &guarded).unwrap();
        assert_eq!(
            (spoken.ended, &spoken.codes[..], spoken.latents.len()),
            (StopReason::Loop, &[5][..], sizes.width)
        );
        let few = SamplingOptions { max_codes: 2, ..greedy(1.0) };
        let spoken = slots.speak(&voice, &text, &few).unwrap();
        assert_eq!((spoken.ended, spoken.codes.len()), (StopReason::Limit, 2));
        let none = SamplingOptions { max_codes: 0, ..greedy(1.0) };
        assert_eq!(slots.speak(&voice, &text, &none).unwrap().codes.len(), 0);
        slots.load(|parameter| Ok::<_, Error>(vec![f32::NAN; parameter.shape.iter().product()])).unwrap();
        let wrong = slots.speak(&voice, &text, &guarded);
        assert!(matches!(wrong, Err(GenerateError::NotNumbers { codes: 0 })), "{device} {wrong:?}");
        assert_eq!(slots.free(), 1);
    }
}

/// bf16 against f32 on the reference's network: the same codes, nearly the same states.
#[test]
fn bf16_codes_match_the_reference() {
    let decode = goldens::tensors("decode/decode.safetensors");
    let penalty = goldens::json("decode/summary.json")["repetition_penalty"].as_f64().unwrap() as f32;
    let weights = golden_weights();
    for device in devices("bf16_codes_match_the_reference") {
        let mut slots = slots(device, &sizes(), 1, false, &weights);
        assert_eq!(slots.advances_together(), device != Device::Cpu);
        for run in decode.keys().filter_map(|name| name.strip_suffix(".codes")) {
            let (text, mode) = run.split_once('.').unwrap();
            let options = greedy(if mode == "greedy" { 1.0 } else { penalty });
            let spoken = slots.speak(&voice(), &ids(&decode[&format!("{text}.ids")]), &options).unwrap();
            let mut wanted = ids(&decode[&format!("{run}.codes")]);
            let latents = decode[&format!("{run}.latents")].floats();
            if wanted.last() == Some(&sizes().stop_audio) {
                wanted.pop();
            }
            let same = spoken.codes.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
            println!("{device} {run}: {same} of {} codes are the same", wanted.len());
            // Margins of the reference are 0.016 to 0.12, and bf16 moves logits by about 0.01.
            assert_eq!(spoken.codes, wanted, "{device} {run}");
            assert_near(&format!("{device} {run} latents"), &spoken.latents, latents, 0.15);
        }
    }
}

/// One seed each, in batches of 1, 8 and 64, joined first or late: bit-identical.
#[test]
fn output_does_not_depend_on_the_batch() {
    for device in devices("output_does_not_depend_on_the_batch") {
        for (sizes, weights) in untrained_for(device) {
            assert_independent(device, &sizes, &*weights);
        }
    }
}

fn assert_independent(device: Device, sizes: &GptSizes, weights: &Weights) {
    let count = if device == Device::Cpu { 3 } else { 64 };
    let steps = if device == Device::Cpu { 4 } else { 110 };
    let request = |i: u64| {
        let options = SamplingOptions {
            max_codes: steps,
            top_k: [50, 0, 5][i as usize % 3],
            greedy: i % 7 == 6,
            ..sampled(i)
        };
        (random_voice(sizes, i), random_text(sizes, 5 + 2 * i as usize, i), options)
    };
    let mut slots = slots(device, sizes, count, false, weights);
    let alone: Vec<Spoken> = (0..count as u64)
        .map(|i| {
            let (voice, text, options) = request(i);
            slots.speak(&voice, &text, &options).unwrap()
        })
        .collect();
    let different = alone.iter().filter(|spoken| spoken.codes != alone[0].codes).count();
    assert!(different + 1 == count || different > count / 2, "{different} of {count} differ");
    for late in [0, 1, 7] {
        let mut of: Vec<_> = (0..count as u64)
            .map(|i| {
                let (voice, text, options) = request(i);
                let slot = slots.join(&voice, &text, &options).unwrap();
                slots.advance(late).unwrap();
                (slot, Spoken { codes: Vec::new(), latents: Vec::new(), ended: StopReason::Observer })
            })
            .collect();
        while of.iter().any(|(_, spoken)| spoken.ended == StopReason::Observer) {
            slots.advance(5).unwrap();
            for (slot, spoken) in of.iter_mut().filter(|(_, spoken)| spoken.ended == StopReason::Observer) {
                let taken = slots.take(*slot).unwrap();
                spoken.codes.extend(taken.codes);
                spoken.latents.extend(taken.latents);
                spoken.ended = taken.ended.unwrap_or(StopReason::Observer);
            }
        }
        for (i, (slot, spoken)) in of.into_iter().enumerate() {
            assert_eq!(spoken.codes, alone[i].codes, "{device}: slot {i}, joined {late} apart");
            assert!(spoken == alone[i], "{device}: states of slot {i}, joined {late} apart");
            slots.leave(slot).unwrap();
        }
    }
}

/// States in bf16 against f32 on a network of a usual shape, over given codes: greedy, so that both choose the same
/// codes unless two are close.
#[test]
fn bf16_states_are_close_to_f32() {
    for device in devices("bf16_states_are_close_to_f32") {
        for (sizes, weights) in untrained_for(device) {
            assert_rounded(device, &sizes, &*weights);
        }
    }
}

fn assert_rounded(device: Device, sizes: &GptSizes, weights: &Weights) {
    let mut slots = slots(device, sizes, 1, true, weights);
    let mut generator = generator(Device::Cpu, sizes, true, weights);
    for (i, guidance) in [(1, 0.0), (2, 0.0), (3, 1.5)] {
        let (voice, text) = (random_voice(sizes, i), random_text(sizes, 40 * i as usize, i));
        let textless = [3, 4];
        let options = SamplingOptions { max_codes: 24, guidance, ..greedy(5.0) };
        let text = Guided { text: &text, textless: Some(&textless) };
        let mut margins = Vec::new();
        let wanted = generator
            .speak_with_observer(&voice, text, &options, &mut |step| {
                let mut logits = step.logits.to_vec();
                logits.sort_by(|a, b| b.total_cmp(a));
                margins.push(logits[0] - logits[1]);
                true
            })
            .unwrap();
        let found = slots.speak(&voice, text, &options).unwrap();
        let same = found.codes.iter().zip(&wanted.codes).take_while(|(a, b)| a == b).count();
        let rows = (same + 1).min(found.latents.len() / sizes.width);
        let (a, b) = (&found.latents[..rows * sizes.width], &wanted.latents[..rows * sizes.width]);
        let apart: Vec<f32> = a.iter().zip(b).map(|(a, b)| a - b).collect();
        let far = length(&apart) / length(b);
        println!(
            "{device} {i}: {same} of {} codes, states {far:.1e} of their length apart",
            wanted.codes.len()
        );
        assert!(far < if device == Device::Cpu { 1e-6 } else { 0.02 }, "{device} {i}: {far}");
        if let Some(margin) = margins.get(same).filter(|_| same < wanted.codes.len()) {
            assert!(
                device != Device::Cpu && *margin < 0.25,
                "{device} {i}: another code at a margin of {margin}"
            );
        }
    }
}

/// Codes sampled from known logits: a network of zeros outputs the bias of its head at every step.
#[test]
fn device_samples_match_the_sampler_and_its_distribution() {
    let mut sizes = sizes();
    (sizes.max_audio, sizes.audio_vocabulary) = (605, 66);
    (sizes.start_audio, sizes.stop_audio) = (64, 65);
    let mut logits: Vec<f32> = Stream::new(5).normals(66).into_iter().map(|x| 1.5 * x).collect();
    // Two equally likely codes, and never STOP.
    (logits[20], logits[65]) = (logits[10], -1e9);
    let bias = logits.clone();
    let weights = move |parameter: &Released| {
        let count = parameter.shape.iter().product();
        Ok(if parameter.name == "gpt.mel_head.bias" { bias.clone() } else { vec![0.0; count] })
    };
    let all = SamplingOptions { repetition_penalty: 1.0, ..sampled(0) };
    let cases = [
        SamplingOptions { temperature: 1.0, top_k: 0, top_p: 1.0, ..all.clone() },
        SamplingOptions { temperature: 0.75, top_k: 10, top_p: 0.85, ..all.clone() },
        SamplingOptions { temperature: 1.3, top_k: 0, top_p: 0.6, ..all.clone() },
        SamplingOptions { repetition_penalty: 2.0, ..all },
    ];
    for device in devices("device_samples_match_the_sampler_and_its_distribution") {
        let (count, rounds) = if device == Device::Cpu { (1, 1) } else { (64, 3) };
        let mut slots = slots(device, &sizes, count, false, &weights);
        let (voice, text) = (vec![0.0; sizes.perceiver.latents * sizes.width], vec![3, 4]);
        for options in &cases {
            let (mut counts, mut total, mut unlike) = (vec![0usize; 66], 0usize, 0usize);
            for round in 0..rounds {
                let seed = |i: usize| (round * count + i) as u64;
                let joined: Vec<_> = (0..count)
                    .map(|i| {
                        let options = SamplingOptions { seed: seed(i), max_codes: 602, ..options.clone() };
                        slots.join(&voice, &text, &options).unwrap()
                    })
                    .collect();
                slots.advance(602).unwrap();
                for (i, slot) in joined.into_iter().enumerate() {
                    let taken = slots.take(slot).unwrap();
                    assert_eq!((taken.codes.len(), taken.ended), (602, Some(StopReason::Limit)));
                    let mut sampler =
                        Sampler::new(&SamplingOptions { seed: seed(i), ..options.clone() }, 66, 64);
                    for &code in &taken.codes {
                        unlike += usize::from(sampler.next(&logits) != Some(code));
                        counts[code as usize] += 1;
                        total += 1;
                    }
                    slots.leave(slot).unwrap();
                }
            }
            println!("{device} {options:?}: {unlike} of {total} draws are not the sampler's");
            // A sample at the boundary of two codes may round to either.
            assert!(unlike * 20_000 <= total, "{device}: {unlike} of {total}");
            if options.repetition_penalty == 1.0 {
                assert_shares(&counts, &shares(&logits, options), &format!("{device}"));
            }
        }
    }
}

/// Probability of each code by definition: softmax after top-k and top-p.
fn shares(logits: &[f32], options: &SamplingOptions) -> Vec<f64> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if options.top_k > 0 {
        let least = logits[order[options.top_k - 1]];
        order.retain(|&i| logits[i] >= least);
    }
    let weight = |i: usize| f64::from((logits[i] - logits[order[0]]) / options.temperature).exp();
    let total: f64 = order.iter().map(|&i| weight(i)).sum();
    let (mut sum, mut left) = (0.0, Vec::new());
    for &i in &order {
        // Kept while the codes before it sum to less than top-p.
        if left.is_empty() || sum < f64::from(options.top_p) * total {
            left.push(i);
        }
        sum += weight(i);
    }
    let total: f64 = left.iter().map(|&i| weight(i)).sum();
    let mut shares = vec![0.0; logits.len()];
    left.iter().for_each(|&i| shares[i] = weight(i) / total);
    shares
}

/// Pearson's chi-square test: more than five standard deviations from its mean fails.
fn assert_shares(counts: &[usize], shares: &[f64], what: &str) {
    let total = counts.iter().sum::<usize>() as f64;
    let (mut chi, mut cells, mut rest) = (0.0, 0.0, (0.0, 0.0));
    for (&count, &share) in counts.iter().zip(shares) {
        assert!(share > 0.0 || count == 0, "{what}: an impossible code was sampled");
        let (count, wanted) = (count as f64, share * total);
        if wanted >= 5.0 {
            chi += (count - wanted).powi(2) / wanted;
            cells += 1.0;
        } else {
            rest = (rest.0 + count, rest.1 + wanted);
        }
    }
    if rest.1 >= 5.0 {
        chi += (rest.0 - rest.1).powi(2) / rest.1;
        cells += 1.0;
    }
    let freedom: f64 = cells - 1.0;
    println!("{what}: chi-square {chi:.1} with {freedom} degrees of freedom over {total} draws");
    assert!(chi < freedom + 5.0 * (2.0 * freedom).sqrt(), "{what}: chi-square {chi} of {freedom}");
}

#[test]
fn a_hundred_thousand_samples_follow_the_distribution() {
    let logits: Vec<f32> = Stream::new(6).normals(200);
    for options in [
        SamplingOptions { repetition_penalty: 1.0, ..sampled(1) },
        SamplingOptions { repetition_penalty: 1.0, temperature: 1.0, top_k: 0, top_p: 1.0, ..sampled(2) },
    ] {
        let mut sampler = Sampler::new(&options, 200, 198);
        let mut counts = vec![0; 200];
        (0..100_000).for_each(|_| counts[sampler.next(&logits).unwrap() as usize] += 1);
        assert_shares(&counts, &shares(&logits, &options), "the sampler");
    }
}

#[test]
fn results_do_not_change_with_more_texts_than_slots() {
    for device in devices("more texts than slots") {
        for (sizes, weights) in untrained_for(device) {
            let mut slots = slots(device, &sizes, 3, false, &*weights);
            let voices: Vec<Vec<f32>> = (0..8).map(|seed| random_voice(&sizes, seed)).collect();
            let texts: Vec<Vec<i32>> =
                (0..8).map(|seed| random_text(&sizes, 3 + seed as usize, seed)).collect();
            // Of different lengths, so that some slots become free before others.
            let options =
                |i: usize| SamplingOptions { max_codes: [5, 40, 17, 60][i % 4], ..sampled(i as u64) };
            let request = |i: usize| SpeechRequest {
                voice: &voices[i],
                text: Guided::from(&texts[i]),
                options: options(i),
            };
            let requests: Vec<SpeechRequest<'_>> = (0..8).map(request).collect();
            let together = slots.speak_all(&requests).unwrap();
            for (i, said) in together.iter().enumerate() {
                let alone = slots.speak(&voices[i], &texts[i], &options(i)).unwrap();
                assert_eq!(*said, alone, "{device}, text {i}");
            }
            assert!(slots.speak_all(&[]).unwrap().is_empty());
            // A request that fails occupies no slot.
            let bad = SpeechRequest { text: Guided::from(&[][..]), ..request(0) };
            assert!(slots.speak_all(&[request(1), bad]).is_err());
            assert_eq!(slots.free(), 3);
        }
    }
}
