//! Converts Coqui's files to a model folder.
//!
//! There are two layouts of `model.pth`: the release's (`{"model": {"gpt...": ...}}`) and the trainer's (prefix `xtts.`
//! on every name, the DVAE included, the optimizer state, a pickled configuration). Every name is accounted for:
//! imported, known and dropped, or an error.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use myxtts_run::durable::Disk;
use serde::Serialize;
use serde_json::Value as Json;

use super::buffers::is_buffer;
use super::expected::{Expected, Mismatch, OPTIONAL};
use super::folder::{
    CONFIG, FolderWriter, MAX_JSON_BYTES, MAX_TEXT_BYTES, Manifest, Part, VOCABULARY, read_small,
};
use super::pickle::{TensorRef, Value};
use super::pth::TorchFile;
use super::sizes::{Shapes, Sizes};
use super::tensors::TensorSpec;
use super::{ElementType, WeightsError, python_json};

/// Files of a model; only `model` is required.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `model.pth`, or a trainer checkpoint.
    pub model: PathBuf,
    /// `dvae.pth`.
    pub dvae: Option<PathBuf>,
    /// `mel_stats.pth`.
    pub mel_stats: Option<PathBuf>,
    /// `vocab.json`.
    pub vocabulary: Option<PathBuf>,
    /// `config.json`.
    pub config: Option<PathBuf>,
    /// `speakers_xtts.pth`.
    pub voices: Option<PathBuf>,
    /// Accept files with wrong checksums: torch can be configured to write none.
    pub unchecked: bool,
}

/// Result of an import.
#[derive(Clone, Debug, Serialize)]
pub struct ImportReport {
    /// Sizes of the model.
    pub sizes: Sizes,
    /// Number of tensors written.
    pub tensors: usize,
    /// Total number of elements in them.
    pub numbers: u64,
    /// Names of known tensors that were dropped because they are not needed.
    pub dropped: Vec<String>,
    /// Names of the voices.
    pub voices: Vec<String>,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

/// A tensor and the file that contains it.
struct SourceTensor<'f> {
    file: &'f TorchFile,
    tensor: TensorRef,
}

/// Tensors of a model under their release names, and the names that were dropped or unexpected.
#[derive(Default)]
struct CollectedTensors<'f> {
    tensors: BTreeMap<String, SourceTensor<'f>>,
    dropped: Vec<String>,
    left_over: Vec<String>,
}

/// How a name in the file is handled.
#[derive(Debug, PartialEq, Eq)]
enum NameMapping {
    Take(String),
    Drop,
}

/// Maps a name of either layout to the release's. Weight norm has two spellings, one of them older.
fn map_name(name: &str, trainer: bool) -> NameMapping {
    let name = if trainer { name.strip_prefix("xtts.").unwrap_or(name) } else { name };
    let within = name.strip_prefix("gpt.gpt.h.").and_then(|rest| rest.split_once('.')).map(|(_, rest)| rest);
    // Not needed: copies made for inference, a GPT-2 table that XTTS does not use, causal masks of old versions, mel
    // filters.
    let useless = name.starts_with("torch_mel_spectrogram_")
        || name.starts_with("gpt.gpt_inference.")
        || name == "gpt.gpt.wte.weight"
        || matches!(within, Some("attn.bias" | "attn.masked_bias"));
    if useless {
        return NameMapping::Drop;
    }
    for (old, new) in [(".weight_g", "original0"), (".weight_v", "original1")] {
        if let Some(stem) = name.strip_suffix(old) {
            return NameMapping::Take(format!("{stem}.parametrizations.weight.{new}"));
        }
    }
    NameMapping::Take(name.to_owned())
}

/// Maximum number of names in a dict of tensors or voices, and maximum length of a name in bytes. A pickle can refer to
/// one value a million times: what is cheap there must not become a million copies here.
const MAX_NAMES: usize = 1 << 16;
const MAX_NAME_BYTES: usize = 256;

/// Returns the dict of tensors: the value under `model`, or the whole.
fn state_dict<'p>(root: Value<'p>, path: &Path) -> Result<Value<'p>, WeightsError> {
    let state = root.get("model").unwrap_or(root);
    if !state.is_dict() {
        let what = format!("found {} where the tensors should be", state.describe());
        return Err(WeightsError::content(path, what));
    }
    let count = state.entries().count();
    if count > MAX_NAMES {
        return Err(WeightsError::content(
            path,
            format!("it has {count} names, more than the limit of {MAX_NAMES}"),
        ));
    }
    Ok(state)
}

