//! Compiles kernels from CUDA C to machine code with NVRTC. Needs no toolkit, no header, and no intermediate form
//! that the driver would compile again at every start.

use std::ffi::{CStr, CString};
use std::fmt;
use std::str::FromStr;

use cudarc::nvrtc::{result, sys};
use serde::Serialize;

use super::library::{self, Library, MissingLibrary};

/// Target architecture of compiled code: `sm_90`, or `sm_90a` with architecture-specific instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// The 9 of `sm_90`.
    pub major: u32,
    /// The 0 of `sm_90`.
    pub minor: u32,
    /// `sm_90a`: runs on no other architecture, not even later ones.
    pub specific: bool,
}

impl Arch {
    /// The plain architecture of a compute capability.
    pub const fn new(major: u32, minor: u32) -> Arch {
        Arch { major, minor, specific: false }
    }

    /// The best architecture this machine's NVRTC supports for a device: code runs on later minor versions of its
    /// major version.
    pub fn for_device(major: u32, minor: u32) -> Result<Arch, CompileError> {
        let supported = supported()?;
        let fitting = supported.iter().filter(|arch| arch.major == major && arch.minor <= minor);
        match fitting.max() {
            Some(arch) => Ok(*arch),
            None => Err(unknown(Arch::new(major, minor), &supported)),
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}{}", self.major, self.minor, if self.specific { "a" } else { "" })
    }
}

impl Serialize for Arch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text is not the name of an architecture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an architecture: write sm_80, or sm_90a")]
pub struct BadArch(String);

impl FromStr for Arch {
    type Err = BadArch;

    fn from_str(text: &str) -> Result<Arch, BadArch> {
        let parse = || {
            let number = text.strip_prefix("sm_")?;
            let plain = number.strip_suffix('a').unwrap_or(number);
            let digits = plain.bytes().all(|byte| byte.is_ascii_digit()) && (2..=3).contains(&plain.len());
            let value: u32 = digits.then(|| plain.parse().ok()).flatten()?;
            Some(Arch { specific: plain != number, ..Arch::new(value / 10, value % 10) })
        };
        parse().ok_or_else(|| BadArch(text.to_owned()))
    }
}

/// Why compiling a kernel failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CompileError {
    /// NVRTC was not found.
    #[error(transparent)]
    Missing(#[from] MissingLibrary),
    /// The kernel source is wrong. The log names file and line.
    #[error("kernel {file} does not compile for {arch}:\n{log}")]
    Source {
        /// Name of the kernel file.
        file: String,
        /// Target architecture.
        arch: Arch,
        /// The compiler's log.
        log: String,
    },
    /// NVRTC does not support the architecture.
    #[error(
        "NVRTC {version} does not compile for {arch}, only for {}: install another version of it",
        .supported.iter().map(Arch::to_string).collect::<Vec<_>>().join(", ")
    )]
    Arch {
        /// Requested architecture.
        arch: Arch,
        /// Version of NVRTC.
        version: String,
        /// Architectures it supports.
        supported: Vec<Arch>,
    },
    /// Any other NVRTC failure.
    #[error("NVRTC failed on kernel {file} ({call}: {code})")]
    Nvrtc {
        /// Name of the kernel file.
        file: String,
        /// The function that failed.
        call: &'static str,
        /// The returned status.
        code: String,
    },
}

/// Compiles one kernel file to a CUBIN; `source` is its whole text, `name` its file name in the log.
pub fn compile(source: &str, name: &str, arch: Arch) -> Result<Vec<u8>, CompileError> {
    library::require(Library::Nvrtc)?;
    let failed = |call| {
        move |error: result::NvrtcError| CompileError::Nvrtc {
            file: name.to_owned(),
            call,
            code: format!("{:?}", error.0),
        }
    };
    let text = |text: &str| {
        CString::new(text).map_err(|_| CompileError::Source {
            file: name.to_owned(),
            arch,
            log: "the source contains a NUL byte".to_owned(),
        })
    };
    let (source, file) = (text(source)?, text(name)?);
    let program = result::create_program(&source, Some(&file)).map_err(failed("nvrtcCreateProgram"))?;
    let program = Program(program);
    // SAFETY: the program and its strings live until the end of this function.
    match unsafe { result::compile_program(program.0, &options(arch)) } {
        Ok(()) => {}
        Err(result::NvrtcError(sys::nvrtcResult::NVRTC_ERROR_COMPILATION)) => {
            return Err(CompileError::Source { file: name.to_owned(), arch, log: log(&program) });
        }
        Err(error) => {
            // An unknown architecture is one of several causes of INVALID_OPTION.
            let supported = supported()?;
            if !supported.contains(&Arch { specific: false, ..arch }) {
                return Err(unknown(arch, &supported));
            }
            return Err(failed("nvrtcCompileProgram")(error));
        }
    }
    let mut size = 0;
    // SAFETY: as above; the buffer has the size that was queried.
    unsafe {
        sys::nvrtcGetCUBINSize(program.0, &mut size).result().map_err(failed("nvrtcGetCUBINSize"))?;
        let mut cubin = vec![0u8; size];
        sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast()).result().map_err(failed("nvrtcGetCUBIN"))?;
        Ok(cubin)
    }
}

/// Compiler options of every kernel. A real architecture (`sm_`, not `compute_`) makes NVRTC produce a CUBIN.
pub(super) fn options(arch: Arch) -> [String; 3] {
    [format!("--gpu-architecture={arch}"), "-default-device".to_owned(), "--std=c++17".to_owned()]
}

/// Version of this machine's NVRTC.
pub(super) fn version() -> Result<String, MissingLibrary> {
    library::require(Library::Nvrtc)?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers. The library search has already called it successfully.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    Ok(format!("{major}.{minor}"))
}

fn supported() -> Result<Vec<Arch>, MissingLibrary> {
    library::require(Library::Nvrtc)?;
    let mut count = 0;
    // SAFETY: the second call writes as many integers as the first one reported.
    let numbers = unsafe {
        if sys::nvrtcGetNumSupportedArchs(&mut count).result().is_err() {
            return Ok(vec![]);
        }
        let mut numbers = vec![0; usize::try_from(count).unwrap_or(0)];
        match sys::nvrtcGetSupportedArchs(numbers.as_mut_ptr()).result() {
            Ok(()) => numbers,
            Err(_) => vec![],
        }
    };
    let numbers = numbers.into_iter().filter_map(|number| u32::try_from(number).ok());
    Ok(numbers.map(|number| Arch::new(number / 10, number % 10)).collect())
}

fn unknown(arch: Arch, supported: &[Arch]) -> CompileError {
    let version = version().unwrap_or_default();
    CompileError::Arch { arch, version, supported: supported.to_vec() }
}

struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created by create_program, destroyed once. A failure needs no handling.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

fn log(program: &Program) -> String {
    // SAFETY: the program is alive.
    let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
    let log: Vec<u8> = log.into_iter().map(|byte| byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&log).map(CStr::to_bytes).unwrap_or(&log);
    String::from_utf8_lossy(text).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_parse_and_print() {
        for text in ["sm_75", "sm_90a", "sm_120"] {
            assert_eq!(text.parse::<Arch>().unwrap().to_string(), text);
        }
        assert_eq!("sm_90a".parse(), Ok(Arch { specific: true, ..Arch::new(9, 0) }));
        for text in ["", "sm_", "sm_9", "90", "compute_90", "sm_90b", "sm_+9", "sm_99999999999"] {
            assert!(text.parse::<Arch>().is_err(), "{text}");
        }
    }
}
