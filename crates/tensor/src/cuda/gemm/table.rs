//! Stores the fastest algorithm of every product on disk. Timing is noisy: a second timing could choose another
//! algorithm, which adds in another order. One file per GPU model and library version.
//!
//! Processes that share a folder choose one after another: what one has chosen, the others use. A run keeps a copy of
//! its choices ([`GemmTable::to_bytes`]); [`pin`] gives it to all tables of a process, so that a resumed run uses them
//! wherever it continues.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{GemmError, Key};

const FORMAT: u32 = 1;

/// Time to wait for another process to choose one algorithm; choosing takes a fraction of a second.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval at which the lock is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(2);

/// Tables of a run, for all tables that are opened afterwards.
static PINNED: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Sets the tables that a run has kept: each takes precedence over the file of its GPU model and library version; others
/// and damaged ones have no effect.
pub fn pin(tables: Vec<Vec<u8>>) {
    *PINNED.lock().unwrap_or_else(PoisonError::into_inner) = tables;
}

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
    /// Entries of the run, which override the others and are not written to the file.
    pinned: BTreeMap<Key, Entry>,
    /// The file as it was last read or written.
    file: Option<(Stamp, BTreeMap<Key, Entry>)>,
    changed: bool,
}

/// Recognises a file that was not replaced: every write makes a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: std::time::SystemTime,
    inode: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let found = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&found);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Stamp { length: found.len(), modified: found.modified().ok()?, inode })
    }
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
        let pinned = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
        let pinned = pinned.iter().filter_map(|bytes| parse(bytes, gpu, cublaslt)).flatten().collect();
        let content = Mutex::new(Content { entries, pinned, ..Content::default() });
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
        let content = self.content();
        content.pinned.get(key).or_else(|| content.entries.get(key)).copied()
    }

    /// All entries in the format of the file, and the file's name; `None` if there are none.
    pub fn to_bytes(&self) -> Option<(String, Vec<u8>)> {
        let content = self.content();
        let mut entries = content.entries.clone();
        entries.extend(&content.pinned);
        let name = self.path.as_ref()?.file_name()?.to_string_lossy().into_owned();
        let file = File::new(&self.gpu, self.cublaslt, &entries)?;
        (!entries.is_empty()).then_some((name, serde_json::to_vec_pretty(&file).ok()?))
    }

    /// The entry of a product, or else the one that `choose` returns, which is stored at once. One process after another
    /// chooses, and reads first what the others have chosen: all that share the folder use the same algorithms, and no
    /// timing disturbs another. `choose` must not wait for another process.
    pub fn get_or_choose<E>(
        &self,
        key: Key,
        is_valid: impl Fn(&Entry) -> bool,
        choose: impl FnOnce() -> Result<Entry, E>,
    ) -> Result<Entry, E> {
        if let Some(known) = self.get(&key).filter(&is_valid) {
            return Ok(known);
        }
        // Without a lock, as in a folder that cannot be written, every process chooses for itself.
        let _lock = self.lock();
        self.read_again();
        if let Some(known) = self.get(&key).filter(&is_valid) {
            return Ok(known);
        }
        self.content().pinned.remove(&key);
        let chosen = self.insert(key, choose()?, is_valid);
        // Reported by the save at the end of the program's first run.
        let _ = self.save_with(false);
        Ok(chosen)
    }

    /// The lock of all processes that share the folder; `None` if it cannot be acquired.
    fn lock(&self) -> Option<std::fs::File> {
        let path = self.path.as_ref()?.with_extension("lock");
        std::fs::create_dir_all(path.parent()?).ok()?;
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).ok()?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Some(file),
                Err(std::fs::TryLockError::WouldBlock) if began.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_INTERVAL);
                }
                Err(_) => return None,
            }
        }
    }

    /// Adds what other processes have written meanwhile.
    fn read_again(&self) {
        let Some(path) = &self.path else { return };
        let mut guard = self.content();
        let content = &mut *guard;
        self.refresh(content, path);
        if let Some((_, kept)) = &content.file {
            for (key, entry) in kept {
                content.entries.entry(*key).or_insert(*entry);
            }
        }
    }

    /// Reads the file unless it is the one that was last read or written: every choice would parse it otherwise.
    fn refresh(&self, content: &mut Content, path: &Path) {
        // Taken first: a file that is replaced meanwhile is read again the next time.
        let stamp = Stamp::of(path);
        if stamp.is_none() || content.file.as_ref().map(|(known, _)| *known) != stamp {
            let kept = read(path, &self.gpu, self.cublaslt).unwrap_or_default();
            content.file = stamp.map(|stamp| (stamp, kept));
        }
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
        self.save_with(true)
    }

    /// As [`save`](Self::save). If it is not `synced`, a crash of the machine may lose it.
    fn save_with(&self, synced: bool) -> Result<(), GemmError> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut guard = self.content();
        let content = &mut *guard;
        if !content.changed {
            return Ok(());
        }
        self.refresh(content, path);
        let mut entries = content.entries.clone();
        if let Some((_, kept)) = &content.file {
            for (key, entry) in kept {
                if !content.replaced.contains(key) {
                    entries.insert(*key, *entry);
                }
            }
        }
        let failed = |source| GemmError::Table { path: path.clone(), source };
        let file = File::new(&self.gpu, self.cublaslt, &entries)
            .ok_or_else(|| failed(std::io::Error::other("cannot be written as JSON")))?;
        let stamp = write(path, &file, synced).map_err(failed)?;
        content.file = stamp.map(|stamp| (stamp, entries));
        content.changed &= !synced;
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
    parse(&std::fs::read(path).ok()?, gpu, cublaslt)
}

