//! A second name for a library that is already loaded.
//!
//! cudarc opens libraries by file name from a fixed list: `libnvrtc.so`, `libnvrtc.so.12`, ... but neither
//! `libnvrtc.so.13` nor `libnccl.so.2`, and panics if none is found. The dynamic linker resolves a name to a loaded
//! library with that SONAME. We therefore load an empty shared object with the SONAME `libnvrtc.so`, the first on
//! cudarc's list, that depends on the chosen file. Symbols are resolved through dependencies, so cudarc uses
//! exactly that file, whatever else is on the linker's path.

use std::ffi::{c_char, c_int, c_uint};
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

unsafe extern "C" {
    // Part of every C library with a dynamic linker we support; a temporary file would need a writable file system.
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
}

const MFD_CLOEXEC: c_uint = 1;

/// Makes `dlopen(soname)` return the symbols of `target` for the rest of the process.
pub(super) fn publish(soname: &str, target: &Path) -> io::Result<()> {
    // SAFETY: the name is a C string; the descriptor is checked before it is owned.
    let descriptor = unsafe { memfd_create(c"myxtts-alias".as_ptr(), MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // Stays open forever: the linker remembers the path below and would mistake a later alias with the same
    // descriptor for this one.
    // SAFETY: the descriptor is new and has no other owner.
    let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    file.write_all(&shared_object(soname.as_bytes(), target.as_os_str().as_bytes()))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the object has no code to run; its dependency is already loaded.
    let library = unsafe { Library::open(Some(path.as_str()), RTLD_NOW | RTLD_GLOBAL) };
    std::mem::forget(library.map_err(io::Error::other)?);
    Ok(())
}

/// The smallest shared object the linker accepts: headers, a dynamic section, an empty symbol table.
fn shared_object(soname: &[u8], needed: &[u8]) -> Vec<u8> {
    const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    const HEADERS: u64 = 64 + 3 * 56;
    const DYNAMIC: u64 = 8 * 16;
    const SYMBOLS_AT: u64 = HEADERS + DYNAMIC;
    const HASH_AT: u64 = SYMBOLS_AT + 24;
    const STRINGS_AT: u64 = HASH_AT + 16;
    // The largest page size of supported machines: the linker rejects an alignment smaller than its page.
    const ALIGNMENT: u64 = 0x10000;
    const READ_WRITE: u32 = 6;

    let strings = [b"\0", needed, b"\0", soname, b"\0"].concat();
    let length = STRINGS_AT + strings.len() as u64;
    let mut object = Object(Vec::with_capacity(length as usize));

    object.bytes(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    object.u16(3).u16(MACHINE).u32(1);
    object.u64(0).u64(64).u64(0);
    object.u32(0).u16(64).u16(56).u16(3).u16(0).u16(0).u16(0);

    object.segment(1, READ_WRITE, 0, length, ALIGNMENT);
    object.segment(2, READ_WRITE, HEADERS, DYNAMIC, 8);
    // Without this segment the linker assumes that the object needs an executable stack.
    object.segment(0x6474_e551, READ_WRITE, 0, 0, 16);

    object.u64(1).u64(1); // DT_NEEDED
    object.u64(14).u64(2 + needed.len() as u64); // DT_SONAME
    object.u64(4).u64(HASH_AT);
    object.u64(5).u64(STRINGS_AT);
    object.u64(6).u64(SYMBOLS_AT);
    object.u64(10).u64(strings.len() as u64);
    object.u64(11).u64(24);
    object.u64(0).u64(0);

    object.bytes(&[0; 24]);
    object.u32(1).u32(1).u32(0).u32(0); // one bucket, one symbol, both empty
    object.bytes(&strings);
    object.0
}

struct Object(Vec<u8>);

impl Object {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn segment(&mut self, kind: u32, flags: u32, at: u64, length: u64, alignment: u64) {
        self.u32(kind).u32(flags).u64(at).u64(at).u64(at).u64(length).u64(length).u64(alignment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_name_resolves_to_the_target() {
        // SAFETY: the C library's own mathematics library.
        unsafe {
            let target = Library::open(Some("libm.so.6"), RTLD_NOW).unwrap();
            let cosine = target.get::<unsafe extern "C" fn(f64) -> f64>("cos").unwrap();
            let path = super::super::path_of(cosine.into_raw()).unwrap();
            assert!(Library::open(Some("libmyxtts-other-name.so"), RTLD_NOW).is_err());
            publish("libmyxtts-other-name.so", &path).unwrap();
            publish("libmyxtts-third-name.so", &path).unwrap();
            for name in ["libmyxtts-other-name.so", "libmyxtts-third-name.so"] {
                let alias = libloading::Library::new(name).unwrap();
                let cosine = alias.get::<unsafe extern "C" fn(f64) -> f64>("cos").unwrap();
                assert_eq!(cosine(0.0), 1.0);
            }
        }
    }
}
