//! A player of the system that is given sound while it is spoken.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::Context;
use myxtts_speak::sound_file::{Depth, Format, SoundFileError, SoundWriter, Stream};

use crate::failure::UsageError;

/// Players that are looked for, in this order, with what makes them read a WAV stream from standard input.
const PLAYERS: [(&str, &[&str]); 3] = [
    ("ffplay", &["-nodisp", "-autoexit", "-loglevel", "error", "-i", "-"]),
    ("aplay", &["-q", "-"]),
    ("paplay", &["--raw", "--format=s16le", "--channels=1"]),
];

/// Plays files alone.
const OF_FILES: &str = "afplay";

enum Way {
    /// Its standard input.
    Piped(Option<SoundWriter<Stream<ChildStdin>>>, Child),
    /// Everything is collected and played from a file.
    Collected(PathBuf, Vec<f32>),
}

/// A player at work.
pub struct Player {
    way: Way,
    rate: u32,
    name: &'static str,
}

impl Player {
    /// Whether there is one, asked before any work.
    pub fn find() -> anyhow::Result<()> {
        let names = PLAYERS.iter().map(|(name, _)| *name).chain([OF_FILES]);
        if names.clone().any(|name| on_path(name).is_some()) {
            return Ok(());
        }
        let names: Vec<&str> = names.collect();
        Err(UsageError(format!(
            "--play needs one of {} on the PATH and finds none: install one, or write a file with -o and play that",
            names.join(", ")
        ))
        .into())
    }

    /// Starts the first one there is.
    pub fn start(rate: u32) -> anyhow::Result<Player> {
        for (name, arguments) in PLAYERS {
            let Some(path) = on_path(name) else { continue };
            let mut command = Command::new(path);
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null());
            let format = match name {
                "paplay" => {
                    command.arg(format!("--rate={rate}"));
                    Format::Pcm
                }
                _ => Format::Wav(Depth::Int16),
            };
            let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
            let input = child.stdin.take().with_context(|| format!("{name} takes no input"))?;
            let writer = SoundWriter::begin(Stream(input), format, rate)?;
            return Ok(Player { way: Way::Piped(Some(writer), child), rate, name });
        }
        Player::find()?;
        let path = std::env::temp_dir().join(format!("myxtts-{}.wav", std::process::id()));
        Ok(Player { way: Way::Collected(path, Vec::new()), rate, name: OF_FILES })
    }

    /// Plays samples. A player that was closed hears no more; says whether it still listens.
    pub fn write(&mut self, samples: &[f32]) -> Result<bool, SoundFileError> {
        match &mut self.way {
            Way::Collected(_, all) => all.extend_from_slice(samples),
            Way::Piped(None, _) => return Ok(false),
            Way::Piped(Some(writer), _) => match writer.write(samples) {
                Err(SoundFileError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                    self.way_closed();
                    return Ok(false);
                }
                written => written?,
            },
        }
        Ok(true)
    }

    fn way_closed(&mut self) {
        if let Way::Piped(writer, _) = &mut self.way {
            *writer = None;
        }
    }

    /// Waits until everything was heard.
    pub fn finish(self) -> anyhow::Result<()> {
        match self.way {
            Way::Piped(writer, mut child) => {
                if let Some(writer) = writer {
                    // Its input is closed here: that is the end of the sound.
                    let mut end = writer.finish()?.0;
                    let _ = end.flush();
                }
                child.wait().with_context(|| format!("waiting for {}", self.name))?;
            }
            Way::Collected(path, samples) => {
                let written =
                    std::fs::write(&path, myxtts_data::audio::wav::encode_pcm16(&samples, self.rate));
                written.with_context(|| format!("cannot write {}", path.display()))?;
                let played = Command::new(self.name).arg(&path).status();
                let removed = std::fs::remove_file(&path);
                played.with_context(|| format!("cannot start {}", self.name))?;
                removed.with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// A program of the PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let name = if cfg!(windows) { format!("{name}.exe") } else { name.to_owned() };
    std::env::split_paths(&path).map(|folder| folder.join(&name)).find(|file| file.is_file())
}
