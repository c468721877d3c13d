//! Plants and detects every kind of problem; checks the properties of the report.

use std::collections::BTreeMap;
use std::path::Path;

use myxtts_data::check::{
    AudioMeasures, CheckOptions, CorpusExaminer, ExamineError, Examiner, Report, SCHEMA_VERSION, Summary,
    TextMeasures, examine, seconds_of_frames,
};
use myxtts_data::dataset::{Corpus, Format};
use myxtts_data::problem::{Problem, ProblemKind, Severity};
use myxtts_data::tokenizer::{TrainOptions, train};
use myxtts_data::utterance::{Origin, Utterance};
use myxtts_run::exit::Exit;
use myxtts_run::progress::Silent;
use myxtts_text::Cleaner;

/// Returns measurements from a table and counts letters as tokens; files not in the table are good.
#[derive(Default)]
struct FakeExaminer {
    audio: BTreeMap<&'static str, Result<AudioMeasures, ExamineError>>,
    tokenizer: bool,
}

fn good(hash: u8) -> AudioMeasures {
    AudioMeasures {
        sample_rate: 22_050,
        seconds: 3.0,
        audible_seconds: 2.9,
        peak: 0.7,
        rms: 0.1,
        clipped_share: 0.0,
        hash: [hash; 32],
    }
}

