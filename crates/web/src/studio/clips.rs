//! The clips of a corpus, as its metadata declares them.

use super::{Fields, Studio, answered, file, lock, not_found, recording};
use crate::answer::ApiError;
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

/// Corpora that are kept in memory.
const KEPT: usize = 4;
/// After so long a corpus is read again.
const FRESH: Duration = Duration::from_secs(60);
/// Clips of one answer.
const MOST_ROWS: usize = 100;

/// Corpora that were read lately.
#[derive(Default)]
pub struct Corpora(VecDeque<(PathBuf, Instant, Arc<Corpus>)>);

impl Studio {
    /// The corpus of a real folder.
    pub(super) fn corpus(&self, folder: &Path) -> Result<Arc<Corpus>, ApiError> {
        let kept = lock(&self.corpora)
            .0
            .iter()
            .find(|(path, read, _)| path == folder && read.elapsed() < FRESH)
            .cloned();
        if let Some((.., corpus)) = kept {
            return Ok(corpus);
        }
        let read = dataset::read(folder, &ReadOptions::default());
        let corpus = read.map_err(|error| ApiError::field("path", "no_corpus", error.to_string()))?;
        let corpus = Arc::new(corpus);
        let all = &mut lock(&self.corpora).0;
        all.retain(|(path, ..)| path != folder);
        all.push_front((folder.to_owned(), Instant::now(), corpus.clone()));
        all.truncate(KEPT);
        Ok(corpus)
    }

    fn asked_corpus(&self, fields: &HashMap<String, String>) -> Result<Arc<Corpus>, ApiError> {
        let field = |name| fields.get(name).map_or("", String::as_str);
        self.corpus(&self.roots.find(field("root"), field("path"))?)
    }

    /// The sound of a clip, which may lie anywhere under the allowed folders and nowhere else, whatever the metadata says.
    fn asked_sound(&self, fields: &HashMap<String, String>) -> Result<PathBuf, ApiError> {
        let corpus = self.asked_corpus(fields)?;
        let id = fields.get("id").map_or("", String::as_str);
        let missing =
            || not_found("there is no such clip, or its recording is not under the folders of --data-root");
        let found = corpus.utterances.binary_search_by(|one| one.id.as_str().cmp(id)).ok();
        let found =
            found.or_else(|| corpus.utterances.iter().position(|one| one.id == id)).ok_or_else(missing)?;
        let real = corpus.utterances[found].audio.canonicalize().map_err(|_| missing())?;
        if self.roots.hold(&real) { Ok(real) } else { Err(missing()) }
    }
}

pub async fn list(State(app): State<Arc<App>>, Query(fields): Fields) -> Response {
    answered(&app, move |studio| {
        let corpus = studio.asked_corpus(&fields)?;
        let number = |name: &str, usual: usize| fields.get(name).and_then(|text| text.parse().ok()).unwrap_or(usual);
        let (from, count) = (number("from", 0), number("count", 25).min(MOST_ROWS));
        let wanted = fields.get("search").map(|text| text.trim().to_lowercase()).unwrap_or_default();
        let fits = |text: &str| text.to_lowercase().contains(&wanted);
        let all: Vec<_> = corpus
            .utterances
            .iter()
            .filter(|one| wanted.is_empty() || fits(&one.text) || fits(&one.id) || fits(&one.speaker))
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

pub async fn sound(State(app): State<Arc<App>>, Query(fields): Fields) -> Response {
    file(&app, "audio/wav", move |studio| recording::sound(&studio.asked_sound(&fields)?)).await
}

pub async fn mel(State(app): State<Arc<App>>, Query(fields): Fields) -> Response {
    file(&app, "image/png", move |studio| recording::mel(&studio.asked_sound(&fields)?)).await
}
