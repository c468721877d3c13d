//! The engine of MyXTTS.

pub mod collective;
pub mod cuda;
