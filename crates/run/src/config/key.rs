//! What is known of one setting: its name, what it takes, what it is when nobody says.

use super::keys::KEYS;
use super::value::Value;

/// The three sections of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Section {
    /// Corpus, features, cache, batches, loading.
    Data,
    /// Which network.
    Model,
    /// How it is trained.
    Training,
}

impl Section {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Section; 3] = [Section::Data, Section::Model, Section::Training];

    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Section::Data => "data",
            Section::Model => "model",
            Section::Training => "training",
        }
    }

    /// What the section is about, for people.
    pub fn doc(self) -> &'static str {
        match self {
            Section::Data => "the corpus, what is computed from it, and how batches are made of it",
            Section::Model => "which network is trained",
            Section::Training => "how it is trained, and on which devices",
        }
    }

    /// The section of that name.
    pub fn find(name: &str) -> Option<Section> {
        Section::ALL.into_iter().find(|section| section.name() == name)
    }

    /// Its settings in the order of the table.
    pub fn keys(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(move |key| key.section() == self)
    }
}

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number in a closed range.
    Int {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A number in a closed range.
    Float {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// An amount of memory, written `24GiB`, in a closed range of bytes.
    Size {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// Some of a few words, each once.
    Choices(&'static [&'static str]),
    /// Words of the user's own.
    Text,
    /// A file or folder, relative to the working folder.
    Path,
    /// Some of those, each once; one alone is written as a path.
    Paths,
    /// A language code: `en`, `fa`, `zh-cn`.
    Language,
    /// The number of one GPU.
    Gpu,
    /// Numbers of distinct GPUs, written `0,1`.
    Gpus,
}

/// One setting. The entries stand in [`KEYS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Section and name: `data.batch_size`.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is when nobody says, written as a user would write it; `null` for a setting that may
    /// be left unset.
    pub default: &'static str,
    /// One line: what it does, and why the default is what it is.
    pub doc: &'static str,
    /// Names of older files for the same thing.
    pub aliases: &'static [&'static str],
    /// Its own flag, without the dashes.
    pub flag: Option<&'static str>,
}

impl Key {
    /// An entry without aliases and flag.
    pub const fn new(path: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
        Key { path, kind, default, doc, aliases: &[], flag: None }
    }

    /// The same with names of older files.
    pub const fn alias(self, aliases: &'static [&'static str]) -> Key {
        Key { aliases, ..self }
    }

    /// The same with a flag of its own.
    pub const fn flag(self, flag: &'static str) -> Key {
        Key { flag: Some(flag), ..self }
    }

    /// The section it stands in.
    pub fn section(&self) -> Section {
        self.path
            .split_once('.')
            .and_then(|(section, _)| Section::find(section))
            .expect("every path of the table begins with a section; a test reads them all")
    }

    /// Its name within the section.
    pub fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// Its environment variable: `MYXTTS_DATA__BATCH_SIZE`.
    pub fn variable(&self) -> String {
        format!("MYXTTS_{}", self.path.replace('.', "__").to_uppercase())
    }

    /// Whether it may be left unset.
    pub fn optional(&self) -> bool {
        self.default == "null"
    }

    /// What it takes, in words: `an integer from 1 to 4096`.
    pub fn allowed(&self) -> String {
        let words = match self.kind {
            Kind::Bool => "true or false".to_owned(),
            Kind::Int { min, max } => format!("an integer from {min} to {max}"),
            Kind::Float { min, max } => format!("a number from {min} to {max}"),
            Kind::Size { min, max } => {
                format!(
                    "an amount of memory such as 24GiB, from {} to {}",
                    Value::Bytes(min),
                    Value::Bytes(max)
                )
            }
            Kind::Choice(choices) => format!("one of {}", choices.join(", ")),
            Kind::Choices(choices) => format!("a list of some of {}", choices.join(", ")),
            Kind::Text => "a text".to_owned(),
            Kind::Path => "a path".to_owned(),
            Kind::Paths => "a path, or a list such as [a, b]".to_owned(),
            Kind::Language => "a language code such as en, fa or zh-cn".to_owned(),
            Kind::Gpu => "the number of a GPU such as 0".to_owned(),
            Kind::Gpus => "distinct numbers of GPUs such as \"0,1\"".to_owned(),
        };
        if self.optional() { words + ", or null" } else { words }
    }

    /// What it takes and what it is when nobody says.
    pub fn allowed_and_default(&self) -> String {
        if self.optional() {
            self.allowed()
        } else {
            format!("{} (default {})", self.allowed(), self.default)
        }
    }

    /// The setting of that name, or of that older name, in a section.
    pub fn find_in(section: Section, name: &str) -> Option<&'static Key> {
        section.keys().find(|key| key.name() == name || key.aliases.contains(&name))
    }

    /// The setting of that path: `data.batch_size`, `data.use_tf_native_loading`.
    pub fn find(path: &str) -> Option<&'static Key> {
        let (section, name) = path.split_once('.')?;
        Key::find_in(Section::find(section)?, name)
    }
}
