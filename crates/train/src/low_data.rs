//! How a voice is learnt from little speech: settings chosen from the hours, speakers and texts of the corpus.
//!
//! A GPT trained as for hundreds of hours learns an hour of speech by heart before it learns to read: its validation loss
//! rises after a few hundred steps, and what it says has nothing to do with the text. `bench/results/low_data_*.md` has
//! what each of these settings does alone and together.

use crate::training_data::Corpus;
use myxtts_data::record::DVAE_MEL;
use myxtts_run::plan::{Plan, Preset, StageKind};
use std::collections::HashSet;
use std::fmt;

/// Below this many hours of speech the settings of this module are used.
pub const LITTLE_SPEECH_HOURS: f64 = 20.0;

/// What the settings depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Hours of speech that are learnt from.
    pub hours: f64,
    /// Clips that are learnt from.
    pub clips: usize,
    /// Their speakers.
    pub speakers: usize,
}

impl Facts {
    /// Of the training side of a corpus.
    pub fn of(corpus: &Corpus) -> Facts {
        let source = &*corpus.source;
        let column = source.columns().iter().position(|column| *column == DVAE_MEL);
        let frames: u64 = column.map_or(0, |column| {
            corpus.train.iter().map(|&record| u64::from(source.rows(record as usize, column))).sum()
        });
        let speakers: HashSet<u32> = corpus.train.iter().map(|&r| source.speaker(r as usize)).collect();
        let hop_seconds = 256.0 / 22_050.0;
        Facts {
            hours: frames as f64 * hop_seconds / 3600.0,
            clips: corpus.train.len(),
            speakers: speakers.len(),
        }
    }

    /// Whether there is so little speech that a GPT learns it by heart.
    pub fn is_little(&self) -> bool {
        self.hours < LITTLE_SPEECH_HOURS
    }
}

/// A setting that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Its path.
    pub key: &'static str,
    /// Its value, in words.
    pub value: String,
    /// Why.
    pub why: &'static str,
}

/// Audio codes for little speech. More codes say more of the sound; that each is seen less often is made up for by codes that
/// follow the tokens and a GPT that starts from their vectors.
const AUDIO_CODES: usize = 8192;
/// Steps for little speech: after these the DVAE hardly improves on held-out clips. The decoder was measured after 2,400 steps
/// and still sounded rough; these take six minutes on an H200, and how it sounds after them is not measured yet.
const DVAE_STEPS: u64 = 5_000;
const DECODER_STEPS: u64 = 10_000;
/// Times the GPT passes over every clip, and the fewest steps that come of it.
const GPT_EPOCHS: f64 = 110.0;
const LEAST_GPT_STEPS: u64 = 1_500;

/// Fills the settings that are left open; what the user wrote stays. With enough speech they are all off. `from_nothing`:
/// training does not start from a model.
pub fn choose(plan: &mut Plan, facts: &Facts, from_nothing: bool) -> Vec<Choice> {
    let mut choosing = Choosing { little: facts.is_little(), chosen: Vec::new() };
    if from_nothing {
        choose_for_new_models(plan, facts, &mut choosing);
    }
    let training = &mut plan.training;
    choosing.share(
        &mut training.code_masking,
        ("training.code_masking", 0.45),
        "what comes next must be found in the text, not in the codes before",
    );
    choosing.share(
        &mut training.recombination,
        ("training.recombination", 0.7),
        "pieces of clips in new orders cannot be learnt by heart",
    );
    choosing.share(
        &mut training.alignment_weight,
        ("training.alignment_weight", 0.3),
        "the GPT is asked which letter it is speaking",
    );
    choosing.share(
        &mut training.text_dropout,
        ("training.text_dropout", 0.1),
        "what the text changes can guide the speech",
    );
    choosing.switch(
        &mut training.diagonal_start,
        "training.diagonal_start",
        "attention need not discover that speech follows the text",
    );
    choosing.switch(
        &mut training.codebook_start,
        "training.codebook_start",
        "what is learnt of one code holds for those that sound like it",
    );
    if choosing.little && training.dropout.is_none() {
        training.dropout = Some(0.3);
        choosing.add("training.dropout", &0.3, "less is learnt by heart");
    }
    choosing.chosen
}

/// What only a model that begins from nothing can be given.
fn choose_for_new_models(plan: &mut Plan, facts: &Facts, choosing: &mut Choosing) {
    choosing.share(
        &mut plan.training.code_token_weight,
        ("training.code_token_weight", 0.3),
        "audio codes tell sounds apart that words are told apart by, so that the GPT can find them in the text",
    );
    // The smallest preset is for processors, where thousands of codes would take most of the time.
    if !choosing.little || plan.model.preset == Preset::Tiny {
        return;
    }
    if plan.model.audio_codes.is_none() {
        plan.model.audio_codes = Some(AUDIO_CODES);
        choosing.add("model.audio_codes", &AUDIO_CODES, "more of the sound survives");
    }
    let rows = plan.data.batch_size.max(1) as f64;
    let of_gpt = (GPT_EPOCHS * facts.clips as f64 / rows).ceil() as u64;
    let why = "more would be learnt by heart";
    for (stage, key, steps, why) in [
        (StageKind::Dvae, "training.dvae_steps", DVAE_STEPS, "held-out clips hardly gain from more"),
        (StageKind::Gpt, "training.gpt_steps", of_gpt.max(LEAST_GPT_STEPS), why),
        (StageKind::Decoder, "training.decoder_steps", DECODER_STEPS, "minutes on a GPU instead of an hour"),
    ] {
        let usual = plan.recipe(stage, false).steps;
        let setting = match stage {
            StageKind::Dvae => &mut plan.training.dvae_steps,
            StageKind::Gpt => &mut plan.training.gpt_steps,
            StageKind::Decoder => &mut plan.training.decoder_steps,
        };
        if setting.is_none() && steps < usual {
            *setting = Some(steps);
            choosing.add(key, &steps, why);
        }
    }
}

