//! How large everything of a run is: the networks by preset or by the model that is begun from, batches and windows by preset.

use crate::error::TrainError;
use crate::machine::Machine;
use crate::model::{DECODER, DVAE, GPT, Model, SPEAKER};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::GptSizes;
use myxtts_model::decoder::DecoderSizes;
use myxtts_model::discriminator::DiscriminatorSizes;
use myxtts_model::dvae::DvaeSizes;
use myxtts_model::speaker::{SpeakerLayer, SpeakerSizes};
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
    /// The judges.
    pub judges: DiscriminatorSizes,
    /// Windows in the decoder's batches.
    pub decoder_rows: usize,
    /// Latents of a window.
    pub decoder_window: usize,
    /// Frames a speaker is heard by.
    pub speaker_frames: usize,
    /// The share of the decoder's steps after which the judges join.
    pub judged_from: f64,
}

impl Sizes {
    /// What the plan says, where the model does not say otherwise.
    pub fn of(plan: &Plan, machine: Machine, tokenizer: &Tokenizer, model: &Model) -> Result<Sizes, TrainError> {
        let preset = plan.model.preset;
        let mut sizes = Sizes::preset(preset, tokenizer);
        if machine.device == Device::Cpu && preset == Preset::Tiny {
            // On a processor the judges cost more than everything else, and a demonstration is to end soon.
            sizes.judged_from = 1.0;
        }
        let shape = |name: &str| model.shape(name);
        if model.has(DVAE) {
            sizes.dvae = DvaeSizes::of_shapes(&shape, "dvae.")?;
        }
        if model.has(GPT)
            && let Some(gpt) = model.gpt_sizes()
        {
            sizes.gpt = gpt;
        }
        sizes.gpt.audio_vocabulary = sizes.dvae.codes + 2;
        (sizes.gpt.start_audio, sizes.gpt.stop_audio) = (sizes.dvae.codes as i32, sizes.dvae.codes as i32 + 1);
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

    fn preset(preset: Preset, tokenizer: &Tokenizer) -> Sizes {
        let text = tokenizer.vocabulary_size();
        let gpt = |layers, width, heads, codes| GptSizes {
            start_text: tokenizer.start_id(),
            stop_text: tokenizer.stop_id(),
            ..GptSizes::of(layers, width, heads, text, codes)
        };
        let speaker = |channels: [usize; 4], attention, result| {
            let blocks = if channels[0] < 16 { [1, 1, 1, 1] } else { [3, 4, 6, 3] };
            let layers = [1, 2, 2, 2].into_iter().zip(blocks).zip(channels);
            SpeakerSizes {
                layers: layers
                    .map(|((stride, blocks), channels)| SpeakerLayer { blocks, channels, stride })
                    .collect(),
                attention,
                result,
                ..SpeakerSizes::v2()
            }
        };
        let decoder = |channels| DecoderSizes { channels, ..DecoderSizes::v2() };
        match preset {
            Preset::Tiny => {
                let mut gpt = gpt(4, 128, 4, 256);
                // A demonstration has three voices: two blocks tell them apart.
                gpt.conditioning.blocks = 2;
                (gpt.perceiver.heads, gpt.perceiver.head_size, gpt.perceiver.depth) = (4, 32, 1);
                Sizes {
                    dvae: DvaeSizes { hidden: 64, blocks: 1, codes: 256, code_width: 64, ..DvaeSizes::v2() },
                    dvae_rows: 16,
                    dvae_frames: 64,
                    gpt,
                    conditioning_frames: 96,
                    decoder: decoder(64),
                    speaker: speaker([8, 16, 24, 32], 32, 64),
                    judges: DiscriminatorSizes::scaled(1.0 / 32.0),
                    decoder_rows: 8,
                    decoder_window: 8,
                    speaker_frames: 96,
                    judged_from: 0.4,
                }
            }
            Preset::Small => Sizes {
                dvae: DvaeSizes { hidden: 256, codes: 1024, code_width: 256, ..DvaeSizes::v2() },
                dvae_rows: 64,
                dvae_frames: 128,
                gpt: gpt(8, 256, 4, 1024),
                conditioning_frames: 517,
                decoder: decoder(256),
                speaker: speaker([16, 32, 64, 128], 64, 256),
                judges: DiscriminatorSizes::scaled(0.25),
                decoder_rows: 16,
                decoder_window: 16,
                speaker_frames: 200,
                judged_from: 0.1,
            },
            Preset::Normal | Preset::Big | Preset::V2 => {
                let (layers, width, heads) = match preset {
                    Preset::Normal => (12, 512, 8),
                    Preset::Big => (24, 768, 12),
                    _ => (30, 1024, 16),
                };
                Sizes {
                    dvae: DvaeSizes::v2(),
                    dvae_rows: 128,
                    dvae_frames: 128,
                    gpt: gpt(layers, width, heads, 1024),
                    conditioning_frames: 517,
                    decoder: DecoderSizes::v2(),
                    speaker: SpeakerSizes::v2(),
                    judges: DiscriminatorSizes::hifigan(),
                    decoder_rows: 16,
                    decoder_window: 16,
                    speaker_frames: 200,
                    judged_from: 0.05,
                }
            }
        }
    }
}
