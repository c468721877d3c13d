//! The result of an evaluation: one entry per sentence, and the totals.

use std::fmt;

use super::html::{Cell, Row};
use super::measures::{Figures, Measures};
use myxtts_run::seed::Seed;
use serde::{Deserialize, Serialize};

/// The result of one sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Id of the utterance.
    pub id: String,
    /// The text to speak.
    pub text: String,
    /// Name of the speaker whose voice was used.
    pub speaker: String,
    /// Seconds of audio; 0 if the model produced none.
    pub seconds: f32,
    /// Rank of the right sentence among the candidates, 1 for the nearest ([`Ranking::rank`](super::rank::Ranking::rank)).
    pub sentence_place: usize,
    /// Text of the nearest sentence; `None` if nothing was spoken.
    pub heard: Option<String>,
    /// Warping distance to the right sentence; `None` if nothing was spoken.
    pub distance: Option<f32>,
    /// Mel-cepstral distortion against the right sentence, in dB; `None` if nothing was spoken.
    pub distortion: Option<f32>,
    /// Rank of the right speaker; `None` if speakers were not compared.
    pub speaker_place: Option<usize>,
    /// Cosine between the speaker vectors of the audio and of the reference.
    pub similarity: Option<f32>,
    /// Audio file, relative to the report's folder; its recording is in `original/` there. `None` if no files are kept.
    #[serde(default)]
    pub file: Option<String>,
    /// All other measures.
    #[serde(default)]
    pub measures: Option<Measures>,
}

/// Number of items, and how many of them are right.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Number of right items.
    pub right: usize,
    /// Number of items.
    pub of: usize,
    /// Candidates per item.
    pub candidates: usize,
}

impl Accuracy {
    /// Share of right items; 0 if there are none.
    pub fn value(&self) -> f64 {
        self.right as f64 / self.of.max(1) as f64
    }

    /// Expected share of random guessing.
    pub fn chance(&self) -> f64 {
        1.0 / self.candidates.max(1) as f64
    }
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// How often the right sentence was the nearest.
    pub sentences: Accuracy,
    /// How often the right speaker was the nearest; `None` with only one speaker or without a speaker encoder.
    pub speakers: Option<Accuracy>,
    /// Mean distortion in dB over the sentences that were spoken.
    pub distortion: Option<f32>,
    /// Mean cosine to the reference's speaker, over the same sentences.
    pub similarity: Option<f32>,
    /// Number of sentences without any audio.
    pub silent: usize,
    /// Metrics over all sentences.
    #[serde(default)]
    pub figures: Figures,
    /// All sentences, in the order they were spoken.
    pub items: Vec<Item>,
}

impl Evaluation {
    /// A row of the HTML page for each sentence with audio files: its recording, and the synthesised audio.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let mut rows = Vec::with_capacity(self.items.len());
        for item in &self.items {
            let cell = |file: String, measures| Some(Cell { file, measures });
            let cells = match &item.file {
                Some(file) => {
                    vec![cell(format!("original/{file}"), None), cell(file.clone(), item.measures.as_ref())]
                }
                None => vec![None, None],
            };
            rows.push(Row { id: &item.id, text: &item.text, note: None, cells });
        }
        rows
    }

    /// Sums up items. Each was compared with `candidates` sentences and `speakers` speakers, including the right one.
    pub fn of(items: Vec<Item>, candidates: usize, speakers: usize) -> Evaluation {
        let first = |places: &[usize]| places.iter().filter(|&&place| place == 1).count();
        let sentences: Vec<usize> = items.iter().map(|item| item.sentence_place).collect();
        let who: Vec<usize> = items.iter().filter_map(|item| item.speaker_place).collect();
        Evaluation {
            sentences: Accuracy { right: first(&sentences), of: sentences.len(), candidates },
            speakers: (speakers > 1 && !who.is_empty()).then(|| Accuracy {
                right: first(&who),
                of: who.len(),
                candidates: speakers,
            }),
            distortion: mean(items.iter().filter_map(|item| item.distortion)),
            similarity: mean(items.iter().filter_map(|item| item.similarity)),
            figures: Figures::of(items.iter().filter_map(|item| item.measures.as_ref()), Seed::new(0)),
            silent: items.iter().filter(|item| item.distance.is_none()).count(),
            items,
        }
    }
}

