//! The text to speak: from the argument, a file or standard input.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::failure::UsageError;

/// A text with its size in bytes; `None` if that is unknown.
pub struct Text {
    pub reader: Box<dyn Read>,
    pub bytes: Option<u64>,
    /// Its beginning, for guessing its language.
    pub beginning: String,
}

/// Number of bytes used for guessing the language.
const GUESS_BYTES: usize = 4096;

const NO_TEXT: &str = "no text given: pass TEXT, --file, or text on standard input";

impl Text {
    /// Opens the argument, the file or standard input, whichever is given.
    pub fn find(argument: Option<String>, file: Option<&Path>) -> anyhow::Result<Text> {
        match (argument, file) {
            (Some(text), None) if text == "-" => Text::stdin(),
            (Some(text), None) => {
                let bytes = Some(text.len() as u64);
                let beginning = text.chars().take(GUESS_BYTES / 4).collect();
                Ok(Text { reader: Box::new(std::io::Cursor::new(text.into_bytes())), bytes, beginning })
            }
            (None, Some(path)) if path == Path::new("-") => Text::stdin(),
            (None, Some(path)) => {
                let file =
                    File::open(path).with_context(|| format!("cannot open the text {}", path.display()))?;
                let found = file.metadata().with_context(|| format!("cannot read {}", path.display()))?;
                if found.is_dir() {
                    return Err(UsageError(format!(
                        "--file {} is a folder: name a text file",
                        path.display()
                    ))
                    .into());
                }
                Text::with_beginning(Box::new(file), found.is_file().then_some(found.len()))
            }
            (None, None) if !std::io::stdin().is_terminal() => Text::stdin(),
            (None, None) => Err(UsageError(NO_TEXT.to_owned()).into()),
            (Some(_), Some(_)) => Err(UsageError("give a text or --file, not both".to_owned()).into()),
        }
    }

    fn stdin() -> anyhow::Result<Text> {
        let text = Text::with_beginning(Box::new(std::io::stdin()), None)?;
        // A read of nothing is the end.
        if text.beginning.is_empty() {
            return Err(UsageError(NO_TEXT.to_owned()).into());
        }
        Ok(text)
    }

    /// Reads the beginning of a text, which `reader` then yields again.
    fn with_beginning(mut reader: Box<dyn Read>, bytes: Option<u64>) -> anyhow::Result<Text> {
        // One read, so that a slow writer does not delay the start.
        let mut first = vec![0; GUESS_BYTES];
        let read = reader.read(&mut first).context("cannot read the text")?;
        first.truncate(read);
        let beginning = String::from_utf8_lossy(&first).into_owned();
        Ok(Text { reader: Box::new(std::io::Cursor::new(first).chain(reader)), bytes, beginning })
    }
}

/// The first name that does not exist yet: `speech.wav`, `speech-2.wav`, ...
pub fn free_name(stem: &str, extension: &str) -> PathBuf {
    let name = |number: u64| match number {
        1 => PathBuf::from(format!("{stem}.{extension}")),
        number => PathBuf::from(format!("{stem}-{number}.{extension}")),
    };
    (1..).map(name).find(|path| path.symlink_metadata().is_err()).unwrap_or_else(|| name(1))
}
