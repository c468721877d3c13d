//! Collectives over GPUs with NCCL: one communicator for each GPU of this process, or one for the GPU of each of
//! several processes, on one machine or on many.
//!
//! NCCL chooses its own order of addition, which depends on the number and topology of the GPUs and on the length.
//! The same machine gives the same bits every time, and every GPU the same bits as the others, but another machine
//! may differ.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUstream;
use libloading::Library;

use super::library;
use super::shared_library::{self, symbol};

type Raw = *mut c_void;
type Status = i32;

const FLOAT32: i32 = 7;
const BFLOAT16: i32 = 9;
const SUM: i32 = 0;

/// Status of a call that NCCL refuses, such as two ranks on one GPU.
pub const INVALID_USAGE: i32 = 5;
/// Status of a call that failed because another process ended or the network to it did.
pub const REMOTE_ERROR: i32 = 6;
/// Status of a call that continues in the background.
const IN_PROGRESS: Status = 7;
/// Polling interval for calls that continue in the background.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// Time after which a call that continues in the background is considered hung; the first call also connects.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Size of the group id in bytes.
pub const ID_BYTES: usize = 128;

/// The group id, created by one process and shared by all.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; ID_BYTES]);

/// The beginning of NCCL's own structure, as of version 2.14: later versions use defaults for the missing fields.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
}

impl Config {
    fn new(blocking: bool) -> Config {
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: 21_400,
            blocking: i32::from(blocking),
        }
    }
}

type InitRank = unsafe extern "C" fn(*mut Raw, i32, UniqueId, i32, *mut Config) -> Status;

/// Why GPUs could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum NcclError {
    /// The library was not found or is not usable.
    #[error(
        "NCCL: {0}\n  Training on several GPUs needs it: pip install nvidia-nccl-cu12 (or the package libnccl2)"
    )]
    Library(String),
    /// An NCCL call failed.
    #[error("NCCL: {call} failed: {message} (status {status})")]
    Status {
        /// Name of the function.
        call: &'static str,
        /// The returned status.
        status: i32,
        /// NCCL's message for it.
        message: String,
    },
    /// The processes did not connect in time.
    #[error(
        "NCCL: the GPUs of {world} ranks did not connect within {seconds} s, as seen from rank {rank}: do the machines reach \
         each other on all ports, and by the network that NCCL takes (NCCL_SOCKET_IFNAME names one)? NCCL_DEBUG=INFO tells \
         what it tries"
    )]
    TimedOut {
        /// Rank that waited.
        rank: usize,
        /// Number of ranks.
        world: usize,
        /// Waiting time in seconds.
        seconds: u64,
    },
    /// The communicator was aborted after a failure elsewhere.
    #[error("NCCL: the communicator of replica {rank} was aborted")]
    Aborted {
        /// Rank of the communicator.
        rank: usize,
    },
}

/// NCCL, loaded.
pub struct Nccl {
    version: unsafe extern "C" fn(*mut i32) -> Status,
    init_all: unsafe extern "C" fn(*mut Raw, i32, *const i32) -> Status,
    unique_id: unsafe extern "C" fn(*mut UniqueId) -> Status,
    /// Available since 2.14.
    init_rank: Option<InitRank>,
    destroy: unsafe extern "C" fn(Raw) -> Status,
    abort: unsafe extern "C" fn(Raw) -> Status,
    async_error: unsafe extern "C" fn(Raw, *mut Status) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    /// Available since 2.13.
    last_error: Option<unsafe extern "C" fn(Raw) -> *const c_char>,
    group_start: unsafe extern "C" fn() -> Status,
    group_end: unsafe extern "C" fn() -> Status,
    all_reduce: unsafe extern "C" fn(u64, u64, usize, i32, i32, Raw, CUstream) -> Status,
    broadcast: unsafe extern "C" fn(u64, u64, usize, i32, i32, Raw, CUstream) -> Status,
    // Declared after the functions that point into it.
    _library: Library,
}

/// # Safety
/// The pointer must be null or point to a NUL-terminated string.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: guaranteed by the caller.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

