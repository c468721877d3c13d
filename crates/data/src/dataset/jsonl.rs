//! A JSONL manifest: one object per line, with the keys used by NeMo and similar tools. A declared duration is compared with
//! the audio when the corpus is checked.

use std::path::Path;

use serde_json::{Map, Value};

use super::audio_files;
use super::detect::Location;
use super::metadata::{Entry, Line, Parsed, each_line, name, optional_name, read_listed};
use super::{DatasetError, RawCorpus};

pub(super) const EXPECTED: &str =
    "a .jsonl, .ndjson or .json file with one object per line, with keys such as audio_filepath and text";

const AUDIO: [&str; 10] = [
    "audio_filepath",
    "audio_file",
    "audio_path",
    "audio",
    "wav_path",
    "wav",
    "file_name",
    "filename",
    "file",
    "path",
];
const TEXT: [&str; 6] =
    ["normalized_text", "text_normalized", "text", "sentence", "transcript", "transcription"];
const SPEAKER: [&str; 5] = ["speaker", "speaker_name", "speaker_id", "spk", "client_id"];
const LANGUAGE: [&str; 5] = ["lang", "language", "lang_id", "language_id", "locale"];
const ID: [&str; 6] = ["id", "utt_id", "utterance_id", "utt", "uid", "key"];
const SECONDS: [&str; 3] = ["duration", "duration_seconds", "audio_duration"];

/// Whether the file name has a manifest's extension.
pub(super) fn could_be(file: &Path) -> bool {
    let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    ["jsonl", "ndjson", "json"].contains(&extension.as_str())
}

/// True when most lines are objects with an audio path and a text.
pub(super) fn fits(head: &[String]) -> bool {
    let fitting = head
        .iter()
        .filter_map(|line| serde_json::from_str::<Map<String, Value>>(line).ok())
        .filter(|object| value(object, &AUDIO).is_some() && value(object, &TEXT).is_some())
        .count();
    !head.is_empty() && fitting * 2 > head.len()
}

/// The first of these keys with a value.
fn value<'a>(object: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().filter_map(|&key| object.get(key)).find(|value| match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        _ => true,
    })
}

/// Returns a string or number as text: speakers and ids are often numbers.
fn string(object: &Map<String, Value>, keys: &[&str]) -> Result<Option<String>, String> {
    match value(object, keys) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        // The Hugging Face datasets library stores audio as an object with a path.
        Some(Value::Object(inner)) if inner.get("path").is_some_and(Value::is_string) => {
            string(inner, &["path"])
        }
        Some(_) => Err(format!("{} is neither a string nor a number", keys.join("/"))),
    }
}

fn number(object: &Map<String, Value>, keys: &[&str]) -> Result<Option<f64>, String> {
    let number = match value(object, keys) {
        None => return Ok(None),
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    match number {
        Some(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
        _ => Err(format!("{} is not a duration in seconds", keys[0])),
    }
}

pub(super) fn parse(bytes: &[u8], file: &Path) -> Parsed {
    each_line(bytes, file, |line, at| {
        let object: Map<String, Value> =
            serde_json::from_str(line).map_err(|error| format!("not a JSON object: {error}"))?;
        let written = string(&object, &AUDIO)?
            .ok_or_else(|| format!("no audio path: none of the keys {} has a value", AUDIO.join(", ")))?;
        let written = name("audio path", &written)?;
        let has_text = TEXT.iter().any(|&key| object.contains_key(key));
        if !has_text {
            return Err(format!("no text: none of the keys {} is present", TEXT.join(", ")));
        }
        if let Some(offset) = number(&object, &["offset"])?.filter(|&offset| offset > 0.0) {
            return Err(format!(
                "the utterance starts {offset} s into a longer file; extract it to a separate file"
            ));
        }
        let id = string(&object, &ID)?;
        let entry = Entry {
            id: match &id {
                Some(id) => name("id", id)?.to_owned(),
                None => audio_files::without_extension(written).replace('\\', "/"),
            },
            audio: Some(written.to_owned()),
            text: string(&object, &TEXT)?.unwrap_or_default(),
            speaker: optional_name("speaker", string(&object, &SPEAKER)?.as_deref())?,
            language: optional_name("language", string(&object, &LANGUAGE)?.as_deref())?,
            seconds: number(&object, &SECONDS)?,
            line: at,
        };
        Ok(Line::Entry(entry, object.len()))
    })
}

pub(super) fn read(location: &Location) -> Result<RawCorpus, DatasetError> {
    let bases = ["", "wavs", "audio", "clips"].map(|name| location.root.join(name));
    read_listed(location, parse, None, &bases, "with one object per line")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Entry, String> {
        let mut parsed = parse(line.as_bytes(), Path::new("m.jsonl"));
        match parsed.entries.pop() {
            Some(entry) => Ok(entry),
            None => Err(parsed.problems.pop().unwrap().detail),
        }
    }

    #[test]
    fn keys_of_several_tools_are_supported() {
        let nemo = one(r#"{"audio_filepath":"a/b.wav","text":"x","duration":1.5,"speaker":7,"lang":"fa"}"#);
        let nemo = nemo.unwrap();
        assert_eq!((nemo.id.as_str(), nemo.audio.as_deref()), ("a/b", Some("a/b.wav")));
        assert_eq!((nemo.speaker.as_deref(), nemo.seconds), (Some("7"), Some(1.5)));
        let hugging = one(r#"{"id":"u1","audio":{"path":"c.flac","bytes":null},"sentence":"y","text":null}"#);
        let hugging = hugging.unwrap();
        assert_eq!((hugging.id.as_str(), hugging.text.as_str()), ("u1", "y"));
    }

    #[test]
    fn each_problem_states_its_reason() {
        for (line, reason) in [
            ("[1]", "not a JSON object"),
            (r#"{"text":"x"}"#, "no audio path"),
            (r#"{"audio":"a.wav"}"#, "no text"),
            (r#"{"audio":"a.wav","text":["x"]}"#, "neither a string nor a number"),
            (r#"{"audio":"a.wav","text":"x","duration":-1}"#, "not a duration in seconds"),
            (r#"{"audio":"a.wav","text":"x","offset":3.5}"#, "starts 3.5 s into"),
            (r#"{"audio":"a\u0000.wav","text":"x"}"#, "U+0000"),
        ] {
            let message = one(line).unwrap_err();
            assert!(message.contains(reason), "{line}: {message}");
        }
        assert_eq!(
            one(r#"{"audio":"a.wav","text":""}"#).unwrap().text,
            "",
            "the corpus check reports empty texts"
        );
    }
}
