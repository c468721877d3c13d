//! The data of a run: records, their split, the vocabulary, and the device that prepares batches.

use crate::feed::Depth;
use crate::samples::Sentence;
use crate::stages::RecordSplit;
use myxtts_data::record::RecordSource;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_tensor::Device;
use std::sync::Arc;
use std::time::Duration;

/// What is learnt from.
pub struct Corpus {
    /// Prepared records.
    pub source: Arc<dyn RecordSource>,
    /// Those that are learnt from.
    pub train: Vec<u32>,
    /// Those that are only measured on.
    pub validation: Vec<u32>,
    /// The vocabulary they were prepared with.
    pub tokenizer: Tokenizer,
    /// What is spoken on the way and at the end.
    pub sentences: Vec<Sentence>,
    /// Where batches are prepared, if not on the processor.
    pub data_side: Option<DataSide>,
}

impl Corpus {
    /// The records to train on and those of the validation set.
    pub fn split(&self) -> RecordSplit<'_> {
        RecordSplit { train: &self.train, validation: &self.validation }
    }
}

/// A device that prepares batches for those that train: the mels of the DVAE's batches, audio codes once, the conditioning of the
/// GPT's batches, and the GPT's states for the decoder once.
#[derive(Clone)]
pub struct DataSide {
    /// The device.
    pub device: Device,
    /// The records, with sound in the place of conditioning mels and beside those of the DVAE.
    pub sounds: Arc<dyn RecordSource>,
    /// Batches that wait for the model.
    pub buffer_size: usize,
    /// How long the model waits at least.
    pub model_start_delay: Duration,
}

impl DataSide {
    /// How far ahead batches are made: full before the model starts, it is not for the measured waits to say how deep it is.
    pub(crate) fn depth(&self, depth: Option<Depth>) -> Option<Depth> {
        let most = self.buffer_size.max(2);
        depth.map(|depth| Depth { least: most, most, ..depth })
    }
}

/// A GPU that prepares batches.
#[derive(Clone, Copy, Debug)]
pub struct DataGpu {
    /// The GPU, or the CPU that simulates it.
    pub device: Device,
    /// Number of batches that may wait for the model.
    pub buffer_size: usize,
    /// Time that the model waits at least before its first step.
    pub model_start_delay: Duration,
}
