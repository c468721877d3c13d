//! What can be wrong with a configuration. All mistakes of all sources are collected and said at
//! once, so that a user does not repair a file one run at a time.

use std::path::PathBuf;

use super::sources::Origin;

/// Why there is no plan. Always the user's to repair: the program ends with exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file named by the user cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that must not be overwritten is there already.
    #[error("{} exists already; choose another name, or overwrite it with --force", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Settings that are wrong.
    #[error("{}", listed(.0))]
    Mistakes(Vec<Mistake>),
}

/// More than a screen of mistakes is another file given by mistake.
const MOST_LISTED: usize = 50;

fn listed(mistakes: &[Mistake]) -> String {
    match mistakes {
        [one] => one.to_string(),
        many => {
            let mut text = format!("{} mistakes in the configuration:", many.len());
            for mistake in many.iter().take(MOST_LISTED) {
                text.push_str("\n  ");
                text.push_str(&mistake.to_string());
            }
            if many.len() > MOST_LISTED {
                text.push_str(&format!("\n  and {} more", many.len() - MOST_LISTED));
            }
            text
        }
    }
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct Mistake {
    /// Where it was written.
    pub origin: Origin,
    /// What is wrong and what to do.
    pub problem: Problem,
}

/// What is wrong, in words that end with what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The file or the variable is no text.
    #[error("not UTF-8 text; write it as UTF-8")]
    NotUtf8,
    /// The parser gave up.
    #[error("not valid YAML: {0}")]
    Syntax(String),
    /// More than a configuration ever needs: refused before it costs memory.
    #[error("{0}")]
    TooMuch(String),
    /// YAML that we do not take part in: tags, merge keys, several documents.
    #[error("{0}")]
    Unsupported(String),
    /// The file, or a section of it, is something else than `name: value` lines.
    #[error("{what} must consist of `name: value` lines, found {found}")]
    NotAMapping {
        /// The file or the section.
        what: String,
        /// What is there instead.
        found: String,
    },
    /// There is no such section.
    #[error("unknown section {name}; the sections are data, model and training{}", did_you_mean(suggestion))]
    UnknownSection {
        /// As written.
        name: String,
        /// The nearest section.
        suggestion: Option<String>,
    },
    /// There is no such setting.
    #[error("unknown setting {path}{}", did_you_mean_or_list(suggestion))]
    UnknownKey {
        /// As written, with its section.
        path: String,
        /// The nearest setting.
        suggestion: Option<String>,
    },
    /// The setting exists, elsewhere.
    #[error("{path} is not a setting; use {instead}")]
    Misplaced {
        /// As written.
        path: String,
        /// Where it belongs.
        instead: String,
    },
    /// A name that occurs twice in one file: which of the two was meant is not ours to guess.
    #[error("{path} is set twice, first on line {first}; remove one of the two")]
    Duplicate {
        /// The setting or section.
        path: String,
        /// Line of the first.
        first: u64,
    },
    /// Not the kind of value the setting takes.
    #[error("{path} must be {allowed}, found {found}{}", did_you_mean(suggestion))]
    WrongType {
        /// The setting.
        path: String,
        /// What it takes, with its default.
        allowed: String,
        /// What was there.
        found: String,
        /// The nearest choice, or how to write it.
        suggestion: Option<String>,
    },
    /// The right kind of value, outside of what can work.
    #[error("{path} must be {allowed}, found {found}")]
    Impossible {
        /// The setting.
        path: String,
        /// What it takes, with its default.
        allowed: String,
        /// What was there.
        found: String,
    },
    /// Two settings that cannot both hold.
    #[error("{0}")]
    Contradiction(String),
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
