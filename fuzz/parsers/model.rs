//! The parsers of `myxtts-model` that read untrusted files. Each returns whether it accepted the bytes.

use myxtts_model::weights::archive::Archive;
use myxtts_model::weights::folder::ModelFolder;
use myxtts_model::weights::pickle::Pickle;
use myxtts_model::weights::pth::TorchFile;
use myxtts_model::weights::python_json;
use myxtts_model::weights::tensors::TensorFile;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A temporary folder that exists as long as the process.
fn scratch() -> &'static Path {
    static FOLDER: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

/// Overwrites a file in place. It is not truncated first: some file systems would then wait for the disk.
fn put(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
}

fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = scratch().join(name);
    put(&path, bytes);
    path
}

/// Pickles, and all accessors of the result.
pub fn pickle(bytes: &[u8]) -> bool {
    // Most inputs would otherwise fail at the first two bytes.
    let bytes = [b"\x80\x02", bytes].concat();
    let Ok(pickle) = Pickle::parse(&bytes) else { return false };
    let root = pickle.root();
    let _ = (root.class(), root.describe(), root.get("model"), root.attribute("config"));
    for (key, value) in root.entries() {
        let _ = (key.as_str(), value.as_tensor().map(|tensor| (tensor.count(), tensor.is_contiguous())));
    }
    true
}

/// The zip container of `torch.save`.
pub fn archive(bytes: &[u8]) -> bool {
    let Ok(archive) = Archive::read(bytes) else { return false };
    let _ = archive.damaged(bytes);
    let _ = archive.entry("data.pkl").map(|entry| &bytes[entry.range.clone()]);
    true
}

/// Whole `.pth` files, with every tensor in them.
pub fn torch(bytes: &[u8]) -> bool {
    let path = file("fuzz.pth", bytes);
    let Ok(file) = TorchFile::open(&path) else { return false };
    let _ = file.damaged();
    let Ok(pickle) = file.pickle() else { return false };
    let root = pickle.root();
    for values in [Some(root), root.get("model")].into_iter().flatten() {
        for (_, value) in values.entries() {
            let _ = value.as_tensor().map(|tensor| file.read_converted(tensor).map(|(_, bytes)| bytes.len()));
        }
    }
    true
}

/// safetensors files.
pub fn safetensors(bytes: &[u8]) -> bool {
    let path = file("fuzz.safetensors", bytes);
    let Ok(file) = TensorFile::open(&path) else { return false };
    for name in file.names() {
        let _ = file.get(name).map(|view| view.to_f32());
    }
    true
}

/// Compact files.
pub fn compact(bytes: &[u8]) -> bool {
    // Most inputs would otherwise fail at the first bytes.
    let path = file("fuzz.compact", &[b"myxttscw\x01\0\0\0", bytes].concat());
    let Ok(file) = TensorFile::open(&path) else { return false };
    for name in file.names() {
        let _ = file.get(name).map(|view| view.to_f32());
    }
    true
}

/// The manifest of a model folder whose other files are valid, and the voices it names.
pub fn manifest(bytes: &[u8]) -> bool {
    static FOLDER: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = scratch().join("model");
        std::fs::create_dir(&folder).unwrap();
        for entry in std::fs::read_dir(model()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
            }
        }
        folder
    });
    put(&folder.join("manifest.json"), bytes);
    let Ok(model) = ModelFolder::open(folder) else { return false };
    for name in &model.manifest().voices {
        let _ = model.voice(name);
    }
    for part in ["gpt", "dvae", "decoder", "speaker"] {
        let _ = model.sizes::<serde_json::Value>(part);
    }
    true
}

/// A model folder of the oldest format.
pub fn model() -> PathBuf {
    // Relative to the crate, or to the fuzz targets.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stored = ["../..", ".."].map(|up| here.join(up).join("testdata/formats/v1/model"));
    stored.into_iter().find(|path| path.exists()).expect("the repository has it")
}

/// `config.json` as Python writes it.
pub fn configuration(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(value) = python_json::parse(text) else { return false };
    let _ = python_json::parse(&python_json::write(&value)).expect("what was written can be read");
    true
}
