//! What a client can ask for at most.

use std::time::Duration;

/// Characters of a text, as OpenAI's API has it.
pub const TEXT_CHARACTERS: usize = 4096;

/// Bytes of a request with JSON: a text and instructions of [`TEXT_CHARACTERS`] each, written as escapes.
pub const JSON_BYTES: usize = 128 << 10;

/// Bytes of an uploaded recording.
pub const UPLOAD_BYTES: usize = 10 << 20;

/// Seconds of an uploaded recording, where its header says how long it is.
pub const UPLOAD_SECONDS: f64 = 600.0;

/// Uploads that are received at the same time.
pub const UPLOADS_AT_ONCE: usize = 2;

/// `[pause:...]` marks of one text together.
pub const PAUSES: Duration = Duration::from_secs(60);

/// Samples that wait for slow clients, all together, in bytes. Beyond it nothing more is begun for clients that have not taken
/// what they were sent; pieces that are being said end, which are a MB each at most.
pub const WAITING_SOUND_BYTES: usize = 32 << 20;

/// Samples that wait for one client before its next piece is begun, in bytes: a minute.
pub const AHEAD_BYTES: usize = 60 * 24_000 * 2;

/// Connections at the same time; more wait to be accepted.
pub const CONNECTIONS: usize = 512;

/// To receive the head of a request; also how long an idle connection stays open.
pub const HEAD_TIME: Duration = Duration::from_secs(30);

/// To receive a body with JSON.
pub const BODY_TIME: Duration = Duration::from_secs(30);

/// To receive an upload.
pub const UPLOAD_TIME: Duration = Duration::from_secs(120);

/// Without a byte being taken by a client that is sent sound.
pub const STALLED_TIME: Duration = Duration::from_secs(120);

/// From the arrival of a request to the end of its speech, waiting included.
pub const REQUEST_TIME: Duration = Duration::from_secs(600);

/// What clients are told to wait where the queue is full, in seconds.
pub const RETRY_AFTER: u64 = 2;

/// Sessions (WebSockets, Wyoming) at the same time.
pub const SESSIONS: usize = 64;

/// Without a message while nothing is said in a session.
pub const SESSION_IDLE_TIME: Duration = Duration::from_secs(300);

/// Texts of one batch.
pub const BATCH_ITEMS: usize = 128;

/// Bytes of a batch's body.
pub const BATCH_BYTES: usize = 1 << 20;
