//! The data of a run: records, their split, the vocabulary, and the device that prepares batches.

use crate::feed::Depth;
use crate::samples::Sentence;
use crate::stages::RecordSplit;
use myxtts_data::record::RecordSource;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_tensor::Device;
use std::sync::Arc;
use std::time::Duration;

/// The corpus of a run.
pub struct Corpus {
    /// Prepared records, training and validation together.
    pub source: Arc<dyn RecordSource>,
    /// Indices of the training records.
    pub train: Vec<u32>,
    /// Indices of the validation records; no weight is updated from them.
    pub validation: Vec<u32>,
    /// The vocabulary the records were prepared with.
    pub tokenizer: Tokenizer,
    /// Validation sentences that are spoken during training and at its end.
    pub sentences: Vec<Sentence>,
    /// The device that prepares batches; `None` if the CPU does.
    pub data_side: Option<DataSide>,
}

impl Corpus {
    /// The records to train on and those of the validation set.
    pub fn split(&self) -> RecordSplit<'_> {
        RecordSplit { train: &self.train, validation: &self.validation }
    }
}

/// A device that prepares batches for the devices that train. It computes the mels of the DVAE's batches, the audio codes
/// (once), the conditioning of the GPT's batches, and the GPT's states for the decoder (once).
#[derive(Clone)]
pub struct DataSide {
    /// The GPU, or the CPU that simulates it.
    pub device: Device,
    /// The records with waveforms: instead of conditioning mels, and in addition to DVAE mels.
    pub waveforms: Arc<dyn RecordSource>,
    /// Number of prepared batches that may wait for the model.
    pub buffer_size: usize,
    /// Minimum time that the model waits before its first step.
    pub model_start_delay: Duration,
}

impl DataSide {
    /// Number of batches prepared ahead. It is fixed: the buffer is full before the model starts, so measured waits do not
    /// resize it.
    pub(crate) fn depth(&self, depth: Option<Depth>) -> Option<Depth> {
        let max = self.buffer_size.max(2);
        depth.map(|depth| Depth { min: max, max, ..depth })
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
