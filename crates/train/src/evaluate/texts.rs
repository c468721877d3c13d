//! Speaks a list of texts with one opened model; each is written as a WAV file and measured.

use super::html::{Cell, Row};
use super::listener::Listener;
use super::measures::{Figures, Measures, Meter};
use super::rank;
use crate::job_control::JobControl;
use myxtts_data::audio::{self, Clip, wav};
use myxtts_data::dataset::list::ListEntry;
use myxtts_model::StopReason;
use myxtts_run::durable::{self, DurableError};
use myxtts_run::seed::Seed;
use myxtts_speak::{SpeakError, SpeakOptions, Synthesizer, Voice};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Subfolder of the report with copies of recordings.
const ORIGINALS: &str = "original";
/// Maximum number of characters of an id in a file name.
const NAME_LENGTH: usize = 80;

/// Why a list was not spoken to its end.
#[derive(Debug, thiserror::Error)]
pub enum TextsError {
    /// An audio file cannot be written.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// The device failed: the next text would fail too.
    #[error(transparent)]
    Voice(#[from] SpeakError),
}

/// How a list is spoken.
pub struct SpeakListOptions<'a> {
    /// The folder of `ID.wav`.
    pub folder: &'a Path,
    /// The language of all texts.
    pub language: &'a str,
    /// The voice of all texts; `None` uses each text's own reference.
    pub voice: Option<&'a Voice>,
    /// Options of synthesis. The seed is that of the list; each text gets its own, derived from it.
    pub options: &'a SpeakOptions,
}

/// The result of one text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpokenText {
    /// Id of the text in the list.
    pub id: String,
    /// The text to speak.
    pub text: String,
    /// Audio file, relative to the report's folder; `None` if nothing was spoken.
    pub file: Option<String>,
    /// Copy of the text's recording, relative to the report's folder; `None` if there is no readable one.
    pub recording: Option<String>,
    /// Number of generated codes.
    pub codes: usize,
    /// Why generation ended.
    pub ended: Option<StopReason>,
    /// Why it could not be spoken. It then counts as silence.
    pub error: Option<String>,
    /// Measures of the audio.
    #[serde(flatten)]
    pub measures: Measures,
}

/// The results of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpokenTexts {
    /// Metrics over all texts.
    pub figures: Figures,
    /// Number of texts that could not be spoken.
    pub failed: usize,
    /// Results in the order of the list.
    pub items: Vec<SpokenText>,
}

impl SpokenTexts {
    /// A row of the HTML page for each text: its recording, and the synthesised audio.
    pub fn rows(&self) -> Vec<Row<'_>> {
        self.items.iter().map(SpokenText::row).collect()
    }
}

impl SpokenText {
    fn row(&self) -> Row<'_> {
        let recording = self.recording.clone().map(|file| Cell { file, measures: None });
        let spoken = self.file.clone().map(|file| Cell { file, measures: Some(&self.measures) });
        Row { id: &self.id, text: &self.text, note: self.error.as_deref(), cells: vec![recording, spoken] }
    }
}

/// A file name for an id, unique among `taken`.
pub(crate) fn unique_name(id: &str, taken: &mut HashSet<String>) -> String {
    let mut name = file_name(id);
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// Replaces characters that file names cannot have.
fn file_name(id: &str) -> String {
    let letter = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '_' };
    id.chars().take(NAME_LENGTH).map(letter).collect()
}

/// The seed of one text: it depends only on the id, so that a text sounds the same in any list.
pub(crate) fn seed_of(seed: u64, id: &str) -> u64 {
    Seed::new(seed).derive("text").derive(id).value()
}

/// Speaks a list. A text that cannot be spoken is reported, counted and measured as silence; a failing device ends the list.
pub fn speak_list(
    synthesizer: &mut Synthesizer,
    list: &[ListEntry],
    speaking: &SpeakListOptions<'_>,
    mut listener: Option<&mut Listener>,
    JobControl { progress, stop }: JobControl<'_>,
) -> Result<SpokenTexts, TextsError> {
    let mut meter = Meter::new();
    let mut references: HashMap<PathBuf, Result<Voice, String>> = HashMap::new();
    let mut items = Vec::with_capacity(list.len());
    progress.start("speaking", list.len() as u64);
    for one in list {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let item =
            speak_one(synthesizer, one, speaking, &mut meter, &mut references, listener.as_deref_mut());
        let item = item.inspect_err(|_| progress.finish())?;
        if let Some(error) = &item.error {
            progress.say(&format!("{} was not spoken: {error}", item.id));
        }
        if let Some(error) = listener.as_deref().and_then(Listener::failed)
            && item.measures.heard.is_none()
            && items.iter().all(|item: &SpokenText| item.error.is_some() || item.measures.heard.is_some())
        {
            progress.say(&format!("{error}; the recogniser is no longer used, so there are no error rates"));
        }
        items.push(item);
        progress.advance(1);
    }
    progress.finish();
    let measures = || items.iter().map(|item| &item.measures);
    // Error rates over only some of the texts would not be comparable, so they are dropped.
    if measures().any(|measures| measures.heard.is_none()) {
        items.iter_mut().for_each(|item| item.measures.heard = None);
    }
    Ok(SpokenTexts {
        figures: Figures::of(
            items.iter().map(|item| &item.measures),
            Seed::new(speaking.options.sampling.seed),
        ),
        failed: items.iter().filter(|item| item.error.is_some()).count(),
        items,
    })
}

