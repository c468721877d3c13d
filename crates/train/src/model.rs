//! The model of a run: tensors of the finished parts, under the names of the released model, and the folder that stores
//! them.

use crate::error::TrainError;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::weights::claims::check_gpt;
use myxtts_model::weights::folder::{CONFIG, FolderWriter, MANIFEST, ModelFolder, Part, VOCABULARY};
use myxtts_model::weights::grow::{TEXT_TABLES, grow_table};
use myxtts_model::weights::sizes::Shapes;
use myxtts_model::weights::tensors::{TensorSpec, View};
use myxtts_model::weights::{ElementType, Reading, WeightsError};
use myxtts_model::{GptSizes, Released};
use myxtts_run::durable::Disk;
use myxtts_run::plan::StageKind;
use myxtts_tensor::Engine;
use myxtts_tensor::engine::Arena;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// Name of the tensor that divides log-mels, per band.
pub const MEL_STATS: &str = "mel_stats";
pub(crate) use myxtts_speak::weight_source::TEXT_DROPOUT;

/// Name of the GPT in the manifest.
pub const GPT: &str = "gpt";
/// Name of the DVAE (audio tokeniser) in the manifest.
pub const DVAE: &str = "dvae";
/// Name of the waveform decoder in the manifest.
pub const DECODER: &str = "decoder";
/// Name of the speaker encoder in the manifest.
pub const SPEAKER: &str = "speaker";

/// Checks that a folder has a model which `stage`, or every stage, can begin from.
pub(crate) fn check_base(folder: &Path, stage: Option<StageKind>) -> Result<(), TrainError> {
    let from = || folder.to_owned();
    if !folder.join(MANIFEST).is_file() {
        return Err(TrainError::NotAModel { from: from() });
    }
    let manifest = ModelFolder::read_manifest(folder)?;
    if manifest.parts.is_empty() {
        return Err(TrainError::NotAModel { from: from() });
    }
    let has_dvae = manifest.parts.contains_key(DVAE) && manifest.part(Part::Dvae).is_some();
    if manifest.parts.contains_key(GPT) && !has_dvae && stage != Some(StageKind::Dvae) {
        return Err(TrainError::NoDvae { from: from() });
    }
    Ok(())
}

/// A tensor as it is stored in files.
#[derive(Clone, Debug)]
struct Tensor {
    kind: ElementType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// The tensors of a model, in memory.
#[derive(Clone, Debug, Default)]
pub struct Model {
    tensors: BTreeMap<String, Tensor>,
    about: About,
    /// Parts that serve as a starting point and are trained again.
    begun: Vec<&'static str>,
}

/// What a model has besides its tensors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct About {
    parts: BTreeMap<String, Value>,
    trained: BTreeMap<String, Value>,
    vocabulary: Option<Vec<u8>>,
    config: Option<Vec<u8>>,
    source: String,
    licence: String,
    /// How text and recordings are preprocessed.
    reading: Option<Reading>,
}

impl Model {
    /// Opens a model folder; empty if the folder does not exist.
    pub fn open(path: &Path) -> Result<Model, TrainError> {
        if !path.join(MANIFEST).is_file() {
            return Ok(Model::default());
        }
        let folder = ModelFolder::open(path)?;
        let manifest = folder.manifest();
        let about = About {
            parts: manifest.parts.clone(),
            trained: manifest.trained.clone(),
            vocabulary: folder.text(VOCABULARY)?,
            config: folder.text(CONFIG)?,
            source: manifest.source.clone(),
            licence: manifest.licence.clone(),
            reading: manifest.reading.clone(),
        };
        let mut model = Model { about, ..Model::default() };
        for part in [Part::Gpt, Part::Dvae, Part::Decoder, Part::Speaker] {
            let Some(file) = folder.part(part) else { continue };
            for name in file.names() {
                if let Some(view) = file.get(name) {
                    let (kind, shape) = (view.kind, view.shape.to_vec());
                    model.tensors.insert(name.to_owned(), Tensor { kind, shape, bytes: view.bytes.to_vec() });
                }
            }
        }
        Ok(model)
    }

    /// Whether the model has a finished part.
    pub fn has(&self, part: &str) -> bool {
        self.about.parts.contains_key(part)
    }

    /// Whether the model has no tensors.
    pub fn is_empty(&self) -> bool {
        self.about.parts.is_empty()
    }

