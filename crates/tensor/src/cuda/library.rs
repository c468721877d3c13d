//! CUDA's shared libraries, loaded at run time: the build needs none of them, and a machine without them gets a
//! message that says what is missing and how to install it.
//!
//! Call [`require`] before the first call into cudarc: cudarc searches for libraries itself and panics if there are
//! none. After `require` it uses the file that was chosen here.

mod alias;
mod install;
mod search_path;

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_NOW};
use serde::Serialize;

use search_path::Location;
pub use search_path::OVERRIDE;

/// Oldest supported CUDA version, for the driver and the libraries.
const OLDEST_MAJOR: u32 = 12;
/// Newest CUDA version known to this program, searched for when no driver reports a version.
const NEWEST_MAJOR: u32 = 13;

/// A shared library of CUDA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Library {
    /// The driver.
    Driver,
    /// The run-time compiler for kernels.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Collectives across GPUs.
    Nccl,
    /// Utilisation, temperature, free memory.
    Nvml,
    /// Kernel timing.
    Cupti,
}

impl Library {
    /// All libraries in the order they are needed. The driver comes first: its version decides which of the others
    /// fit.
    pub const ALL: [Library; 6] =
        [Library::Driver, Library::Nvrtc, Library::CublasLt, Library::Nccl, Library::Nvml, Library::Cupti];

    /// The `cublasLt` of `libcublasLt.so.13`.
    fn stem(self) -> &'static str {
        match self {
            Library::Driver => "cuda",
            Library::Nvrtc => "nvrtc",
            Library::CublasLt => "cublasLt",
            Library::Nccl => "nccl",
            Library::Nvml => "nvidia-ml",
            Library::Cupti => "cupti",
        }
    }

    /// A function that only this library has; it also returns the version where the library has one.
    fn symbol(self) -> &'static str {
        match self {
            Library::Driver => "cuDriverGetVersion",
            Library::Nvrtc => "nvrtcVersion",
            Library::CublasLt => "cublasLtGetVersion",
            Library::Nccl => "ncclGetVersion",
            Library::Nvml => "nvmlInit_v2",
            Library::Cupti => "cuptiGetVersion",
        }
    }

    /// File names that fit a driver of this CUDA version, best first; then those that are too new for it.
    fn file_names(self, driver: Option<u32>) -> (Vec<String>, Vec<String>) {
        let name = |number: u32| format!("lib{}.so.{number}", self.stem());
        match self {
            Library::Driver | Library::Nvml => (vec![name(1)], vec![]),
            Library::Nccl => (vec![name(2)], vec![]),
            Library::Nvrtc | Library::CublasLt | Library::Cupti => {
                let newest = driver.unwrap_or(NEWEST_MAJOR);
                let fitting = (OLDEST_MAJOR..=newest).rev().map(name).collect();
                (fitting, (newest + 1..=NEWEST_MAJOR).map(name).collect())
            }
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Library::Driver => "NVIDIA driver",
            Library::Nvrtc => "NVRTC",
            Library::CublasLt => "cuBLASLt",
            Library::Nccl => "NCCL",
            Library::Nvml => "NVML",
            Library::Cupti => "CUPTI",
        })
    }
}

/// A library that is not on this machine, or not in a usable version.
#[derive(Debug, Clone, Serialize, thiserror::Error)]
pub struct MissingLibrary {
    /// The missing library.
    pub library: Library,
    /// File names that would have been accepted.
    pub looked_for: Vec<String>,
    /// Locations that were searched, in order.
    pub looked_in: Vec<String>,
    /// Files that were found but could not be used, each with the reason.
    pub refused: Vec<String>,
    /// The command that installs it, or a sentence where there is no single command.
    pub install: String,
}

impl MissingLibrary {
    /// The problem in one sentence, without the searched locations.
    pub fn summary(&self) -> String {
        match &self.refused[..] {
            [] => format!("{} was not found", self.library),
            refused => format!("{} cannot be used: {}", self.library, refused.join("; ")),
        }
    }
}

impl fmt::Display for MissingLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        if self.refused.is_empty() {
            write!(f, ": no {} in {}", self.looked_for.join(" or "), self.looked_in.join(", "))?;
        }
        write!(f, ". To install it: {}", self.install)?;
        if self.library != Library::Driver {
            write!(f, "; or set {OVERRIDE} to its folder")?;
        }
        Ok(())
    }
}

/// Result of the search for one library.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Status {
    /// The library is loaded.
    Found {
        /// Path of the file, with links resolved.
        path: PathBuf,
        /// Version as the library reports it; NVML and CUPTI report none if the driver does not work.
        version: Option<String>,
    },
    /// The library is missing or unusable.
    Missing(MissingLibrary),
}

