//! Finds a setting by the name a user wrote, or suggests the one that was probably meant.

use super::error::Problem;
use super::key::{Key, Section};
use super::keys::KEYS;
use super::node::clipped;

/// Finds a setting by a path such as `data.batch_size`.
pub(super) fn by_path(path: &str) -> Result<&'static Key, Problem> {
    match path.split_once('.') {
        Some((section, name)) => by_name(by_section(section)?, name),
        None if Section::find(path).is_some() => Err(misplaced(path, format!("{path}.NAME"))),
        None => match anywhere(path) {
            Some(key) => Err(misplaced(path, key.path.to_owned())),
            None => Err(unknown(path, KEYS.iter(), path)),
        },
    }
}

/// Finds a section by its name.
pub(super) fn by_section(name: &str) -> Result<Section, Problem> {
    Section::find(name).ok_or_else(|| {
        // A setting at the left margin: the line of its section is missing.
        match anywhere(name).or_else(|| Key::find(name)) {
            Some(key) => {
                misplaced(name, format!("{} inside the section {}", key.name(), key.section().name()))
            }
            None => Problem::UnknownSection {
                name: clipped(name),
                suggestion: nearest(name, Section::ALL.map(Section::name)).map(str::to_owned),
            },
        }
    })
}

/// Finds a setting in a section by its name.
pub(super) fn by_name(section: Section, name: &str) -> Result<&'static Key, Problem> {
    if let Some(key) = Key::find_in(section, name) {
        return Ok(key);
    }
    let path = format!("{}.{name}", section.name());
    match anywhere(name) {
        Some(key) => Err(misplaced(&path, key.path.to_owned())),
        None => Err(match unknown(&path, section.keys(), name) {
            Problem::UnknownKey { suggestion: None, .. } => unknown(&path, KEYS.iter(), name),
            near => near,
        }),
    }
}

/// Finds a setting by its name in any section. Names are unique across sections.
fn anywhere(name: &str) -> Option<&'static Key> {
    Section::ALL.into_iter().find_map(|section| Key::find_in(section, name))
}

fn misplaced(path: &str, instead: String) -> Problem {
    Problem::Misplaced { path: path.to_owned(), instead }
}

fn unknown(path: &str, keys: impl Iterator<Item = &'static Key>, name: &str) -> Problem {
    let names = keys.flat_map(|key| std::iter::once(key.name()).chain(key.aliases.iter().copied()));
    let suggestion = nearest(name, names).and_then(anywhere).map(|key| key.path.to_owned());
    Problem::UnknownKey { path: clipped(path), suggestion }
}

/// The candidate most similar to `written`; `None` where none is similar.
pub fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The tolerance grows with the length; names of up to four letters tolerate one edit.
    let written = written.to_lowercase();
    let length = written.chars().count();
    if length == 0 || length > 64 {
        return None;
    }
    let tolerance = (length / 4).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let distance = strsim::damerau_levenshtein(&written, candidate);
            // `workers` for `num_workers`: a part of the name that is long enough to be specific.
            let part = length >= 4 && candidate.contains(&written);
            (distance <= tolerance || part).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn similar_names_are_suggested_and_others_are_not() {
        let names = ["batch_size", "buffer_size", "num_workers", "seed"];
        assert_eq!(nearest("batch_sise", names), Some("batch_size"));
        assert_eq!(nearest("Batch_Size", names), Some("batch_size"));
        assert_eq!(nearest("workers", names), Some("num_workers"));
        assert_eq!(nearest("sed", names), Some("seed"));
        assert_eq!(nearest("learning_rate", names), None);
        assert_eq!(nearest("", names), None);
    }
}
