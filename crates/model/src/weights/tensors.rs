//! One safetensors file: opened by mapping, written as a stream.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use myxtts_run::durable::{Disk, FinishedFile, Writer};
use myxtts_run::mmap::MappedFile;
use safetensors::SafeTensors;

use super::map::map;
use super::{Kind, WeightsError};

/// Longest header: names and shapes of some 100,000 tensors.
const HEADER: u64 = 16 << 20;

/// An opened safetensors file.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    map: MappedFile,
    tensors: BTreeMap<String, Stored>,
}

/// A tensor's place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    kind: Kind,
    shape: Vec<usize>,
    range: Range<usize>,
}

/// A tensor in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'f> {
    /// Of which numbers.
    pub kind: Kind,
    /// Length of each dimension.
    pub shape: &'f [usize],
    /// Row-major, little-endian.
    pub bytes: &'f [u8],
}

impl<'f> View<'f> {
    /// Its numbers where they lie; none where they are of another kind, or where this machine has them in another order.
    pub fn as_f32(&self) -> Option<&'f [f32]> {
        let as_is = self.kind == Kind::F32 && cfg!(target_endian = "little");
        as_is.then(|| bytemuck::try_cast_slice(self.bytes).ok()).flatten()
    }

    /// Its numbers; none where they are whole ones.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        self.kind.to_f32(self.bytes)
    }
}

impl TensorFile {
    /// Opens a file and checks its header: every tensor within the file, none over another.
    pub fn open(path: &Path) -> Result<TensorFile, WeightsError> {
        TensorFile::of_map(path, map(path)?)
    }

    /// The same of a file that is mapped already: its pages are looked up once.
    pub(crate) fn of_map(path: &Path, map: MappedFile) -> Result<TensorFile, WeightsError> {
        let tensors = places(&map).map_err(|what| WeightsError::content(path, what))?;
        Ok(TensorFile { path: path.to_owned(), map, tensors })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All bytes, to be checked.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Names of its tensors, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A tensor.
    pub fn get(&self, name: &str) -> Option<View<'_>> {
        let Stored { kind, shape, range } = self.tensors.get(name)?;
        Some(View { kind: *kind, shape, bytes: &self.map[range.clone()] })
    }
}

fn places(bytes: &[u8]) -> Result<BTreeMap<String, Stored>, String> {
    let broken = |why: &dyn std::fmt::Display| format!("it is no sound safetensors file: {why}");
    let header = bytes.first_chunk().map(|&length| u64::from_le_bytes(length));
    let header = header.ok_or_else(|| broken(&"it is too short"))?;
    // The library would read a header of 100 MB, which unfolds to several times that.
    if header > HEADER {
        return Err(broken(&format!("it claims a header of {header} bytes")));
    }
    let file = SafeTensors::deserialize(bytes).map_err(|error| broken(&error))?;
    let start = bytes.as_ptr() as usize;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let kind = Kind::of_safetensors(view.dtype());
        let kind =
            kind.ok_or_else(|| format!("{name} is of the kind {:?}, which no XTTS model has", view.dtype()))?;
        let at = view.data().as_ptr() as usize - start;
        let range = at..at + view.data().len();
        tensors.insert(name.to_owned(), Stored { kind, shape: view.shape().to_vec(), range });
    }
    Ok(tensors)
}

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Of which numbers.
    pub kind: Kind,
    /// Length of each dimension.
    pub shape: Vec<usize>,
}

impl Spec {
    fn bytes(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64 * self.kind.size() as u64
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes in all.
    pub bytes: u64,
    /// Their BLAKE3, in hexadecimal.
    pub blake3: String,
}

/// Writes a safetensors file beside `path`, asking for the bytes of one tensor after another by its number in `specs`: no
/// more than one is ever in memory. `bytes` must give as many as the spec says.
pub fn write<'d, 't>(
    disk: &'d dyn Disk,
    path: &Path,
    specs: &[Spec],
    bytes: &mut dyn FnMut(usize) -> Result<Cow<'t, [u8]>, WeightsError>,
) -> Result<(FinishedFile<'d>, Written), WeightsError> {
    // By name: the same tensors give the same file, whatever order they were found in. The widest first: so every number
    // lies at a multiple of its own size.
    let mut order: Vec<usize> = (0..specs.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(specs[i].kind.size()), &specs[i].name));
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for &i in &order {
        let Spec { name, kind, shape } = &specs[i];
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
    Ok((file.finish()?, Written { bytes: total, blake3: hasher.finalize().to_hex().to_string() }))
}
