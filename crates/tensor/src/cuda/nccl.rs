//! Sums over GPUs by NCCL: one communicator for each GPU of this process, or one for the GPU of each of several processes,
//! on one machine or on many.
//!
//! NCCL adds in an order of its own, which depends on the number and the wiring of the GPUs and on the length: the same
//! machine gives the same bits every time, and every GPU the same bits as the others, but not those of another machine.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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

/// The status of a call that goes on in the background.
const IN_PROGRESS: Status = 7;
/// How often a call that goes on in the background is looked at.
const LOOK_EVERY: Duration = Duration::from_micros(50);
/// How long a call may go on in the background before it counts as one that never ends: the first connects.
const LONGEST_CALL: Duration = Duration::from_secs(120);

/// Bytes of what processes find each other by.
pub const ID_BYTES: usize = 128;

/// What processes find each other by, made by one of them.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; ID_BYTES]);

/// The beginning of NCCL's own structure, as it was in version 2.14: later ones take what is missing from their defaults.
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

/// Why GPUs could not be joined.
#[derive(Debug, thiserror::Error)]
pub enum NcclError {
    /// The library is not there, or is not what it should be.
    #[error(
        "NCCL: {0}\n  Training on several GPUs needs it: pip install nvidia-nccl-cu12 (or the package libnccl2)"
    )]
    Library(String),
    /// A call of the library failed.
    #[error("NCCL: {call} failed: {words} (status {status})")]
    Status {
        /// The function.
        call: &'static str,
        /// Its status.
        status: i32,
        /// NCCL's words for it.
        words: String,
    },
    /// Processes did not find each other.
    #[error(
        "NCCL: the GPUs of {world} ranks did not connect within {seconds} s, as seen from rank {rank}: do the machines reach \
         each other on all ports, and by the network that NCCL takes (NCCL_SOCKET_IFNAME names one)? NCCL_DEBUG=INFO tells \
         what it tries"
    )]
    TimedOut {
        /// Who waited.
        rank: usize,
        /// Of how many.
        world: usize,
        /// How long.
        seconds: u64,
    },
    /// The communicator was given up after a failure elsewhere.
    #[error("NCCL: the communicator of replica {rank} was aborted")]
    Aborted {
        /// Whose.
        rank: usize,
    },
}

/// NCCL, loaded.
pub struct Nccl {
    version: unsafe extern "C" fn(*mut i32) -> Status,
    init_all: unsafe extern "C" fn(*mut Raw, i32, *const i32) -> Status,
    unique_id: unsafe extern "C" fn(*mut UniqueId) -> Status,
    /// Since 2.14.
    init_rank: Option<InitRank>,
    destroy: unsafe extern "C" fn(Raw) -> Status,
    abort: unsafe extern "C" fn(Raw) -> Status,
    async_error: unsafe extern "C" fn(Raw, *mut Status) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    group_start: unsafe extern "C" fn() -> Status,
    group_end: unsafe extern "C" fn() -> Status,
    all_reduce: unsafe extern "C" fn(u64, u64, usize, i32, i32, Raw, CUstream) -> Status,
    broadcast: unsafe extern "C" fn(u64, u64, usize, i32, i32, Raw, CUstream) -> Status,
    // After the functions that live in it.
    _library: Library,
}

impl Nccl {
    /// Loads it from where `myxtts devices` says it is, or by its usual names.
    pub fn find() -> Result<Arc<Nccl>, NcclError> {
        // What was loaded by its path is then found by its name.
        let known = library::require(library::Library::Nccl);
        let loaded = shared_library::first_of(&["libnccl.so.2", "libnccl.so"]);
        let library = loaded.map_err(|reason| {
            NcclError::Library(known.err().map_or(reason, |missing| missing.to_string()))
        })?;
        Nccl::from_library(library)
    }

    /// Binds the calls of a library found elsewhere.
    pub fn from_library(library: Library) -> Result<Arc<Nccl>, NcclError> {
        // SAFETY: the signatures are those of nccl.h, the same in all of version 2.
        let bound = unsafe { Nccl::bind(library) };
        bound.map(Arc::new).map_err(NcclError::Library)
    }

