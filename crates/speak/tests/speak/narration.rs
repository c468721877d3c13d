//! Joining, timing and stretching of pieces, and resuming after any interruption.

use std::path::Path;
use std::time::Duration;

use myxtts_data::audio::decode;
use myxtts_demo as demo;
use myxtts_speak::audio_file::{Depth, Format};
use myxtts_speak::long_text::{Pause, Piece, Pieces};
use myxtts_speak::narration::{
    Book, BookError, FinishedPiece, Joiner, Joins, NarrationError, NarrationSettings, Outcome, Speaker,
    Spoken, TimeStretch, narrate, piece_seed,
};
use proptest::prelude::*;

const RATE: u32 = 24_000;

/// Plays a tone for every character, with a pitch given by the seed, in chunks.
struct Fake {
    spoken_texts: Vec<(String, u64)>,
    batch_size: usize,
}

impl Speaker for Fake {
    type Error = String;

    fn rate(&self) -> u32 {
        RATE
    }

    fn batch_size(&self) -> usize {
        self.batch_size
    }

    fn speak(
        &mut self,
        text: &str,
        seed: u64,
        out: &mut dyn FnMut(&[f32]) -> bool,
    ) -> Result<Spoken, String> {
        self.spoken_texts.push((text.to_owned(), seed));
        if text.contains("fail") {
            return Err("it failed".to_owned());
        }
        if text.contains("unsayable") {
            return Ok(Spoken::Nothing("this cannot be spoken".to_owned()));
        }
        let pitch = 100.0 + (seed % 300) as f32;
        let tone = |i: usize| 0.3 * (i as f32 / RATE as f32 * pitch * std::f32::consts::TAU).sin();
        let samples: Vec<f32> = (0..text.chars().count() * 800).map(tone).collect();
        for portion in samples.chunks(1777) {
            if !out(portion) {
                break;
            }
        }
        Ok(Spoken::Said(None))
    }
}

fn fake() -> Fake {
    Fake { spoken_texts: Vec::new(), batch_size: 1 }
}

fn pieces(text: &str) -> Pieces<'_, &[u8]> {
    Pieces::new(text.as_bytes(), 20, &|text: &str| text.chars().count())
}

fn steepest(samples: &[f32]) -> f32 {
    samples.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max)
}

const TEXT: &str = "One two three. Four five six! Seven.\n\nEight nine ten, eleven twelve.\n\n* * *\n\nThe end, [pause:200ms] really?";

fn narrated(text: &str, settings: NarrationSettings) -> (Vec<f32>, myxtts_speak::narration::Timings) {
    let mut samples = Vec::new();
    let mut write = |more: &[f32]| {
        samples.extend_from_slice(more);
        Ok(())
    };
    let timings = narrate(pieces(text), &mut fake(), settings, &mut write, &mut |_| true).unwrap();
    (samples, timings)
}

#[test]
fn pieces_are_joined_with_their_pauses_and_timed() {
    let (samples, timings) = narrated(TEXT, NarrationSettings::default());
    assert_eq!(timings.samples, samples.len() as u64);
    let texts: Vec<&str> = timings.pieces.iter().map(|piece| piece.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "One two three.",
            "Four five six!",
            "Seven.",
            "Eight nine ten,",
            "eleven twelve.",
            "The end,",
            "really?"
        ]
    );
    let gap = |i: usize| (timings.pieces[i + 1].start - timings.pieces[i].end) as f64 / f64::from(RATE);
    let gaps: Vec<f64> = (0..6).map(|i| (gap(i) * 1000.0).round()).collect();
    // A paragraph without letters is another pause.
    assert_eq!(gaps, [300.0, 300.0, 700.0, 80.0, 1400.0, 200.0]);
    let silent = &samples[timings.pieces[0].end as usize..timings.pieces[1].start as usize];
    assert!(silent.iter().all(|&sample| sample == 0.0));
}

