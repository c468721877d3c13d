//! Segment phonemes to the synthesiser's controls: each control is interpolated between a few points, so that one phoneme
//! glides into the next as in natural speech.

use super::phoneme::{Manner, Phoneme, Traits};
use super::portable::{blend, ease};
use super::prosody::{Segment, Timeline};
use super::voice::Voice;

/// Samples per frame, during which the controls are constant: 2.5 ms.
pub(crate) const FRAME: usize = 55;
/// Sample rate in Hz.
pub(crate) const SAMPLE_RATE: u32 = 22_050;

/// Controls of the synthesiser for one frame. Frequencies and bandwidths in Hz, levels relative to a vowel's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub pitch: f64,
    pub formants: [f64; 3],
    pub widths: [f64; 3],
    /// The voice through the vocal tract.
    pub voice: f64,
    /// The voice through the walls of the closed mouth: the hum in the closure of b, d, g.
    pub hum: f64,
    /// Breath through the vocal tract.
    pub breath: f64,
    /// Zero of the nasal tract; at [`NASAL_POLE`] it cancels the pole, and the segment is not nasal.
    pub zero: f64,
    pub noise: [f64; 2],
    pub noise_centre: [f64; 2],
    pub noise_width: [f64; 2],
}

/// Resonance of the nose in Hz.
pub(crate) const NASAL_POLE: f64 = 270.0;

/// Duration in seconds of level changes on each side of a boundary.
const RAMP: f64 = 0.008;

/// A control over time: points in order of time.
#[derive(Default)]
struct Track(Vec<(f64, f64)>);

impl Track {
    /// Adds a point, moved after the last one if rounding or a short phoneme placed it before.
    fn point(&mut self, time: f64, value: f64) {
        let time = self.0.last().map_or(time, |&(last, _)| time.max(last + 1e-6));
        self.0.push((time, value));
    }

    /// Holds a value over an interval.
    fn hold(&mut self, from: f64, to: f64, value: f64) {
        let middle = 0.5 * (from + to);
        self.point(from.min(middle), value);
        self.point(to.max(middle), value);
    }

    /// Values at the middle of `count` frames; `curve` shapes the interpolation between points.
    fn sampled(&self, count: usize, curve: impl Fn(f64) -> f64) -> Vec<f64> {
        let (first, last) = match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => (*first, *last),
            _ => return vec![0.0; count],
        };
        let mut at = 0;
        (0..count)
            .map(|frame| {
                let time = (frame as f64 + 0.5) * FRAME as f64 / f64::from(SAMPLE_RATE);
                if time <= first.0 {
                    return first.1;
                }
                if time >= last.0 {
                    return last.1;
                }
                while self.0[at + 1].0 < time {
                    at += 1;
                }
                let ((t0, a), (t1, b)) = (self.0[at], self.0[at + 1]);
                blend(a, b, curve((time - t0) / (t1 - t0)))
            })
            .collect()
    }
}

#[derive(Default)]
struct Tracks {
    formants: [Track; 3],
    widths: [Track; 3],
    voice: Track,
    hum: Track,
    breath: Track,
    zero: Track,
    noise: [Track; 2],
    noise_centre: [Track; 2],
    noise_width: [Track; 2],
}

/// The controls of a whole utterance.
pub(crate) fn frames(timeline: &Timeline, voice: &Voice) -> Vec<Frame> {
    let mut tracks = Tracks::default();
    let segments = &timeline.segments;
    for (i, segment) in segments.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| &segments[i]);
        tracks.add(before, segment, segments.get(i + 1), voice);
    }
    let count = count_frames(timeline);
    let linear = |x: f64| x;
    let formants = tracks.formants.map(|track| track.sampled(count, ease));
    let widths = tracks.widths.map(|track| track.sampled(count, linear));
    let (voiced, hum) = (tracks.voice.sampled(count, linear), tracks.hum.sampled(count, linear));
    let (breath, zero) = (tracks.breath.sampled(count, linear), tracks.zero.sampled(count, linear));
    let noise = tracks.noise.map(|track| track.sampled(count, linear));
    let centre = tracks.noise_centre.map(|track| track.sampled(count, linear));
    let width = tracks.noise_width.map(|track| track.sampled(count, linear));
    // Friction is produced in the front of the mouth, which varies less between speakers than the whole vocal tract.
    let front = 1.0 + 0.5 * (voice.tract - 1.0);
    (0..count)
        .map(|i| Frame {
            pitch: timeline.pitch.at((i as f64 + 0.5) * FRAME as f64 / f64::from(SAMPLE_RATE)),
            formants: [0, 1, 2].map(|n| voice.tract * voice.shape[n] * formants[n][i]),
            widths: [0, 1, 2].map(|n| voice.tract * voice.damping * widths[n][i]),
            voice: voiced[i],
            hum: hum[i],
            breath: breath[i],
            zero: zero[i],
            noise: [noise[0][i], noise[1][i]],
            noise_centre: [front * centre[0][i], front * centre[1][i]],
            noise_width: [width[0][i], width[1][i]],
        })
        .collect()
}

