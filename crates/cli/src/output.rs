//! Printing: results on stdout, where a closed pipe (`| head`) is no failure, and notices on stderr, where errors are
//! ignored.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use myxtts_run::exit::Exit;
use serde::Serialize;

/// Prints text to stdout.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("writing to standard output"),
    }
}

/// Like `println!`, but ends the program instead of panicking when the pipe is closed.
macro_rules! outln {
    ($($argument:tt)*) => {
        $crate::output::line(format_args!($($argument)*))
    };
}
pub(crate) use outln;

/// Prints one line to stdout. Ends the program if that fails: with exit code 0 if the pipe was closed.
pub fn line(text: std::fmt::Arguments) {
    if let Err(error) = writeln!(std::io::stdout().lock(), "{text}") {
        let exit = if error.kind() == ErrorKind::BrokenPipe { Exit::Done } else { Exit::Io };
        std::process::exit(exit.code().into());
    }
}

/// Like `eprintln!`, but ignores errors: a closed terminal or pipe must not end the work that reports there.
macro_rules! errln {
    ($($argument:tt)*) => {
        $crate::output::notice(format_args!($($argument)*))
    };
}
pub(crate) use errln;

/// Prints one line to stderr, and ignores errors.
pub fn notice(text: std::fmt::Arguments) {
    // A single write, so that lines of several threads do not mix.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Prints a value as indented JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// Formats a number of bytes with a unit.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
