//! The speakers: pitch, length of the vocal tract, breathiness and speaking rate. Each speaks every language.
//!
//! Three are hand-tuned. All others are sampled from a fixed seed by their number, so that `voice-0004` is the same voice
//! in every corpus: men, women and children, each with their own microphone and room.

use std::sync::LazyLock;

use myxtts_run::seed::Seed;

use super::RandomStream;
use super::portable::blend;

/// One synthetic speaker. The fields are used only by the synthesiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Voice {
    /// Name of the speaker, as in `speakers.csv`.
    pub name: &'static str,
    /// Mean pitch in Hz.
    pub pitch: f64,
    /// Scale of the pitch movements; 1 is ordinary.
    pub range: f64,
    /// Formant frequencies relative to those of an adult man; higher for a shorter vocal tract.
    pub tract: f64,
    /// Level of breath noise relative to the voice.
    pub breath: f64,
    /// Frequency in Hz above which the glottal source loses energy; low for a soft voice.
    pub edge: f64,
    /// Fraction of a period in which the glottis is open.
    pub open: f64,
    /// Speaking rate; above 1 is faster.
    pub pace: f64,
    /// Individual scale of the first three formants, in addition to `tract`.
    pub shape: [f64; 3],
    /// Scale of the formant bandwidths; wide for a dull voice.
    pub damping: f64,
    /// Relative variation of the length of a period.
    pub jitter: f64,
    /// Relative variation of the strength of a period.
    pub shimmer: f64,
    /// Recording channel; `None` for a silent studio.
    pub channel: Option<Channel>,
}

/// A room and a microphone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channel {
    /// RMS of the noise in dB relative to full scale.
    pub noise: f64,
    /// Low cutoff of the microphone in Hz.
    pub low: f64,
    /// High cutoff of the microphone in Hz.
    pub high: f64,
    /// Gain above 1 kHz relative to below, in dB.
    pub tilt: f64,
    /// Level of the first echo relative to the direct sound.
    pub echo: f64,
    /// Delay of the first echo in seconds, given by the size of the room.
    pub room: f64,
}

/// Number of voices: [`VOICES`] and the sampled ones.
pub const MAX_SPEAKERS: usize = 1000;

/// Common settings of the hand-tuned voices.
const STUDIO: Voice = Voice {
    name: "",
    pitch: 0.0,
    range: 1.0,
    tract: 1.0,
    breath: 0.0,
    edge: 4000.0,
    open: 0.6,
    pace: 1.0,
    shape: [1.0; 3],
    damping: 1.0,
    jitter: 0.005,
    shimmer: 0.04,
    channel: None,
};

/// The hand-tuned voices, in the order `--speakers` counts them.
pub const VOICES: [Voice; 3] = [
    // A woman: higher and slightly breathy.
    Voice {
        name: "mina",
        pitch: 205.0,
        range: 1.1,
        tract: 1.16,
        breath: 0.05,
        edge: 3200.0,
        open: 0.66,
        pace: 1.0,
        ..STUDIO
    },
    // A man: low, clear, slow.
    Voice {
        name: "dara",
        pitch: 112.0,
        range: 0.9,
        tract: 1.0,
        breath: 0.02,
        edge: 4600.0,
        open: 0.55,
        pace: 0.96,
        ..STUDIO
    },
    // A child: high, short vocal tract, fast.
    Voice {
        name: "kian",
        pitch: 268.0,
        range: 1.25,
        tract: 1.3,
        breath: 0.035,
        edge: 4000.0,
        open: 0.6,
        pace: 1.06,
        ..STUDIO
    },
];

static ALL: LazyLock<Vec<Voice>> = LazyLock::new(|| {
    // One string for all names, leaked for the lifetime of the process.
    let names: &'static str =
        (0..MAX_SPEAKERS).map(|n| format!("voice-{:04}", n + 1)).collect::<String>().leak();
    let others = (VOICES.len()..MAX_SPEAKERS).map(|n| sampled(n, &names[10 * n..10 * (n + 1)]));
    VOICES.into_iter().chain(others).collect()
});