/// Number of frames of the whole utterance.
pub(crate) fn count_frames(timeline: &Timeline) -> usize {
    (timeline.length * f64::from(SAMPLE_RATE) / FRAME as f64).ceil() as usize
}

impl Tracks {
    fn add(&mut self, before: Option<&Segment>, segment: &Segment, after: Option<&Segment>, voice: &Voice) {
        let (start, end) = (segment.start, segment.end);
        let left = before.and_then(|segment| segment.phoneme);
        let right = after.and_then(|segment| segment.phoneme);
        let Some(phoneme) = segment.phoneme else {
            // A pause: silent, while the formants move to the next phoneme.
            self.levels(start + RAMP, end - RAMP, 0.0, 0.0, 0.0);
            self.zero.hold(start + RAMP, end - RAMP, NASAL_POLE);
            self.silence_noise(start + RAMP, end - RAMP);
            return;
        };
        let traits = phoneme.traits();
        let from = boundary_formants(left, Some(phoneme));
        let to = boundary_formants(Some(phoneme), right);
        self.set_widths(traits, start, end);
        if traits.manner == Manner::Nasal {
            self.zero.hold(start + 0.004, end - 0.004, traits.zero);
        } else {
            // Neighbours of a nasal are briefly nasalised.
            let spread = 0.04_f64.min(0.4 * (end - start));
            self.zero.hold(start + spread, end - spread, NASAL_POLE);
        }
        if traits.manner == Manner::Vowel {
            let aspirated =
                before.is_some_and(|segment| segment.release > 0.025 && is_plosive(segment.phoneme));
            self.vowel_formants(segment, (left, from), (right, to), aspirated);
        } else {
            let own = matches!(traits.manner, Manner::Glide | Manner::Liquid);
            for n in 0..3 {
                self.formants[n].point(start, from[n]);
                let middle = if own { traits.formants[n] } else { 0.5 * (from[n] + to[n]) };
                self.formants[n].point(0.5 * (start + end), middle);
                self.formants[n].point(end, to[n]);
            }
        }
        self.segment_levels(segment, traits, to[1], (left, right), voice);
    }

    /// Formants of a vowel: from the left boundary over the target to the right boundary.
    fn vowel_formants(
        &mut self,
        segment: &Segment,
        (left, from): (Option<Phoneme>, [f64; 3]),
        (right, to): (Option<Phoneme>, [f64; 3]),
        aspirated: bool,
    ) {
        let Some(traits) = segment.phoneme.map(Phoneme::traits) else { return };
        let length = segment.end - segment.start;
        let transition_in = transition_seconds(left).min(0.42 * length);
        let transition_out = transition_seconds(right).min(0.42 * length);
        for n in 0..3 {
            // After an aspirated plosive, half of the transition has happened during the aspiration.
            let first = if aspirated { blend(from[n], traits.formants[n], 0.5) } else { from[n] };
            self.formants[n].point(segment.start, first);
            self.formants[n].point(segment.start + transition_in, traits.formants[n]);
            self.formants[n].point(segment.end - transition_out, traits.end[n]);
            self.formants[n].point(segment.end, to[n]);
        }
    }