    /// Sets the parts that serve as a starting point and are trained again.
    pub(crate) fn set_retrained(&mut self, parts: Vec<&'static str>) {
        self.begun = parts;
    }

    /// Whether a part serves as a starting point only.
    pub(crate) fn is_retrained(&self, part: &str) -> bool {
        self.begun.contains(&part)
    }

    /// Marks a part as trained again.
    pub(crate) fn finish_retrained(&mut self, part: &str) {
        self.begun.retain(|begun| *begun != part);
    }

    /// The shape of a tensor; `None` if there is none of that name.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.tensors.get(name).map(|tensor| tensor.shape.clone())
    }

    /// The elements of a tensor as f32, in the order of the file.
    pub fn numbers(&self, name: &str) -> Option<Vec<f32>> {
        let tensor = self.tensors.get(name)?;
        (tensor.kind == ElementType::F32).then(|| bytemuck::allocation::pod_collect_to_vec(&tensor.bytes))
    }

    /// The divisors of mels, per band: ones where none were measured.
    pub fn mel_stats(&self, bands: usize) -> Vec<f32> {
        self.numbers(MEL_STATS).filter(|stats| stats.len() == bands).unwrap_or_else(|| vec![1.0; bands])
    }

    /// Adds or replaces a tensor.
    pub fn set(&mut self, name: &str, shape: &[usize], data: &[f32]) {
        let bytes = bytemuck::cast_slice(data).to_vec();
        self.tensors.insert(name.to_owned(), Tensor { kind: ElementType::F32, shape: shape.to_vec(), bytes });
    }

    /// Removes a tensor.
    pub fn remove(&mut self, name: &str) {
        self.tensors.remove(name);
    }

    /// Adds all tensors whose names have this prefix to a hash.
    pub fn hash(&self, prefix: &str, hasher: &mut blake3::Hasher) {
        for (name, tensor) in self.tensors.iter().filter(|(name, _)| name.starts_with(prefix)) {
            hasher.update(name.as_bytes());
            hasher.update(&tensor.bytes);
        }
    }

    /// Sets the vocabulary that text is tokenised with.
    pub(crate) fn set_vocabulary(&mut self, tokenizer: &Tokenizer) {
        self.about.vocabulary = Some(tokenizer.to_json());
    }

    /// Sets how text and recordings are preprocessed; returns the previous value if it differs.
    pub(crate) fn set_reading(&mut self, reading: Reading) -> Option<Reading> {
        let before = self.about.reading.replace(reading);
        before.filter(|before| self.about.reading.as_ref() != Some(before))
    }

    /// Adopts a vocabulary. The rows of an existing GPT belong to its tokens: the vocabulary must be its own or an extension
    /// of it. Its text tables grow with the vocabulary and keep their old rows. Returns the number of rows before and after.
    pub fn adopt_vocabulary(
        &mut self,
        tokenizer: &Tokenizer,
        seed: u64,
    ) -> Result<Option<(usize, usize)>, TrainError> {
        let before = self.about.vocabulary.take();
        self.set_vocabulary(tokenizer);
        if !self.has(GPT) {
            return Ok(None);
        }
        let foreign = |why: String| {
            TrainError::Vocabulary(format!(
                "the corpus was prepared with another vocabulary than the model's: {why}"
            ))
        };
        if let Some(own) = before {
            let own =
                Tokenizer::from_bytes(&own, Path::new(VOCABULARY)).map_err(|e| foreign(e.to_string()))?;
            tokenizer.extends(&own).map_err(foreign)?;
        }
        let [embedding, ..] = TEXT_TABLES;
        let Some(&[rows, _]) = self.shape(embedding).as_deref() else {
            return Err(TrainError::UnusableModel(format!(
                "the model's {embedding} is not a matrix: import it again"
            )));
        };
        let tokens = tokenizer.vocabulary_size();
        if tokens <= rows {
            return Ok(None);
        }
        for name in TEXT_TABLES {
            let shape = self.shape(name).unwrap_or_default();
            let width = shape.get(1..).unwrap_or_default().iter().product::<usize>().max(1);
            let old = self.numbers(name).filter(|old| old.len() == rows * width).ok_or_else(|| {
                TrainError::UnusableModel(format!(
                    "the model's {name} does not have {rows} rows of f32: import it again"
                ))
            })?;
            let shape: Vec<usize> = std::iter::once(tokens).chain(shape.into_iter().skip(1)).collect();
            self.set(name, &shape, &grow_table(name, &old, width, tokens, seed));
        }
        // A part that was trained here has its sizes in the manifest; those of an imported one come from its shapes.
        if let Some(said) = self.about.parts.get_mut(GPT).and_then(|gpt| gpt.get_mut("text_vocabulary")) {
            *said = tokens.into();
        }
        Ok(Some((rows, tokens)))
    }

    /// The sizes of the GPT, if there is one: from the manifest, or from the shapes of an imported one; checked against
    /// its tensors.
    pub fn gpt_sizes(&self, tokenizer: &Tokenizer) -> Result<Option<GptSizes>, TrainError> {
        let Some(said) = self.about.parts.get(GPT) else { return Ok(None) };
        let shapes = self.gpt_shapes();
        let sizes = match serde_json::from_value(said.clone()) {
            Ok(sizes) => sizes,
            Err(_) => {
                let heads = said.get("heads").and_then(Value::as_u64).map(|heads| heads as usize);
                let found = myxtts_model::weights::Sizes::from_shapes(&shapes, heads).gpt;
                let enough = found.audio_tokens > 2 && found.text_positions > 2 && found.audio_positions > 3;
                if found.heads == 0 || !enough {
                    return Ok(None);
                }
                myxtts_speak::weight_source::gpt_sizes_from_shapes(&found, tokenizer)
            }
        };
        check_gpt(&sizes, &shapes).map_err(|what| {
            TrainError::UnusableModel(format!(
                "the model's GPT cannot be used: {what}; import or train it again"
            ))
        })?;
        Ok(Some(sizes))
    }

    fn gpt_shapes(&self) -> Shapes {
        let named = |(name, tensor): (&String, &Tensor)| (name.clone(), tensor.shape.clone());
        self.tensors.iter().filter(|(name, _)| name.starts_with("gpt.")).map(named).collect()
    }

    /// Copies a part from an engine: the averaged weights if they are kept, else the weights.
    pub fn take(
        &mut self,
        part: &str,
        sizes: Value,
        engine: &Engine,
        released: &[Released],
        average: bool,
    ) -> Result<(), TrainError> {
        let weights = engine.read_arena(Arena::Weights)?;
        let averages = if average { engine.read_arena(Arena::Average)? } else { Vec::new() };
        for tensor in released {
            let range = engine.layout().get(tensor.id).range();
            let from = if range.end <= averages.len() { &averages } else { &weights };
            self.set(&tensor.name, &tensor.shape, &tensor.to_released(&from[range]));
        }
        self.about.parts.insert(part.to_owned(), sizes);
        Ok(())
    }

    /// Stores how a part was trained, for the manifest.
    pub(crate) fn set_trained(&mut self, part: &str, how: Value) {
        self.about.trained.insert(part.to_owned(), how);
    }

    /// How a part was trained; `None` if that is not known.
    pub fn trained(&self, part: &str) -> Option<&Value> {
        self.about.trained.get(part)
    }

    /// Fills an engine's parameters. Those that the model lacks keep their initial values, and their names are returned.
    pub fn fill(&self, engine: &mut Engine, released: &[Released]) -> Result<Vec<String>, TrainError> {
        let mut missing = Vec::new();
        for tensor in released {
            match self.numbers(&tensor.name) {
                Some(data) if self.shape(&tensor.name).as_deref() == Some(&tensor.shape[..]) => {
                    engine.write_parameter(tensor.id, &tensor.to_ours(&data))?;
                }
                _ => missing.push(tensor.name.clone()),
            }
        }
        Ok(missing)
    }

    /// Writes the model to a folder, replacing its content.
    pub fn write(&self, disk: &dyn Disk, path: &Path) -> Result<(), TrainError> {
        let mut writer = FolderWriter::create(disk, path, true)?;
        writer.manifest().parts = self.about.parts.clone();
        writer.manifest().trained = self.about.trained.clone();
        writer.manifest().source = match self.about.source.as_str() {
            "" => "trained by myxtts".to_owned(),
            source => source.to_owned(),
        };
        writer.manifest().licence = self.about.licence.clone();
        writer.manifest().reading = self.about.reading.clone();
        for part in [Part::Gpt, Part::Dvae, Part::Decoder, Part::Speaker] {
            let inside: Vec<(&String, &Tensor)> =
                self.tensors.iter().filter(|(name, _)| Part::of_tensor(name) == Some(part)).collect();
            if inside.is_empty() {
                continue;
            }
            let specs: Vec<TensorSpec> = inside
                .iter()
                .map(|(name, t)| TensorSpec { name: (*name).clone(), kind: t.kind, shape: t.shape.clone() })
                .collect();
            writer.tensors(part, &specs, &mut |i| Ok(Cow::Borrowed(&inside[i].1.bytes[..])))?;
        }
        if let Some(vocabulary) = &self.about.vocabulary {
            writer.text(VOCABULARY, vocabulary)?;
        }
        if let Some(config) = &self.about.config {
            writer.text(CONFIG, config)?;
        }
        writer.finish()?;
        Ok(())
    }
}

