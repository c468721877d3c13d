//! Compiled kernels, kept on disk: a second start compiles nothing.
//!
//! An entry's name says what it was made of (source, options, architecture, compiler), so an entry is right or absent,
//! never stale. The file carries a checksum: a damaged one is compiled anew. Where nothing can be written, everything
//! works without the cache, and a warning can be fetched once.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::compile::{Arch, CompileError, compile, options, version};
use crate::kernels;

/// The folder everything is kept in that can be computed anew.
pub const FOLDER: &str = "MYXTTS_CACHE";

/// Begins every entry; another layout gets another.
const MAGIC: &[u8; 8] = b"MYXKRN1\n";
const CHECKSUM: usize = blake3::OUT_LEN;

/// Code for a GPU, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The CUBIN, as the driver loads it.
    pub cubin: Vec<u8>,
    /// Whether it was on disk already.
    pub from_cache: bool,
}

/// Compiled kernels are not kept, and why. Everything works, each start compiles again.
#[derive(Debug, thiserror::Error)]
#[error("compiled kernels are not kept in {}: {reason}. Each start compiles them again; {FOLDER} names another folder", folder.display())]
pub struct CacheWarning {
    /// The folder that was to hold them.
    pub folder: PathBuf,
    /// What went wrong.
    pub reason: String,
}

/// A folder of compiled kernels. Threads and processes may share it.
#[derive(Debug)]
pub struct KernelCache {
    folder: Option<PathBuf>,
    unwritable: AtomicBool,
    warning: Mutex<Option<CacheWarning>>,
}

impl KernelCache {
    /// The one of this user: `$MYXTTS_CACHE/kernels`, or `myxtts/kernels` in the platform's folder for caches.
    pub fn of_user() -> KernelCache {
        match cache_folder() {
            Some(folder) => KernelCache::at(folder.join("kernels")),
            None => {
                let cache = KernelCache { folder: None, ..KernelCache::at("") };
                cache.warn(Path::new("~/.cache"), "neither XDG_CACHE_HOME nor HOME is set");
                cache
            }
        }
    }

    /// One in a folder of its own, which is made when the first entry is written.
    pub fn at(folder: impl Into<PathBuf>) -> KernelCache {
        let (unwritable, warning) = (AtomicBool::new(false), Mutex::new(None));
        KernelCache { folder: Some(folder.into()), unwritable, warning }
    }

    /// A kernel file's code, from disk or from the compiler.
    pub fn compile(&self, source: &str, name: &str, arch: Arch) -> Result<Compiled, CompileError> {
        let entry = self.entry(source, name, arch)?;
        if let Some(cubin) = entry.as_deref().and_then(read) {
            return Ok(Compiled { cubin, from_cache: true });
        }
        let cubin = compile(source, name, arch)?;
        if let (Some(folder), Some(entry)) = (&self.folder, &entry)
            && !self.unwritable.load(Ordering::Relaxed)
            && let Err(error) = write(folder, entry, &cubin)
        {
            self.warn(folder, &error.to_string());
        }
        Ok(Compiled { cubin, from_cache: false })
    }

    /// The code of many kernel files (name, text without the prelude), in their order, by as many threads as there are
    /// cores. Of several errors the first in their order is returned.
    pub fn compile_all(&self, kernels: &[(&str, &str)], arch: Arch) -> Result<Vec<Compiled>, CompileError> {
        let next = AtomicUsize::new(0);
        let done: Vec<Mutex<Option<Result<Compiled, CompileError>>>> =
            kernels.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < kernels.len())
            {
                let (name, text) = kernels[index];
                let compiled =
                    self.compile(&kernels::with_prelude(name, text), &kernels::file_name(name), arch);
                *lock(&done[index]) = Some(compiled);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(kernels.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        done.iter().filter_map(|slot| lock(slot).take()).collect()
    }

    /// Why nothing is kept, if so; once.
    pub fn take_warning(&self) -> Option<CacheWarning> {
        lock(&self.warning).take()
    }

    /// The file of an entry, whether it exists or not.
    pub fn entry(&self, source: &str, name: &str, arch: Arch) -> Result<Option<PathBuf>, CompileError> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let version = version()?;
        let mut key = blake3::Hasher::new();
        // The length before each part: "ab" + "c" is not "a" + "bc".
        for part in [source, &version].into_iter().chain(options(arch).iter().map(String::as_str)) {
            key.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let key = key.finalize().to_hex();
        let name = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        Ok(Some(folder.join(format!("{name}-{arch}-{}.cubin", &key[..32]))))
    }

    fn warn(&self, folder: &Path, reason: &str) {
        // The first failure tells; a folder that cannot be written is not tried again by this process.
        if !self.unwritable.swap(true, Ordering::Relaxed) {
            let warning = CacheWarning { folder: folder.to_owned(), reason: reason.to_owned() };
            *lock(&self.warning) = Some(warning);
        }
    }
}

/// The user's folder for what can be computed anew: `$MYXTTS_CACHE`, or `myxtts` in the platform's folder for caches.
pub fn cache_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let platform = || {
        let base = folder("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        Some(base.or_else(|| Some(folder("HOME")?.join(".cache")))?.join("myxtts"))
    };
    folder(FOLDER).or_else(platform)
}

fn read(entry: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(entry).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (checksum, cubin) = rest.split_at_checked(CHECKSUM)?;
    (blake3::hash(cubin).as_bytes() == checksum).then(|| cubin.to_vec())
}

/// Written beside and renamed: a reader sees the whole entry or none. Not synced, since a lost one is compiled again
/// and a torn one is seen by its checksum.
fn write(folder: &Path, entry: &Path, cubin: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    fs::create_dir_all(folder)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let beside = entry.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(MAGIC)?;
        file.write_all(blake3::hash(cubin).as_bytes())?;
        file.write_all(cubin)
    });
    let renamed = written.and_then(|()| fs::rename(&beside, entry));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    renamed
}

/// A thread that panicked while it held the lock left a whole value behind.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
