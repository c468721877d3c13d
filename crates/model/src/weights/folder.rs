//! Our model folder: safetensors for each part, the vocabulary and configuration it came with, and a manifest that says how
//! large everything is and what its bytes are. The manifest is written last: without it a folder is no model.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use myxtts_run::durable::{self, Disk};
use myxtts_run::regular_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WeightsError;
use super::tensors::{self, Spec, TensorFile, View, Written};

/// The version of the form that is written, and the only one that is read.
pub const FORMAT: u32 = 1;

/// The file that makes a folder a model.
pub const MANIFEST: &str = "manifest.json";
/// The text vocabulary, as it came.
pub const VOCABULARY: &str = "vocab.json";
/// A classifier that tells from a code's vector which text token it sounds like `[tokens, code_width]`; beside a DVAE that was
/// trained with it. No release has one.
pub const TOKEN_HEAD_WEIGHT: &str = "dvae.token_head.weight";
/// What is added to its results `[tokens]`.
pub const TOKEN_HEAD_BIAS: &str = "dvae.token_head.bias";
/// Coqui's configuration, as it came: with bare `Infinity` in it.
pub const CONFIG: &str = "config.json";

/// Largest manifest or configuration that is read: what it unfolds to is many times that.
pub(crate) const SMALL: u64 = 4 << 20;
/// Largest vocabulary.
pub(crate) const TEXT: u64 = 64 << 20;

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
    /// All of them.
    pub const ALL: [Part; 5] = [Part::Gpt, Part::Dvae, Part::Decoder, Part::Speaker, Part::Voices];

    /// The file it lies in.
    pub fn file(self) -> &'static str {
        match self {
            Part::Gpt => "gpt.safetensors",
            Part::Dvae => "dvae.safetensors",
            Part::Decoder => "decoder.safetensors",
            Part::Speaker => "speaker.safetensors",
            Part::Voices => "speakers.safetensors",
        }
    }

    /// The part a tensor of a release belongs to.
    pub fn of(name: &str) -> Option<Part> {
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

/// What a folder holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Where the weights are from.
    pub source: String,
    /// What may be done with them.
    pub licence: String,
    /// Sizes or presets of each part; whoever reads them knows their form.
    pub parts: BTreeMap<String, Value>,
    /// How parts that were trained here came about: steps done, and which of them was kept. None for imported ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trained: BTreeMap<String, Value>,
    /// Names of the voices, in order.
    pub voices: Vec<String>,
    /// How text and recordings were read in training; none where that is not known, as of imported models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// Every other file.
    pub files: BTreeMap<String, FileRecord>,
}

/// How text and recordings were read in training: whoever speaks reads them alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// How text was written out before tokens: `default` or `coqui`.
    pub cleaner: String,
    /// Silence at both ends was cut, so many dB below the loudest frame; none where it was left.
    pub trim_db: Option<f32>,
    /// The loudness that clips were brought to; none where they were left as they are.
    pub loudness_lufs: Option<f64>,
}

/// A file as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its length.
    pub bytes: u64,
    /// BLAKE3 of it, in hexadecimal.
    pub blake3: String,
}

impl Manifest {
    /// The bytes of the file. The first line is a checksum of all others.
    fn to_bytes(&self) -> Vec<u8> {
        // A struct of strings and numbers always becomes JSON.
        let body = serde_json::to_string_pretty(self).unwrap_or_default();
        let body = format!("{}\n", body.trim_start_matches('{').trim_start());
        format!("{{\"checksum\": \"{}\",\n  {body}", blake3::hash(format!("  {body}").as_bytes()))
            .into_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Manifest, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        let (first, body) = text.split_once('\n').ok_or("it is cut short")?;
        let checksum = first.strip_prefix("{\"checksum\": \"").and_then(|rest| rest.strip_suffix("\","));
        match checksum {
            None => return Err("it does not begin with its checksum".to_owned()),
            Some(checksum) if checksum != blake3::hash(body.as_bytes()).to_string() => {
                return Err("it is not as it was written: its checksum is another".to_owned());
            }
            Some(_) => {}
        }
        let manifest: Manifest =
            serde_json::from_str(&format!("{{{body}")).map_err(|error| error.to_string())?;
        if manifest.format != FORMAT {
            return Err(format!("it is of format {}; this program reads {FORMAT}", manifest.format));
        }
        Ok(manifest)
    }
}

