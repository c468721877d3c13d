//! Settings against each other: what cannot hold together is a mistake, what has no effect or a
//! price is a note. What is asked of GPUs is judged where it is known which there are, in `train::strategy`.

use super::{Plan, PreprocessingMode};
use crate::config::{Mistake, Problem};

/// Pairs of settings that leave nothing to train on.
pub(super) fn contradictions(plan: &Plan) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let mut say = |path: &str, sentence: String| {
        if let Some(resolved) = plan.value(path) {
            let problem = Problem::Contradiction(sentence);
            mistakes.push(Mistake { origin: resolved.origin.clone(), problem });
        }
    };
    let data = &plan.data;
    let longest = data.longest_seconds();
    if data.min_seconds >= longest {
        // Named after the one a person wrote, where only one was.
        let path = ["data.min_seconds", "data.max_seconds", "data.max_mel_frames"];
        let path = path.into_iter().find(|path| plan.is_written(path)).unwrap_or("data.min_seconds");
        say(
            path,
            format!(
                "clips must be at least data.min_seconds = {} s and at most {longest:.2} s long \
             (data.max_seconds, data.max_mel_frames): no clip can be both",
                data.min_seconds
            ),
        );
    }
    if let Some(budget) = data.frame_budget
        && budget < data.max_mel_frames
    {
        say(
            "data.frame_budget",
            format!(
                "data.frame_budget = {budget} is less than data.max_mel_frames = {}: the longest clips fit in no batch",
                data.max_mel_frames
            ),
        );
    }
    if !data.native_loading && data.preprocessing_mode == PreprocessingMode::Precompute {
        say(
            "data.native_loading",
            "data.native_loading = false computes every clip anew: data.preprocessing_mode = precompute cannot hold as well"
                .to_owned(),
        );
    }
    let training = &plan.training;
    if training.lora_rank.is_some() && training.freeze_layers > 0 && plan.is_written("training.freeze_layers")
    {
        say(
            "training.freeze_layers",
            "training.lora_rank leaves every layer as it is and trains additions to all of them: \
             training.freeze_layers cannot hold as well"
                .to_owned(),
        );
    }
    mistakes
}

/// What the user should know.
pub(super) fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    let data = &plan.data;
    let training = &plan.training;
    let mut note = |condition: bool, sentence: &dyn Fn() -> String| {
        if condition {
            notes.push(sentence());
        }
    };

    for resolved in &plan.values {
        if let Some(capped) = &resolved.capped {
            note(resolved.origin.is_written(), &|| {
                format!(
                    "{} is {} instead of {}: {}",
                    resolved.key.path, resolved.value, capped.asked, capped.reason
                )
            });
        }
    }
    note(data.val_data.is_some() && plan.is_written("data.val_fraction"), &|| {
        "data.val_fraction has no effect: data.val_data is given and wins".to_owned()
    });
    note(data.frame_budget.is_some() && plan.is_written("data.batch_size"), &|| {
        "data.batch_size has no effect: data.frame_budget is given and wins".to_owned()
    });
    note(data.quadratic_frames.is_some() && data.frame_budget.is_none(), &|| {
        "data.quadratic_frames has no effect without data.frame_budget".to_owned()
    });
    note(data.max_seconds.is_some_and(|asked| asked > data.frame_limit_seconds()), &|| {
        format!(
            "data.max_seconds has no effect: data.max_mel_frames = {} already limits clips to {:.1} s",
            data.max_mel_frames,
            data.frame_limit_seconds()
        )
    });
    let computed = data.preprocessing_mode == PreprocessingMode::Runtime || !data.native_loading;
    note(computed && data.cache_dir.is_some(), &|| {
        "data.cache_dir keeps the vocabulary only: features are computed whenever they are asked for"
            .to_owned()
    });
    note(!computed && plan.is_written("data.memory_cache_mb"), &|| {
        "data.memory_cache_mb has no effect where there is a cache: it is for data.preprocessing_mode = runtime"
            .to_owned()
    });
    note(!data.native_loading && plan.is_written("data.memory_cache_mb"), &|| {
        "data.memory_cache_mb has no effect: data.native_loading = false keeps nothing".to_owned()
    });
    note(data.data_gpu.is_none() && plan.is_written("data.model_start_delay"), &|| {
        "data.model_start_delay has no effect without data.data_gpu".to_owned()
    });
    note(
        !data.prefetch_to_gpu && data.enhanced_gpu_prefetch && plan.is_written("data.enhanced_gpu_prefetch"),
        &|| "data.enhanced_gpu_prefetch has no effect: data.prefetch_to_gpu is off".to_owned(),
    );
    note(data.prefetch_buffer_size > data.buffer_size, &|| {
        format!(
            "data.prefetch_buffer_size = {} is more than data.buffer_size = {}: no more than {1} batches \
             are ever under way",
            data.prefetch_buffer_size, data.buffer_size
        )
    });
    note(training.early_stop_patience.is_some() && training.validate_every == Some(0), &|| {
        "training.early_stop_patience has no effect: training.validate_every is 0".to_owned()
    });
    note(
        training.enable_eager_debug
            && plan.is_written("training.enable_graph_mode")
            && training.enable_graph_mode,
        &|| {
            "training.enable_graph_mode has no effect: training.enable_eager_debug runs every operation by itself"
            .to_owned()
        },
    );
    notes
}
