//! The engine of MyXTTS.

pub mod cuda;
pub mod device;
pub mod kernels;