/// An opened model folder, whose files are as they were written.
#[derive(Debug)]
pub struct ModelFolder {
    path: PathBuf,
    manifest: Manifest,
    parts: BTreeMap<Part, TensorFile>,
}

impl ModelFolder {
    /// Opens a folder and reads all of it once, to be sure of every byte.
    pub fn open(path: &Path) -> Result<ModelFolder, WeightsError> {
        let manifest = ModelFolder::read_manifest(path)?;
        let mut findings = Vec::new();
        let mut parts = BTreeMap::new();
        for (name, record) in &manifest.files {
            // Names come from a file: only those that are ours are ever joined to a path.
            let part = Part::ALL.into_iter().find(|part| part.file() == name);
            if part.is_none() && name != VOCABULARY && name != CONFIG {
                findings.push(format!("{MANIFEST} names {name:?}, which is no file of a model"));
                continue;
            }
            match check(&path.join(name), record, part.is_some()) {
                Err(finding) => findings.push(format!("{name} {finding}")),
                Ok(None) => {}
                Ok(Some(tensors)) => {
                    parts.extend(part.map(|part| (part, tensors)));
                }
            }
        }
        if findings.is_empty() && !parts.contains_key(&Part::Gpt) {
            findings.push(format!("{MANIFEST} names no {}", Part::Gpt.file()));
        }
        if !findings.is_empty() {
            return Err(WeightsError::Damaged { path: path.to_owned(), findings });
        }
        Ok(ModelFolder { path: path.to_owned(), manifest, parts })
    }

    /// What a folder says it holds, without a look at its tensors.
    pub fn read_manifest(path: &Path) -> Result<Manifest, WeightsError> {
        let file = path.join(MANIFEST);
        if path.is_dir() && !file.exists() {
            let what = format!("it is no model folder: there is no {MANIFEST} (`myxtts import` makes one)");
            return Err(WeightsError::content(path, what));
        }
        let bytes = read_small(&file, SMALL)?;
        Manifest::from_bytes(&bytes).map_err(|what| WeightsError::content(&file, what))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The tensors of a part, where there is one.
    pub fn part(&self, part: Part) -> Option<&TensorFile> {
        self.parts.get(&part)
    }

    /// A tensor of any part but the voices, under its release name; the DVAE's under `dvae.`.
    pub fn tensor(&self, name: &str) -> Option<View<'_>> {
        self.part(Part::of(name)?)?.get(name)
    }

    /// A tensor that must be there, as f32 in its release order.
    pub fn numbers(&self, name: &str) -> Result<Vec<f32>, WeightsError> {
        let numbers = self.tensor(name).and_then(|view| view.to_f32());
        numbers.ok_or_else(|| {
            WeightsError::content(&self.path, format!("it has no tensor {name} of real numbers"))
        })
    }

    /// The sizes of a part, in the form that its reader knows.
    pub fn sizes<T: serde::de::DeserializeOwned>(&self, part: &str) -> Result<T, WeightsError> {
        let sizes = self.manifest.parts.get(part).cloned().unwrap_or_default();
        serde_json::from_value(sizes).map_err(|error| {
            WeightsError::content(&self.path, format!("the manifest's sizes of {part}: {error}"))
        })
    }

    /// A voice: conditioning `[latents, dim]` and speaker vector.
    pub fn voice(&self, name: &str) -> Option<(View<'_>, View<'_>)> {
        let number = self.manifest.voices.iter().position(|known| known == name)?;
        let file = self.part(Part::Voices)?;
        Some((
            file.get(&format!("{number}.gpt_cond_latent"))?,
            file.get(&format!("{number}.speaker_embedding"))?,
        ))
    }

    /// The vocabulary or configuration the model came with.
    pub fn text(&self, file: &str) -> Result<Option<Vec<u8>>, WeightsError> {
        match self.manifest.files.contains_key(file) {
            true => read_small(&self.path.join(file), if file == CONFIG { SMALL } else { TEXT }).map(Some),
            false => Ok(None),
        }
    }
}

