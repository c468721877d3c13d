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

/// The form of `POST /v1/audio/voices`.
pub fn upload(bytes: &[u8]) -> bool {
    bodies::upload(bytes)
}

/// The body of `POST /studio/runs` and `/studio/plan`.
pub fn run(bytes: &[u8]) -> bool {
    bodies::run(bytes)
}

/// The body of `POST /studio/history`.
pub fn history(bytes: &[u8]) -> bool {
    bodies::history(bytes)
}
