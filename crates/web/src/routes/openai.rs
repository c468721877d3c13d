//! `POST /v1/audio/speech`.

use super::{App, client, object, xtts};
use crate::answer::ApiError;
use crate::body::Framing;
use crate::limits::TEXT_CHARACTERS;
use crate::speaker::Utterance;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use myxtts_speak::sound_file::{Depth, Format};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// Speeds that the API has.
pub const SPEEDS: std::ops::RangeInclusive<f64> = 0.25..=4.0;

pub async fn speech(State(app): State<Arc<App>>, request: Request) -> Response {
    let client = client(&request);
    match object(request).await.and_then(|object| SpeechRequest::read(&object)) {
        Ok(asked) => match app.models.named(&asked.model) {
            Ok(model) => app.speak(&model, client, asked.utterance, asked.format, asked.framing).await,
            Err(error) => error.into_response(),
        },
        Err(error) => error.into_response(),
    }
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechRequest {
    /// As it is called there.
    pub model: String,
    pub utterance: Utterance,
    pub format: Format,
    pub framing: Framing,
}

impl SpeechRequest {
    /// Of the body of a request.
    pub fn read(object: &Map<String, Json>) -> Result<SpeechRequest, ApiError> {
        let model = required(object, "model")?.to_owned();
        let text = text_of(required(object, "input")?, "input")?;
        let mut utterance = manner(object)?;
        utterance.text = text;
        let framing = match optional(object, "stream_format")?.unwrap_or("audio") {
            "audio" => Framing::Audio,
            "sse" => Framing::Events,
            _ => return Err(wrong("stream_format", "`audio` or `sse`")),
        };
        let format = format(optional(object, "response_format")?.unwrap_or("mp3"))?;
        Ok(SpeechRequest { model, utterance, format, framing })
    }
}

/// How something is to be said: everything but the text.
pub fn manner(object: &Map<String, Json>) -> Result<Utterance, ApiError> {
    let voice = match object.get("voice") {
        Some(Json::String(voice)) => voice.as_str(),
        Some(Json::Object(voice)) => required(voice, "id").map_err(|error| ApiError {
            param: Some("voice".to_owned()),
            message: format!("voice: {}", error.message),
            ..error
        })?,
        None | Some(Json::Null) => return Err(missing("voice")),
        Some(_) => return Err(wrong("voice", "a name, or an object with `id`")),
    };
    if let Some(instructions) = optional(object, "instructions")?
        && !instructions.trim().is_empty()
    {
        let message = "this model cannot be instructed how to speak: leave `instructions` out";
        return Err(ApiError::field("instructions", "unsupported_value", message));
    }
    let speed = match object.get("speed") {
        None | Some(Json::Null) => 1.0,
        Some(speed) => speed
            .as_f64()
            .filter(|speed| SPEEDS.contains(speed))
            .ok_or_else(|| wrong("speed", "a number from 0.25 to 4"))?,
    };
    // Not OpenAI's, but what a model of several languages and a draw needs.
    let language = optional(object, "language")?.map(str::to_owned);
    let seed = match object.get("seed") {
        None | Some(Json::Null) => 0,
        Some(seed) => seed.as_u64().ok_or_else(|| wrong("seed", "a whole number from 0 up"))?,
    };
    let (text, voice) = (String::new(), voice.to_owned());
    Ok(Utterance { text, voice, language, speed, seed, sampling: xtts::sampling(object)? })
}

/// A format by the name that OpenAI's API has for it.
pub fn format(name: &str) -> Result<Format, ApiError> {
    match name {
        "mp3" => Ok(Format::Mp3),
        "opus" => Ok(Format::Opus),
        "flac" => Ok(Format::Flac),
        "wav" => Ok(Format::Wav(Depth::Int16)),
        "pcm" => Ok(Format::Pcm),
        "aac" => {
            let message = "there is no AAC encoder here: take mp3, opus, flac, wav or pcm";
            Err(ApiError::field("response_format", "unsupported_value", message))
        }
        _ => Err(wrong("response_format", "one of mp3, opus, flac, wav and pcm")),
    }
}

/// A text that is not empty and not too long.
pub fn text_of(text: &str, param: &str) -> Result<String, ApiError> {
    let characters = text.chars().count();
    if characters > TEXT_CHARACTERS {
        let message =
            format!("{param} has {characters} characters, and at most {TEXT_CHARACTERS} are spoken at once");
        return Err(ApiError::field(param, "string_above_max_length", message));
    }
    if !text.chars().any(char::is_alphanumeric) {
        let message = format!("{param} has nothing to say: no letter and no digit");
        return Err(ApiError::field(param, "nothing_to_say", message));
    }
    Ok(text.to_owned())
}

pub fn required<'o>(object: &'o Map<String, Json>, name: &str) -> Result<&'o str, ApiError> {
    match object.get(name) {
        None | Some(Json::Null) => Err(missing(name)),
        Some(value) => value.as_str().ok_or_else(|| wrong(name, "a string")),
    }
}

pub fn optional<'o>(object: &'o Map<String, Json>, name: &str) -> Result<Option<&'o str>, ApiError> {
    match object.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or_else(|| wrong(name, "a string")),
    }
}

fn missing(name: &str) -> ApiError {
    ApiError::field(name, "missing_required_parameter", format!("{name} is missing"))
}

pub fn wrong(name: &str, wanted: &str) -> ApiError {
    ApiError::field(name, "invalid_value", format!("{name} is to be {wanted}"))
}
