//! Stores the fastest algorithm of every product on disk. Timing is noisy: a second timing could choose another
//! algorithm, which adds in another order. One file per GPU model and library version.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::{GemmError, Key};

const FORMAT: u32 = 1;

/// The algorithm stored for one product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// The library's opaque `cublasLtMatmulAlgo_t`.
    pub algo: [u64; 8],
    /// Time of one product when it was chosen.
    pub nanoseconds: f64,
}

/// Format of the file.
#[derive(Serialize, Deserialize)]
struct File {
    format: u32,
    gpu: String,
    cublaslt: usize,
    /// Checksum of the entries as written: an algorithm with a flipped bit may pass the library's check.
    checksum: String,
    entries: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    key: Key,
    /// 8 words of 16 hex digits.
    algo: String,
    nanoseconds: f64,
}

#[derive(Default)]
struct Content {
    entries: BTreeMap<Key, Entry>,
    /// Keys chosen again because the stored algorithm was no longer valid; these override the file.
    replaced: BTreeSet<Key>,
    changed: bool,
}

/// The table of one GPU model and library version.
pub struct GemmTable {
    path: Option<PathBuf>,
    gpu: String,
    cublaslt: usize,
    content: Mutex<Content>,
}

impl GemmTable {
    /// Opens the table in a folder, or an empty one: a file that cannot be read or is damaged only costs the time
    /// to choose again, and is rewritten by [`GemmTable::save`].
    pub fn open(folder: &Path, gpu: &str, cublaslt: usize) -> GemmTable {
        let path = folder.join(format!("gemm-{}-{cublaslt}.json", slug(gpu)));
        let entries = read(&path, gpu, cublaslt).unwrap_or_default();
        let content = Mutex::new(Content { entries, ..Content::default() });
        GemmTable { path: Some(path), gpu: gpu.to_owned(), cublaslt, content }
    }

    /// A table that is never written to disk.
    pub fn in_memory() -> GemmTable {
        GemmTable { path: None, gpu: String::new(), cublaslt: 0, content: Mutex::default() }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        // Every change is a single insertion, so a panic elsewhere leaves the content valid.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of products in the table.
    pub fn len(&self) -> usize {
        self.content().entries.len()
    }

    /// Whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry of a product.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        self.content().entries.get(key).copied()
    }

    /// Inserts an entry and returns the one in effect: an existing entry is kept if it is still valid.
    pub fn insert(&self, key: Key, entry: Entry, is_valid: impl FnOnce(&Entry) -> bool) -> Entry {
        let mut content = self.content();
        if let Some(kept) = content.entries.get(&key).copied() {
            if is_valid(&kept) {
                return kept;
            }
            content.replaced.insert(key);
        }
        content.entries.insert(key, entry);
        content.changed = true;
        entry
    }

    /// Writes the table if it changed, merged with what other processes wrote meanwhile, to a temporary file that
    /// is then renamed.
    pub fn save(&self) -> Result<(), GemmError> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut content = self.content();
        if !content.changed {
            return Ok(());
        }
        let mut entries = content.entries.clone();
        for (key, entry) in read(path, &self.gpu, self.cublaslt).unwrap_or_default() {
            if !content.replaced.contains(&key) {
                entries.insert(key, entry);
            }
        }
        let failed = |source| GemmError::Table { path: path.clone(), source };
        write(path, &self.gpu, self.cublaslt, &entries).map_err(failed)?;
        content.changed = false;
        Ok(())
    }
}

/// A file name derived from a GPU name.
fn slug(gpu: &str) -> String {
    let mut slug = String::new();
    for c in gpu.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => slug.push(c.to_ascii_lowercase()),
            _ if slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.trim_matches('-').to_owned()
}

fn to_hex(algo: &[u64; 8]) -> String {
    algo.iter().map(|word| format!("{word:016x}")).collect()
}

fn from_hex(text: &str) -> Option<[u64; 8]> {
    if text.len() != 128 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut algo = [0; 8];
    for (i, word) in algo.iter_mut().enumerate() {
        *word = u64::from_str_radix(&text[i * 16..i * 16 + 16], 16).ok()?;
    }
    Some(algo)
}

fn checksum(entries: &[Line]) -> Option<String> {
    serde_json::to_vec(entries).ok().map(|bytes| blake3::hash(&bytes).to_hex().to_string())
}

fn read(path: &Path, gpu: &str, cublaslt: usize) -> Option<BTreeMap<Key, Entry>> {
    let file: File = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    if (file.format, file.gpu.as_str(), file.cublaslt) != (FORMAT, gpu, cublaslt)
        || Some(&file.checksum) != checksum(&file.entries).as_ref()
    {
        return None;
    }
    file.entries
        .into_iter()
        .map(|line| Some((line.key, Entry { algo: from_hex(&line.algo)?, nanoseconds: line.nanoseconds })))
        .collect()
}