/// The header that precedes the numbers when a model is sent to another process.
#[derive(Serialize, Deserialize)]
struct Header {
    tensors: Vec<(String, ElementType, Vec<usize>, usize)>,
    about: About,
}

impl Model {
    /// Serialises the model for another process: length of the header, header, numbers. Parts that are trained again are
    /// included.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TrainError> {
        let named = |(name, t): (&String, &Tensor)| (name.clone(), t.kind, t.shape.clone(), t.bytes.len());
        let header = Header { tensors: self.tensors.iter().map(named).collect(), about: self.about.clone() };
        let header = serde_json::to_vec(&header).map_err(|error| TrainError::Internal(error.to_string()))?;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        self.tensors.values().for_each(|tensor| bytes.extend_from_slice(&tensor.bytes));
        Ok(bytes)
    }

    /// Reads the output of [`Model::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Model, TrainError> {
        let damaged = || TrainError::Internal("the model that rank 0 sent is damaged".to_owned());
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
        let length = u64::from_le_bytes(*length) as usize;
        let header = rest.get(..length).ok_or_else(damaged)?;
        let Header { tensors, about } = serde_json::from_slice(header).map_err(|_| damaged())?;
        let mut rest = &rest[length..];
        let mut all = BTreeMap::new();
        for (name, kind, shape, length) in tensors {
            let bytes = rest.get(..length).ok_or_else(damaged)?.to_vec();
            rest = &rest[length..];
            all.insert(name, Tensor { kind, shape, bytes });
        }
        Ok(Model { tensors: all, about, begun: Vec::new() })
    }
}

