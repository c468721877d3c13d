//! `POST /v1/audio/speech`, compatible with OpenAI's API.

use super::{App, client, object, xtts};
use crate::body::Framing;
use crate::limits::TEXT_CHARACTERS;
use crate::response::ApiError;
use crate::speaker::Utterance;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use myxtts_speak::audio_file::{Depth, Format};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// Range of speeds in the API.
pub const SPEEDS: std::ops::RangeInclusive<f64> = 0.25..=4.0;

pub async fn speech(State(app): State<Arc<App>>, request: Request) -> Response {
    let client = client(&request);
    match object(request).await.and_then(|object| SpeechRequest::read(&object)) {
        Ok(speech) => match app.models.named(&speech.model) {
            Ok(model) => app.speak(&model, client, speech.utterance, speech.format, speech.framing).await,
            Err(error) => error.into_response(),
        },
        Err(error) => error.into_response(),
    }
}

/// A parsed speech request.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechRequest {
    /// Model name as sent by the client.
    pub model: String,
    pub utterance: Utterance,
    pub format: Format,
    pub framing: Framing,
}

impl SpeechRequest {
    /// Parses the body of a request.
    pub fn read(object: &Map<String, Json>) -> Result<SpeechRequest, ApiError> {
        let model = required(object, "model")?.to_owned();
        let text = checked_text(required(object, "input")?, "input")?;
        let mut utterance = speech_options(object)?;
        utterance.text = text;
        let framing = match optional(object, "stream_format")?.unwrap_or("audio") {
            "audio" => Framing::Audio,
            "sse" => Framing::Events,
            _ => return Err(invalid("stream_format", "`audio` or `sse`")),
        };
        let format = format(optional(object, "response_format")?.unwrap_or("mp3"))?;
        Ok(SpeechRequest { model, utterance, format, framing })
    }
}

/// Parses everything but the text; the text of the result is empty.
pub fn speech_options(object: &Map<String, Json>) -> Result<Utterance, ApiError> {
    let voice = match object.get("voice") {
        Some(Json::String(voice)) => voice.as_str(),
        Some(Json::Object(voice)) => required(voice, "id").map_err(|error| ApiError {
            param: Some("voice".to_owned()),
            message: format!("voice: {}", error.message),
            ..error
        })?,
        None | Some(Json::Null) => return Err(missing("voice")),
        Some(_) => return Err(invalid("voice", "a name, or an object with `id`")),
    };
    if let Some(instructions) = optional(object, "instructions")?
        && !instructions.trim().is_empty()
    {
        let message = "this model does not support `instructions`: leave the field out";
        return Err(ApiError::field("instructions", "unsupported_value", message));
    }
    let speed = match object.get("speed") {
        None | Some(Json::Null) => 1.0,
        Some(speed) => speed
            .as_f64()
            .filter(|speed| SPEEDS.contains(speed))
            .ok_or_else(|| invalid("speed", "a number from 0.25 to 4"))?,
    };
    // Extensions of OpenAI's API, for multilingual models and reproducible sampling.
    let language = optional(object, "language")?.map(str::to_owned);
    let seed = match object.get("seed") {
        None | Some(Json::Null) => 0,
        Some(seed) => seed.as_u64().ok_or_else(|| invalid("seed", "a non-negative integer"))?,
    };
    let (text, voice) = (String::new(), voice.to_owned());
    Ok(Utterance { text, voice, language, speed, seed, sampling: xtts::sampling(object)? })
}

/// Parses a format name of OpenAI's API.
pub fn format(name: &str) -> Result<Format, ApiError> {
    match name {
        "mp3" => Ok(Format::Mp3),
        "opus" => Ok(Format::Opus),
        "flac" => Ok(Format::Flac),
        "wav" => Ok(Format::Wav(Depth::Int16)),
        "pcm" => Ok(Format::Pcm),
        "aac" => {
            let message = "AAC is not supported: use mp3, opus, flac, wav or pcm";
            Err(ApiError::field("response_format", "unsupported_value", message))
        }
        _ => Err(invalid("response_format", "one of mp3, opus, flac, wav and pcm")),
    }
}

/// Checks that a text contains letters or digits and is not too long.
pub fn checked_text(text: &str, param: &str) -> Result<String, ApiError> {
    let characters = text.chars().count();
    if characters > TEXT_CHARACTERS {
        let message = format!("{param} has {characters} characters; the maximum is {TEXT_CHARACTERS}");
        return Err(ApiError::field(param, "string_above_max_length", message));
    }
    if !text.chars().any(char::is_alphanumeric) {
        let message = format!("{param} contains no letter and no digit");
        return Err(ApiError::field(param, "nothing_to_say", message));
    }
    Ok(text.to_owned())
}

pub fn required<'o>(object: &'o Map<String, Json>, name: &str) -> Result<&'o str, ApiError> {
    match object.get(name) {
        None | Some(Json::Null) => Err(missing(name)),
        Some(value) => value.as_str().ok_or_else(|| invalid(name, "a string")),
    }
}

pub fn optional<'o>(object: &'o Map<String, Json>, name: &str) -> Result<Option<&'o str>, ApiError> {
    match object.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or_else(|| invalid(name, "a string")),
    }
}

fn missing(name: &str) -> ApiError {
    ApiError::field(name, "missing_required_parameter", format!("{name} is missing"))
}

pub fn invalid(name: &str, expected: &str) -> ApiError {
    ApiError::field(name, "invalid_value", format!("{name} must be {expected}"))
}
