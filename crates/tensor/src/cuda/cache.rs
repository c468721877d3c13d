//! On-disk cache of compiled kernels.
//!
//! The name of an entry is a hash of everything it was built from (source, options, architecture, compiler), so an
//! entry is never stale. The file carries a checksum: a damaged entry is compiled again. If the folder cannot be
//! written, everything works without the cache and a warning can be fetched once.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::compile::{Arch, CompileError, compile, options, version};
use crate::kernels;

/// Environment variable with the folder for all data that can be recomputed.
pub(crate) const CACHE_VARIABLE: &str = "MYXTTS_CACHE";

/// First bytes of every entry; another file format gets another value.
const MAGIC: &[u8; 8] = b"MYXKRN1\n";
const CHECKSUM: usize = blake3::OUT_LEN;

/// Machine code for a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The CUBIN, as the driver loads it.
    pub cubin: Vec<u8>,
    /// Whether it was read from the cache.
    pub from_cache: bool,
}

/// Compiled kernels are not stored. Everything works, but each start compiles again.
#[derive(Debug, thiserror::Error)]
#[error("compiled kernels cannot be cached in {}: {reason}. Each start compiles them again; set {CACHE_VARIABLE} to another folder", folder.display())]
pub struct CacheWarning {
    /// The folder that could not be used.
    pub folder: PathBuf,
    /// The cause.
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
    /// The cache of this user: `$MYXTTS_CACHE/kernels`, or `myxtts/kernels` in the platform's cache folder.
    pub(crate) fn for_user() -> KernelCache {
        match cache_folder() {
            Some(folder) => KernelCache::in_folder(folder.join("kernels")),
            None => {
                let cache = KernelCache { folder: None, ..KernelCache::in_folder("") };
                cache.warn(Path::new("~/.cache"), "neither XDG_CACHE_HOME nor HOME is set");
                cache
            }
        }
    }

    /// A cache in the given folder, which is created when the first entry is written.
    pub fn in_folder(folder: impl Into<PathBuf>) -> KernelCache {
        let (unwritable, warning) = (AtomicBool::new(false), Mutex::new(None));
        KernelCache { folder: Some(folder.into()), unwritable, warning }
    }

    /// Returns the machine code of a kernel file, from disk or from the compiler.
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

    /// Compiles many kernel files (name, text without the prelude) on all cores and returns them in order. Of
    /// several errors, the first in that order is returned.
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

    /// Returns the warning that nothing is stored, once.
    pub fn take_warning(&self) -> Option<CacheWarning> {
        lock(&self.warning).take()
    }

    /// Path of an entry, whether it exists or not.
    pub fn entry(&self, source: &str, name: &str, arch: Arch) -> Result<Option<PathBuf>, CompileError> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let version = version()?;
        let mut key = blake3::Hasher::new();
        // Each part is preceded by its length: "ab" + "c" must differ from "a" + "bc".
        for part in [source, &version].into_iter().chain(options(arch).iter().map(String::as_str)) {
            key.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let key = key.finalize().to_hex();
        let name = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        Ok(Some(folder.join(format!("{name}-{arch}-{}.cubin", &key[..32]))))
    }

    fn warn(&self, folder: &Path, reason: &str) {
        // Only the first failure is reported; a folder that cannot be written is not tried again by this process.
        if !self.unwritable.swap(true, Ordering::Relaxed) {
            let warning = CacheWarning { folder: folder.to_owned(), reason: reason.to_owned() };
            *lock(&self.warning) = Some(warning);
        }
    }
}

/// The user's folder for data that can be recomputed: `$MYXTTS_CACHE`, or `myxtts` in the platform's cache folder.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let platform = || {
        let base = folder("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        Some(base.or_else(|| Some(folder("HOME")?.join(".cache")))?.join("myxtts"))
    };
    folder(CACHE_VARIABLE).or_else(platform)
}

fn read(entry: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(entry).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (checksum, cubin) = rest.split_at_checked(CHECKSUM)?;
    (blake3::hash(cubin).as_bytes() == checksum).then(|| cubin.to_vec())
}

/// Written to a temporary file and renamed: a reader sees the whole entry or none. Not synced, because a lost entry
/// is compiled again and a torn one fails its checksum.
fn write(folder: &Path, entry: &Path, cubin: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    fs::create_dir_all(folder)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = entry.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let written = fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(MAGIC)?;
        file.write_all(blake3::hash(cubin).as_bytes())?;
        file.write_all(cubin)
    });
    let renamed = written.and_then(|()| fs::rename(&temporary, entry));
    if renamed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    renamed
}

/// A thread that panicked while holding the lock left a valid value behind.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
