//! The model folder: safetensors or a [compact file](super::compact) for each part, the vocabulary and configuration,
//! and a manifest with all sizes and checksums. The manifest is written last: a folder without one is not a model.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use myxtts_run::durable::{self, Disk};
use myxtts_run::regular_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tensors::{self, TensorFile, TensorSpec, View, WrittenFile};
use super::{WeightsError, compact};

/// Version of the folder format: the one written, and the only one read.
pub const FORMAT: u32 = 1;

/// File that makes a folder a model.
pub const MANIFEST: &str = "manifest.json";
/// Text vocabulary, unchanged from its source.
pub const VOCABULARY: &str = "vocab.json";
/// Weight of a classifier that predicts the text token from a code's vector, `[tokens, code_width]`. Present if the
/// DVAE was trained with it; no release has one.
pub const TOKEN_HEAD_WEIGHT: &str = "dvae.token_head.weight";
/// Bias of that classifier, `[tokens]`.
pub const TOKEN_HEAD_BIAS: &str = "dvae.token_head.bias";
/// Coqui's configuration, unchanged from its source; may contain bare `Infinity`.
pub const CONFIG: &str = "config.json";

/// Size limit of a manifest or configuration in bytes; parsed, it takes many times that.
pub(crate) const MAX_JSON_BYTES: u64 = 4 << 20;
/// Size limit of a vocabulary in bytes.
pub(crate) const MAX_TEXT_BYTES: u64 = 64 << 20;

/// A file of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The language model with its conditioning, and the mel statistics.
    Gpt,
    /// The audio tokeniser.
    Dvae,
    /// The waveform decoder.
    Decoder,
    /// The speaker encoder.
    Speaker,
    /// Named voices: `N.gpt_cond_latent`, `N.speaker_embedding`; the N-th name is in the manifest.
    Voices,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 5] = [Part::Gpt, Part::Dvae, Part::Decoder, Part::Speaker, Part::Voices];

    /// File name of the part as safetensors.
    pub fn file(self) -> &'static str {
        match self {
            Part::Gpt => "gpt.safetensors",
            Part::Dvae => "dvae.safetensors",
            Part::Decoder => "decoder.safetensors",
            Part::Speaker => "speaker.safetensors",
            Part::Voices => "speakers.safetensors",
        }
    }

    /// File name of the part as a compact file; `None` for voices, which are small.
    pub fn compact_file(self) -> Option<&'static str> {
        match self {
            Part::Gpt => Some("gpt.compact"),
            Part::Dvae => Some("dvae.compact"),
            Part::Decoder => Some("decoder.compact"),
            Part::Speaker => Some("speaker.compact"),
            Part::Voices => None,
        }
    }

    /// All file names that the part may have.
    pub fn files(self) -> impl Iterator<Item = &'static str> {
        [Some(self.file()), self.compact_file()].into_iter().flatten()
    }

    /// Returns the part that is stored under a file name.
    pub(crate) fn of_file(name: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.files().any(|file| file == name))
    }

    /// Returns the part that a tensor of a release belongs to.
    pub fn of_tensor(name: &str) -> Option<Part> {
        if name == "mel_stats" || name.starts_with("gpt.") {
            Some(Part::Gpt)
        } else if name.starts_with("dvae.") {
            Some(Part::Dvae)
        } else if name.starts_with("hifigan_decoder.waveform_decoder.") {
            Some(Part::Decoder)
        } else if name.starts_with("hifigan_decoder.speaker_encoder.") {
            Some(Part::Speaker)
        } else {
            None
        }
    }
}

/// Contents of a model folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format version, [`FORMAT`].
    pub format: u32,
    /// Origin of the weights.
    pub source: String,
    /// Licence of the weights.
    pub licence: String,
    /// Sizes or preset of each part, in a format that the reader of the part defines.
    pub parts: BTreeMap<String, Value>,
    /// Training record of each part trained here: steps done and the step that was kept. Empty for imported models.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trained: BTreeMap<String, Value>,
    /// Names of the voices, in order.
    pub voices: Vec<String>,
    /// Preprocessing of text and recordings in training; `None` if unknown, as for imported models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// All other files of the folder.
    pub files: BTreeMap<String, FileRecord>,
}