/// Is a file as the manifest says?
fn check(path: &Path, record: &FileRecord, tensors: bool) -> Result<Option<TensorFile>, String> {
    let size = path.metadata().map_err(|error| format!("cannot be read: {error}"))?.len();
    if size != record.bytes {
        return Err(format!("has {size} bytes and not {}", record.bytes));
    }
    let changed = || "is not as it was written: its checksum is another".to_owned();
    if !tensors {
        let bytes = read_small(path, TEXT).map_err(|error| error.to_string())?;
        return if blake3::hash(&bytes).to_string() == record.blake3 { Ok(None) } else { Err(changed()) };
    }
    // The checksum first: a damaged header would otherwise be a riddle of the header's.
    let map = super::map::map(path).map_err(|error| error.to_string())?;
    if blake3::Hasher::new().update_rayon(&map).finalize().to_string() != record.blake3 {
        return Err(changed());
    }
    TensorFile::of_map(path, map).map(Some).map_err(|error| error.to_string())
}

/// Reads a file that has no reason to be large.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, WeightsError> {
    let at = |source| WeightsError::Io { path: path.to_owned(), source };
    let size = path.metadata().map_err(at)?.len();
    if size > limit {
        return Err(WeightsError::content(
            path,
            format!("it has {size} bytes, which is too much for such a file"),
        ));
    }
    regular_file::read(path).map_err(at)
}

/// What a folder that shall become a model holds now.
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
    // A model that was never finished is in nobody's way.
    let ours = |name: &str| Part::ALL.iter().any(|part| part.file() == name) || durable::is_unfinished(name);
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
    /// Begins a folder. One that holds a model already, or something else, is only written to where `replace` says so; a
    /// model there stops being one now.
    pub fn create(disk: &'d dyn Disk, path: &Path, replace: bool) -> Result<FolderWriter<'d>, WeightsError> {
        let found = occupied(path)?;
        if let (Some(found), false) = (found, replace) {
            return Err(WeightsError::Occupied { path: path.to_owned(), found });
        }
        let manifest = path.join(MANIFEST);
        let mut old: Vec<String> = Part::ALL.iter().map(|part| part.file().to_owned()).collect();
        if manifest.exists() {
            let before =
                read_small(&manifest, SMALL).ok().and_then(|bytes| Manifest::from_bytes(&bytes).ok());
            let listed = before.unwrap_or_default().files.into_keys();
            old.extend(listed.filter(|name| name == VOCABULARY || name == CONFIG));
            durable::remove(disk, &manifest)?;
            durable::sync_folder(disk, path)?;
        }
        durable::create_folder(disk, path)?;
        let manifest = Manifest { format: FORMAT, ..Manifest::default() };
        Ok(FolderWriter { disk, path: path.to_owned(), manifest, old })
    }

    /// What the manifest will say; the files are filled in here.
    pub fn manifest(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Writes the tensors of a part, asking for the bytes of one after another: see [`tensors::write`].
    pub fn tensors<'t>(
        &mut self,
        part: Part,
        specs: &[Spec],
        bytes: &mut dyn FnMut(usize) -> Result<Cow<'t, [u8]>, WeightsError>,
    ) -> Result<(), WeightsError> {
        let path = self.path.join(part.file());
        let (file, written) = tensors::write(self.disk, &path, specs, bytes)?;
        file.publish(&path)?;
        self.record(part.file(), written);
        Ok(())
    }

    /// Writes the vocabulary or the configuration.
    pub fn text(&mut self, file: &str, bytes: &[u8]) -> Result<(), WeightsError> {
        assert!(file == VOCABULARY || file == CONFIG, "{file} is a text of a model folder");
        durable::write_with(self.disk, &self.path.join(file), bytes)?;
        let blake3 = blake3::hash(bytes).to_string();
        self.record(file, Written { bytes: bytes.len() as u64, blake3 });
        Ok(())
    }

    fn record(&mut self, file: &str, Written { bytes, blake3 }: Written) {
        self.manifest.files.insert(file.to_owned(), FileRecord { bytes, blake3 });
    }

    /// Writes the manifest: from now on the folder is a model. Files of an older one that this one lacks are removed.
    pub fn finish(self) -> Result<Manifest, WeightsError> {
        for stale in self.old.iter().filter(|file| !self.manifest.files.contains_key(*file)) {
            durable::remove(self.disk, &self.path.join(stale))?;
        }
        durable::sync_folder(self.disk, &self.path)?;
        durable::write_with(self.disk, &self.path.join(MANIFEST), &self.manifest.to_bytes())?;
        Ok(self.manifest)
    }
}
