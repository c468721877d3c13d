//! Speaks samples during and after a run, writes them to the run folder, compares them with their recordings, and checks them with
//! the recogniser.

use super::{RunPosition, Session};
use crate::error::TrainError;
use crate::evaluate::interval::Figure;
use crate::evaluate::measures::{Figures, METRICS, Measures, Recognition};
use crate::samples::{Sample, Samples, Sentence};
use crate::stages::{self, Stage};
use myxtts_run::durable;
use myxtts_run::seed::Seed;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Seconds below which a sample has no speech.
const SHORT_SAMPLE: f32 = 0.2;

/// Keys and short titles of the metrics that are printed; the curves have all of them.
const SHOWN: [(&str, &str); 4] = [
    ("wer", "WER"),
    ("cer", "CER"),
    ("distortion", "mel-cepstral distortion"),
    ("similarity", "speaker cosine"),
];

/// Whether there are samples, and none is long enough to have speech.
fn all_too_short(samples: &[Measures]) -> bool {
    !samples.is_empty() && samples.iter().all(|sample| sample.seconds < SHORT_SAMPLE)
}

impl Session<'_> {
    /// Speaks with a stage's weights after step `step`. An error is only reported: a run does not end because its model
    /// cannot speak yet.
    pub(super) fn sample(
        &mut self,
        stage: &dyn Stage,
        average: bool,
        samples: &Samples<'_>,
        at: RunPosition,
    ) {
        let (name, step) = (stages::name(stage.kind()), at.step);
        let when = format!("after step {step} of `{name}`");
        let began = Instant::now();
        let heard = match samples.of_stage(stage, average, &self.stop) {
            Ok(heard) => heard,
            Err(error) => return self.progress.say(&format!("no samples {when}: {error}")),
        };
        let (all, mut measured, mut unread) = (heard.len(), Vec::new(), None);
        for (sentence, sample) in heard {
            let file = format!("{name}-{step:06}-{}", sentence.name);
            let location = SampleLocation { label: name, step, at: at.total(), file: &file };
            match sample.and_then(|sample| Ok(self.keep(sentence, sample, &location)?)) {
                Ok(kept) => {
                    unread = unread.or(kept.unread);
                    measured.push(kept.measures);
                }
                Err(error) => {
                    self.progress.say(&format!("\"{}\" was not spoken {when}: {error}", sentence.text));
                }
            }
        }
        if !measured.is_empty() {
            let files = self.folder.samples().join(format!("{name}-{step:06}-*.wav"));
            let seconds = began.elapsed().as_secs_f64();
            let kept = measured.len();
            let figures: String =
                self.log_figures(name, at, measured).iter().map(|figure| format!(", {figure}")).collect();
            self.progress.say(&format!(
                "spoken {when}: {kept} of {all} in {seconds:.1} s{figures}, {}",
                files.display()
            ));
        }
        self.report_unread(unread);
    }

    /// Reports, once per run, why samples are not compared with their recordings.
    fn report_unread(&mut self, unread: Option<String>) {
        if let Some(error) = unread
            && !std::mem::replace(&mut self.unread_reported, true)
        {
            self.progress.say(&format!("note: samples are not compared with their recordings: {error}"));
        }
    }

    /// Speaks with the finished model, after all steps of the run.
    pub(crate) fn final_samples(&mut self, samples: &Samples<'_>, steps: u64) {
        let heard = match samples.of_model(&self.stop) {
            Ok(heard) => heard,
            Err(error) => return self.progress.say(&format!("no samples: {error}")),
        };
        let (mut measured, mut unread) = (Vec::new(), None);
        for (sentence, sample) in heard {
            let location = SampleLocation { label: "model", step: steps, at: steps, file: &sentence.name };
            let line = match sample.and_then(|sample| Ok(self.keep(sentence, sample, &location)?)) {
                Ok(kept) => {
                    let (path, seconds) = (kept.path.display(), kept.measures.seconds);
                    let mut line = format!("spoken       {path}: {seconds:.1} s of \"{}\"", sentence.text);
                    if let Some(heard) = &kept.measures.heard {
                        line += &format!(", heard as \"{}\"", heard.transcript);
                    }
                    unread = unread.or(kept.unread);
                    measured.push(kept.measures);
                    line
                }
                Err(error) => format!("\"{}\" was not spoken: {error}", sentence.text),
            };
            self.progress.say(&line);
        }
        if all_too_short(&measured) {
            self.progress.say(&format!(
                "warning: the samples are shorter than {SHORT_SAMPLE} s: the model has not learnt to speak yet, train it longer"
            ));
        }
        let figures = self.log_figures("model", RunPosition { step: steps, before: 0 }, measured);
        if !figures.is_empty() {
            self.progress.say(&format!("samples      {}", figures.join(", ")));
        }
        self.report_unread(unread);
    }

    /// The recogniser's result for a sample. When the recogniser fails, that is reported and it is not used again.
    fn listen(&mut self, path: &Path, sentence: &Sentence, silent: bool) -> Option<Recognition> {
        let listener = self.listener.as_mut()?;
        if silent {
            return Some(listener.silence(&sentence.text, &sentence.language));
        }
        let heard = listener.transcribe(path, &sentence.text, &sentence.language);
        if let Some(error) = listener.failed() {
            self.progress.say(&format!("note: {error}; the run continues without error rates"));
            self.listener = None;
        }
        heard
    }

    /// Writes the metrics of samples to the curves and the events, and returns those of [`SHOWN`] as text.
    fn log_figures(&mut self, name: &str, at: RunPosition, mut measured: Vec<Measures>) -> Vec<String> {
        if measured.is_empty() {
            return Vec::new();
        }
        // Error rates over only some of the samples would not be comparable, so they are dropped.
        if measured.iter().any(|sample| sample.heard.is_none()) {
            measured.iter_mut().for_each(|sample| sample.heard = None);
        }
        let figures = Figures::of(&measured, Seed::new(0));
        let mut event = json!({ "stage": name, "step": at.step, "sentences": measured.len() });
        let (mut curves, mut shown) = (Vec::new(), Vec::new());
        for metric in &METRICS {
            let Some(Figure { value, .. }) = figures.get(metric.key) else { continue };
            event[metric.key] = value.into();
            curves.push((format!("{name}/{}", metric.key), value as f32));
            if let Some((_, title)) = SHOWN.iter().find(|(key, _)| *key == metric.key) {
                shown.push(format!("{title} {}", metric.unit.show(value)));
            }
        }
        let written = self.events.append("measured", event).map_err(TrainError::from).and_then(|()| {
            let curves: Vec<(&str, f32)> = curves.iter().map(|(tag, value)| (tag.as_str(), *value)).collect();
            Ok(self.board.scalars(at.total(), &curves)?)
        });
        if let Err(error) = written {
            self.progress.say(&format!("the metrics of the samples could not be written: {error}"));
        }
        shown
    }

    /// Writes a sample and its image to the folder, the curves and the events.
    fn keep(
        &mut self,
        sentence: &Sentence,
        sample: Sample,
        location: &SampleLocation<'_>,
    ) -> Result<KeptSample, TrainError> {
        let folder = self.folder.samples();
        let path = folder.join(format!("{}.wav", location.file));
        durable::write(&path, &sample.wav)?;
        durable::write(&folder.join(format!("{}.png", location.file)), &sample.png)?;
        // TensorBoard does not allow one tag for both audio and image.
        let tag = |what: &str| format!("{}/{what}/{}", location.label, sentence.name);
        self.board.audio(&tag("spoken"), location.at, &sample.wav)?;
        self.board.image(&tag("mel"), location.at, &sample.png)?;
        self.board.text(&tag("text"), location.at, &sentence.text)?;
        let heard = self.listen(&path, sentence, sample.measures.flaws.silent);
        let measures = Measures { heard, ..sample.measures };
        let mut event = json!({ "stage": location.label, "step": location.step, "file": format!("{}.wav", location.file),
                                "text": sentence.text, "seconds": measures.seconds,
                                "distortion": measures.against.distortion, "similarity": measures.similarity });
        if let Some(heard) = &measures.heard {
            event["heard"] = heard.transcript.as_str().into();
            event["wer"] = heard.score.words.rate().into();
        }
        self.events.append("sample", event)?;
        Ok(KeptSample { path, measures, unread: sample.unread })
    }
}

/// A sample that was written.
struct KeptSample {
    path: PathBuf,
    measures: Measures,
    /// Why its recording cannot be read.
    unread: Option<String>,
}

/// Where a sample is stored and logged.
struct SampleLocation<'a> {
    label: &'a str,
    step: u64,
    /// The step among all steps of the run.
    at: u64,
    file: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_without_speech_are_recognised() {
        let of = |seconds: f32| Measures { seconds, ..Measures::default() };
        assert!(all_too_short(&[of(0.0), of(0.19)]));
        assert!(!all_too_short(&[of(0.0), of(0.2)]) && !all_too_short(&[]));
    }
}