    fn set_widths(&mut self, traits: &Traits, start: f64, end: f64) {
        let widths = match traits.manner {
            Manner::Vowel => [60.0 + 0.03 * traits.formants[0], 90.0, 150.0],
            Manner::Glide | Manner::Liquid => [60.0, 100.0, 160.0],
            Manner::Nasal => [70.0, 180.0, 240.0],
            Manner::Aspirate => [180.0, 140.0, 200.0],
            _ => [100.0, 150.0, 220.0],
        };
        for (track, width) in self.widths.iter_mut().zip(widths) {
            track.hold(start + 0.015, end - 0.015, width);
        }
    }

    fn segment_levels(
        &mut self,
        segment: &Segment,
        traits: &Traits,
        second: f64,
        (left, right): (Option<Phoneme>, Option<Phoneme>),
        voice: &Voice,
    ) {
        let (start, end, level) = (segment.start, segment.end, segment.level);
        let breath = voice.breath * level;
        // Before a pause the voice fades out; between phonemes it changes at once.
        let fade = if right.is_none() { 0.05_f64.min(0.4 * (end - start)) } else { RAMP };
        match traits.manner {
            Manner::Vowel => {
                self.levels(start + RAMP, end - fade, level, 0.0, breath);
                self.silence_noise(start + RAMP, end - RAMP);
            }
            Manner::Glide | Manner::Liquid | Manner::Nasal => {
                let share = match traits.manner {
                    Manner::Nasal => 0.6,
                    _ => 0.72,
                };
                self.levels(start + RAMP, end - fade, share * level, 0.0, 0.5 * breath);
                self.silence_noise(start + RAMP, end - RAMP);
            }
            Manner::Tap => self.taps(segment, left.is_none() || right.is_none(), breath),
            Manner::Aspirate => {
                // Between voiced phonemes the voice continues through an h.
                let between = [left, right].iter().all(|side| side.is_some_and(|side| side.traits().voiced));
                let share = if between { 0.25 } else { 0.0 };
                self.levels(start + RAMP, end - RAMP, share * level, 0.0, 0.3 * level);
                self.silence_noise(start + RAMP, end - RAMP);
            }
            Manner::Glottal => {
                self.levels(start + 0.012, end - 0.012, 0.03, 0.0, 0.0);
                self.silence_noise(start + RAMP, end - RAMP);
            }
            Manner::Fricative => {
                let share = if traits.voiced { 0.3 } else { 0.0 };
                let hum = if traits.voiced { 0.12 } else { 0.0 };
                self.levels(start + RAMP, end - RAMP, share * level, hum * level, 0.0);
                self.friction(traits, start + 0.012, end - 0.012, level, second);
            }
            Manner::Plosive => self.plosive(segment, traits, second, right),
            Manner::Affricate => {
                let burst = end - segment.release;
                let hum = if traits.voiced { 0.2 } else { 0.0 };
                self.silence_noise(start + 0.004, burst - 0.002);
                self.levels(start + 0.006, burst, 0.0, hum * level, 0.0);
                self.levels(burst + 0.005, end - RAMP, 0.7 * hum * level, 0.3 * hum * level, 0.0);
                self.friction(traits, burst + 0.001, end - 0.012, level, second);
            }
        }
    }

    /// Persian r: one tap of the tongue, two next to a pause.
    fn taps(&mut self, segment: &Segment, twice: bool, breath: f64) {
        let Segment { start, end, level, .. } = *segment;
        let strikes = if twice { 2 } else { 1 };
        let beat = (end - start) / f64::from(strikes);
        for strike in 0..strikes {
            let at = start + beat * f64::from(strike);
            self.voice.point(at + 0.08 * beat, 0.75 * level);
            self.voice.hold(at + 0.35 * beat, at + 0.65 * beat, 0.12 * level);
            self.voice.point(at + 0.92 * beat, 0.75 * level);
        }
        self.hum.hold(start + RAMP, end - RAMP, 0.1 * level);
        self.breath.hold(start + RAMP, end - RAMP, 0.5 * breath);
        self.silence_noise(start + RAMP, end - RAMP);
    }