impl Examiner for FakeExaminer {
    fn examine_audio(&self, path: &Path) -> Result<AudioMeasures, ExamineError> {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert_ne!(name, "panics", "a decoder with a defect");
        let hash = name.bytes().fold(7_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
        self.audio.get(name).cloned().unwrap_or_else(|| Ok(good(hash)))
    }

    fn examine_text(&self, text: &str, language: &str) -> Result<TextMeasures, ExamineError> {
        if language == "xx" {
            let detail = "xx is not a language".to_owned();
            return Err(ExamineError { kind: ProblemKind::UnspeakableText, detail });
        }
        Ok(TextMeasures {
            cleaned: text.to_lowercase(),
            tokens: self.tokenizer.then(|| text.chars().count()),
            unknown: text.chars().filter(|c| *c == '€' || *c == '\u{7}').collect(),
        })
    }
}

const TEXT: &str = "Some words that take three seconds to say.";

fn utterance(id: &str) -> Utterance {
    Utterance {
        id: id.to_owned(),
        audio: format!("wavs/{id}.wav").into(),
        // Distinct texts: equal ones would be reported.
        text: format!("{TEXT} {id}"),
        speaker: "ann".to_owned(),
        language: "en".to_owned(),
        origin: Origin { file: "metadata.csv".into(), line: Some(1) },
    }
}

fn corpus(utterances: Vec<Utterance>) -> Corpus {
    Corpus {
        root: "corpus".into(),
        format: Format::LjSpeech,
        why: "LJSpeech: because".to_owned(),
        notes: vec!["a note".to_owned()],
        utterances,
        problems: Vec::new(),
        declared_seconds: BTreeMap::new(),
        side_files: Vec::new(),
    }
}

fn check(corpus: &Corpus, fake: &FakeExaminer) -> Report {
    examine(corpus, &CheckOptions::default(), fake, &Silent)
}

/// Problems of one utterance as (kind, severity).
fn of(report: &Report, id: &str) -> Vec<(ProblemKind, Severity)> {
    let mine = report.problems.iter().filter(|p| p.id.as_deref() == Some(id));
    mine.map(|p| (p.kind, p.severity)).collect()
}

fn detail(report: &Report, id: &str) -> String {
    report.problems.iter().find(|p| p.id.as_deref() == Some(id)).unwrap().detail.clone()
}

#[test]
fn a_good_corpus_has_no_problems() {
    let corpus = corpus(vec![utterance("a"), utterance("b")]);
    let report = check(&corpus, &FakeExaminer { tokenizer: true, ..FakeExaminer::default() });
    assert_eq!(report.problems, []);
    assert!(report.verdict.passed);
    assert_eq!(report.exit(), Exit::Done);
    assert_eq!((report.verdict.usable_utterances, report.verdict.usable_seconds), (2, 6.0));
    assert_eq!(report.seconds.total, 6.0);
    assert_eq!(report.speakers["ann"].utterances, 2);
    assert_eq!(report.languages["en"].seconds, 6.0);
    assert_eq!(report.sample_rates[&22_050], 2);
    assert!(!report.text.tokens_estimated);
    assert_eq!(report.histogram.bins.iter().map(|bin| bin.count).sum::<usize>(), 2);
}

#[test]
fn every_audio_problem_is_reported() {
    use ProblemKind::{Clipped, Corrupt, LengthDiffers, Missing, TooLong, TooShort, Truncated, Unreadable};
    use Severity::{Error, Warning};
    let failed = |kind| Err(ExamineError { kind, detail: "why".to_owned() });
    let fake = FakeExaminer {
        audio: BTreeMap::from([
            ("missing", failed(Missing)),
            ("unreadable", failed(Unreadable)),
            ("truncated", failed(Truncated)),
            ("differs", failed(LengthDiffers)),
            ("corrupt", failed(Corrupt)),
            ("crackles", Ok(AudioMeasures { clipped_share: 0.01, ..good(1) })),
            ("distorted", Ok(AudioMeasures { clipped_share: 0.2, ..good(2) })),
            ("silent", Ok(AudioMeasures { peak: 0.0, rms: 0.0, audible_seconds: 0.0, ..good(3) })),
            ("click", Ok(AudioMeasures { audible_seconds: 0.02, ..good(4) })),
            ("short", Ok(AudioMeasures { seconds: 0.3, audible_seconds: 0.3, ..good(5) })),
            ("long", Ok(AudioMeasures { seconds: 20.0, audible_seconds: 12.0, ..good(6) })),
        ]),
        tokenizer: false,
    };
    let mut utterances: Vec<Utterance> = fake.audio.keys().map(|id| utterance(id)).collect();
    utterances.push(utterance("panics"));
    for utterance in &mut utterances {
        if utterance.id == "short" {
            utterance.text = "Hi".to_owned();
        }
    }
    let mut corpus = corpus(utterances);
    corpus.declared_seconds.insert("crackles".to_owned(), 4.0);
    let report = check(&corpus, &fake);
    for (id, expected) in [
        ("missing", vec![(Missing, Error)]),
        ("unreadable", vec![(Unreadable, Error)]),
        ("truncated", vec![(Truncated, Error)]),
        ("differs", vec![(LengthDiffers, Error)]),
        ("corrupt", vec![(Corrupt, Error)]),
        ("crackles", vec![(LengthDiffers, Error), (Clipped, Warning)]),
        ("distorted", vec![(Clipped, Error)]),
        ("silent", vec![(ProblemKind::Silent, Error)]),
        ("click", vec![(ProblemKind::Silent, Error)]),
        ("short", vec![(TooShort, Error)]),
        ("long", vec![(TooLong, Error)]),
        ("panics", vec![(Unreadable, Error)]),
    ] {
        assert_eq!(of(&report, id), expected, "{id}");
    }
    assert!(detail(&report, "distorted").contains("20.00 %"));
    assert!(detail(&report, "short").contains("0.30 s") && detail(&report, "short").contains("0.50 s"));
    assert!(detail(&report, "long").contains("11.61 s"));
    assert!(detail(&report, "silent").contains("-inf dBFS"));
    assert!(detail(&report, "panics").contains("panic"));
    assert_eq!(report.exit(), Exit::BadData);
}

#[test]
fn every_text_problem_is_reported() {
    use ProblemKind::{EmptyText, TextTooLong, TextTooLongForAudio, UnknownCharacters, UnspeakableText};
    use Severity::{Error, Warning};
    let with = |id: &str, text: &str| Utterance { text: text.to_owned(), ..utterance(id) };
    let long = "word ".repeat(81);
    let utterances = vec![
        with("empty", "  "),
        with("dots", "... !"),
        with("euro", "Twenty € and some more words"),
        with("much", &"a".repeat(150)),
        with("hurried", &"a".repeat(80)),
        Utterance { language: "xx".to_owned(), ..utterance("foreign") },
        with("tokens", &long),
    ];
    let corpus = corpus(utterances);
    let fake = |tokenizer| FakeExaminer {
        audio: BTreeMap::from([(
            "tokens",
            Ok(AudioMeasures { seconds: 11.6, audible_seconds: 11.6, ..good(9) }),
        )]),
        tokenizer,
    };
    let report = check(&corpus, &fake(true));
    assert_eq!(of(&report, "empty"), [(EmptyText, Error)]);
    assert_eq!(of(&report, "dots"), [(EmptyText, Error)]);
    assert_eq!(of(&report, "euro"), [(UnknownCharacters, Error)]);
    assert!(detail(&report, "euro").contains("U+20AC"));
    assert_eq!(of(&report, "much"), [(TextTooLongForAudio, Error)]);
    assert!(detail(&report, "much").contains("50 per second"), "{}", detail(&report, "much"));
    assert_eq!(of(&report, "hurried"), [(TextTooLongForAudio, Warning)]);
    assert_eq!(of(&report, "foreign"), [(UnspeakableText, Error)]);
    assert_eq!(of(&report, "tokens")[0], (TextTooLong, Error));
    assert!(detail(&report, "tokens").contains("405 tokens"));

    let report = check(&corpus, &fake(false));
    assert_eq!(
        of(&report, "euro"),
        [(UnknownCharacters, Warning)],
        "without a tokenizer it is only a warning"
    );
    assert!(report.text.tokens_estimated && report.text.tokens.total > 0.0);
}

#[test]
fn duplicate_audio_and_repeated_texts_are_found() {
    let mut utterances: Vec<Utterance> = ["a", "b", "c", "d", "e", "f"].map(utterance).into();
    for utterance in &mut utterances[..4] {
        utterance.text = TEXT.to_owned();
    }
    let mute = AudioMeasures { peak: 0.0, ..good(1) };
    let fake = FakeExaminer {
        audio: BTreeMap::from([
            ("a", Ok(good(1))),
            ("c", Ok(good(1))),
            ("d", Ok(AudioMeasures { sample_rate: 16_000, ..good(2) })),
            ("e", Ok(mute.clone())),
            ("f", Ok(mute)),
        ]),
        tokenizer: false,
    };
    let report = check(&corpus(utterances), &fake);
    assert_eq!(of(&report, "a"), [(ProblemKind::RepeatedText, Severity::Warning)]);
    assert!(detail(&report, "a").starts_with("4 utterances") && detail(&report, "a").contains("(b, c, d)"));
    assert_eq!(of(&report, "c"), [(ProblemKind::DuplicateAudio, Severity::Warning)]);
    assert!(detail(&report, "c").contains("to a (metadata.csv:1)"));
    assert_eq!(of(&report, "f"), [(ProblemKind::Silent, Severity::Error)], "silent files are not duplicates");
    assert!(report.notes.iter().any(|note| note.contains("1 at 16000 Hz, 5 at 22050 Hz")));
}

#[test]
fn the_budget_counts_items_and_not_problems() {
    let fake = FakeExaminer {
        // Two problems, one utterance.
        audio: BTreeMap::from([("a", Ok(AudioMeasures { clipped_share: 0.2, seconds: 12.0, ..good(1) }))]),
        tokenizer: false,
    };
    let mut utterances = vec![utterance("a")];
    utterances.extend((0..18).map(|i| utterance(&format!("good{i}"))));
    let mut twenty = corpus(utterances);
    let lost = |severity| Problem {
        kind: ProblemKind::MalformedLine,
        severity,
        id: None,
        origin: Origin { file: "metadata.csv".into(), line: Some(9) },
        detail: "why".to_owned(),
    };
    twenty.problems = vec![lost(Severity::Warning)];
    let with_budget = |corpus: &Corpus, failure_budget| {
        examine(corpus, &CheckOptions { failure_budget, ..Default::default() }, &fake, &Silent).verdict
    };
    let verdict = with_budget(&twenty, 1.0 / 19.0);
    assert_eq!((verdict.items, verdict.failed, verdict.passed), (19, 1, true), "at the budget is within it");
    twenty.problems.push(lost(Severity::Error));
    let verdict = with_budget(&twenty, 0.05);
    assert_eq!((verdict.items, verdict.failed, verdict.passed), (20, 2, false));
    assert!((verdict.share - 0.1).abs() < 1e-12);
    assert!(with_budget(&twenty, 0.1).passed);

    let empty = corpus(Vec::new());
    assert!(!with_budget(&empty, 1.0).passed, "an empty corpus never passes");
}

#[test]
fn the_report_does_not_depend_on_the_number_of_threads() {
    let utterances: Vec<Utterance> = (0..200).map(|i| utterance(&format!("u{i:03}"))).collect();
    let corpus = corpus(utterances);
    let fake = FakeExaminer {
        audio: BTreeMap::from([("u007", Ok(good(9))), ("u100", Ok(good(9))), ("u150", Ok(good(9)))]),
        tokenizer: false,
    };
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let report = pool.install(|| check(&corpus, &fake));
        serde_json::to_string(&report).unwrap()
    };
    let one = with_threads(1);
    assert!(one.contains("to u007"));
    for threads in [1, 2, 7] {
        assert_eq!(with_threads(threads), one);
    }
}