fn speak_one(
    synthesizer: &mut Synthesizer,
    one: &ListEntry,
    speaking: &SpeakListOptions<'_>,
    meter: &mut Meter,
    references: &mut HashMap<PathBuf, Result<Voice, String>>,
    listener: Option<&mut Listener>,
) -> Result<SpokenText, TextsError> {
    let mut item = SpokenText {
        id: one.id.clone(),
        text: one.text.clone(),
        file: None,
        recording: None,
        codes: 0,
        ended: None,
        error: None,
        measures: Measures::default(),
    };
    let language = speaking.language;
    let reference = match (speaking.voice, &one.reference) {
        (Some(reference), _) => Ok(reference.clone()),
        (None, Some(path)) => match references.get(path) {
            Some(known) => known.clone(),
            None => {
                let heard = encode_reference(synthesizer, path)?;
                references.insert(path.clone(), heard.clone());
                heard
            }
        },
        (None, None) => {
            Err("it has no reference: name one in its line, or a voice for all with --voice".to_owned())
        }
    };
    let mut options = speaking.options.clone();
    options.sampling.seed = seed_of(options.sampling.seed, &one.id);
    let said = match &reference {
        Ok(reference) => recoverable(synthesizer.speak_with(&one.text, language, reference, &options))?,
        Err(error) => Err(error.clone()),
    };
    let clip = match said {
        Ok(said) => {
            item.codes = said.codes;
            item.ended = Some(said.ended);
            Clip { samples: said.samples, sample_rate: said.rate }
        }
        Err(error) => {
            item.error = Some(error);
            Clip { samples: Vec::new(), sample_rate: synthesizer.quality().rate() }
        }
    };
    let path = speaking.folder.join(format!("{}.wav", one.id));
    if !clip.samples.is_empty() {
        keep_spoken(&path, &clip)?;
        item.file = Some(format!("{}.wav", one.id));
    }
    let recording = one.recording.as_deref().and_then(|path| audio::decode(path).ok()).map(|d| d.clip);
    if let Some(recording) = &recording {
        item.recording = Some(keep_original(speaking.folder, &one.id, recording)?);
    }
    item.measures = meter.measure(&clip, recording.as_ref());
    if item.ended == Some(StopReason::Loop) && item.measures.flaws.looping.is_none() {
        item.measures.flaws.looping = Some(0.0);
    }
    item.measures.similarity = similarity(synthesizer, &clip, reference.as_ref().ok());
    item.measures.heard = listener.and_then(|listener| match item.measures.flaws.silent {
        true => Some(listener.silence(&one.text, language)),
        false => listener.transcribe(&path, &one.text, language),
    });
    Ok(item)
}

/// Silence after the speech in a file. Training clips have none at their ends, so the model makes none, but recordings have
/// it, and recognisers expect it: without it they may write the last words many times over.
const END_PAUSE_SECONDS: f64 = 0.3;

/// Writes generated speech with the silence after it.
pub(crate) fn keep_spoken(path: &Path, clip: &Clip) -> Result<(), DurableError> {
    let mut samples = clip.samples.clone();
    samples.resize(samples.len() + (END_PAUSE_SECONDS * f64::from(clip.sample_rate)) as usize, 0.0);
    durable::write(path, &wav::encode_pcm16(&samples, clip.sample_rate))
}

/// Copies a recording into the report's folder, and returns its relative path.
pub(crate) fn keep_original(folder: &Path, name: &str, recording: &Clip) -> Result<String, DurableError> {
    let place = format!("{ORIGINALS}/{name}.wav");
    durable::create_folder(&durable::OsDisk, &folder.join(ORIGINALS))?;
    durable::write(&folder.join(&place), &wav::encode_pcm16(&recording.samples, recording.sample_rate))?;
    Ok(place)
}

/// Cosine between the speaker vectors of the audio and of the reference it was spoken with, by the model's own encoder.
pub fn similarity(synthesizer: &mut Synthesizer, clip: &Clip, reference: Option<&Voice>) -> Option<f32> {
    let wanted = reference?.speaker.as_deref()?;
    let found = synthesizer.encode_voice(std::slice::from_ref(clip)).ok()?.speaker?;
    (found.len() == wanted.len()).then(|| rank::similarity(&found, wanted)).flatten()
}

fn encode_reference(synthesizer: &mut Synthesizer, path: &Path) -> Result<Result<Voice, String>, SpeakError> {
    match audio::decode(path) {
        Ok(decoded) => recoverable(synthesizer.encode_voice(&[decoded.clip])),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Separates errors of one text or recording, which are returned inside, from errors that affect everything.
pub(crate) fn recoverable<T>(outcome: Result<T, SpeakError>) -> Result<Result<T, String>, SpeakError> {
    use myxtts_model::GenerateError;
    match outcome {
        Err(error @ (SpeakError::Engine(_) | SpeakError::Generate(GenerateError::Engine(_)))) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
        Ok(value) => Ok(Ok(value)),
    }
}