impl Status {
    /// Whether it can be used.
    pub(crate) fn is_found(&self) -> bool {
        matches!(self, Status::Found { .. })
    }
}

/// Results of the search for every library.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Libraries {
    pub driver: Status,
    pub nvrtc: Status,
    pub cublas_lt: Status,
    pub nccl: Status,
    pub nvml: Status,
    pub cupti: Status,
}

impl Libraries {
    /// Searches for all libraries; those found stay loaded.
    pub fn find() -> Libraries {
        let status = |library| match found(library) {
            Ok(found) => Status::Found { path: found.path.clone(), version: found.version.clone() },
            Err(missing) => Status::Missing(missing.clone()),
        };
        Libraries {
            driver: status(Library::Driver),
            nvrtc: status(Library::Nvrtc),
            cublas_lt: status(Library::CublasLt),
            nccl: status(Library::Nccl),
            nvml: status(Library::Nvml),
            cupti: status(Library::Cupti),
        }
    }

    /// Every library with its search result, in the order they are needed.
    pub fn iter(&self) -> impl Iterator<Item = (Library, &Status)> {
        Library::ALL.into_iter().map(|library| (library, self.get(library)))
    }

    /// The search result for one library.
    pub fn get(&self, library: Library) -> &Status {
        match library {
            Library::Driver => &self.driver,
            Library::Nvrtc => &self.nvrtc,
            Library::CublasLt => &self.cublas_lt,
            Library::Nccl => &self.nccl,
            Library::Nvml => &self.nvml,
            Library::Cupti => &self.cupti,
        }
    }
}

/// Finds and loads a library, once per process. Afterwards cudarc's functions of that library may be called.
pub fn require(library: Library) -> Result<(), MissingLibrary> {
    handle(library).map(|_| ())
}

/// The loaded library itself, for functions cudarc has no bindings for.
pub fn handle(library: Library) -> Result<&'static libloading::Library, MissingLibrary> {
    match found(library) {
        Ok(found) => Ok(&found.handle),
        Err(missing) => Err(missing.clone()),
    }
}

/// Newest CUDA version the driver supports, such as (12, 4).
pub(crate) fn driver_version() -> Result<(u32, u32), MissingLibrary> {
    match found(Library::Driver) {
        Ok(found) => Ok((found.number / 1000, found.number % 1000 / 10)),
        Err(missing) => Err(missing.clone()),
    }
}

/// A library that stays loaded for the life of the process.
struct Found {
    handle: libloading::Library,
    path: PathBuf,
    version: Option<String>,
    /// Version number in the library's own encoding.
    number: u32,
}

fn found(library: Library) -> &'static Result<Found, MissingLibrary> {
    static FOUND: [OnceLock<Result<Found, MissingLibrary>>; Library::ALL.len()] =
        [const { OnceLock::new() }; Library::ALL.len()];
    FOUND[library as usize].get_or_init(|| {
        let variable = |name: &str| std::env::var_os(name);
        let driver = if library == Library::Driver { None } else { driver_version().ok() };
        let program = std::env::current_exe().ok();
        let locations = search_path::locations(Path::new("/"), program.as_deref(), &variable);
        search(library, driver.map(|version| version.0), &locations)
    })
}

fn search(library: Library, driver: Option<u32>, locations: &[Location]) -> Result<Found, MissingLibrary> {
    let (fitting, too_new) = library.file_names(driver);
    let mut refused = Vec::new();
    // Folders chosen by the user may also provide a version that is too new, if they hold none that fits.
    let chosen = || locations.iter().filter(|location| matches!(location, Location::Chosen(_)));
    let others = locations.iter().filter(|location| !matches!(location, Location::Chosen(_)));
    let tries =
        chosen().map(|location| (location, &fitting)).chain(chosen().map(|location| (location, &too_new)));
    for (location, names) in tries.chain(others.map(|location| (location, &fitting))) {
        for name in names {
            let file = match location {
                Location::Chosen(folder) | Location::Folder(folder) => folder.join(name),
                Location::Linker => PathBuf::from(name),
            };
            let by_name = *location == Location::Linker;
            if !by_name && !file.is_file() {
                continue;
            }
            match load(library, &file) {
                Ok(found) => return Ok(found),
                // A name the dynamic linker does not know is not worth reporting.
                Err(reason) if by_name && reason.starts_with(&format!("{name}: cannot open")) => {}
                Err(reason) => refused.push(format!("{}: {reason}", file.display())),
            }
        }
        let Location::Folder(folder) = location else { continue };
        for file in too_new.iter().map(|name| folder.join(name)).filter(|file| file.is_file()) {
            let (file, driver) = (file.display(), driver.unwrap_or(NEWEST_MAJOR));
            refused.push(format!("{file} needs a newer driver, this one supports CUDA {driver}"));
        }
    }
    let looked_in = locations.iter().map(|location| match location {
        Location::Linker => "the dynamic linker's path".to_owned(),
        Location::Chosen(folder) if !folder.is_dir() => format!("{} (no such folder)", folder.display()),
        Location::Chosen(folder) | Location::Folder(folder) => folder.display().to_string(),
    });
    Err(MissingLibrary {
        library,
        looked_in: looked_in.collect(),
        looked_for: fitting,
        refused,
        install: install::command(library, driver),
    })
}

