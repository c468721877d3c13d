//! The sections of the plan with their types. Each field is the setting of the same name; what it
//! does and takes stands in [`crate::config::KEYS`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Samples between two mel frames, and the rate they are counted at: the XTTS front-ends for
/// training. Here only to turn frames into seconds.
const HOP_SECONDS: f64 = 256.0 / 22_050.0;

/// When features are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreprocessingMode {
    /// Before training, into a cache.
    Precompute,
    /// While training, from the sound files.
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
    /// Smaller than normal.
    Small,
    /// The middle of the ladder.
    Normal,
    /// Larger than normal.
    Big,
    /// The shape of XTTS-v2.
    V2,
}

/// Which rows attention and loss leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Masks {
    /// Those of padding.
    Corrected,
    /// Those upstream leaves out, to compare with it.
    Coqui,
}

/// How the learning rate goes on after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// It falls along half a cosine.
    Cosine,
    /// It stays.
    Constant,
}

/// Which bundle stands behind settings that nobody made; [`super::Recipe`] has the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizationLevel {
    /// Upstream's recipe.
    Basic,
    /// What has proved itself, fitted to the preset.
    Enhanced,
    /// And what has not yet.
    Experimental,
}

/// Paths as a user writes them: nothing, one, or a list.
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
/// `format`, `cleaner` and `cache_columns` stay words, checked against the table: their types belong
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
    /// Length of the longest clip that `max_mel_frames` lets in.
    pub fn frame_limit_seconds(&self) -> f64 {
        self.max_mel_frames as f64 * HOP_SECONDS
    }

    /// Length of the longest clip that is used: the tighter of `max_seconds` and `max_mel_frames`.
    pub fn longest_seconds(&self) -> f64 {
        self.max_seconds.unwrap_or(f64::INFINITY).min(self.frame_limit_seconds())
    }

    /// The setting that says so.
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
    pub code_token_weight: Option<f64>,
    pub diagonal_start: Option<bool>,
    pub codebook_start: Option<bool>,
    pub text_dropout: Option<f64>,
    pub discriminator_start: Option<f64>,
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