#[test]
fn the_json_report_keeps_its_schema() {
    let fake = FakeExaminer {
        audio: BTreeMap::from([(
            "a",
            Err(ExamineError { kind: ProblemKind::Missing, detail: "gone".into() }),
        )]),
        tokenizer: false,
    };
    let report = check(&corpus(vec![utterance("a"), utterance("b")]), &fake);
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    let mut keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort();
    // Removing or renaming a key needs a new schema version; adding one does not.
    assert_eq!(SCHEMA_VERSION, 1);
    let expected = [
        "corpus",
        "histogram",
        "kinds",
        "languages",
        "notes",
        "problems",
        "sample_rates",
        "schema_version",
        "seconds",
        "speakers",
        "text",
        "verdict",
    ];
    assert_eq!(keys, expected);
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["kinds"]["missing"]["errors"], 1);
    assert_eq!(json["verdict"]["passed"], false);
    assert_eq!(json["problems"][0]["kind"], "missing");
    assert_eq!(json["problems"][0]["severity"], "error");
    assert_eq!(json["problems"][0]["origin"]["line"], 1);
    assert_eq!(json["sample_rates"]["22050"], 1);
    assert_eq!(json["histogram"]["bins"][6], serde_json::json!({"from": 3.0, "to": 3.5, "count": 1}));
    assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
}