/// A part in training, layered over the model it belongs to: a tensor that the part lacks comes from the model, so that
/// speaking needs no copy.
pub(crate) struct Stacked<'a> {
    pub over: Model,
    pub under: &'a Model,
}

impl Stacked<'_> {
    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        let own = self.over.tensors.values();
        let others = self.under.tensors.iter().filter(|(name, _)| !self.over.tensors.contains_key(*name));
        own.chain(others.map(|(_, tensor)| tensor)).map(|tensor| tensor.bytes.len() as u64).sum()
    }
}

impl myxtts_speak::WeightSource for Stacked<'_> {
    fn path(&self) -> &Path {
        Path::new("the model in training")
    }

    fn has_part(&self, part: Part) -> bool {
        let name = match part {
            Part::Gpt => GPT,
            Part::Dvae => DVAE,
            Part::Decoder => DECODER,
            Part::Speaker => SPEAKER,
            Part::Voices => return false,
        };
        self.over.has(name) || self.under.has(name)
    }

    fn tensor(&self, name: &str) -> Option<View<'_>> {
        let found = self.over.tensors.get(name).or_else(|| self.under.tensors.get(name))?;
        Some(View { kind: found.kind, shape: &found.shape, bytes: &found.bytes })
    }

    fn gpt_shapes(&self) -> Shapes {
        let mut shapes = self.under.gpt_shapes();
        shapes.extend(self.over.gpt_shapes());
        shapes
    }

    fn gpt_config(&self) -> Option<&Value> {
        self.over.about.parts.get(GPT).or_else(|| self.under.about.parts.get(GPT))
    }

    fn vocabulary(&self) -> Result<Option<Vec<u8>>, WeightsError> {
        Ok(self.under.about.vocabulary.clone())
    }

    fn reading(&self) -> Option<&Reading> {
        self.under.about.reading.as_ref()
    }
}
