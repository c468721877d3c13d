//! Reads the files of the reference implementation. A missing or unreadable file fails the test.

use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A stored array.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Data,
}

#[derive(Clone, Debug)]
pub enum Data {
    Floats(Vec<f32>),
    Integers(Vec<i64>),
}

impl Tensor {
    pub fn floats(&self) -> &[f32] {
        match &self.data {
            Data::Floats(data) => data,
            Data::Integers(_) => panic!("integers where floats were expected"),
        }
    }

    pub fn integers(&self) -> &[i64] {
        match &self.data {
            Data::Integers(data) => data,
            Data::Floats(_) => panic!("floats where integers were expected"),
        }
    }
}

/// Folder of the goldens: `MYXTTS_GOLDENS`, or the smaller set in the repository.
pub fn folder() -> PathBuf {
    match std::env::var_os("MYXTTS_GOLDENS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/goldens"),
    }
}

fn bytes(path: &str) -> Vec<u8> {
    let path = folder().join(path);
    std::fs::read(&path)
        .unwrap_or_else(|e| panic!("{}: {e}; MYXTTS_GOLDENS names the folder of the goldens", path.display()))
}

/// All tensors of a safetensors file.
pub fn tensors(path: &str) -> BTreeMap<String, Tensor> {
    let bytes = bytes(path);
    let file = SafeTensors::deserialize(&bytes).unwrap_or_else(|e| panic!("{path}: {e}"));
    let one = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let data = match view.dtype() {
            Dtype::F32 => Data::Floats(numbers(view.data(), f32::from_le_bytes)),
            Dtype::I64 => Data::Integers(numbers(view.data(), i64::from_le_bytes)),
            other => panic!("{path}: {name} holds {other:?}"),
        };
        (name, Tensor { shape: view.shape().to_vec(), data })
    };
    file.tensors().into_iter().map(one).collect()
}

/// Reads a JSON file.
pub fn json(path: &str) -> serde_json::Value {
    serde_json::from_slice(&bytes(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Reads a numpy file of f32 in C order.
pub fn npy(path: &str) -> Tensor {
    let bytes = bytes(path);
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"), "{path}: not a numpy file of version 1");
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..end]).unwrap();
    assert!(header.contains("'<f4'") && header.contains("'fortran_order': False"), "{path}: {header}");
    let (_, shape) = header.split_once("'shape': (").unwrap();
    let (shape, _) = shape.split_once(')').unwrap();
    let dims = shape.split(',').map(str::trim).filter(|d| !d.is_empty());
    let shape: Vec<usize> = dims.map(|d| d.parse().unwrap()).collect();
    let data = numbers(&bytes[end..], f32::from_le_bytes);
    assert_eq!(data.len(), shape.iter().product::<usize>(), "{path}: {header}");
    Tensor { shape, data: Data::Floats(data) }
}

fn numbers<const N: usize, T>(bytes: &[u8], one: impl Fn([u8; N]) -> T) -> Vec<T> {
    assert!(bytes.len().is_multiple_of(N), "{} bytes are not whole numbers of {N}", bytes.len());
    bytes.chunks_exact(N).map(|b| one(b.try_into().unwrap())).collect()
}