#[test]
fn the_summary_lists_errors_first_and_counts_what_it_omits() {
    let fake = FakeExaminer {
        audio: BTreeMap::from([
            ("a", Ok(AudioMeasures { clipped_share: 0.01, ..good(1) })),
            ("b", Ok(AudioMeasures { clipped_share: 0.02, ..good(2) })),
            ("c", Ok(AudioMeasures { clipped_share: 0.5, ..good(3) })),
        ]),
        tokenizer: false,
    };
    let report = check(&corpus(["a", "b", "c", "d"].map(utterance).into()), &fake);
    let text = Summary { report: &report, limit: 1 }.to_string();
    assert!(text.contains("LJSpeech: because\n  a note\n"), "{text}");
    assert!(text.contains("clipped: 1 error(s), 2 warning(s)\n    c (metadata.csv:1): 50.00 %"), "{text}");
    assert!(text.contains("... and 2 more"), "{text}");
    assert!(text.contains("1 of 4 items cannot be used: 25.0 %, budget 5.0 %\nnot ready"), "{text}");
    assert!(text.contains('█'), "{text}");
}

#[test]
fn clip_length_follows_from_the_frames() {
    assert!((seconds_of_frames(1000) - 11.6100).abs() < 1e-4);
}

/// 16-bit mono WAV.
fn wav(path: &Path, rate: u32, samples: &[i16]) {
    let bytes = samples.len() as u32 * 2;
    let mut file = Vec::new();
    file.extend(b"RIFF");
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    file.extend([1, 0, 1, 0]);
    file.extend(rate.to_le_bytes());
    file.extend((rate * 2).to_le_bytes());
    file.extend([2, 0, 16, 0]);
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    std::fs::write(path, file).unwrap();
}

