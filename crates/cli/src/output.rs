//! What every command prints with: results on stdout, where a reader that has seen enough (`| head`) is no failure, and
//! notices on stderr, where nothing is.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use myxtts_run::exit::Exit;
use serde::Serialize;

/// Prints text as it is.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("writing to standard output"),
    }
}

/// Like `println!`, but a reader that has seen enough ends the program instead of making it panic.
macro_rules! outln {
    ($($argument:tt)*) => {
        $crate::output::line(format_args!($($argument)*))
    };
}
pub(crate) use outln;

/// One line on stdout. Where nobody reads any more, or nothing can be written, there is nothing left to
/// print for: the program ends.
pub fn line(text: std::fmt::Arguments) {
    if let Err(error) = writeln!(std::io::stdout().lock(), "{text}") {
        let exit = if error.kind() == ErrorKind::BrokenPipe { Exit::Done } else { Exit::Io };
        std::process::exit(exit.code().into());
    }
}

/// Like `eprintln!`, but never a reason to end: a terminal that was closed or a pipe that nobody reads costs the words,
/// not the work they are about.
macro_rules! errln {
    ($($argument:tt)*) => {
        $crate::output::notice(format_args!($($argument)*))
    };
}
pub(crate) use errln;

/// One line on stderr, lost where it cannot be written.
pub fn notice(text: std::fmt::Arguments) {
    // One write: lines of several threads stay whole.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Prints a value as indented JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
