//! Durations, pauses and pitch of the words.

use super::RandomStream;
use super::phoneme::{Manner, Phoneme};
use super::phrase::{Ending, Phrase, Word};
use super::portable::{blend, ease, semitones, sine};
use super::voice::Voice;

/// A phoneme or pause with its time in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// `None` for a pause.
    pub phoneme: Option<Phoneme>,
    pub start: f64,
    pub end: f64,
    /// Time from a plosive's burst, or an affricate's friction, to its end; 0 if not released.
    pub release: f64,
    /// Loudness; 1 is ordinary.
    pub level: f64,
}

/// The whole utterance in time.
pub(crate) struct Timeline {
    pub segments: Vec<Segment>,
    pub pitch: PitchContour,
    pub length: f64,
    /// Start and end of every word in seconds, in reading order.
    #[cfg_attr(not(test), allow(dead_code, reason = "word alignment, used by tests"))]
    pub words: Vec<(f64, f64)>,
}

/// Pitch as a sum: a declining line, peaks on accents, and a boundary tone at the end of each phrase.
pub(crate) struct PitchContour {
    middle: f64,
    range: f64,
    begin: f64,
    end: f64,
    accents: Vec<Accent>,
    boundary_tones: Vec<BoundaryTone>,
}

struct Accent {
    from: f64,
    top: f64,
    to: f64,
    height: f64,
}

struct BoundaryTone {
    from: f64,
    to: f64,
    height: f64,
}

impl PitchContour {
    /// Pitch in Hz at a time in seconds.
    pub fn at(&self, time: f64) -> f64 {
        let progress = ((time - self.begin) / (self.end - self.begin).max(0.1)).clamp(0.0, 1.0);
        let mut height = blend(1.5, -2.5, progress);
        for accent in &self.accents {
            let rise = ease((time - accent.from) / (accent.top - accent.from));
            let fall = ease((time - accent.top) / (accent.to - accent.top));
            height += accent.height * (rise - fall);
        }
        for tone in &self.boundary_tones {
            let reached = ease((time - tone.from) / (tone.to - tone.from));
            let left = ease((time - tone.to - 0.12) / 0.1);
            height += tone.height * (reached - left);
        }
        // The slow variation of human pitch.
        let flutter = sine(time * 12.7) + sine(time * 7.1) + sine(time * 4.7);
        self.middle * semitones(self.range * height + 0.05 * flutter)
    }
}

/// Computes the timeline of phrases for a voice.
pub(crate) fn timeline(phrases: &[Phrase], voice: &Voice, random: &mut RandomStream) -> Timeline {
    let rate = voice.pace * blend(0.95, 1.05, random.unit());
    let middle = voice.pitch * semitones(blend(-0.6, 0.6, random.unit()));
    let mut segments = Vec::new();
    let mut words = Vec::new();
    let (mut accents, mut boundary_tones) = (Vec::new(), Vec::new());
    let mut now = blend(0.1, 0.2, random.unit());
    let begin = now;
    pause(&mut segments, 0.0, now);

    for (at, phrase) in phrases.iter().enumerate() {
        let first_segment = segments.len();
        let mut stressed = Vec::new();
        for (word_at, word) in phrase.words.iter().enumerate() {
            let last_word = word_at + 1 == phrase.words.len();
            let next = phrase.words.get(word_at + 1).and_then(|word| word.phones.first());
            let from = now;
            for (i, phone) in word.phones.iter().enumerate() {
                let following = word.phones.get(i + 1).or(next).map(|phone| phone.phoneme);
                let release = release(word, i, following) / rate;
                let base = length(word, i, last_word) * blend(0.96, 1.04, random.unit()) / rate;
                let length = match phone.phoneme.manner() {
                    Manner::Plosive => base + release,
                    _ => base,
                };
                let release =
                    if phone.phoneme.manner() == Manner::Affricate { 0.6 * length } else { release };
                if phone.stressed {
                    stressed.push((now, now + length));
                }
                let level = if phone.stressed { 1.12 } else { 0.9 };
                let phoneme = Some(phone.phoneme);
                segments.push(Segment { phoneme, start: now, end: now + length, release, level });
                now += length;
            }
            words.push((from, now));
        }
        // The boundary tone must end while there is still a voiced segment.
        let voiced = segments[first_segment..].iter().rev().find(|segment| is_vowel(segment));
        let voiced_end = voiced.map_or(now, |segment| segment.end - 0.01);
        add_pitch(
            phrase.ending,
            &stressed,
            segments.get(first_segment),
            voiced_end,
            &mut accents,
            &mut boundary_tones,
        );
        if at + 1 < phrases.len() {
            let silence = if phrase.ending == Ending::Comma { 0.17 } else { 0.32 };
            let silence = silence * blend(0.9, 1.3, random.unit());
            pause(&mut segments, now, now + silence);
            now += silence;
        }
    }

    let end = now;
    now += blend(0.1, 0.2, random.unit());
    pause(&mut segments, end, now);
    // The end of an utterance is softer than its beginning.
    for segment in &mut segments {
        segment.level *=
            blend(1.05, 0.78, ((segment.start - begin) / (end - begin).max(0.1)).clamp(0.0, 1.0));
    }
    let pitch = PitchContour { middle, range: voice.range, begin, end, accents, boundary_tones };
    Timeline { segments, pitch, length: now, words }
}

