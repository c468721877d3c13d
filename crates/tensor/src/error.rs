//! What can go wrong in the engine, in words a user can act on.

use crate::memory::MemoryNeed;
use thiserror::Error;

/// An error of the engine.
#[derive(Debug, Error)]
pub enum Error {
    /// The device has less memory than the plan needs.
    #[error("out of memory on {device}: {free} MiB are free, and this needs\n{need}\nuse a smaller batch, shorter clips, recomputation, or a smaller model", free = free / (1 << 20))]
    OutOfMemory {
        /// Which device.
        device: String,
        /// What the plan needs, by purpose.
        need: Box<MemoryNeed>,
        /// What was free, in bytes.
        free: usize,
    },
    /// A call to the driver failed.
    #[error("the CUDA driver refused to {doing}: {reason}")]
    Driver {
        /// What was tried.
        doing: String,
        /// The driver's words.
        reason: String,
    },
    /// A library is not on this machine.
    #[error(transparent)]
    Missing(#[from] crate::cuda::library::MissingLibrary),
    /// A kernel did not compile.
    #[error(transparent)]
    Compile(#[from] crate::cuda::compile::CompileError),
    /// cuBLASLt refused.
    #[error(transparent)]
    Gemm(#[from] crate::cuda::gemm::GemmError),
    /// Replicas could not meet.
    #[error(transparent)]
    Collective(#[from] crate::collective::CollectiveError),
    /// NCCL refused.
    #[error(transparent)]
    Nccl(#[from] crate::cuda::nccl::NcclError),
    /// What was asked is not possible on this device.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// A driver call that failed while `doing` something.
    pub fn driver(doing: impl Into<String>, error: cudarc::driver::DriverError) -> Error {
        let reason =
            error.error_string().map_or_else(|_| format!("{error:?}"), |s| s.to_string_lossy().into_owned());
        Error::Driver { doing: doing.into(), reason }
    }
}