/// The `n`-th voice: a man, a woman or a child, with parameters in the range of such a voice.
fn sampled(n: usize, name: &'static str) -> Voice {
    let mut random = RandomStream::new(Seed::new(0).derive("voices").with(n as u64));
    let kind = random.unit();
    // Pitch and tract length are correlated but independent within a group: a deep voice with a short tract is rare, not
    // impossible.
    let ([low, high], [long, short]) = match kind {
        ..0.42 => ([82.0, 158.0], [0.93, 1.07]),
        ..0.84 => ([160.0, 255.0], [1.07, 1.24]),
        _ => ([225.0, 330.0], [1.2, 1.38]),
    };
    let mut between = |low: f64, high: f64| blend(low, high, random.unit());
    Voice {
        name,
        pitch: between(low, high),
        range: between(0.6, 1.5),
        tract: between(long, short),
        // Few voices are breathy.
        breath: between(0.08, 0.35) * between(0.08, 0.35),
        edge: between(2400.0, 6500.0),
        open: between(0.45, 0.72),
        pace: between(0.86, 1.22),
        shape: [between(0.94, 1.06), between(0.95, 1.05), between(0.96, 1.04)],
        damping: between(0.8, 1.3),
        jitter: between(0.002, 0.01),
        shimmer: between(0.02, 0.08),
        channel: Some(Channel {
            noise: between(-75.0, -50.0),
            low: between(30.0, 140.0),
            high: between(6000.0, 14_000.0),
            tilt: between(-5.0, 5.0),
            echo: between(0.0, 0.5) * between(0.0, 0.7),
            room: between(0.006, 0.03),
        }),
    }
}

impl Voice {
    /// All voices, [`VOICES`] first, in the order `--speakers` counts them.
    pub fn all() -> &'static [Voice] {
        &ALL
    }

    /// Finds a voice by name.
    pub fn from_name(name: &str) -> Option<&'static Voice> {
        match name.strip_prefix("voice-") {
            Some(number) => ALL.get(number.parse::<usize>().ok()?.checked_sub(1)?),
            None => ALL[..VOICES.len()].iter().find(|voice| voice.name == name),
        }
        .filter(|voice| voice.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voices_are_numbered_and_found_by_name() {
        let all = Voice::all();
        assert_eq!(
            (all.len(), all[0].name, all[3].name, all[999].name),
            (1000, "mina", "voice-0004", "voice-1000")
        );
        assert!(all.iter().all(|voice| Voice::from_name(voice.name) == Some(voice)));
        for none in ["voice-0001", "voice-0003", "voice-1001", "voice-4", "voice-", "anna", ""] {
            assert_eq!(Voice::from_name(none), None, "{none}");
        }
    }

    #[test]
    fn voices_differ_and_cover_men_women_and_children() {
        let sampled = &Voice::all()[VOICES.len()..];
        let count = |test: &dyn Fn(&Voice) -> bool| sampled.iter().filter(|voice| test(voice)).count();
        assert!(count(&|voice| voice.pitch < 130.0 && voice.tract < 1.07) > 150);
        assert!(count(&|voice| (170.0..240.0).contains(&voice.pitch) && voice.tract > 1.1) > 150);
        assert!(count(&|voice| voice.pitch > 255.0 && voice.tract > 1.2) > 50);
        for (i, one) in sampled.iter().enumerate() {
            let twin = |other: &&Voice| {
                (one.pitch / other.pitch - 1.0).abs() < 0.01 && (one.tract / other.tract - 1.0).abs() < 0.003
            };
            // Of voices with nearly the same pitch and tract, none has the same breath and source too.
            for other in sampled[i + 1..].iter().filter(twin) {
                let differs = (one.edge / other.edge - 1.0).abs() + (one.breath - other.breath).abs() * 10.0;
                assert!(
                    differs + (one.shape[1] / other.shape[1] - 1.0).abs() > 0.01,
                    "{} {}",
                    one.name,
                    other.name
                );
            }
        }
    }
}
