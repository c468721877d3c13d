//! Bindings for the cuBLASLt functions in use. Not cudarc's: its loader knows the file names of one major version
//! only, and a status added by a newer library would not be a valid value of its enums.

use std::ffi::c_void;

use cudarc::cublaslt::sys;
use libloading::Library;

use super::GemmError;
use crate::cuda::shared_library::{self, symbol};

type Handle = *mut c_void;
type Status = i32;
type Set = unsafe extern "C" fn(Handle, u32, *const c_void, usize) -> Status;
type Destroy = unsafe extern "C" fn(Handle) -> Status;

/// The library's description of one algorithm, in its own memory layout.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Heuristic {
    pub algo: [u64; 8],
    pub workspace: usize,
    pub state: Status,
    pub waves: f32,
    reserved: [i32; 4],
}

/// cuBLASLt, loaded.
pub struct Lt {
    create: unsafe extern "C" fn(*mut Handle) -> Status,
    destroy: Destroy,
    version: unsafe extern "C" fn() -> usize,
    desc_create: unsafe extern "C" fn(*mut Handle, u32, u32) -> Status,
    desc_set: Set,
    desc_destroy: Destroy,
    layout_create: unsafe extern "C" fn(*mut Handle, u32, u64, u64, i64) -> Status,
    layout_set: Set,
    layout_destroy: Destroy,
    preference_create: unsafe extern "C" fn(*mut Handle) -> Status,
    preference_set: Set,
    preference_destroy: Destroy,
    #[allow(clippy::type_complexity)]
    heuristic: unsafe extern "C" fn(
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        i32,
        *mut Heuristic,
        *mut i32,
    ) -> Status,
    #[allow(clippy::type_complexity)]
    check: unsafe extern "C" fn(
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        *const [u64; 8],
        *mut Heuristic,
    ) -> Status,
    #[allow(clippy::type_complexity)]
    matmul: unsafe extern "C" fn(
        Handle,
        Handle,
        *const f32,
        u64,
        Handle,
        u64,
        Handle,
        *const f32,
        u64,
        Handle,
        u64,
        Handle,
        *const [u64; 8],
        u64,
        usize,
        Handle,
    ) -> Status,
    // Declared after the functions that point into it.
    _library: Library,
}

/// An owned descriptor, layout or preference of the library.
pub(super) struct Owned {
    pub handle: Handle,
    set: Set,
    destroy: Destroy,
    name: &'static str,
}

// SAFETY: plain memory of the library that any thread may use, one at a time.
unsafe impl Send for Owned {}

impl Owned {
    /// Sets one attribute; the size of `T` must be what the library documents.
    pub fn set<T: Copy>(&self, attribute: u32, value: T) -> Result<(), GemmError> {
        // SAFETY: the handle is alive and the value outlives the call.
        let status = unsafe {
            (self.set)(self.handle, attribute, std::ptr::from_ref(&value).cast(), std::mem::size_of::<T>())
        };
        check_status(self.name, status)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: created by the library, destroyed once.
        unsafe { (self.destroy)(self.handle) };
    }
}

/// Converts a status other than success to an error.
pub(super) fn check_status(call: &'static str, status: Status) -> Result<(), GemmError> {
    let name = match status {
        0 => return Ok(()),
        1 => "not initialized: is the driver older than the library?",
        3 => "out of memory",
        7 => "invalid value",
        8 => "architecture mismatch",
        11 => "mapping error",
        13 => "execution failed",
        14 => "internal error",
        15 => "not supported",
        16 => "license error",
        _ => "unknown",
    };
    Err(GemmError::Status { call, status, name })
}

