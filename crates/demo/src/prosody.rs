//! From words to time and melody: how long each sound lasts, where the pauses are, how the pitch moves.

use super::Draw;
use super::phoneme::{Manner, Phoneme};
use super::phrase::{Ending, Phrase, Word};
use super::portable::{blend, ease, semitones, sine};
use super::voice::Voice;

/// A sound, or a pause, with its place in time (seconds).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    /// `None` is a pause.
    pub phoneme: Option<Phoneme>,
    pub start: f64,
    pub end: f64,
    /// From a plosive's burst, or an affricate's friction, to its end; 0 where it is not released.
    pub release: f64,
    /// Loudness; 1 is ordinary.
    pub level: f64,
}

/// The whole utterance in time.
pub(crate) struct Score {
    pub sounds: Vec<Timed>,
    pub melody: Melody,
    pub length: f64,
    /// Start and end of every word, in reading order.
    #[cfg_attr(not(test), allow(dead_code, reason = "the alignment that tests cut words by"))]
    pub words: Vec<(f64, f64)>,
}

/// Pitch as a sum: a line that sinks, hills on accents, a tail at the end of each phrase.
pub(crate) struct Melody {
    middle: f64,
    range: f64,
    begin: f64,
    end: f64,
    accents: Vec<Accent>,
    tails: Vec<Tail>,
}

struct Accent {
    from: f64,
    top: f64,
    to: f64,
    height: f64,
}

struct Tail {
    from: f64,
    to: f64,
    height: f64,
}

impl Melody {
    /// Pitch at a moment, in Hz.
    pub fn at(&self, time: f64) -> f64 {
        let progress = ((time - self.begin) / (self.end - self.begin).max(0.1)).clamp(0.0, 1.0);
        let mut height = blend(1.5, -2.5, progress);
        for accent in &self.accents {
            let rise = ease((time - accent.from) / (accent.top - accent.from));
            let fall = ease((time - accent.top) / (accent.to - accent.top));
            height += accent.height * (rise - fall);
        }
        for tail in &self.tails {
            let reached = ease((time - tail.from) / (tail.to - tail.from));
            let left = ease((time - tail.to - 0.12) / 0.1);
            height += tail.height * (reached - left);
        }
        // The slow unsteadiness of any human pitch.
        let flutter = sine(time * 12.7) + sine(time * 7.1) + sine(time * 4.7);
        self.middle * semitones(self.range * height + 0.05 * flutter)
    }
}

/// Lays phrases out in time for a voice.
pub(crate) fn score(phrases: &[Phrase], voice: &Voice, draw: &mut Draw) -> Score {
    let pace = voice.pace * blend(0.95, 1.05, draw.unit());
    let middle = voice.pitch * semitones(blend(-0.6, 0.6, draw.unit()));
    let mut sounds = Vec::new();
    let mut words = Vec::new();
    let (mut accents, mut tails) = (Vec::new(), Vec::new());
    let mut now = blend(0.1, 0.2, draw.unit());
    let begin = now;
    pause(&mut sounds, 0.0, now);

    for (at, phrase) in phrases.iter().enumerate() {
        let first_sound = sounds.len();
        let mut stressed = Vec::new();
        for (word_at, word) in phrase.words.iter().enumerate() {
            let last_word = word_at + 1 == phrase.words.len();
            let next = phrase.words.get(word_at + 1).and_then(|word| word.phones.first());
            let from = now;
            for (i, phone) in word.phones.iter().enumerate() {
                let following = word.phones.get(i + 1).or(next).map(|phone| phone.phoneme);
                let release = release(word, i, following) / pace;
                let drawn = length(word, i, last_word) * blend(0.96, 1.04, draw.unit()) / pace;
                let length = match phone.phoneme.manner() {
                    Manner::Plosive => drawn + release,
                    _ => drawn,
                };
                let release =
                    if phone.phoneme.manner() == Manner::Affricate { 0.6 * length } else { release };
                if phone.stressed {
                    stressed.push((now, now + length));
                }
                let level = if phone.stressed { 1.12 } else { 0.9 };
                let phoneme = Some(phone.phoneme);
                sounds.push(Timed { phoneme, start: now, end: now + length, release, level });
                now += length;
            }
            words.push((from, now));
        }
        // The tail has to be over while there is still a voice to carry it.
        let voiced = sounds[first_sound..].iter().rev().find(|sound| is_vowel(sound));
        let voiced_end = voiced.map_or(now, |sound| sound.end - 0.01);
        melody_of(phrase.ending, &stressed, sounds.get(first_sound), voiced_end, &mut accents, &mut tails);
        if at + 1 < phrases.len() {
            let silence = if phrase.ending == Ending::Comma { 0.17 } else { 0.32 };
            let silence = silence * blend(0.9, 1.3, draw.unit());
            pause(&mut sounds, now, now + silence);
            now += silence;
        }
    }

    let end = now;
    now += blend(0.1, 0.2, draw.unit());
    pause(&mut sounds, end, now);
    // Lungs empty: the end of an utterance is softer than its beginning.
    for sound in &mut sounds {
        sound.level *= blend(1.05, 0.78, ((sound.start - begin) / (end - begin).max(0.1)).clamp(0.0, 1.0));
    }
    let melody = Melody { middle, range: voice.range, begin, end, accents, tails };
    Score { sounds, melody, length: now, words }
}

fn is_vowel(sound: &Timed) -> bool {
    sound.phoneme.is_some_and(Phoneme::is_vowel)
}

fn pause(sounds: &mut Vec<Timed>, start: f64, end: f64) {
    sounds.push(Timed { phoneme: None, start, end, release: 0.0, level: 1.0 });
}

/// Accents on the stressed vowels of a phrase, and what its end does.
fn melody_of(
    ending: Ending,
    stressed: &[(f64, f64)],
    first: Option<&Timed>,
    end: f64,
    accents: &mut Vec<Accent>,
    tails: &mut Vec<Tail>,
) {
    let Some((&last, others)) = stressed.split_last() else {
        // Only function words: the whole phrase is its tail.
        let from = first.map_or(end - 0.2, |sound| sound.start);
        tails.push(Tail { from, to: end.max(from + 0.05), height: tail_height(ending) });
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
    tails.push(Tail { from: begin, to: end.max(begin + 0.05), height: tail_height(ending) });
}

/// Semitones by which the pitch has moved at the end of a phrase.
fn tail_height(ending: Ending) -> f64 {
    match ending {
        Ending::Statement => -3.5,
        Ending::Exclamation => -2.5,
        Ending::Question => 8.0,
        Ending::Comma => 2.5,
    }
}

/// Length of the `i`-th sound of a word in seconds, at a pace of 1 and without a plosive's release.
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
    (traits.length * share).max(traits.least)
}

/// Seconds from the burst of the `i`-th sound of a word to what follows it.
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
        return 0.0; // the tongue is there already
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
