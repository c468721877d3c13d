//! Coqui's files become a model folder.
//!
//! Two layouts of `model.pth`: the release's (`{"model": {"gpt...": ...}}`) and the trainer's (`xtts.` in front of every
//! name, the DVAE beside it, the optimizer's state, a pickled configuration). Every name is accounted for: taken, known and
//! dropped, or an error.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use myxtts_run::durable::Disk;
use serde::Serialize;
use serde_json::Value as Json;

use super::buffers::is_buffer;
use super::expected::{Expected, Mismatch, OPTIONAL};
use super::folder::{CONFIG, FolderWriter, Manifest, Part, SMALL, TEXT, VOCABULARY, read_small};
use super::pickle::{TensorRef, Value};
use super::pth::TorchFile;
use super::sizes::{Shapes, Sizes};
use super::tensors::Spec;
use super::{Kind, WeightsError, python_json};

/// The files of a model; only the first must be there.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `model.pth`, or a checkpoint of the trainer.
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
    /// Take files whose checksums are wrong: torch can be told to write none.
    pub unchecked: bool,
}

/// What an import did.
#[derive(Clone, Debug, Serialize)]
pub struct ImportReport {
    /// How large the model is.
    pub sizes: Sizes,
    /// Tensors that were written.
    pub tensors: usize,
    /// Numbers in them.
    pub numbers: u64,
    /// Tensors that are known and of no use.
    pub dropped: Vec<String>,
    /// Names of the voices.
    pub voices: Vec<String>,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// A tensor and the file it lies in.
struct Found<'f> {
    file: &'f TorchFile,
    tensor: TensorRef,
}

/// The tensors of a model under their release names, and what was left behind.
#[derive(Default)]
struct Gathered<'f> {
    tensors: BTreeMap<String, Found<'f>>,
    dropped: Vec<String>,
    left_over: Vec<String>,
}

/// What becomes of a name.
#[derive(Debug, PartialEq, Eq)]
enum Naming {
    Take(String),
    Drop,
}

/// A release's name for a name of either layout. Weight norm has two spellings; one is older.
fn naming(name: &str, trainer: bool) -> Naming {
    let name = if trainer { name.strip_prefix("xtts.").unwrap_or(name) } else { name };
    let within = name.strip_prefix("gpt.gpt.h.").and_then(|rest| rest.split_once('.')).map(|(_, rest)| rest);
    // Copies made for inference, a table GPT-2 has and XTTS does not use, masks of old versions of it, mel filters.
    let useless = name.starts_with("torch_mel_spectrogram_")
        || name.starts_with("gpt.gpt_inference.")
        || name == "gpt.gpt.wte.weight"
        || matches!(within, Some("attn.bias" | "attn.masked_bias"));
    if useless {
        return Naming::Drop;
    }
    for (old, new) in [(".weight_g", "original0"), (".weight_v", "original1")] {
        if let Some(stem) = name.strip_suffix(old) {
            return Naming::Take(format!("{stem}.parametrizations.weight.{new}"));
        }
    }
    Naming::Take(name.to_owned())
}

/// Names in a dict of tensors or voices at most, and bytes of a name. A pickle can refer to one thing a million times: what
/// is cheap there must not become a million copies here.
const NAMES: usize = 1 << 16;
const NAME: usize = 256;

/// The dict of tensors in what was saved: under `model`, or the whole.
fn state_dict<'p>(root: Value<'p>, path: &Path) -> Result<Value<'p>, WeightsError> {
    let state = root.get("model").unwrap_or(root);
    if !state.is_dict() {
        let what = format!("it holds {} where the tensors should be", state.describe());
        return Err(WeightsError::content(path, what));
    }
    let count = state.entries().count();
    if count > NAMES {
        return Err(WeightsError::content(
            path,
            format!("it has {count} names; no model has more than {NAMES}"),
        ));
    }
    Ok(state)
}