fn parse(bytes: &[u8], gpu: &str, cublaslt: usize) -> Option<BTreeMap<Key, Entry>> {
    let file: File = serde_json::from_slice(bytes).ok()?;
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

impl File {
    fn new(gpu: &str, cublaslt: usize, entries: &BTreeMap<Key, Entry>) -> Option<File> {
        let entries: Vec<Line> = entries
            .iter()
            .map(|(key, entry)| Line {
                key: *key,
                algo: to_hex(&entry.algo),
                // To 0.1 ns: a shorter file, and a value that reads back unchanged.
                nanoseconds: (entry.nanoseconds * 10.0).round() / 10.0,
            })
            .collect();
        Some(File { format: FORMAT, gpu: gpu.to_owned(), cublaslt, checksum: checksum(&entries)?, entries })
    }
}

/// Returns how to recognise the written file.
fn write(path: &Path, file: &File, synced: bool) -> std::io::Result<Option<Stamp>> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // Several tables of one process may write at the same time.
    static WRITES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = WRITES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let temporary = path.with_extension(format!("json.{}.{number}", std::process::id()));
    let written = (|| {
        let mut out = std::fs::File::create(&temporary)?;
        out.write_all(&[serde_json::to_vec_pretty(file)?, b"\n".to_vec()].concat())?;
        if synced {
            out.sync_all()?;
        }
        // Renaming changes none of it.
        let stamp = Stamp::of(&temporary);
        std::fs::rename(&temporary, path)?;
        #[cfg(unix)]
        if synced {
            std::fs::File::open(folder)?.sync_all()?;
        }
        Ok(stamp)
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
    fn processes_that_start_together_use_the_same_algorithms() {
        let folder = tempfile::tempdir().unwrap();
        // Every table is that of a process: nothing but the folder connects them.
        let chosen = |seed: u64| {
            let path = folder.path().to_owned();
            std::thread::spawn(move || {
                let table = GemmTable::open(&path, GPU, 1);
                let choose = |m: usize| {
                    let own = || {
                        // As timing takes.
                        std::thread::sleep(Duration::from_millis(5));
                        Ok::<_, GemmError>(entry(seed * 100 + m as u64))
                    };
                    table.get_or_choose(key(m), |_| true, own).unwrap()
                };
                let chosen = (1..9).map(choose).collect::<Vec<_>>();
                table.save().unwrap();
                chosen
            })
        };
        let all: Vec<_> = (0..2).map(chosen).collect();
        let all: Vec<_> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(all[0], all[1]);
        let kept = GemmTable::open(folder.path(), GPU, 1);
        let kept: Vec<_> = (1..9).map(|m| kept.get(&key(m)).unwrap()).collect();
        assert_eq!(all[0], kept, "another run would use others");
    }

    #[test]
    fn an_entry_that_is_no_longer_valid_is_chosen_again_and_a_failed_choice_is_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        let table = GemmTable::open(folder.path(), GPU, 1);
        let choose = |seed: u64| move || Ok::<_, GemmError>(entry(seed));
        assert_eq!(table.get_or_choose(key(1), |_| true, choose(1)).unwrap(), entry(1));
        assert_eq!(table.get_or_choose(key(1), |_| true, choose(2)).unwrap(), entry(1));
        assert_eq!(table.get_or_choose(key(1), |one| *one != entry(1), choose(3)).unwrap(), entry(3));
        assert_eq!(GemmTable::open(folder.path(), GPU, 1).get(&key(1)), Some(entry(3)));
        let failed = || Err(GemmError::Library("no".into()));
        assert!(table.get_or_choose(key(2), |_| true, failed).is_err());
        assert_eq!(GemmTable::open(folder.path(), GPU, 1).get(&key(2)), None);
        // A folder that cannot be written, and no folder.
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for table in [GemmTable::open(&file, GPU, 1), GemmTable::in_memory()] {
            assert_eq!(table.get_or_choose(key(1), |_| true, choose(5)).unwrap(), entry(5));
        }
    }

    #[test]
    fn a_resumed_run_keeps_its_algorithms_on_another_machine() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // A GPU that no other test has: the pinned tables are those of the process.
        let gpu = "NVIDIA Test";
        assert_eq!(GemmTable::open(here.path(), gpu, 1).to_bytes(), None);
        let table = GemmTable::open(here.path(), gpu, 1);
        table.insert(key(1), entry(1), |_| true);
        let (name, kept) = table.to_bytes().unwrap();
        assert_eq!(name, "gemm-nvidia-test-1.json");
        // The other machine has chosen differently.
        let other = GemmTable::open(there.path(), gpu, 1);
        other.insert(key(1), entry(7), |_| true);
        other.insert(key(2), entry(8), |_| true);
        other.save().unwrap();
        pin(vec![b"damaged".to_vec(), kept.clone()]);
        let resumed = GemmTable::open(there.path(), gpu, 1);
        assert_eq!([1, 2].map(|m| resumed.get(&key(m))), [Some(entry(1)), Some(entry(8))]);
        resumed.insert(key(3), entry(3), |_| true);
        resumed.save().unwrap();
        // Other library versions and GPUs choose for themselves.
        assert!(GemmTable::open(there.path(), gpu, 2).get(&key(1)).is_none());
        assert!(GemmTable::open(there.path(), "NVIDIA Other", 1).get(&key(1)).is_none());
        // What the run has kept stays in the run.
        pin(Vec::new());
        assert_eq!(GemmTable::open(there.path(), gpu, 1).get(&key(1)), Some(entry(7)));
        let (_, kept) = resumed.to_bytes().unwrap();
        assert_eq!(parse(&kept, gpu, 1).unwrap().len(), 3);
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
