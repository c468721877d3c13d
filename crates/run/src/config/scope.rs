//! Where settings apply: which of them a resumed run may change, and which act in some stages or on GPUs only. A setting
//! in none of these lists is fixed when a run is created, and acts in every stage and on every device.

/// Settings that can be changed when a run is resumed: how long, how fast, how often, and where. None of them changes
/// which batch a step uses or how weights are stored in a checkpoint.
pub const CHANGEABLE_ON_RESUME: &[&str] = &[
    "data.failure_budget",
    "data.memory_cache_mb",
    "data.num_workers",
    "data.prefetch_buffer_size",
    "data.buffer_size",
    "data.model_start_delay",
    "data.data_gpu",
    "data.model_gpu",
    "data.prefetch_to_gpu",
    "data.enhanced_gpu_prefetch",
    "data.keep_on_device",
    "data.optimize_cpu_gpu_overlap",
    "training.dvae_steps",
    "training.gpt_steps",
    "training.decoder_steps",
    "training.learning_rate",
    "training.warmup_steps",
    "training.schedule",
    "training.learning_rate_floor",
    "training.weight_decay",
    "training.gradient_clip",
    "training.bad_step_budget",
    "training.bad_steps_in_a_row",
    "training.spike_limit",
    "training.early_stop_patience",
    "training.validate_every",
    "training.sample_every",
    "training.checkpoint_every",
    "training.keep_checkpoints",
    "training.keep_best",
    "training.multi_gpu",
    "training.reduce_bf16",
    "training.visible_gpus",
    "training.memory_limit",
    "training.recognizer_command",
    "training.recognizer_url",
    "training.recognizer_model",
    "training.recognizer_digits",
    "training.enable_graph_mode",
    "training.enable_eager_debug",
];

/// Settings that act in the GPT stage only, each with the reason.
pub const GPT_ONLY: &[(&str, &str)] = &[
    ("data.batch_size", "the other stages have data.dvae_batch_size and data.decoder_batch_size"),
    ("data.frame_budget", "the other stages use windows of one length"),
    ("data.quadratic_frames", "the other stages use windows of one length"),
    ("data.buckets", "the other stages use windows of one length"),
    ("data.worst_batch_first", "all batches of the other stages have the same size"),
    ("training.gradient_accumulation_steps", "the other stages use one batch per step"),
    ("training.dropout", "the other networks have no dropout"),
    ("training.label_smoothing", "the other stages do not predict codes"),
    ("training.code_masking", "the other stages have no input codes"),
    ("training.recombination", "the other stages read no text"),
    ("training.alignment_weight", "the other stages read no text"),
    ("training.acoustic_weight", "the other stages predict no codes"),
    ("training.diagonal_start", "the other stages read no text"),
    ("training.codebook_start", "the other stages have no code embeddings"),
    ("training.text_dropout", "the other stages read no text"),
    ("training.lora_rank", "the other networks are trained in full"),
    ("training.freeze_layers", "the other networks are trained in full"),
    ("data.keep_on_device", "the other stages need no conditioning"),
    (
        "model.masks",
        "the decoder learns from the GPT's states as they are when speaking, where masks are always the corrected ones",
    ),
];

/// Settings that the decoder stage does not use, each with the reason.
pub const NOT_IN_DECODER: &[(&str, &str)] = &[
    ("data.num_workers", "one thread reads the windows of its batches"),
    (
        "data.buffer_size",
        "its batches are made one after the other, and data.prefetch_buffer_size of them wait",
    ),
    ("data.model_start_delay", "its batches are made on the CPU, also with data.data_gpu"),
];

/// Settings that act on GPUs only.
pub const GPU_ONLY: &[&str] = &[
    "data.prefetch_to_gpu",
    "data.enhanced_gpu_prefetch",
    "data.keep_on_device",
    "data.optimize_cpu_gpu_overlap",
    "training.enable_graph_mode",
];