/// Preprocessing of text and recordings in training. Synthesis must apply the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Text cleaner applied before tokenisation: `default` or `coqui`.
    pub cleaner: String,
    /// Threshold for trimming silence at both ends, in dB below the loudest frame; `None` if not trimmed.
    pub trim_db: Option<f32>,
    /// Loudness that clips were normalised to, in LUFS; `None` if not normalised.
    pub loudness_lufs: Option<f64>,
}

/// Size and checksum of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 in hexadecimal.
    pub blake3: String,
}

impl Manifest {
    /// Record of a part's file; `None` if the folder does not have the part.
    pub fn part(&self, part: Part) -> Option<&FileRecord> {
        part.files().find_map(|file| self.files.get(file))
    }

    /// Serialises the manifest. The first line is a checksum of all others.
    fn to_bytes(&self) -> Vec<u8> {
        // A struct of strings and numbers always serialises to JSON.
        let body = serde_json::to_string_pretty(self).unwrap_or_default();
        let body = format!("{}\n", body.trim_start_matches('{').trim_start());
        format!("{{\"checksum\": \"{}\",\n  {body}", blake3::hash(format!("  {body}").as_bytes()))
            .into_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Manifest, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        let (first, body) = text.split_once('\n').ok_or("it is truncated")?;
        let checksum = first.strip_prefix("{\"checksum\": \"").and_then(|rest| rest.strip_suffix("\","));
        match checksum {
            None => return Err("it does not start with its checksum".to_owned()),
            Some(checksum) if checksum != blake3::hash(body.as_bytes()).to_string() => {
                return Err("its checksum does not match".to_owned());
            }
            Some(_) => {}
        }
        let manifest: Manifest =
            serde_json::from_str(&format!("{{{body}")).map_err(|error| error.to_string())?;
        if manifest.format != FORMAT {
            return Err(format!(
                "it has format version {}; this program reads version {FORMAT}",
                manifest.format
            ));
        }
        Ok(manifest)
    }
}

/// An opened model folder whose files match their checksums.
#[derive(Debug)]
pub struct ModelFolder {
    path: PathBuf,
    manifest: Manifest,
    parts: BTreeMap<Part, TensorFile>,
}

impl ModelFolder {
    /// Opens a folder and reads all of it once to verify every byte.
    pub fn open(path: &Path) -> Result<ModelFolder, WeightsError> {
        let manifest = ModelFolder::read_manifest(path)?;
        let mut findings = Vec::new();
        let mut parts = BTreeMap::new();
        for (name, record) in &manifest.files {
            // Names come from a file: only known names are ever joined to a path.
            let part = Part::of_file(name);
            if part.is_none() && name != VOCABULARY && name != CONFIG {
                findings.push(format!("{MANIFEST} lists {name:?}, which is not a file of a model"));
                continue;
            }
            match check(&path.join(name), record, part.is_some()) {
                Err(finding) => findings.push(format!("{name} {finding}")),
                Ok(None) => {}
                Ok(Some(tensors)) => {
                    let before = part.and_then(|part| parts.insert(part, tensors));
                    if let Some(before) = before.as_ref().and_then(|before| before.path().file_name()) {
                        findings.push(format!("{MANIFEST} lists both {} and {name}", before.display()));
                    }
                }
            }
        }
        if findings.is_empty() && !parts.contains_key(&Part::Gpt) {
            findings.push(format!("{MANIFEST} does not list {}", Part::Gpt.file()));
        }
        if !findings.is_empty() {
            return Err(WeightsError::Damaged { path: path.to_owned(), findings });
        }
        Ok(ModelFolder { path: path.to_owned(), manifest, parts })
    }

    /// Reads the manifest of a folder without opening its tensors.
    pub fn read_manifest(path: &Path) -> Result<Manifest, WeightsError> {
        let file = path.join(MANIFEST);
        if path.is_dir() && !file.exists() {
            let what = format!("not a model folder: there is no {MANIFEST} (`myxtts import` creates one)");
            return Err(WeightsError::content(path, what));
        }
        let bytes = read_small(&file, MAX_JSON_BYTES)?;
        Manifest::from_bytes(&bytes).map_err(|what| WeightsError::content(&file, what))
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Tensors of a part; `None` if the folder does not have the part.
    pub fn part(&self, part: Part) -> Option<&TensorFile> {
        self.parts.get(&part)
    }

    /// Returns a tensor of any part except the voices by its release name; those of the DVAE have the prefix `dvae.`.
    pub fn tensor(&self, name: &str) -> Option<View<'_>> {
        self.part(Part::of_tensor(name)?)?.get(name)
    }

