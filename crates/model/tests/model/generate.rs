//! Tests generation against the reference: the same codes, the logits they were chosen from, and their states.

use crate::goldens;
use crate::gpt::{ids, reference_inputs, sizes};
use crate::rig::{assert_near, devices};
use myxtts_model::generate::Guided;
use myxtts_model::sampling::Guards;
use myxtts_model::{GenerateError, Generator, SamplingOptions, StopReason};
use myxtts_tensor::{Device, Error, Precision};

const LOGITS: f32 = 1e-4;

fn golden(device: Device) -> Generator {
    let weights = goldens::tensors("gpt/weights.safetensors");
    let mut generator = Generator::new(device, Precision::F32, &sizes()).unwrap();
    generator.load(|parameter| Ok::<_, Error>(parameter.to_ours(weights[&parameter.name].floats()))).unwrap();
    generator
}

/// Options of the reference run: the most likely code, with or without a repetition penalty.
fn greedy_options(penalty: f32) -> SamplingOptions {
    let guards = Guards::none();
    SamplingOptions { greedy: true, repetition_penalty: penalty, guards, ..SamplingOptions::default() }
}

#[test]
fn codes_logits_and_states_match_the_reference() {
    let decode = goldens::tensors("decode/decode.safetensors");
    let penalty = goldens::json("decode/summary.json")["repetition_penalty"].as_f64().unwrap() as f32;
    let runs: Vec<&str> = decode.keys().filter_map(|name| name.strip_suffix(".codes")).collect();
    assert!(runs.iter().any(|r| r.ends_with(".greedy")) && runs.iter().any(|r| r.ends_with(".penalised")));
    for device in devices("codes_logits_and_states_match_the_reference") {
        let mut generator = golden(device);
        let given = reference_inputs();
        let voice = generator.condition(&[&given.mels[..given.mels.len() / given.batch]]).unwrap();
        assert_near(&format!("{device} voice"), &voice, decode["cond_latents"].floats(), LOGITS);
        for run in &runs {
            let (text, mode) = run.split_once('.').unwrap();
            let options = greedy_options(if mode == "greedy" { 1.0 } else { penalty });
            let (mut codes, mut logits) = (Vec::new(), Vec::new());
            let text = ids(&decode[&format!("{text}.ids")]);
            let spoken = generator
                .speak_with_observer(&voice, &text, &options, &mut |step| {
                    codes.push(step.code);
                    logits.extend_from_slice(step.logits);
                    true
                })
                .unwrap();
            let named = |what: &str| &decode[&format!("{run}.{what}")];
            assert_eq!(codes, ids(named("codes")), "{device} {run}");
            assert_near(&format!("{device} {run} logits"), &logits, named("logits").floats(), LOGITS);
            assert_near(
                &format!("{device} {run} latents"),
                &spoken.latents,
                named("latents").floats(),
                LOGITS,
            );
            let stopped = codes.last() == Some(&sizes().stop_audio);
            assert_eq!(spoken.ended, if stopped { StopReason::Stop } else { StopReason::Limit });
            assert_eq!(spoken.codes, codes[..codes.len() - usize::from(stopped)]);
        }
    }
}

/// Earlier generations do not influence later ones, and the seed determines all sampling.
#[test]
fn generation_does_not_depend_on_earlier_texts() {
    let decode = goldens::tensors("decode/decode.safetensors");
    let mut generator = golden(Device::Cpu);
    let voice = decode["cond_latents"].floats();
    let texts: Vec<Vec<i32>> = ["text0.ids", "text1.ids"].map(|name| ids(&decode[name])).to_vec();
    let drawn = |seed| SamplingOptions { seed, guards: Guards::none(), ..SamplingOptions::default() };
    let first = generator.speak(voice, &texts[0], &drawn(1)).unwrap();
    let other = generator.speak(voice, &texts[1], &drawn(1)).unwrap();
    assert_ne!(first.codes, other.codes);
    assert_eq!(generator.speak(voice, &texts[0], &drawn(1)).unwrap(), first);
    assert_ne!(generator.speak(voice, &texts[0], &drawn(2)).unwrap().codes, first.codes);
}

/// Guidance moves speech away from what it would be without its text; with the same text it changes nothing.
#[test]
fn guidance_amplifies_the_effect_of_the_text() {
    let decode = goldens::tensors("decode/decode.safetensors");
    let weights = goldens::tensors("gpt/weights.safetensors");
    let voice = decode["cond_latents"].floats();
    let texts: Vec<Vec<i32>> = ["text0.ids", "text1.ids"].map(|name| ids(&decode[name])).to_vec();
    let options = |guidance| SamplingOptions { guidance, ..greedy_options(1.0) };
    for device in devices("guidance_amplifies_the_effect_of_the_text") {
        let mut plain = golden(device);
        let mut guided = Generator::guided(device, Precision::F32, &sizes()).unwrap();
        guided
            .load(|parameter| Ok::<_, Error>(parameter.to_ours(weights[&parameter.name].floats())))
            .unwrap();
        assert!(guided.is_guided() && !plain.is_guided());
        let unguided = plain.speak(voice, &texts[0], &options(1.0)).unwrap();
        let mut speak = |textless: &[i32], guidance| {
            let text = Guided { text: &texts[0], textless: Some(textless) };
            guided.speak(voice, text, &options(guidance)).unwrap()
        };
        assert_eq!(speak(&texts[1], 0.0), unguided, "{device}: no guidance");
        assert_eq!(speak(&texts[0], 1.0).codes, unguided.codes, "{device}: nothing to be guided by");
        assert_ne!(speak(&texts[1], 3.0).codes, unguided.codes, "{device}: away from another text");
    }
}

