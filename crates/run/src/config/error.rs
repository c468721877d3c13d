//! Configuration errors. All mistakes of all sources are collected and reported together, so that a user can fix them
//! in one go.

use std::path::PathBuf;

use super::sources::Origin;

/// Why no plan could be made. Always the user's to fix: the program ends with exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file already exists and must not be overwritten.
    #[error("{} already exists; choose another name, or overwrite it with --force", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Invalid settings, all of them.
    #[error("{}", listed(.0))]
    Mistakes(Vec<Mistake>),
}

/// Mistakes listed in a message; a file with more is probably not a configuration.
const MAX_LISTED: usize = 50;

fn listed(mistakes: &[Mistake]) -> String {
    match mistakes {
        [one] => one.to_string(),
        many => {
            let mut text = format!("{} errors in the configuration:", many.len());
            for mistake in many.iter().take(MAX_LISTED) {
                text.push_str("\n  ");
                text.push_str(&mistake.to_string());
            }
            if many.len() > MAX_LISTED {
                text.push_str(&format!("\n  and {} more", many.len() - MAX_LISTED));
            }
            text
        }
    }
}

/// One problem and where it is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct Mistake {
    /// Where it was written.
    pub origin: Origin,
    /// What is wrong and what to do.
    pub problem: Problem,
}

/// What is wrong; the message ends with what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The file or the variable is not UTF-8.
    #[error("not UTF-8 text; write it as UTF-8")]
    NotUtf8,
    /// The file is not valid YAML.
    #[error("not valid YAML: {0}")]
    Syntax(String),
    /// The file exceeds a size limit, and is rejected before it uses much memory.
    #[error("{0}")]
    TooLarge(String),
    /// Valid YAML that is not supported: tags, merge keys, several documents.
    #[error("{0}")]
    Unsupported(String),
    /// The file, or a section of it, is not a mapping.
    #[error("{what} must consist of `name: value` lines, found {found}")]
    NotAMapping {
        /// The file or the section.
        what: String,
        /// Description of what was found.
        found: String,
    },
    /// Unknown section.
    #[error("unknown section {name}; the sections are data, model and training{}", did_you_mean(suggestion))]
    UnknownSection {
        /// As written.
        name: String,
        /// The most similar section.
        suggestion: Option<String>,
    },
    /// Unknown setting.
    #[error("unknown setting {path}{}", did_you_mean_or_list(suggestion))]
    UnknownKey {
        /// As written, with its section.
        path: String,
        /// The most similar setting.
        suggestion: Option<String>,
    },
    /// The setting exists in another place.
    #[error("{path} is not a setting; use {instead}")]
    Misplaced {
        /// As written.
        path: String,
        /// Where it belongs.
        instead: String,
    },
    /// A name that occurs twice in one file. Which one was meant is not guessed.
    #[error("{path} is set twice, first on line {first}; remove one of them")]
    Duplicate {
        /// The setting or section.
        path: String,
        /// Line of the first occurrence.
        first: u64,
    },
    /// A value of the wrong type.
    #[error("{path} must be {allowed}, found {found}{}", did_you_mean(suggestion))]
    WrongType {
        /// The setting.
        path: String,
        /// Accepted values and the default.
        allowed: String,
        /// Description of what was found.
        found: String,
        /// The most similar choice, or the correct notation.
        suggestion: Option<String>,
    },
    /// A value of the right type outside the accepted range.
    #[error("{path} must be {allowed}, found {found}")]
    OutOfRange {
        /// The setting.
        path: String,
        /// Accepted values and the default.
        allowed: String,
        /// Description of what was found.
        found: String,
    },
    /// Two settings that exclude each other.
    #[error("{0}")]
    Conflict(String),
    /// `--set` without `=`.
    #[error("expected KEY=VALUE such as data.batch_size=32, found {0}")]
    NotAnAssignment(String),
}

fn did_you_mean(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

fn did_you_mean_or_list(suggestion: &Option<String>) -> String {
    match suggestion {
        Some(_) => did_you_mean(suggestion),
        None => "; `myxtts config keys` lists all settings".to_owned(),
    }
}
