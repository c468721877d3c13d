//! Model presets: the network sizes that each name stands for.
//!
//! Trained parameters of each part, with the default vocabulary of a corpus (2,048 tokens) and for `v2` with the
//! release's:
//!
//! | preset | gpt | dvae | decoder | speaker | discriminators |
//! |---|---|---|---|---|---|
//! | tiny | 1,857,196 | 365,968 | 280,796 | 81,354 | 353,936 |
//! | small | 11,341,482 | 12,938,576 | 4,003,312 | 2,010,598 | 5,718,048 |
//! | normal | 54,164,822 | 51,567,184 | 15,992,800 | 8,028,492 | 70,728,688 |
//! | big | 202,477,570 | 51,567,184 | 16,910,304 | 8,028,492 | 70,728,688 |
//! | v2 | 441,018,563 | 51,567,184 | 17,827,808 | 8,028,492 | 70,728,688 |
//!
//! The same in every preset, because the parts of a model are identified by their shapes only: 80 mel bands, 1,024
//! samples per code, limits of 402 tokens and 605 codes, a waveform at 24 kHz. Heads have 32 or 64 channels, which the
//! attention kernels support.

use crate::conditioning::ConditioningSizes;
use crate::decoder::DecoderSizes;
use crate::discriminator::DiscriminatorSizes;
use crate::dvae::DvaeSizes;
use crate::gpt::GptSizes;
use crate::perceiver::PerceiverSizes;
use crate::speaker::{SpeakerLayer, SpeakerSizes};

pub use myxtts_run::plan::Preset;

/// Vocabulary size and special ids of a GPT's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextIds {
    /// Rows of the text embedding.
    pub vocabulary: usize,
    /// Id of START.
    pub start: i32,
    /// Id of STOP.
    pub stop: i32,
}

impl TextIds {
    /// Values of XTTS-v2.
    pub fn v2() -> TextIds {
        TextIds { vocabulary: 6681, start: 261, stop: 0 }
    }
}

/// Sizes of all networks of a model, consistent with each other: the GPT predicts the DVAE's codes, and the decoder
/// takes the GPT's states and the speaker embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Networks {
    /// Mels to codes.
    pub dvae: DvaeSizes,
    /// Text to codes.
    pub gpt: GptSizes,
    /// GPT states to audio.
    pub decoder: DecoderSizes,
    /// Audio to a speaker embedding.
    pub speaker: SpeakerSizes,
    /// Discriminators the decoder is trained with.
    pub discriminators: DiscriminatorSizes,
}

impl Networks {
    /// Sizes of a preset with this vocabulary.
    pub fn of(preset: Preset, text: TextIds) -> Networks {
        let (dvae, gpt, speaker, mut decoder, discriminators) = match preset {
            Preset::Tiny => tiny(text),
            Preset::Small => small(text),
            // Audio quality does not depend on the GPT's size: from here on only the GPT grows, and a release's DVAE,
            // decoder and speaker encoder fit.
            Preset::Normal => released(gpt(12, 512, 8, text, 1024)),
            Preset::Big => released(gpt(24, 768, 12, text, 1024)),
            Preset::V2 => {
                let TextIds { vocabulary, start, stop } = text;
                let v2 = GptSizes::v2();
                released(GptSizes { text_vocabulary: vocabulary, start_text: start, stop_text: stop, ..v2 })
            }
        };
        decoder.latent = gpt.width;
        decoder.speaker = speaker.result;
        Networks { dvae, gpt, decoder, speaker, discriminators }
    }
}

type Parts = (DvaeSizes, GptSizes, SpeakerSizes, DecoderSizes, DiscriminatorSizes);

/// For the demo corpus on two cores in minutes: three voices and a few hundred words.
fn tiny(text: TextIds) -> Parts {
    // 256 codes: 900 steps on the demo corpus used all of them and kept validation sentences recognisable. Other
    // numbers were not tried.
    let dvae = DvaeSizes { hidden: 64, blocks: 1, codes: 256, code_width: 64, ..DvaeSizes::v2() };
    // A step of 4 x 96 takes two thirds of the time of 4 x 128, one of 4 x 64 a third: reduce the width first if it is
    // too slow. Chosen by cost; what each of them learns was not compared.
    let mut gpt = gpt(4, 128, 4, text, dvae.codes);
    // Few voices need few latents, and every latent is a position in every sequence: 32 would be a third of it.
    gpt.conditioning.blocks = 2;
    (gpt.perceiver.latents, gpt.perceiver.depth) = (8, 1);
    // The block structure is the release's, since files do not describe it; only the channels are reduced.
    let decoder = DecoderSizes { channels: 64, ..DecoderSizes::v2() };
    (dvae, gpt, speaker([8, 16, 24, 32], [1; 4], 32, 64), decoder, DiscriminatorSizes::scaled(1.0 / 32.0))
}

/// For one GPU of any generation and a few hours of speech: half of the release's channels in every part that makes
/// audio, a quarter in the GPT.
fn small(text: TextIds) -> Parts {
    let dvae = DvaeSizes { hidden: 256, code_width: 256, ..DvaeSizes::v2() };
    let gpt = gpt(8, 256, 4, text, dvae.codes);
    let decoder = DecoderSizes { channels: 256, ..DecoderSizes::v2() };
    (dvae, gpt, speaker([16, 32, 64, 128], [3, 4, 6, 3], 64, 256), decoder, DiscriminatorSizes::scaled(0.25))
}

