//! Whether there is a device to test on.

/// Something if there is a CUDA device; else says which test is skipped and why.
pub fn present(test: &str) -> Option<()> {
    match myxtts_tensor::cuda::Cuda::open(0, &Default::default()) {
        Ok(_) => Some(()),
        Err(reason) => {
            println!("{test}: skipped, no CUDA device: {reason}");
            None
        }
    }
}