#[test]
fn joins_have_no_steps_steeper_than_the_pieces() {
    let speech = demo::speak("Hello, this is a voice.", demo::Language::English, &demo::VOICES[0]);
    let loud = 0.9 / speech.iter().fold(0.0f32, |most, sample| most.max(sample.abs()));
    let speech: Vec<f32> = speech.iter().map(|sample| sample * loud).collect();
    // Cut in the middle of a tone, where a join would click.
    let cuts = [speech.len() / 5, speech.len() / 3, speech.len() / 2, 4 * speech.len() / 5];
    let no_pauses = Joins { cut: Duration::ZERO, sentence: Duration::ZERO, ..Joins::default() };
    for joins in [Joins::default(), no_pauses] {
        for pause in [Pause::Cut, Pause::Sentence, Pause::Paragraph] {
            let mut joiner = Joiner::new(joins, RATE, false);
            let mut out = Vec::new();
            let mut start = 0;
            for cut in cuts {
                joiner.add(&speech[start..cut], &mut out);
                joiner.end(pause, &mut out);
                start = cut;
            }
            joiner.add(&speech[start..], &mut out);
            joiner.end(Pause::End, &mut out);
            assert!(steepest(&out) <= steepest(&speech), "{} above {}", steepest(&out), steepest(&speech));
        }
    }
}

#[test]
fn a_single_piece_is_unchanged() {
    let (samples, _) = narrated("One.", NarrationSettings::default());
    let mut expected = Vec::new();
    fake()
        .speak("One.", 0, &mut |more| {
            expected.extend_from_slice(more);
            true
        })
        .unwrap();
    assert!(samples == expected);
}

#[test]
fn silence_around_a_piece_does_not_lengthen_a_pause() {
    let speech = vec![0.5f32; 2400];
    let quiet = vec![0.0001f32; 24_000];
    let mut joiner = Joiner::new(Joins::default(), RATE, false);
    let mut out = Vec::new();
    for part in [&speech, &quiet] {
        joiner.add(part, &mut out);
    }
    joiner.end(Pause::Sentence, &mut out);
    // 50 ms are kept, followed by the pause of 300 ms.
    assert_eq!(out.len(), 2400 + 1200 + 7200);
    let before = out.len();
    for part in [&quiet, &speech] {
        joiner.add(part, &mut out);
    }
    joiner.end(Pause::End, &mut out);
    assert_eq!(out.len() - before, 480 + 2400);
    // A silent piece is only its pause.
    let before = out.len();
    joiner.add(&quiet, &mut out);
    joiner.end(Pause::Cut, &mut out);
    assert_eq!(out.len() - before, 1920);
}

#[test]
fn every_piece_has_its_own_seed() {
    let mut speaker = fake();
    let settings = NarrationSettings { seed: 7, ..NarrationSettings::default() };
    narrate(pieces(TEXT), &mut speaker, settings, &mut |_| Ok(()), &mut |_| true).unwrap();
    let seeds: Vec<u64> = speaker.spoken_texts.iter().map(|(_, seed)| *seed).collect();
    assert_eq!(seeds[0], 7);
    assert_eq!(seeds[1], piece_seed(7, 1));
    let mut different = seeds.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), seeds.len());
}

#[test]
fn pieces_that_cannot_be_spoken_are_noted_and_the_rest_continues() {
    let mut notes = Vec::new();
    let mut watch = |done: &FinishedPiece| {
        notes.push((done.number, done.note.clone()));
        true
    };
    let text = "First one here.\n\nAn unsayable one.\n\nLast one here.";
    let timings =
        narrate(pieces(text), &mut fake(), NarrationSettings::default(), &mut |_| Ok(()), &mut watch)
            .unwrap();
    assert_eq!(timings.pieces.len(), 2);
    assert_eq!(notes[1], (1, Some("this cannot be spoken".to_owned())));
}

/// Speaks a text into a file; stops after the given number of pieces.
fn book(path: &Path, format: Format, text: &str, resume: bool, stop_after: Option<u64>) -> (Outcome, usize) {
    let mut speaker = fake();
    let book = Book::open(path, format, RATE, NarrationSettings::default(), "model voice", resume).unwrap();
    let outcome = book
        .speak(pieces(text), &mut speaker, &mut |done| {
            done.was_resumed || stop_after != Some(done.number + 1)
        })
        .unwrap();
    (outcome, speaker.spoken_texts.len())
}

