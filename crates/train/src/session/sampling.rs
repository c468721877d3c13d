//! Speaks samples during and after a run, writes them to the run folder, and checks them with the recogniser.

use super::{RunPosition, Session};
use crate::error::TrainError;
use crate::evaluate::measures::Recognition;
use crate::evaluate::words::Errors;
use crate::samples::{Sample, Samples, Sentence};
use crate::stages::{self, Stage};
use myxtts_run::durable;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Seconds below which a sample has no speech.
const SHORT_SAMPLE: f64 = 0.2;

/// Whether there are samples, and none is long enough to have speech.
fn all_too_short(seconds: &[f64]) -> bool {
    !seconds.is_empty() && seconds.iter().all(|&seconds| seconds < SHORT_SAMPLE)
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
        let (all, mut kept, mut totals) = (heard.len(), 0, ErrorTotals::default());
        for (sentence, sample) in heard {
            let file = format!("{name}-{step:06}-{}", sentence.name);
            let location = SampleLocation { label: name, step, at: at.total(), file: &file };
            match sample.and_then(|sample| Ok(self.keep(sentence, &sample, &location)?)) {
                Ok((_, heard)) => {
                    kept += 1;
                    totals.add(heard);
                }
                Err(error) => {
                    self.progress.say(&format!("\"{}\" was not spoken {when}: {error}", sentence.text));
                }
            }
        }
        if kept > 0 {
            let files = self.folder.samples().join(format!("{name}-{step:06}-*.wav"));
            let seconds = began.elapsed().as_secs_f64();
            let rates = self.log_rates(name, at, &totals);
            self.progress.say(&format!(
                "spoken {when}: {kept} of {all} in {seconds:.1} s{rates}, {}",
                files.display()
            ));
        }
    }

    /// Speaks with the finished model, after all steps of the run.
    pub(crate) fn final_samples(&mut self, samples: &Samples<'_>, steps: u64) {
        let heard = match samples.of_model(&self.stop) {
            Ok(heard) => heard,
            Err(error) => return self.progress.say(&format!("no samples: {error}")),
        };
        let (mut totals, mut lengths) = (ErrorTotals::default(), Vec::new());
        for (sentence, sample) in heard {
            let location = SampleLocation { label: "model", step: steps, at: steps, file: &sentence.name };
            let line = match sample.and_then(|s| Ok((self.keep(sentence, &s, &location)?, s.seconds))) {
                Ok(((path, heard), seconds)) => {
                    let line =
                        format!("spoken       {}: {seconds:.1} s of \"{}\"", path.display(), sentence.text);
                    let line = match &heard {
                        Some(heard) => format!("{line}, heard as \"{}\"", heard.transcript),
                        None => line,
                    };
                    totals.add(heard);
                    lengths.push(seconds);
                    line
                }
                Err(error) => format!("\"{}\" was not spoken: {error}", sentence.text),
            };
            self.progress.say(&line);
        }
        if all_too_short(&lengths) {
            self.progress.say(&format!(
                "warning: the samples are shorter than {SHORT_SAMPLE} s: the model has not learnt to speak yet, train it longer"
            ));
        }
        self.log_rates("model", RunPosition { step: steps, before: 0 }, &totals);
    }

    /// The recogniser's result for a sample. When the recogniser fails, that is reported and it is not used again.
    fn listen(&mut self, path: &Path, sentence: &Sentence) -> Option<Recognition> {
        let listener = self.listener.as_mut()?;
        let heard = listener.transcribe(path, &sentence.text, &sentence.language);
        if let Some(error) = listener.failed() {
            self.progress.say(&format!("note: {error}; the run continues without error rates"));
            self.listener = None;
        }
        heard
    }

    /// Writes error rates to the curves and the events, and returns them as text.
    fn log_rates(&mut self, name: &str, at: RunPosition, totals: &ErrorTotals) -> String {
        if totals.count == 0 {
            return String::new();
        }
        let ErrorTotals { words, characters, count } = *totals;
        let (wer, cer) = (words.rate(), characters.rate());
        let event = json!({ "stage": name, "step": at.step, "wer": wer, "cer": cer, "sentences": count });
        let written = self.events.append("recognized", event).map_err(TrainError::from).and_then(|()| {
            let curves = [(format!("{name}/wer"), wer), (format!("{name}/cer"), cer)];
            let curves = curves.iter().map(|(tag, value)| (tag.as_str(), *value as f32)).collect::<Vec<_>>();
            Ok(self.board.scalars(at.total(), &curves)?)
        });
        if let Err(error) = written {
            self.progress.say(&format!("error rates were not written: {error}"));
        }
        format!(", WER {:.0} %, CER {:.0} %", 100.0 * wer, 100.0 * cer)
    }

    /// Writes a sample and its image to the folder, the curves and the events.
    fn keep(
        &mut self,
        sentence: &Sentence,
        sample: &Sample,
        location: &SampleLocation<'_>,
    ) -> Result<(PathBuf, Option<Recognition>), TrainError> {
        let folder = self.folder.samples();
        let path = folder.join(format!("{}.wav", location.file));
        durable::write(&path, &sample.wav)?;
        durable::write(&folder.join(format!("{}.png", location.file)), &sample.png)?;
        // TensorBoard does not allow one tag for both audio and image.
        let tag = |what: &str| format!("{}/{what}/{}", location.label, sentence.name);
        self.board.audio(&tag("spoken"), location.at, &sample.wav)?;
        self.board.image(&tag("mel"), location.at, &sample.png)?;
        self.board.text(&tag("text"), location.at, &sentence.text)?;
        let heard = self.listen(&path, sentence);
        let mut event = json!({ "stage": location.label, "step": location.step, "file": format!("{}.wav", location.file),
                                "text": sentence.text, "seconds": sample.seconds });
        if let Some(heard) = &heard {
            event["heard"] = heard.transcript.as_str().into();
            event["wer"] = heard.score.words.rate().into();
        }
        self.events.append("sample", event)?;
        Ok((path, heard))
    }
}

/// Recognition results of several samples.
#[derive(Clone, Copy, Default)]
struct ErrorTotals {
    words: Errors,
    characters: Errors,
    count: usize,
}

impl ErrorTotals {
    fn add(&mut self, heard: Option<Recognition>) {
        let Some(Recognition { score, .. }) = heard else { return };
        for (sum, one) in [(&mut self.words, score.words), (&mut self.characters, score.characters)] {
            sum.errors += one.errors;
            sum.of += one.of;
        }
        self.count += 1;
    }
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
        assert!(all_too_short(&[0.0, 0.19]));
        assert!(!all_too_short(&[0.0, 0.2]) && !all_too_short(&[]));
    }
}
