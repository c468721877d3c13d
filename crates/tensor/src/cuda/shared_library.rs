//! Loading NVIDIA's libraries and their functions by name.

use libloading::Library;

/// The first that loads, or why none did.
pub(crate) fn first_of(names: &[&str]) -> Result<Library, String> {
    let mut reasons = Vec::new();
    for name in names {
        // SAFETY: the library's initialisers are NVIDIA's.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(library),
            Err(error) => reasons.push(words(&error)),
        }
    }
    Err(format!("not found: {}", reasons.join("; ")))
}

/// The system's words, which libloading keeps one level down.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// # Safety
/// `T` is the function pointer type of the named symbol.
pub(crate) unsafe fn symbol<T: Copy>(library: &Library, name: &'static str) -> Result<T, String> {
    // SAFETY: the caller's.
    unsafe { library.get::<T>(name) }
        .map(|symbol| *symbol)
        .map_err(|error| format!("{name}: {}", words(&error)))
}
