//! The routes of XTTS servers, as used by SillyTavern.

use super::openai::{SPEEDS, checked_text, invalid, required};
use super::{App, client, object, voices};
use crate::body::Framing;
use crate::models::Model;
use crate::response::{ApiError, ok};
use crate::speaker::{Sampling, Utterance};
use axum::extract::{Query, Request, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use myxtts_speak::audio_file::{Depth, Format};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

/// Settings of `POST /set_tts_settings`, for these routes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    speed: f64,
    sampling: Sampling,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { speed: 1.0, sampling: Sampling::default() }
    }
}

/// Display names of languages by code.
const LANGUAGES: [(&str, &str); 18] = [
    ("ar", "Arabic"),
    ("cs", "Czech"),
    ("de", "German"),
    ("en", "English"),
    ("es", "Spanish"),
    ("fa", "Persian"),
    ("fr", "French"),
    ("hi", "Hindi"),
    ("hu", "Hungarian"),
    ("it", "Italian"),
    ("ja", "Japanese"),
    ("ko", "Korean"),
    ("nl", "Dutch"),
    ("pl", "Polish"),
    ("pt", "Portuguese"),
    ("ru", "Russian"),
    ("tr", "Turkish"),
    ("zh-cn", "Chinese"),
];

pub async fn speakers(State(app): State<Arc<App>>) -> Response {
    match first_names(&app).await {
        Ok(names) => {
            let one = |name: &String| json!({ "name": name, "voice_id": name, "preview_url": "" });
            ok(&names.iter().map(one).collect())
        }
        Err(error) => error.into_response(),
    }
}

/// Names of the voices of the first model; empty without a model.
async fn first_names(app: &Arc<App>) -> Result<Vec<String>, ApiError> {
    match app.models.first() {
        Ok(model) => voices::names(&model).await,
        Err(_) => Ok(Vec::new()),
    }
}

pub async fn languages(State(app): State<Arc<App>>) -> Response {
    let model = match app.models.first() {
        Ok(model) => model,
        Err(error) => return error.into_response(),
    };
    let Some(facts) = model.facts.get() else { return ApiError::not_ready().into_response() };
    let name = |code: &String| {
        let known = LANGUAGES.iter().find(|(known, _)| known == code);
        (known.map_or(code.clone(), |(_, name)| (*name).to_owned()), json!(code))
    };
    let languages: Map<String, Json> = facts.languages.iter().map(name).collect();
    ok(&json!({ "languages": languages }))
}

pub async fn set_settings(State(app): State<Arc<App>>, request: Request) -> Response {
    match object(request).await.and_then(|object| settings(&object)) {
        Ok(settings) => {
            *app.xtts.lock().unwrap_or_else(PoisonError::into_inner) = settings;
            ok(&json!({ "message": "Settings successfully applied" }))
        }
        Err(error) => error.into_response(),
    }
}

/// Reads the settings that clients send. Three of them are accepted and have no effect: `length_penalty`, which ranks beams or
/// candidates, and the server streams one candidate per text; `enable_text_splitting`, as long texts are always split; and
/// `stream_chunk_size`, as chunks have the sizes that suit the model.
pub fn settings(object: &Map<String, Json>) -> Result<Settings, ApiError> {
    let speed = number(object, "speed", *SPEEDS.start(), *SPEEDS.end())?.unwrap_or(1.0);
    Ok(Settings { speed, sampling: sampling(object)? })
}

/// Parses `temperature`, `top_k`, `top_p` and `repetition_penalty`; missing ones use the model's default.
pub fn sampling(object: &Map<String, Json>) -> Result<Sampling, ApiError> {
    let number = |name, min, max| number(object, name, min, max);
    let single = |value: Option<f64>| value.map(|value| value as f32);
    Ok(Sampling {
        temperature: single(number("temperature", 0.01, 10.0)?),
        top_k: number("top_k", 0.0, 1e6)?.map(|value| value as usize),
        top_p: single(number("top_p", 0.01, 1.0)?),
        repetition_penalty: single(number("repetition_penalty", 0.01, 100.0)?),
    })
}

fn number(object: &Map<String, Json>, name: &str, min: f64, max: f64) -> Result<Option<f64>, ApiError> {
    match object.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|value| *value >= min && *value <= max) {
            Some(value) => Ok(Some(value)),
            None => Err(invalid(name, &format!("a number from {min} to {max}"))),
        },
    }
}

pub async fn stream(State(app): State<Arc<App>>, request: Request) -> Response {
    match query_fields(request.uri()) {
        Ok(object) => speak(&app, client(&request), &object).await,
        Err(error) => error.into_response(),
    }
}

/// Query parameters as JSON strings.
pub fn query_fields(uri: &Uri) -> Result<Map<String, Json>, ApiError> {
    match Query::<HashMap<String, String>>::try_from_uri(uri) {
        Ok(Query(query)) => Ok(query.into_iter().map(|(name, value)| (name, Json::String(value))).collect()),
        Err(_) => Err(ApiError::field("text", "invalid_value", "the query string is invalid")),
    }
}

pub async fn to_audio(State(app): State<Arc<App>>, request: Request) -> Response {
    let client = client(&request);
    match object(request).await {
        Ok(object) => speak(&app, client, &object).await,
        Err(error) => error.into_response(),
    }
}

async fn speak(app: &Arc<App>, client: IpAddr, object: &Map<String, Json>) -> Response {
    let model = match app.models.first() {
        Ok(model) => model,
        Err(error) => return error.into_response(),
    };
    match utterance(app, &model, object).await {
        Ok(utterance) => {
            app.speak(&model, client, utterance, Format::Wav(Depth::Int16), Framing::Audio).await
        }
        Err(error) => error.into_response(),
    }
}

/// A parsed request of `GET /tts_stream` or `POST /tts_to_audio`.
pub struct XttsRequest {
    text: String,
    /// Language code; `None` guesses it from the text.
    language: Option<String>,
    /// A voice, or a file named after one: other XTTS servers keep voices as WAV files.
    speaker_wav: String,
}

impl XttsRequest {
    /// Reads the fields of a body or of a query.
    pub fn read(object: &Map<String, Json>) -> Result<XttsRequest, ApiError> {
        let language = required(object, "language")?;
        Ok(XttsRequest {
            text: checked_text(required(object, "text")?, "text")?,
            language: Some(language.to_owned()).filter(|language| language != "auto" && !language.is_empty()),
            speaker_wav: required(object, "speaker_wav")?.to_owned(),
        })
    }
}

async fn utterance(
    app: &Arc<App>,
    model: &Arc<Model>,
    object: &Map<String, Json>,
) -> Result<Utterance, ApiError> {
    let XttsRequest { text, language, speaker_wav } = XttsRequest::read(object)?;
    let names = voices::names(model).await?;
    let voice = match speaker_wav.strip_suffix(".wav") {
        Some(stem) if !names.contains(&speaker_wav) => stem.to_owned(),
        _ => speaker_wav,
    };
    let settings = *app.xtts.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Utterance { text, voice, language, speed: settings.speed, seed: 0, sampling: settings.sampling })
}
