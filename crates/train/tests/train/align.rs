//! The aligner on clips with known boundaries, and the use of its alignments in a GPT stage.

use super::small;
use myxtts_data::record::{Column, DVAE_MEL, RecordError, RecordSource, TOKENS};
use myxtts_data::tokenizer::{CHARACTERS, Tokenizer, TrainOptions, train};
use myxtts_model::dvae::DvaeSizes;
use myxtts_run::plan::StageKind;
use myxtts_run::seed::Seed;
use myxtts_tensor::Control;
use myxtts_text::Cleaner;
use myxtts_train::align::Alignments;
use myxtts_train::bad_records::BadRecords;
use myxtts_train::overlay::WithCodes;
use myxtts_train::replica_slice::ReplicaSlice;
use myxtts_train::stages::RecordSplit;
use myxtts_train::stages::dvae::{DvaeSettings, TokenTargets};
use myxtts_train::stages::gpt::{GptSettings, GptStage, Regularization};
use myxtts_train::stages::{Stage, StageCore};
use myxtts_train::{ComputeDevice, Model};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const COLUMNS: [Column; 2] = [TOKENS, DVAE_MEL];

/// Clips in which every letter is a tone of its own and a space a pause, with varying lengths.
struct Letters {
    tokens: Vec<Vec<i32>>,
    mels: Vec<Vec<f32>>,
    /// The token at every mel frame.
    truth: Vec<Vec<u32>>,
    names: Vec<String>,
}

impl Letters {
    fn new(tokenizer: &Tokenizer, texts: &[String]) -> Letters {
        let mut all = Letters {
            tokens: Vec::new(),
            mels: Vec::new(),
            truth: Vec::new(),
            names: vec!["one".to_owned()],
        };
        for (number, text) in texts.iter().enumerate() {
            let seed = Seed::new(5).with(number as u64);
            let tokens = tokenizer.encode(text, "en", Cleaner::Default).unwrap().ids;
            let (mut mel, mut truth) = (Vec::new(), Vec::new());
            for (i, &token) in tokens.iter().enumerate() {
                let letter = tokenizer.piece(token).chars().next().filter(char::is_ascii_lowercase);
                let frames = match letter {
                    Some(_) => 4 + seed.below(i as u64, 6),
                    None if i == 0 => 0,
                    None => seed.below(i as u64, 8),
                };
                for frame in 0..frames {
                    let noise = seed.with(i as u64).with(frame);
                    mel.extend((0..80u64).map(|band| {
                        let near =
                            letter.map_or(99.0, |c| (band as f32 - 3.0 * (c as u8 - b'a') as f32).abs());
                        let level = if near < 4.0 { 0.0 } else { -9.0 };
                        level + 0.8 * noise.unit(band) as f32
                    }));
                    truth.push(i as u32);
                }
            }
            all.tokens.push(tokens);
            all.mels.push(mel);
            all.truth.push(truth);
        }
        all
    }

    fn codes(&self, record: usize) -> usize {
        self.truth[record].len().div_ceil(4)
    }
}

impl RecordSource for Letters {
    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        [self.tokens[record].len(), self.truth[record].len()][column] as u32
    }

    fn speaker(&self, _record: usize) -> u32 {
        0
    }

    fn language(&self, _record: usize) -> u32 {
        0
    }

    fn speakers(&self) -> &[String] {
        &self.names
    }

    fn languages(&self) -> &[String] {
        &self.names
    }

    fn id(&self, record: usize) -> String {
        record.to_string()
    }

    fn read(&self, record: usize, column: usize, first: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let bytes: &[u8] = match column {
            0 => bytemuck::cast_slice(&self.tokens[record]),
            _ => bytemuck::cast_slice(&self.mels[record]),
        };
        let row = COLUMNS[column].row_bytes();
        let bytes = &bytes[first as usize * row..];
        let count = bytes.len().min(out.len()) / row * row;
        out[..count].copy_from_slice(&bytes[..count]);
        Ok((count / row) as u32)
    }

    fn fingerprint(&self) -> [u8; 32] {
        [1; 32]
    }
}

fn letters() -> (Tokenizer, Letters) {
    const WORDS: [&str; 12] = [
        "sand", "river", "cold", "under", "light", "moves", "old", "garden", "stone", "when", "bright",
        "house",
    ];
    let seed = Seed::new(3);
    let texts: Vec<String> = (0..40u64)
        .map(|i| {
            let words = 3 + seed.below(i, 4);
            let words: Vec<&str> = (0..words).map(|w| WORDS[seed.with(i).below(w, 12) as usize]).collect();
            words.join(" ") + "."
        })
        .collect();
    let options = TrainOptions { vocab_size: CHARACTERS, ..TrainOptions::default() };
    let tokenizer = train(texts.iter().map(|text| ("en", text.as_str())), &options).unwrap();
    let source = Letters::new(&tokenizer, &texts);
    (tokenizer, source)
}

