//! The number of CPU threads that compute.

use std::io;

/// Bounds the threads that all CPU computation of this process shares. Call it once, before anything is computed: it fails
/// once the threads have started.
///
/// Without it there is one thread for each logical CPU, or `RAYON_NUM_THREADS` where that variable is set. Threads that only
/// wait (the main thread, signals, network connections) are not counted. The audio does not depend on the number.
pub fn limit_threads(count: usize) -> io::Result<()> {
    rayon::ThreadPoolBuilder::new().num_threads(count.max(1)).build_global().map_err(io::Error::other)
}