    /// A closure, then the burst, then breath until the voice starts.
    fn plosive(&mut self, segment: &Segment, traits: &Traits, second: f64, right: Option<Phoneme>) {
        let Segment { start, end, release, level, .. } = *segment;
        let burst = end - release;
        let hum = if traits.voiced { 0.2 * level } else { 0.0 };
        if release == 0.0 {
            self.levels(start + 0.006, end - 0.003, 0.0, hum, 0.0);
            self.silence_noise(start + 0.004, end - 0.002);
            return;
        }
        self.voice.hold(start + 0.006, if traits.voiced { burst + 0.004 } else { end - 0.004 }, 0.0);
        self.hum.hold(start + 0.01, burst - 0.003, hum);
        self.hum.point(burst + 0.004, 0.0);
        self.breath.hold(start + 0.006, burst, 0.0);
        if !traits.voiced {
            // Aspiration is only audible as such before a voiced phoneme.
            let open = right.is_some_and(|right| right.traits().voiced);
            let breath = if open { 0.3 * level } else { 0.1 * level };
            self.breath.hold(burst + 0.008, end - 0.004, breath);
        }
        self.silence_noise(start + 0.004, burst - 0.003);
        self.bands(traits, burst - 0.002, end, second);
        for n in 0..2 {
            let strength = traits.noise.level[n] * level;
            self.noise[n].hold(burst, burst + 0.004, strength);
            self.noise[n].point(burst + 0.014, 0.15 * strength);
            self.noise[n].point((burst + 0.03).min(end - 0.001).max(burst + 0.016), 0.0);
        }
    }

    fn levels(&mut self, from: f64, to: f64, voice: f64, hum: f64, breath: f64) {
        self.voice.hold(from, to, voice);
        self.hum.hold(from, to, hum);
        self.breath.hold(from, to, breath);
    }

    fn silence_noise(&mut self, from: f64, to: f64) {
        for track in &mut self.noise {
            track.hold(from, to, 0.0);
        }
    }

    fn friction(&mut self, traits: &Traits, from: f64, to: f64, level: f64, second: f64) {
        self.bands(traits, from, to, second);
        for n in 0..2 {
            self.noise[n].hold(from, to, traits.noise.level[n] * level);
        }
    }

    fn bands(&mut self, traits: &Traits, from: f64, to: f64, second: f64) {
        for n in 0..2 {
            let centre = if traits.noise.centre[n] > 0.0 { traits.noise.centre[n] } else { 1.05 * second };
            self.noise_centre[n].hold(from, to, centre);
            self.noise_width[n].hold(from, to, traits.noise.width[n]);
        }
    }
}

fn is_plosive(phoneme: Option<Phoneme>) -> bool {
    phoneme.is_some_and(|phoneme| phoneme.manner() == Manner::Plosive)
}

/// Length in seconds of a vowel's transition from or to a neighbour.
fn transition_seconds(neighbour: Option<Phoneme>) -> f64 {
    match neighbour.map(Phoneme::manner) {
        None => 0.02,
        Some(Manner::Vowel) => 0.07,
        Some(Manner::Glide) => 0.08,
        Some(Manner::Liquid) => 0.06,
        Some(_) => 0.045,
    }
}

/// Formants at the boundary of two phonemes: those of the consonant, shifted towards the vowel.
fn boundary_formants(left: Option<Phoneme>, right: Option<Phoneme>) -> [f64; 3] {
    let (left, right) = match (left.map(Phoneme::traits), right.map(Phoneme::traits)) {
        (Some(left), Some(right)) => (left, right),
        (Some(left), None) => return left.end,
        (None, Some(right)) => return right.formants,
        (None, None) => return [500.0, 1500.0, 2500.0],
    };
    let towards_vowel = |consonant: &Traits, vowel: [f64; 3]| {
        // The first formant depends on how closed the mouth is: only h and the glottal stop leave it open.
        let first = if consonant.coarticulation < 1.0 { 0.25 * consonant.coarticulation } else { 1.0 };
        [
            blend(consonant.formants[0], vowel[0], first),
            blend(consonant.formants[1], vowel[1], consonant.coarticulation),
            blend(consonant.formants[2], vowel[2], consonant.coarticulation),
        ]
    };
    match (left.manner == Manner::Vowel, right.manner == Manner::Vowel) {
        (false, true) => towards_vowel(left, right.formants),
        (true, false) => towards_vowel(right, left.end),
        _ => [0, 1, 2].map(|n| 0.5 * (left.end[n] + right.formants[n])),
    }
}
