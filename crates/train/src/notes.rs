//! Notes for the user before a run begins: settings without effect, and limitations of the corpus.

use crate::base_model::BaseParts;
use crate::compute_device::ComputeDevice;
use crate::model::{DVAE, GPT};
use crate::pipeline::due_stages;
use crate::preferences::is_set_by_user;
use crate::run_error::RunError;
use crate::run_request::STEP_SETTINGS;
use crate::sizes::Sizes;
use crate::stages;
use crate::training_data::Corpus;
use myxtts_data::record::RecordSource;
use myxtts_run::config::{GPT_ONLY, GPU_ONLY, NOT_IN_DECODER};
use myxtts_run::plan::{DataPlan, Plan, StageKind};
use myxtts_tensor::Device;
use std::collections::BTreeMap;

/// Number of mel frames per audio code.
const FRAMES_PER_CODE: usize = 4;
/// Number of speakers that are listed by name.
const NAMED_SPEAKERS: usize = 5;

/// Settings that initialise a new GPT.
const NEW_GPT: [&str; 2] = ["training.diagonal_start", "training.codebook_start"];

/// A run that is about to begin.
pub struct PlannedRun<'a> {
    /// Settings of the run.
    pub plan: &'a Plan,
    /// The device of its first replica.
    pub machine: ComputeDevice,
    /// The only stage it trains; `None` trains every stage.
    pub only: Option<StageKind>,
    /// The parts of the model it starts from; `None` from scratch.
    pub base: Option<&'a BaseParts>,
}

impl PlannedRun<'_> {
    /// Whether it trains a stage.
    fn trains(&self, stage: StageKind) -> bool {
        let has = |part: &str| self.base_has(part);
        let has = self.base.map(|_| &has as &dyn Fn(&str) -> bool);
        due_stages(self.plan, self.only, has).contains(&stage)
    }

    /// Whether it begins from a model with this part.
    fn base_has(&self, part: &str) -> bool {
        self.base.is_some_and(|base| base.has(part))
    }
}

/// Notes on settings that have no effect on the device, the stages or the model of a run. Each is a whole sentence.
pub fn settings_notes(run: &PlannedRun<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(gpu_only(run));
    notes.extend(gpt_only(run));
    notes.extend(not_in_decoder(run));
    notes.extend(steps_of_other_stages(run));
    notes.extend(decoder_without_early_stop(run));
    notes.extend(fixed_by_the_base(run));
    notes.extend(untrained_base(run));
    notes.extend(beyond_the_model(run));
    if run.base.is_some() && run.only == Some(StageKind::Dvae) {
        notes.push(
            "training the DVAE further changes the meaning of its codes: the model's GPT and decoder were trained on the old \
             ones, and speak well again only when they are trained on the new ones (`--stage gpt`, then `--stage decoder`)"
                .to_owned(),
        );
    }
    notes
}

/// Settings that act only on a GPU, for a run on the CPU.
fn gpu_only(run: &PlannedRun<'_>) -> Option<String> {
    let set: Vec<&str> = GPU_ONLY.iter().copied().filter(|path| is_set_by_user(run.plan, path)).collect();
    if run.machine.device != Device::Cpu || set.is_empty() {
        return None;
    }
    Some(format!("no effect on a CPU, which shares its memory with the batches: {}", set.join(", ")))
}

/// Settings of the GPT stage in a run that trains other stages too, or only others.
fn gpt_only(run: &PlannedRun<'_>) -> Option<String> {
    let others = [StageKind::Dvae, StageKind::Decoder].into_iter().any(|stage| run.trains(stage));
    // Those of a new GPT have a note of their own where there is a trained one.
    let acts = |path: &str| !(run.base_has(GPT) && NEW_GPT.contains(&path));
    let set = GPT_ONLY.iter().filter(|(path, _)| is_set_by_user(run.plan, path) && acts(path));
    let set: Vec<_> = set.collect();
    match &set[..] {
        _ if !others => None,
        [] => None,
        [(path, why)] => Some(format!("{path} applies to the GPT stage only: {why}")),
        several => {
            let each: Vec<String> = several.iter().map(|(path, why)| format!("{path} ({why})")).collect();
            Some(format!("these apply to the GPT stage only: {}", each.join(", ")))
        }
    }
}

/// Settings that the decoder stage does not use, if it is trained.
fn not_in_decoder(run: &PlannedRun<'_>) -> Option<String> {
    let set = NOT_IN_DECODER.iter().filter(|(path, _)| is_set_by_user(run.plan, path));
    let set: Vec<String> = set.map(|(path, why)| format!("{path} ({why})")).collect();
    (run.trains(StageKind::Decoder) && !set.is_empty())
        .then(|| format!("no effect in the decoder stage: {}", set.join(", ")))
}

/// Steps of stages that a run of one stage does not train.
fn steps_of_other_stages(run: &PlannedRun<'_>) -> Option<String> {
    let only = run.only?;
    let others = STEP_SETTINGS.iter().filter(|(stage, _)| *stage != only);
    // The DVAE of a base model has a note of its own.
    let noted = |path: &str| path == "training.dvae_steps" && run.base_has(DVAE);
    let set = others.map(|(_, path)| *path).filter(|path| is_set_by_user(run.plan, path) && !noted(path));
    let set: Vec<&str> = set.collect();
    (!set.is_empty()).then(|| {
        format!(
            "no effect with --stage {}, which trains no other stage: {}",
            stages::name(only),
            set.join(", ")
        )
    })
}