fn aligned(tokenizer: &Tokenizer, source: &Letters) -> Alignments {
    let records: Vec<u32> = (0..source.len() as u32).collect();
    let codes = |record: u32| source.codes(record as usize);
    let mut bad = BadRecords::new("alignment", 0.0, records.len());
    Alignments::of(source, &records, tokenizer, &codes, &mut bad, &AtomicBool::new(false)).unwrap()
}

#[test]
fn letters_are_found_where_they_are_spoken() {
    let (tokenizer, source) = letters();
    let alignments = aligned(&tokenizer, &source);
    let (mut near, mut all) = (0, 0);
    for record in 0..source.len() {
        let found = alignments.get(record as u32).unwrap();
        assert_eq!(found.at_code.len(), source.codes(record));
        assert!(found.at_code.is_sorted(), "an alignment never goes back");
        for (code, &token) in found.at_code.iter().enumerate() {
            let truth = source.truth[record][(code * 4 + 2).min(source.truth[record].len() - 1)];
            near += usize::from(truth.abs_diff(token) <= 1);
            all += 1;
        }
        // Words begin after spaces, and each has codes.
        let text: Vec<&str> = found.tokens.iter().map(|&id| tokenizer.piece(id)).collect();
        assert_eq!(found.words.len(), text.iter().filter(|piece| **piece == "[SPACE]").count() + 1);
        assert!(found.words.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    }
    assert!(near as f64 > 0.95 * all as f64, "{near} of {all} codes are at their letter or next to it");
    let rate = alignments.rate().unwrap();
    assert!((0.4..1.2).contains(&rate), "{rate} letters per code");
}

/// A stage with all of it trains, and only the GPT's own weights reach the model.
#[test]
fn the_alignment_head_stays_out_of_the_model() {
    let (tokenizer, source) = letters();
    let alignments = Arc::new(aligned(&tokenizer, &source));
    let codes = (0..source.len()).map(|r| (0..source.codes(r)).map(|c| ((r + c) % 8) as i32).collect());
    let codes: Vec<Vec<i32>> = codes.collect();
    let records: Vec<u32> = (0..30).collect();
    let held_out: Vec<u32> = (30..40).collect();
    let with_codes = Arc::new(WithCodes::new(Arc::new(WithMels(source)), codes));
    let settings = |regularization: Regularization| {
        let mut settings: GptSettings = small::gpt_settings(1);
        settings.sizes.text_vocabulary = tokenizer.vocabulary_size();
        (settings.sizes.start_text, settings.sizes.stop_text) = (tokenizer.start_id(), tokenizer.stop_id());
        (settings.sizes.max_text, settings.sizes.max_audio) = (60, 90);
        GptSettings { regularization, ..settings }
    };
    let all = Regularization {
        masking: 0.3,
        recombination: 1.0,
        alignment_weight: 0.5,
        acoustic_weight: 0.0,
        diagonal: true,
        codebook_start: false,
        text_dropout: 0.0,
        alignments: Some(alignments),
        space: tokenizer.space_id(),
    };
    let recipe = small::plan(StageKind::Gpt, 40).recipe(StageKind::Gpt, false);
    let mut model = Model::default();
    model.set("mel_stats", &[80], &[5.0; 80]);
    let run = |regularization: Regularization, steps: u64| {
        let sides = RecordSplit { train: &records, validation: &held_out };
        let settings = settings(regularization);
        let mut stage = GptStage::new(
            ReplicaSlice::WHOLE,
            settings,
            recipe,
            ComputeDevice::CPU,
            with_codes.clone(),
            sides,
            &model,
        )
        .unwrap();
        let mut heads = Vec::new();
        for step in 0..steps {
            let control = Control { rate: 3e-3, weight: 1.0, clip: 1.0, average: 0.0, seed: step };
            let queued = stage.submit(step, &control).unwrap();
            let report = stage.wait(queued.ticket).unwrap();
            assert!(report.good && report.loss.is_finite());
            heads.extend(
                stage.numbers(&report).iter().find(|(name, _)| *name == "alignment").map(|(_, x)| *x),
            );
        }
        let score = stage.validate().unwrap().unwrap().score;
        let mut made = Model::default();
        stage.finish(&mut made, false).unwrap();
        (heads, score, made)
    };
    let (heads, score, made) = run(all.clone(), 30);
    assert!(heads[25..].iter().sum::<f64>() < heads[..5].iter().sum::<f64>(), "the head learns: {heads:?}");
    let (again, same, _) = run(all, 30);
    assert_eq!((heads, score), (again, same), "the seed determines the result");
    let (none, _, plain) = run(Regularization::default(), 1);
    assert!(none.is_empty());
    assert_eq!(made.shape("gpt.mel_head.weight"), plain.shape("gpt.mel_head.weight"));
    assert!(made.shape("training.alignment.head.weight").is_none());
}

/// Codes trained to predict the token learn to, deterministically, and the classifier is stored with the codes.
#[test]
fn codes_learn_to_predict_tokens() {
    let (tokenizer, source) = letters();
    let alignments = Arc::new(aligned(&tokenizer, &source));
    let source = Arc::new(source);
    let (records, held_out): (Vec<u32>, Vec<u32>) = ((0..30).collect(), (30..40).collect());
    let plan = small::plan(StageKind::Dvae, 200);
    let run = |weight: Option<f64>, from: &Model| {
        let vocabulary = tokenizer.vocabulary_size();
        let spoken = weight.map(|weight| TokenTargets { weight, vocabulary, alignments: alignments.clone() });
        let small = small::dvae_settings();
        let sizes = DvaeSizes { hidden: 16, codes: 64, ..small.sizes.clone() };
        let settings = DvaeSettings { token_targets: spoken, rows: 16, frames: 32, sizes, ..small };
        let sides = RecordSplit { train: &records, validation: &held_out };
        let mut stage =
            small::dvae_stage(settings, &plan, source.clone(), sides, ComputeDevice::CPU, from).unwrap();
        let mut named = Vec::new();
        for step in 0..200 {
            let control = Control { rate: 1e-2, weight: 1.0, clip: 1.0, average: 0.0, seed: step };
            stage.between(step).unwrap();
            let queued = stage.submit(step, &control).unwrap();
            let report = stage.wait(queued.ticket).unwrap();
            assert!(report.good && report.loss.is_finite());
            let numbers = stage.numbers(&report);
            named.extend(numbers.iter().find(|(name, _)| *name == "tokens_named").map(|(_, x)| *x));
        }
        let validation = stage.validate().unwrap().unwrap().score;
        let mut made = Model::default();
        stage.finish(&mut made, false).unwrap();
        (named, validation, made)
    };
    let nothing = Model::default();
    let (named, score, made) = run(Some(1.0), &nothing);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    assert!(mean(&named[180..]) > 0.3, "the classifier learns: {named:?}");
    let (again, same, _) = run(Some(1.0), &nothing);
    assert_eq!((named, score), (again, same), "the seed determines the result");
    let (none, other, plain) = run(None, &nothing);
    assert!(none.is_empty() && other != score);
    assert_eq!(made.shape("dvae.codebook.embed"), plain.shape("dvae.codebook.embed"));
    assert!(made.shape("training.token_head.weight").is_none());
    // The classifier is stored with the codes, for speaking; without token targets there is none.
    let head = |model: &Model| model.shape("dvae.token_head.weight");
    let code_width = small::dvae_settings().sizes.code_width;
    assert_eq!(head(&made), Some(vec![tokenizer.vocabulary_size(), code_width]));
    assert_eq!(head(&plain), None);
    // A trained DVAE trains further, with or without token targets.
    let (_, further, _) = run(Some(1.0), &made);
    assert!(further < score, "{further} after as many steps more, {score} before");
}

/// The same clips with the conditioning mels that a GPT stage needs.
struct WithMels(Letters);

const WITH_MELS: [Column; 3] = [TOKENS, DVAE_MEL, myxtts_data::record::CONDITIONING_MEL];

impl RecordSource for WithMels {
    fn columns(&self) -> &[Column] {
        &WITH_MELS
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        self.0.rows(record, column.min(1))
    }

    fn speaker(&self, record: usize) -> u32 {
        self.0.speaker(record)
    }

    fn language(&self, record: usize) -> u32 {
        self.0.language(record)
    }

    fn speakers(&self) -> &[String] {
        self.0.speakers()
    }

    fn languages(&self) -> &[String] {
        self.0.languages()
    }

    fn id(&self, record: usize) -> String {
        self.0.id(record)
    }

    fn read(&self, record: usize, column: usize, first: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        self.0.read(record, column.min(1), first, out)
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.0.fingerprint()
    }
}
