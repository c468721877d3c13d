//! Speech synthesis over HTTP.
//!
//! In the order of a request: [`server`] (one address, one thread per open model) -> `connection` (socket time limits) ->
//! [`access`] (token, host, origin) -> `routes` (OpenAI's API, the routes of XTTS clients, status) -> [`queue`] (bounded,
//! fair) -> [`speaker`] (the synthesiser interface; [`model`] implements it, and its `scheduler` speaks many `request`s at
//! once) -> [`audio_stream`] (samples to the client) -> `body` (encoded as they are sent). [`models`] opens and closes
//! models, [`metrics`] counts, [`limits`] bounds everything a client can request.

pub mod access;
pub mod audio_stream;
mod body;
mod connection;
mod greeting;
pub mod limits;
pub mod metrics;
pub mod model;
pub mod models;
mod page;
pub mod queue;
mod request;
mod response;
mod routes;
mod scheduler;
pub mod server;
mod session;
pub mod speaker;
mod studio;
mod wyoming;

pub use access::Access;
pub use audio_stream::AudioSink;
pub use model::{ModelSpeaker, ModelVoices};
pub use models::{FindModel, ModelLimits, OpenSpeaker, ServedModel};
pub use queue::{EncodeVoiceJob, Job, Jobs, SpeakJob};
pub use routes::bodies;
pub use server::{ServeError, Server, ServerOptions};
pub use speaker::{Speaker, SpeakerError, SpeakerFacts, Usage, Utterance, VoiceDetails, VoiceStore};
pub use studio::StudioOptions;
