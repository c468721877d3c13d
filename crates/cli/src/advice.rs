//! What a user should know of the settings of a run before it begins: those that have no effect where it trains, in what it
//! trains, or on what it trains from.

use myxtts_run::config::{GPT_ONLY, GPU_ONLY};
use myxtts_run::plan::{Plan, Stage};
use myxtts_tensor::Device;
use myxtts_train::Machine;
use myxtts_train::sizes::Sizes;

use crate::settings::Settings;

/// Mel frames that a code of the GPT stands for.
const FRAMES_OF_CODE: usize = 4;

/// What a run begins with.
pub struct Beginning<'a> {
    /// Its settings, as they were just resolved.
    pub plan: &'a Plan,
    /// Where it trains.
    pub machine: Machine,
    /// The one stage it trains, where it is one.
    pub only: Option<Stage>,
    /// Whether it begins from a model.
    pub from: bool,
}

/// Every note, each a whole sentence.
pub fn advice(begun: &Beginning<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(without_gpu(begun));
    notes.extend(of_the_gpt_alone(begun));
    notes.extend(from_nothing(begun));
    notes.extend(beyond_the_model(begun));
    if begun.from && begun.only == Some(Stage::Dvae) {
        notes.push(
            "training the DVAE further gives its codes another meaning: the model's GPT and decoder have learnt the old \
             ones, and speak well again only when they are trained on the new ones (`--stage gpt`, then `--stage decoder`)"
                .to_owned(),
        );
    }
    notes
}

/// Whether the user set it, and not a command's own preference.
fn is_set(plan: &Plan, path: &str) -> bool {
    plan.value(path).is_some_and(|resolved| Settings::is_users(&resolved.origin))
}

/// Settings that act on a GPU alone, on a processor.
fn without_gpu(begun: &Beginning<'_>) -> Option<String> {
    let set: Vec<&str> = GPU_ONLY.iter().copied().filter(|path| is_set(begun.plan, path)).collect();
    if begun.machine.device != Device::Cpu || set.is_empty() {
        return None;
    }
    Some(format!("no effect on a CPU, which shares its memory with the batches: {}", set.join(", ")))
}

/// Settings of the GPT stage, where others are trained as well or instead.
fn of_the_gpt_alone(begun: &Beginning<'_>) -> Option<String> {
    let others = [Stage::Dvae, Stage::Decoder].into_iter().any(|stage| {
        begun.only.is_none_or(|only| only == stage) && begun.plan.recipe(stage, begun.from).steps > 0
    });
    let set = GPT_ONLY.iter().filter(|(path, _)| is_set(begun.plan, path));
    let set: Vec<String> = set.map(|(path, why)| format!("{path} ({why})")).collect();
    (others && !set.is_empty()).then(|| format!("these act in the stage `gpt` alone: {}", set.join(", ")))
}

/// Settings that leave weights as they are, which nobody has trained.
fn from_nothing(begun: &Beginning<'_>) -> Option<String> {
    let training = &begun.plan.training;
    let kept = match (training.lora_rank, training.freeze_layers) {
        (Some(rank), _) => format!("training.lora_rank = {rank} leaves the GPT itself as it is"),
        (None, 0) => return None,
        (None, layers) => {
            format!("training.freeze_layers = {layers} leaves the lowest layers of the GPT as they are")
        }
    };
    let trained = begun.only.is_none_or(|only| only == Stage::Gpt);
    (trained && !begun.from).then(|| {
        format!("{kept}, and without --from they have learnt nothing: name a trained model with --from")
    })
}

/// Limits that the network does not reach.
fn beyond_the_model(begun: &Beginning<'_>) -> Vec<String> {
    let (data, sizes) = (&begun.plan.data, Sizes::without_vocabulary(begun.plan, begun.machine));
    let limits = [
        ("data.max_text_tokens", data.max_text_tokens, sizes.gpt.max_text, "tokens"),
        ("data.max_mel_frames", data.max_mel_frames, sizes.gpt.max_audio * FRAMES_OF_CODE, "mel frames"),
    ];
    let beyond = limits.into_iter().filter(|(_, asked, most, _)| asked > most);
    beyond
        .map(|(path, asked, most, unit)| {
            format!("{path} = {asked} is more than the GPT has places for: clips of more than {most} {unit} are left out of its stage")
        })
        .collect()
}