#[test]
fn a_book_interrupted_at_every_piece_is_the_same_book() {
    let at = tempfile::tempdir().unwrap();
    for format in [
        Format::Wav(Depth::Int16),
        Format::Wav(Depth::Int24),
        Format::Pcm,
        Format::Flac,
        Format::Mp3,
        Format::Opus,
    ] {
        let whole = at.path().join(format!("whole.{}", format.name()));
        let (Outcome::Finished(timings), 7) = book(&whole, format, TEXT, false, None) else {
            panic!("it stopped")
        };
        let expected = std::fs::read(&whole).unwrap();
        for stop in 1..=8 {
            let path = at.path().join(format!("stopped-{stop}.{}", format.name()));
            let (outcome, spoken_before) = book(&path, format, TEXT, false, Some(stop));
            if !matches!(outcome, Outcome::Stopped { pieces, .. } if pieces == stop) {
                panic!("{outcome:?}");
            }
            assert!(!path.exists() && Book::journal_path(&path).exists());
            // What a killed process may leave after its last complete piece.
            let part = path.with_file_name(format!("stopped-{stop}.{}.part", format.name()));
            let mut torn = std::fs::read(&part).unwrap();
            torn.extend([7; 12_345]);
            std::fs::write(&part, torn).unwrap();
            let mut line = std::fs::read(Book::journal_path(&path)).unwrap();
            line.extend(b"{\"piece\":");
            std::fs::write(Book::journal_path(&path), line).unwrap();
            let (again, more) = book(&path, format, TEXT, true, None);
            assert_eq!(spoken_before + more, 7, "nothing is spoken twice");
            assert_eq!(again, Outcome::Finished(timings.clone()), "{format} after {stop}");
            assert!(std::fs::read(&path).unwrap() == expected, "{format} after {stop}");
        }
        let left: Vec<_> =
            std::fs::read_dir(at.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".part")), "{left:?}");
    }
    let (samples, _) = narrated(TEXT, NarrationSettings::default());
    let decoded = decode(&at.path().join("whole.flac")).unwrap();
    assert_eq!(decoded.clip.samples.len(), samples.len());
}

#[test]
fn the_batch_size_does_not_change_the_audio() {
    let at = tempfile::tempdir().unwrap();
    let format = Format::Wav(Depth::Int16);
    let (whole, timings) = narrated(TEXT, NarrationSettings::default());
    let path = at.path().join("a.wav");
    book(&path, format, TEXT, false, None);
    let expected = std::fs::read(&path).unwrap();
    for batch_size in [2, 100] {
        let mut samples = Vec::new();
        let mut write = |more: &[f32]| {
            samples.extend_from_slice(more);
            Ok(())
        };
        let mut speaker = Fake { batch_size, ..fake() };
        let settings = NarrationSettings::default();
        let found = narrate(pieces(TEXT), &mut speaker, settings, &mut write, &mut |_| true).unwrap();
        assert!(found == timings && samples == whole, "{batch_size}");
        // A book stopped within a group, and resumed one by one or in other groups.
        for (stop, later) in [(1, 3), (4, 1)] {
            let open = |resume| Book::open(&path, format, RATE, settings, "id", resume).unwrap();
            let goes_on = &mut |done: &FinishedPiece| done.number + 1 != stop;
            let mut speaker = Fake { batch_size, ..fake() };
            let outcome = open(false).speak(pieces(TEXT), &mut speaker, goes_on).unwrap();
            assert!(matches!(outcome, Outcome::Stopped { pieces, .. } if pieces == stop));
            let mut speaker = Fake { batch_size: later, ..fake() };
            open(true).speak(pieces(TEXT), &mut speaker, &mut |_| true).unwrap();
            assert!(std::fs::read(&path).unwrap() == expected, "{batch_size}, {stop}, {later}");
        }
    }
}