/// Loads a file (or the linker's match for a name), queries its version, and makes cudarc use it.
fn load(library: Library, file: &Path) -> Result<Found, String> {
    // SAFETY: loading runs the library's initialisers. The file has the name of an NVIDIA library and is in a
    // standard location or one chosen by the user.
    let opened = unsafe { Opened::open(Some(file), RTLD_NOW | RTLD_GLOBAL) };
    let opened = opened.map_err(|error| source_of(&error))?;
    // SAFETY: only the address is used here.
    let symbol = unsafe { opened.get::<*mut c_void>(library.symbol()) };
    let symbol = symbol.map_err(|_| format!("it has no {}", library.symbol()))?.into_raw();
    let path = path_of(symbol).unwrap_or_else(|| file.to_owned());
    let (number, version) = version(library, &opened)?;
    if library == Library::Driver && number < OLDEST_MAJOR * 1000 {
        let version = version.unwrap_or_default();
        return Err(format!(
            "it supports {version}, but CUDA {OLDEST_MAJOR} or newer is required: update the driver"
        ));
    }
    if library != Library::Nvml {
        let published = alias::publish(&format!("lib{}.so", library.stem()), &path);
        // Repeats cudarc's own search, so that its panic is never reached. It may succeed without the alias too.
        if symbol_as_cudarc_finds_it(library) != Some(symbol) {
            let reason = published.err().map(|error| format!(" ({error})")).unwrap_or_default();
            return Err(format!("another library is loaded under its name{reason}"));
        }
    }
    let path = path.canonicalize().unwrap_or(path);
    Ok(Found { handle: opened.into(), path, version, number })
}

fn symbol_as_cudarc_finds_it(library: Library) -> Option<*mut c_void> {
    let names = cudarc::get_lib_name_candidates(library.stem());
    // SAFETY: the same names in the same order that cudarc opens a moment later.
    let first = names.iter().find_map(|name| unsafe { libloading::Library::new(name).ok() })?;
    let first = Opened::from(first);
    // SAFETY: only the address is used.
    let symbol = unsafe { first.get::<*mut c_void>(library.symbol()) }.ok()?.into_raw();
    std::mem::forget(first);
    Some(symbol)
}

/// The library's version in its own encoding, and as displayed.
fn version(library: Library, opened: &Opened) -> Result<(u32, Option<String>), String> {
    let failed = |code: c_int| format!("{} fails with code {code}", library.symbol());
    // Codes are read as integers: an unknown value in an enum would be undefined behaviour.
    // SAFETY: the signatures are those of NVIDIA's headers, the same in all supported versions.
    unsafe {
        match library {
            Library::Driver => {
                let get = function::<unsafe extern "C" fn(*mut c_int) -> c_int>(opened, library.symbol())?;
                let mut number = 0;
                match get(&mut number) {
                    0 => {}
                    34 => return Err("it is the toolkit's stub, made for linking".to_owned()),
                    code => return Err(failed(code)),
                }
                let number = u32::try_from(number).unwrap_or(0);
                Ok((number, Some(format!("CUDA {}.{}", number / 1000, number % 1000 / 10))))
            }
            Library::Nvrtc => {
                let get = function::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(
                    opened,
                    library.symbol(),
                )?;
                let (mut major, mut minor) = (0, 0);
                match get(&mut major, &mut minor) {
                    0 => {}
                    code => return Err(failed(code)),
                }
                Ok((u32::try_from(major * 1000 + minor).unwrap_or(0), Some(format!("{major}.{minor}"))))
            }
            Library::CublasLt => {
                let get = function::<unsafe extern "C" fn() -> usize>(opened, library.symbol())?;
                let number = u32::try_from(get()).unwrap_or(0);
                Ok((number, Some(format_version(number))))
            }
            Library::Nccl | Library::Cupti => {
                let get = function::<unsafe extern "C" fn(*mut c_int) -> c_int>(opened, library.symbol())?;
                let mut number = 0;
                match get(&mut number) {
                    0 => {}
                    // CUPTI initialises the driver for this, which may fail: that is not CUPTI's fault.
                    _ if library == Library::Cupti => return Ok((0, None)),
                    code => return Err(failed(code)),
                }
                let number = u32::try_from(number).unwrap_or(0);
                // CUPTI numbered its API version (24) before it adopted CUDA's numbers (130000).
                let text =
                    if number < 10_000 { format!("interface {number}") } else { format_version(number) };
                Ok((number, Some(text)))
            }
            Library::Nvml => {
                let start = function::<unsafe extern "C" fn() -> c_int>(opened, library.symbol())?;
                let get = function::<unsafe extern "C" fn(*mut c_char, u32) -> c_int>(
                    opened,
                    "nvmlSystemGetDriverVersion",
                )?;
                let mut text = [0 as c_char; 80];
                if start() != 0 || get(text.as_mut_ptr(), text.len() as u32 - 1) != 0 {
                    return Ok((0, None));
                }
                Ok((0, Some(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())))
            }
        }
    }
}

