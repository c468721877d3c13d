//! Limits on what a client can request.

use std::time::Duration;

/// Maximum characters of a text, as in OpenAI's API.
pub const TEXT_CHARACTERS: usize = 4096;

/// Maximum bytes of a JSON request: a text and instructions of [`TEXT_CHARACTERS`] each, all escaped.
pub const JSON_BYTES: usize = 128 << 10;

/// Maximum bytes of an uploaded recording.
pub const UPLOAD_BYTES: usize = 10 << 20;

/// Maximum seconds of an uploaded recording, if its header states the length.
pub const UPLOAD_SECONDS: f64 = 600.0;

/// Uploads received at the same time.
pub const UPLOADS_AT_ONCE: usize = 2;

/// Maximum total length of the `[pause:...]` marks of one text.
pub const PAUSES: Duration = Duration::from_secs(60);

/// Samples that wait for slow clients, in bytes over all requests. Above it no further piece is started for clients that
/// lag behind; pieces already being spoken are finished, at most 1 MB each.
pub const PENDING_AUDIO_BYTES: usize = 32 << 20;

/// Samples that may wait for one client before its next piece is started, in bytes: one minute.
pub const AHEAD_BYTES: usize = 60 * 24_000 * 2;

/// Simultaneous connections; further ones wait to be accepted.
pub const CONNECTIONS: usize = 512;

/// Time to receive the head of a request; also how long an idle connection stays open.
pub const HEAD_TIME: Duration = Duration::from_secs(30);

/// Time to receive a JSON body.
pub const BODY_TIME: Duration = Duration::from_secs(30);

/// Time to receive an upload.
pub const UPLOAD_TIME: Duration = Duration::from_secs(120);

/// Time for which a client may accept no byte of the audio it is sent.
pub const STALLED_TIME: Duration = Duration::from_secs(120);

/// Time from the arrival of a request to the end of its speech, including the wait in the queue.
pub const REQUEST_TIME: Duration = Duration::from_secs(600);

/// `Retry-After` in seconds when the queue is full.
pub const RETRY_AFTER: u64 = 2;

/// Simultaneous sessions (WebSocket and Wyoming).
pub const SESSIONS: usize = 64;

/// Time for which an idle session may receive no message.
pub const SESSION_IDLE_TIME: Duration = Duration::from_secs(300);

/// Maximum texts of one batch.
pub const BATCH_ITEMS: usize = 128;

/// Maximum bytes of a batch request.
pub const BATCH_BYTES: usize = 1 << 20;
