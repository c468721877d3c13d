//! Kernel timing with CUPTI's activity records.
//!
//! The fraction of time a GPU is busy is [`busy`]: the union of the kernels' intervals over the wall time. The span
//! between two CUDA events would count the gaps between kernels as work.

mod record;

use std::alloc::Layout;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;

use super::library;
use super::shared_library::{self, symbol};
pub use record::{Activity, KernelRecord, busy, by_name};
use record::{CONCURRENT_KERNEL, MEMCPY, MEMCPY_BETWEEN_DEVICES, MEMSET, parse};

type Status = i32;

const ENABLED: [u32; 4] = [CONCURRENT_KERNEL, MEMCPY, MEMSET, MEMCPY_BETWEEN_DEVICES];

const FLUSH_FORCED: u32 = 1;

/// About 5,000 records; CUPTI requests as many buffers as it needs.
const BUFFER: Layout = match Layout::from_size_align(1 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("a layout of one MiB"),
};

/// Why kernel timing failed.
#[derive(Debug, thiserror::Error)]
pub enum CuptiError {
    /// The library was not found or is not usable.
    #[error(
        "CUPTI: {0}\n  Timing single kernels needs it: pip install nvidia-cuda-cupti-cu12 (or the CUDA toolkit)"
    )]
    Library(String),
    /// A CUPTI call failed.
    #[error("CUPTI: {call} failed: {message} (status {status})")]
    Status {
        /// Name of the function.
        call: &'static str,
        /// The returned status.
        status: i32,
        /// CUPTI's message for it.
        message: String,
    },
    /// Recording is already active. Records are collected per process, by one consumer at a time.
    #[error("CUPTI: kernel timing is already active")]
    Running,
}

/// The CUPTI functions in use.
struct Cupti {
    register: unsafe extern "C" fn(Requested, Completed) -> Status,
    enable: unsafe extern "C" fn(u32) -> Status,
    disable: unsafe extern "C" fn(u32) -> Status,
    flush: unsafe extern "C" fn(u32) -> Status,
    next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Status,
    timestamp: unsafe extern "C" fn(*mut u64) -> Status,
    result_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    _library: Library,
}

type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

#[derive(Default)]
struct Collected {
    running: bool,
    registered: bool,
    records: Vec<KernelRecord>,
    dropped: usize,
    /// Names by their address in CUPTI's memory, which is valid while the kernel's module is loaded.
    names: HashMap<u64, Arc<str>>,
}

// Statics, because CUPTI's callbacks carry no user data and serve one process-wide consumer.
static CUPTI: OnceLock<Cupti> = OnceLock::new();
static COLLECTED: Mutex<Option<Collected>> = Mutex::new(None);

fn collected() -> MutexGuard<'static, Option<Collected>> {
    COLLECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cupti {
    fn load() -> Result<&'static Cupti, CuptiError> {
        if let Some(cupti) = CUPTI.get() {
            return Ok(cupti);
        }
        let names: &[&str] = &["libcupti.so.13", "libcupti.so.12", "libcupti.so"];
        // A library loaded by path is afterwards found by name.
        let known = library::require(library::Library::Cupti);
        let library = shared_library::load_first(names).map_err(|reason| {
            CuptiError::Library(known.err().map_or(reason, |missing| missing.to_string()))
        })?;
        Cupti::install(library)
    }

    fn install(library: Library) -> Result<&'static Cupti, CuptiError> {
        // SAFETY: the signatures are those of cupti_activity.h, unchanged from 12.0 to 13.x.
        let bound = unsafe { Cupti::bind(library) }.map_err(CuptiError::Library)?;
        Ok(CUPTI.get_or_init(|| bound))
    }

    /// # Safety
    /// The library must be CUPTI.
    unsafe fn bind(library: Library) -> Result<Cupti, String> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            Ok(Cupti {
                register: symbol(&library, "cuptiActivityRegisterCallbacks")?,
                enable: symbol(&library, "cuptiActivityEnable")?,
                disable: symbol(&library, "cuptiActivityDisable")?,
                flush: symbol(&library, "cuptiActivityFlushAll")?,
                next: symbol(&library, "cuptiActivityGetNextRecord")?,
                dropped: symbol(&library, "cuptiActivityGetNumDroppedRecords")?,
                timestamp: symbol(&library, "cuptiGetTimestamp")?,
                result_string: symbol(&library, "cuptiGetResultString")?,
                _library: library,
            })
        }
    }

    fn check_status(&self, call: &'static str, status: Status) -> Result<(), CuptiError> {
        if status == 0 {
            return Ok(());
        }
        let mut message = std::ptr::null();
        // SAFETY: writes a pointer to a static string.
        let known = unsafe { (self.result_string)(status, &mut message) } == 0 && !message.is_null();
        let message = if known {
            // SAFETY: not null, and NUL-terminated.
            unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
        } else {
            "unknown".into()
        };
        Err(CuptiError::Status { call, status, message })
    }
}

/// Called when CUPTI needs a buffer.
extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    // SAFETY: the layout's size is not zero; CUPTI passes three valid out pointers. It drops records if there is no
    // memory.
    unsafe {
        let memory = std::alloc::alloc(BUFFER);
        *buffer = memory;
        *size = if memory.is_null() { 0 } else { BUFFER.size() };
        *most_records = 0;
    }
}

