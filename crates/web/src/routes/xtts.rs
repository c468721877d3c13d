//! The routes of XTTS servers that SillyTavern speaks to.

use super::openai::{SPEEDS, required, text_of, wrong};
use super::{App, client, object, voices};
use crate::answer::{ApiError, ok};
use crate::body::Framing;
use crate::models::Model;
use crate::speaker::{Sampling, Utterance};
use axum::extract::{Query, Request, State};
use axum::response::{IntoResponse, Response};
use myxtts_speak::sound_file::{Depth, Format};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

/// What `POST /set_tts_settings` has set, for these routes.
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

/// Languages by their codes, as a list of choices calls them.
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

/// Names of the voices of the first model; none where there is no model yet.
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

/// `length_penalty`, `enable_text_splitting` and `stream_chunk_size` are part of what clients send; there are no beams here, long
/// texts are always cut, and pieces of sound have the sizes that suit the model.
pub fn settings(object: &Map<String, Json>) -> Result<Settings, ApiError> {
    let speed = number(object, "speed", *SPEEDS.start(), *SPEEDS.end())?.unwrap_or(1.0);
    Ok(Settings { speed, sampling: sampling(object)? })
}

/// `temperature`, `top_k`, `top_p` and `repetition_penalty`, each as usual for the model where it is not there.
pub fn sampling(object: &Map<String, Json>) -> Result<Sampling, ApiError> {
    let number = |name, least, most| number(object, name, least, most);
    let single = |value: Option<f64>| value.map(|value| value as f32);
    Ok(Sampling {
        temperature: single(number("temperature", 0.01, 10.0)?),
        top_k: number("top_k", 0.0, 1e6)?.map(|value| value as usize),
        top_p: single(number("top_p", 0.01, 1.0)?),
        repetition_penalty: single(number("repetition_penalty", 0.01, 100.0)?),
    })
}

fn number(object: &Map<String, Json>, name: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
    match object.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|value| *value >= least && *value <= most) {
            Some(value) => Ok(Some(value)),
            None => Err(wrong(name, &format!("a number from {least} to {most}"))),
        },
    }
}

pub async fn stream(State(app): State<Arc<App>>, request: Request) -> Response {
    let Ok(Query(query)) = Query::<HashMap<String, String>>::try_from_uri(request.uri()) else {
        let message = "the part behind `?` cannot be read";
        return ApiError::field("text", "invalid_value", message).into_response();
    };
    let object = query.into_iter().map(|(name, value)| (name, Json::String(value))).collect();
    say(&app, client(&request), &object).await
}

pub async fn to_audio(State(app): State<Arc<App>>, request: Request) -> Response {
    let client = client(&request);
    match object(request).await {
        Ok(object) => say(&app, client, &object).await,
        Err(error) => error.into_response(),
    }
}

async fn say(app: &Arc<App>, client: IpAddr, object: &Map<String, Json>) -> Response {
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

async fn utterance(
    app: &Arc<App>,
    model: &Arc<Model>,
    object: &Map<String, Json>,
) -> Result<Utterance, ApiError> {
    let text = text_of(required(object, "text")?, "text")?;
    let language = required(object, "language")?;
    let asked = required(object, "speaker_wav")?;
    // Their servers keep voices as files and call them so.
    let names = voices::names(model).await?;
    let voice = match asked.strip_suffix(".wav") {
        Some(stem) if !names.iter().any(|name| name == asked) => stem,
        _ => asked,
    };
    let settings = *app.xtts.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Utterance {
        text,
        voice: voice.to_owned(),
        language: Some(language.to_owned()).filter(|language| language != "auto" && !language.is_empty()),
        speed: settings.speed,
        seed: 0,
        sampling: settings.sampling,
    })
}
