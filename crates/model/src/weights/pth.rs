//! A file of `torch.save`: a pickle whose tensors lie beside it in an archive, read when they are asked for.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use myxtts_run::mmap::MappedFile;

use super::archive::{Archive, ArchiveError};
use super::map::map;
use super::pickle::{Pickle, TensorRef};
use super::{Kind, WeightsError};

/// An opened `.pth`.
#[derive(Debug)]
pub struct TorchFile {
    path: PathBuf,
    map: MappedFile,
    archive: Archive,
}

impl TorchFile {
    /// Opens a file and finds its entries; no tensor is read.
    pub fn open(path: &Path) -> Result<TorchFile, WeightsError> {
        let map = map(path)?;
        let at = |source| WeightsError::Archive { path: path.to_owned(), source };
        let archive = Archive::read(&map).map_err(at)?;
        if let Ok(order) = archive.entry("byteorder")
            && &map[order.range.clone()] != b"little"
        {
            return Err(WeightsError::content(
                path,
                "its numbers are not little-endian; save it again on an ordinary machine",
            ));
        }
        Ok(TorchFile { path: path.to_owned(), map, archive })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn size(&self) -> usize {
        self.map.len()
    }

    /// What was saved.
    pub fn pickle(&self) -> Result<Pickle<'_>, WeightsError> {
        let entry = self.archive.entry("data.pkl").map_err(|source| self.broken(source))?;
        Pickle::parse(&self.map[entry.range.clone()])
            .map_err(|source| WeightsError::Pickle { path: self.path.clone(), source })
    }

    /// Names of entries whose checksum is not that of their bytes. Reads the whole file.
    pub fn damaged(&self) -> Vec<String> {
        self.archive.damaged(&self.map)
    }

    fn broken(&self, source: ArchiveError) -> WeightsError {
        WeightsError::Archive { path: self.path.clone(), source }
    }

    /// The bytes of a tensor's storage, once it is sure that all of the tensor lies in them.
    fn storage(&self, tensor: &TensorRef) -> Result<&[u8], WeightsError> {
        let storage = &tensor.storage;
        let name = format!("data/{}", storage.key);
        let bytes = &self.map[self.archive.entry(&name).map_err(|source| self.broken(source))?.range.clone()];
        if storage.count.checked_mul(storage.kind.size()) != Some(bytes.len()) {
            let what = format!(
                "the entry {name} has {} bytes, not the {} numbers of {:?} that its tensor claims",
                bytes.len(),
                storage.count,
                storage.kind
            );
            return Err(WeightsError::content(&self.path, what));
        }
        Ok(bytes)
    }

    /// Is all of a tensor in the file? Costs nothing.
    pub fn check(&self, tensor: &TensorRef) -> Result<(), WeightsError> {
        self.storage(tensor).map(|_| ())
    }

    /// A tensor's numbers in row-major order, as little-endian bytes of its own kind.
    pub fn read(&self, tensor: &TensorRef) -> Result<Cow<'_, [u8]>, WeightsError> {
        let bytes = self.storage(tensor)?;
        let size = tensor.storage.kind.size();
        let count = tensor.count();
        // The pickle was refused if a tensor went beyond what its storage is said to hold, and `storage` if that was a lie.
        if tensor.is_contiguous() {
            let start = if count == 0 { 0 } else { tensor.offset * size };
            return Ok(Cow::Borrowed(&bytes[start..start + count * size]));
        }
        let mut out = Vec::with_capacity(count * size);
        let mut place = vec![0; tensor.shape.len()];
        let mut at = tensor.offset;
        for _ in 0..count {
            out.extend_from_slice(&bytes[at * size..(at + 1) * size]);
            for d in (0..place.len()).rev() {
                place[d] += 1;
                at += tensor.strides[d];
                if place[d] < tensor.shape[d] {
                    break;
                }
                at -= tensor.strides[d] * tensor.shape[d];
                place[d] = 0;
            }
        }
        Ok(Cow::Owned(out))
    }

    /// A tensor as our folder has it: floating-point numbers as f32, whole ones as they are.
    pub fn read_ours(&self, tensor: &TensorRef) -> Result<(Kind, Cow<'_, [u8]>), WeightsError> {
        let bytes = self.read(tensor)?;
        match tensor.storage.kind {
            Kind::F32 => Ok((Kind::F32, bytes)),
            kind => match kind.to_f32(&bytes) {
                Some(numbers) => {
                    Ok((Kind::F32, Cow::Owned(numbers.iter().flat_map(|n| n.to_le_bytes()).collect())))
                }
                None => Ok((kind, bytes)),
            },
        }
    }
}
