//! Sizes of a run: networks by preset or by the base model, batches and windows by preset.

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
    /// The DVAE (audio tokeniser).
    pub dvae: DvaeSizes,
    /// Windows per DVAE batch.
    pub dvae_rows: u32,
    /// Mel frames per DVAE window; a multiple of the frames per code.
    pub dvae_frames: u32,
    /// The GPT (language model).
    pub gpt: GptSizes,
    /// Mel frames that the GPT's conditioning is computed from.
    pub conditioning_frames: u32,
    /// The waveform decoder.
    pub decoder: DecoderSizes,
    /// The speaker encoder.
    pub speaker: SpeakerSizes,
    /// The discriminators.
    pub discriminators: DiscriminatorSizes,
    /// Windows per decoder batch.
    pub decoder_rows: usize,
    /// GPT latents per decoder window.
    pub decoder_window: usize,
    /// Mel frames that the speaker embedding is computed from.
    pub speaker_frames: usize,
    /// Share of the decoder's steps, 0 to 1, after which the discriminators are switched on.
    pub discriminators_from: f64,
}

impl Sizes {
    /// Sizes from the base model if it has the part, else from the plan.
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

    /// Sizes that a plan gives a model trained from scratch, except those that depend on its vocabulary.
    pub fn without_vocabulary(plan: &Plan, machine: ComputeDevice) -> Sizes {
        Sizes::planned(plan, machine, TextIds { vocabulary: 1, start: 0, stop: 0 })
    }

    fn planned(plan: &Plan, machine: ComputeDevice, text: TextIds) -> Sizes {
        let preset = plan.model.preset;
        let mut sizes = Sizes::preset(preset, text);
        match (machine.device, preset) {
            // On a CPU the discriminators cost more than everything else, and a demo run should be short.
            (Device::Cpu, Preset::Tiny) => sizes.discriminators_from = 1.0,
            // A GPU has room for more rows. The discriminators, a few channels wide, are slow on it too, and matter only at
            // the end.
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
        // Batches are large enough to keep the device busy; windows are long enough for what the network has to learn from
        // them.
        let (dvae_rows, dvae_frames, conditioning_frames) = match preset {
            Preset::Tiny => (16, 64, 96),
            Preset::Small => (64, 128, 517),
            Preset::Normal | Preset::Big | Preset::V2 => (128, 128, 517),
        };
        let (decoder_rows, decoder_window, speaker_frames, discriminators_from) = match preset {
            Preset::Tiny => (8, 8, 96, 0.4),
            // Steps without discriminators cost two thirds less. In the first third of the steps the mel loss still falls
            // fast. 0.3 is a guess: only 0.5 and 0.6 were tried on real speech.
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
