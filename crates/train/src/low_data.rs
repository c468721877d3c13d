//! How a voice is learnt from little speech: settings chosen from the hours, speakers and texts of the corpus.
//!
//! A GPT trained as for hundreds of hours learns an hour of speech by heart before it learns to read: its validation loss
//! rises after a few hundred steps, and what it says has nothing to do with the text. `bench/results/low_data_*.md` has
//! what each of these settings does alone and together.

use crate::pipeline::Corpus;
use myxtts_data::record::DVAE_MEL;
use myxtts_run::plan::Plan;
use std::collections::HashSet;

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

/// Fills the settings that are left open; what the user wrote stays. With enough speech they are all off.
pub fn choose(plan: &mut Plan, facts: &Facts) -> Vec<Choice> {
    let little = facts.is_little();
    let mut chosen = Vec::new();
    let training = &mut plan.training;
    let mut share = |setting: &mut Option<f64>, key, value: f64, why| {
        if setting.is_none() {
            *setting = Some(if little { value } else { 0.0 });
            if little {
                chosen.push(Choice { key, value: value.to_string(), why });
            }
        }
    };
    share(
        &mut training.code_masking,
        "training.code_masking",
        0.3,
        "what comes next must be found in the text, not in the codes before",
    );
    share(
        &mut training.recombination,
        "training.recombination",
        0.7,
        "pieces of clips in new orders cannot be learnt by heart",
    );
    share(
        &mut training.alignment_weight,
        "training.alignment_weight",
        0.3,
        "the GPT is asked which letter it is speaking",
    );
    if training.diagonal_start.is_none() {
        training.diagonal_start = Some(little);
        if little {
            let why = "attention need not discover that speech follows the text";
            chosen.push(Choice { key: "training.diagonal_start", value: "true".into(), why });
        }
    }
    if little && training.dropout.is_none() {
        training.dropout = Some(0.2);
        let why = "less is learnt by heart";
        chosen.push(Choice { key: "training.dropout", value: "0.2".into(), why });
    }
    chosen
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
    use myxtts_run::config::{Machine, Sources};

    fn plan() -> Plan {
        Plan::resolve(&Sources::of(Machine::detect())).expect("the defaults are a plan")
    }

    const LITTLE: Facts = Facts { hours: 2.0, clips: 2_000, speakers: 1 };

    #[test]
    fn little_speech_fills_what_is_open_and_keeps_what_is_written() {
        let mut plan = plan();
        plan.training.code_masking = Some(0.1);
        let chosen = choose(&mut plan, &LITTLE);
        assert_eq!(plan.training.code_masking, Some(0.1));
        assert_eq!((plan.training.recombination, plan.training.diagonal_start), (Some(0.7), Some(true)));
        assert!(chosen.iter().all(|choice| choice.key != "training.code_masking"));
        assert_eq!(lines(&LITTLE, &chosen).len(), chosen.len() + 1);
        // A run that goes on finds everything chosen.
        let before = plan.clone();
        assert!(choose(&mut plan, &LITTLE).is_empty());
        assert_eq!(plan.training, before.training);
    }

    #[test]
    fn much_speech_is_trained_as_before() {
        let mut plan = plan();
        let much = Facts { hours: 24.0, clips: 13_000, speakers: 1 };
        assert!(choose(&mut plan, &much).is_empty());
        assert_eq!((plan.training.code_masking, plan.training.diagonal_start), (Some(0.0), Some(false)));
        assert_eq!(plan.training.dropout, None);
    }
}
