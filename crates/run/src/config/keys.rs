//! The table of all settings: the single place that knows them.
//!
//! Adding one is an entry here and a field of the same name in [`crate::plan`]; the file, `--set`,
//! the environment, its flag, `config show`, `config init` and `config keys` follow.

use super::key::Kind::{Bool, Choice, Choices, Gpu, Gpus, Language, Path, Text};
use super::key::{Key, Kind};

const fn int(min: u64, max: u64) -> Kind {
    Kind::Int { min, max }
}

const fn float(min: f64, max: f64) -> Kind {
    Kind::Float { min, max }
}

/// Corpus layouts, by name.
pub const FORMATS: &[&str] =
    &["auto", "ljspeech", "vctk", "libritts", "common_voice", "coqui", "folder", "jsonl"];
/// What can be computed of an utterance and kept.
pub const COLUMNS: &[&str] = &["tokens", "dvae_mel", "conditioning_mel", "speaker_mel", "waveform"];

/// Every setting, in the order in which they are shown.
#[rustfmt::skip] // one entry, one to three lines, aligned by what it says and not by its length
pub static KEYS: &[Key] = &[
    // The corpus.
    Key::new("data.train_data", Path, "null",
        "folder or metadata file of the training corpus; null because only you know where it is").flag("train-data"),
    Key::new("data.val_data", Path, "null",
        "corpus to validate on; when null, val_fraction of the training corpus is held out").flag("val-data"),
    Key::new("data.val_fraction", float(0.0, 0.5), "0.05",
        "share of utterances held out for validation, chosen by their id; 0.05 keeps 95 % to learn from").flag("val-fraction"),
    Key::new("data.format", Choice(FORMATS), "auto",
        "layout of the corpus; auto recognises it and says which it took").flag("format"),
    Key::new("data.language", Language, "null",
        "language of utterances for which the corpus names none; null guesses it from the script").flag("language"),
    Key::new("data.speaker", Text, "null",
        "speaker of utterances for which the corpus names none; null takes the folder's name").flag("speaker"),
    Key::new("data.failure_budget", float(0.0, 1.0), "0.05",
        "share of utterances that may be unusable; past 0.05 the corpus itself is wrong, not a few files").flag("failure-budget"),

    // Text.
    Key::new("data.cleaner", Choice(&["default", "coqui"]), "default",
        "how text is written out before tokens; coqui repeats upstream's output, mistakes included").flag("cleaner"),
    Key::new("data.tokenizer", Path, "null",
        "vocabulary file (Hugging Face JSON); null trains one from the corpus").flag("tokenizer"),
    Key::new("data.vocab_size", int(64, 65536), "2048",
        "pieces of a vocabulary trained from the corpus; about 2000 serves one language best, 5000 was worse"),
    Key::new("data.max_text_tokens", int(1, 4096), "400",
        "longest text in tokens; 400 is what XTTS-v2 has positions for").flag("max-text-tokens"),

    // Sound.
    Key::new("data.max_mel_frames", int(16, 65536), "1000",
        "longest clip in mel frames; 1000 is 11.6 s at hop 256 of 22,050 Hz, the XTTS training limit").flag("max-mel-frames"),
    Key::new("data.min_seconds", float(0.0, 60.0), "0.5",
        "shortest clip; below 0.5 s there is too little voice to condition on").flag("min-seconds"),
    Key::new("data.max_seconds", float(0.1, 600.0), "null",
        "longest clip in seconds; null leaves it to max_mel_frames").flag("max-seconds"),
    Key::new("data.trim_silence", Bool, "true",
        "cut silence at both ends: frames without speech cost time and teach pauses"),
    Key::new("data.trim_db", float(10.0, 120.0), "45.0",
        "silence is this many dB below the clip's loudest frame; 45 keeps breaths and soft endings"),
    Key::new("data.loudness_lufs", float(-70.0, 0.0), "null",
        "bring every clip to this loudness, such as -23; null leaves recordings as they are"),

    // The cache.
    Key::new("data.preprocessing_mode", Choice(&["precompute", "runtime", "auto"]), "auto",
        "precompute a cache, compute at runtime, or auto: a cache wherever one can be written").flag("preprocessing-mode"),
    Key::new("data.cache_dir", Path, "null",
        "folder of the cache; null is `.myxtts-cache` inside the corpus folder").flag("cache-dir"),
    Key::new("data.cache_columns", Choices(COLUMNS), "tokens, dvae_mel, conditioning_mel",
        "what is kept for each utterance; the default is what training the GPT reads"),
    Key::new("data.memory_cache_mb", int(0, 1 << 20), "1024",
        "memory for decoded clips in runtime mode, in MiB; 1024 holds about 5 hours of mels").flag("memory-cache-mb"),

    // Batches.
    Key::new("data.batch_size", int(1, 4096), "56",
        "utterances of a batch; 56 lies between what GPUs of 12 and of 24 GB hold").flag("batch-size"),
    Key::new("data.frame_budget", int(16, 1 << 24), "null",
        "mel frames of a batch, instead of a fixed batch_size: short clips then come in larger batches").flag("frame-budget"),
    Key::new("data.quadratic_frames", float(1.0, 1e6), "null",
        "length at which attention costs as much as the rest, for frame_budget; null counts frames only"),
    Key::new("data.buckets", int(1, 64), "8",
        "lengths that batches are padded to; 8 keeps padding low and leaves few shapes to compile").flag("buckets"),
    Key::new("data.shuffle", Bool, "true",
        "new order in every epoch, a pure function of training.seed; off only to look at data"),
    Key::new("data.worst_batch_first", Bool, "false",
        "begin with the largest batch of each bucket, so that running out of memory happens at once"),

    // Loading.
    Key::new("data.num_workers", int(1, 1024), "18",
        "threads that make batches; 18 suits a workstation, and is capped by the cores of the machine").flag("num-workers"),
    Key::new("data.prefetch_buffer_size", int(1, 1024), "12",
        "finished batches kept ready; 12 rides out short stalls of the disk").flag("prefetch-buffer-size"),
    Key::new("data.buffer_size", int(1, 4096), "50",
        "batches under way at once from plan to delivery; 50 bounds the host memory at about 2 GB").flag("buffer-size"),
    Key::new("data.model_start_delay", float(0.0, 600.0), "2.0",
        "seconds the first step may wait for the buffers to fill; 2.0 smooths the start").flag("model-start-delay"),
    Key::new("data.auto_tune_performance", Bool, "true",
        "choose batch size, workers and buffers for this machine where the file does not").flag("auto-tune-performance"),
    Key::new("data.native_loading", Bool, "true",
        "load on threads of this program; off loads on the thread that asks, to debug")
        .alias(&["use_tf_native_loading"]),
    Key::new("data.data_gpu", Gpu, "null",
        "GPU that computes features; null leaves them to the CPU, which is fast enough with a cache").flag("data-gpu"),
    Key::new("data.model_gpu", Gpus, "null",
        "GPUs that hold the model, such as \"1\" or \"1,2,3\"; null takes them from training").flag("model-gpu"),
    Key::new("data.prefetch_to_gpu", Bool, "true",
        "upload the next batch while the current step runs; off only where GPU memory is very short"),
    Key::new("data.enhanced_gpu_prefetch", Bool, "true",
        "upload from pinned memory on a stream of its own; ten times the rate of pageable memory"),
    Key::new("data.optimize_cpu_gpu_overlap", Bool, "true",
        "keep loader threads off the core that launches the GPU's work"),

    // The model.
    Key::new("model.preset", Choice(&["tiny", "small", "normal", "big", "v2"]), "normal",
        "size of the network; v2 has the shape of XTTS-v2, normal is the middle of the ladder").flag("preset"),

    // Training.
    Key::new("training.seed", int(0, u64::MAX), "1234",
        "all randomness comes from this number: the same seed gives the same run").flag("seed"),
    Key::new("training.gradient_accumulation_steps", int(1, 1024), "1",
        "batches summed before a step; raise it when the batch you want does not fit")
        .flag("gradient-accumulation-steps"),
    Key::new("training.multi_gpu", Bool, "false",
        "train on all visible_gpus together; off because most machines have one").flag("multi-gpu"),
    Key::new("training.visible_gpus", Gpus, "0,1",
        "GPUs that multi_gpu uses").flag("visible-gpus"),
    Key::new("training.optimization_level", Choice(&["basic", "enhanced", "experimental"]), "enhanced",
        "how much is done for speed; enhanced stops short of what is still experimental").flag("optimization-level"),
    Key::new("training.enable_graph_mode", Bool, "true",
        "capture the step as a CUDA graph and replay it: no launch gaps"),
    Key::new("training.fused_kernels", Bool, "true",
        "one kernel for norm, activation and residual instead of several; off to compare")
        .alias(&["enable_xla_compilation"]),
    Key::new("training.enable_eager_debug", Bool, "false",
        "run every operation by itself and check its result: slow, for finding faults"),
];
