//! The speakers: pitch, length of the vocal tract, breath and pace. Each speaks every language.

/// One speaker of the demo corpus. The fields are read by the synthesiser only.
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
}

/// All voices, in the order `--speakers` counts them.
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
    },
];

impl Voice {
    /// The voice of that name.
    pub fn named(name: &str) -> Option<&'static Voice> {
        VOICES.iter().find(|voice| voice.name == name)
    }
}
