//! Memory-mapped files. When a mapped file is truncated or its disk fails, reading it raises SIGBUS, which would end
//! the program without a message; the handler of this module prevents that.
//!
//! | [`OnReadFault`] | used by | effect on a page that cannot be read |
//! |---|---|---|
//! | `Zeros` | readers that compare [`MappedFile::failed_pages`] before and after each read | it reads as zeros and is counted |
//! | `Exit` | all other readers | the file is named on stderr and the program ends with [`Exit::Io`] |

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// Handling of a page that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReadFault {
    /// The page reads as zeros; the reader must check [`MappedFile::failed_pages`] before it uses them.
    Zeros,
    /// The program ends with a message that names the file.
    Exit,
}

/// A file mapped read-only.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
    #[cfg(unix)]
    range: &'static fault::Range,
}

impl MappedFile {
    /// Maps an open file; `path` is its name in error messages.
    pub fn new(file: &File, path: &Path, on_fault: OnReadFault) -> io::Result<MappedFile> {
        // SAFETY: the map is only read. If the file is truncated, the handler of this module runs.
        let map = unsafe { Mmap::map(file) }?;
        #[cfg(unix)]
        return Ok(MappedFile { range: fault::register(&map, path, on_fault)?, map });
        #[cfg(not(unix))]
        {
            let _ = (path, on_fault);
            Ok(MappedFile { map })
        }
    }

    /// Lets the system free the pages; they are read from the file again when needed.
    pub fn release(&self) {
        // SAFETY: the mapping is of a file and read-only, so its pages are read again with the same bytes.
        #[cfg(unix)]
        let _ = unsafe { self.map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    }

    /// Number of pages that could not be read since the file was mapped; their bytes read as zeros.
    pub fn failed_pages(&self) -> usize {
        #[cfg(unix)]
        return self.range.failed_pages();
        #[cfg(not(unix))]
        0
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(unix)]
impl Drop for MappedFile {
    fn drop(&mut self) {
        self.range.unregister();
    }
}

#[cfg(unix)]
mod fault {
    //! The SIGBUS handler. It only does what is async-signal-safe: it reads atomics, maps a page, writes to stderr and
    //! exits.

    use std::io;
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    use super::OnReadFault;
    use crate::exit::Exit;

    /// A registered mapping. Never freed: the handler may read any of them at any time.
    #[derive(Debug)]
    pub struct Range {
        start: usize,
        /// 0 once it is unmapped.
        length: AtomicUsize,
        on_fault: OnReadFault,
        failed_pages: AtomicUsize,
        name: Vec<u8>,
        next: AtomicPtr<Range>,
    }

    impl Range {
        pub fn failed_pages(&self) -> usize {
            self.failed_pages.load(Ordering::Acquire)
        }

        pub fn unregister(&self) {
            self.length.store(0, Ordering::Release);
        }
    }

    static FIRST: AtomicPtr<Range> = AtomicPtr::new(std::ptr::null_mut());
    /// The previous SIGBUS handler: that of the Rust runtime, which detects stack overflows.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
    static PAGE: AtomicUsize = AtomicUsize::new(4096);

    /// Registers the address range of a mapping.
    pub fn register(map: &[u8], path: &Path, on_fault: OnReadFault) -> io::Result<&'static Range> {
        install()?;
        let range: &'static Range = Box::leak(Box::new(Range {
            start: map.as_ptr() as usize,
            length: AtomicUsize::new(map.len()),
            on_fault,
            failed_pages: AtomicUsize::new(0),
            name: path.as_os_str().as_bytes().to_vec(),
            next: AtomicPtr::new(std::ptr::null_mut()),
        }));
        let mut first = FIRST.load(Ordering::Acquire);
        loop {
            range.next.store(first, Ordering::Release);
            let own = std::ptr::from_ref(range).cast_mut();
            match FIRST.compare_exchange(first, own, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(range),
                Err(other) => first = other,
            }
        }
    }

    fn install() -> io::Result<()> {
        static DONE: std::sync::Mutex<bool> = std::sync::Mutex::new(false);
        let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if *done {
            return Ok(());
        }
        // SAFETY: the structures are zeroed and filled as sigaction requires; the handler is async-signal-safe.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE);
            PAGE.store(usize::try_from(page).unwrap_or(4096).max(1), Ordering::Release);
            let mut before = MaybeUninit::<libc::sigaction>::zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            // Set before the handler is installed, which reads it.
            let _ = BEFORE.set(before.assume_init());
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            if libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        *done = true;
        Ok(())
    }

    /// The registered range that contains an address.
    fn find(address: usize) -> Option<&'static Range> {
        let mut at = FIRST.load(Ordering::Acquire);
        // SAFETY: ranges are leaked, so every pointer in the list stays valid.
        while let Some(range) = unsafe { at.as_ref() } {
            if address >= range.start && address - range.start < range.length.load(Ordering::Acquire) {
                return Some(range);
            }
            at = range.next.load(Ordering::Acquire);
        }
        None
    }

    extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system passes a valid structure; only async-signal-safe functions are called.
        unsafe {
            let address = (*info).si_addr() as usize;
            let Some(range) = find(address) else {
                // Not one of our mappings: restore the previous handler. The instruction runs again and reaches it.
                if let Some(before) = BEFORE.get() {
                    libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut());
                }
                return;
            };
            if range.on_fault == OnReadFault::Zeros {
                let page = PAGE.load(Ordering::Acquire);
                let start = (address / page * page) as *mut libc::c_void;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                range.failed_pages.fetch_add(1, Ordering::AcqRel);
                if libc::mmap(start, page, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED {
                    return;
                }
            }
            write_stderr(b"error: cannot read ");
            write_stderr(&range.name);
            write_stderr(b": it was truncated or its disk failed while it was being read\n");
            libc::_exit(i32::from(Exit::Io.code()));
        }
    }

    fn write_stderr(bytes: &[u8]) {
        // SAFETY: pointer and length are those of a slice; a failed write is ignored, since the program ends anyway.
        unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
    }
}