impl<'f> CollectedTensors<'f> {
    /// Adds the tensors of a file, with `prefix` before their names.
    fn add(&mut self, file: &'f TorchFile, state: Value, prefix: &str) -> Result<(), WeightsError> {
        let trainer =
            state.entries().any(|(key, _)| key.as_str().is_some_and(|key| key.starts_with("xtts.")));
        for (key, value) in state.entries() {
            let name = match key.as_str() {
                Some(name) if name.len() <= MAX_NAME_BYTES => format!("{prefix}{name}"),
                Some(name) => {
                    self.left_over.push(format!("a name of {} bytes", name.len()));
                    continue;
                }
                None => {
                    self.left_over.push(format!("{} instead of a name", key.describe()));
                    continue;
                }
            };
            match (map_name(&name, trainer), value.as_tensor()) {
                (NameMapping::Drop, _) => self.dropped.push(name),
                (NameMapping::Take(_), None) => self.left_over.push(format!("{name} ({})", value.describe())),
                (NameMapping::Take(release), Some(tensor)) => {
                    file.check(tensor)?;
                    let found = SourceTensor { file, tensor: tensor.clone() };
                    if self.tensors.insert(release.clone(), found).is_some() {
                        self.left_over.push(format!("{name} (a second {release})"));
                    }
                }
            }
        }
        Ok(())
    }

    fn shapes(&self) -> Shapes {
        self.tensors.iter().map(|(name, found)| (name.clone(), found.tensor.shape.clone())).collect()
    }
}

/// Opens a `.pth` and verifies its checksums.
fn open(path: &Path, unchecked: bool) -> Result<TorchFile, WeightsError> {
    let file = TorchFile::open(path)?;
    let damaged = if unchecked { Vec::new() } else { file.damaged() };
    if damaged.is_empty() {
        return Ok(file);
    }
    let first: Vec<&str> = damaged.iter().take(5).map(String::as_str).collect();
    let what = format!(
        "{} of its entries do not match their checksums ({}): download the file again, or accept it with --unchecked",
        damaged.len(),
        first.join(", ")
    );
    Err(WeightsError::content(path, what))
}

/// A configuration: a JSON file, or an object pickled together with the weights.
enum Configuration<'a> {
    Json(&'a Json),
    Pickled(Value<'a>),
}

impl Configuration<'_> {
    /// A size of the model by its name in `model_args`.
    fn size(&self, name: &str) -> Option<usize> {
        let size = match self {
            Configuration::Json(config) => config.get("model_args")?.get(name)?.as_i64()?,
            Configuration::Pickled(root) => {
                root.attribute("config")?.attribute("model_args")?.attribute(name)?.as_int()?
            }
        };
        usize::try_from(size).ok()
    }

    /// Differences to the tensors, which take precedence.
    fn differences(&self, sizes: &Sizes) -> Vec<String> {
        let gpt = &sizes.gpt;
        let pairs = [
            ("gpt_layers", gpt.layers),
            ("gpt_n_model_channels", gpt.dim),
            ("gpt_number_text_tokens", gpt.text_tokens),
            ("gpt_num_audio_tokens", gpt.audio_tokens),
            ("gpt_max_text_tokens", gpt.text_positions.saturating_sub(2)),
            ("gpt_max_audio_tokens", gpt.audio_positions.saturating_sub(3)),
            ("decoder_input_dim", sizes.decoder.input),
            ("d_vector_dim", sizes.decoder.speaker),
        ];
        let differing = pairs.into_iter().filter_map(|(name, size)| Some((name, size, self.size(name)?)));
        differing
            .filter(|(_, size, configured)| size != configured)
            .map(|(name, size, configured)| {
                format!("{name} is {configured} in the configuration but {size} in the tensors; using {size}")
            })
            .collect()
    }
}

/// Reads the files of a model and writes them as a folder.
pub fn import(
    sources: &Sources,
    disk: &dyn Disk,
    output: &Path,
    replace: bool,
) -> Result<ImportReport, WeightsError> {
    import_expecting(sources, disk, output, replace, &Sizes::expected)
}

