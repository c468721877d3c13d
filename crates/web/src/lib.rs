//! Speech over HTTP.
//!
//! In the order of a request: [`server`] (one address, a thread for each open model) -> `connection` (time limits of sockets) -> [`access`]
//! (token, host, origin) -> `routes` (OpenAI's API, the routes of XTTS clients, status) -> [`queue`] (bounded, fair) ->
//! [`speaker`] (whoever speaks; [`model`] is the real one, its `scheduler` says many `request`s at once) -> [`sound`] (samples to
//! the client) -> `body` (encoded as they are sent). [`models`] opens and closes models, [`metrics`] counts, [`limits`] bounds
//! everything a client can ask for.

pub mod access;
mod answer;
mod body;
mod connection;
pub mod limits;
pub mod metrics;
pub mod model;
pub mod models;
mod page;
pub mod queue;
mod request;
mod routes;
mod scheduler;
pub mod server;
mod session;
pub mod sound;
pub mod speaker;
mod studio;
mod wyoming;

pub use access::Access;
pub use model::{ModelSpeaker, ModelVoices};
pub use models::{FindModel, Keeping, OpenSpeaker, ServedModel};
pub use queue::{HearJob, Job, Jobs, SpeakJob};
pub use routes::bodies;
pub use server::{ServeError, Server, ServerOptions};
pub use sound::SoundSink;
pub use speaker::{Speaker, SpeakerError, SpeakerFacts, Usage, Utterance, VoiceDetails, VoiceStore};
pub use studio::StudioOptions;