struct Choosing {
    little: bool,
    chosen: Vec<Choice>,
}

impl Choosing {
    fn add(&mut self, key: &'static str, value: &dyn fmt::Display, why: &'static str) {
        self.chosen.push(Choice { key, value: value.to_string(), why });
    }

    /// A number that is 0 with enough speech.
    fn share(&mut self, setting: &mut Option<f64>, (key, value): (&'static str, f64), why: &'static str) {
        if setting.is_none() {
            *setting = Some(if self.little { value } else { 0.0 });
            if self.little {
                self.add(key, &value, why);
            }
        }
    }

    /// A switch that is off with enough speech.
    fn switch(&mut self, setting: &mut Option<bool>, key: &'static str, why: &'static str) {
        if setting.is_none() {
            *setting = Some(self.little);
            if self.little {
                self.add(key, &true, why);
            }
        }
    }
}

/// The choices in words, for whoever starts a run; nothing where there are none.
pub fn lines(facts: &Facts, chosen: &[Choice]) -> Vec<String> {
    if chosen.is_empty() {
        return Vec::new();
    }
    let speakers = if facts.speakers == 1 { "speaker" } else { "speakers" };
    let mut lines = vec![format!(
        "little speech: {:.1} hours, {} clips, {} {speakers}; below {LITTLE_SPEECH_HOURS} hours these settings keep the GPT from \
         learning it by heart",
        facts.hours, facts.clips, facts.speakers
    )];
    lines.extend(chosen.iter().map(|choice| format!("  {} = {}: {}", choice.key, choice.value, choice.why)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use myxtts_run::config::{HostResources, Sources};

    fn plan() -> Plan {
        Plan::resolve(&Sources::for_host(HostResources::detect())).expect("the defaults are a plan")
    }

    const LITTLE: Facts = Facts { hours: 2.0, clips: 2_000, speakers: 1 };

    #[test]
    fn little_speech_fills_what_is_open_and_keeps_what_is_written() {
        let mut plan = plan();
        plan.training.code_masking = Some(0.1);
        let chosen = choose(&mut plan, &LITTLE, true);
        assert_eq!(plan.training.code_masking, Some(0.1));
        assert_eq!((plan.training.recombination, plan.training.diagonal_start), (Some(0.7), Some(true)));
        assert_eq!((plan.training.code_token_weight, plan.model.audio_codes), (Some(0.3), Some(8192)));
        assert!(chosen.iter().all(|choice| choice.key != "training.code_masking"));
        assert_eq!(lines(&LITTLE, &chosen).len(), chosen.len() + 1);
        // A run that goes on finds everything chosen.
        let before = plan.clone();
        assert!(choose(&mut plan, &LITTLE, true).is_empty());
        assert_eq!(plan.training, before.training);
    }

    #[test]
    fn steps_follow_the_clips_and_never_exceed_the_preset() {
        let mut plan = plan();
        plan.data.batch_size = 50;
        choose(&mut plan, &LITTLE, true);
        assert_eq!(plan.training.gpt_steps, Some(4_400));
        assert_eq!((plan.training.dvae_steps, plan.training.decoder_steps), (Some(5_000), Some(10_000)));
        let mut tiny = self::plan();
        tiny.model.preset = Preset::Tiny;
        choose(&mut tiny, &LITTLE, true);
        assert_eq!((tiny.training.gpt_steps, tiny.model.audio_codes), (None, None));
    }

    #[test]
    fn a_model_that_training_starts_from_keeps_its_codes_and_steps() {
        let mut plan = plan();
        let chosen = choose(&mut plan, &LITTLE, false);
        assert_eq!((plan.model.audio_codes, plan.training.code_token_weight), (None, None));
        assert_eq!((plan.training.gpt_steps, plan.training.text_dropout), (None, Some(0.1)));
        assert!(!chosen.is_empty());
    }

    #[test]
    fn much_speech_is_trained_as_before() {
        let mut plan = plan();
        let much = Facts { hours: 24.0, clips: 13_000, speakers: 1 };
        assert!(choose(&mut plan, &much, true).is_empty());
        assert_eq!((plan.training.code_masking, plan.training.diagonal_start), (Some(0.0), Some(false)));
        assert_eq!((plan.training.dropout, plan.model.audio_codes), (None, None));
        assert_eq!((plan.training.text_dropout, plan.training.gpt_steps), (Some(0.0), None));
    }
}
