//! Builds `torch.save` files by hand, valid or not.

use std::path::Path;

use myxtts_model::weights::archive::ArchiveWriter;
use myxtts_run::durable::{OsDisk, Writer};

/// A `torch.save` file.
#[derive(Default)]
pub struct TorchBuilder {
    pub pickle: Vec<u8>,
    pub entries: Vec<(String, Vec<u8>)>,
}

impl TorchBuilder {
    /// Creates a file with this pickle and no tensors.
    pub fn of(pickle: impl Into<Vec<u8>>) -> TorchBuilder {
        TorchBuilder { pickle: pickle.into(), entries: Vec::new() }
    }

    /// Adds an entry.
    pub fn with(mut self, name: &str, content: impl Into<Vec<u8>>) -> TorchBuilder {
        self.entries.push((name.to_owned(), content.into()));
        self
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) {
        self.write_wide(path, u64::from(u32::MAX));
    }

    /// Writes the file with 64-bit fields from `wide` on.
    pub fn write_wide(&self, path: &Path, wide: u64) {
        let mut archive =
            ArchiveWriter::with_zip64_threshold(Writer::create(&OsDisk, path).unwrap(), "made", wide);
        archive.add("data.pkl", &self.pickle).unwrap();
        for (name, content) in &self.entries {
            archive.add(name, content).unwrap();
        }
        archive.finish().unwrap().finish().unwrap().publish_durably(path).unwrap();
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made.pth");
        self.write(&path);
        std::fs::read(path).unwrap()
    }
}

/// A string.
pub fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// An integer.
pub fn int(value: i64) -> Vec<u8> {
    [&[0x8a, 8][..], &value.to_le_bytes()].concat()
}

fn tuple(values: &[i64]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|&value| int(value)).collect();
    [b"(", &values[..], b"t"].concat()
}

/// A storage, as torch refers to it.
pub fn storage(class: &str, key: &str, count: i64) -> Vec<u8> {
    let class = format!("c{class}\n");
    [b"(", &text("storage")[..], class.as_bytes(), &text(key), &text("cpu"), &int(count), b"tQ"].concat()
}

/// A tensor on a storage.
pub fn tensor(storage: &[u8], offset: i64, shape: &[i64], strides: &[i64]) -> Vec<u8> {
    [
        b"ctorch._utils\n_rebuild_tensor_v2\n(",
        storage,
        &int(offset),
        &tuple(shape),
        &tuple(strides),
        b"\x89ccollections\nOrderedDict\n)RtR",
    ]
    .concat()
}

/// A dict of values that are already pickled.
pub fn dict(pairs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let pairs: Vec<u8> = pairs.iter().flat_map(|(key, value)| [text(key), value.clone()].concat()).collect();
    [b"}(", &pairs[..], b"u"].concat()
}

/// The complete pickle of a value.
pub fn pickle(value: &[u8]) -> Vec<u8> {
    [b"\x80\x02", value, b"."].concat()
}

/// A tensor of a checkpoint.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub class: &'static str,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// `{"model": {...}}` of contiguous tensors.
pub fn checkpoint(tensors: &[Tensor]) -> TorchBuilder {
    let mut made = TorchBuilder::default();
    let mut pairs = Vec::new();
    for (i, t) in tensors.iter().enumerate() {
        let shape: Vec<i64> = t.shape.iter().map(|&length| length as i64).collect();
        let mut strides = vec![1; shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d] * shape[d];
        }
        let storage = storage(&format!("torch\n{}", t.class), &i.to_string(), shape.iter().product());
        pairs.push((t.name.clone(), tensor(&storage, 0, &shape, &strides)));
        made.entries.push((format!("data/{i}"), t.bytes.clone()));
    }
    made.pickle = pickle(&dict(&[("model".to_owned(), dict(&pairs))]));
    made
}
