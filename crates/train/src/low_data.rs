//! Training from little speech: settings chosen from the hours, speakers and texts of the corpus.
//!
//! A GPT trained as for hundreds of hours overfits an hour of speech before it learns to read: its validation loss rises
//! after a few hundred steps, and its speech is unrelated to the text. `bench/results/low_data_index.md` says what was
//! measured of each of these settings, alone or together with others.

use crate::overlay;
use crate::training_data::Corpus;
use myxtts_data::record::{DVAE_MEL, RecordSource, TOKENS};
use myxtts_run::plan::{Plan, Preset, StageKind};
use std::collections::HashSet;
use std::fmt;

/// Below this many hours of speech, the settings of this module are used.
pub const LITTLE_SPEECH_HOURS: f64 = 20.0;

/// The properties of a corpus that the settings depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Hours of training speech.
    pub hours: f64,
    /// Number of training clips.
    pub clips: usize,
    /// Number of training speakers.
    pub speakers: usize,
}

/// Below this many different texts, a GPT trained from scratch hardly learns words outside them.
const FEW_TEXTS: usize = 300;

/// Number of different texts of training records; `None` for records without tokens. Those that cannot be read are left out;
/// training names them.
fn distinct_texts(source: &dyn RecordSource, train: &[u32]) -> Option<usize> {
    if !source.columns().contains(&TOKENS) {
        return None;
    }
    let texts: HashSet<Vec<i32>> =
        train.iter().filter_map(|&record| overlay::integers(source, record as usize, TOKENS).ok()).collect();
    Some(texts.len())
}

impl Facts {
    /// Facts of the training split of a corpus.
    pub fn of(corpus: &Corpus) -> Facts {
        Facts::of_records(&*corpus.source, &corpus.train)
    }

    /// Facts of training records.
    pub fn of_records(source: &dyn RecordSource, train: &[u32]) -> Facts {
        let column = source.columns().iter().position(|column| *column == DVAE_MEL);
        let frames: u64 = column.map_or(0, |column| {
            train.iter().map(|&record| u64::from(source.rows(record as usize, column))).sum()
        });
        let speakers: HashSet<u32> = train.iter().map(|&r| source.speaker(r as usize)).collect();
        let hop_seconds = 256.0 / 22_050.0;
        Facts { hours: frames as f64 * hop_seconds / 3600.0, clips: train.len(), speakers: speakers.len() }
    }

    /// Whether there is so little speech that a GPT overfits it.
    pub fn is_little(&self) -> bool {
        self.hours < LITTLE_SPEECH_HOURS
    }
}

/// A setting that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Path of the setting.
    pub key: &'static str,
    /// Its value, as text.
    pub value: String,
    /// The reason.
    pub why: &'static str,
}

/// Audio codes for little speech. More codes preserve more of the audio. Each is seen less often; codes that follow the
/// tokens, and a GPT initialised with their vectors, make up for that.
const AUDIO_CODES: usize = 8192;
/// Steps for little speech. After this many the DVAE hardly improves on validation clips. The decoder's are those of the
/// measured voice (`bench/results/low_data_voice_20261118.md`); more were not tried with these settings.
const DVAE_STEPS: u64 = 5_000;
const DECODER_STEPS: u64 = 5_200;
/// Weight of the mel distance once the discriminators have joined. Measured: 45 had a lower DNSMOS, 15 more wrong words and a lower
/// speaker cosine.
const DECODER_MEL_WEIGHT: f64 = 30.0;
/// Below this many hours, a model of the preset `small` learns a new voice in its decoder only, in this many steps. Measured with five
/// minutes (`bench/results/low_data_voice_20261118_b.md`, section 2).
const NEW_VOICE_HOURS: f64 = 0.5;
const NEW_VOICE_DECODER_STEPS: u64 = 700;
/// Passes of the GPT over every clip, and the minimum number of steps.
const GPT_EPOCHS: f64 = 110.0;
const MIN_GPT_STEPS: u64 = 1_500;

/// The model that training begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// None.
    FromNothing,
    /// A model without a GPT: a new one is trained.
    WithoutGpt,
    /// A model whose GPT is kept or trained further.
    WithGpt,
}

