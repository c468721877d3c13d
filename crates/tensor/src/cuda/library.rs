//! CUDA's shared libraries, found at run time: the build needs none of them, and a machine without them gets a
//! sentence that says what is missing and how to install it.
//!
//! [`require`] before the first call into cudarc: cudarc looks for libraries by itself and panics where there are none.
//! After `require` it works with the file that was chosen here.

mod alias;
mod install;
mod places;

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_NOW};
use serde::Serialize;

pub use places::OVERRIDE;
use places::Place;

/// The oldest CUDA that is served, by the driver and by the libraries.
const OLDEST_MAJOR: u32 = 12;
/// The newest CUDA there was when this was written: what is looked for where no driver says otherwise.
const NEWEST_MAJOR: u32 = 13;

/// A library of CUDA's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Library {
    /// The driver: everything on the GPU goes through it.
    Driver,
    /// The compiler of kernels.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Sums across GPUs.
    Nccl,
    /// Utilisation, temperature, free memory.
    Nvml,
    /// Times of kernels.
    Cupti,
}

impl Library {
    /// All of them, in the order they are needed. The driver comes first: its version decides which of the others fit.
    pub const ALL: [Library; 6] =
        [Library::Driver, Library::Nvrtc, Library::CublasLt, Library::Nccl, Library::Nvml, Library::Cupti];

    /// `cublasLt` of `libcublasLt.so.13`.
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

    /// A function that no other library has, and that is asked for the version where it can tell one.
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

    /// File names that fit a driver of this CUDA, best first; then those that are too new for it.
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

/// A library that is not on this machine, or not in a version that works.
#[derive(Debug, Clone, Serialize, thiserror::Error)]
pub struct MissingLibrary {
    /// Which one.
    pub library: Library,
    /// The file names that would have done.
    pub looked_for: Vec<String>,
    /// Where they were looked for, in order.
    pub looked_in: Vec<String>,
    /// Files that were found and could not be used, each with the reason.
    pub refused: Vec<String>,
    /// The command, or the sentence where there is no single command, that installs it.
    pub install: String,
}

impl MissingLibrary {
    /// What is wrong, without where it was looked for.
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
            write!(f, "; or name its folder in {OVERRIDE}")?;
        }
        Ok(())
    }
}

/// What became of the search for one library.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Status {
    /// It is loaded.
    Found {
        /// The file, with links followed.
        path: PathBuf,
        /// As the library itself says; NVML and CUPTI say nothing where the driver does not work.
        version: Option<String>,
    },
    /// It is not there.
    Missing(MissingLibrary),
}

impl Status {
    /// Whether it can be used.
    pub fn is_found(&self) -> bool {
        matches!(self, Status::Found { .. })
    }
}

/// What became of the search for every library.
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
    /// Looks for all of them; what was found stays loaded.
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

    /// Every library with what became of it, in the order they are needed.
    pub fn iter(&self) -> impl Iterator<Item = (Library, &Status)> {
        Library::ALL.into_iter().map(|library| (library, self.get(library)))
    }

    /// One of them.
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

/// Finds and loads a library, once per process. After this cudarc's functions of that library may be called.
pub fn require(library: Library) -> Result<(), MissingLibrary> {
    handle(library).map(|_| ())
}

/// The loaded library itself, for what cudarc has no bindings for.
pub fn handle(library: Library) -> Result<&'static libloading::Library, MissingLibrary> {
    match found(library) {
        Ok(found) => Ok(&found.handle),
        Err(missing) => Err(missing.clone()),
    }
}

/// The newest CUDA that the driver serves: (12, 4).
pub fn driver_version() -> Result<(u32, u32), MissingLibrary> {
    match found(Library::Driver) {
        Ok(found) => Ok((found.number / 1000, found.number % 1000 / 10)),
        Err(missing) => Err(missing.clone()),
    }
}

/// A library in memory, for as long as the process lives.
struct Found {
    handle: libloading::Library,
    path: PathBuf,
    version: Option<String>,
    /// The version as the library counts it.
    number: u32,
}

