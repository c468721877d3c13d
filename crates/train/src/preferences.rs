//! Values that training prefers over the defaults of the table of settings: arrays that every stage needs, and the recipe of
//! the demo corpus. Whatever the user sets overrides them.

use crate::compute_device::ComputeDevice;
use crate::corpus::read::DEMO_VOICE_SECONDS;
use myxtts_run::config::Origin;
use myxtts_run::plan::Plan;
use myxtts_tensor::Device;

/// The origin of preferred values, in place of a flag.
pub const ORIGIN: &str = "train";

/// Recipe of the demo corpus: as small as it can be and still be understood.
const DEMO: [(&str, &str); 18] = [
    ("model.preset", "tiny"),
    ("data.cleaner", "default"),
    ("data.batch_size", "16"),
    ("data.vocab_size", "160"),
    ("training.validate_every", "300"),
    ("training.checkpoint_every", "300"),
    ("training.sample_every", "0"),
    // These slow learning down at first, and the demo has only a few hundred steps.
    ("training.code_masking", "0"),
    ("training.recombination", "0"),
    ("training.alignment_weight", "0"),
    ("training.acoustic_weight", "0"),
    ("training.decoder_mel_weight", "45"),
    ("training.diagonal_start", "false"),
    ("training.codebook_start", "false"),
    ("training.code_token_weight", "0"),
    ("training.text_dropout", "0"),
    ("training.dropout", "0.05"),
    ("data.val_fraction", "0.02"),
];

/// Overrides of [`DEMO`] on a CPU: three minutes on two fast cores. Of 49 held-out sentences, 47 are nearest to their own recording;
/// with the preset's 700 steps of the GPT it was 34.
const DEMO_ON_CPU: [(&str, &str); 1] = [("training.gpt_steps", "1500")];

/// Overrides of [`DEMO`] on a GPU, which has time for more steps. This many steps over this few sentences would overfit without more
/// dropout.
const DEMO_ON_GPU: [(&str, &str); 4] = [
    ("training.dvae_steps", "3000"),
    ("training.gpt_steps", "5000"),
    ("training.decoder_steps", "4000"),
    ("training.dropout", "0.15"),
];

/// Preferred values as path and value, the ones with the highest priority first. `plan` says whether a corpus is named.
pub fn preferred(plan: &Plan, machine: ComputeDevice) -> Vec<(&'static str, String)> {
    let mut preferred = Vec::new();
    if plan.data.train_data.is_empty() {
        let steps: &[_] = if machine.device == Device::Cpu { &DEMO_ON_CPU } else { &DEMO_ON_GPU };
        // Nothing is held out of the demo corpus if another one is validated on.
        let acts = |path: &str| plan.data.val_data.is_none() || path != "data.val_fraction";
        let recipe = steps.iter().chain(&DEMO).filter(|(path, _)| acts(path));
        preferred.extend(recipe.map(|(path, value)| (*path, (*value).to_owned())));
        // The demo corpus has no longer clips: none is left out.
        preferred.push(("data.max_seconds", DEMO_VOICE_SECONDS.to_string()));
    }
    let columns = "tokens, dvae_mel, conditioning_mel, speaker_mel, waveform";
    preferred.push(("data.cache_columns", columns.to_owned()));
    preferred
}

/// Whether the user set a value; not the table, the tuning, or a preference of this module.
pub(crate) fn is_set_by_user(plan: &Plan, path: &str) -> bool {
    plan.value(path).is_some_and(|resolved| {
        let origin = &resolved.origin;
        origin.is_explicit() && !matches!(origin, Origin::CommandLine { flag } if flag == ORIGIN)
    })
}