fn write(path: &Path, gpu: &str, cublaslt: usize, entries: &BTreeMap<Key, Entry>) -> std::io::Result<()> {
    let entries: Vec<Line> = entries
        .iter()
        .map(|(key, entry)| Line {
            key: *key,
            algo: to_hex(&entry.algo),
            // To 0.1 ns: a shorter file, and a value that reads back unchanged.
            nanoseconds: (entry.nanoseconds * 10.0).round() / 10.0,
        })
        .collect();
    let checksum = checksum(&entries).ok_or_else(|| std::io::Error::other("cannot be written as JSON"))?;
    let file = File { format: FORMAT, gpu: gpu.to_owned(), cublaslt, checksum, entries };
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let temporary = path.with_extension(format!("json.{}", std::process::id()));
    let written = (|| {
        let mut out = std::fs::File::create(&temporary)?;
        serde_json::to_writer_pretty(&mut out, &file)?;
        out.write_all(b"\n")?;
        out.sync_all()?;
        std::fs::rename(&temporary, path)?;
        #[cfg(unix)]
        std::fs::File::open(folder)?.sync_all()?;
        Ok(())
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::super::{Element, Gemm, Operands};
    use super::*;

    const GPU: &str = "NVIDIA H200";

    fn key(m: usize) -> Key {
        Key::new(&Gemm::packed(m, 8, 8, Element::Bf16), &Operands::new(256, 512, 1024))
    }

    fn entry(seed: u64) -> Entry {
        Entry { algo: std::array::from_fn(|i| (seed << 56) ^ i as u64), nanoseconds: seed as f64 + 0.5 }
    }

    #[test]
    fn a_table_reads_back_what_it_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let table = GemmTable::open(folder.path(), GPU, 120_402);
        assert!(table.is_empty());
        for m in 1..20 {
            table.insert(key(m), entry(m as u64), |_| true);
        }
        table.save().unwrap();
        let again = GemmTable::open(folder.path(), GPU, 120_402);
        assert_eq!(again.len(), 19);
        for m in 1..20 {
            assert_eq!(again.get(&key(m)), Some(entry(m as u64)));
        }
        let names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert_eq!(names, ["gemm-nvidia-h200-120402.json"]);
        assert!(GemmTable::open(folder.path(), GPU, 130_000).is_empty());
        assert!(GemmTable::open(folder.path(), "NVIDIA H100", 120_402).is_empty());
    }

    #[test]
    fn the_first_choice_stays_while_it_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let one = GemmTable::open(folder.path(), GPU, 1);
        let two = GemmTable::open(folder.path(), GPU, 1);
        one.insert(key(1), entry(1), |_| true);
        one.insert(key(2), entry(2), |_| true);
        assert_eq!(one.insert(key(1), entry(9), |_| true), entry(1));
        two.insert(key(2), entry(7), |_| true);
        two.insert(key(3), entry(3), |_| true);
        one.save().unwrap();
        two.save().unwrap();
        let merged = GemmTable::open(folder.path(), GPU, 1);
        assert_eq!([1, 2, 3].map(|m| merged.get(&key(m))), [1, 2, 3].map(|m| Some(entry(m))));
        assert_eq!(merged.insert(key(1), entry(8), |_| false), entry(8));
        merged.save().unwrap();
        assert_eq!(GemmTable::open(folder.path(), GPU, 1).get(&key(1)), Some(entry(8)));
    }

    #[test]
    fn a_damaged_file_is_ignored_and_rewritten() {
        let folder = tempfile::tempdir().unwrap();
        let table = GemmTable::open(folder.path(), GPU, 1);
        table.insert(key(1), entry(1), |_| true);
        table.save().unwrap();
        let path = folder.path().join("gemm-nvidia-h200-1.json");
        let whole = std::fs::read(&path).unwrap();
        let digit = whole.windows(4).position(|w| w == b"algo").unwrap() + 12;
        let mut flipped = whole.clone();
        flipped[digit] = if flipped[digit] == b'0' { b'1' } else { b'0' };
        for damaged in [&whole[..whole.len() / 2], b"", b"\xff\xfe", b"{}", b"[]", &flipped] {
            std::fs::write(&path, damaged).unwrap();
            let table = GemmTable::open(folder.path(), GPU, 1);
            assert!(table.is_empty());
            table.insert(key(2), entry(2), |_| true);
            table.save().unwrap();
            assert_eq!(GemmTable::open(folder.path(), GPU, 1).get(&key(2)), Some(entry(2)));
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_with_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let table = GemmTable::open(&file, GPU, 1);
        table.insert(key(1), entry(1), |_| true);
        assert!(table.save().unwrap_err().to_string().contains("gemm-nvidia-h200-1.json"));
    }

    #[test]
    fn hex_is_128_digits() {
        let algo = entry(3).algo;
        assert_eq!(from_hex(&to_hex(&algo)), Some(algo));
        assert_eq!(from_hex(""), None);
        assert_eq!(from_hex(&"é".repeat(64)), None);
        assert_eq!(from_hex(&"+".repeat(128)), None);
    }
}
