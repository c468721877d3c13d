//! A tiny untrained model.

use myxtts_data::tokenizer::{self, TrainOptions};
use myxtts_model::decoder::{Decoder, DecoderSizes};
use myxtts_model::dvae::{Dvae, DvaeSizes};
use myxtts_model::speaker::{SpeakerEncoder, SpeakerLayer, SpeakerSizes};
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_model::weights::folder::{TOKEN_HEAD_BIAS, TOKEN_HEAD_WEIGHT};
use myxtts_model::weights::tensors::TensorSpec;
use myxtts_model::weights::{ElementType, FolderWriter, Part, Reading};
use myxtts_model::{Declare, Gpt, GptSizes};
use myxtts_run::durable::OsDisk;
use myxtts_tensor::{Device, Engine, EngineOptions, Precision};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// Channels of a code's vector.
const CODE_WIDTH: usize = 8;
pub const CODES: usize = 12;
pub const WIDTH: usize = 32;
pub const MAX_AUDIO: usize = 40;

/// Number of codes of any text: the model never generates STOP.
pub const CODES_PER_TEXT: usize = MAX_AUDIO - 3;

pub fn decoder_sizes() -> DecoderSizes {
    DecoderSizes { latent: WIDTH, speaker: 16, channels: 16, ..DecoderSizes::v2() }
}

#[allow(dead_code)]
pub fn speaker_sizes() -> SpeakerSizes {
    let layers = [1, 2, 2, 2].map(|stride| SpeakerLayer { blocks: 1, channels: 8, stride }).to_vec();
    SpeakerSizes { mels: 64, layers, reduction: 4, attention: 8, result: 16 }
}

/// What differs between the models of tests.
struct Model<'a> {
    width: usize,
    /// Channels of the DVAE.
    hidden: usize,
    /// Bias of STOP: the larger, the earlier an utterance ends.
    stop: f32,
    /// Texts with their languages, whose letters are the vocabulary.
    texts: &'a [(&'a str, &'a str)],
    /// Tensors by name, in release order, in place of the random ones.
    tensors: &'a BTreeMap<String, Vec<f32>>,
    /// How its recordings were read in training.
    reading: Option<Reading>,
}

impl Default for Model<'_> {
    fn default() -> Self {
        Model { width: WIDTH, hidden: 16, stop: -50.0, texts: &TEXTS, tensors: &NO_TENSORS, reading: None }
    }
}

/// Writes a model folder with the GPT and the given parts.
pub fn write(path: &Path, parts: &[Part]) {
    write_all(path, parts, Model::default());
}

/// The same with some tensors replaced, by name and in release order.
#[allow(dead_code)]
pub fn write_with(path: &Path, parts: &[Part], tensors: &BTreeMap<String, Vec<f32>>) {
    write_all(path, parts, Model { tensors, ..Model::default() });
}

/// The same with a bias of STOP: the larger, the earlier speech ends.
#[allow(dead_code)]
pub fn write_ending(path: &Path, parts: &[Part], stop: f32) {
    write_all(path, parts, Model { stop, ..Model::default() });
}

/// The same with a vocabulary from other texts, each with its language.
#[allow(dead_code)]
pub fn write_reading(path: &Path, parts: &[Part], texts: &[(&str, &str)]) {
    write_all(path, parts, Model { stop: 1.0, texts, ..Model::default() });
}

/// The same with other widths of the GPT and the DVAE; the decoder fits only [`WIDTH`].
#[allow(dead_code)]
pub fn write_sized(path: &Path, parts: &[Part], width: usize, hidden: usize) {
    write_all(path, parts, Model { width, hidden, ..Model::default() });
}

/// The same trained on recordings that were trimmed and brought to a loudness.
#[allow(dead_code)]
pub fn write_prepared(path: &Path, parts: &[Part], trim_db: Option<f32>, loudness_lufs: Option<f64>) {
    let reading = Some(Reading { cleaner: "default".to_owned(), trim_db, loudness_lufs });
    write_all(path, parts, Model { reading, ..Model::default() });
}

static NO_TENSORS: BTreeMap<String, Vec<f32>> = BTreeMap::new();

