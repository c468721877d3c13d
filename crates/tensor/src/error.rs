//! Errors of the engine, with messages a user can act on.

use crate::memory::MemoryNeed;
use thiserror::Error;

/// An error of the engine.
#[derive(Debug, Error)]
pub enum Error {
    /// The device has less memory than the plan needs.
    #[error("out of memory on {device}: {free} MiB are free, and this needs\n{need}\nuse a smaller batch, shorter clips, recomputation, or a smaller model", free = free / (1 << 20))]
    OutOfMemory {
        /// The device, such as `cuda:0`.
        device: String,
        /// Memory the plan needs, by purpose.
        need: Box<MemoryNeed>,
        /// Free memory in bytes.
        free: usize,
    },
    /// A call to the CUDA driver failed.
    #[error("the CUDA driver failed to {doing}: {reason}")]
    Driver {
        /// The attempted action, as an infinitive phrase: "copy memory".
        doing: String,
        /// The driver's message.
        reason: String,
    },
    /// A shared library was not found.
    #[error(transparent)]
    Missing(#[from] crate::cuda::library::MissingLibrary),
    /// A kernel did not compile.
    #[error(transparent)]
    Compile(#[from] crate::cuda::compile::CompileError),
    /// A cuBLASLt call failed.
    #[error(transparent)]
    Gemm(#[from] crate::cuda::gemm::GemmError),
    /// A collective operation failed.
    #[error(transparent)]
    Collective(#[from] crate::collective::CollectiveError),
    /// An NCCL call failed.
    #[error(transparent)]
    Nccl(#[from] crate::cuda::nccl::NcclError),
    /// The request is not possible on this device.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Wraps a failed driver call; `doing` is an infinitive phrase.
    pub fn driver(doing: impl Into<String>, error: cudarc::driver::DriverError) -> Error {
        let reason =
            error.error_string().map_or_else(|_| format!("{error:?}"), |s| s.to_string_lossy().into_owned());
        Error::Driver { doing: doing.into(), reason }
    }
}