/// [`import`] with a custom list of expected tensors.
pub(crate) fn import_expecting(
    sources: &Sources,
    disk: &dyn Disk,
    output: &Path,
    replace: bool,
    expected: &dyn Fn(&Sizes) -> Vec<Expected>,
) -> Result<ImportReport, WeightsError> {
    let file = open(&sources.model, sources.unchecked)?;
    let dvae = sources.dvae.as_deref().map(|path| open(path, sources.unchecked)).transpose()?;
    let mel_stats = sources.mel_stats.as_deref().map(|path| open(path, sources.unchecked)).transpose()?;
    let voices = sources.voices.as_deref().map(|path| open(path, sources.unchecked)).transpose()?;
    let config = sources.config.as_deref().map(read_config).transpose()?;
    let vocabulary = sources.vocabulary.as_deref().map(read_vocabulary).transpose()?;

    let pickle = file.pickle()?;
    let mut notes = Vec::new();
    let mut gathered = CollectedTensors::default();
    gathered.add(&file, state_dict(pickle.root(), &sources.model)?, "")?;
    if let Some(dvae) = &dvae {
        let before = gathered.tensors.len();
        gathered.tensors.retain(|name, _| !name.starts_with("dvae."));
        if gathered.tensors.len() < before {
            notes.push(format!("using the DVAE of {} instead of the checkpoint's", dvae.path().display()));
        }
        gathered.add(dvae, state_dict(dvae.pickle()?.root(), dvae.path())?, "dvae.")?;
    }
    if let Some(stats) = &mel_stats {
        let pickle = stats.pickle()?;
        let tensor = pickle.root().as_tensor().cloned();
        let what = || format!("expected a tensor, found {}", pickle.root().describe());
        let tensor = tensor.ok_or_else(|| WeightsError::content(stats.path(), what()))?;
        stats.check(&tensor)?;
        gathered.tensors.insert("mel_stats".to_owned(), SourceTensor { file: stats, tensor });
    }

    let configured = match &config {
        Some((_, json)) => Configuration::Json(json),
        None => Configuration::Pickled(pickle.root()),
    };
    let shapes = gathered.shapes();
    let heads = configured.size("gpt_n_heads");
    let sizes = Sizes::from_shapes(&shapes, heads);
    let mut mismatch = Mismatch::between(&shapes, &expected(&sizes), &OPTIONAL);
    // Buffers are not weights: an export recomputes them.
    mismatch.missing.retain(|(name, _)| !is_buffer(name));
    mismatch.left_over.append(&mut gathered.left_over);
    // A name that belongs to no part has no file to go to, whatever the caller expects.
    mismatch.left_over.extend(shapes.keys().filter(|name| Part::of_tensor(name).is_none()).cloned());
    mismatch.left_over.sort();
    mismatch.left_over.dedup();
    if !mismatch.is_empty() {
        return Err(WeightsError::Mismatch { path: sources.model.clone(), mismatch: Box::new(mismatch) });
    }
    check_heads(&sizes, heads, &sources.model, &mut notes)?;
    if let (Some(path), Some(bytes)) = (&sources.vocabulary, &vocabulary) {
        check_vocabulary(path, bytes, sizes.gpt.text_tokens)?;
    }
    notes.extend(configured.differences(&sizes));
    check_volume(&gathered, &sources.model)?;
    let voices = voices.as_ref().map(|file| read_voices(file, &sizes)).transpose()?.unwrap_or_default();

    let mut writer = FolderWriter::create(disk, output, replace)?;
    describe(writer.manifest(), sources, &sizes, &voices);
    for part in [Part::Gpt, Part::Dvae, Part::Decoder, Part::Speaker] {
        let mine = gathered.tensors.iter().filter(|(name, _)| Part::of_tensor(name) == Some(part));
        write_part(&mut writer, part, mine.map(|(name, found)| (name.clone(), found)).collect())?;
    }
    let named: Vec<(String, &SourceTensor)> =
        voices.iter().enumerate().flat_map(|(i, voice)| voice.tensors(i)).collect();
    write_part(&mut writer, Part::Voices, named)?;
    if let Some(bytes) = &vocabulary {
        writer.text(VOCABULARY, bytes)?;
    }
    if let Some((bytes, _)) = &config {
        writer.text(CONFIG, bytes)?;
    }
    writer.finish()?;

    let numbers = gathered.tensors.values().map(|found| found.tensor.count() as u64).sum();
    Ok(ImportReport {
        tensors: gathered.tensors.len(),
        numbers,
        dropped: gathered.dropped,
        voices: voices.into_iter().map(|voice| voice.name).collect(),
        notes,
        sizes,
    })
}