#[test]
fn a_book_stopped_repeatedly_is_the_same_book() {
    let at = tempfile::tempdir().unwrap();
    let (whole, path) = (at.path().join("whole.wav"), at.path().join("a.wav"));
    book(&whole, Format::Wav(Depth::Int16), TEXT, false, None);
    for stop in 1..=8 {
        book(&path, Format::Wav(Depth::Int16), TEXT, true, Some(stop));
    }
    book(&path, Format::Wav(Depth::Int16), TEXT, true, None);
    assert!(std::fs::read(&path).unwrap() == std::fs::read(&whole).unwrap());
}

#[test]
fn a_book_without_speakable_pieces_leaves_no_files() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("a.wav");
    let (outcome, _) = book(&path, Format::Wav(Depth::Int16), "* * *\n\nunsayable\n\n...", false, None);
    assert!(matches!(outcome, Outcome::Finished(timings) if timings.pieces.is_empty()));
    assert_eq!(std::fs::read_dir(at.path()).unwrap().count(), 0);
}

#[test]
fn audio_lost_by_the_disk_is_spoken_again() {
    let at = tempfile::tempdir().unwrap();
    let (whole, path) = (at.path().join("whole.wav"), at.path().join("a.wav"));
    let format = Format::Wav(Depth::Int16);
    book(&whole, format, TEXT, false, None);
    for kept in [0, 20, 30_000] {
        book(&path, format, TEXT, false, Some(5));
        let part = at.path().join("a.wav.part");
        std::fs::File::options().write(true).open(&part).unwrap().set_len(kept).unwrap();
        book(&path, format, TEXT, true, None);
        assert!(std::fs::read(&path).unwrap() == std::fs::read(&whole).unwrap(), "{kept} bytes were left");
    }
}

#[test]
fn a_changed_text_is_spoken_again_from_the_change() {
    let at = tempfile::tempdir().unwrap();
    let (whole, path) = (at.path().join("whole.wav"), at.path().join("a.wav"));
    let format = Format::Wav(Depth::Int16);
    for changed in [TEXT.replace("Eight", "Eighty"), TEXT.split("\n\n").next().unwrap().to_owned()] {
        book(&whole, format, &changed, false, None);
        book(&path, format, TEXT, false, Some(6));
        book(&path, format, &changed, true, None);
        assert!(std::fs::read(&path).unwrap() == std::fs::read(&whole).unwrap());
    }
}

#[test]
fn a_failed_speaker_leaves_a_resumable_book() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("a.wav");
    let settings = NarrationSettings::default();
    let open = |resume| Book::open(&path, Format::Wav(Depth::Int16), RATE, settings, "id", resume).unwrap();
    let failed =
        open(false).speak(pieces("First one. Second.\n\nNow it will fail."), &mut fake(), &mut |_| true);
    assert!(matches!(failed, Err(NarrationError::Speaker(_))));
    assert_eq!(open(true).pieces(), 1);
    assert_eq!(open(false).pieces(), 0);
}

#[test]
fn other_settings_and_other_writers_are_refused() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("a.wav");
    let format = Format::Wav(Depth::Int16);
    book(&path, format, TEXT, false, Some(2));
    let open =
        |format, settings, identity| Book::open(&path, format, RATE, settings, identity, true).map(|_| ());
    let usual = NarrationSettings::default();
    for refused in [
        open(format, usual, "another voice"),
        open(format, NarrationSettings { seed: 1, ..usual }, "model voice"),
        open(format, NarrationSettings { speed: 1.1, ..usual }, "model voice"),
        open(Format::Wav(Depth::Int24), usual, "model voice"),
    ] {
        assert!(matches!(refused, Err(BookError::OtherSettings { .. })), "{refused:?}");
    }
    let held = Book::open(&path, format, RATE, usual, "model voice", true).unwrap();
    assert!(matches!(open(format, usual, "model voice"), Err(BookError::Busy { .. })));
    drop(held);
    assert!(open(format, usual, "model voice").is_ok());
}

