//! Speaks validation sentences and compares them with their recordings.

use super::dtw::{DtwOptions, Frames};
use super::listener::Listener;
use super::measures::Meter;
use super::rank::{self, Ranking};
use super::report::{Evaluation, Item};
use super::texts::{self, TextsError};
use crate::job_control::JobControl;
use myxtts_data::audio::{self, Clip, Resampler};
use myxtts_data::mel::{FrontEnd, MelExtractor};
use myxtts_data::utterance::Utterance;
use myxtts_model::StopReason;
use myxtts_run::seed::Seed;
use myxtts_speak::{SpeakError, SpeakOptions, Synthesizer, Voice};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Output options of an evaluation.
#[derive(Default)]
pub struct EvaluationOutput<'a> {
    /// Folder for audio files and recordings, under the names in the report; `None` keeps no files.
    pub folder: Option<&'a Path>,
    /// Transcribes every audio file that is kept.
    pub listener: Option<&'a mut Listener>,
}

/// Options of an evaluation.
#[derive(Clone, Debug)]
pub struct EvaluationRequest {
    /// Maximum number of sentences to speak.
    pub sentences: usize,
    /// Recordings that each sentence is compared with, including its own.
    pub candidates: usize,
    /// Seed of all random choices.
    pub seed: u64,
    /// Options of synthesis.
    pub options: SpeakOptions,
}

/// Speaks validation sentences, each conditioned on another recording of its speaker, and compares them with the recordings.
pub fn evaluate(
    synthesizer: &mut Synthesizer,
    known: &[&Utterance],
    held_out: &[&Utterance],
    request: &EvaluationRequest,
    mut output: EvaluationOutput<'_>,
    JobControl { progress, stop }: JobControl<'_>,
) -> Result<Evaluation, TextsError> {
    let seed = Seed::new(request.seed).derive("evaluate");
    // One recording of each speaker; none of the spoken sentences is from it.
    let mut references: BTreeMap<&str, Voice> = BTreeMap::new();
    for utterance in known {
        if !references.contains_key(utterance.speaker.as_str()) {
            let clip = audio::decode(&utterance.audio).map_err(SpeakError::from)?.clip;
            references.insert(&utterance.speaker, synthesizer.encode_voice(&[clip])?);
        }
    }
    let mut mels: BTreeMap<&str, Vec<f32>> = BTreeMap::new();
    let everyone: Vec<&Utterance> = held_out.iter().chain(known).copied().collect();
    let mut items = Vec::new();
    let count = request.sentences.min(held_out.len());
    progress.start("speaking", count as u64);
    let (mut meter, mut names, mut said) = (Meter::new(), HashSet::new(), false);
    for (number, right) in held_out.iter().take(count).enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        progress.advance(1);
        let Some(reference) = references.get(right.speaker.as_str()) else { continue };
        // Other sentences of the same speaker first: then only the content distinguishes them.
        let mut others: Vec<(bool, u64, &Utterance)> = everyone
            .iter()
            .filter(|other| other.id != right.id && other.text != right.text)
            .map(|other| {
                (other.speaker != right.speaker, seed.with(number as u64).derive(&other.id).value(), *other)
            })
            .collect();
        others.sort_by_key(|(stranger, lot, _)| (*stranger, *lot));
        let mut candidates = vec![*right];
        candidates
            .extend(others.into_iter().take(request.candidates.saturating_sub(1)).map(|(.., other)| other));
        for candidate in &candidates {
            if !mels.contains_key(candidate.id.as_str()) {
                // Preprocessed as in training, so that the model is not penalised for silence that was cut.
                let samples = synthesizer
                    .prepare_reference(&audio::decode(&candidate.audio).map_err(SpeakError::from)?.clip);
                let clip = Clip { samples, sample_rate: FrontEnd::Conditioning.sample_rate() };
                mels.insert(&candidate.id, mel(&clip));
            }
        }
        let mut options = request.options.clone();
        options.sampling.seed = seed.at(number as u64);
        let spoken = synthesizer.speak_with(&right.text, &right.language, reference, &options)?;
        let clip = Clip { samples: spoken.samples, sample_rate: spoken.rate };
        let own = mel(&clip);
        let warp = DtwOptions::default();
        let frames = |values| Frames::new(values, BANDS).ok();
        // Audio with NaN or Inf cannot be compared and counts as wrong: leaving it out would make the rest look better.
        let own_frames = frames(&own[..]).or_else(|| frames(&[]));
        let Some(own_frames) = own_frames else { continue };
        let views: Vec<Frames<'_>> =
            candidates.iter().filter_map(|c| frames(&mels[c.id.as_str()][..])).collect();
        if views.len() != candidates.len() {
            continue;
        }
        let ranking: Ranking = rank::sentences(own_frames, &views, &warp);
        let recording = audio::decode(&right.audio).map_err(SpeakError::from)?.clip;
        let mut measures = meter.measure(&clip, Some(&recording));
        if spoken.ended == StopReason::Loop && measures.flaws.looping.is_none() {
            measures.flaws.looping = Some(0.0);
        }
        let heard =
            synthesizer.encode_voice(std::slice::from_ref(&clip)).ok().and_then(|heard| heard.speaker);
        let vectors: Vec<&[f32]> = references.values().filter_map(|r| r.speaker.as_deref()).collect();
        let at = references.keys().position(|name| *name == right.speaker);
        let who = heard.as_deref().filter(|_| vectors.len() == references.len());
        measures.similarity = who.zip(reference.speaker.as_deref()).and_then(|(a, b)| rank::similarity(a, b));
        let file = match output.folder {
            Some(folder) => {
                let name = texts::unique_name(&right.id, &mut names);
                texts::keep_original(folder, &name, &recording)?;
                let file = format!("{name}.wav");
                texts::keep_spoken(&folder.join(&file), &clip)?;
                if let Some(listener) = output.listener.as_deref_mut() {
                    measures.heard = match measures.flaws.silent {
                        true => Some(listener.silence(&right.text, &right.language)),
                        false => listener.transcribe(&folder.join(&file), &right.text, &right.language),
                    };
                    if let Some(error) = listener.failed().filter(|_| !said) {
                        progress.say(&format!(
                            "{error}; the recogniser is no longer used, so there are no error rates"
                        ));
                        said = true;
                    }
                }
                Some(file)
            }
            None => None,
        };
        items.push(Item {
            id: right.id.clone(),
            text: right.text.clone(),
            speaker: right.speaker.clone(),
            seconds: clip.seconds() as f32,
            sentence_place: ranking.rank(0),
            heard: ranking.nearest().map(|i| candidates[i].text.clone()),
            distance: Some(ranking.distances[0]).filter(|d| d.is_finite()),
            distortion: measures.against.distortion,
            speaker_place: who.zip(at).map(|(heard, at)| rank::speakers(heard, &vectors).rank(at)),
            similarity: measures.similarity,
            file,
            measures: Some(measures),
        });
    }
    progress.finish();
    if said {
        items.iter_mut().filter_map(|item: &mut Item| item.measures.as_mut()).for_each(|m| m.heard = None);
    }
    Ok(Evaluation::of(items, request.candidates, references.len()))
}

const BANDS: usize = 80;

/// Log-mels of the DVAE's front-end.
fn mel(clip: &Clip) -> Vec<f32> {
    let front = FrontEnd::Dvae;
    let samples = Resampler::new(clip.sample_rate, front.sample_rate()).resample(&clip.samples);
    let mut mel = Vec::new();
    MelExtractor::new(front).compute(&samples, &mut mel);
    mel
}
