//! Writes TensorBoard event files without TensorFlow: scalars, images, audio and text.
//!
//! `proto` (messages) -> `record` (framing and checksums) -> an append-only file. `wav` reads the headers of audio.

mod proto;
mod record;
mod wav;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use crate::durable::{self, Appender, Disk, DurableError, fault};
use proto::Message;

/// Why something could not be logged.
#[derive(Debug, thiserror::Error)]
pub enum TensorBoardError {
    /// The file cannot be written.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The given image is not a PNG file.
    #[error("the image {tag} is not a PNG file: {reason}")]
    Image {
        /// Tag under which it was logged.
        tag: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The given audio is not a WAV file.
    #[error("the audio {tag} is not a WAV file: {reason}")]
    Audio {
        /// Tag under which it was logged.
        tag: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// An event file open for writing. TensorBoard may read it at the same time.
pub struct TensorBoard {
    file: Appender,
}

impl TensorBoard {
    /// Creates a file in a folder on the default disk.
    pub fn open(folder: &Path) -> Result<Self, TensorBoardError> {
        Self::open_on(fault::disk_from_env(), folder, None)
    }

    /// Creates a file that continues earlier ones in the folder: TensorBoard discards `step` and all later
    /// steps, which will be logged again.
    pub fn resume(folder: &Path, step: u64) -> Result<Self, TensorBoardError> {
        Self::open_on(fault::disk_from_env(), folder, Some(step))
    }

    /// [`Self::open`] or [`Self::resume`] on the given disk.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        resumed: Option<u64>,
    ) -> Result<Self, TensorBoardError> {
        durable::create_folder(&*disk, folder)?;
        // TensorBoard reads the files of a folder in name order, so the time comes first; it recognises them by
        // `tfevents`.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = format!("events.out.tfevents.{:010}.myxtts.{pid}.{number}", now() as u64);
        let mut board = TensorBoard { file: Appender::open(disk, &folder.join(name), 0)? };
        let mut version = event(0);
        version.text(proto::EVENT_FILE_VERSION, "brain.Event:2");
        board.write(version)?;
        if let Some(step) = resumed {
            let mut start = event(step);
            let mut session = Message::default();
            session.int(proto::SESSION_STATUS, proto::SESSION_START);
            start.message(proto::EVENT_SESSION, session);
            board.write(start)?;
        }
        Ok(board)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Logs a scalar.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f32) -> Result<(), TensorBoardError> {
        self.scalars(step, &[(tag, value)])
    }

    /// Logs several scalars of one step.
    pub fn scalars(&mut self, step: u64, values: &[(&str, f32)]) -> Result<(), TensorBoardError> {
        let values = values.iter().map(|(tag, number)| {
            let mut value = named(tag);
            value.float(proto::VALUE_SIMPLE, *number);
            value
        });
        self.summary(step, values)
    }

    /// Logs an image, given as the bytes of a PNG file.
    pub fn image(&mut self, tag: &str, step: u64, png: &[u8]) -> Result<(), TensorBoardError> {
        let (width, height, channels) =
            png_size(png).map_err(|reason| TensorBoardError::Image { tag: tag.to_owned(), reason })?;
        let mut image = Message::default();
        image.int(proto::IMAGE_HEIGHT, u64::from(height));
        image.int(proto::IMAGE_WIDTH, u64::from(width));
        image.int(proto::IMAGE_CHANNELS, channels);
        image.bytes(proto::IMAGE_BYTES, png);
        let mut value = named(tag);
        value.message(proto::VALUE_IMAGE, image);
        self.summary(step, [value])
    }

    /// Logs audio, given as the bytes of a WAV file.
    pub fn audio(&mut self, tag: &str, step: u64, wav: &[u8]) -> Result<(), TensorBoardError> {
        let format = wav::read_format(wav)
            .map_err(|reason| TensorBoardError::Audio { tag: tag.to_owned(), reason })?;
        let mut audio = Message::default();
        audio.float(proto::AUDIO_RATE, format.rate as f32);
        audio.int(proto::AUDIO_CHANNELS, u64::from(format.channels));
        audio.int(proto::AUDIO_FRAMES, format.frames);
        audio.bytes(proto::AUDIO_BYTES, wav);
        audio.text(proto::AUDIO_TYPE, "audio/wav");
        let mut value = named(tag);
        value.message(proto::VALUE_AUDIO, audio);
        self.summary(step, [value])
    }

    /// Logs text, which TensorBoard shows as Markdown.
    pub fn text(&mut self, tag: &str, step: u64, text: &str) -> Result<(), TensorBoardError> {
        let mut tensor = Message::default();
        tensor.int(proto::TENSOR_TYPE, proto::TENSOR_STRING);
        // A scalar tensor: one string.
        tensor.message(proto::TENSOR_SHAPE, Message::default());
        tensor.text(proto::TENSOR_STRINGS, text);
        let mut plugin = Message::default();
        plugin.text(proto::PLUGIN_NAME, "text");
        let mut metadata = Message::default();
        metadata.message(proto::METADATA_PLUGIN, plugin);
        let mut value = named(tag);
        value.message(proto::VALUE_TENSOR, tensor);
        value.message(proto::VALUE_METADATA, metadata);
        self.summary(step, [value])
    }

    /// Flushes everything to the device; not needed for TensorBoard to see it.
    pub fn sync(&mut self) -> Result<(), TensorBoardError> {
        Ok(self.file.sync()?)
    }

    fn summary(
        &mut self,
        step: u64,
        values: impl IntoIterator<Item = Message>,
    ) -> Result<(), TensorBoardError> {
        let mut summary = Message::default();
        for value in values {
            summary.message(proto::SUMMARY_VALUE, value);
        }
        let mut event = event(step);
        event.message(proto::EVENT_SUMMARY, summary);
        self.write(event)
    }

    fn write(&mut self, event: Message) -> Result<(), TensorBoardError> {
        // One write: a record is in the file completely or not at all.
        Ok(self.file.append(&record::framed(&event.finish()))?)
    }
}

fn event(step: u64) -> Message {
    let mut event = Message::default();
    event.double(proto::EVENT_TIME, now());
    event.int(proto::EVENT_STEP, step);
    event
}

fn named(tag: &str) -> Message {
    let mut value = Message::default();
    value.text(proto::VALUE_TAG, tag);
    value
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Width, height and channels of a PNG file.
fn png_size(png: &[u8]) -> Result<(u32, u32, u64), &'static str> {
    let Some((head, _)) = png.split_first_chunk::<26>() else { return Err("it is too short") };
    if !head.starts_with(b"\x89PNG\r\n\x1a\n") || &head[12..16] != b"IHDR" {
        return Err("it has no PNG header");
    }
    let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let channels = match head[25] {
        0 => 1,
        2 | 3 => 3,
        4 => 2,
        6 => 4,
        _ => return Err("its colour type is unknown"),
    };
    Ok((number(16), number(20), channels))
}