fn tone(hertz: f64, seconds: f64) -> Vec<f32> {
    let sample = |i: usize| (i as f64 / f64::from(RATE) * hertz * std::f64::consts::TAU).sin() as f32 * 0.5;
    (0..(f64::from(RATE) * seconds) as usize).map(sample).collect()
}

/// Periods per second, by upward zero crossings.
fn pitch(samples: &[f32]) -> f64 {
    let crossings = samples.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count();
    crossings as f64 * f64::from(RATE) / samples.len() as f64
}

fn stretched(samples: &[f32], speed: f64, portion: usize) -> Vec<f32> {
    let mut stretch = TimeStretch::new(speed, RATE);
    let mut out = Vec::new();
    for part in samples.chunks(portion) {
        stretch.add(part, &mut out);
    }
    stretch.end(&mut out);
    out
}

#[test]
fn speed_changes_the_duration_and_not_the_pitch() {
    for hertz in [90.0, 220.0, 500.0] {
        let sound = tone(hertz, 2.0);
        for speed in [0.5, 0.8, 1.25, 1.7, 2.0] {
            let out = stretched(&sound, speed, 1000);
            assert_eq!(out.len(), (sound.len() as f64 / speed).round() as usize);
            let found = pitch(&out[2000..out.len() - 2000]);
            assert!((found / hertz - 1.0).abs() < 0.02, "{found} Hz of {hertz} at {speed}");
            let inner = &out[..out.len() - 1000];
            assert!(steepest(inner) <= 1.2 * steepest(&sound), "{speed}");
            let energy = |samples: &[f32]| samples.iter().map(|s| s * s).sum::<f32>() / samples.len() as f32;
            assert!((energy(inner) / energy(&sound) - 1.0).abs() < 0.1, "{hertz} Hz at {speed}");
        }
    }
    let sound = tone(220.0, 0.3);
    assert!(stretched(&sound, 1.0, 77) == sound);
}

#[test]
fn a_book_is_faster_by_its_speed() {
    let slow = narrated("One two three four.", NarrationSettings::default()).0;
    let fast =
        narrated("One two three four.", NarrationSettings { speed: 2.0, ..NarrationSettings::default() }).0;
    assert!(fast.len().abs_diff(slow.len() / 2) <= 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn chunk_sizes_change_neither_stretching_nor_joining(
        lengths in prop::collection::vec((0..4000usize, 0..3000usize, 0..3000usize), 1..4),
        portion in 1..3000usize,
        speed in 0.5..2.0f64,
    ) {
        let piece = |&(loud, before, behind): &(usize, usize, usize)| {
            let mut samples = vec![0.0; before];
            samples.extend(&tone(150.0, 1.0)[..loud]);
            samples.resize(samples.len() + behind, 0.0005);
            samples
        };
        let sounds: Vec<Vec<f32>> = lengths.iter().map(piece).collect();
        let joined = |portion: usize| {
            let mut joiner = Joiner::new(Joins::default(), RATE, false);
            let mut out = Vec::new();
            for sound in &sounds {
                sound.chunks(portion).for_each(|part| joiner.add(part, &mut out));
                joiner.end(Pause::Sentence, &mut out);
            }
            out
        };
        prop_assert_eq!(joined(portion), joined(usize::MAX));
        for sound in &sounds {
            prop_assert_eq!(stretched(sound, speed, portion), stretched(sound, speed, usize::MAX));
        }
    }
}

#[test]
fn empty_pieces_are_pauses() {
    let piece = Piece { text: String::new(), pause: Pause::Explicit(Duration::from_millis(10)) };
    let mut count = 0;
    let mut write = |samples: &[f32]| {
        count += samples.len();
        Ok(())
    };
    let mut speaker = fake();
    narrate([Ok(piece)].into_iter(), &mut speaker, NarrationSettings::default(), &mut write, &mut |_| true)
        .unwrap();
    assert_eq!((count, speaker.spoken_texts.len()), (240, 0));
}
