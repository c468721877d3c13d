//! Notes on settings without effect, before a run begins.

use myxtts_run::config::{Flag, HostResources, Sources};
use myxtts_run::plan::{Plan, StageKind};
use myxtts_train::ComputeDevice;
use myxtts_train::base_model::BaseParts;
use myxtts_train::notes::{PlannedRun, settings_notes};

/// The notes on a run with these settings, of one stage or of all, from scratch or from a model.
fn notes(set: &[&str], only: Option<StageKind>, base: Option<&BaseParts>) -> String {
    let command_line = set.iter().map(|text| Flag::Set((*text).to_owned())).collect();
    let host = HostResources { cores: 4, memory_bytes: Some(4 << 30) };
    let plan = Plan::resolve(&Sources { command_line, ..Sources::for_host(host) }).unwrap();
    settings_notes(&PlannedRun { plan: &plan, machine: ComputeDevice::CPU, only, base }).join("\n")
}

fn base(parts: &[&str]) -> BaseParts {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

fn complete() -> BaseParts {
    base(&["dvae", "gpt", "decoder", "speaker"])
}

#[test]
fn a_gpu_for_batches_was_said_to_act_in_the_gpt_stage_alone() {
    let set = ["data.data_gpu=0", "data.model_gpu=1", "data.model_start_delay=7"];
    // It computes the mels of the DVAE's batches, which wait for the delay too.
    assert_eq!(notes(&set, Some(StageKind::Dvae), None), "");
    assert_eq!(notes(&set, Some(StageKind::Gpt), None), "");
    // The decoder's states are computed on it, and its batches are not.
    for only in [None, Some(StageKind::Decoder)] {
        let said = notes(&set, only, None);
        assert!(
            said.starts_with("no effect in the decoder stage: data.model_start_delay (")
                && !said.contains("data_gpu ("),
            "{said}"
        );
    }
}

#[test]
fn threads_and_buffers_were_ignored_by_the_decoder_stage_in_silence() {
    let set = ["data.num_workers=3", "data.buffer_size=9"];
    for only in [None, Some(StageKind::Decoder)] {
        let said = notes(&set, only, None);
        let both = "no effect in the decoder stage: data.num_workers (one thread";
        assert!(said.contains(both) && said.contains("data.buffer_size ("), "{said}");
    }
    assert_eq!(notes(&set, Some(StageKind::Gpt), None), "");
    assert_eq!(notes(&["data.prefetch_buffer_size=3"], None, None), "");
    // Only where the decoder is trained.
    assert_eq!(notes(&set, None, Some(&complete())), "");
    let trained = [&set[..], &["training.decoder_steps=5"]].concat();
    assert!(notes(&trained, None, Some(&complete())).contains("in the decoder stage"));
    let without_decoder = base(&["dvae", "gpt"]);
    assert!(notes(&set, None, Some(&without_decoder)).contains("in the decoder stage"));
    let none = [&set[..], &["training.decoder_steps=0"]].concat();
    assert_eq!(notes(&none, None, Some(&without_decoder)), "");
}

#[test]
fn settings_of_new_parts_were_ignored_in_silence_with_a_base_model() {
    let codes = ["model.audio_codes=64"];
    let said = notes(&codes, None, Some(&complete()));
    assert!(said.starts_with("no effect on the model of --from: model.audio_codes;"), "{said}");
    assert_eq!(notes(&codes, None, None), "");
    let starts = ["training.diagonal_start=true", "training.codebook_start=true"];
    for only in [None, Some(StageKind::Gpt)] {
        let said = notes(&starts, only, Some(&complete()));
        let both = "no effect on the model of --from: training.diagonal_start, training.codebook_start;";
        // Not a second note that they act in the GPT stage.
        assert!(said.starts_with(both) && !said.contains("GPT stage only"), "{said}");
    }
    assert_eq!(notes(&starts, Some(StageKind::Gpt), None), "");
    // Settings of a DVAE that is not trained again.
    let dvae = ["training.code_token_weight=0.5", "training.dvae_steps=10"];
    let said = notes(&dvae, None, Some(&complete()));
    assert!(said.contains("training.code_token_weight, training.dvae_steps; its DVAE is not"), "{said}");
    assert!(!notes(&dvae, Some(StageKind::Dvae), Some(&complete())).contains("no effect"));
}

#[test]
fn adapters_and_frozen_layers_of_an_untrained_gpt_were_not_reported() {
    for (set, name) in [
        ("training.lora_rank=2", "training.lora_rank = 2"),
        ("training.freeze_layers=1", "training.freeze_layers = 1"),
    ] {
        for only in [None, Some(StageKind::Gpt)] {
            let said = notes(&[set], only, None);
            assert!(said.contains(name) && said.contains("untrained without --from"), "{said}");
            assert!(!notes(&[set], only, Some(&complete())).contains("untrained"));
        }
    }
}

#[test]
fn steps_of_stages_that_are_not_trained_were_ignored_in_silence() {
    let set = ["training.dvae_steps=5", "training.gpt_steps=6", "training.decoder_steps=7"];
    let said = notes(&set, Some(StageKind::Gpt), None);
    let both = "no effect with --stage gpt, which trains no other stage: training.dvae_steps, training.decoder_steps";
    assert_eq!(said, both);
    assert_eq!(notes(&set, None, None), "");
    // One note for the DVAE of a base model.
    let said = notes(&set[..1], Some(StageKind::Gpt), Some(&complete()));
    assert!(
        said.starts_with("no effect on the model of --from: training.dvae_steps")
            && !said.contains("--stage gpt,"),
        "{said}"
    );
}

#[test]
fn masks_were_ignored_by_the_states_of_the_decoder_in_silence() {
    let said = notes(&["model.masks=coqui"], None, None);
    assert!(said.starts_with("model.masks applies to the GPT stage only: the decoder learns"), "{said}");
    assert_eq!(notes(&["model.masks=coqui"], Some(StageKind::Gpt), None), "");
}

#[test]
fn early_stopping_never_ended_an_adversarial_decoder_stage_and_nothing_said_so() {
    let patience = "training.early_stop_patience=2";
    let said = |set: &[&str], only| notes(&[&[patience], set].concat(), only, None);
    let normal = said(&["model.preset=normal"], None);
    assert!(
        normal.contains("does not end the decoder stage once its discriminators have joined, after 5 %"),
        "{normal}"
    );
    let at_once = said(&["training.discriminator_start=0"], Some(StageKind::Decoder));
    assert!(at_once.contains("at its first step"), "{at_once}");
    assert_eq!(said(&["training.discriminator_start=1"], None), "");
    assert_eq!(said(&["model.preset=tiny"], None), "", "it has none on a CPU");
    assert_eq!(said(&[], Some(StageKind::Gpt)), "");
    assert_eq!(notes(&[], None, None), "");
}