/// Everything except the GPT as released, including the GPT's perceiver: Coqui's code supports no other.
fn released(gpt: GptSizes) -> Parts {
    let gpt = GptSizes { perceiver: PerceiverSizes::of(gpt.width), ..gpt };
    (DvaeSizes::v2(), gpt, SpeakerSizes::v2(), DecoderSizes::v2(), DiscriminatorSizes::hifigan())
}

/// A GPT with a perceiver of its own width. The release's has 512 inner channels at any width, which would dominate a
/// small model.
fn gpt(layers: usize, width: usize, heads: usize, text: TextIds, codes: usize) -> GptSizes {
    let perceiver = PerceiverSizes { heads, head_size: width / heads, ..PerceiverSizes::of(width) };
    GptSizes {
        start_text: text.start,
        stop_text: text.stop,
        conditioning: ConditioningSizes::of(width, heads),
        perceiver,
        ..GptSizes::of(layers, width, heads, text.vocabulary, codes)
    }
}

/// The release's strides with other channels and blocks.
fn speaker(channels: [usize; 4], blocks: [usize; 4], attention: usize, result: usize) -> SpeakerSizes {
    let v2 = SpeakerSizes::v2();
    let layers = v2.layers.iter().zip(channels).zip(blocks);
    SpeakerSizes {
        layers: layers
            .map(|((layer, channels), blocks)| SpeakerLayer { blocks, channels, stride: layer.stride })
            .collect(),
        attention,
        result,
        ..v2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declare::Declare;
    use crate::decoder::Decoder;
    use crate::discriminator::Discriminators;
    use crate::dvae::Dvae;
    use crate::gpt::Gpt;
    use crate::speaker::SpeakerEncoder;

    fn networks(preset: Preset) -> Networks {
        let own = TextIds { vocabulary: 2048, start: 3, stop: 0 };
        Networks::of(preset, if preset == Preset::V2 { TextIds::v2() } else { own })
    }

    fn parameter_count(declare: impl FnOnce(&mut Declare)) -> usize {
        let mut all = Declare::new(0.0, &|_| true);
        declare(&mut all);
        all.finish().0.trained_count()
    }

    fn counts(n: &Networks) -> [usize; 5] {
        [
            parameter_count(|d| _ = Gpt::declare(d, n.gpt.clone())),
            parameter_count(|d| _ = Dvae::declare(d, &n.dvae, "dvae.")),
            parameter_count(|d| _ = Decoder::declare(d, &n.decoder)),
            parameter_count(|d| _ = SpeakerEncoder::declare(d, &n.speaker)),
            parameter_count(|d| _ = Discriminators::declare(d, &n.discriminators, "")),
        ]
    }

    #[test]
    fn the_documented_parameter_counts_are_right() {
        let line = |preset: Preset| {
            let found = counts(&networks(preset)).map(thousands).join(" | ");
            format!("//! | {} | {found} |", preset.name())
        };
        let wanted = Preset::ALL.map(line).join("\n");
        assert!(include_str!("presets.rs").contains(&wanted), "the table should say\n{wanted}");
    }

    fn thousands(mut n: usize) -> String {
        let mut parts = Vec::new();
        while n >= 1000 {
            parts.push(format!("{:03}", n % 1000));
            n /= 1000;
        }
        parts.push(n.to_string());
        parts.reverse();
        parts.join(",")
    }

    #[test]
    fn v2_has_the_sizes_of_the_release() {
        let v2 = Networks::of(Preset::V2, TextIds::v2());
        let wanted = Networks {
            dvae: DvaeSizes::v2(),
            gpt: GptSizes::v2(),
            decoder: DecoderSizes::v2(),
            speaker: SpeakerSizes::v2(),
            discriminators: DiscriminatorSizes::hifigan(),
        };
        assert_eq!(v2, wanted);
        assert_eq!(counts(&v2)[..4], [441_018_563, 51_567_184, 17_827_808, 8_028_492]);
    }

    #[test]
    fn parts_fit_each_other_and_the_kernels() {
        let mut before = 0;
        for preset in Preset::ALL {
            let name = preset.name();
            let n = networks(preset);
            let TextIds { start, stop, .. } = if preset == Preset::V2 {
                TextIds::v2()
            } else {
                TextIds { vocabulary: 0, start: 3, stop: 0 }
            };
            assert_eq!((n.gpt.start_text, n.gpt.stop_text), (start, stop), "{name}");
            assert_eq!(n.gpt.audio_vocabulary, n.dvae.codes + 2, "{name}");
            assert_eq!((n.gpt.start_audio, n.gpt.stop_audio), (n.dvae.codes as i32, n.dvae.codes as i32 + 1));
            assert_eq!((n.decoder.latent, n.decoder.speaker), (n.gpt.width, n.speaker.result), "{name}");
            assert_eq!(
                (n.gpt.conditioning.width, n.gpt.perceiver.width),
                (n.gpt.width, n.gpt.width),
                "{name}"
            );
            for size in
                [n.gpt.width / n.gpt.heads, n.gpt.width / n.gpt.conditioning.heads, n.gpt.perceiver.head_size]
            {
                assert!([32, 64].contains(&size), "{name} has heads of {size}");
            }
            let all: usize = counts(&n)[..4].iter().sum();
            assert!(all > before, "{name} is not larger than the next smaller preset");
            before = all;
            assert_eq!(n.decoder.hop(), 256, "{name}");
            assert!(n.decoder.channels >> n.decoder.upsampling.len() >= 4, "{name} ends in too few channels");
        }
    }
}
