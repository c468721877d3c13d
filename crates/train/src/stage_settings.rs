//! The settings of each stage, from the plan of a run.

use crate::compute_device::ComputeDevice;
use crate::feed::{Depth, FeedSettings};
use crate::sizes::Sizes;
use crate::stages::ClipOrder;
use crate::stages::decoder::{DecoderSettings, MEL_WEIGHT};
use crate::stages::dvae::DvaeSettings;
use crate::stages::gpt::{Conditioning, GptSettings, Lengths, Regularization};
use crate::training_data::{Corpus, DataSide};
use myxtts_data::batch::Rows;
use myxtts_data::loader::FailureBudget;
use myxtts_model::Masks;
use myxtts_run::plan::{Masks as PlanMasks, Plan, PreprocessingMode};
use myxtts_tensor::engine::Upload;
use myxtts_tensor::{Device, Mode};

/// Share of a device's memory that resident conditioning may take; small enough to leave room for batches.
const RESIDENT_SHARE: f64 = 1.0 / 16.0;

impl DecoderSettings {
    /// The settings of a run.
    pub(crate) fn from_plan(plan: &Plan, sizes: &Sizes) -> DecoderSettings {
        DecoderSettings {
            decoder: sizes.decoder.clone(),
            speaker: sizes.speaker.clone(),
            discriminators: sizes.discriminators.clone(),
            rows: sizes.decoder_rows,
            window: sizes.decoder_window,
            speaker_frames: sizes.speaker_frames,
            discriminators_from: sizes.discriminators_from,
            mel_weight: plan.training.decoder_mel_weight.unwrap_or(MEL_WEIGHT),
            balance: plan.data.balance_temperature,
            order: clip_order(plan),
            mode: Mode::default(),
            feeding: feeding(plan),
            seed: plan.training.seed,
            memory_limit: plan.training.memory_limit,
        }
    }
}

pub(crate) fn dvae_settings(plan: &Plan, sizes: &Sizes) -> DvaeSettings {
    DvaeSettings {
        sizes: sizes.dvae.clone(),
        rows: sizes.dvae_rows,
        frames: sizes.dvae_frames,
        balance: plan.data.balance_temperature,
        order: clip_order(plan),
        mode: Mode::default(),
        feeding: feeding(plan),
        seed: plan.training.seed,
        memory_limit: plan.training.memory_limit,
        token_targets: None,
        mels: None,
    }
}

pub(crate) fn clip_order(plan: &Plan) -> ClipOrder {
    ClipOrder { shuffled: plan.data.shuffle, worst_first: plan.data.worst_batch_first }
}

/// Mel frames per code: settings count in frames, the GPT's batches in codes.
const FRAMES_OF_CODE: u64 = 4;

/// Rows of the GPT's batches, split over `replicas` replicas.
pub(crate) fn gpt_rows(plan: &Plan, replicas: usize) -> Rows {
    match plan.data.frame_budget {
        None => Rows::Fixed(plan.data.batch_size as u32),
        Some(frames) => Rows::Budget {
            frames: (frames as u64 / FRAMES_OF_CODE).max(1),
            quadratic: plan
                .data
                .quadratic_frames
                .map(|frames| (frames / FRAMES_OF_CODE as f64).round().max(1.0) as u32),
            multiple: replicas.max(1) as u32,
        },
    }
}

pub(crate) fn gpt_settings(plan: &Plan, sizes: &Sizes) -> GptSettings {
    GptSettings {
        sizes: sizes.gpt.clone(),
        rows: gpt_rows(plan, 1),
        order: clip_order(plan),
        frames: sizes.conditioning_frames,
        balance: plan.data.balance_temperature,
        masks: match plan.model.masks {
            PlanMasks::Corrected => Masks::Corrected,
            PlanMasks::Coqui => Masks::Coqui,
        },
        accumulate: plan.training.gradient_accumulation_steps as u64,
        mode: Mode::default(),
        feeding: feeding(plan),
        conditioning: Conditioning::Batch,
        start_delay: None,
        lengths: lengths(plan),
        seed: plan.training.seed,
        memory_limit: plan.training.memory_limit,
        freeze_layers: plan.training.freeze_layers,
        lora_rank: plan.training.lora_rank,
        regularization: regularization(plan),
    }
}

/// The measures against memorising clips that a plan asks for, without the alignments that some of them need.
fn regularization(plan: &Plan) -> Regularization {
    let training = &plan.training;
    Regularization {
        masking: training.code_masking.unwrap_or(0.0),
        recombination: training.recombination.unwrap_or(0.0),
        alignment_weight: training.alignment_weight.unwrap_or(0.0),
        acoustic_weight: training.acoustic_weight.unwrap_or(0.0),
        diagonal: training.diagonal_start.unwrap_or(false),
        codebook_start: training.codebook_start.unwrap_or(false),
        text_dropout: training.text_dropout.unwrap_or(0.0),
        alignments: None,
        space: 0,
    }
}

/// Source of the conditioning of the GPT's batches on a device.
pub(crate) fn conditioning(plan: &Plan, corpus: &Corpus, machine: ComputeDevice) -> Conditioning {
    let cached = plan.data.native_loading && plan.data.preprocessing_mode != PreprocessingMode::Runtime;
    match &corpus.data_side {
        Some(DataSide { device, waveforms, .. }) => {
            Conditioning::Waveforms { device: *device, waveforms: waveforms.clone() }
        }
        // On a CPU there is no closer memory, and without a cache there are no mels yet.
        None if plan.data.keep_on_device && cached && machine.device != Device::Cpu => {
            Conditioning::Resident { at_most: RESIDENT_SHARE }
        }
        None => Conditioning::Batch,
    }
}

/// Feed settings of a plan. Each switch can be turned off to measure its effect; none changes the results.
pub(crate) fn feeding(plan: &Plan) -> FeedSettings {
    let data = &plan.data;
    FeedSettings {
        workers: data.num_workers,
        upload: match (data.prefetch_to_gpu, data.enhanced_gpu_prefetch) {
            (true, true) => Upload::Ahead,
            (true, false) => Upload::AheadPageable,
            (false, _) => Upload::WithStep,
        },
        depth: Some(Depth::of(data.prefetch_buffer_size)),
        under_way: data.buffer_size,
        failures: FailureBudget { rate: data.failure_budget, ..FailureBudget::default() },
        fault: None,
    }
}

pub(crate) fn lengths(plan: &Plan) -> Lengths {
    Lengths { buckets: plan.data.buckets as u32, ..Lengths::default() }
}