impl Nccl {
    /// Loads it from where `myxtts devices` reports it, or by its usual names.
    pub fn load() -> Result<Arc<Nccl>, NcclError> {
        // A library loaded by path is afterwards found by name.
        let known = library::require(library::Library::Nccl);
        let loaded = shared_library::load_first(&["libnccl.so.2", "libnccl.so"]);
        let library = loaded.map_err(|reason| {
            NcclError::Library(known.err().map_or(reason, |missing| missing.to_string()))
        })?;
        Nccl::from_library(library)
    }

    /// Uses a library loaded elsewhere.
    pub fn from_library(library: Library) -> Result<Arc<Nccl>, NcclError> {
        // SAFETY: the signatures are those of nccl.h, the same in all of version 2.
        let bound = unsafe { Nccl::bind(library) };
        bound.map(Arc::new).map_err(NcclError::Library)
    }

    /// # Safety
    /// The library must be NCCL.
    unsafe fn bind(library: Library) -> Result<Nccl, String> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            Ok(Nccl {
                version: symbol(&library, "ncclGetVersion")?,
                init_all: symbol(&library, "ncclCommInitAll")?,
                unique_id: symbol(&library, "ncclGetUniqueId")?,
                init_rank: symbol(&library, "ncclCommInitRankConfig").ok(),
                destroy: symbol(&library, "ncclCommDestroy")?,
                abort: symbol(&library, "ncclCommAbort")?,
                async_error: symbol(&library, "ncclCommGetAsyncError")?,
                error_string: symbol(&library, "ncclGetErrorString")?,
                last_error: symbol(&library, "ncclGetLastError").ok(),
                group_start: symbol(&library, "ncclGroupStart")?,
                group_end: symbol(&library, "ncclGroupEnd")?,
                all_reduce: symbol(&library, "ncclAllReduce")?,
                broadcast: symbol(&library, "ncclBroadcast")?,
                _library: library,
            })
        }
    }

    fn check_status(&self, call: &'static str, status: Status) -> Result<(), NcclError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NCCL returns a static string for any status.
        let mut message = unsafe { text((self.error_string)(status)) }.unwrap_or_else(|| "unknown".into());
        // For example which ranks use the same GPU.
        // SAFETY: NCCL returns its own buffer, and needs no communicator for it.
        let detail = self.last_error.and_then(|last| unsafe { text(last(std::ptr::null_mut())) });
        if let Some(detail) = detail.filter(|detail| !detail.trim().is_empty()) {
            message = format!("{message}: {}", detail.trim());
        }
        Err(NcclError::Status { call, status, message })
    }

    /// Library version, for example 22005 for 2.20.5.
    pub fn version(&self) -> Result<i32, NcclError> {
        let mut version = 0;
        // SAFETY: writes one integer.
        self.check_status("ncclGetVersion", unsafe { (self.version)(&mut version) })?;
        Ok(version)
    }

    /// Creates one communicator per device, in this order. Changes the calling thread's current device.
    pub fn communicators(self: &Arc<Self>, devices: &[i32]) -> Result<Vec<Communicator>, NcclError> {
        let mut raw = vec![std::ptr::null_mut(); devices.len()];
        let count = devices.len() as i32;
        // SAFETY: there is room for one communicator per device.
        let status = unsafe { (self.init_all)(raw.as_mut_ptr(), count, devices.as_ptr()) };
        self.check_status("ncclCommInitAll", status)?;
        let place = |rank| (rank, devices.len());
        let communicators = raw.into_iter().enumerate();
        Ok(communicators.map(|(rank, raw)| Communicator::new(self, raw, place(rank), true)).collect())
    }

    /// Creates a group id: one process creates it, all join with it.
    pub fn new_id(&self) -> Result<Vec<u8>, NcclError> {
        let mut id = UniqueId([0; ID_BYTES]);
        // SAFETY: writes one id.
        self.check_status("ncclGetUniqueId", unsafe { (self.unique_id)(&mut id) })?;
        Ok(id.0.to_vec())
    }

    /// Joins a group of processes as `rank` of `world`, with the GPU that is current on the calling thread. Returns
    /// when all have joined. Unless `blocking`, calls on the communicator continue in the background and can be
    /// aborted at any time.
    pub fn join(
        self: &Arc<Self>,
        id: &[u8],
        (rank, world): (usize, usize),
        limit: Duration,
        blocking: bool,
    ) -> Result<Communicator, NcclError> {
        let init = self.init_rank.ok_or_else(|| {
            NcclError::Library("ranks in several processes need version 2.14 or later".to_owned())
        })?;
        let bytes: [u8; ID_BYTES] = id.try_into().map_err(|_| {
            NcclError::Library(format!("the group id has {} bytes, {ID_BYTES} are required", id.len()))
        })?;
        let (mut raw, mut config) = (std::ptr::null_mut(), Config::new(blocking));
        // SAFETY: writes one pointer; the configuration contains its own size.
        let status = unsafe { init(&mut raw, world as i32, UniqueId(bytes), rank as i32, &mut config) };
        if status != IN_PROGRESS {
            self.check_status("ncclCommInitRankConfig", status)?;
        }
        let joined = Communicator::new(self, raw, (rank, world), blocking);
        let settled = joined.wait_until_settled("ncclCommInitRankConfig", status, limit);
        if settled.is_err() {
            // One that is not complete may only be aborted: destroying it would wait for the other ranks.
            joined.abort();
        }
        settled.map(|()| joined)
    }

    /// Groups the calls made inside, so that they start together. Needed where one thread drives several GPUs:
    /// otherwise the first call would wait for a second one that comes after it.
    pub fn grouped<T>(&self, calls: impl FnOnce() -> Result<T, NcclError>) -> Result<T, NcclError> {
        // SAFETY: takes no arguments.
        self.check_status("ncclGroupStart", unsafe { (self.group_start)() })?;
        let result = calls();
        // SAFETY: a group was started; it is ended even after an error, otherwise the thread would stay inside it.
        let ended = self.check_status("ncclGroupEnd", unsafe { (self.group_end)() });
        let value = result?;
        ended.map(|()| value)
    }
}

