//! Whether there is a device to test on, and who has it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by the test that has the device: what one allocates, times or records would disturb what another does.
pub type Gpu = MutexGuard<'static, ()>;

static ONE: Mutex<()> = Mutex::new(());

/// The device to oneself if there is one; else says which test is skipped and why.
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