fn is_vowel(segment: &Segment) -> bool {
    segment.phoneme.is_some_and(Phoneme::is_vowel)
}

fn pause(segments: &mut Vec<Segment>, start: f64, end: f64) {
    segments.push(Segment { phoneme: None, start, end, release: 0.0, level: 1.0 });
}

/// Adds accents on the stressed vowels of a phrase, and its boundary tone.
fn add_pitch(
    ending: Ending,
    stressed: &[(f64, f64)],
    first: Option<&Segment>,
    end: f64,
    accents: &mut Vec<Accent>,
    boundary_tones: &mut Vec<BoundaryTone>,
) {
    let Some((&last, others)) = stressed.split_last() else {
        // Only function words: the boundary tone covers the whole phrase.
        let from = first.map_or(end - 0.2, |segment| segment.start);
        boundary_tones.push(BoundaryTone { from, to: end.max(from + 0.05), height: boundary_height(ending) });
        return;
    };
    for &(from, to) in others {
        let height = if ending == Ending::Exclamation { 4.0 } else { 2.8 };
        accents.push(Accent { from: from - 0.06, top: blend(from, to, 0.6), to: to + 0.11, height });
    }
    let (from, to) = last;
    if ending != Ending::Question {
        let height = if ending == Ending::Exclamation { 5.5 } else { 3.5 };
        accents.push(Accent { from: from - 0.06, top: blend(from, to, 0.35), to: to + 0.08, height });
    }
    let begin = if ending == Ending::Question { from } else { blend(from, to, 0.5) };
    boundary_tones.push(BoundaryTone {
        from: begin,
        to: end.max(begin + 0.05),
        height: boundary_height(ending),
    });
}

/// Change of pitch at the end of a phrase in semitones.
fn boundary_height(ending: Ending) -> f64 {
    match ending {
        Ending::Statement => -3.5,
        Ending::Exclamation => -2.5,
        Ending::Question => 8.0,
        Ending::Comma => 2.5,
    }
}

/// Length of the `i`-th phone of a word in seconds, at a rate of 1 and without a plosive's release.
fn length(word: &Word, i: usize, last_word: bool) -> f64 {
    let phones = &word.phones;
    let traits = phones[i].phoneme.traits();
    let vowels = phones.iter().filter(|phone| phone.phoneme.is_vowel()).count();
    let last_vowel = phones.iter().rposition(|phone| phone.phoneme.is_vowel()).unwrap_or(0);
    let final_syllable = last_word && i >= last_vowel;
    let mut share = 1.0;
    if phones[i].phoneme.is_vowel() {
        share *= if phones[i].stressed {
            1.12
        } else if phones.iter().any(|phone| phone.stressed) {
            0.82
        } else {
            0.75
        };
        if let Some(next) = phones.get(i + 1).map(|next| next.phoneme.traits()) {
            share *= if next.voiced { 1.05 } else { 0.9 };
        }
        share *= if final_syllable { 1.4 } else { 1.0 };
    } else {
        let consonant = |at: usize| phones.get(at).is_some_and(|phone| !phone.phoneme.is_vowel());
        if consonant(i + 1) || (i > 0 && consonant(i - 1)) {
            share *= 0.85;
        }
        share *= if final_syllable && i > last_vowel { 1.2 } else { 1.0 };
        share *= if i == 0 { 1.08 } else { 1.0 };
    }
    if vowels >= 3 {
        share *= 0.93;
    }
    (traits.length * share).max(traits.min_length)
}

/// Seconds from the burst of the `i`-th phone of a word to the next phone.
fn release(word: &Word, i: usize, following: Option<Phoneme>) -> f64 {
    let phone = word.phones[i];
    let traits = phone.phoneme.traits();
    if traits.manner != Manner::Plosive {
        return 0.0;
    }
    let Some(next) = following else { return if traits.voiced { 0.015 } else { 0.04 } };
    if matches!(next.manner(), Manner::Plosive | Manner::Affricate)
        && next.traits().formants == traits.formants
    {
        return 0.0; // the tongue is already in place
    }
    if traits.voiced {
        return 0.013;
    }
    let after_s = i > 0 && word.phones[i - 1].phoneme.name() == "S";
    let stressed = word.phones.get(i + 1).is_some_and(|phone| phone.stressed);
    match next.manner() {
        _ if after_s => 0.014,
        Manner::Vowel if stressed => 0.055,
        Manner::Vowel | Manner::Liquid | Manner::Glide | Manner::Tap => 0.038,
        _ => 0.02,
    }
}