#[test]
fn guards_and_observers_stop_generation() {
    let decode = goldens::tensors("decode/decode.safetensors");
    let mut generator = golden(Device::Cpu);
    let (voice, text) = (decode["cond_latents"].floats(), ids(&decode["text0.ids"]));
    let width = sizes().width;
    let mut seen = 0;
    let spoken = generator
        .speak_with_observer(voice, &text, &greedy_options(1.0), &mut |_| {
            seen += 1;
            seen < 3
        })
        .unwrap();
    assert_eq!(
        (spoken.ended, spoken.codes.len(), spoken.latents.len()),
        (StopReason::Observer, 3, 3 * width)
    );
    let few = SamplingOptions { max_codes: 2, ..greedy_options(1.0) };
    assert_eq!(generator.speak(voice, &text, &few).unwrap().ended, StopReason::Limit);
    // An untrained model repeats itself: its head predicts the same code for any input.
    let head = "gpt.mel_head.";
    let mut stuck = Generator::new(Device::Cpu, Precision::F32, &sizes()).unwrap();
    stuck
        .load(|parameter| {
            let mut data = vec![0.0; parameter.shape.iter().product()];
            if parameter.name == format!("{head}bias") {
                data[5] = 1.0;
            }
            Ok::<_, Error>(data)
        })
        .unwrap();
    let guarded =
        SamplingOptions { guards: Guards { loop_codes: 9, codes_per_token: 0.0 }, ..greedy_options(1.0) };
    let spoken = stuck.speak(voice, &text, &guarded).unwrap();
    assert_eq!((spoken.ended, &spoken.codes[..], spoken.latents.len()), (StopReason::Loop, &[5][..], width));
    stuck.load(|parameter| Ok::<_, Error>(vec![f32::NAN; parameter.shape.iter().product()])).unwrap();
    let wrong = stuck.speak(voice, &text, &guarded);
    assert!(matches!(wrong, Err(GenerateError::NotNumbers { codes: 0 })), "{wrong:?}");
}

#[test]
fn texts_and_voices_of_another_model_are_rejected() {
    let mut generator = golden(Device::Cpu);
    let sizes = sizes();
    let voice = vec![0.0; sizes.perceiver.latents * sizes.width];
    let mut speak =
        |voice: &[f32], text: &[i32]| generator.speak(voice, text, &greedy_options(1.0)).unwrap_err();
    assert!(matches!(speak(&voice[1..], &[3]), GenerateError::Voice { .. }));
    assert!(matches!(speak(&voice, &[]), GenerateError::NoText));
    assert!(matches!(speak(&voice, &vec![3; sizes.max_text + 1]), GenerateError::TextTooLong { .. }));
    for id in [-1, sizes.text_vocabulary as i32] {
        assert!(matches!(speak(&voice, &[3, id]), GenerateError::Token { .. }));
    }
    assert!(matches!(generator.condition(&[]), Err(GenerateError::NoFrames)));
    let longest = vec![3; sizes.max_text];
    assert!(generator.speak(&voice, &longest, &greedy_options(5.0)).is_ok());
}

#[test]
fn teacher_forcing_gives_the_states_of_generation() {
    let decode = goldens::tensors("decode/decode.safetensors");
    for device in devices("teacher_forcing_gives_the_states_of_generation") {
        let mut generator = golden(device);
        let voice = decode["cond_latents"].floats();
        for name in ["text0.ids", "text1.ids"] {
            let text = ids(&decode[name]);
            let (mut logits, sizes) = (Vec::new(), sizes());
            let said = generator
                .speak_with_observer(voice, &text, &greedy_options(5.0), &mut |step| {
                    logits.push(step.logits.to_vec());
                    true
                })
                .unwrap();
            let given = generator.forced(voice, &text, &said.codes).unwrap();
            assert_eq!(given.latents.len(), (said.codes.len() + 1) * sizes.width);
            // The state after the last code is not known if generation was stopped.
            let known = said.latents.len();
            assert_near(&format!("{device} {name}"), &given.latents[..known], &said.latents, LOGITS);
            let ended = said.ended == StopReason::Stop;
            let targets: Vec<i32> =
                said.codes.iter().copied().chain(ended.then_some(sizes.stop_audio)).collect();
            let cost = |(row, &code): (&Vec<f32>, &i32)| {
                let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
                sum.ln() - f64::from(row[code as usize])
            };
            let first = generator.forced(voice, &text, &said.codes[..targets.len().min(3)]).unwrap();
            let total: f64 = logits.iter().zip(&targets).take(3).map(cost).sum();
            let stop = cost((&logits[3], &sizes.stop_audio));
            assert!(
                (first.loss - (total + stop) / 4.0).abs() < 1e-3,
                "{} for {}",
                first.loss,
                (total + stop) / 4.0
            );
            assert!((0.0..=1.0).contains(&given.accuracy));
        }
        let none = generator.forced(voice, &[3], &[]).unwrap();
        assert_eq!(none.latents.len(), sizes().width);
        let mut refused = |codes: &[i32]| generator.forced(voice, &[3], codes).unwrap_err();
        assert!(matches!(refused(&vec![1; sizes().max_audio + 1]), GenerateError::CodesTooLong { .. }));
        for id in [-1, sizes().start_audio, sizes().stop_audio] {
            assert!(matches!(refused(&[2, id]), GenerateError::Code { .. }));
        }
        assert!(generator.forced(voice, &[3], &vec![1; sizes().max_audio]).is_ok());
    }
}
