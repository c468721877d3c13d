//! One value: parsed as its setting requires, displayed, and written back as YAML.

use std::fmt;

use serde::Serialize;

use super::error::Problem;
use super::key::{Key, ValueKind};
use super::lookup::nearest;
use super::node::Node;

/// Largest accepted GPU index; more than any machine has.
const MAX_GPU: u32 = 1023;
/// Maximum length of a text or path in bytes: Linux's limit for paths.
const MAX_TEXT_BYTES: usize = 4096;
/// Units of memory, largest first. There is no bare `g`: it may mean 10^9 or 2^30.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// A value that is valid for its setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Left unset.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer, or the index of a GPU.
    Int(u64),
    /// A floating-point number.
    Float(f64),
    /// An amount of memory in bytes.
    Bytes(u64),
    /// A choice, a text or a path.
    Text(String),
    /// Several choices or paths.
    List(Vec<String>),
    /// Indices of GPUs.
    Ids(Vec<u32>),
}

impl Value {
    /// Formats the value as it is written in a YAML file.
    pub fn to_yaml(&self) -> String {
        match self {
            Value::Text(text) => quoted_where_needed(text),
            Value::List(words) => {
                let words: Vec<_> = words.iter().map(|word| quoted_where_needed(word)).collect();
                format!("[{}]", words.join(", "))
            }
            Value::Ids(_) => format!("\"{self}\""),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Bytes(_) => {
                self.to_string()
            }
        }
    }
}

/// Leaves plain words unquoted; everything else becomes a JSON string, which is valid YAML.
fn quoted_where_needed(text: &str) -> String {
    let simple = |c: char| c.is_ascii_alphanumeric() || "_/.-".contains(c);
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(simple)
        && !is_null(text);
    if plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Bytes(bytes) => {
                // The largest unit that represents it exactly, so that it is read back unchanged.
                let binary = UNITS.iter().filter(|(name, _)| name.contains('i'));
                match binary.into_iter().find(|(_, unit)| *bytes > 0 && bytes.is_multiple_of(*unit)) {
                    Some((name, unit)) => write!(f, "{}{name}", bytes / unit),
                    None => write!(f, "{bytes}B"),
                }
            }
            Value::Text(value) => f.write_str(value),
            Value::List(values) => f.write_str(&values.join(", ")),
            Value::Ids(ids) => {
                let ids: Vec<_> = ids.iter().map(u32::to_string).collect();
                f.write_str(&ids.join(","))
            }
        }
    }
}

impl Key {
    /// The default, parsed.
    pub fn default_value(&self) -> Value {
        self.read_text(self.default).expect("every default in the table is valid; a test checks all of them")
    }

    /// Parses text from an environment variable, a flag or the table.
    pub fn read_text(&self, text: &str) -> Result<Value, Problem> {
        self.read(&Node::Scalar { text: text.trim().into(), plain: true })
    }

    /// Parses a node of a YAML file.
    pub(super) fn read(&self, node: &Node) -> Result<Value, Problem> {
        if let Node::Scalar { text, plain: true } = node
            && is_null(text)
        {
            return if self.optional() { Ok(Value::Null) } else { Err(self.wrong_type(node, None)) };
        }
        match self.kind {
            ValueKind::Bool => self.read_bool(node),
            ValueKind::Int { min, max } => self.read_int(node, min, max),
            ValueKind::Float { min, max } => self.read_float(node, min, max),
            ValueKind::Size { min, max } => self.read_size(node, min, max),
            ValueKind::Choice(choices) => self.read_choice(node, choices).map(Value::Text),
            ValueKind::Choices(choices) => self.read_choices(node, choices),
            ValueKind::Text | ValueKind::Path => self.read_free_text(node),
            ValueKind::Paths => self.read_paths(node),
            ValueKind::Language => self.read_language(node),
            ValueKind::Gpu => match &self.read_gpus(node)?[..] {
                [id] => Ok(Value::Int(u64::from(*id))),
                _ => Err(self.wrong_type(node, None)),
            },
            ValueKind::Gpus => self.read_gpus(node).map(Value::Ids),
        }
    }

