//! What a run may be told anew when it goes on, and what acts in one stage alone. Both are lists of paths of the table; a
//! setting that is in neither is settled when a run begins and acts in every stage it can act in.

/// Settings that a run which goes on takes over: how long, how fast, how often, and where. None of them changes which
/// batch a step takes or how the weights lie in a checkpoint.
pub const CHANGEABLE: &[&str] = &[
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

/// Settings that act in the GPT stage alone, and why there is nothing for them in the others.
pub const GPT_ONLY: &[(&str, &str)] = &[
    ("data.batch_size", "the others have data.dvae_batch_size and data.decoder_batch_size"),
    ("data.frame_budget", "the others take windows of one length"),
    ("data.quadratic_frames", "the others take windows of one length"),
    ("data.buckets", "the others take windows of one length"),
    ("data.worst_batch_first", "all batches of the others are of one size"),
    ("training.gradient_accumulation_steps", "the others take one batch a step"),
    ("training.dropout", "the other networks have none"),
    ("training.label_smoothing", "the others are not asked for codes"),
    ("training.code_masking", "the others read no codes"),
    ("training.recombination", "the others read no text"),
    ("training.alignment_weight", "the others read no text"),
    ("training.diagonal_start", "the others read no text"),
    ("training.codebook_start", "the others have no table of codes"),
    ("training.text_dropout", "the others read no text"),
    ("training.lora_rank", "the other networks are trained whole"),
    ("training.freeze_layers", "the other networks are trained whole"),
    ("data.data_gpu", "the others need no conditioning"),
    ("data.model_start_delay", "it belongs to data.data_gpu"),
    ("data.keep_on_device", "the others need no conditioning"),
];

/// Settings that act on a GPU alone.
pub const GPU_ONLY: &[&str] = &[
    "data.prefetch_to_gpu",
    "data.enhanced_gpu_prefetch",
    "data.keep_on_device",
    "data.optimize_cpu_gpu_overlap",
    "training.enable_graph_mode",
];
