//! Parses a YAML file into settings, or collects everything that is wrong with it.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use super::error::{ConfigError, Mistake, Problem};
use super::key::{Key, Section};
use super::lookup;
use super::node::{Entry, MAX_BYTES, Node, tree};
use super::removed_keys::RemovedKey;
use super::sources::{Assignment, Layer, Origin};
use crate::regular_file;

/// Parses the bytes of a file; `path` is used in messages only. Never panics on any input, and reports all mistakes at
/// once.
pub fn parse_yaml(path: &Path, bytes: &[u8]) -> Result<Vec<Assignment>, ConfigError> {
    let layer = layer(path, bytes);
    if layer.mistakes.is_empty() { Ok(layer.assignments) } else { Err(ConfigError::Mistakes(layer.mistakes)) }
}

/// Reads a file, up to the maximum size of a configuration.
pub(super) fn read_layer(path: &Path) -> Result<Layer, ConfigError> {
    let mut bytes = Vec::new();
    regular_file::open(path)
        .and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    Ok(layer(path, &bytes))
}

fn layer(path: &Path, bytes: &[u8]) -> Layer {
    let mut reader = Reader { path, layer: Layer::default(), lines: HashMap::new() };
    reader.file(bytes);
    reader.layer
}

struct Reader<'a> {
    path: &'a Path,
    layer: Layer,
    /// Line where a section or setting first occurs, by its path.
    lines: HashMap<&'static str, u64>,
}

impl Reader<'_> {
    fn file(&mut self, bytes: &[u8]) {
        if bytes.len() > MAX_BYTES {
            let limit = format!("larger than {} KiB; this is not a configuration file", MAX_BYTES >> 10);
            return self.mistake(1, Problem::TooLarge(limit));
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let line = 1 + bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count();
                return self.mistake(line as u64, Problem::NotUtf8);
            }
        };
        match tree(text) {
            Err((line, problem)) => self.mistake(line, problem),
            Ok(node) if node.is_empty() => {}
            Ok(Node::Mapping(sections)) => sections.iter().for_each(|entry| self.section(entry)),
            Ok(other) => {
                let found = other.described();
                self.mistake(1, Problem::NotAMapping { what: "the file".to_owned(), found });
            }
        }
    }

    fn section(&mut self, entry: &Entry) {
        let section = match lookup::by_section(&entry.name) {
            Ok(section) => section,
            Err(problem) => return self.mistake(entry.line, explain_merge_key(entry, problem)),
        };
        self.seen(section.name(), entry.line);
        match &entry.value {
            empty if empty.is_empty() => {}
            Node::Mapping(settings) => settings.iter().for_each(|entry| self.setting(section, entry)),
            other => {
                let what = format!("section {}", section.name());
                self.mistake(entry.line, Problem::NotAMapping { what, found: other.described() });
            }
        }
    }

    fn setting(&mut self, section: Section, entry: &Entry) {
        let path = format!("{}.{}", section.name(), entry.name);
        if let Some(removed) = RemovedKey::find(&path) {
            self.seen(removed.path, entry.line);
            let origin = self.origin(entry.line);
            return self.layer.notes.push(removed.note(&origin, &path));
        }
        let key: &'static Key = match lookup::by_name(section, &entry.name) {
            Ok(key) => key,
            Err(problem) => return self.mistake(entry.line, explain_merge_key(entry, problem)),
        };
        self.seen(key.path, entry.line);
        match key.read(&entry.value) {
            Ok(value) => {
                let origin = self.origin(entry.line);
                self.layer.assignments.push(Assignment { key, value, origin });
            }
            Err(problem) => self.mistake(entry.line, problem),
        }
    }

    /// Reports a section or setting that occurs a second time, under any of its names.
    fn seen(&mut self, path: &'static str, line: u64) {
        if let Some(first) = self.lines.insert(path, line) {
            self.lines.insert(path, first);
            self.mistake(line, Problem::Duplicate { path: path.to_owned(), first });
        }
    }

    fn mistake(&mut self, line: u64, problem: Problem) {
        let origin = self.origin(line);
        self.layer.mistakes.push(Mistake { origin, problem });
    }

    fn origin(&self, line: u64) -> Origin {
        Origin::File { path: self.path.to_owned(), line }
    }
}

fn explain_merge_key(entry: &Entry, problem: Problem) -> Problem {
    if &*entry.name == "<<" {
        return Problem::Unsupported("merge keys (<<) are not supported; write the settings out".to_owned());
    }
    problem
}