/// Called when CUPTI has filled a buffer.
extern "C" fn completed(context: *mut c_void, stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    if let (Some(cupti), Some(collected)) = (CUPTI.get(), collected().as_mut()) {
        let mut record = std::ptr::null_mut();
        // SAFETY: CUPTI iterates over its own buffer.
        while valid > 0 && unsafe { (cupti.next)(buffer, valid, &mut record) } == 0 {
            let offset = (record as usize).wrapping_sub(buffer as usize);
            if offset >= valid {
                break;
            }
            // SAFETY: within the valid part of the buffer.
            let bytes = unsafe { std::slice::from_raw_parts(record, valid - offset) };
            let names = &mut collected.names;
            match parse(bytes, |address| name(names, address)) {
                Some(record) => collected.records.push(record),
                // CUPTI reports zero times once it runs out of device buffers.
                None => collected.dropped += 1,
            }
        }
        let mut dropped = 0;
        // SAFETY: writes one integer.
        if unsafe { (cupti.dropped)(context, stream, &mut dropped) } == 0 {
            collected.dropped += dropped;
        }
    }
    // SAFETY: allocated in `requested` with the same layout.
    unsafe { std::alloc::dealloc(buffer, BUFFER) };
}

fn name(names: &mut HashMap<u64, Arc<str>>, address: u64) -> Arc<str> {
    if address == 0 {
        return "unknown".into();
    }
    names
        .entry(address)
        .or_insert_with(|| {
            // SAFETY: the name in a CUPTI record is a valid C string.
            unsafe { CStr::from_ptr(address as *const c_char) }.to_string_lossy().into()
        })
        .clone()
}

/// An active recording of kernel times, from [`KernelTimes::start`] on.
///
/// Recording costs a few microseconds per kernel, so do not report the speed of a recorded run. Start it before the
/// steps of interest are captured as graphs: CUPTI may not see kernels of an older graph.
pub struct KernelTimes {
    cupti: &'static Cupti,
}

/// The records of a finished recording.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Records in order of start time.
    pub records: Vec<KernelRecord>,
    /// Records CUPTI lost, or delivered without times, for lack of memory. If not 0, sums are too low.
    pub dropped: usize,
}

impl KernelTimes {
    /// Uses a CUPTI library loaded elsewhere. Call it once, before `start`.
    pub fn install(library: Library) -> Result<(), CuptiError> {
        Cupti::install(library).map(|_| ())
    }

    /// Starts recording.
    pub fn start() -> Result<KernelTimes, CuptiError> {
        let cupti = Cupti::load()?;
        let mut guard = collected();
        let state = guard.get_or_insert_default();
        if state.running {
            return Err(CuptiError::Running);
        }
        if !state.registered {
            // SAFETY: the callbacks are functions of this program.
            let status = unsafe { (cupti.register)(requested, completed) };
            cupti.check_status("cuptiActivityRegisterCallbacks", status)?;
            state.registered = true;
        }
        state.running = true;
        state.records.clear();
        state.dropped = 0;
        // CUPTI may call back while it enables an activity, and the callback takes the lock.
        drop(guard);
        // From here on, dropping it stops the recording.
        let times = KernelTimes { cupti };
        for kind in ENABLED {
            // SAFETY: an activity kind of cupti_activity.h.
            times.cupti.check_status("cuptiActivityEnable", unsafe { (cupti.enable)(kind) })?;
        }
        Ok(times)
    }

    /// Current time on the clock of the records, in nanoseconds.
    pub fn now(&self) -> Result<u64, CuptiError> {
        let mut now = 0;
        // SAFETY: writes one integer.
        self.cupti.check_status("cuptiGetTimestamp", unsafe { (self.cupti.timestamp)(&mut now) })?;
        Ok(now)
    }

    /// Stops and returns what was recorded. Synchronise the device first: unfinished work is not included.
    pub fn stop(self) -> Result<Recording, CuptiError> {
        // SAFETY: takes a flag.
        let status = unsafe { (self.cupti.flush)(FLUSH_FORCED) };
        self.cupti.check_status("cuptiActivityFlushAll", status)?;
        let mut guard = collected();
        let state = guard.get_or_insert_default();
        let mut records = std::mem::take(&mut state.records);
        let dropped = std::mem::take(&mut state.dropped);
        drop(guard);
        records.sort_by_key(|record| (record.start_ns, record.end_ns));
        Ok(Recording { records, dropped })
    }
}

impl Drop for KernelTimes {
    fn drop(&mut self) {
        for kind in ENABLED {
            // SAFETY: an activity kind of cupti_activity.h. Disabling one that was not enabled returns an error,
            // which is ignored.
            unsafe { (self.cupti.disable)(kind) };
        }
        if let Some(state) = collected().as_mut() {
            state.running = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_starting_is_an_error() {
        match KernelTimes::start() {
            Ok(times) => {
                assert!(matches!(KernelTimes::start(), Err(CuptiError::Running)));
                let (from, to) = (times.now().unwrap(), times.now().unwrap());
                assert!(from <= to);
                times.stop().unwrap();
                drop(KernelTimes::start().unwrap());
            }
            Err(error) => println!("{error}"),
        }
    }
}
