//! The table of all settings: the single place that knows them.
//!
//! Adding one is an entry here and a field of the same name in [`crate::plan`]; the file, `--set`,
//! the environment, its flag, `config show`, `config init` and `config keys` follow.

use super::key::Kind::{Bool, Choice, Choices, Gpu, Gpus, Language, Path, Paths, Text};
use super::key::{Key, Kind};

const fn int(min: u64, max: u64) -> Kind {
    Kind::Int { min, max }
}

const fn float(min: f64, max: f64) -> Kind {
    Kind::Float { min, max }
}

/// More than anybody will wait for.
const MOST_STEPS: u64 = 1_000_000_000;

/// Corpus layouts, by name.
pub const FORMATS: &[&str] =
    &["auto", "ljspeech", "vctk", "libritts", "common_voice", "coqui", "folder", "jsonl"];
/// What can be computed of an utterance and kept.
pub const COLUMNS: &[&str] = &["tokens", "dvae_mel", "conditioning_mel", "speaker_mel", "waveform"];

/// Every setting, in the order in which they are shown.
#[rustfmt::skip] // one entry, one to three lines, aligned by what it says and not by its length
pub static KEYS: &[Key] = &[
    // The corpus.
    Key::new("data.train_data", Paths, "null",
        "folder or metadata file of the training corpus, or a list of several; null because only you know where it is")
        .flag("train-data"),
    Key::new("data.val_data", Path, "null",
        "corpus to validate on, all of it; when null, val_fraction of the training corpus is held out").flag("val-data"),
    Key::new("data.val_fraction", float(0.0, 0.5), "0.05",
        "share of utterances held out for validation, all readings of a text together, and whole speakers where there are \
         eight or more; 0.05 keeps 95 % to learn from").flag("val-fraction"),
    Key::new("data.format", Choice(FORMATS), "auto",
        "layout of the corpus; auto recognises it and says which it took").flag("format"),
    Key::new("data.language", Language, "null",
        "language of utterances for which the corpus names none; null guesses it from the script").flag("language"),
    Key::new("data.speaker", Text, "null",
        "speaker of utterances for which the corpus names none; null takes the folder's name").flag("speaker"),
    Key::new("data.failure_budget", float(0.0, 1.0), "0.05",
        "share of utterances that may be unusable; past 0.05 the corpus itself is wrong, not a few files").flag("failure-budget"),

    // Text.
    Key::new("data.cleaner", Choice(&["default", "coqui", "phonemes"]), "null",
        "how text is written out before tokens; coqui repeats upstream's output, mistakes included; phonemes: English as it sounds; \
         null: a model's own, else phonemes for little English speech, else default").flag("cleaner"),
    Key::new("data.tokenizer", Path, "null",
        "vocabulary file (Hugging Face JSON); null trains one from the corpus").flag("tokenizer"),
    Key::new("data.vocab_size", int(64, 65536), "null",
        "pieces of a vocabulary trained from the corpus; null: single characters below a million characters of text, else 2048"),
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
        "memory for computed arrays where there is no cache, in MiB: all of them where they fit, else those of compressed sound; 1024 holds about 5 hours of mels").flag("memory-cache-mb"),

    // Batches.
    Key::new("data.batch_size", int(1, 4096), "56",
        "utterances of a batch of the GPT; 56 lies between what GPUs of 12 and of 24 GB hold").flag("batch-size"),
    Key::new("data.dvae_batch_size", int(1, 4096), "null",
        "windows of a batch of the DVAE; null takes what suits the preset"),
    Key::new("data.decoder_batch_size", int(1, 4096), "null",
        "windows of a batch of the decoder; null takes what suits the preset"),
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
    Key::new("data.balance_temperature", float(1.0, 100.0), "2.0",
        "n clips of a speaker in a language count as n^(1/T), each at most 8 times an epoch; 1 is the corpus as it is, 2 lies halfway to all alike")
        .flag("balance-temperature"),

    // Loading.
    Key::new("data.num_workers", int(1, 1024), "18",
        "threads that make batches; 18 suits a workstation, and is capped by the cores of the machine").flag("num-workers"),
    Key::new("data.prefetch_buffer_size", int(1, 1024), "12",
        "finished batches kept ready; 12 rides out short stalls of the disk").flag("prefetch-buffer-size"),
    Key::new("data.buffer_size", int(1, 4096), "50",
        "batches under way at once from plan to delivery; 50 bounds the host memory at about 2 GB").flag("buffer-size"),
    Key::new("data.model_start_delay", float(0.0, 600.0), "2.0",
        "seconds the first step waits at least while the buffers of data_gpu fill; 2.0 smooths the start").flag("model-start-delay"),
    Key::new("data.auto_tune_performance", Bool, "true",
        "choose batch size, workers and buffers for this machine where the file does not").flag("auto-tune-performance"),
    Key::new("data.native_loading", Bool, "true",
        "compute features once and keep them; off computes them for every batch anew and keeps nothing, with the same result")
        .alias(&["use_tf_native_loading"]),
    Key::new("data.data_gpu", Gpu, "null",
        "GPU that computes features; null leaves them to the CPU, which is fast enough with a cache").flag("data-gpu"),
    Key::new("data.model_gpu", Gpus, "null",
        "GPUs that hold the model, such as \"1\" or \"1,2,3\"; null takes them from training").flag("model-gpu"),
    Key::new("data.prefetch_to_gpu", Bool, "true",
        "upload the next batch while the current step runs; off only where GPU memory is very short"),
    Key::new("data.enhanced_gpu_prefetch", Bool, "true",
        "upload from page-locked memory, at ten times the rate of ordinary memory; off to compare"),
    Key::new("data.keep_on_device", Bool, "true",
        "keep all conditioning on the GPU where it is at most a sixteenth of its memory, so that batches bring numbers alone"),
    Key::new("data.optimize_cpu_gpu_overlap", Bool, "true",
        "queue steps before those ahead of them are over; off waits for each, to see what it buys"),

    // The model.
    Key::new("model.preset", Choice(&["tiny", "small", "normal", "big", "v2"]), "normal",
        "size of the network; v2 has the shape of XTTS-v2, normal is the middle of the ladder").flag("preset"),
    Key::new("model.masks", Choice(&["corrected", "coqui"]), "corrected",
        "rows that attention and loss leave out; coqui repeats upstream's, which mask the wrong ones, to compare").flag("masks"),
    Key::new("model.audio_codes", int(16, 8192), "null",
        "entries of the DVAE's codebook; null is 256 for tiny, else 8192 for little speech and 1024 for much"),

    // Training.
    Key::new("training.seed", int(0, u64::MAX), "1234",
        "all randomness comes from this number: the same seed gives the same run").flag("seed"),
    Key::new("training.optimization_level", Choice(&["basic", "enhanced", "experimental"]), "enhanced",
        "bundle behind every null below: basic is upstream's recipe, enhanced adds warm-up, cosine, clipping and an average, \
         fitted to the preset; experimental also what has not proved itself yet").flag("optimization-level"),
    Key::new("training.dvae_steps", int(0, MOST_STEPS), "null",
        "steps of the DVAE stage; null takes what suits the preset and the speech there is, 0 leaves the stage out").flag("dvae-steps"),
    Key::new("training.gpt_steps", int(0, MOST_STEPS), "null",
        "steps of the GPT stage; null takes what suits the preset and the speech there is, 0 leaves the stage out").flag("gpt-steps"),
    Key::new("training.decoder_steps", int(0, MOST_STEPS), "null",
        "steps of the decoder stage; null takes what suits the preset and the speech there is, 0 leaves the stage out").flag("decoder-steps"),
    Key::new("training.learning_rate", float(1e-9, 1.0), "null",
        "highest learning rate; null takes the bundle's: larger networks need smaller ones, fine-tuning a 20th")
        .flag("learning-rate"),
    Key::new("training.warmup_steps", int(0, MOST_STEPS), "null",
        "steps over which the rate rises; null is 5 % of the stage, at most 1000, and none in basic").flag("warmup-steps"),
    Key::new("training.schedule", Choice(&["cosine", "constant"]), "null",
        "how the rate goes on after the warm-up; null is cosine, which ends lower in loss, and constant in basic"),
    Key::new("training.learning_rate_floor", float(0.0, 1.0), "0.1",
        "share of the rate left at the end of a cosine; 0.1 keeps the last steps from being wasted"),
    Key::new("training.weight_decay", float(0.0, 1.0), "0.01",
        "decay of weights; biases, norms and embeddings have none; 0.01 is what XTTS was trained with"),
    Key::new("training.gradient_clip", float(0.0, 1e6), "null",
        "largest norm of the gradient, 0 for none; null takes the bundle's, 1 to 2 by preset and none in basic")
        .flag("gradient-clip"),
    Key::new("training.gradient_accumulation_steps", int(1, 1024), "1",
        "batches summed before a step; raise it when the batch you want does not fit")
        .flag("gradient-accumulation-steps"),
    Key::new("training.ema_decay", float(0.0, 0.999_999), "null",
        "share of the moving average of the weights kept each step, 0 for none; null is 0.999, and none in basic"),
    Key::new("training.dropout", float(0.0, 0.9), "null",
        "share of activations dropped while training the GPT; null is 0.3 for little speech, else 0.1, as XTTS was trained"),
    Key::new("training.label_smoothing", float(0.0, 0.5), "null",
        "share of probability spread over all codes; null is 0, and 0.05 in experimental"),
    Key::new("training.code_masking", float(0.0, 0.9), "null",
        "share of the GPT's input codes that are hidden, so that it must read the text; null is 0.45 for little speech, else 0"),
    Key::new("training.recombination", float(0.0, 1.0), "null",
        "share of the GPT's rows joined from pieces of several clips of a speaker; null is 0.7 for little speech, else 0"),
    Key::new("training.alignment_weight", float(0.0, 10.0), "null",
        "weight of the loss that asks the GPT which token is being spoken; null is 0.3 for little speech, else 0"),
    Key::new("training.code_token_weight", float(0.0, 10.0), "null",
        "weight of the loss that asks the DVAE's codes which token is being spoken; null is 0.3 for little speech, else 0"),
    Key::new("training.diagonal_start", Bool, "null",
        "start the GPT's attention along the text; null is true for little speech, and only a GPT from nothing can"),
    Key::new("training.text_dropout", float(0.0, 0.9), "null",
        "share of the GPT's rows whose text is left out, which guidance needs when it speaks; null is 0.1 for little speech, else 0"),
    Key::new("training.codebook_start", Bool, "null",
        "start the GPT's audio codes as the DVAE's vectors of them; null is true for little speech, and only a GPT from nothing can"),
    Key::new("training.discriminator_start", float(0.0, 1.0), "null",
        "share of the decoder's steps after which the discriminators join, 1 for never; null takes what suits the preset"),
    Key::new("training.lora_rank", int(1, 1024), "null",
        "train low-rank additions of this rank to the GPT instead of all of it; null trains all of it").flag("lora-rank"),
    Key::new("training.freeze_layers", int(0, 128), "0",
        "lowest layers of the GPT that stay as they are; 0 because most voices gain from all of them").flag("freeze-layers"),

    // Guards.
    Key::new("training.bad_step_budget", int(0, 1_000_000), "50",
        "steps with a loss or gradient that is no number, skipped and reported, before the run stops; 50 forgives bad clips"),
    Key::new("training.bad_steps_in_a_row", int(0, 10_000), "5",
        "the same one after the other; more than 5 are no accident of the data"),
    Key::new("training.spike_limit", float(2.0, 1000.0), "10.0",
        "a loss this many deviations above the last ones is reported as a spike; 10 leaves ordinary noise alone"),
    Key::new("training.early_stop_patience", int(1, 100_000), "null",
        "validations without improvement before a stage ends with its best weights; null ends a GPT that passes 20 times or more over its clips after a quarter of its steps without improvement, 10 validations at least, and leaves the other stages to their end")
        .flag("early-stop-patience"),

    // What a run keeps.
    Key::new("training.runs_dir", Path, "runs",
        "folder in which every run gets a folder of its own").flag("runs-dir"),
    Key::new("training.validate_every", int(0, MOST_STEPS), "null",
        "steps between validations, 0 for one at the end only; null is four epochs, 100 at least and 500 at most, so that a small corpus is not overfitted unseen").flag("validate-every"),
    Key::new("training.sample_every", int(0, MOST_STEPS), "1000",
        "steps between spoken samples, of which the end of a stage has one too; 0 for none; 1000 lets one hear progress without slowing it").flag("sample-every"),
    Key::new("training.checkpoint_every", int(0, MOST_STEPS), "500",
        "steps between checkpoints, 0 for one at the end only; 500 is what a power cut may cost").flag("checkpoint-every"),
    Key::new("training.keep_checkpoints", int(1, 10_000), "3",
        "newest checkpoints kept; 3 leaves two to fall back to. Pinned ones are kept anyway").flag("keep-checkpoints"),
    Key::new("training.keep_best", int(1, 10_000), "1",
        "checkpoints of each stage kept for their validation score").flag("keep-best"),

    // A recogniser.
    Key::new("training.recognizer_command", Text, "null",
        "command that prints the text of a sound file, such as \"whisper-cli -f {wav} -l {language}\": samples, evaluate and resynthesize then have error rates")
        .flag("recognizer-command"),
    Key::new("training.recognizer_url", Text, "null",
        "the same as a server with OpenAI's interface, such as http://127.0.0.1:8000/v1; sound is posted to URL/audio/transcriptions")
        .flag("recognizer-url"),
    Key::new("training.recognizer_model", Text, "whisper-1",
        "model that a server is asked for; whisper-1 is what most call theirs").flag("recognizer-model"),
    Key::new("training.recognizer_digits", Bool, "false",
        "compare numerals digit by digit, for corpora of digits: 42 is then \"four two\"").flag("recognizer-digits"),

    // Devices.
    Key::new("training.multi_gpu", Bool, "false",
        "train on all visible_gpus together; off because most machines have one").flag("multi-gpu"),
    Key::new("training.reduce_bf16", Bool, "false",
        "sum gradients over GPUs and ranks in bf16: half the bytes on the way, and each sum is rounded; off keeps them exact")
        .flag("reduce-bf16"),
    Key::new("training.visible_gpus", Gpus, "null",
        "GPUs that may be used, such as \"0,1\", the first one first; null is all that the driver shows").flag("visible-gpus"),
    Key::new("training.memory_limit", Kind::Size { min: 1 << 28, max: 1 << 44 }, "null",
        "device memory that may be used, such as 24GiB; null is all of it. More is computed again where it is short")
        .flag("memory-limit"),
    Key::new("training.enable_graph_mode", Bool, "true",
        "capture the step as a CUDA graph and replay it: no launch gaps"),
    Key::new("training.enable_eager_debug", Bool, "false",
        "run every operation by itself and name the first whose result is not finite: slow, for finding faults"),
];
