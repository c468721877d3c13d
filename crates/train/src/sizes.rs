//! How large everything of a run is: the networks by preset or by the model that is begun from, batches and windows by preset.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::model::{DECODER, DVAE, Model, SPEAKER};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::GptSizes;
use myxtts_model::decoder::DecoderSizes;
use myxtts_model::discriminator::DiscriminatorSizes;
use myxtts_model::dvae::DvaeSizes;
use myxtts_model::presets::{Networks, TextIds};
use myxtts_model::speaker::SpeakerSizes;
use myxtts_run::plan::{Plan, Preset};
use myxtts_tensor::Device;

/// Sizes of networks, batches and windows.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The audio tokeniser.
    pub dvae: DvaeSizes,
    /// Windows in its batches.
    pub dvae_rows: u32,
    /// Frames of a window: whole codes.
    pub dvae_frames: u32,
    /// The language model.
    pub gpt: GptSizes,
    /// Frames its conditioning is taken from.
    pub conditioning_frames: u32,
    /// The waveform decoder.
    pub decoder: DecoderSizes,
    /// The speaker encoder.
    pub speaker: SpeakerSizes,
    /// The discriminators.
    pub discriminators: DiscriminatorSizes,
    /// Windows in the decoder's batches.
    pub decoder_rows: usize,
    /// Latents of a window.
    pub decoder_window: usize,
    /// Frames a speaker is heard by.
    pub speaker_frames: usize,
    /// The share of the decoder's steps after which the discriminators join.
    pub discriminators_from: f64,
}

impl Sizes {
    /// What the plan says, where the model does not say otherwise.
    pub fn of(
        plan: &Plan,
        machine: ComputeDevice,
        tokenizer: &Tokenizer,
        model: &Model,
    ) -> Result<Sizes, TrainError> {
        let text = TextIds {
            vocabulary: tokenizer.vocabulary_size(),
            start: tokenizer.start_id(),
            stop: tokenizer.stop_id(),
        };
        let mut sizes = Sizes::planned(plan, machine, text);
        let shape = |name: &str| model.shape(name);
        if let Some(codes) = plan.model.audio_codes {
            sizes.dvae.codes = codes;
        }
        if model.has(DVAE) {
            sizes.dvae = DvaeSizes::of_shapes(&shape, "dvae.")?;
        }
        if let Some(gpt) = model.gpt_sizes(tokenizer)? {
            sizes.gpt = gpt;
        }
        sizes.gpt.audio_vocabulary = sizes.dvae.codes + 2;
        (sizes.gpt.start_audio, sizes.gpt.stop_audio) =
            (sizes.dvae.codes as i32, sizes.dvae.codes as i32 + 1);
        if model.has(DECODER) {
            sizes.decoder = DecoderSizes::of_shapes(&shape)?;
        }
        if model.has(SPEAKER) {
            sizes.speaker = SpeakerSizes::of_shapes(&shape)?;
        }
        sizes.decoder.latent = sizes.gpt.width;
        sizes.decoder.speaker = sizes.speaker.result;
        Ok(sizes)
    }

    /// As a plan has them for a model that begins from nothing; all but what depends on its vocabulary.
    pub fn without_vocabulary(plan: &Plan, machine: ComputeDevice) -> Sizes {
        Sizes::planned(plan, machine, TextIds { vocabulary: 1, start: 0, stop: 0 })
    }

    fn planned(plan: &Plan, machine: ComputeDevice, text: TextIds) -> Sizes {
        let preset = plan.model.preset;
        let mut sizes = Sizes::preset(preset, text);
        match (machine.device, preset) {
            // On a processor the discriminators cost more than everything else, and a demonstration is to end soon.
            (Device::Cpu, Preset::Tiny) => sizes.discriminators_from = 1.0,
            // A GPU has room for more rows. The discriminators, a few channels wide, are slow on it too, and serve at the end.
            (Device::Cuda(_), Preset::Tiny) => {
                (sizes.decoder_rows, sizes.decoder_window, sizes.discriminators_from) = (16, 16, 0.9);
            }
            (Device::Cuda(_), Preset::Small) => sizes.decoder_rows = 32,
            _ => {}
        }
        if let Some(rows) = plan.data.dvae_batch_size {
            sizes.dvae_rows = rows as u32;
        }
        if let Some(rows) = plan.data.decoder_batch_size {
            sizes.decoder_rows = rows;
        }
        if let Some(share) = plan.training.discriminator_start {
            sizes.discriminators_from = share;
        }
        sizes
    }

    fn preset(preset: Preset, text: TextIds) -> Sizes {
        let Networks { dvae, gpt, decoder, speaker, discriminators } = Networks::of(preset, text);
        // Batches and windows: as many as keep the device busy, as long as what is to be heard in them.
        let (dvae_rows, dvae_frames, conditioning_frames) = match preset {
            Preset::Tiny => (16, 64, 96),
            Preset::Small => (64, 128, 517),
            Preset::Normal | Preset::Big | Preset::V2 => (128, 128, 517),
        };
        let (decoder_rows, decoder_window, speaker_frames, discriminators_from) = match preset {
            Preset::Tiny => (8, 8, 96, 0.4),
            // Steps without discriminators are cheaper by two thirds. Before a third of the steps mels still come nearer fast; a
            // guess: only 0.5 and 0.6 were tried on real speech.
            Preset::Small => (16, 16, 200, 0.3),
            Preset::Normal | Preset::Big | Preset::V2 => (16, 16, 200, 0.05),
        };
        Sizes {
            dvae,
            dvae_rows,
            dvae_frames,
            gpt,
            conditioning_frames,
            decoder,
            speaker,
            discriminators,
            decoder_rows,
            decoder_window,
            speaker_frames,
            discriminators_from,
        }
    }
}
