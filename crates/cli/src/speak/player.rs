//! An audio player of the system that receives audio while it is generated.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use anyhow::Context;
use myxtts_speak::audio_file::{AudioFileError, AudioWriter, Depth, Format, Stream};

use crate::failure::UsageError;

/// Players in order of preference, with the arguments that make them read a WAV stream from standard input.
const PLAYERS: [(&str, &[&str]); 3] = [
    ("ffplay", &["-nodisp", "-autoexit", "-loglevel", "error", "-i", "-"]),
    ("aplay", &["-q", "-"]),
    ("paplay", &["--raw", "--format=s16le", "--channels=1"]),
];

/// A player that only plays files.
const FILE_PLAYER: &str = "afplay";

enum Input {
    /// Audio goes to the player's standard input.
    Piped(Option<AudioWriter<Stream<ChildStdin>>>, Child),
    /// Audio is collected, and played from a file at the end.
    Collected(PathBuf, Vec<f32>),
}

/// A running player.
pub struct Player {
    input: Input,
    rate: u32,
    name: &'static str,
}

impl Player {
    /// Checks that there is a player.
    pub fn check_installed() -> anyhow::Result<()> {
        let names = PLAYERS.iter().map(|(name, _)| *name).chain([FILE_PLAYER]);
        if names.clone().any(|name| on_path(name).is_some()) {
            return Ok(());
        }
        let names: Vec<&str> = names.collect();
        Err(UsageError(format!(
            "--play needs one of {} on the PATH: install one, or write a file with -o and play that",
            names.join(", ")
        ))
        .into())
    }

    /// Starts the first player that is found.
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
            let input = child.stdin.take().with_context(|| format!("{name} has no standard input"))?;
            let writer = match AudioWriter::begin(Stream(input), format, rate) {
                // The player has ended already; `finish` reports its status.
                Err(error) if is_closed(&error) => None,
                begun => Some(begun?),
            };
            return Ok(Player { input: Input::Piped(writer, child), rate, name });
        }
        Player::check_installed()?;
        let path = std::env::temp_dir().join(format!("myxtts-{}.wav", std::process::id()));
        Ok(Player { input: Input::Collected(path, Vec::new()), rate, name: FILE_PLAYER })
    }

    /// Plays samples. Returns `false` once the player was closed.
    pub fn write(&mut self, samples: &[f32]) -> Result<bool, AudioFileError> {
        match &mut self.input {
            Input::Collected(_, all) => all.extend_from_slice(samples),
            Input::Piped(None, _) => return Ok(false),
            Input::Piped(Some(writer), _) => match writer.write(samples) {
                Err(error) if is_closed(&error) => {
                    self.close();
                    return Ok(false);
                }
                written => written?,
            },
        }
        Ok(true)
    }

    fn close(&mut self) {
        if let Input::Piped(writer, _) = &mut self.input {
            *writer = None;
        }
    }

    /// Waits until everything was played. Fails if the player did.
    pub fn finish(self) -> anyhow::Result<()> {
        match self.input {
            Input::Piped(writer, mut child) => {
                if let Some(writer) = writer {
                    // Closes the input of the player, which ends the audio.
                    match writer.finish() {
                        Ok(mut end) => drop(end.0.flush()),
                        Err(error) if is_closed(&error) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                let status = child.wait().with_context(|| format!("waiting for {}", self.name))?;
                check_status(self.name, status)
            }
            Input::Collected(path, samples) => {
                let written =
                    std::fs::write(&path, myxtts_data::audio::wav::encode_pcm16(&samples, self.rate));
                written.with_context(|| format!("cannot write {}", path.display()))?;
                let played = Command::new(self.name).arg(&path).status();
                let removed = std::fs::remove_file(&path);
                let status = played.with_context(|| format!("cannot start {}", self.name))?;
                removed.with_context(|| format!("cannot remove {}", path.display()))?;
                check_status(self.name, status)
            }
        }
    }
}

/// Whether the player has closed its input.
fn is_closed(error: &AudioFileError) -> bool {
    matches!(error, AudioFileError::Io(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Returns an error if the player failed, for example because there is no audio device.
fn check_status(name: &str, status: ExitStatus) -> anyhow::Result<()> {
    if status.success() {
        return Ok(());
    }
    let message =
        format!("the player {name} failed ({status}): write the audio to a file with -o FILE instead");
    Err(std::io::Error::other(message).into())
}

/// Path of a program on the PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let name = if cfg!(windows) { format!("{name}.exe") } else { name.to_owned() };
    std::env::split_paths(&path).map(|folder| folder.join(&name)).find(|file| file.is_file())
}