impl Lt {
    /// Loads the library by its usual names from the system's search path.
    pub fn load() -> Result<Lt, GemmError> {
        let names: &[&str] = if cfg!(windows) {
            &["cublasLt64_13.dll", "cublasLt64_12.dll"]
        } else {
            &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]
        };
        let library = shared_library::load_first(names).map_err(GemmError::Library)?;
        Lt::from_library(library)
    }

    /// Uses a library loaded elsewhere.
    pub fn from_library(library: Library) -> Result<Lt, GemmError> {
        // SAFETY: the signatures are those of cublasLt.h, unchanged from 12.0 to 13.x.
        let bound = unsafe { Lt::bind(library) };
        bound.map_err(GemmError::Library)
    }

    /// # Safety
    /// The library must be cuBLASLt.
    unsafe fn bind(library: Library) -> Result<Lt, String> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            Ok(Lt {
                create: symbol(&library, "cublasLtCreate")?,
                destroy: symbol(&library, "cublasLtDestroy")?,
                version: symbol(&library, "cublasLtGetVersion")?,
                desc_create: symbol(&library, "cublasLtMatmulDescCreate")?,
                desc_set: symbol(&library, "cublasLtMatmulDescSetAttribute")?,
                desc_destroy: symbol(&library, "cublasLtMatmulDescDestroy")?,
                layout_create: symbol(&library, "cublasLtMatrixLayoutCreate")?,
                layout_set: symbol(&library, "cublasLtMatrixLayoutSetAttribute")?,
                layout_destroy: symbol(&library, "cublasLtMatrixLayoutDestroy")?,
                preference_create: symbol(&library, "cublasLtMatmulPreferenceCreate")?,
                preference_set: symbol(&library, "cublasLtMatmulPreferenceSetAttribute")?,
                preference_destroy: symbol(&library, "cublasLtMatmulPreferenceDestroy")?,
                heuristic: symbol(&library, "cublasLtMatmulAlgoGetHeuristic")?,
                check: symbol(&library, "cublasLtMatmulAlgoCheck")?,
                matmul: symbol(&library, "cublasLtMatmul")?,
                _library: library,
            })
        }
    }

    /// Library version, for example 120402.
    pub fn version(&self) -> usize {
        // SAFETY: takes no arguments.
        unsafe { (self.version)() }
    }

    /// Creates a handle on the current CUDA context.
    pub(super) fn handle(&self) -> Result<Handle, GemmError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        check_status("cublasLtCreate", unsafe { (self.create)(&mut handle) })?;
        Ok(handle)
    }

    /// # Safety
    /// The handle must come from [`Lt::handle`] and must not be used again.
    pub(super) unsafe fn destroy(&self, handle: Handle) {
        // SAFETY: guaranteed by the caller.
        unsafe { (self.destroy)(handle) };
    }

    pub(super) fn desc(&self, compute: sys::cublasComputeType_t) -> Result<Owned, GemmError> {
        let mut handle = std::ptr::null_mut();
        let scale = sys::cudaDataType_t::CUDA_R_32F as u32;
        // SAFETY: writes one pointer.
        check_status("cublasLtMatmulDescCreate", unsafe {
            (self.desc_create)(&mut handle, compute as u32, scale)
        })?;
        let name = "cublasLtMatmulDescSetAttribute";
        Ok(Owned { handle, set: self.desc_set, destroy: self.desc_destroy, name })
    }

    pub(super) fn layout(&self, element: u32, rows: u64, columns: u64, ld: i64) -> Result<Owned, GemmError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        check_status("cublasLtMatrixLayoutCreate", unsafe {
            (self.layout_create)(&mut handle, element, rows, columns, ld)
        })?;
        let name = "cublasLtMatrixLayoutSetAttribute";
        Ok(Owned { handle, set: self.layout_set, destroy: self.layout_destroy, name })
    }

    pub(super) fn preference(&self) -> Result<Owned, GemmError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        check_status("cublasLtMatmulPreferenceCreate", unsafe { (self.preference_create)(&mut handle) })?;
        let name = "cublasLtMatmulPreferenceSetAttribute";
        Ok(Owned { handle, set: self.preference_set, destroy: self.preference_destroy, name })
    }

    /// At most `most` algorithms, in the library's order of preference; empty if it has none.
    ///
    /// # Safety
    /// All handles must be alive; `layouts` are those of a, b, c and d.
    pub(super) unsafe fn heuristics(
        &self,
        handle: Handle,
        desc: &Owned,
        layouts: [&Owned; 4],
        preference: &Owned,
        most: usize,
    ) -> Result<Vec<Heuristic>, GemmError> {
        let mut found = vec![Heuristic::default(); most];
        let mut count = 0;
        let [a, b, c, d] = layouts.map(|l| l.handle);
        // SAFETY: there is room for `most` results, as passed.
        let status = unsafe {
            (self.heuristic)(
                handle,
                desc.handle,
                a,
                b,
                c,
                d,
                preference.handle,
                most as i32,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        // Having no algorithm is a valid answer here, not an error.
        if status == 15 {
            return Ok(Vec::new());
        }
        check_status("cublasLtMatmulAlgoGetHeuristic", status)?;
        found.truncate(count.max(0) as usize);
        found.retain(|h| h.state == 0);
        Ok(found)
    }

    /// Whether the algorithm supports the product, and the workspace it needs.
    ///
    /// # Safety
    /// All handles must be alive; `layouts` are those of a, b, c and d.
    pub(super) unsafe fn check(
        &self,
        handle: Handle,
        desc: &Owned,
        layouts: [&Owned; 4],
        algo: &[u64; 8],
    ) -> Option<usize> {
        let mut result = Heuristic::default();
        let [a, b, c, d] = layouts.map(|l| l.handle);
        // SAFETY: writes one result.
        let status = unsafe { (self.check)(handle, desc.handle, a, b, c, d, algo, &mut result) };
        (status == 0 && result.state == 0).then_some(result.workspace)
    }

    /// # Safety
    /// All handles must be alive, the addresses must hold what the layouts say, and `workspace` must have that many
    /// bytes.
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe fn matmul(
        &self,
        handle: Handle,
        desc: &Owned,
        scales: [f32; 2],
        addresses: [u64; 4],
        layouts: [&Owned; 4],
        algo: &[u64; 8],
        workspace: (u64, usize),
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<(), GemmError> {
        let [a, b, c, d] = addresses;
        let [la, lb, lc, ld] = layouts.map(|l| l.handle);
        // SAFETY: guaranteed by the caller; the scales are read before the call returns (pointer mode is host).
        let status = unsafe {
            (self.matmul)(
                handle,
                desc.handle,
                &scales[0],
                a,
                la,
                b,
                lb,
                &scales[1],
                c,
                lc,
                d,
                ld,
                algo,
                workspace.0,
                workspace.1,
                stream.cast(),
            )
        };
        check_status("cublasLtMatmul", status)
    }
}
