//! The typed sections of the plan. Each field is the setting of the same name, which [`crate::config::KEYS`] documents.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Seconds between two mel frames of the XTTS training front-ends: hop length over sample rate. Used only to convert
/// frames to seconds.
const HOP_SECONDS: f64 = 256.0 / 22_050.0;

/// When features are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreprocessingMode {
    /// Before training, into a cache.
    Precompute,
    /// While training, from the audio files.
    Runtime,
    /// A cache wherever one can be written.
    Auto,
}

/// Size of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// For tests and demonstrations.
    Tiny,
    /// Between tiny and normal.
    Small,
    /// The middle of the range.
    Normal,
    /// Between normal and v2.
    Big,
    /// The shape of XTTS-v2.
    V2,
}

impl Preset {
    /// All presets, the smallest first.
    pub const ALL: [Preset; 5] = [Preset::Tiny, Preset::Small, Preset::Normal, Preset::Big, Preset::V2];

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Tiny => "tiny",
            Preset::Small => "small",
            Preset::Normal => "normal",
            Preset::Big => "big",
            Preset::V2 => "v2",
        }
    }
}

/// Positions that are excluded from attention and loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Masks {
    /// Padding positions.
    Corrected,
    /// The positions that upstream excludes, for comparison.
    Coqui,
}

/// Learning rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// Cosine decay.
    Cosine,
    /// No decay.
    Constant,
}

/// Defaults for the training settings that are left unset; [`super::Recipe`] has the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizationLevel {
    /// Upstream's recipe.
    Basic,
    /// Proven techniques, fitted to the preset.
    Enhanced,
    /// Unproven techniques in addition.
    Experimental,
}

/// Serialises paths as a user writes them: null, one path, or a list.
mod one_or_more {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        One(PathBuf),
        More(Vec<PathBuf>),
    }

    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        match paths {
            [] => serializer.serialize_none(),
            [one] => one.serialize(serializer),
            more => more.serialize(serializer),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(match Option::<Written>::deserialize(deserializer)? {
            None => Vec::new(),
            Some(Written::One(path)) => vec![path],
            Some(Written::More(paths)) => paths,
        })
    }
}

/// Section `data`.
///
/// `format`, `cleaner` and `cache_columns` stay strings, checked against the table: their types belong
/// to the crate that implements them.
#[allow(missing_docs)] // the table documents every field, for users and programmers alike
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataPlan {
    #[serde(with = "one_or_more")]
    pub train_data: Vec<PathBuf>,
    pub val_data: Option<PathBuf>,
    pub val_fraction: f64,
    pub format: String,
    pub language: Option<String>,
    pub speaker: Option<String>,
    pub failure_budget: f64,

    pub cleaner: Option<String>,
    pub tokenizer: Option<PathBuf>,
    pub vocab_size: Option<usize>,
    pub max_text_tokens: usize,

    pub max_mel_frames: usize,
    pub min_seconds: f64,
    pub max_seconds: Option<f64>,
    pub trim_silence: bool,
    pub trim_db: f64,
    pub loudness_lufs: Option<f64>,

    pub preprocessing_mode: PreprocessingMode,
    pub cache_dir: Option<PathBuf>,
    pub cache_columns: Vec<String>,
    pub memory_cache_mb: u64,

    pub batch_size: usize,
    pub dvae_batch_size: Option<usize>,
    pub decoder_batch_size: Option<usize>,
    pub frame_budget: Option<usize>,
    pub quadratic_frames: Option<f64>,
    pub buckets: usize,
    pub shuffle: bool,
    pub worst_batch_first: bool,
    pub balance_temperature: f64,

    pub num_workers: usize,
    pub prefetch_buffer_size: usize,
    pub buffer_size: usize,
    pub model_start_delay: f64,
    pub auto_tune_performance: bool,
    pub native_loading: bool,
    pub data_gpu: Option<u32>,
    pub model_gpu: Option<Vec<u32>>,
    pub prefetch_to_gpu: bool,
    pub enhanced_gpu_prefetch: bool,
    pub keep_on_device: bool,
    pub optimize_cpu_gpu_overlap: bool,
}

impl DataPlan {
    /// Maximum clip length by `max_mel_frames`, in seconds.
    pub(super) fn frame_limit_seconds(&self) -> f64 {
        self.max_mel_frames as f64 * HOP_SECONDS
    }

    /// Maximum clip length in seconds: the tighter of `max_seconds` and `max_mel_frames`.
    pub fn longest_seconds(&self) -> f64 {
        self.max_seconds.unwrap_or(f64::INFINITY).min(self.frame_limit_seconds())
    }

    /// The setting that determines [`Self::longest_seconds`].
    pub fn longest_setting(&self) -> &'static str {
        match self.max_seconds {
            Some(seconds) if seconds < self.frame_limit_seconds() => "data.max_seconds",
            _ => "data.max_mel_frames",
        }
    }
}

/// Section `model`.
#[allow(missing_docs)] // as above
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPlan {
    pub preset: Preset,
    pub masks: Masks,
    pub audio_codes: Option<usize>,
}

/// Section `training`.
#[allow(missing_docs)] // as above
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingPlan {
    pub seed: u64,
    pub optimization_level: OptimizationLevel,
    pub dvae_steps: Option<u64>,
    pub gpt_steps: Option<u64>,
    pub decoder_steps: Option<u64>,
    pub learning_rate: Option<f64>,
    pub warmup_steps: Option<u64>,
    pub schedule: Option<ScheduleKind>,
    pub learning_rate_floor: f64,
    pub weight_decay: f64,
    pub gradient_clip: Option<f64>,
    pub gradient_accumulation_steps: usize,
    pub ema_decay: Option<f64>,
    pub dropout: Option<f64>,
    pub label_smoothing: Option<f64>,
    pub code_masking: Option<f64>,
    pub recombination: Option<f64>,
    pub alignment_weight: Option<f64>,
    pub acoustic_weight: Option<f64>,
    pub code_token_weight: Option<f64>,
    pub diagonal_start: Option<bool>,
    pub codebook_start: Option<bool>,
    pub text_dropout: Option<f64>,
    pub discriminator_start: Option<f64>,
    pub decoder_mel_weight: Option<f64>,
    pub lora_rank: Option<usize>,
    pub freeze_layers: usize,

    pub bad_step_budget: u64,
    pub bad_steps_in_a_row: u64,
    pub spike_limit: f64,
    pub early_stop_patience: Option<u32>,

    pub runs_dir: PathBuf,
    pub validate_every: Option<u64>,
    pub sample_every: u64,
    pub checkpoint_every: u64,
    pub keep_checkpoints: usize,
    pub keep_best: usize,

    pub recognizer_command: Option<String>,
    pub recognizer_url: Option<String>,
    pub recognizer_model: String,
    pub recognizer_digits: bool,

    pub multi_gpu: bool,
    pub reduce_bf16: bool,
    pub visible_gpus: Option<Vec<u32>>,
    pub memory_limit: Option<u64>,
    pub enable_graph_mode: bool,
    pub enable_eager_debug: bool,
}