    /// Returns a required tensor as f32, row-major in its release layout.
    pub fn numbers(&self, name: &str) -> Result<Vec<f32>, WeightsError> {
        let numbers = self.tensor(name).and_then(|view| view.to_f32());
        numbers.ok_or_else(|| {
            WeightsError::content(&self.path, format!("it has no floating-point tensor {name}"))
        })
    }

    /// Deserialises the sizes of a part from the manifest.
    pub fn sizes<T: serde::de::DeserializeOwned>(&self, part: &str) -> Result<T, WeightsError> {
        let sizes = self.manifest.parts.get(part).cloned().unwrap_or_default();
        serde_json::from_value(sizes).map_err(|error| {
            WeightsError::content(&self.path, format!("invalid sizes of {part} in the manifest: {error}"))
        })
    }

    /// Returns a voice: conditioning `[latents, dim]` and speaker vector.
    pub fn voice(&self, name: &str) -> Option<(View<'_>, View<'_>)> {
        let number = self.manifest.voices.iter().position(|known| known == name)?;
        let file = self.part(Part::Voices)?;
        Some((
            file.get(&format!("{number}.gpt_cond_latent"))?,
            file.get(&format!("{number}.speaker_embedding"))?,
        ))
    }

    /// Returns the vocabulary or configuration; `None` if the folder has none.
    pub fn text(&self, file: &str) -> Result<Option<Vec<u8>>, WeightsError> {
        match self.manifest.files.contains_key(file) {
            true => read_small(
                &self.path.join(file),
                if file == CONFIG { MAX_JSON_BYTES } else { MAX_TEXT_BYTES },
            )
            .map(Some),
            false => Ok(None),
        }
    }
}

/// Checks a file against its manifest record.
fn check(path: &Path, record: &FileRecord, tensors: bool) -> Result<Option<TensorFile>, String> {
    let size = path.metadata().map_err(|error| format!("cannot be read: {error}"))?.len();
    if size != record.bytes {
        return Err(format!("has {size} bytes instead of {}", record.bytes));
    }
    let changed = || "does not match its checksum".to_owned();
    if !tensors {
        let bytes = read_small(path, MAX_TEXT_BYTES).map_err(|error| error.to_string())?;
        return if blake3::hash(&bytes).to_string() == record.blake3 { Ok(None) } else { Err(changed()) };
    }
    // Checksum first: a corrupted header would otherwise give a misleading parse error.
    let map = super::map::map(path).map_err(|error| error.to_string())?;
    if blake3::Hasher::new().update_rayon(&map).finalize().to_string() != record.blake3 {
        return Err(changed());
    }
    TensorFile::from_map(path, map).map(Some).map_err(|error| error.to_string())
}

/// Reads a file, rejecting sizes above `limit` bytes.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, WeightsError> {
    let at = |source| WeightsError::Io { path: path.to_owned(), source };
    let size = path.metadata().map_err(at)?.len();
    if size > limit {
        return Err(WeightsError::content(
            path,
            format!("it has {size} bytes, which is too large for this kind of file"),
        ));
    }
    regular_file::read(path).map_err(at)
}

/// What an output folder currently contains; `None` if it can be written to.
fn occupied(path: &Path) -> Result<Option<&'static str>, WeightsError> {
    let at = |source| WeightsError::Io { path: path.to_owned(), source };
    if path.join(MANIFEST).exists() {
        return Ok(Some("a model"));
    }
    let names = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        listing => listing.map_err(at)?.map(|entry| entry.map(|entry| entry.file_name())),
    };
    let names = names.collect::<Result<Vec<_>, _>>().map_err(at)?;
    // An unfinished model may be overwritten.
    let ours = |name: &str| Part::of_file(name).is_some() || durable::is_unfinished(name);
    let begun = names.iter().any(|name| name.to_str().is_some_and(ours));
    let foreign = names.iter().any(|name| match name.to_str() {
        Some(VOCABULARY | CONFIG) => !begun,
        Some(name) => !ours(name),
        None => true,
    });
    Ok(foreign.then_some("other files"))
}

/// Writes a model folder, file by file.
pub struct FolderWriter<'d> {
    disk: &'d dyn Disk,
    path: PathBuf,
    manifest: Manifest,
    /// Files of the model that was here before.
    old: Vec<String>,
}