impl<'f> Gathered<'f> {
    /// Adds the tensors of a file, `prefix` in front of their names.
    fn add(&mut self, file: &'f TorchFile, state: Value, prefix: &str) -> Result<(), WeightsError> {
        let trainer =
            state.entries().any(|(key, _)| key.as_str().is_some_and(|key| key.starts_with("xtts.")));
        for (key, value) in state.entries() {
            let name = match key.as_str() {
                Some(name) if name.len() <= NAME => format!("{prefix}{name}"),
                Some(name) => {
                    self.left_over.push(format!("a name of {} bytes", name.len()));
                    continue;
                }
                None => {
                    self.left_over.push(format!("{} instead of a name", key.describe()));
                    continue;
                }
            };
            match (naming(&name, trainer), value.as_tensor()) {
                (Naming::Drop, _) => self.dropped.push(name),
                (Naming::Take(_), None) => self.left_over.push(format!("{name} ({})", value.describe())),
                (Naming::Take(release), Some(tensor)) => {
                    file.check(tensor)?;
                    let found = Found { file, tensor: tensor.clone() };
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

/// Opens a `.pth`, and makes sure of its bytes.
fn open(path: &Path, unchecked: bool) -> Result<TorchFile, WeightsError> {
    let file = TorchFile::open(path)?;
    let damaged = if unchecked { Vec::new() } else { file.damaged() };
    if damaged.is_empty() {
        return Ok(file);
    }
    let first: Vec<&str> = damaged.iter().take(5).map(String::as_str).collect();
    let what = format!(
        "{} of its entries are not as they were written ({}): get the file again, or take it as it is with --unchecked",
        damaged.len(),
        first.join(", ")
    );
    Err(WeightsError::content(path, what))
}

/// A configuration: a file of JSON, or an object pickled beside the weights.
enum Configured<'a> {
    Json(&'a Json),
    Pickled(Value<'a>),
}

impl Configured<'_> {
    /// A size of the model.
    fn size(&self, name: &str) -> Option<usize> {
        let size = match self {
            Configured::Json(config) => config.get("model_args")?.get(name)?.as_i64()?,
            Configured::Pickled(root) => {
                root.attribute("config")?.attribute("model_args")?.attribute(name)?.as_int()?
            }
        };
        usize::try_from(size).ok()
    }

    /// Where it says otherwise than the tensors, which are right.
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
                format!("the configuration's {name} is {configured}; the tensors have {size}, which is taken")
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

/// [`import`] with the list of tensors of the caller's choice.
pub fn import_expecting(
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
    let mut gathered = Gathered::default();
    gathered.add(&file, state_dict(pickle.root(), &sources.model)?, "")?;
    if let Some(dvae) = &dvae {
        let before = gathered.tensors.len();
        gathered.tensors.retain(|name, _| !name.starts_with("dvae."));
        if gathered.tensors.len() < before {
            notes.push(format!("the DVAE is that of {}, not of the checkpoint", dvae.path().display()));
        }
        gathered.add(dvae, state_dict(dvae.pickle()?.root(), dvae.path())?, "dvae.")?;
    }
    if let Some(stats) = &mel_stats {
        let pickle = stats.pickle()?;
        let tensor = pickle.root().as_tensor().cloned();
        let what = || format!("it holds {}, not a tensor", pickle.root().describe());
        let tensor = tensor.ok_or_else(|| WeightsError::content(stats.path(), what()))?;
        stats.check(&tensor)?;
        gathered.tensors.insert("mel_stats".to_owned(), Found { file: stats, tensor });
    }

    let configured = match &config {
        Some((_, json)) => Configured::Json(json),
        None => Configured::Pickled(pickle.root()),
    };
    let shapes = gathered.shapes();
    let heads = configured.size("gpt_n_heads");
    let sizes = Sizes::of(&shapes, heads);
    let mut mismatch = Mismatch::between(&shapes, &expected(&sizes), &OPTIONAL);
    // They are no weights: an export makes them again.
    mismatch.missing.retain(|(name, _)| !is_buffer(name));
    mismatch.left_over.append(&mut gathered.left_over);
    // A name of no part could not be written anywhere, whatever the caller expected.
    mismatch.left_over.extend(shapes.keys().filter(|name| Part::of(name).is_none()).cloned());
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
        let mine = gathered.tensors.iter().filter(|(name, _)| Part::of(name) == Some(part));
        write_part(&mut writer, part, mine.map(|(name, found)| (name.clone(), found)).collect())?;
    }
    let named: Vec<(String, &Found)> =
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

/// Heads divide the channels, and a guess is said to be one.
fn check_heads(
    sizes: &Sizes,
    configured: Option<usize>,
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<(), WeightsError> {
    let (dim, heads) = (sizes.gpt.dim, sizes.gpt.heads);
    if heads == 0 || !dim.is_multiple_of(heads) {
        let what = format!("{heads} heads cannot share {dim} channels; give the configuration with --config");
        return Err(WeightsError::content(path, what));
    }
    if configured.is_none() {
        notes.push(format!(
            "no configuration says how many heads there are: {heads} are assumed, of {} channels each",
            dim / heads
        ));
    }
    Ok(())
}

/// Tensors may share numbers, but a small file that claims to be a large model is a trap for the disk.
fn check_volume(gathered: &Gathered, path: &Path) -> Result<(), WeightsError> {
    let mut claimed: BTreeMap<&Path, (usize, usize)> = BTreeMap::new();
    for found in gathered.tensors.values() {
        let bytes = found.tensor.count().saturating_mul(found.tensor.storage.kind.size());
        let entry = claimed.entry(found.file.path()).or_insert((0, found.file.size()));
        entry.0 = entry.0.saturating_add(bytes);
    }
    match claimed.values().find(|(bytes, size)| *bytes > size.saturating_mul(2)) {
        Some((bytes, size)) => {
            let what = format!("its tensors claim {bytes} bytes, but it has only {size}");
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
    tensors: Vec<(String, &Found)>,
) -> Result<(), WeightsError> {
    if tensors.is_empty() {
        return Ok(());
    }
    let ours = |kind: Kind| if kind.is_float() { Kind::F32 } else { kind };
    let specs: Vec<Spec> = tensors
        .iter()
        .map(|(name, found)| Spec {
            name: name.clone(),
            kind: ours(found.tensor.storage.kind),
            shape: found.tensor.shape.clone(),
        })
        .collect();
    writer.tensors(part, &specs, &mut |i| {
        let found = tensors[i].1;
        let (_, bytes) = found.file.read_ours(&found.tensor)?;
        Ok::<Cow<[u8]>, _>(bytes)
    })
}

/// A named voice.
struct Voice<'f> {
    name: String,
    latents: Found<'f>,
    vector: Found<'f>,
}

impl Voice<'_> {
    fn tensors(&self, number: usize) -> [(String, &Found<'_>); 2] {
        [
            (format!("{number}.gpt_cond_latent"), &self.latents),
            (format!("{number}.speaker_embedding"), &self.vector),
        ]
    }
}

/// The voices of `speakers_xtts.pth`; all that are not of this model are named.
fn read_voices<'f>(file: &'f TorchFile, sizes: &Sizes) -> Result<Vec<Voice<'f>>, WeightsError> {
    let pickle = file.pickle()?;
    let mut voices: Vec<Voice> = Vec::new();
    let mut known = BTreeSet::new();
    let mut wrong = Vec::new();
    for (key, value) in state_dict(pickle.root(), file.path())?.entries() {
        let name = key.as_str().filter(|name| name.len() <= NAME).unwrap_or_default();
        // A voice has two entries. One with many could be looked through many times.
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
                let of = |tensor: &TensorRef| Found { file, tensor: tensor.clone() };
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
        "these are no voices of this model (gpt_cond_latent [1, {}, {}] and speaker_embedding [1, {}, 1]): {}",
        sizes.gpt.latents,
        sizes.gpt.dim,
        sizes.decoder.speaker,
        wrong.join(", ")
    );
    Err(WeightsError::content(file.path(), what))
}

fn read_config(path: &Path) -> Result<(Vec<u8>, Json), WeightsError> {
    let bytes = read_small(path, SMALL)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| WeightsError::content(path, "it is not UTF-8"))?;
    let json = python_json::parse(text).map_err(|error| {
        WeightsError::content(path, format!("it is not JSON, as Python writes it or other: {error}"))
    })?;
    Ok((bytes, json))
}

fn read_vocabulary(path: &Path) -> Result<Vec<u8>, WeightsError> {
    let bytes = read_small(path, TEXT)?;
    serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).map_err(|error| {
        WeightsError::content(path, format!("it is no vocabulary: it is not JSON: {error}"))
    })?;
    Ok(bytes)
}

/// A vocabulary of another size is another model's: its tokens would mean other rows, or none.
fn check_vocabulary(path: &Path, bytes: &[u8], rows: usize) -> Result<(), WeightsError> {
    let json: Json = serde_json::from_slice(bytes)
        .map_err(|error| WeightsError::content(path, format!("it is no vocabulary: {error}")))?;
    let pieces = json.pointer("/model/vocab").and_then(Json::as_object);
    let added = json.get("added_tokens").and_then(Json::as_array);
    let ids = pieces.into_iter().flat_map(|pieces| pieces.values().filter_map(Json::as_u64));
    let added = added.into_iter().flatten().filter_map(|token| token.get("id")?.as_u64());
    let tokens = ids.chain(added).max().map_or(0, |last| last.saturating_add(1));
    if tokens == rows as u64 {
        return Ok(());
    }
    let what = format!(
        "it has {tokens} tokens, and the model's text table {rows} rows: it is of another model; name that of this one with --vocab"
    );
    Err(WeightsError::content(path, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_layouts_and_both_spellings_become_the_releases() {
        let take = |name: &str| Naming::Take(name.to_owned());
        assert_eq!(naming("xtts.gpt.gpt.ln_f.bias", true), take("gpt.gpt.ln_f.bias"));
        assert_eq!(naming("dvae.encoder.5.bias", true), take("dvae.encoder.5.bias"));
        assert_eq!(
            naming("hifigan_decoder.waveform_decoder.ups.0.weight_g", false),
            take("hifigan_decoder.waveform_decoder.ups.0.parametrizations.weight.original0")
        );
        for useless in [
            "xtts.gpt.gpt_inference.transformer.ln_f.weight",
            "xtts.gpt.gpt.wte.weight",
            "gpt.gpt.h.12.attn.bias",
            "gpt.gpt.h.3.attn.masked_bias",
            "torch_mel_spectrogram_dvae.mel_stft.mel_scale.fb",
        ] {
            assert_eq!(naming(useless, true), Naming::Drop, "{useless}");
        }
        // A bias of the product is no mask.
        assert_eq!(naming("gpt.gpt.h.3.attn.c_attn.bias", false), take("gpt.gpt.h.3.attn.c_attn.bias"));
    }
}
