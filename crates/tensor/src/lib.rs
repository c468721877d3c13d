//! The engine of MyXTTS.
#![allow(missing_docs)]
