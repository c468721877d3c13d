//! A single file of tensors: a safetensors file, opened by memory mapping and written as a stream, or a [compact
//! one](super::compact), decoded when it is opened.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use myxtts_run::durable::{Disk, FinishedFile, Writer};
use myxtts_run::mmap::MappedFile;
use safetensors::SafeTensors;

use super::compact::{self, Decoded};
use super::map::map;
use super::{ElementType, WeightsError};

/// Maximum header size in bytes: names and shapes of about 100,000 tensors.
pub(super) const MAX_HEADER_BYTES: u64 = 16 << 20;

/// An opened file of tensors.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    content: Content,
    tensors: BTreeMap<String, Stored>,
}

/// Where the tensors' bytes are stored.
#[derive(Debug)]
enum Content {
    /// In the file itself.
    Mapped(MappedFile),
    /// In memory, decoded from a compact file.
    Decoded(Vec<u64>),
}

impl Content {
    fn bytes(&self) -> &[u8] {
        match self {
            Content::Mapped(map) => map,
            Content::Decoded(words) => bytemuck::cast_slice(words),
        }
    }
}

/// Location of a tensor in the bytes of its file or of a decoded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub kind: ElementType,
    pub shape: Vec<usize>,
    pub range: Range<usize>,
}

/// A tensor in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'f> {
    /// Element type.
    pub kind: ElementType,
    /// Length of each dimension.
    pub shape: &'f [usize],
    /// Row-major, little-endian.
    pub bytes: &'f [u8],
}

impl<'f> View<'f> {
    /// Data without copying; `None` if the type is not f32 or the machine is big-endian.
    pub fn as_f32(&self) -> Option<&'f [f32]> {
        let as_is = self.kind == ElementType::F32 && cfg!(target_endian = "little");
        as_is.then(|| bytemuck::try_cast_slice(self.bytes).ok()).flatten()
    }

    /// Data converted to f32; `None` for integers.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        self.kind.to_f32(self.bytes)
    }
}

impl TensorFile {
    /// Opens a file and validates its header: every tensor is within the file, and none overlap. A compact file is
    /// recognised by its first bytes.
    pub fn open(path: &Path) -> Result<TensorFile, WeightsError> {
        TensorFile::from_map(path, map(path)?)
    }

    /// Same as [`Self::open`] for a file that is already mapped.
    pub(crate) fn from_map(path: &Path, map: MappedFile) -> Result<TensorFile, WeightsError> {
        let wrong = |what| WeightsError::content(path, what);
        let path = path.to_owned();
        if map.starts_with(compact::MAGIC) {
            let Decoded { words, tensors } = compact::decode(&map).map_err(wrong)?;
            return Ok(TensorFile { content: Content::Decoded(words), tensors, path });
        }
        let tensors = locations(&map).map_err(wrong)?;
        Ok(TensorFile { content: Content::Mapped(map), tensors, path })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the tensors, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Returns a tensor by name.
    pub fn get(&self, name: &str) -> Option<View<'_>> {
        let Stored { kind, shape, range } = self.tensors.get(name)?;
        Some(View { kind: *kind, shape, bytes: &self.content.bytes()[range.clone()] })
    }
}

fn locations(bytes: &[u8]) -> Result<BTreeMap<String, Stored>, String> {
    let broken = |why: &dyn std::fmt::Display| format!("not a valid safetensors file: {why}");
    let header = bytes.first_chunk().map(|&length| u64::from_le_bytes(length));
    let header = header.ok_or_else(|| broken(&"it is too short"))?;
    // The library accepts headers of 100 MB, which take several times that when parsed.
    if header > MAX_HEADER_BYTES {
        return Err(broken(&format!("it claims a header of {header} bytes")));
    }
    let file = SafeTensors::deserialize(bytes).map_err(|error| broken(&error))?;
    let start = bytes.as_ptr() as usize;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let kind = ElementType::from_safetensors(view.dtype());
        let kind = kind.ok_or_else(|| {
            format!("{name} has the element type {:?}, which no XTTS model has", view.dtype())
        })?;
        let at = view.data().as_ptr() as usize - start;
        let range = at..at + view.data().len();
        tensors.insert(name.to_owned(), Stored { kind, shape: view.shape().to_vec(), range });
    }
    Ok(tensors)
}

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    /// Name in the file.
    pub name: String,
    /// Element type.
    pub kind: ElementType,
    /// Length of each dimension.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    fn bytes(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64 * self.kind.size() as u64
    }
}

/// Size and checksum of a written file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 in hexadecimal.
    pub blake3: String,
}

/// Writes a safetensors file next to `path`, requesting the bytes of one tensor at a time by its index in `specs`:
/// never more than one is in memory. `bytes` must return as many as the spec says.
pub fn write<'d, 't>(
    disk: &'d dyn Disk,
    path: &Path,
    specs: &[TensorSpec],
    bytes: &mut dyn FnMut(usize) -> Result<Cow<'t, [u8]>, WeightsError>,
) -> Result<(FinishedFile<'d>, WrittenFile), WeightsError> {
    // Sorted by name, so that the same tensors give the same file in any input order. Wider types first, so that every
    // element is aligned to its size.
    let mut order: Vec<usize> = (0..specs.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(specs[i].kind.size()), &specs[i].name));
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for &i in &order {
        let TensorSpec { name, kind, shape } = &specs[i];
        let end = at + specs[i].bytes();
        header.insert(
            name.clone(),
            serde_json::json!({"dtype": kind, "shape": shape, "data_offsets": [at, end]}),
        );
        at = end;
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut hasher = blake3::Hasher::new();
    let mut file = Writer::create(disk, path)?;
    let mut total = 0;
    let mut write = |bytes: &[u8]| {
        hasher.update(bytes);
        total += bytes.len() as u64;
        file.write(bytes)
    };
    write(&(header.len() as u64).to_le_bytes())?;
    write(&header)?;
    for i in order {
        let content = bytes(i)?;
        assert_eq!(
            content.len() as u64,
            specs[i].bytes(),
            "as many bytes as the shape of {} has",
            specs[i].name
        );
        write(&content)?;
    }
    Ok((file.finish()?, WrittenFile { bytes: total, blake3: hasher.finalize().to_hex().to_string() }))
}
