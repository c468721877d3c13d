//! Loads NVIDIA's libraries and their functions by name.

use libloading::Library;

/// Loads the first library that can be loaded, or says why none could.
pub(crate) fn load_first(names: &[&str]) -> Result<Library, String> {
    let mut reasons = Vec::new();
    for name in names {
        // SAFETY: runs the initialisers of an NVIDIA library.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(library),
            Err(error) => reasons.push(message(&error)),
        }
    }
    Err(format!("not found: {}", reasons.join("; ")))
}

/// The system's message, which libloading wraps.
fn message(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// # Safety
/// `T` must be the function pointer type of the named symbol.
pub(crate) unsafe fn symbol<T: Copy>(library: &Library, name: &'static str) -> Result<T, String> {
    // SAFETY: guaranteed by the caller.
    unsafe { library.get::<T>(name) }
        .map(|symbol| *symbol)
        .map_err(|error| format!("{name}: {}", message(&error)))
}