/// Mean of the finite values.
fn mean(values: impl Iterator<Item = f32>) -> Option<f32> {
    let (sum, count) = values
        .filter(|value| value.is_finite())
        .fold((0f64, 0u32), |(sum, count), value| (sum + f64::from(value), count + 1));
    (count > 0).then(|| (sum / f64::from(count)) as f32)
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} % ({} of {}, among {} each; chance {:.1} %)",
            100.0 * self.value(),
            self.right,
            self.of,
            self.candidates,
            100.0 * self.chance()
        )
    }
}

/// The summary, then a line for each sentence.
impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "nearest to its own recording  {}", self.sentences)?;
        if let Some(speakers) = self.speakers {
            writeln!(f, "nearest to its own speaker    {speakers}")?;
        }
        // The metrics have intervals, and include the same means.
        if self.figures != Figures::default() {
            f.write_str(&self.figures.lines())?;
        } else if let Some(distortion) = self.distortion {
            writeln!(f, "mel-cepstral distortion       {distortion:.2} dB")?;
        }
        if let Some(similarity) = self.similarity.filter(|_| self.figures == Figures::default()) {
            writeln!(f, "speaker similarity            {similarity:.3}")?;
        }
        if self.silent > 0 {
            writeln!(f, "nothing spoken                {} of {}", self.silent, self.items.len())?;
        }
        if !self.items.is_empty() {
            let rank = format!("{:>3} of {}", "", self.sentences.candidates).len();
            writeln!(f, "  {:>rank$}  {:>7}  {:>9}  {:>5}  speaker: text", "rank", "length", "MCD", "voice")?;
        }
        for item in &self.items {
            let number = |value: Option<f32>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
            write!(
                f,
                "  {:>3} of {}  {:>5.1} s  {:>6} dB  {:>5}  {}: {}",
                item.sentence_place,
                self.sentences.candidates,
                item.seconds,
                number(item.distortion),
                number(item.similarity),
                item.speaker,
                item.text
            )?;
            match &item.heard {
                Some(heard) if item.sentence_place > 1 && *heard != item.text => {
                    writeln!(f, "  (nearest: {heard})")?;
                }
                _ => writeln!(f)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(place: usize, speaker: usize, distortion: Option<f32>) -> Item {
        Item {
            id: format!("u{place}"),
            text: "The cat slept.".to_owned(),
            speaker: "mina".to_owned(),
            seconds: if distortion.is_some() { 1.5 } else { 0.0 },
            sentence_place: place,
            heard: distortion.map(|_| "The dog sat.".to_owned()),
            distance: distortion.map(|_| 3.0),
            distortion,
            speaker_place: Some(speaker),
            similarity: distortion.map(|_| 0.9),
            file: None,
            measures: None,
        }
    }

    #[test]
    fn items_sum_up_to_shares_and_means() {
        let items =
            vec![item(1, 1, Some(4.0)), item(3, 1, Some(6.0)), item(20, 3, None), item(1, 1, Some(5.0))];
        let found = Evaluation::of(items, 20, 3);
        assert_eq!(found.sentences, Accuracy { right: 2, of: 4, candidates: 20 });
        assert_eq!(found.speakers, Some(Accuracy { right: 3, of: 4, candidates: 3 }));
        assert_eq!((found.distortion, found.similarity, found.silent), (Some(5.0), Some(0.9), 1));
        let text = found.to_string();
        assert!(
            text.contains("nearest to its own recording  50 % (2 of 4, among 20 each; chance 5.0 %)"),
            "{text}"
        );
        assert!(text.contains("mel-cepstral distortion       5.00 dB"), "{text}");
        assert!(text.contains("nothing spoken                1 of 4"), "{text}");
        assert!(text.contains("\n       rank   length        MCD  voice  speaker: text\n"), "{text}");
        assert!(text.contains("\n    1 of 20    1.5 s    4.00 dB   0.90  mina: The cat slept."), "{text}");
        assert_eq!(text.matches("(nearest: The dog sat.)").count(), 1, "{text}");
        let stored = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Evaluation>(&stored).unwrap(), found);
    }

    #[test]
    fn a_single_speaker_is_not_ranked_and_an_empty_report_has_no_accuracy() {
        assert_eq!(Evaluation::of(vec![item(1, 1, Some(4.0))], 20, 1).speakers, None);
        let none = Evaluation::of(Vec::new(), 20, 3);
        assert_eq!((none.sentences.value(), none.speakers, none.distortion), (0.0, None, None));
        assert!(!none.to_string().contains("NaN"));
    }
}
