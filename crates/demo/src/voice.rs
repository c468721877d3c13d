//! The speakers: pitch, length of the vocal tract, breath and pace. Each speaks every language.
//!
//! Three are made by hand. All others are drawn from a fixed seed by their number, so that `voice-0004` is
//! the same voice in every corpus: men, women and children, each before a microphone in a room of their own.

use std::sync::LazyLock;

use myxtts_run::seed::Seed;

use super::Draw;
use super::portable::blend;

/// One synthetic speaker. The fields are read by the synthesiser only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Voice {
    /// The speaker's name, as `speakers.csv` has it.
    pub name: &'static str,
    /// Middle of the speaking pitch in Hz.
    pub pitch: f64,
    /// How lively the pitch moves; 1 is ordinary.
    pub range: f64,
    /// Formant frequencies over those of an adult man: the shorter the tract, the higher.
    pub tract: f64,
    /// Breath noise beside the voice, over the voice.
    pub breath: f64,
    /// Where the source starts to lose its high partials, in Hz: low is a soft voice.
    pub edge: f64,
    /// Share of a period in which the glottis is open.
    pub open: f64,
    /// Pace; above 1 is faster.
    pub pace: f64,
    /// What is this mouth's own in the first three formants, over what `tract` says.
    pub shape: [f64; 3],
    /// Bandwidths of the formants over ordinary ones: wide is a dull voice.
    pub damping: f64,
    /// Share by which the length of a period varies.
    pub jitter: f64,
    /// Share by which the strength of a period varies.
    pub shimmer: f64,
    /// The way from the lips to the file; `None` is a silent studio.
    pub channel: Option<Channel>,
}

/// A room and a microphone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channel {
    /// RMS of the noise in dB below full scale.
    pub noise: f64,
    /// The microphone hears little below this, in Hz.
    pub low: f64,
    /// And little above this, in Hz.
    pub high: f64,
    /// How much more it hears of what is above 1 kHz than of what is below, in dB.
    pub tilt: f64,
    /// Level of the first echo over the direct sound.
    pub echo: f64,
    /// Size of the room: the time of the first echo in seconds.
    pub room: f64,
}

/// How many voices there are: [`VOICES`], and those that are drawn.
pub const MAX_SPEAKERS: usize = 1000;

/// What the voices that were made by hand have in common.
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

/// The voices that were made by hand, in the order `--speakers` counts them.
pub const VOICES: [Voice; 3] = [
    // A woman: higher and a little breathy.
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
    // A man: low, clear, unhurried.
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
    // A child: high, short tract, quick.
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
    // One text for all names, as long as the process lives.
    let names: &'static str =
        (0..MAX_SPEAKERS).map(|n| format!("voice-{:04}", n + 1)).collect::<String>().leak();
    let drawn = (VOICES.len()..MAX_SPEAKERS).map(|n| drawn(n, &names[10 * n..10 * (n + 1)]));
    VOICES.into_iter().chain(drawn).collect()
});

/// The `n`-th voice: a man, a woman or a child, and everything within what such a throat does.
fn drawn(n: usize, name: &'static str) -> Voice {
    let mut draw = Draw::new(Seed::new(0).derive("voices").with(n as u64));
    let kind = draw.unit();
    // Pitch and tract go together, not in step: a deep voice in a short tract is rare, not impossible.
    let ([low, high], [long, short]) = match kind {
        ..0.42 => ([82.0, 158.0], [0.93, 1.07]),
        ..0.84 => ([160.0, 255.0], [1.07, 1.24]),
        _ => ([225.0, 330.0], [1.2, 1.38]),
    };
    let mut between = |low: f64, high: f64| blend(low, high, draw.unit());
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
    /// All voices, [`VOICES`] first; in the order `--speakers` counts them.
    pub fn all() -> &'static [Voice] {
        &ALL
    }

    /// The voice of that name.
    pub fn named(name: &str) -> Option<&'static Voice> {
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
    fn voices_are_named_by_their_number_and_found_by_their_name() {
        let all = Voice::all();
        assert_eq!(
            (all.len(), all[0].name, all[3].name, all[999].name),
            (1000, "mina", "voice-0004", "voice-1000")
        );
        assert!(all.iter().all(|voice| Voice::named(voice.name) == Some(voice)));
        for none in ["voice-0001", "voice-0003", "voice-1001", "voice-4", "voice-", "anna", ""] {
            assert_eq!(Voice::named(none), None, "{none}");
        }
    }

    #[test]
    fn voices_differ_and_cover_men_women_and_children() {
        let drawn = &Voice::all()[VOICES.len()..];
        let count = |test: &dyn Fn(&Voice) -> bool| drawn.iter().filter(|voice| test(voice)).count();
        assert!(count(&|voice| voice.pitch < 130.0 && voice.tract < 1.07) > 150);
        assert!(count(&|voice| (170.0..240.0).contains(&voice.pitch) && voice.tract > 1.1) > 150);
        assert!(count(&|voice| voice.pitch > 255.0 && voice.tract > 1.2) > 50);
        for (i, one) in drawn.iter().enumerate() {
            let twin = |other: &&Voice| {
                (one.pitch / other.pitch - 1.0).abs() < 0.01 && (one.tract / other.tract - 1.0).abs() < 0.003
            };
            // Of those with the same pitch and tract to the ear, none has the same breath and source too.
            for other in drawn[i + 1..].iter().filter(twin) {
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
