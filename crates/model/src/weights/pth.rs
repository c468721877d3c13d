//! Files of `torch.save`: a pickle whose tensors are stored in the same archive and read on request.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use myxtts_run::mmap::MappedFile;

use super::archive::{Archive, ArchiveError};
use super::map::map;
use super::pickle::{Pickle, TensorRef};
use super::{ElementType, WeightsError};

/// An opened `.pth`.
#[derive(Debug)]
pub struct TorchFile {
    path: PathBuf,
    map: MappedFile,
    archive: Archive,
}

impl TorchFile {
    /// Opens a file and locates its entries; no tensor is read.
    pub fn open(path: &Path) -> Result<TorchFile, WeightsError> {
        let map = map(path)?;
        let at = |source| WeightsError::Archive { path: path.to_owned(), source };
        let archive = Archive::read(&map).map_err(at)?;
        if let Ok(order) = archive.entry("byteorder")
            && &map[order.range.clone()] != b"little"
        {
            return Err(WeightsError::content(
                path,
                "its data is not little-endian; save it again on an x86-64 or ARM machine",
            ));
        }
        Ok(TorchFile { path: path.to_owned(), map, archive })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> usize {
        self.map.len()
    }

    /// Parses the saved value.
    pub fn pickle(&self) -> Result<Pickle<'_>, WeightsError> {
        let entry = self.archive.entry("data.pkl").map_err(|source| self.broken(source))?;
        Pickle::parse(&self.map[entry.range.clone()])
            .map_err(|source| WeightsError::Pickle { path: self.path.clone(), source })
    }

    /// Names of entries whose bytes do not match their checksum. Reads the whole file.
    pub fn damaged(&self) -> Vec<String> {
        self.archive.damaged(&self.map)
    }

    fn broken(&self, source: ArchiveError) -> WeightsError {
        WeightsError::Archive { path: self.path.clone(), source }
    }

    /// Bytes of a tensor's storage, after checking that they contain the whole tensor.
    fn storage(&self, tensor: &TensorRef) -> Result<&[u8], WeightsError> {
        let storage = &tensor.storage;
        let name = format!("data/{}", storage.key);
        let bytes = &self.map[self.archive.entry(&name).map_err(|source| self.broken(source))?.range.clone()];
        if storage.count.checked_mul(storage.kind.size()) != Some(bytes.len()) {
            let what = format!(
                "the entry {name} has {} bytes, but its tensor claims {} elements of {:?}",
                bytes.len(),
                storage.count,
                storage.kind
            );
            return Err(WeightsError::content(&self.path, what));
        }
        Ok(bytes)
    }

    /// Checks that the file contains all of a tensor, without reading it.
    pub fn check(&self, tensor: &TensorRef) -> Result<(), WeightsError> {
        self.storage(tensor).map(|_| ())
    }

    /// Data of a tensor in row-major order, as little-endian bytes of its own element type.
    pub fn read(&self, tensor: &TensorRef) -> Result<Cow<'_, [u8]>, WeightsError> {
        let bytes = self.storage(tensor)?;
        let size = tensor.storage.kind.size();
        let count = tensor.count();
        // In bounds: parsing rejects tensors that exceed the stated size of their storage, and `storage` checks that
        // size.
        if tensor.is_contiguous() {
            let start = if count == 0 { 0 } else { tensor.offset * size };
            return Ok(Cow::Borrowed(&bytes[start..start + count * size]));
        }
        let mut out = Vec::with_capacity(count * size);
        let mut index = vec![0; tensor.shape.len()];
        let mut at = tensor.offset;
        for _ in 0..count {
            out.extend_from_slice(&bytes[at * size..(at + 1) * size]);
            for d in (0..index.len()).rev() {
                index[d] += 1;
                at += tensor.strides[d];
                if index[d] < tensor.shape[d] {
                    break;
                }
                at -= tensor.strides[d] * tensor.shape[d];
                index[d] = 0;
            }
        }
        Ok(Cow::Owned(out))
    }

    /// Data of a tensor as a model folder stores it: floating-point numbers as f32, integers unchanged.
    pub fn read_converted(&self, tensor: &TensorRef) -> Result<(ElementType, Cow<'_, [u8]>), WeightsError> {
        let bytes = self.read(tensor)?;
        match tensor.storage.kind {
            ElementType::F32 => Ok((ElementType::F32, bytes)),
            kind => match kind.to_f32(&bytes) {
                Some(numbers) => {
                    Ok((ElementType::F32, Cow::Owned(numbers.iter().flat_map(|n| n.to_le_bytes()).collect())))
                }
                None => Ok((kind, bytes)),
            },
        }
    }
}