    /// # Safety
    /// The library is NCCL.
    unsafe fn bind(library: Library) -> Result<Nccl, String> {
        // SAFETY: the caller's.
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
                group_start: symbol(&library, "ncclGroupStart")?,
                group_end: symbol(&library, "ncclGroupEnd")?,
                all_reduce: symbol(&library, "ncclAllReduce")?,
                broadcast: symbol(&library, "ncclBroadcast")?,
                _library: library,
            })
        }
    }

    fn passed(&self, call: &'static str, status: Status) -> Result<(), NcclError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NCCL answers any number with a static string.
        let words = unsafe { (self.error_string)(status) };
        let words = if words.is_null() {
            "unknown".into()
        } else {
            // SAFETY: not null, and ends in a zero.
            unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
        };
        Err(NcclError::Status { call, status, words })
    }

    /// For example 22005 for 2.20.5.
    pub fn version(&self) -> Result<i32, NcclError> {
        let mut version = 0;
        // SAFETY: writes one number.
        self.passed("ncclGetVersion", unsafe { (self.version)(&mut version) })?;
        Ok(version)
    }

    /// One communicator for each of these devices, in this order. Changes the calling thread's current device.
    pub fn communicators(self: &Arc<Self>, devices: &[i32]) -> Result<Vec<Communicator>, NcclError> {
        let mut raw = vec![std::ptr::null_mut(); devices.len()];
        let count = devices.len() as i32;
        // SAFETY: room for as many as there are devices.
        let status = unsafe { (self.init_all)(raw.as_mut_ptr(), count, devices.as_ptr()) };
        self.passed("ncclCommInitAll", status)?;
        let communicators = raw.into_iter().enumerate().map(|(rank, raw)| Communicator {
            nccl: self.clone(),
            raw: AtomicPtr::new(raw),
            rank,
            world: devices.len(),
            calling: Mutex::default(),
        });
        Ok(communicators.collect())
    }

    /// What the processes of a group find each other by: one makes it, all join with it.
    pub fn new_id(&self) -> Result<Vec<u8>, NcclError> {
        let mut id = UniqueId([0; ID_BYTES]);
        // SAFETY: writes one id.
        self.passed("ncclGetUniqueId", unsafe { (self.unique_id)(&mut id) })?;
        Ok(id.0.to_vec())
    }

    /// Joins a group of processes as `rank` of `world`, with the GPU that is current on the calling thread. Returns when all
    /// have joined. Unless `blocking`, calls of the communicator go on in the background and can be given up at any time.
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
        let bytes: [u8; ID_BYTES] = id
            .try_into()
            .map_err(|_| NcclError::Library(format!("an id of {} bytes, {ID_BYTES} are due", id.len())))?;
        let (mut raw, mut config) = (std::ptr::null_mut(), Config::new(blocking));
        // SAFETY: writes one pointer; the configuration says how long it is.
        let status = unsafe { init(&mut raw, world as i32, UniqueId(bytes), rank as i32, &mut config) };
        if status != IN_PROGRESS {
            self.passed("ncclCommInitRankConfig", status)?;
        }
        let nccl = self.clone();
        let joined = Communicator { nccl, raw: AtomicPtr::new(raw), rank, world, calling: Mutex::default() };
        match joined.settle("ncclCommInitRankConfig", status, limit) {
            Err(NcclError::TimedOut { .. }) => {
                joined.abort();
                Err(NcclError::TimedOut { rank, world, seconds: limit.as_secs() })
            }
            settled => settled.map(|()| joined),
        }
    }

    /// Calls made inside are started together. Needed where one thread drives several GPUs: without it the first
    /// call would wait for a second that comes after it.
    pub fn together<T>(&self, calls: impl FnOnce() -> Result<T, NcclError>) -> Result<T, NcclError> {
        // SAFETY: takes nothing.
        self.passed("ncclGroupStart", unsafe { (self.group_start)() })?;
        let result = calls();
        // SAFETY: a group was started; it is ended even after an error, or the thread would stay inside it.
        let ended = self.passed("ncclGroupEnd", unsafe { (self.group_end)() });
        let value = result?;
        ended.map(|()| value)
    }
}

/// One GPU's part in a group of GPUs.
pub struct Communicator {
    nccl: Arc<Nccl>,
    /// Null once aborted.
    raw: AtomicPtr<c_void>,
    rank: usize,
    world: usize,
    /// NCCL takes one call at a time for a communicator; aborting is the exception.
    calling: Mutex<()>,
}

impl Communicator {
    /// Which one this is, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are.
    pub fn world(&self) -> usize {
        self.world
    }