    fn read_bool(&self, node: &Node) -> Result<Value, Problem> {
        // yes/no and on/off: older files were read as YAML 1.1, where these are booleans.
        match node.plain().map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "yes" | "on") => Ok(Value::Bool(true)),
            Some("false" | "no" | "off") => Ok(Value::Bool(false)),
            _ => Err(self.wrong_type(node, None)),
        }
    }

    fn read_int(&self, node: &Node, min: u64, max: u64) -> Result<Value, Problem> {
        let Some(text) = node.plain().filter(|text| is_integer(text)) else {
            let bare =
                node.scalar().filter(|text| is_integer(text)).map(|text| format!("{text} without quotes"));
            return Err(self.wrong_type(node, bare));
        };
        // A number too large for i128 is still an integer, only out of range.
        let number: Option<u64> =
            text.replace('_', "").parse::<i128>().ok().and_then(|n| u64::try_from(n).ok());
        match number {
            Some(number) if (min..=max).contains(&number) => Ok(Value::Int(number)),
            _ => Err(self.out_of_range(node)),
        }
    }

    fn read_float(&self, node: &Node, min: f64, max: f64) -> Result<Value, Problem> {
        // A digit is required because Rust also parses "inf", "infinity" and "nan".
        let is_number =
            |text: &&str| text.contains(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok();
        let Some(text) = node.plain().filter(is_number) else {
            let bare = node.scalar().filter(is_number).map(|text| format!("{text} without quotes"));
            return Err(self.wrong_type(node, bare));
        };
        match text.parse::<f64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(Value::Float(number)),
            _ => Err(self.out_of_range(node)),
        }
    }

    fn read_size(&self, node: &Node, min: u64, max: u64) -> Result<Value, Problem> {
        let text = node.scalar().ok_or_else(|| self.wrong_type(node, None))?;
        let text = text.to_ascii_lowercase();
        let unit = UNITS
            .iter()
            .find_map(|(name, size)| Some((text.strip_suffix(&name.to_lowercase())?.trim_end(), *size)));
        let Some((number, size)) = unit else {
            // A number without a unit nearly always means gigabytes, and would be read as bytes.
            let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
            let bare = digits.starts_with(|c: char| c.is_ascii_digit()) && digits.parse::<f64>().is_ok();
            return Err(self.wrong_type(node, bare.then(|| format!("{digits}GiB"))));
        };
        let plain = number.starts_with(|c: char| c.is_ascii_digit());
        let bytes = match number.parse::<u64>() {
            Ok(whole) => whole.saturating_mul(size),
            // `as` saturates.
            Err(_) if plain => match number.parse::<f64>() {
                Ok(number) => (number * size as f64) as u64,
                Err(_) => return Err(self.wrong_type(node, None)),
            },
            Err(_) => return Err(self.wrong_type(node, None)),
        };
        if (min..=max).contains(&bytes) { Ok(Value::Bytes(bytes)) } else { Err(self.out_of_range(node)) }
    }

    fn read_choice(&self, node: &Node, choices: &[&str]) -> Result<String, Problem> {
        let text = node.scalar().ok_or_else(|| self.wrong_type(node, None))?;
        if choices.contains(&text) {
            return Ok(text.to_owned());
        }
        Err(self.wrong_type(node, nearest(text, choices.iter().copied()).map(str::to_owned)))
    }

    fn read_choices(&self, node: &Node, choices: &[&str]) -> Result<Value, Problem> {
        let mut words = Vec::new();
        for item in self.items(node)? {
            let word = self.read_choice(&item, choices)?;
            if words.contains(&word) {
                return Err(self.out_of_range_as(format!("{word} twice")));
            }
            words.push(word);
        }
        Ok(Value::List(words))
    }

    fn read_free_text(&self, node: &Node) -> Result<Value, Problem> {
        // These texts are printed and become file names: no control characters, no excessive length.
        let is_invalid = |text: &str| {
            text.trim().is_empty() || text.contains(char::is_control) || text.len() > MAX_TEXT_BYTES
        };
        match node.scalar() {
            Some(text) if is_invalid(text) => Err(self.out_of_range(node)),
            Some(text) => Ok(Value::Text(text.to_owned())),
            None => Err(self.wrong_type(node, None)),
        }
    }

    /// Parses a YAML list or a bracketed text; anything else is one path, including its commas.
    fn read_paths(&self, node: &Node) -> Result<Value, Problem> {
        let items = match node {
            Node::List(_) => self.items(node)?,
            Node::Scalar { text, plain: true } if text.starts_with('[') && text.ends_with(']') => {
                let inside = &text[1..text.len() - 1];
                let words = serde_json::from_str(text).unwrap_or_else(|_| {
                    inside.split(',').map(|word| word.trim().to_owned()).collect::<Vec<String>>()
                });
                words.into_iter().map(|word| Node::Scalar { text: word.into(), plain: false }).collect()
            }
            one => vec![one.clone()],
        };
        let mut paths = Vec::new();
        for item in items {
            let Value::Text(path) = self.read_free_text(&item)? else {
                return Err(self.wrong_type(node, None));
            };
            if paths.contains(&path) {
                return Err(self.out_of_range_as(format!("{path} twice")));
            }
            paths.push(path);
        }
        match <[String; 1]>::try_from(paths) {
            Ok([one]) => Ok(Value::Text(one)),
            Err(paths) if paths.is_empty() => Err(self.out_of_range_as("an empty list".to_owned())),
            Err(paths) => Ok(Value::List(paths)),
        }
    }

    fn read_language(&self, node: &Node) -> Result<Value, Problem> {
        let code = node.scalar().map(str::to_ascii_lowercase).ok_or_else(|| self.wrong_type(node, None))?;
        let (language, region) = code.split_once('-').unwrap_or((&code, "xx"));
        let valid = (2..=3).contains(&language.len())
            && language.bytes().all(|b| b.is_ascii_lowercase())
            && (2..=8).contains(&region.len())
            && region.bytes().all(|b| b.is_ascii_alphanumeric());
        if valid { Ok(Value::Text(code)) } else { Err(self.out_of_range(node)) }
    }

    fn read_gpus(&self, node: &Node) -> Result<Vec<u32>, Problem> {
        let mut ids = Vec::new();
        for item in self.items(node)? {
            let id = item
                .scalar()
                .filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|text| text.parse::<u32>().ok())
                .filter(|id| *id <= MAX_GPU)
                .ok_or_else(|| self.wrong_type(node, None))?;
            if ids.contains(&id) {
                return Err(self.out_of_range_as(format!("{id} twice")));
            }
            ids.push(id);
        }
        Ok(ids)
    }

    /// Items of a YAML list or of a comma-separated text. Never empty: no setting accepts an empty list.
    fn items(&self, node: &Node) -> Result<Vec<Node>, Problem> {
        match node {
            Node::Scalar { text, plain } => Ok(text
                .split(',')
                .map(|item| Node::Scalar { text: item.trim().into(), plain: *plain })
                .collect()),
            Node::List(items) if !items.is_empty() => Ok(items.clone()),
            Node::List(_) => Err(self.out_of_range_as("an empty list".to_owned())),
            Node::Mapping(_) => Err(self.wrong_type(node, None)),
        }
    }

    fn wrong_type(&self, node: &Node, suggestion: Option<String>) -> Problem {
        Problem::WrongType {
            path: self.path.to_owned(),
            allowed: self.allowed_and_default(),
            found: node.described(),
            suggestion,
        }
    }

    fn out_of_range(&self, node: &Node) -> Problem {
        self.out_of_range_as(node.described())
    }

    fn out_of_range_as(&self, found: String) -> Problem {
        Problem::OutOfRange { path: self.path.to_owned(), allowed: self.allowed_and_default(), found }
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Digits with an optional sign and, as in PyYAML, underscores between them.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, text: &str) -> Result<Value, Problem> {
        Key::find(path).unwrap().read_text(text)
    }

    #[test]
    fn numbers_at_and_past_their_limits() {
        assert_eq!(read("data.batch_size", "4096"), Ok(Value::Int(4096)));
        assert_eq!(read("data.batch_size", "1_000"), Ok(Value::Int(1000)));
        assert_eq!(read("training.seed", "18446744073709551615"), Ok(Value::Int(u64::MAX)));
        assert_eq!(read("data.val_fraction", "0"), Ok(Value::Float(0.0)));
        for text in ["4097", "0", "-1", "99999999999999999999999999999999999999999999"] {
            assert!(matches!(read("data.batch_size", text), Err(Problem::OutOfRange { .. })), "{text}");
        }
        for text in ["8.0", "1e1", "eight", "", "_8", "8_", "0x8", "null"] {
            assert!(matches!(read("data.batch_size", text), Err(Problem::WrongType { .. })), "{text}");
        }
        assert!(matches!(read("data.val_fraction", "1e999"), Err(Problem::OutOfRange { .. })));
        for text in ["nan", "inf", ".inf", "-infinity"] {
            assert!(matches!(read("data.val_fraction", text), Err(Problem::WrongType { .. })), "{text}");
        }
    }

    #[test]
    fn gpu_indices_in_all_spellings() {
        assert_eq!(read("data.model_gpu", "1"), Ok(Value::Ids(vec![1])));
        assert_eq!(read("data.model_gpu", "1, 2,3"), Ok(Value::Ids(vec![1, 2, 3])));
        assert_eq!(read("data.model_gpu", "null"), Ok(Value::Null));
        assert_eq!(read("data.data_gpu", "0"), Ok(Value::Int(0)));
        for text in ["0,0", "-1", "0,", "a", "4294967296", "+1"] {
            assert!(read("training.visible_gpus", text).is_err(), "{text}");
        }
        assert!(read("data.data_gpu", "0,1").is_err());
    }

    #[test]
    fn memory_in_all_spellings() {
        let read = |text| read("training.memory_limit", text);
        for (text, bytes, shown) in [
            ("24GiB", 24 << 30, "24GiB"),
            ("24 gib", 24 << 30, "24GiB"),
            ("24GB", 24_000_000_000, "23437500KiB"),
            ("1.5GiB", 3 << 29, "1536MiB"),
            ("2TiB", 2 << 40, "2TiB"),
            ("2147483649B", (2 << 30) + 1, "2147483649B"),
        ] {
            assert_eq!(read(text), Ok(Value::Bytes(bytes)), "{text}");
            assert_eq!(Value::Bytes(bytes).to_string(), shown);
            assert_eq!(read(shown), Ok(Value::Bytes(bytes)), "{shown}");
        }
        for text in ["24", "24G", "GiB", "-1GiB", "infGiB", "1e", "many"] {
            assert!(matches!(read(text), Err(Problem::WrongType { .. })), "{text}");
        }
        for text in ["1KiB", "0B", "99999999999999999999TiB", "1e300GiB"] {
            assert!(matches!(read(text), Err(Problem::OutOfRange { .. })), "{text}");
        }
        let Err(Problem::WrongType { suggestion, .. }) = read("24") else { panic!() };
        assert_eq!(suggestion.as_deref(), Some("24GiB"));
    }

    #[test]
    fn texts_that_look_like_other_types_stay_texts() {
        assert_eq!(read("data.language", "no"), Ok(Value::Text("no".into())), "Norwegian, not false");
        assert_eq!(read("data.language", "zh-CN"), Ok(Value::Text("zh-cn".into())));
        assert_eq!(read("data.speaker", "007"), Ok(Value::Text("007".into())), "not seven");
        assert!(read("data.language", "English").is_err());
        assert!(read("data.speaker", &"x".repeat(5000)).is_err());
        assert!(read("data.train_data", "a\u{1b}[2Jb").is_err());
    }
}
