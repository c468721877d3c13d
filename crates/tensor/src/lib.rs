//! The engine of MyXTTS.

pub mod cuda;