    fn raw(&self) -> Result<Raw, NcclError> {
        let raw = self.raw.load(Ordering::Acquire);
        if raw.is_null() { Err(NcclError::Aborted { rank: self.rank }) } else { Ok(raw) }
    }

    /// Puts on the stream: `len` f32 at the address become their sum over the GPUs. May be captured. Every replica
    /// makes the same calls in the same order, from a thread of its own or inside [`Nccl::together`].
    ///
    /// # Safety
    /// The address holds `len` f32 on this communicator's device until the stream has passed the sum.
    pub unsafe fn all_reduce_sum(&self, address: u64, len: usize, stream: CUstream) -> Result<(), NcclError> {
        let _one = self.calling.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = self.raw()?;
        // SAFETY: the caller's promise; in place is where both addresses are the same.
        let status = unsafe { (self.nccl.all_reduce)(address, address, len, FLOAT32, SUM, raw, stream) };
        self.settle("ncclAllReduce", status, LONGEST_CALL)
    }

    /// As [`Communicator::all_reduce_sum`], of bf16: half the bytes, and sums that are rounded on the way.
    ///
    /// # Safety
    /// The address holds `len` bf16 on this communicator's device until the stream has passed the sum.
    pub unsafe fn all_reduce_sum_bf16(
        &self,
        address: u64,
        len: usize,
        stream: CUstream,
    ) -> Result<(), NcclError> {
        let _one = self.calling.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = self.raw()?;
        // SAFETY: the caller's promise; in place is where both addresses are the same.
        let status = unsafe { (self.nccl.all_reduce)(address, address, len, BFLOAT16, SUM, raw, stream) };
        self.settle("ncclAllReduce", status, LONGEST_CALL)
    }

    /// Waits until a call that goes on in the background has done what it does on the host.
    fn settle(&self, call: &'static str, status: Status, limit: Duration) -> Result<(), NcclError> {
        if status != IN_PROGRESS {
            return self.nccl.passed(call, status);
        }
        let began = Instant::now();
        loop {
            let mut state = 0;
            // SAFETY: a communicator that was not given up; writes one status.
            let status = unsafe { (self.nccl.async_error)(self.raw()?, &mut state) };
            self.nccl.passed("ncclCommGetAsyncError", status)?;
            if state != IN_PROGRESS {
                return self.nccl.passed(call, state);
            }
            if began.elapsed() > limit {
                let (rank, world) = (self.rank, self.world);
                return Err(NcclError::TimedOut { rank, world, seconds: limit.as_secs() });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Puts on the stream: `len` f32 at the address become those of `root`. Otherwise as `all_reduce_sum`.
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
        let raw = self.raw()?;
        // SAFETY: the caller's promise.
        let status =
            unsafe { (self.nccl.broadcast)(address, address, len, FLOAT32, root as i32, raw, stream) };
        self.settle("ncclBroadcast", status, LONGEST_CALL)
    }

    /// A failure since the last call, of the link or of another GPU.
    pub fn check(&self) -> Result<(), NcclError> {
        let raw = self.raw()?;
        let mut state = 0;
        // SAFETY: a live communicator; writes one status.
        let status = unsafe { (self.nccl.async_error)(raw, &mut state) };
        self.nccl.passed("ncclCommGetAsyncError", status)?;
        if state == IN_PROGRESS { Ok(()) } else { self.nccl.passed("the communicator", state) }
    }

    /// Gives up: kernels that wait for the other GPUs end, and later calls fail. From any thread, for when a replica
    /// has died and the streams of the others would wait for it for ever.
    pub fn abort(&self) {
        let raw = self.raw.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !raw.is_null() {
            // SAFETY: live until now, and taken by this call alone.
            unsafe { (self.nccl.abort)(raw) };
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let raw = *self.raw.get_mut();
        if !raw.is_null() {
            // SAFETY: live, and used no more.
            unsafe { (self.nccl.destroy)(raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_binds_or_says_how_to_get_it() {
        match Nccl::find() {
            Ok(nccl) => {
                println!("NCCL {}", nccl.version().unwrap());
                let error = nccl.passed("ncclAllReduce", 4).unwrap_err().to_string();
                assert!(error.contains("invalid argument"), "{error}");
            }
            Err(error) => assert!(error.to_string().contains("pip install nvidia-nccl"), "{error}"),
        }
    }
}