/// Fills in settings left unset; those that the user set are kept. With enough speech they are all off.
pub fn choose(plan: &mut Plan, facts: &Facts, begin: Begin) -> Vec<Choice> {
    let mut choosing = Choosing { little: facts.is_little(), chosen: Vec::new() };
    if begin == Begin::FromNothing {
        choose_for_new_models(plan, facts, &mut choosing);
    }
    if begin != Begin::WithGpt {
        choose_for_new_gpts(plan, &mut choosing);
    }
    let training = &mut plan.training;
    choosing.share(
        &mut training.code_masking,
        ("training.code_masking", 0.45),
        "the GPT must predict from the text instead of the previous codes",
    );
    choosing.share(
        &mut training.recombination,
        ("training.recombination", 0.7),
        "segments of clips in new orders cannot be memorised",
    );
    choosing.share(
        &mut training.alignment_weight,
        ("training.alignment_weight", 0.3),
        "the GPT also predicts which letter it is speaking",
    );
    choosing.share(
        &mut training.acoustic_weight,
        ("training.acoustic_weight", 10.0),
        "the states given to the decoder also describe how the last code sounds",
    );
    choosing.share(
        &mut training.text_dropout,
        ("training.text_dropout", 0.1),
        "the effect of the text can then guide sampling",
    );
    if choosing.little && training.decoder_mel_weight.is_none() {
        training.decoder_mel_weight = Some(DECODER_MEL_WEIGHT);
        choosing.add(
            "training.decoder_mel_weight",
            &DECODER_MEL_WEIGHT,
            "codes keep too little of the mel to come closer; the discriminators make up the rest",
        );
    }
    if choosing.little && training.dropout.is_none() {
        training.dropout = Some(0.3);
        choosing.add("training.dropout", &0.3, "reduces overfitting");
    }
    choosing.chosen
}

/// Settings that give a small model a new voice from minutes of speech: its decoder is trained, its GPT is kept. Nothing is
/// chosen if the user asks for the GPT.
pub fn choose_for_new_voice(plan: &mut Plan, facts: &Facts) -> Vec<Choice> {
    let training = &mut plan.training;
    let wants_gpt =
        training.gpt_steps.is_some() || training.lora_rank.is_some() || training.freeze_layers > 0;
    let no_decoder = training.decoder_steps == Some(0);
    if facts.hours >= NEW_VOICE_HOURS || plan.model.preset != Preset::Small || wants_gpt || no_decoder {
        return Vec::new();
    }
    let mut choosing = Choosing { little: true, chosen: Vec::new() };
    training.gpt_steps = Some(0);
    let why = "minutes of speech would make it read worse; --gpt-steps N trains it anyway";
    choosing.add("training.gpt_steps", &0, why);
    if training.decoder_steps.is_none() {
        training.decoder_steps = Some(NEW_VOICE_DECODER_STEPS);
        choosing.add("training.decoder_steps", &NEW_VOICE_DECODER_STEPS, "the decoder learns the voice");
    }
    choosing.chosen
}

/// How the weights of a new GPT start.
fn choose_for_new_gpts(plan: &mut Plan, choosing: &mut Choosing) {
    choosing.switch(
        &mut plan.training.diagonal_start,
        "training.diagonal_start",
        "attention need not learn that speech follows the text",
    );
    choosing.switch(
        &mut plan.training.codebook_start,
        "training.codebook_start",
        "what the GPT learns about one code also applies to similar codes",
    );
}

