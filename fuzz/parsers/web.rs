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

/// The body of `POST /tts_to_audio`.
pub fn to_audio(bytes: &[u8]) -> bool {
    bodies::to_audio(bytes)
}

/// The address of `GET /tts_stream`.
pub fn stream_query(bytes: &[u8]) -> bool {
    bodies::stream_query(bytes)
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

/// The body of `PUT /studio/history/{id}/sound`.
pub fn history_sound(bytes: &[u8]) -> bool {
    bodies::history_sound(bytes)
}

/// The body of `POST /studio/check`.
pub fn check(bytes: &[u8]) -> bool {
    bodies::check(bytes)
}

/// The body of `POST /studio/runs/{name}/diagnosis`.
pub fn diagnosis(bytes: &[u8]) -> bool {
    bodies::diagnosis(bytes)
}
