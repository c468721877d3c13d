//! One setting: its name, the values it accepts, its default and its documentation.

use super::keys::KEYS;
use super::value::Value;

/// A section of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Section {
    /// Corpus, features, cache, batches, loading.
    Data,
    /// The network.
    Model,
    /// Training and devices.
    Training,
}

impl Section {
    /// All sections, in display order.
    pub const ALL: [Section; 3] = [Section::Data, Section::Model, Section::Training];

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Section::Data => "data",
            Section::Model => "model",
            Section::Training => "training",
        }
    }

    /// One-line description, for display.
    pub fn doc(self) -> &'static str {
        match self {
            Section::Data => "the corpus, its features, the cache, and how batches are built",
            Section::Model => "the network to train",
            Section::Training => "how the network is trained, and on which devices",
        }
    }

    /// Finds a section by its name.
    pub fn find(name: &str) -> Option<Section> {
        Section::ALL.into_iter().find(|section| section.name() == name)
    }

    /// The settings of the section, in table order.
    pub fn keys(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(move |key| key.section() == self)
    }
}

/// Values that a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// `true` or `false`.
    Bool,
    /// An integer in a closed range.
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
    /// One of the given words.
    Choice(&'static [&'static str]),
    /// A list of the given words without duplicates.
    Choices(&'static [&'static str]),
    /// Free text.
    Text,
    /// A file or folder, relative to the working directory.
    Path,
    /// One path, or a list of paths without duplicates.
    Paths,
    /// A language code: `en`, `fa`, `zh-cn`.
    Language,
    /// Index of one GPU.
    Gpu,
    /// Indices of distinct GPUs, written `0,1`.
    Gpus,
}

/// One setting; [`KEYS`] is the table of all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Section and name: `data.batch_size`.
    pub path: &'static str,
    /// Values it accepts.
    pub kind: ValueKind,
    /// Default value as a user would write it; `null` for a setting that may be left unset.
    pub default: &'static str,
    /// One line: what it does, its unit, and why the default is what it is.
    pub doc: &'static str,
    /// Names of the same setting in older files, without the section.
    pub aliases: &'static [&'static str],
    /// Its command-line flag, without the dashes; `None` where only `--set` sets it.
    pub flag: Option<&'static str>,
}

impl Key {
    /// Creates an entry without aliases and without a flag.
    pub const fn new(path: &'static str, kind: ValueKind, default: &'static str, doc: &'static str) -> Key {
        Key { path, kind, default, doc, aliases: &[], flag: None }
    }

    /// Adds names used in older files.
    pub const fn alias(self, aliases: &'static [&'static str]) -> Key {
        Key { aliases, ..self }
    }

    /// Adds a command-line flag.
    pub const fn flag(self, flag: &'static str) -> Key {
        Key { flag: Some(flag), ..self }
    }

    /// The section it belongs to.
    pub fn section(&self) -> Section {
        self.path
            .split_once('.')
            .and_then(|(section, _)| Section::find(section))
            .expect("every path in the table begins with a section; a test checks all of them")
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

    /// Describes the accepted values: `an integer from 1 to 4096`.
    pub fn allowed(&self) -> String {
        let description = match self.kind {
            ValueKind::Bool => "true or false".to_owned(),
            ValueKind::Int { min, max } => format!("an integer from {min} to {max}"),
            ValueKind::Float { min, max } => format!("a number from {min} to {max}"),
            ValueKind::Size { min, max } => {
                format!(
                    "an amount of memory such as 24GiB, from {} to {}",
                    Value::Bytes(min),
                    Value::Bytes(max)
                )
            }
            ValueKind::Choice(choices) => format!("one of {}", choices.join(", ")),
            ValueKind::Choices(choices) => format!("a list of words from {}", choices.join(", ")),
            ValueKind::Text => "text".to_owned(),
            ValueKind::Path => "a path".to_owned(),
            ValueKind::Paths => "a path, or a list such as [a, b]".to_owned(),
            ValueKind::Language => "a language code such as en, fa or zh-cn".to_owned(),
            ValueKind::Gpu => "a GPU index such as 0".to_owned(),
            ValueKind::Gpus => "distinct GPU indices such as \"0,1\"".to_owned(),
        };
        if self.optional() { description + ", or null" } else { description }
    }

    /// Describes the accepted values and the default.
    pub(super) fn allowed_and_default(&self) -> String {
        if self.optional() {
            self.allowed()
        } else {
            format!("{} (default {})", self.allowed(), self.default)
        }
    }

    /// Finds a setting of a section by its name or an alias.
    pub fn find_in(section: Section, name: &str) -> Option<&'static Key> {
        section.keys().find(|key| key.name() == name || key.aliases.contains(&name))
    }

    /// Finds a setting by its path or an alias: `data.batch_size`, `data.use_tf_native_loading`.
    pub fn find(path: &str) -> Option<&'static Key> {
        let (section, name) = path.split_once('.')?;
        Key::find_in(Section::find(section)?, name)
    }
}
