//! Checks across settings: contradictions are errors, settings without effect get a note. GPU settings are checked in
//! `train::strategy`, where the available GPUs are known.

use super::{Plan, PreprocessingMode};
use crate::config::{Mistake, Problem};

/// Settings that exclude each other.
pub(super) fn contradictions(plan: &Plan) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let mut report = |path: &str, message: String| {
        if let Some(resolved) = plan.value(path) {
            let problem = Problem::Conflict(message);
            mistakes.push(Mistake { origin: resolved.origin.clone(), problem });
        }
    };
    let data = &plan.data;
    let longest = data.longest_seconds();
    if data.min_seconds >= longest {
        // Reported at the setting that the user wrote.
        let path = ["data.min_seconds", "data.max_seconds", "data.max_mel_frames"];
        let path = path.into_iter().find(|path| plan.is_explicit(path)).unwrap_or("data.min_seconds");
        report(
            path,
            format!(
                "data.min_seconds = {} s is not below the maximum clip length of {longest:.2} s \
                 (data.max_seconds, data.max_mel_frames): no clip can satisfy both",
                data.min_seconds
            ),
        );
    }
    if let Some(budget) = data.frame_budget
        && budget < data.max_mel_frames
    {
        report(
            "data.frame_budget",
            format!(
                "data.frame_budget = {budget} is less than data.max_mel_frames = {}: the longest clips do not fit in any batch",
                data.max_mel_frames
            ),
        );
    }
    if !data.native_loading && data.preprocessing_mode == PreprocessingMode::Precompute {
        report(
            "data.native_loading",
            "data.native_loading = false recomputes every clip, which excludes data.preprocessing_mode = precompute"
                .to_owned(),
        );
    }
    let training = &plan.training;
    if training.lora_rank.is_some()
        && training.freeze_layers > 0
        && plan.is_explicit("training.freeze_layers")
    {
        report(
            "training.freeze_layers",
            "training.lora_rank freezes all layers and trains adapters for each of them, which excludes \
             training.freeze_layers"
                .to_owned(),
        );
    }
    mistakes
}

/// Notes on settings without effect or with a reduced value.
pub(super) fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    let data = &plan.data;
    let training = &plan.training;
    let mut note = |condition: bool, text: &dyn Fn() -> String| {
        if condition {
            notes.push(text());
        }
    };

    for resolved in &plan.values {
        if let Some(capped) = &resolved.capped {
            note(resolved.origin.is_explicit(), &|| {
                format!(
                    "{} is {} instead of {}: {}",
                    resolved.key.path, resolved.value, capped.requested, capped.reason
                )
            });
        }
    }
    note(data.val_data.is_some() && plan.is_explicit("data.val_fraction"), &|| {
        "data.val_fraction has no effect: data.val_data takes precedence".to_owned()
    });
    note(data.frame_budget.is_some() && plan.is_explicit("data.batch_size"), &|| {
        "data.batch_size has no effect: data.frame_budget takes precedence".to_owned()
    });
    note(data.quadratic_frames.is_some() && data.frame_budget.is_none(), &|| {
        "data.quadratic_frames has no effect without data.frame_budget".to_owned()
    });
    note(data.max_seconds.is_some_and(|seconds| seconds > data.frame_limit_seconds()), &|| {
        format!(
            "data.max_seconds has no effect: data.max_mel_frames = {} already limits clips to {:.1} s",
            data.max_mel_frames,
            data.frame_limit_seconds()
        )
    });
    let on_demand = data.preprocessing_mode == PreprocessingMode::Runtime || !data.native_loading;
    note(on_demand && data.cache_dir.is_some(), &|| {
        "data.cache_dir stores only the vocabulary: features are computed on demand".to_owned()
    });
    note(!on_demand && plan.is_explicit("data.memory_cache_mb"), &|| {
        "data.memory_cache_mb has no effect with a cache: it applies to data.preprocessing_mode = runtime"
            .to_owned()
    });
    note(!data.native_loading && plan.is_explicit("data.memory_cache_mb"), &|| {
        "data.memory_cache_mb has no effect: data.native_loading = false caches nothing".to_owned()
    });
    note(data.data_gpu.is_none() && plan.is_explicit("data.model_start_delay"), &|| {
        "data.model_start_delay has no effect without data.data_gpu".to_owned()
    });
    note(
        !data.prefetch_to_gpu && data.enhanced_gpu_prefetch && plan.is_explicit("data.enhanced_gpu_prefetch"),
        &|| "data.enhanced_gpu_prefetch has no effect: data.prefetch_to_gpu is off".to_owned(),
    );
    note(data.prefetch_buffer_size > data.buffer_size, &|| {
        format!(
            "data.prefetch_buffer_size = {} is more than data.buffer_size = {}: no more than {1} batches \
             are ever in progress",
            data.prefetch_buffer_size, data.buffer_size
        )
    });
    note(training.early_stop_patience.is_some() && training.validate_every == Some(0), &|| {
        "training.early_stop_patience has no effect: training.validate_every is 0".to_owned()
    });
    note(
        training.enable_eager_debug
            && plan.is_explicit("training.enable_graph_mode")
            && training.enable_graph_mode,
        &|| {
            "training.enable_graph_mode has no effect: training.enable_eager_debug runs operations one at a time"
            .to_owned()
        },
    );
    notes
}