fn found(library: Library) -> &'static Result<Found, MissingLibrary> {
    static FOUND: [OnceLock<Result<Found, MissingLibrary>>; Library::ALL.len()] =
        [const { OnceLock::new() }; Library::ALL.len()];
    FOUND[library as usize].get_or_init(|| {
        let variable = |name: &str| std::env::var_os(name);
        let driver = if library == Library::Driver { None } else { driver_version().ok() };
        search(library, driver.map(|version| version.0), &places::places(Path::new("/"), &variable))
    })
}

fn search(library: Library, driver: Option<u32>, places: &[Place]) -> Result<Found, MissingLibrary> {
    let (fitting, too_new) = library.file_names(driver);
    let mut refused = Vec::new();
    // Folders the user chose may also hold what is too new, where they hold nothing that fits.
    let chosen = || places.iter().filter(|place| matches!(place, Place::Chosen(_)));
    let others = places.iter().filter(|place| !matches!(place, Place::Chosen(_)));
    let tries = chosen().map(|place| (place, &fitting)).chain(chosen().map(|place| (place, &too_new)));
    for (place, names) in tries.chain(others.map(|place| (place, &fitting))) {
        for name in names {
            let file = match place {
                Place::Chosen(folder) | Place::Folder(folder) => folder.join(name),
                Place::Linker => PathBuf::from(name),
            };
            let by_name = *place == Place::Linker;
            if !by_name && !file.is_file() {
                continue;
            }
            match load(library, &file) {
                Ok(found) => return Ok(found),
                // The linker not knowing a name is no finding.
                Err(reason) if by_name && reason.starts_with(&format!("{name}: cannot open")) => {}
                Err(reason) => refused.push(format!("{}: {reason}", file.display())),
            }
        }
        let Place::Folder(folder) = place else { continue };
        for file in too_new.iter().map(|name| folder.join(name)).filter(|file| file.is_file()) {
            let (file, driver) = (file.display(), driver.unwrap_or(NEWEST_MAJOR));
            refused.push(format!("{file} needs a newer driver, this one serves CUDA {driver}"));
        }
    }
    let looked_in = places.iter().map(|place| match place {
        Place::Linker => "the dynamic linker's path".to_owned(),
        Place::Chosen(folder) if !folder.is_dir() => format!("{} (no such folder)", folder.display()),
        Place::Chosen(folder) | Place::Folder(folder) => folder.display().to_string(),
    });
    Err(MissingLibrary {
        library,
        looked_in: looked_in.collect(),
        looked_for: fitting,
        refused,
        install: install::command(library, driver),
    })
}

/// Loads a file (or what the linker has under a name), asks it for its version, and makes it cudarc's.
fn load(library: Library, file: &Path) -> Result<Found, String> {
    // SAFETY: loading runs the library's initialisers. The file has the name of NVIDIA's library and lies where such
    // libraries lie, or where the user said.
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
            "it serves {version}, and CUDA {OLDEST_MAJOR} or newer is needed: update the driver"
        ));
    }
    if library != Library::Nvml {
        let published = alias::publish(&format!("lib{}.so", library.stem()), &path);
        // cudarc's own search, so that its panic is never met. It may succeed without the alias too.
        if symbol_as_cudarc_finds_it(library) != Some(symbol) {
            let reason = published.err().map(|error| format!(" ({error})")).unwrap_or_default();
            return Err(format!("another library answers to its name{reason}"));
        }
    }
    let path = path.canonicalize().unwrap_or(path);
    Ok(Found { handle: opened.into(), path, version, number })
}

fn symbol_as_cudarc_finds_it(library: Library) -> Option<*mut c_void> {
    let names = cudarc::get_lib_name_candidates(library.stem());
    // SAFETY: the same names in the same order as cudarc opens them itself a moment later.
    let first = names.iter().find_map(|name| unsafe { libloading::Library::new(name).ok() })?;
    let first = Opened::from(first);
    // SAFETY: only the address is used.
    let symbol = unsafe { first.get::<*mut c_void>(library.symbol()) }.ok()?.into_raw();
    std::mem::forget(first);
    Some(symbol)
}

