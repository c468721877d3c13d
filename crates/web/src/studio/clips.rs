//! The clips of a corpus, as listed in its metadata.

use super::{Fields, Studio, answered, file, lock, not_found, recording};
use crate::response::ApiError;
use crate::routes::App;
use axum::extract::{Query, State};
use axum::response::Response;
use myxtts_data::audio;
use myxtts_data::dataset::{self, Corpus, ReadOptions};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of corpora kept in memory.
const MAX_CORPORA: usize = 4;
/// Time after which a corpus is read again.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Maximum clips per response.
const MAX_ROWS: usize = 100;

/// Recently read corpora.
#[derive(Default)]
pub struct Corpora(VecDeque<(PathBuf, Instant, Arc<Corpus>)>);

impl Studio {
    /// Reads the corpus in a canonical folder, or returns the cached one.
    pub(super) fn corpus(&self, folder: &Path) -> Result<Arc<Corpus>, ApiError> {
        let cached = lock(&self.corpora)
            .0
            .iter()
            .find(|(path, read, _)| path == folder && read.elapsed() < MAX_AGE)
            .cloned();
        if let Some((.., corpus)) = cached {
            return Ok(corpus);
        }
        let read = dataset::read(folder, &ReadOptions::default());
        let corpus = read.map_err(|error| ApiError::field("path", "no_corpus", error.to_string()))?;
        let corpus = Arc::new(corpus);
        let all = &mut lock(&self.corpora).0;
        all.retain(|(path, ..)| path != folder);
        all.push_front((folder.to_owned(), Instant::now(), corpus.clone()));
        all.truncate(MAX_CORPORA);
        Ok(corpus)
    }

    fn requested_corpus(&self, fields: &HashMap<String, String>) -> Result<Arc<Corpus>, ApiError> {
        let field = |name| fields.get(name).map_or("", String::as_str);
        self.corpus(&self.roots.find(field("root"), field("path"))?)
    }

    /// Audio file of a clip; must be under the allowed folders, whatever the metadata says.
    fn requested_audio(&self, fields: &HashMap<String, String>) -> Result<PathBuf, ApiError> {
        let corpus = self.requested_corpus(fields)?;
        let id = fields.get("id").map_or("", String::as_str);
        let missing =
            || not_found("there is no such clip, or its recording is not under a --data-root folder");
        let found = corpus.utterances.binary_search_by(|one| one.id.as_str().cmp(id)).ok();
        let found =
            found.or_else(|| corpus.utterances.iter().position(|one| one.id == id)).ok_or_else(missing)?;
        let real = corpus.utterances[found].audio.canonicalize().map_err(|_| missing())?;
        if self.roots.contain(&real) { Ok(real) } else { Err(missing()) }
    }
}

pub async fn list(State(app): State<Arc<App>>, Query(fields): Fields) -> Response {
    answered(&app, move |studio| {
        let corpus = studio.requested_corpus(&fields)?;
        let number = |name: &str, default: usize| fields.get(name).and_then(|text| text.parse().ok()).unwrap_or(default);
        let (from, count) = (number("from", 0), number("count", 25).min(MAX_ROWS));
        let wanted = fields.get("search").map(|text| text.trim().to_lowercase()).unwrap_or_default();
        let matches = |text: &str| text.to_lowercase().contains(&wanted);
        let all: Vec<_> = corpus
            .utterances
            .iter()
            .filter(|one| wanted.is_empty() || matches(&one.text) || matches(&one.id) || matches(&one.speaker))
            .collect();
        let rows: Vec<_> = all
            .iter()
            .skip(from)
            .take(count)
            .map(|one| {
                let info = audio::probe(&one.audio).ok();
                let seconds = info.and_then(|info| Some(info.declared_frames? as f64 / f64::from(info.sample_rate)));
                json!({ "id": one.id, "text": one.text, "speaker": one.speaker, "language": one.language, "seconds": seconds })
            })
            .collect();
        Ok(json!({ "total": all.len(), "from": from, "clips": rows, "format": corpus.format.title() }))
    })
    .await
}

pub async fn audio(State(app): State<Arc<App>>, Query(fields): Fields) -> Response {
    file(&app, "audio/wav", move |studio| recording::wav(&studio.requested_audio(&fields)?)).await
}

pub async fn mel(State(app): State<Arc<App>>, Query(fields): Fields) -> Response {
    file(&app, "image/png", move |studio| recording::mel(&studio.requested_audio(&fields)?)).await
}
