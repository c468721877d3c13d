//! Everything of `myxtts-web` that reads what a client sends. Each says whether it took the bytes.

use myxtts_web::bodies;

/// The body of `POST /v1/audio/speech`.
pub fn speech(bytes: &[u8]) -> bool {
    bodies::speech(bytes)
}

/// The body of `POST /v1/audio/speech/batch`.
pub fn batch(bytes: &[u8]) -> bool {
    bodies::batch(bytes)
}

/// The body of `POST /set_tts_settings`.
pub fn settings(bytes: &[u8]) -> bool {
    bodies::settings(bytes)
}

/// A message of a WebSocket.
pub fn socket(bytes: &[u8]) -> bool {
    bodies::socket(bytes)
}

/// An event of Wyoming.
pub fn wyoming(bytes: &[u8]) -> bool {
    bodies::wyoming(bytes)
}