/// Checks that the heads divide the channels, and adds a note if their number is a guess.
fn check_heads(
    sizes: &Sizes,
    configured: Option<usize>,
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<(), WeightsError> {
    let (dim, heads) = (sizes.gpt.dim, sizes.gpt.heads);
    if heads == 0 || !dim.is_multiple_of(heads) {
        let what =
            format!("{heads} heads do not divide {dim} channels; pass the configuration with --config");
        return Err(WeightsError::content(path, what));
    }
    if configured.is_none() {
        notes.push(format!(
            "no configuration gives the number of heads: assuming {heads} of {} channels each",
            dim / heads
        ));
    }
    Ok(())
}

/// Tensors may share data, but a small file that claims to be a large model would fill the disk.
fn check_volume(gathered: &CollectedTensors, path: &Path) -> Result<(), WeightsError> {
    let mut claimed: BTreeMap<&Path, (usize, usize)> = BTreeMap::new();
    for found in gathered.tensors.values() {
        let bytes = found.tensor.count().saturating_mul(found.tensor.storage.kind.size());
        let entry = claimed.entry(found.file.path()).or_insert((0, found.file.size()));
        entry.0 = entry.0.saturating_add(bytes);
    }
    match claimed.values().find(|(bytes, size)| *bytes > size.saturating_mul(2)) {
        Some((bytes, size)) => {
            let what = format!("its tensors claim {bytes} bytes, but the file has only {size}");
            Err(WeightsError::content(path, what))
        }
        None => Ok(()),
    }
}

fn describe(manifest: &mut Manifest, sources: &Sources, sizes: &Sizes, voices: &[Voice]) {
    let name = sources.model.file_name().unwrap_or_default().to_string_lossy();
    manifest.source = format!("imported from {name}");
    manifest.licence =
        "that of the imported file; Coqui's releases are under the Coqui Public Model License, \
                        which does not allow commercial use"
            .to_owned();
    manifest.voices = voices.iter().map(|voice| voice.name.clone()).collect();
    if let Ok(Json::Object(parts)) = serde_json::to_value(sizes) {
        manifest.parts = parts.into_iter().filter(|(_, sizes)| !sizes.is_null()).collect();
    }
}

fn write_part(
    writer: &mut FolderWriter,
    part: Part,
    tensors: Vec<(String, &SourceTensor)>,
) -> Result<(), WeightsError> {
    if tensors.is_empty() {
        return Ok(());
    }
    let ours = |kind: ElementType| if kind.is_float() { ElementType::F32 } else { kind };
    let specs: Vec<TensorSpec> = tensors
        .iter()
        .map(|(name, found)| TensorSpec {
            name: name.clone(),
            kind: ours(found.tensor.storage.kind),
            shape: found.tensor.shape.clone(),
        })
        .collect();
    writer.tensors(part, &specs, &mut |i| {
        let found = tensors[i].1;
        let (_, bytes) = found.file.read_converted(&found.tensor)?;
        Ok::<Cow<[u8]>, _>(bytes)
    })
}

/// A named voice.
struct Voice<'f> {
    name: String,
    latents: SourceTensor<'f>,
    vector: SourceTensor<'f>,
}

impl Voice<'_> {
    fn tensors(&self, number: usize) -> [(String, &SourceTensor<'_>); 2] {
        [
            (format!("{number}.gpt_cond_latent"), &self.latents),
            (format!("{number}.speaker_embedding"), &self.vector),
        ]
    }
}

