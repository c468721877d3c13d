//! Files mapped into memory, and what happens when one is cut short or its disk fails while it is read: the system then sends
//! SIGBUS, which would end the program without a word.
//!
//! | [`Lost`] | who asks for it | what happens to a page that cannot be read |
//! |---|---|---|
//! | `Zeros` | readers that compare [`Mapped::losses`] before and after each read | it reads as zeros, and is counted |
//! | `Exit` | everyone else | the file is named on stderr, and the program ends with [`Exit::Io`] |

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// What a page that cannot be read is to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It reads as zeros; the reader asks [`Mapped::losses`] before it believes them.
    Zeros,
    /// It ends the program, with the file named.
    Exit,
}

/// A file in memory, read only.
#[derive(Debug)]
pub struct Mapped {
    map: Mmap,
    #[cfg(unix)]
    range: &'static fault::Range,
}

impl Mapped {
    /// Maps a file that is open; `path` is what it is called when it is lost.
    pub fn new(file: &File, path: &Path, lost: Lost) -> io::Result<Mapped> {
        // SAFETY: the map is only read. What is cut off under it is met by the handler of this module.
        let map = unsafe { Mmap::map(file) }?;
        #[cfg(unix)]
        return Ok(Mapped { range: fault::watch(&map, path, lost)?, map });
        #[cfg(not(unix))]
        {
            let _ = (path, lost);
            Ok(Mapped { map })
        }
    }

    /// Lets the system take its pages back until they are read again.
    pub fn release(&self) {
        // SAFETY: the mapping is of a file and read-only, so its pages come back with the same bytes.
        #[cfg(unix)]
        let _ = unsafe { self.map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    }

    /// Pages that could not be read since it was mapped: some of its bytes are zeros that are not the file's.
    pub fn losses(&self) -> usize {
        #[cfg(unix)]
        return self.range.losses();
        #[cfg(not(unix))]
        0
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(unix)]
impl Drop for Mapped {
    fn drop(&mut self) {
        self.range.forget();
    }
}

#[cfg(unix)]
mod fault {
    //! The handler of SIGBUS. It may only do what is allowed between any two instructions: it reads atomics, maps a page,
    //! writes to stderr and leaves.

    use std::io;
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    use super::Lost;
    use crate::exit::Exit;

    /// A mapping that is watched. Never freed: the handler may look at any of them at any time.
    #[derive(Debug)]
    pub struct Range {
        start: usize,
        /// 0 once it is not mapped any more.
        length: AtomicUsize,
        lost: Lost,
        losses: AtomicUsize,
        name: Vec<u8>,
        next: AtomicPtr<Range>,
    }

    impl Range {
        pub fn losses(&self) -> usize {
            self.losses.load(Ordering::Acquire)
        }

        pub fn forget(&self) {
            self.length.store(0, Ordering::Release);
        }
    }

    static FIRST: AtomicPtr<Range> = AtomicPtr::new(std::ptr::null_mut());
    /// What handled SIGBUS before: Rust's own handler, which knows stacks that overflow.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
    static PAGE: AtomicUsize = AtomicUsize::new(4096);

    /// Watches the addresses of a mapping.
    pub fn watch(map: &[u8], path: &Path, lost: Lost) -> io::Result<&'static Range> {
        install()?;
        let range: &'static Range = Box::leak(Box::new(Range {
            start: map.as_ptr() as usize,
            length: AtomicUsize::new(map.len()),
            lost,
            losses: AtomicUsize::new(0),
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
        // SAFETY: the structures are zeroed and filled as sigaction wants them; the handler does only what it may.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE);
            PAGE.store(usize::try_from(page).unwrap_or(4096).max(1), Ordering::Release);
            let mut before = MaybeUninit::<libc::sigaction>::zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            // Before the handler is there: it must find it.
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

    /// The range an address is in.
    fn find(address: usize) -> Option<&'static Range> {
        let mut at = FIRST.load(Ordering::Acquire);
        // SAFETY: ranges are leaked, so that every pointer in the list stays valid.
        while let Some(range) = unsafe { at.as_ref() } {
            if address >= range.start && address - range.start < range.length.load(Ordering::Acquire) {
                return Some(range);
            }
            at = range.next.load(Ordering::Acquire);
        }
        None
    }

    extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system hands over a valid structure; the calls are those a handler may make.
        unsafe {
            let address = (*info).si_addr() as usize;
            let Some(range) = find(address) else {
                // Not ours: as before. The instruction runs again and meets that handler.
                if let Some(before) = BEFORE.get() {
                    libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut());
                }
                return;
            };
            if range.lost == Lost::Zeros {
                let page = PAGE.load(Ordering::Acquire);
                let place = (address / page * page) as *mut libc::c_void;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                range.losses.fetch_add(1, Ordering::AcqRel);
                if libc::mmap(place, page, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED {
                    return;
                }
            }
            say(b"error: cannot read ");
            say(&range.name);
            say(b": it was cut short or its disk failed while it was read\n");
            libc::_exit(i32::from(Exit::Io.code()));
        }
    }

    fn say(words: &[u8]) {
        // SAFETY: the bytes are there; that they may not be written is nobody's concern here.
        unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    }
}
