//! Exclusive access to the GPU for tests, if there is one.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by the test that uses the device: one test's allocations, timings or captures would disturb another's.
pub type Gpu = MutexGuard<'static, ()>;

static ONE: Mutex<()> = Mutex::new(());

/// Locks the device if there is one; otherwise prints which test is skipped and why.
pub fn present(test: &str) -> Option<Gpu> {
    let gpu = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match myxtts_tensor::cuda::Cuda::open(0, &Default::default()) {
        Ok(_) => Some(gpu),
        Err(reason) => {
            println!("{test}: skipped, no CUDA device: {reason}");
            None
        }
    }
}