#[test]
fn the_corpus_examiner_measures_audio() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.wav");
    // One second of silence, one of a square wave at half scale, one of silence.
    let mut samples = vec![0_i16; 16_000];
    samples.extend((0..16_000).map(|i| if i / 40 % 2 == 0 { 16_384_i16 } else { -16_384 }));
    samples.extend(vec![0_i16; 16_000]);
    wav(&path, 16_000, &samples);
    let examiner = CorpusExaminer::new(None, Cleaner::Default);
    let measured = examiner.examine_audio(&path).unwrap();
    assert_eq!((measured.sample_rate, measured.seconds), (16_000, 3.0));
    assert!((measured.audible_seconds - 1.0).abs() < 0.06, "{measured:?}");
    assert!(
        (measured.peak - 0.5).abs() < 1e-3 && (measured.rms - 0.5 / 3.0_f32.sqrt()).abs() < 1e-3,
        "{measured:?}"
    );
    assert_eq!(measured.clipped_share, 0.0);

    let other = dir.path().join("b.wav");
    samples[20_000] += 1;
    wav(&other, 16_000, &samples);
    assert_ne!(examiner.examine_audio(&other).unwrap().hash, measured.hash, "one sample changed by one step");
    samples[20_000] -= 1;
    wav(&other, 22_050, &samples);
    assert_ne!(
        examiner.examine_audio(&other).unwrap().hash,
        measured.hash,
        "another rate is different audio"
    );

    for sample in &mut samples[16_000..16_300] {
        *sample = i16::MAX;
    }
    wav(&other, 16_000, &samples);
    let clipped = examiner.examine_audio(&other).unwrap().clipped_share;
    assert!((clipped - 300.0 / 48_000.0).abs() < 1e-9, "{clipped}");

    let missing = examiner.examine_audio(&dir.path().join("c.wav")).unwrap_err();
    assert_eq!(missing.kind, ProblemKind::Missing);
}

#[test]
fn the_corpus_examiner_reads_texts_with_and_without_a_tokenizer() {
    let texts = ["the quick brown fox jumps over the lazy dog", "pack my box with five dozen liquor jugs"];
    let options = TrainOptions { vocab_size: 120, ..Default::default() };
    let tokenizer = train(texts.iter().map(|text| ("en", *text)), &options).unwrap();
    let with = CorpusExaminer::new(Some(&tokenizer), Cleaner::Default);
    let read = with.examine_text("The quick dog.", "en").unwrap();
    assert_eq!(read.cleaned, "the quick dog.");
    assert!(read.tokens.is_some_and(|tokens| (2..=15).contains(&tokens)), "{read:?}");
    assert_eq!(read.unknown, []);
    let error = with.examine_text("سلام", "fa").unwrap_err();
    assert_eq!(error.kind, ProblemKind::UnspeakableText);
    assert!(error.detail.contains("[fa]"), "{}", error.detail);
    assert_eq!(with.examine_text("The жук.", "en").unwrap().unknown, ['ж', 'у', 'к']);

    let without = CorpusExaminer::new(None, Cleaner::Default);
    let read = without.examine_text("The жук.", "en").unwrap();
    assert_eq!((read.tokens, read.unknown), (None, vec!['ж', 'у', 'к']));
    assert_eq!(without.examine_text("سلام دنیا", "fa").unwrap().unknown, []);
    assert_eq!(without.examine_text("x", "not a language").unwrap_err().kind, ProblemKind::UnspeakableText);
}