/// Early stopping, if discriminators join the decoder stage: no score compares its weights from then on.
fn decoder_without_early_stop(run: &PlannedRun<'_>) -> Option<String> {
    let path = "training.early_stop_patience";
    let from = Sizes::without_vocabulary(run.plan, run.machine).discriminators_from;
    (run.trains(StageKind::Decoder) && from < 1.0 && is_set_by_user(run.plan, path)).then(|| {
        let when = match from {
            from if from > 0.0 => format!("after {:.0} % of its steps", 100.0 * from),
            _ => "at its first step".to_owned(),
        };
        format!(
            "{path} does not end the decoder stage once its discriminators have joined, {when}: validation measures the mel \
             distance, not what they improve, and the last weights are kept"
        )
    })
}

/// Settings that a trained part of the base model makes ineffective.
fn fixed_by_the_base(run: &PlannedRun<'_>) -> Vec<String> {
    let set = |paths: &[&'static str]| -> Vec<&'static str> {
        paths.iter().copied().filter(|path| is_set_by_user(run.plan, path)).collect()
    };
    let note = |set: Vec<&str>, why: &str| {
        (!set.is_empty()).then(|| format!("no effect on the model of --from: {}; {why}", set.join(", ")))
    };
    let mut notes = Vec::new();
    if run.base_has(DVAE) {
        notes.extend(note(set(&["model.audio_codes"]), "the number of its audio codes is fixed"));
    }
    if run.base_has(DVAE) && !run.trains(StageKind::Dvae) {
        let why = "its DVAE is not trained again (--stage dvae does that)";
        notes.extend(note(set(&["training.code_token_weight", "training.dvae_steps"]), why));
    }
    if run.base_has(GPT) {
        notes.extend(note(set(&NEW_GPT), "they initialise a new GPT, and this one is trained"));
    }
    notes
}

/// Settings that freeze weights that no model has trained.
fn untrained_base(run: &PlannedRun<'_>) -> Option<String> {
    let training = &run.plan.training;
    let frozen = match (training.lora_rank, training.freeze_layers) {
        (Some(rank), _) => format!("training.lora_rank = {rank} freezes the GPT itself"),
        (None, 0) => return None,
        (None, layers) => format!("training.freeze_layers = {layers} freezes the lowest layers of the GPT"),
    };
    let trained = run.only.is_none_or(|only| only == StageKind::Gpt);
    (trained && !run.base_has(GPT))
        .then(|| format!("{frozen}, which is untrained without --from: name a trained model with --from"))
}

/// Length limits above those of the network.
fn beyond_the_model(run: &PlannedRun<'_>) -> Vec<String> {
    let (data, sizes) = (&run.plan.data, Sizes::without_vocabulary(run.plan, run.machine));
    let limits = [
        ("data.max_text_tokens", data.max_text_tokens, sizes.gpt.max_text, "tokens"),
        ("data.max_mel_frames", data.max_mel_frames, sizes.gpt.max_audio * FRAMES_PER_CODE, "mel frames"),
    ];
    let beyond = limits.into_iter().filter(|(_, limit, most, _)| limit > most);
    beyond
        .map(|(path, limit, most, unit)| {
            format!("{path} = {limit} is above the GPT's limit: its stage leaves out clips of more than {most} {unit}")
        })
        .collect()
}

/// Notes on the clips of a corpus; an error if there is none to train on.
pub(crate) fn corpus_notes(corpus: &Corpus, data: &DataPlan) -> Result<Vec<String>, RunError> {
    let mut notes = Vec::new();
    match corpus.train.len() {
        0 => {
            return Err(RunError::NothingToTrainOn {
                usable: corpus.source.len(),
                fraction: data.val_fraction,
                validation: corpus.validation.len(),
            });
        }
        1 => notes.push(
            "there is one clip to train on: the model will overfit to it and cannot speak other sentences"
                .to_owned(),
        ),
        _ => {}
    }
    if corpus.validation.is_empty() {
        let remedy = match corpus.source.len() {
            1 => "validation needs a second clip",
            _ => "raise data.val_fraction to get them",
        };
        notes.push(format!(
            "the validation set is empty (data.val_fraction = {}): no validation, no best checkpoint, no early stop and no \
             samples at the end; {remedy}",
            data.val_fraction
        ));
    }
    let single = speakers_with_one_clip(&*corpus.source, &corpus.train);
    if !single.is_empty() {
        let names: Vec<&str> = single.iter().take(NAMED_SPEAKERS).map(String::as_str).collect();
        let more = match single.len().saturating_sub(NAMED_SPEAKERS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        notes.push(format!(
            "speakers with one clip: {}{more}; one half of the clip conditions the model, the other half is the target",
            names.join(", ")
        ));
    }
    Ok(notes)
}

fn speakers_with_one_clip(source: &dyn RecordSource, records: &[u32]) -> Vec<String> {
    let mut clips: BTreeMap<u32, usize> = BTreeMap::new();
    for &record in records {
        *clips.entry(source.speaker(record as usize)).or_default() += 1;
    }
    let names = source.speakers();
    let single = clips.into_iter().filter(|(_, count)| *count == 1);
    single.filter_map(|(speaker, _)| names.get(speaker as usize).cloned()).collect()
}