/// Reads the voices of `speakers_xtts.pth`. The error lists all voices that do not fit this model.
fn read_voices<'f>(file: &'f TorchFile, sizes: &Sizes) -> Result<Vec<Voice<'f>>, WeightsError> {
    let pickle = file.pickle()?;
    let mut voices: Vec<Voice> = Vec::new();
    let mut known = BTreeSet::new();
    let mut wrong = Vec::new();
    for (key, value) in state_dict(pickle.root(), file.path())?.entries() {
        let name = key.as_str().filter(|name| name.len() <= MAX_NAME_BYTES).unwrap_or_default();
        // A voice has two entries. Each lookup is linear, so dicts with many entries are rejected.
        let small = value.entries().count() <= 16;
        let tensor = |field: &str, shape: &[usize]| {
            let value = small.then_some(value)?;
            value.get(field).and_then(|tensor| tensor.as_tensor()).filter(|tensor| tensor.shape == shape)
        };
        let latents = tensor("gpt_cond_latent", &[1, sizes.gpt.latents, sizes.gpt.dim]);
        let vector = tensor("speaker_embedding", &[1, sizes.decoder.speaker, 1]);
        match (latents, vector) {
            (Some(latents), Some(vector)) if !name.is_empty() && known.insert(name) => {
                file.check(latents)?;
                file.check(vector)?;
                let of = |tensor: &TensorRef| SourceTensor { file, tensor: tensor.clone() };
                voices.push(Voice { name: name.to_owned(), latents: of(latents), vector: of(vector) });
            }
            _ => wrong.push(format!("{name:?}")),
        }
    }
    if wrong.is_empty() {
        return Ok(voices);
    }
    wrong.truncate(20);
    let what = format!(
        "these voices do not fit this model (gpt_cond_latent [1, {}, {}] and speaker_embedding [1, {}, 1]): {}",
        sizes.gpt.latents,
        sizes.gpt.dim,
        sizes.decoder.speaker,
        wrong.join(", ")
    );
    Err(WeightsError::content(file.path(), what))
}

fn read_config(path: &Path) -> Result<(Vec<u8>, Json), WeightsError> {
    let bytes = read_small(path, MAX_JSON_BYTES)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| WeightsError::content(path, "it is not UTF-8"))?;
    let json = python_json::parse(text).map_err(|error| {
        WeightsError::content(path, format!("not valid JSON, neither strict nor Python's dialect: {error}"))
    })?;
    Ok((bytes, json))
}

fn read_vocabulary(path: &Path) -> Result<Vec<u8>, WeightsError> {
    let bytes = read_small(path, MAX_TEXT_BYTES)?;
    serde_json::from_slice::<serde::de::IgnoredAny>(&bytes)
        .map_err(|error| WeightsError::content(path, format!("not a vocabulary: not valid JSON: {error}")))?;
    Ok(bytes)
}

/// Rejects a vocabulary whose size differs from the text table: it belongs to another model, and its ids would address
/// other rows or none.
fn check_vocabulary(path: &Path, bytes: &[u8], rows: usize) -> Result<(), WeightsError> {
    let json: Json = serde_json::from_slice(bytes)
        .map_err(|error| WeightsError::content(path, format!("not a vocabulary: {error}")))?;
    let pieces = json.pointer("/model/vocab").and_then(Json::as_object);
    let added = json.get("added_tokens").and_then(Json::as_array);
    let ids = pieces.into_iter().flat_map(|pieces| pieces.values().filter_map(Json::as_u64));
    let added = added.into_iter().flatten().filter_map(|token| token.get("id")?.as_u64());
    let tokens = ids.chain(added).max().map_or(0, |last| last.saturating_add(1));
    if tokens == rows as u64 {
        return Ok(());
    }
    let what = format!(
        "it has {tokens} tokens, but the model's text table has {rows} rows: it belongs to another model; pass the right one with --vocab"
    );
    Err(WeightsError::content(path, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_layouts_and_spellings_map_to_the_release() {
        let take = |name: &str| NameMapping::Take(name.to_owned());
        assert_eq!(map_name("xtts.gpt.gpt.ln_f.bias", true), take("gpt.gpt.ln_f.bias"));
        assert_eq!(map_name("dvae.encoder.5.bias", true), take("dvae.encoder.5.bias"));
        assert_eq!(
            map_name("hifigan_decoder.waveform_decoder.ups.0.weight_g", false),
            take("hifigan_decoder.waveform_decoder.ups.0.parametrizations.weight.original0")
        );
        for useless in [
            "xtts.gpt.gpt_inference.transformer.ln_f.weight",
            "xtts.gpt.gpt.wte.weight",
            "gpt.gpt.h.12.attn.bias",
            "gpt.gpt.h.3.attn.masked_bias",
            "torch_mel_spectrogram_dvae.mel_stft.mel_scale.fb",
        ] {
            assert_eq!(map_name(useless, true), NameMapping::Drop, "{useless}");
        }
        // The bias of the projection is not a mask.
        assert_eq!(map_name("gpt.gpt.h.3.attn.c_attn.bias", false), take("gpt.gpt.h.3.attn.c_attn.bias"));
    }
}
