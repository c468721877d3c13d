//! The parsers of `myxtts-web` that read client input. Each returns whether it accepted the bytes.

use myxtts_web::bodies;

/// Body of `POST /v1/audio/speech`.
pub fn speech(bytes: &[u8]) -> bool {
    bodies::speech(bytes)
}

/// Body of `POST /v1/audio/speech/batch`.
pub fn batch(bytes: &[u8]) -> bool {
    bodies::batch(bytes)
}

/// Body of `POST /set_tts_settings`.
pub fn settings(bytes: &[u8]) -> bool {
    bodies::settings(bytes)
}

/// Body of `POST /tts_to_audio`.
pub fn to_audio(bytes: &[u8]) -> bool {
    bodies::to_audio(bytes)
}

/// URL of `GET /tts_stream`.
pub fn stream_query(bytes: &[u8]) -> bool {
    bodies::stream_query(bytes)
}

/// A WebSocket message.
pub fn socket(bytes: &[u8]) -> bool {
    bodies::socket(bytes)
}

/// A Wyoming event.
pub fn wyoming(bytes: &[u8]) -> bool {
    bodies::wyoming(bytes)
}

/// Form of `POST /v1/audio/voices`.
pub fn upload(bytes: &[u8]) -> bool {
    bodies::upload(bytes)
}

/// Body of `POST /studio/runs` and `/studio/plan`.
pub fn run(bytes: &[u8]) -> bool {
    bodies::run(bytes)
}

/// Body of `POST /studio/history`.
pub fn history(bytes: &[u8]) -> bool {
    bodies::history(bytes)
}

/// Body of `PUT /studio/history/{id}/sound`.
pub fn history_sound(bytes: &[u8]) -> bool {
    bodies::history_sound(bytes)
}

/// Body of `POST /studio/check`.
pub fn check(bytes: &[u8]) -> bool {
    bodies::check(bytes)
}

/// Body of `POST /studio/runs/{name}/diagnosis`.
pub fn diagnosis(bytes: &[u8]) -> bool {
    bodies::diagnosis(bytes)
}