/// The library's version as it counts it, and as people write it.
fn version(library: Library, opened: &Opened) -> Result<(u32, Option<String>), String> {
    let failed = |code: c_int| format!("{} fails with code {code}", library.symbol());
    // Codes are read as integers: an enum with a value it does not know would be undefined behaviour.
    // SAFETY: the signatures are those of NVIDIA's headers, the same in all versions served.
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
                Ok((number, Some(three_parts(number))))
            }
            Library::Nccl | Library::Cupti => {
                let get = function::<unsafe extern "C" fn(*mut c_int) -> c_int>(opened, library.symbol())?;
                let mut number = 0;
                match get(&mut number) {
                    0 => {}
                    // CUPTI starts the driver for this, which may not want to: that is no fault of CUPTI's.
                    _ if library == Library::Cupti => return Ok((0, None)),
                    code => return Err(failed(code)),
                }
                let number = u32::try_from(number).unwrap_or(0);
                // CUPTI counted its interface (24) before it took CUDA's numbers (130000).
                let text = if number < 10_000 { format!("interface {number}") } else { three_parts(number) };
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
/// `F` must be the type of the function of that name.
unsafe fn function<F: Copy>(opened: &Opened, name: &str) -> Result<F, String> {
    // SAFETY: the caller's promise.
    unsafe { opened.get::<F>(name) }.map(|symbol| *symbol).map_err(|_| format!("it has no {name}"))
}

/// 120402 is 12.4.2.
fn three_parts(number: u32) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

/// The linker's own words; libloading's are around them.
fn source_of(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}

/// The file that holds an address, as the dynamic linker knows it.
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
    // SAFETY: any address may be asked for; the name belongs to the linker and lives as long as the library.
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

    /// Folders with files of these names that are no libraries, so that all of them are tried.
    fn refused(driver: Option<u32>, place: fn(PathBuf) -> Place, names: &[&str]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let places: Vec<Place> = names
            .iter()
            .map(|name| {
                let file = root.path().join(name);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(&file, "no library").unwrap();
                place(file.parent().unwrap().to_owned())
            })
            .collect();
        let missing = search(Library::CublasLt, driver, &places).err().unwrap();
        let prefix = format!("{}/", root.path().display());
        missing.refused.iter().map(|reason| reason.strip_prefix(&prefix).unwrap().to_owned()).collect()
    }

    #[test]
    fn what_the_driver_serves_is_preferred() {
        let names =
            ["a/libcublasLt.so.13", "b/libcublasLt.so.12", "c/libcublasLt.so.11", "d/libcublas.so.12"];
        let tried = |driver, place| -> Vec<String> {
            let refused = refused(driver, place, &names);
            refused.iter().map(|reason| reason.split([':', ' ']).next().unwrap().to_owned()).collect()
        };
        assert_eq!(tried(None, Place::Folder), names[..2]);
        assert_eq!(tried(Some(13), Place::Folder), names[..2]);
        // The user's own folders: what fits first, then what does not.
        assert_eq!(tried(Some(12), Place::Chosen), [names[1], names[0]]);
        let others = refused(Some(12), Place::Folder, &names);
        assert_eq!(others[0], "a/libcublasLt.so.13 needs a newer driver, this one serves CUDA 12");
        assert!(others[1].starts_with("b/libcublasLt.so.12: "), "{others:?}");
        assert_eq!(others.len(), 2);
    }

    #[test]
    fn a_missing_library_says_where_it_was_looked_for_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let places = [Place::Chosen(folder.path().join("gone")), Place::Folder(folder.path().to_owned())];
        let missing = search(Library::CublasLt, Some(12), &places).err().unwrap().to_string();
        let folder = folder.path().display();
        assert_eq!(
            missing,
            format!(
                "cuBLASLt was not found: no libcublasLt.so.12 in {folder}/gone (no such folder), {folder}. \
                 To install it: pip install nvidia-cublas-cu12; or name its folder in MYXTTS_CUDA_PATH"
            )
        );
    }
}
