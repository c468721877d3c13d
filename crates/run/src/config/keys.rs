//! The table of all settings, the only place that lists them.
//!
//! To add a setting, add an entry here and a field of the same name in [`crate::plan`]. The YAML file, `--set`,
//! environment variables, the flag, `config show`, `config init` and `config keys` are all derived from the table.

use super::key::ValueKind::{Bool, Choice, Choices, Gpu, Gpus, Language, Path, Paths, Text};
use super::key::{Key, ValueKind};

const fn int(min: u64, max: u64) -> ValueKind {
    ValueKind::Int { min, max }
}

const fn float(min: f64, max: f64) -> ValueKind {
    ValueKind::Float { min, max }
}

/// Upper limit of all step counts; larger values are typing errors.
const MAX_STEPS: u64 = 1_000_000_000;

/// Corpus layouts, by name.
pub const FORMATS: &[&str] =
    &["auto", "ljspeech", "vctk", "libritts", "common_voice", "coqui", "folder", "jsonl"];
/// Features that can be computed from an utterance and cached.
pub const COLUMNS: &[&str] = &["tokens", "dvae_mel", "conditioning_mel", "speaker_mel", "waveform"];

/// Every setting, in display order.
#[rustfmt::skip] // an entry stays on one to three lines, whatever its length
pub static KEYS: &[Key] = &[
    // Corpus.
    Key::new("data.train_data", Paths, "null",
        "training corpus: a folder or metadata file, or a list of several; no default, since only you know where it is")
        .flag("train-data"),
    Key::new("data.val_data", Path, "null",
        "corpus used for validation only; if unset: val_fraction of the training corpus").flag("val-data"),
    Key::new("data.val_fraction", float(0.0, 0.5), "0.05",
        "fraction of utterances used for validation; all readings of one text stay together, and with eight or more speakers whole speakers are chosen").flag("val-fraction"),
    Key::new("data.format", Choice(FORMATS), "auto",
        "layout of the corpus; auto detects it and reports what it found").flag("format"),
    Key::new("data.language", Language, "null",
        "language of utterances for which the corpus names none; if unset: guessed from the script").flag("language"),
    Key::new("data.speaker", Text, "null",
        "speaker of utterances for which the corpus names none; if unset: the folder name").flag("speaker"),
    Key::new("data.failure_budget", float(0.0, 1.0), "0.05",
        "fraction of utterances that may be unreadable or unusable; above it the command stops, since a few bad files are normal and many mean a wrong path or format").flag("failure-budget"),

    // Text.
    Key::new("data.cleaner", Choice(&["default", "coqui", "phonemes"]), "null",
        "text normalisation before tokenisation; coqui reproduces upstream's output including its mistakes, phonemes spells English as it sounds; \
         if unset: the vocabulary's own, else phonemes for mostly English corpora of under a million characters, else default").flag("cleaner"),
    Key::new("data.tokenizer", Path, "null",
        "vocabulary file (Hugging Face tokenizer JSON); if unset: trained on the corpus").flag("tokenizer"),
    Key::new("data.vocab_size", int(64, 65536), "null",
        "tokens in a vocabulary trained on the corpus; if unset: single characters below a million characters of text, else 2048"),
    Key::new("data.max_text_tokens", int(1, 4096), "400",
        "maximum text length in tokens; XTTS-v2 has 400 text positions").flag("max-text-tokens"),

    // Audio.
    Key::new("data.max_mel_frames", int(16, 65536), "1000",
        "maximum clip length in mel frames; 1000 frames are 11.6 s (hop 256 at 22,050 Hz), the XTTS training limit").flag("max-mel-frames"),
    Key::new("data.min_seconds", float(0.0, 60.0), "0.5",
        "minimum clip length in seconds; shorter clips contain too little voice to condition on").flag("min-seconds"),
    Key::new("data.max_seconds", float(0.1, 600.0), "null",
        "maximum clip length in seconds; if unset: limited by max_mel_frames only").flag("max-seconds"),
    Key::new("data.trim_silence", Bool, "true",
        "cut silence at both ends of a clip; silent frames cost time and teach the model to pause"),
    Key::new("data.trim_db", float(10.0, 120.0), "45.0",
        "level below a clip's loudest frame that counts as silence, in dB; 45 keeps breaths and soft endings"),
    Key::new("data.loudness_lufs", float(-70.0, 0.0), "null",
        "normalise every clip to this loudness in LUFS, such as -23; if unset: recordings stay unchanged"),

    // Cache.
    Key::new("data.preprocessing_mode", Choice(&["precompute", "runtime", "auto"]), "auto",
        "when features are computed: precompute writes a cache before training, runtime computes them during training, auto uses a cache wherever one can be written").flag("preprocessing-mode"),
    Key::new("data.cache_dir", Path, "null",
        "cache folder; if unset: `.myxtts-cache` inside the corpus folder").flag("cache-dir"),
    Key::new("data.cache_columns", Choices(COLUMNS), "tokens, dvae_mel, conditioning_mel",
        "features cached per utterance; the default is what GPT training reads"),
    Key::new("data.memory_cache_mb", int(0, 1 << 20), "1024",
        "RAM for computed features when there is no cache, in MiB: all features if they fit, else only those of compressed audio; 1024 MiB hold about 5 hours of mels").flag("memory-cache-mb"),

    // Batches.
    Key::new("data.batch_size", int(1, 4096), "56",
        "utterances per GPT batch; 56 is between what 12 GB and 24 GB GPUs hold").flag("batch-size"),
    Key::new("data.dvae_batch_size", int(1, 4096), "null",
        "windows per DVAE batch; if unset: the preset's value"),
    Key::new("data.decoder_batch_size", int(1, 4096), "null",
        "windows per decoder batch; if unset: the preset's value"),
    Key::new("data.frame_budget", int(16, 1 << 24), "null",
        "mel frames per GPT batch, replacing the fixed batch_size: short clips are then grouped into larger batches").flag("frame-budget"),
    Key::new("data.quadratic_frames", float(1.0, 1e6), "null",
        "clip length in mel frames at which attention costs as much as all other work, for frame_budget; if unset: frames count linearly"),
    Key::new("data.buckets", int(1, 64), "8",
        "number of padded batch lengths; 8 keeps padding low with few shapes to compile").flag("buckets"),
    Key::new("data.shuffle", Bool, "true",
        "new order every epoch, a pure function of training.seed; turn off only to inspect data"),
    Key::new("data.worst_batch_first", Bool, "false",
        "start with the largest batch of each bucket, so that running out of memory shows at once"),
    Key::new("data.balance_temperature", float(1.0, 100.0), "2.0",
        "sampling temperature T over speakers and languages: n clips of a speaker in a language weigh n^(1/T), each clip at most 8 times per epoch; 1 keeps the corpus proportions, larger values even them out")
        .flag("balance-temperature"),

    // Loading.
    Key::new("data.num_workers", int(1, 1024), "18",
        "threads that build batches; capped by the number of CPU cores").flag("num-workers"),
    Key::new("data.prefetch_buffer_size", int(1, 1024), "12",
        "finished batches kept ready; 12 covers short disk stalls").flag("prefetch-buffer-size"),
    Key::new("data.buffer_size", int(1, 4096), "50",
        "batches in progress at once, from planning to delivery; 50 bounds host memory at about 2 GB").flag("buffer-size"),
    Key::new("data.model_start_delay", float(0.0, 600.0), "2.0",
        "minimum wait before the first step in seconds, while the data_gpu buffers fill").flag("model-start-delay"),
    Key::new("data.auto_tune_performance", Bool, "true",
        "choose batch size, gradient accumulation, workers and buffers for this machine wherever you leave them unset").flag("auto-tune-performance"),
    Key::new("data.native_loading", Bool, "true",
        "compute features once and keep them; off recomputes them for every batch and caches nothing, with identical results")
        .alias(&["use_tf_native_loading"]),
    Key::new("data.data_gpu", Gpu, "null",
        "GPU that prepares batches (mels, audio codes, conditioning); if unset: the CPU, which is fast enough with a cache").flag("data-gpu"),
    Key::new("data.model_gpu", Gpus, "null",
        "GPUs that hold the model, such as \"1\" or \"1,2,3\"; if unset: chosen by training.multi_gpu and training.visible_gpus").flag("model-gpu"),
    Key::new("data.prefetch_to_gpu", Bool, "true",
        "upload the next batch while the current step runs; turn off only when GPU memory is very short"),
    Key::new("data.enhanced_gpu_prefetch", Bool, "true",
        "upload from page-locked memory, about ten times as fast as from pageable memory; turn off to compare"),
    Key::new("data.keep_on_device", Bool, "true",
        "keep all conditioning features on the GPU if they take at most 1/16 of its memory; batches then carry only row indices"),
    Key::new("data.optimize_cpu_gpu_overlap", Bool, "true",
        "queue steps before earlier ones finish; off waits for each step, to measure the difference"),

    // Model.
    Key::new("model.preset", Choice(&["tiny", "small", "normal", "big", "v2"]), "normal",
        "network size: tiny (for a CPU), small, normal, big, v2 (the size of XTTS-v2)").flag("preset"),
    Key::new("model.masks", Choice(&["corrected", "coqui"]), "corrected",
        "positions excluded from attention and loss; coqui reproduces upstream's masks, which exclude the wrong ones, for comparison").flag("masks"),
    Key::new("model.audio_codes", int(16, 8192), "null",
        "size of the DVAE codebook; if unset: 256 for tiny, else 8192 for corpora of under 20 hours and 1024 for larger ones"),

    // Training.
    Key::new("training.seed", int(0, u64::MAX), "1234",
        "seed of all randomness: the same seed gives the same run").flag("seed"),
    Key::new("training.optimization_level", Choice(&["basic", "enhanced", "experimental"]), "enhanced",
        "defaults for the settings below that are unset: basic is upstream's recipe; enhanced adds warm-up, cosine decay, gradient clipping and an EMA, \
         fitted to the preset; experimental adds techniques that are not proven yet").flag("optimization-level"),
    Key::new("training.dvae_steps", int(0, MAX_STEPS), "null",
        "steps of the DVAE stage; if unset: depends on the preset and the hours of speech; 0 skips the stage").flag("dvae-steps"),
    Key::new("training.gpt_steps", int(0, MAX_STEPS), "null",
        "steps of the GPT stage; if unset: depends on the preset and the hours of speech; 0 skips the stage").flag("gpt-steps"),
    Key::new("training.decoder_steps", int(0, MAX_STEPS), "null",
        "steps of the decoder stage; if unset: depends on the preset and the hours of speech; 0 skips the stage").flag("decoder-steps"),
    Key::new("training.learning_rate", float(1e-9, 1.0), "null",
        "peak learning rate; if unset: optimization_level's value for the stage and preset (a 20th of it when fine-tuning the DVAE or GPT, half of it for the decoder)")
        .flag("learning-rate"),
    Key::new("training.warmup_steps", int(0, MAX_STEPS), "null",
        "steps over which the learning rate rises linearly; if unset: 5 % of the stage, at most 1000, and 0 in basic").flag("warmup-steps"),
    Key::new("training.schedule", Choice(&["cosine", "constant"]), "null",
        "learning rate after the warm-up; if unset: cosine, which reaches a lower loss, and constant in basic"),
    Key::new("training.learning_rate_floor", float(0.0, 1.0), "0.1",
        "final learning rate of a cosine schedule, as a fraction of the peak; 0.1 keeps the last steps useful"),
    Key::new("training.weight_decay", float(0.0, 1.0), "0.01",
        "weight decay of AdamW; biases, norms and embeddings are exempt; 0.01 is what XTTS was trained with"),
    Key::new("training.gradient_clip", float(0.0, 1e6), "null",
        "maximum gradient norm, 0 for no clipping; if unset: 1 to 2 by preset, and none in basic")
        .flag("gradient-clip"),
    Key::new("training.gradient_accumulation_steps", int(1, 1024), "1",
        "batches whose gradients are summed per step; raise it when the batch you want does not fit in memory")
        .flag("gradient-accumulation-steps"),
    Key::new("training.ema_decay", float(0.0, 0.999_999), "null",
        "decay of the exponential moving average of the weights per step, 0 for none; if unset: 0.999, 0.9995 in experimental, and none in basic"),
    Key::new("training.dropout", float(0.0, 0.9), "null",
        "dropout rate of the GPT; if unset: 0.3 for corpora of under 20 hours, else 0.1 as in XTTS"),
    Key::new("training.label_smoothing", float(0.0, 0.5), "null",
        "probability mass spread over all audio codes in the GPT loss; if unset: 0, and 0.05 in experimental"),
    Key::new("training.code_masking", float(0.0, 0.9), "null",
        "fraction of the GPT's input codes that are masked, which makes it rely on the text; if unset: 0.45 for corpora of under 20 hours, else 0"),
    Key::new("training.recombination", float(0.0, 1.0), "null",
        "fraction of GPT rows joined from pieces of several clips of one speaker; if unset: 0.7 for corpora of under 20 hours, else 0"),
    Key::new("training.alignment_weight", float(0.0, 10.0), "null",
        "weight of the auxiliary GPT loss that predicts which token is being spoken; if unset: 0.3 for corpora of under 20 hours, else 0"),
    Key::new("training.acoustic_weight", float(0.0, 100.0), "null",
        "weight of the auxiliary GPT loss that predicts the mel of the code just read, so that the decoder gets states that know how it sounds; if unset: 10 for corpora of under 20 hours, else 0"),
    Key::new("training.code_token_weight", float(0.0, 10.0), "null",
        "weight of the auxiliary DVAE loss that predicts the spoken token from the codes; if unset: 0.3 for corpora of under 20 hours, else 0"),
    Key::new("training.diagonal_start", Bool, "null",
        "initialise the GPT's attention along the text diagonal; if unset: true for corpora of under 20 hours; only for a GPT trained from scratch"),
    Key::new("training.text_dropout", float(0.0, 0.9), "null",
        "fraction of GPT rows trained without text, which classifier-free guidance needs at inference; if unset: 0.1 for corpora of under 20 hours, else 0"),
    Key::new("training.codebook_start", Bool, "null",
        "initialise the GPT's audio code embeddings from the DVAE codebook; if unset: true for corpora of under 20 hours; only for a GPT trained from scratch"),
    Key::new("training.discriminator_start", float(0.0, 1.0), "null",
        "fraction of the decoder's steps after which the discriminators join, 1 for never; if unset: the preset's value"),
    Key::new("training.decoder_mel_weight", float(0.0, 1000.0), "null",
        "weight of the decoder's mel distance once the discriminators have joined; lower values give the discriminators more influence; if unset: 30 for corpora of under 20 hours, else 45 as in HiFi-GAN"),
    Key::new("training.lora_rank", int(1, 1024), "null",
        "rank of LoRA adapters trained instead of the GPT's own weights; if unset: all weights are trained").flag("lora-rank"),
    Key::new("training.freeze_layers", int(0, 128), "0",
        "number of lowest GPT layers kept frozen; most voices gain from training all of them").flag("freeze-layers"),

    // Guards.
    Key::new("training.bad_step_budget", int(0, 1_000_000), "50",
        "steps with a NaN or Inf loss, or a NaN, Inf or far too large gradient, that are skipped and logged before the run rolls back to its last checkpoint; 50 tolerates a few bad clips"),
    Key::new("training.bad_steps_in_a_row", int(0, 10_000), "5",
        "consecutive skipped steps before the run rolls back to its last checkpoint; more than 5 in a row are not caused by single clips"),
    Key::new("training.spike_limit", float(2.0, 1000.0), "10.0",
        "deviations above the recent median loss at which a loss is reported as a spike; 10 ignores ordinary noise"),
    Key::new("training.early_stop_patience", int(1, 100_000), "null",
        "validations without improvement before a stage ends with its best weights; if unset: a GPT that trains for 20 epochs or more stops after a quarter of its steps without improvement (at least 10 validations), other stages never do")
        .flag("early-stop-patience"),

    // Validation, samples and checkpoints.
    Key::new("training.runs_dir", Path, "runs",
        "folder that holds one subfolder per run").flag("runs-dir"),
    Key::new("training.validate_every", int(0, MAX_STEPS), "null",
        "steps between validations, 0 for one at the end only; if unset: four epochs, at least 100 and at most 500 steps, so that overfitting on a small corpus is noticed").flag("validate-every"),
    Key::new("training.sample_every", int(0, MAX_STEPS), "1000",
        "steps between synthesised samples, in addition to one at the end of a stage; 0 for none; 1000 makes progress audible without slowing training").flag("sample-every"),
    Key::new("training.checkpoint_every", int(0, MAX_STEPS), "500",
        "steps between checkpoints, 0 for one at the end only; a crash loses at most this many steps").flag("checkpoint-every"),
    Key::new("training.keep_checkpoints", int(1, 10_000), "3",
        "newest checkpoints kept; 3 leaves two to fall back to. Pinned checkpoints are always kept").flag("keep-checkpoints"),
    Key::new("training.keep_best", int(1, 10_000), "1",
        "checkpoints with the best validation score kept per stage").flag("keep-best"),

    // Speech recogniser.
    Key::new("training.recognizer_command", Text, "null",
        "command that prints the transcript of an audio file, such as \"whisper-cli -f {wav} -l {language}\"; samples, evaluate and resynthesize then report error rates")
        .flag("recognizer-command"),
    Key::new("training.recognizer_url", Text, "null",
        "transcription server with the OpenAI API, such as http://127.0.0.1:8000/v1, instead of recognizer_command; audio is posted to URL/audio/transcriptions")
        .flag("recognizer-url"),
    Key::new("training.recognizer_model", Text, "whisper-1",
        "model name sent to recognizer_url; whisper-1 is what most servers use").flag("recognizer-model"),
    Key::new("training.recognizer_digits", Bool, "false",
        "compare numbers digit by digit, for corpora of digits: 42 is then \"four two\"").flag("recognizer-digits"),

    // Devices.
    Key::new("training.multi_gpu", Bool, "false",
        "train on all visible_gpus together").flag("multi-gpu"),
    Key::new("training.reduce_bf16", Bool, "false",
        "sum gradients across GPUs and ranks in bf16: half the traffic, but every sum is rounded; off keeps full precision")
        .flag("reduce-bf16"),
    Key::new("training.visible_gpus", Gpus, "null",
        "GPUs that may be used, such as \"0,1\", in order of preference; if unset: every GPU the driver shows").flag("visible-gpus"),
    Key::new("training.memory_limit", ValueKind::Size { min: 1 << 28, max: 1 << 44 }, "null",
        "GPU memory that may be used, such as 24GiB; if unset: all of it. With less memory, more activations are recomputed")
        .flag("memory-limit"),
    Key::new("training.enable_graph_mode", Bool, "true",
        "capture the training step as a CUDA graph and replay it, which removes launch gaps"),
    Key::new("training.enable_eager_debug", Bool, "false",
        "run operations one at a time and name the first one with a NaN or Inf result; slow, for debugging"),
];