/// One GPU's member of a group of GPUs.
pub struct Communicator {
    nccl: Arc<Nccl>,
    /// Null after an abort.
    raw: AtomicPtr<c_void>,
    rank: usize,
    world: usize,
    /// NCCL accepts one call at a time per communicator, except for an abort.
    calling: Mutex<()>,
    /// Whether calls wait for other processes instead of continuing in the background.
    blocking: bool,
    /// Held for reading during calls that return at once, and for writing while an abort takes the communicator, so
    /// that no call uses memory that the abort frees.
    in_use: RwLock<()>,
}

impl Communicator {
    fn new(nccl: &Arc<Nccl>, raw: Raw, (rank, world): (usize, usize), blocking: bool) -> Communicator {
        let (nccl, raw) = (nccl.clone(), AtomicPtr::new(raw));
        let (calling, in_use) = (Mutex::default(), RwLock::default());
        Communicator { nccl, raw, rank, world, calling, blocking, in_use }
    }

    /// Rank of this GPU, counted from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of GPUs in the group.
    pub fn world(&self) -> usize {
        self.world
    }

    /// Delays an abort until the guard is dropped; for calls that return immediately.
    fn block_abort(&self) -> RwLockReadGuard<'_, ()> {
        self.in_use.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`block_abort`](Self::block_abort), for a sum or a broadcast. `None` for a blocking communicator: the
    /// call may wait for a lost rank, and only an abort ends that wait.
    fn block_abort_unless_blocking(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (!self.blocking).then(|| self.block_abort())
    }

    fn raw(&self) -> Result<Raw, NcclError> {
        let raw = self.raw.load(Ordering::Acquire);
        if raw.is_null() { Err(NcclError::Aborted { rank: self.rank }) } else { Ok(raw) }
    }

    /// Queues a sum over the GPUs of the `len` f32 at the address, in place. May be captured. Every replica makes
    /// the same calls in the same order, from its own thread or inside [`Nccl::grouped`].
    ///
    /// # Safety
    /// The address must hold `len` f32 on this communicator's device until the stream has executed the sum.
    pub unsafe fn all_reduce_sum(&self, address: u64, len: usize, stream: CUstream) -> Result<(), NcclError> {
        let _one = self.calling.lock().unwrap_or_else(PoisonError::into_inner);
        let abort_guard = self.block_abort_unless_blocking();
        let raw = self.raw()?;
        // SAFETY: guaranteed by the caller; equal addresses mean in place.
        let status = unsafe { (self.nccl.all_reduce)(address, address, len, FLOAT32, SUM, raw, stream) };
        drop(abort_guard);
        self.wait_until_settled("ncclAllReduce", status, CALL_TIMEOUT)
    }

    /// As [`Communicator::all_reduce_sum`], in bf16: half the bytes, with rounded sums.
    ///
    /// # Safety
    /// The address must hold `len` bf16 on this communicator's device until the stream has executed the sum.
    pub unsafe fn all_reduce_sum_bf16(
        &self,
        address: u64,
        len: usize,
        stream: CUstream,
    ) -> Result<(), NcclError> {
        let _one = self.calling.lock().unwrap_or_else(PoisonError::into_inner);
        let abort_guard = self.block_abort_unless_blocking();
        let raw = self.raw()?;
        // SAFETY: guaranteed by the caller; equal addresses mean in place.
        let status = unsafe { (self.nccl.all_reduce)(address, address, len, BFLOAT16, SUM, raw, stream) };
        drop(abort_guard);
        self.wait_until_settled("ncclAllReduce", status, CALL_TIMEOUT)
    }

    /// Waits until the host part of a background call is finished.
    fn wait_until_settled(
        &self,
        call: &'static str,
        status: Status,
        limit: Duration,
    ) -> Result<(), NcclError> {
        if status != IN_PROGRESS {
            return self.nccl.check_status(call, status);
        }
        let began = Instant::now();
        loop {
            let state = self.state()?;
            if state != IN_PROGRESS {
                return self.nccl.check_status(call, state);
            }
            if began.elapsed() > limit {
                let (rank, world) = (self.rank, self.world);
                return Err(NcclError::TimedOut { rank, world, seconds: limit.as_secs() });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Queues a broadcast of `root`'s `len` f32 to all GPUs, in place. Otherwise as `all_reduce_sum`.
    ///
    /// # Safety
    /// As for [`Communicator::all_reduce_sum`].
    pub unsafe fn broadcast(
        &self,
        address: u64,
        len: usize,
        root: usize,
        stream: CUstream,
    ) -> Result<(), NcclError> {
        assert!(root < self.world, "replica {root} of {}", self.world);
        let _one = self.calling.lock().unwrap_or_else(PoisonError::into_inner);
        let abort_guard = self.block_abort_unless_blocking();
        let raw = self.raw()?;
        // SAFETY: guaranteed by the caller.
        let status =
            unsafe { (self.nccl.broadcast)(address, address, len, FLOAT32, root as i32, raw, stream) };
        drop(abort_guard);
        self.wait_until_settled("ncclBroadcast", status, CALL_TIMEOUT)
    }

    /// The status of the last call, or of the link.
    fn state(&self) -> Result<Status, NcclError> {
        let _abort_guard = self.block_abort();
        let raw = self.raw()?;
        let mut state = 0;
        // SAFETY: a live communicator; writes one status.
        let status = unsafe { (self.nccl.async_error)(raw, &mut state) };
        self.nccl.check_status("ncclCommGetAsyncError", status)?;
        Ok(state)
    }

    /// Returns a failure of the link or of another GPU since the last call.
    pub fn check(&self) -> Result<(), NcclError> {
        let state = self.state()?;
        if state == IN_PROGRESS { Ok(()) } else { self.nccl.check_status("the communicator", state) }
    }

    /// Aborts the communicator: kernels that wait for other GPUs end, and later calls fail. May be called from any
    /// thread, for when a replica has died and the streams of the others would wait for it forever.
    pub fn abort(&self) {
        let raw = {
            let _alone = self.in_use.write().unwrap_or_else(PoisonError::into_inner);
            self.raw.swap(std::ptr::null_mut(), Ordering::AcqRel)
        };
        if !raw.is_null() {
            // SAFETY: alive until now, and taken by this call alone.
            unsafe { (self.nccl.abort)(raw) };
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let raw = *self.raw.get_mut();
        if !raw.is_null() {
            // SAFETY: alive, and not used again.
            unsafe { (self.nccl.destroy)(raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_loads_or_the_error_says_how_to_install_it() {
        match Nccl::load() {
            Ok(nccl) => {
                println!("NCCL {}", nccl.version().unwrap());
                let error = nccl.check_status("ncclAllReduce", 4).unwrap_err().to_string();
                assert!(error.contains("invalid argument"), "{error}");
            }
            Err(error) => assert!(error.to_string().contains("pip install nvidia-nccl"), "{error}"),
        }
    }
}