impl<'d> FolderWriter<'d> {
    /// Starts a folder. A folder that contains a model or other files is only written to if `replace` is set; a model
    /// in it becomes invalid at this point.
    pub fn create(disk: &'d dyn Disk, path: &Path, replace: bool) -> Result<FolderWriter<'d>, WeightsError> {
        let found = occupied(path)?;
        if let (Some(found), false) = (found, replace) {
            return Err(WeightsError::Occupied { path: path.to_owned(), found });
        }
        let manifest = path.join(MANIFEST);
        let mut old: Vec<String> =
            Part::ALL.iter().flat_map(|part| part.files()).map(str::to_owned).collect();
        if manifest.exists() {
            let before = read_small(&manifest, MAX_JSON_BYTES)
                .ok()
                .and_then(|bytes| Manifest::from_bytes(&bytes).ok());
            let listed = before.unwrap_or_default().files.into_keys();
            old.extend(listed.filter(|name| name == VOCABULARY || name == CONFIG));
            durable::remove(disk, &manifest)?;
            durable::sync_folder(disk, path)?;
        }
        durable::create_folder(disk, path)?;
        let manifest = Manifest { format: FORMAT, ..Manifest::default() };
        Ok(FolderWriter { disk, path: path.to_owned(), manifest, old })
    }

    /// The manifest to be written; its `files` are filled in by this writer.
    pub fn manifest(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Writes the tensors of a part, requesting the bytes of one at a time: see [`tensors::write`].
    pub fn tensors<'t>(
        &mut self,
        part: Part,
        specs: &[TensorSpec],
        bytes: &mut dyn FnMut(usize) -> Result<Cow<'t, [u8]>, WeightsError>,
    ) -> Result<(), WeightsError> {
        let path = self.path.join(part.file());
        let (file, written) = tensors::write(self.disk, &path, specs, bytes)?;
        file.publish(&path)?;
        self.record(part.file(), written);
        Ok(())
    }

    /// Writes the tensors of a part as a compact file, with integers up to `limit`: see [`compact::limit_of_bits`].
    /// Voices are stored exactly.
    pub fn compact(&mut self, part: Part, file: &TensorFile, limit: u8) -> Result<(), WeightsError> {
        let tensors: Vec<(&str, View)> =
            file.names().filter_map(|name| Some((name, file.get(name)?))).collect();
        let Some(name) = part.compact_file() else {
            let spec = |(name, view): &(&str, View)| TensorSpec {
                name: (*name).to_owned(),
                kind: view.kind,
                shape: view.shape.to_vec(),
            };
            let specs: Vec<TensorSpec> = tensors.iter().map(spec).collect();
            return self.tensors(part, &specs, &mut |i| Ok(Cow::Borrowed(tensors[i].1.bytes)));
        };
        let path = self.path.join(name);
        let bytes =
            compact::encode(&tensors, limit).map_err(|what| WeightsError::content(file.path(), what))?;
        durable::write_with(self.disk, &path, &bytes)?;
        // A file that could not be opened again must not become part of a model.
        TensorFile::open(&path)?;
        let blake3 = blake3::hash(&bytes).to_string();
        self.record(name, WrittenFile { bytes: bytes.len() as u64, blake3 });
        Ok(())
    }

    /// Writes the vocabulary or the configuration.
    pub fn text(&mut self, file: &str, bytes: &[u8]) -> Result<(), WeightsError> {
        assert!(file == VOCABULARY || file == CONFIG, "{file} is a text of a model folder");
        durable::write_with(self.disk, &self.path.join(file), bytes)?;
        let blake3 = blake3::hash(bytes).to_string();
        self.record(file, WrittenFile { bytes: bytes.len() as u64, blake3 });
        Ok(())
    }

    fn record(&mut self, file: &str, WrittenFile { bytes, blake3 }: WrittenFile) {
        self.manifest.files.insert(file.to_owned(), FileRecord { bytes, blake3 });
    }

    /// Writes the manifest, which makes the folder a valid model. Files of an older model that this one lacks are
    /// removed.
    pub fn finish(self) -> Result<Manifest, WeightsError> {
        for stale in self.old.iter().filter(|file| !self.manifest.files.contains_key(*file)) {
            durable::remove(self.disk, &self.path.join(stale))?;
        }
        durable::sync_folder(self.disk, &self.path)?;
        durable::write_with(self.disk, &self.path.join(MANIFEST), &self.manifest.to_bytes())?;
        Ok(self.manifest)
    }
}