/// Settings that only a model trained from scratch can have.
fn choose_for_new_models(plan: &mut Plan, facts: &Facts, choosing: &mut Choosing) {
    choosing.share(
        &mut plan.training.code_token_weight,
        ("training.code_token_weight", 0.3),
        "audio codes keep the distinctions between phonemes, so that the GPT can predict them from the text",
    );
    // The smallest preset is for CPUs, where thousands of codes would take most of the time.
    if !choosing.little || plan.model.preset == Preset::Tiny {
        return;
    }
    if plan.model.audio_codes.is_none() {
        plan.model.audio_codes = Some(AUDIO_CODES);
        choosing.add("model.audio_codes", &AUDIO_CODES, "preserves more of the audio");
    }
    let rows = plan.data.batch_size.max(1) as f64;
    let of_gpt = (GPT_EPOCHS * facts.clips as f64 / rows).ceil() as u64;
    let why = "more steps would overfit";
    for (stage, key, steps, why) in [
        (StageKind::Dvae, "training.dvae_steps", DVAE_STEPS, "validation clips hardly improve after that"),
        (StageKind::Gpt, "training.gpt_steps", of_gpt.max(MIN_GPT_STEPS), why),
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

    /// Adds a number; 0 with enough speech.
    fn share(&mut self, setting: &mut Option<f64>, (key, value): (&'static str, f64), why: &'static str) {
        if setting.is_none() {
            *setting = Some(if self.little { value } else { 0.0 });
            if self.little {
                self.add(key, &value, why);
            }
        }
    }

    /// Adds a switch; off with enough speech.
    fn switch(&mut self, setting: &mut Option<bool>, key: &'static str, why: &'static str) {
        if setting.is_none() {
            *setting = Some(self.little);
            if self.little {
                self.add(key, &true, why);
            }
        }
    }
}

/// The choices as lines for the user; empty if there are none.
pub fn lines(corpus: &Corpus, begin: Begin, chosen: &[Choice]) -> Vec<String> {
    if chosen.is_empty() {
        return Vec::new();
    }
    let facts = Facts::of(corpus);
    describe(&facts, distinct_texts(&*corpus.source, &corpus.train), begin, chosen)
}

fn describe(facts: &Facts, texts: Option<usize>, begin: Begin, chosen: &[Choice]) -> Vec<String> {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let different = |texts: usize| format!("{texts} different text{}", plural(texts));
    let mut lines = vec![format!(
        "little speech: {:.1} hours, {} clips{}, {} speaker{}; below {LITTLE_SPEECH_HOURS} hours these settings reduce overfitting \
         of the GPT",
        facts.hours,
        facts.clips,
        texts.map_or_else(String::new, |texts| format!(", {}", different(texts))),
        facts.speakers,
        plural(facts.speakers)
    )];
    lines.extend(chosen.iter().map(|choice| format!("  {} = {}: {}", choice.key, choice.value, choice.why)));
    if let Some(texts) = texts.filter(|&texts| begin == Begin::FromNothing && texts < FEW_TEXTS) {
        lines.push(format!(
            "note: with {} the voice learns few words besides those; add recordings of other texts, or start from a model \
             with --from",
            different(texts)
        ));
    }
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
    fn little_speech_fills_unset_settings_and_keeps_the_others() {
        let mut plan = plan();
        plan.training.code_masking = Some(0.1);
        let chosen = choose(&mut plan, &LITTLE, Begin::FromNothing);
        assert_eq!(plan.training.code_masking, Some(0.1));
        assert_eq!((plan.training.recombination, plan.training.diagonal_start), (Some(0.7), Some(true)));
        assert_eq!((plan.training.code_token_weight, plan.model.audio_codes), (Some(0.3), Some(8192)));
        assert_eq!(
            (plan.training.acoustic_weight, plan.training.decoder_mel_weight),
            (Some(10.0), Some(30.0))
        );
        assert!(chosen.iter().all(|choice| choice.key != "training.code_masking"));
        assert_eq!(describe(&LITTLE, Some(1_900), Begin::FromNothing, &chosen).len(), chosen.len() + 1);
        // A resumed run has every setting chosen already.
        let before = plan.clone();
        assert!(choose(&mut plan, &LITTLE, Begin::FromNothing).is_empty());
        assert_eq!(plan.training, before.training);
    }

    #[test]
    fn few_texts_were_not_reported() {
        let chosen =
            [Choice { key: "training.dropout", value: "0.3".to_owned(), why: "reduces overfitting" }];
        let digits = describe(&LITTLE, Some(10), Begin::FromNothing, &chosen);
        assert!(digits[0].contains("2000 clips, 10 different texts, 1 speaker;"), "{digits:?}");
        assert!(
            digits[2].contains("with 10 different texts the voice learns few words besides those"),
            "{digits:?}"
        );
        // A model that can read needs no other texts.
        assert_eq!(describe(&LITTLE, Some(10), Begin::WithGpt, &chosen).len(), 2);
        assert_eq!(describe(&LITTLE, Some(1_900), Begin::FromNothing, &chosen).len(), 2);
        assert!(describe(&LITTLE, None, Begin::FromNothing, &chosen)[0].contains("2000 clips, 1 speaker;"));
    }

    #[test]
    fn steps_follow_the_clips_and_never_exceed_the_preset() {
        let mut plan = plan();
        plan.data.batch_size = 50;
        choose(&mut plan, &LITTLE, Begin::FromNothing);
        assert_eq!(plan.training.gpt_steps, Some(4_400));
        assert_eq!((plan.training.dvae_steps, plan.training.decoder_steps), (Some(5_000), Some(5_200)));
        let mut tiny = self::plan();
        tiny.model.preset = Preset::Tiny;
        choose(&mut tiny, &LITTLE, Begin::FromNothing);
        assert_eq!((tiny.training.gpt_steps, tiny.model.audio_codes), (None, None));
    }

    #[test]
    fn a_model_that_training_starts_from_keeps_its_codes_and_steps() {
        let mut plan = plan();
        let chosen = choose(&mut plan, &LITTLE, Begin::WithGpt);
        assert_eq!((plan.model.audio_codes, plan.training.code_token_weight), (None, None));
        assert_eq!((plan.training.gpt_steps, plan.training.text_dropout), (None, Some(0.1)));
        assert!(!chosen.is_empty());
    }

    #[test]
    fn settings_of_a_new_gpt_were_reported_for_a_trained_one() {
        let starts = |begin| {
            let mut plan = plan();
            let chosen = choose(&mut plan, &LITTLE, begin);
            let reported = chosen.iter().filter(|choice| choice.key.ends_with("_start")).count();
            (reported, plan.training.diagonal_start, plan.training.codebook_start)
        };
        assert_eq!(starts(Begin::WithGpt), (0, None, None));
        assert_eq!(starts(Begin::WithoutGpt), (2, Some(true), Some(true)));
        assert_eq!(starts(Begin::FromNothing), (2, Some(true), Some(true)));
    }

    #[test]
    fn minutes_of_a_new_voice_train_the_decoder_of_a_small_model_only() {
        let minutes = Facts { hours: 0.1, clips: 97, speakers: 1 };
        let small = || {
            let mut plan = plan();
            plan.model.preset = Preset::Small;
            plan
        };
        let mut chosen = small();
        assert_eq!(choose_for_new_voice(&mut chosen, &minutes).len(), 2);
        assert_eq!((chosen.training.gpt_steps, chosen.training.decoder_steps), (Some(0), Some(700)));
        // A resumed run has them already.
        assert!(choose_for_new_voice(&mut chosen, &minutes).is_empty());
        let unchanged = |change: fn(&mut Plan), facts: &Facts| {
            let mut plan = small();
            change(&mut plan);
            choose_for_new_voice(&mut plan, facts).is_empty()
        };
        assert!(unchanged(|_| (), &LITTLE));
        assert!(unchanged(|plan| plan.model.preset = Preset::Normal, &minutes));
        assert!(unchanged(|plan| plan.training.gpt_steps = Some(300), &minutes));
        assert!(unchanged(|plan| plan.training.lora_rank = Some(8), &minutes));
        assert!(unchanged(|plan| plan.training.decoder_steps = Some(0), &minutes));
    }

    #[test]
    fn enough_speech_changes_no_setting() {
        let mut plan = plan();
        let much = Facts { hours: 24.0, clips: 13_000, speakers: 1 };
        assert!(choose(&mut plan, &much, Begin::FromNothing).is_empty());
        assert_eq!((plan.training.code_masking, plan.training.diagonal_start), (Some(0.0), Some(false)));
        assert_eq!((plan.training.dropout, plan.model.audio_codes), (None, None));
        assert_eq!((plan.training.text_dropout, plan.training.gpt_steps), (Some(0.0), None));
        assert_eq!((plan.training.acoustic_weight, plan.training.decoder_mel_weight), (Some(0.0), None));
    }
}