/// Texts whose letters are the vocabulary.
const TEXTS: [(&str, &str); 2] = [("en", "hello world, this is a voice"), ("fa", "سلام دنیا")];

fn write_all(path: &Path, parts: &[Part], model: Model<'_>) {
    let Model { width, hidden, stop, texts, tensors: replaced, reading } = model;
    let options = TrainOptions { vocab_size: 200, ..TrainOptions::default() };
    let vocabulary = tokenizer::train(texts.iter().copied(), &options).unwrap();
    let mut declare = Declare::new(0.0, &|_| false);
    let heads = 2;
    let mut sizes = GptSizes::of(2, width, heads, vocabulary.vocabulary_size(), CODES);
    (sizes.max_text, sizes.max_audio) = (60, MAX_AUDIO);
    Gpt::declare(&mut declare, sizes);
    if parts.contains(&Part::Dvae) {
        let sizes = DvaeSizes { hidden, blocks: 1, codes: CODES, code_width: CODE_WIDTH, ..DvaeSizes::v2() };
        Dvae::declare(&mut declare, &sizes, "dvae.");
    }
    if parts.contains(&Part::Decoder) {
        Decoder::declare(&mut declare, &decoder_sizes());
    }
    if parts.contains(&Part::Speaker) {
        SpeakerEncoder::declare(&mut declare, &speaker_sizes());
    }
    let (layout, released) = declare.finish();
    let options = EngineOptions { seed: 5, ..EngineOptions::default() };
    let engine = Engine::new(Device::Cpu, layout, Precision::F32, options).unwrap();
    let mut files: BTreeMap<Part, Vec<(TensorSpec, Vec<f32>)>> = BTreeMap::new();
    let mut add = |name: &str, shape: &[usize], data: Vec<f32>| {
        let spec = TensorSpec { name: name.to_owned(), kind: ElementType::F32, shape: shape.to_vec() };
        files.entry(Part::of_tensor(name).unwrap()).or_default().push((spec, data));
    };
    add("mel_stats", &[80], vec![2.0; 80]);
    for one in &released {
        let mut data = one.to_released(&engine.read_parameter(one.id).unwrap());
        match one.name.as_str() {
            "gpt.mel_head.bias" => data[CODES + 1] = stop,
            // Zero in a new model: all codes would sound the same.
            "dvae.codebook.embed" => data.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 7) as f32 - 3.0),
            // A new decoder is almost silent: amplified to be audible.
            name if name.contains("conv_post") => data.iter_mut().for_each(|x| *x *= 200.0),
            // A new encoder gives the same code for every sound: amplified to tell recordings apart.
            "dvae.encoder.3.weight" if reading.is_some() => data.iter_mut().for_each(|x| *x *= 200.0),
            name => data = replaced.get(name).cloned().unwrap_or(data),
        }
        add(&one.name, &one.shape, data);
    }
    if parts.contains(&Part::Dvae) {
        let tokens = vocabulary.vocabulary_size();
        let weight = (0..tokens * CODE_WIDTH).map(|i| ((i * 37 % 23) as f32 - 11.0) / 20.0).collect();
        add(TOKEN_HEAD_WEIGHT, &[tokens, CODE_WIDTH], weight);
        add(TOKEN_HEAD_BIAS, &[tokens], vec![0.0; tokens]);
    }
    let mut folder = FolderWriter::create(&OsDisk, path, false).unwrap();
    for (part, tensors) in &files {
        let specs: Vec<TensorSpec> = tensors.iter().map(|(spec, _)| spec.clone()).collect();
        let mut bytes =
            |i: usize| Ok(Cow::Owned(tensors[i].1.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()));
        folder.tensors(*part, &specs, &mut bytes).unwrap();
    }
    folder.text(VOCABULARY, &vocabulary.to_json()).unwrap();
    folder.manifest().source = "a test".to_owned();
    folder.manifest().reading = reading;
    folder.manifest().parts.insert("gpt".to_owned(), serde_json::json!({ "heads": heads }));
    for (part, name) in [(Part::Dvae, "dvae"), (Part::Decoder, "decoder"), (Part::Speaker, "speaker")] {
        if parts.contains(&part) {
            folder.manifest().parts.insert(name.to_owned(), serde_json::json!({}));
        }
    }
    folder.finish().unwrap();
}