/// # Safety
/// `F` must be the type of the named function.
unsafe fn function<F: Copy>(opened: &Opened, name: &str) -> Result<F, String> {
    // SAFETY: guaranteed by the caller.
    unsafe { opened.get::<F>(name) }.map(|symbol| *symbol).map_err(|_| format!("it has no {name}"))
}

/// For example 120402 is 12.4.2.
fn format_version(number: u32) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

/// The dynamic linker's message, which libloading wraps.
fn source_of(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}

/// The file that contains an address, according to the dynamic linker.
fn path_of(address: *mut c_void) -> Option<PathBuf> {
    #[repr(C)]
    struct Info {
        file: *const c_char,
        file_at: *mut c_void,
        name: *const c_char,
        name_at: *mut c_void,
    }
    unsafe extern "C" {
        fn dladdr(address: *const c_void, info: *mut Info) -> c_int;
    }
    let null: *mut c_void = std::ptr::null_mut();
    let mut info = Info { file: null.cast(), file_at: null, name: null.cast(), name_at: null };
    // SAFETY: any address may be queried; the name belongs to the linker and lives as long as the library.
    unsafe {
        if dladdr(address, &mut info) == 0 || info.file.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.file).to_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes invalid files under these names, so that all of them are tried.
    fn refused(driver: Option<u32>, location: fn(PathBuf) -> Location, names: &[&str]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let locations: Vec<Location> = names
            .iter()
            .map(|name| {
                let file = root.path().join(name);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(&file, "no library").unwrap();
                location(file.parent().unwrap().to_owned())
            })
            .collect();
        let missing = search(Library::CublasLt, driver, &locations).err().unwrap();
        let prefix = format!("{}/", root.path().display());
        missing.refused.iter().map(|reason| reason.strip_prefix(&prefix).unwrap().to_owned()).collect()
    }

    #[test]
    fn versions_the_driver_supports_are_preferred() {
        let names =
            ["a/libcublasLt.so.13", "b/libcublasLt.so.12", "c/libcublasLt.so.11", "d/libcublas.so.12"];
        let tried = |driver, location| -> Vec<String> {
            let refused = refused(driver, location, &names);
            refused.iter().map(|reason| reason.split([':', ' ']).next().unwrap().to_owned()).collect()
        };
        assert_eq!(tried(None, Location::Folder), names[..2]);
        assert_eq!(tried(Some(13), Location::Folder), names[..2]);
        // Folders chosen by the user: versions that fit first, then the others.
        assert_eq!(tried(Some(12), Location::Chosen), [names[1], names[0]]);
        let others = refused(Some(12), Location::Folder, &names);
        assert_eq!(others[0], "a/libcublasLt.so.13 needs a newer driver, this one supports CUDA 12");
        assert!(others[1].starts_with("b/libcublasLt.so.12: "), "{others:?}");
        assert_eq!(others.len(), 2);
    }

    #[test]
    fn a_missing_library_names_the_search_path_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let locations =
            [Location::Chosen(folder.path().join("gone")), Location::Folder(folder.path().to_owned())];
        let missing = search(Library::CublasLt, Some(12), &locations).err().unwrap().to_string();
        let folder = folder.path().display();
        assert_eq!(
            missing,
            format!(
                "cuBLASLt was not found: no libcublasLt.so.12 in {folder}/gone (no such folder), {folder}. \
                 To install it: pip install nvidia-cublas-cu12; or set MYXTTS_CUDA_PATH to its folder"
            )
        );
    }
}
