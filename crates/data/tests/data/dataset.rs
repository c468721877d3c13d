//! Builds each layout in a temporary folder and reads it back; properties that hold for all layouts.

use std::path::{Path, PathBuf};

use myxtts_data::dataset::split::split_by_id;
use myxtts_data::dataset::{Corpus, DatasetError, Format, MAX_LINE_BYTES, ReadOptions, parse_metadata, read};
use myxtts_data::problem::{Problem, ProblemKind, Severity};
use myxtts_run::exit::Exit;
use proptest::prelude::*;
use tempfile::TempDir;

/// Creates a folder with these files; readers do not open audio files, so these may be empty.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    dir
}

fn detected(dir: &TempDir) -> Corpus {
    read(dir.path(), &ReadOptions::default()).unwrap()
}

fn ids(corpus: &Corpus) -> Vec<&str> {
    corpus.utterances.iter().map(|u| u.id.as_str()).collect()
}

fn kinds(corpus: &Corpus) -> Vec<(ProblemKind, Severity)> {
    corpus.problems.iter().map(|p| (p.kind, p.severity)).collect()
}

#[test]
fn ljspeech_is_read_with_bom_blank_lines_and_bad_lines() {
    let dir = folder(&[
        (
            "metadata.csv",
            "\u{feff}b-2|\"Yes,\" said|\"Yes,\" said he\r\n\r\na-1|two words\r\n#c|x|\r\nd|1|2|3\r\n",
        ),
        ("wavs/a-1.flac", ""),
        ("wavs/b-2.wav", ""),
        ("wavs/b-2.mp3", ""),
    ]);
    let corpus = detected(&dir);
    assert_eq!(corpus.format, Format::LjSpeech);
    assert_eq!(corpus.why, "LJSpeech: metadata.csv with 3 columns, 2 of 3 ids found under wavs/");
    assert_eq!(ids(&corpus), ["#c", "a-1", "b-2"]);
    let [c, a, b] = &corpus.utterances[..] else { panic!("{corpus:?}") };
    assert_eq!(b.text, "\"Yes,\" said he");
    assert_eq!(b.audio, dir.path().join("wavs/b-2.wav"));
    assert_eq!(b.origin.line, Some(1));
    assert_eq!(a.audio, dir.path().join("wavs/a-1.flac"));
    assert_eq!((c.text.as_str(), &c.audio), ("x", &dir.path().join("wavs/#c.wav")));
    assert_eq!(a.speaker, dir.path().file_name().unwrap().to_string_lossy());
    assert_eq!(kinds(&corpus), [(ProblemKind::MalformedLine, Severity::Error)]);
    assert_eq!(corpus.problems[0].origin.line, Some(5));
}

#[test]
fn ljspeech_reads_speakers_and_languages_from_speakers_csv() {
    let dir = folder(&[
        ("metadata.csv", "a|hello\nb|سلام\nc|hello\n"),
        ("speakers.csv", "id|speaker|language\na|Ann|en\nb|Babak|fa\nzz|Nobody|en\nb|Other|en\n"),
    ]);
    let corpus = detected(&dir);
    let labels: Vec<_> =
        corpus.utterances.iter().map(|u| (u.speaker.as_str(), u.language.as_str())).collect();
    let own = dir.path().file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(labels, [("Ann", "en"), ("Babak", "fa"), (own.as_str(), "en")]);
    assert_eq!(kinds(&corpus), [(ProblemKind::MalformedLine, Severity::Warning); 2]);
    assert!(corpus.problems[1].detail.contains("line 3"), "{}", corpus.problems[1]);
    assert!(corpus.why.contains("speakers.csv"));
}

#[test]
fn vctk_prefers_the_first_microphone_and_reports_missing_transcripts() {
    let dir = folder(&[
        ("txt/p225/p225_001.txt", "Please call Stella.\n"),
        ("txt/p225/p225_002.txt", "Ask her."),
        ("txt/p226/p226_001.txt", "Six spoons."),
        ("wav48_silence_trimmed/p225/p225_001_mic1.flac", ""),
        ("wav48_silence_trimmed/p225/p225_001_mic2.flac", ""),
        ("wav48_silence_trimmed/p226/p226_001_mic2.flac", ""),
        ("wav48_silence_trimmed/p315/p315_001_mic1.flac", ""),
        ("speaker-info.txt", "ID AGE GENDER\n225 23 F\n"),
    ]);
    let corpus = detected(&dir);
    assert_eq!(corpus.format, Format::Vctk);
    assert_eq!(ids(&corpus), ["p225_001", "p225_002", "p226_001"]);
    let audio = dir.path().join("wav48_silence_trimmed");
    assert_eq!(corpus.utterances[0].audio, audio.join("p225/p225_001_mic1.flac"));
    assert_eq!(corpus.utterances[0].speaker, "p225");
    assert_eq!(corpus.utterances[2].audio, audio.join("p226/p226_001_mic2.flac"));
    assert_eq!(kinds(&corpus), [(ProblemKind::EmptyText, Severity::Error)]);
    assert!(corpus.problems[0].detail.contains("txt/p315/p315_001.txt"));
    assert!(corpus.notes.iter().any(|note| note.starts_with("1 recordings of the second microphone")));
}

#[test]
fn vctk_0_80_is_read() {
    let dir = folder(&[("txt/p225/p225_001.txt", "Please."), ("wav48/p225/p225_001.wav", "")]);
    let corpus = detected(&dir);
    assert_eq!(corpus.format, Format::Vctk);
    assert_eq!(corpus.utterances[0].audio, dir.path().join("wav48/p225/p225_001.wav"));
}

#[test]
fn libritts_is_read_below_its_subset_folder() {
    let dir = folder(&[
        ("dev-clean/84/121123/84_121123_000007_000001.normalized.txt", "Go. Do you hear?"),
        ("dev-clean/84/121123/84_121123_000007_000001.original.txt", "Go! Do you hear?"),
        ("dev-clean/84/121123/84_121123_000007_000001.wav", ""),
        ("dev-clean/84/121123/84_121123_000008_000000.wav", ""),
        ("dev-clean/85/1/85_1_000000_000000.normalized.txt", "Alone."),
        ("dev-clean/85/1/85_1_000001_000000.original.txt", "Only the original."),
        ("dev-clean/85/1/85_1_000001_000000.wav", ""),
        ("dev-clean/84/121123/84_121123.trans.tsv", "x\ty"),
    ]);
    let corpus = detected(&dir);
    assert_eq!(corpus.format, Format::LibriTts);
    assert_eq!(ids(&corpus), ["84_121123_000007_000001", "85_1_000001_000000"]);
    assert_eq!(corpus.utterances[0].text, "Go. Do you hear?");
    assert_eq!(corpus.utterances[0].speaker, "84");
    assert_eq!(
        kinds(&corpus),
        [(ProblemKind::EmptyText, Severity::Error), (ProblemKind::Missing, Severity::Error)]
    );
}

#[test]
fn common_voice_columns_are_found_by_name() {
    let dir = folder(&[
        (
            "validated.tsv",
            "client_id\tpath\tsentence_id\tsentence\tlocale\nz1\tcv_fa_1.mp3\t9\tسلام دنیا\tfa\nz2\tcv_fa_2.mp3\t9\t\"او گفت \"\"نه\"\"\"\tfa\nz3\n",
        ),
        ("train.tsv", "client_id\tpath\tsentence\n"),
        ("clips/cv_fa_1.mp3", ""),
    ]);
    let corpus = detected(&dir);
    assert_eq!(corpus.format, Format::CommonVoice);
    assert!(corpus.why.contains("validated.tsv") && corpus.why.contains("1 of 2"), "{}", corpus.why);
    assert_eq!(ids(&corpus), ["cv_fa_1", "cv_fa_2"]);
    assert_eq!(corpus.utterances[0].audio, dir.path().join("clips/cv_fa_1.mp3"));
    assert_eq!(corpus.utterances[1].text, "او گفت \"نه\"");
    assert_eq!((corpus.utterances[1].speaker.as_str(), corpus.utterances[1].language.as_str()), ("z2", "fa"));
    assert_eq!(kinds(&corpus), [(ProblemKind::MalformedLine, Severity::Error)]);
}

#[test]
fn coqui_files_are_read_together_or_alone() {
    let dir = folder(&[
        (
            "metadata_train.csv",
            "audio_file|text|speaker_name\nwavs/a.wav|\"one | \"\"two\"\"\"|coqui\nwavs\\b.wav|x|coqui\n",
        ),
        ("metadata_eval.csv", "audio_file|text|speaker_name\nwavs/c.wav|y|coqui\nwavs/a.wav|again|coqui\n"),
        ("wavs/a.wav", ""),
        ("wavs/b.wav", ""),
    ]);
    let corpus = detected(&dir);
    assert_eq!(corpus.format, Format::Coqui);
    assert!(corpus.why.contains("metadata_train.csv and metadata_eval.csv"), "{}", corpus.why);
    assert_eq!(ids(&corpus), ["wavs/a", "wavs/b", "wavs/c"]);
    assert_eq!(corpus.utterances[0].text, "one | \"two\"");
    assert_eq!(corpus.utterances[1].audio, dir.path().join("wavs/b.wav"), "paths written on Windows");
    assert_eq!(kinds(&corpus), [(ProblemKind::DuplicateId, Severity::Error)]);
    assert!(corpus.problems[0].detail.contains("metadata_train.csv:2"), "{}", corpus.problems[0]);

    let alone = read(&dir.path().join("metadata_eval.csv"), &ReadOptions::default()).unwrap();
    assert_eq!((alone.format, ids(&alone)), (Format::Coqui, vec!["wavs/a", "wavs/c"]));
    assert_eq!(alone.root, dir.path());
}

#[test]
fn speakers_are_named_after_folders() {
    let dir = folder(&[
        ("ann/1.wav", ""),
        ("ann/1.txt", "one\ntwo\n"),
        ("ann/1.mp3", ""),
        ("ann/2.flac", ""),
        ("ann/2.lab", "three"),
        ("ben/deep/1.ogg", ""),
        ("ben/deep/1.txt", "four"),
        ("ben/3.wav", ""),
        ("ben/4.txt", "no audio"),
        ("ben/.5.wav", "hidden"),
        ("README.txt", "not a transcript"),
    ]);
    let corpus = detected(&dir);
    assert_eq!(corpus.format, Format::Folder);
    assert_eq!(ids(&corpus), ["ann/1", "ann/2", "ben/deep/1"]);
    assert_eq!(corpus.utterances[0].text, "one two");
    let speakers: Vec<_> = corpus.utterances.iter().map(|u| u.speaker.as_str()).collect();
    assert_eq!(speakers, ["ann", "ann", "deep"]);
    let mut found = kinds(&corpus);
    found.sort();
    assert_eq!(
        found,
        [
            (ProblemKind::Missing, Severity::Error),
            (ProblemKind::EmptyText, Severity::Error),
            (ProblemKind::DuplicateId, Severity::Warning),
        ]
    );
}

#[test]
fn a_single_folder_has_one_speaker() {
    let dir = folder(&[("a.wav", ""), ("a.txt", "x"), ("b.wav", ""), ("b.txt", "y")]);
    let options =
        ReadOptions { speaker: Some("me".into()), language: Some("DE".into()), ..Default::default() };
    let corpus = read(dir.path(), &options).unwrap();
    assert!(corpus.utterances.iter().all(|u| u.speaker == "me" && u.language == "de"));
}

#[test]
fn a_manifest_declares_durations() {
    let dir = folder(&[
        (
            "train.jsonl",
            "{\"audio_filepath\":\"a.wav\",\"text\":\"x\",\"duration\":1.25,\"speaker\":3,\"lang\":\"en\"}\n{\"audio_filepath\":\"/nowhere/../b.wav\",\"text\":\"y\"}\n{bad\n",
        ),
        ("a.wav", ""),
        ("notes.json", "{\"this\": \"is not a manifest\"}"),
    ]);
    let corpus = detected(&dir);
    assert_eq!(corpus.format, Format::Jsonl);
    assert_eq!(ids(&corpus), ["/nowhere/../b", "a"]);
    assert_eq!(corpus.utterances[0].audio, PathBuf::from("/nowhere/../b.wav"), "absolute paths stay");
    assert_eq!(corpus.declared_seconds.get("a"), Some(&1.25));
    assert_eq!(corpus.utterances[1].speaker, "3");
    assert_eq!(kinds(&corpus), [(ProblemKind::MalformedLine, Severity::Error)]);
}

#[test]
fn other_matching_layouts_are_reported() {
    let dir = folder(&[
        ("metadata.csv", "a|x\nb|y\n"),
        ("m.jsonl", "{\"audio\":\"a.wav\",\"text\":\"x\"}\n"),
        ("a.wav", ""),
        ("a.txt", "x"),
    ]);
    let corpus = detected(&dir);
    assert_eq!(corpus.format, Format::LjSpeech);
    assert!(corpus.notes.iter().any(|n| n.contains("m.jsonl (--format jsonl)")), "{:?}", corpus.notes);
    for format in [Format::Jsonl, Format::Folder] {
        let options = ReadOptions { format: Some(format), ..Default::default() };
        let corpus = read(dir.path(), &options).unwrap();
        assert_eq!((corpus.format, ids(&corpus)), (format, vec!["a"]));
    }
}

#[test]
fn errors_list_the_expected_files() {
    let empty = folder(&[("song.wav", ""), ("table.csv", "a,b,c\n")]);
    let error = read(empty.path(), &ReadOptions::default()).unwrap_err();
    let message = error.to_string();
    for format in Format::ALL {
        assert!(message.contains(&format!("  {format}: ")), "{format} is not in: {message}");
    }
    assert_eq!(error.exit(), Exit::BadData);

    let options = ReadOptions { format: Some(Format::CommonVoice), ..Default::default() };
    let error = read(empty.path(), &options).unwrap_err();
    assert!(error.to_string().contains("validated.tsv"), "{error}");

    let error = read(Path::new("/nonexistent/corpus"), &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, DatasetError::NotFound { .. }));
    assert_eq!(error.exit(), Exit::Usage);

    let forced = folder(&[("validated.tsv", "no\theader\n")]);
    let error = read(forced.path(), &options).unwrap_err();
    assert!(error.to_string().contains("no\\theader"), "{error}");

    let wide = folder(&[]);
    std::fs::write(wide.path().join("metadata.csv"), b"\xff\xfea\0|\0b\0\n\0").unwrap();
    let options = ReadOptions { format: Some(Format::LjSpeech), ..Default::default() };
    let error = read(wide.path(), &options).unwrap_err();
    assert!(error.to_string().contains("UTF-16LE"), "{error}");
}

#[test]
fn bad_bytes_only_affect_their_own_line() {
    let dir = folder(&[]);
    let mut bytes = b"a|one\nb|caf\xe9\nc|three\n".to_vec();
    bytes.extend([b'd', b'|']);
    bytes.resize(bytes.len() + MAX_LINE_BYTES, b'x');
    bytes.extend(b"\ne\x07|bell\nf|six\n");
    std::fs::write(dir.path().join("metadata.csv"), bytes).unwrap();
    let corpus = detected(&dir);
    assert_eq!(ids(&corpus), ["a", "c", "f"]);
    let found: Vec<_> = corpus.problems.iter().map(|p| (p.origin.line.unwrap(), p.detail.as_str())).collect();
    assert!(found[0].0 == 2 && found[0].1.contains("0xe9 at offset 11"), "{found:?}");
    assert!(found[1].0 == 4 && found[1].1.contains("65538 bytes"), "{found:?}");
    assert!(found[2].0 == 5 && found[2].1.contains("U+0007"), "{found:?}");
}

#[test]
fn a_duplicate_id_points_at_the_first() {
    let dir = folder(&[("metadata.csv", "a|one\nb|two\na|three\na|four\n")]);
    let corpus = detected(&dir);
    assert_eq!(corpus.utterances[0].text, "one");
    assert_eq!(kinds(&corpus), [(ProblemKind::DuplicateId, Severity::Error); 2]);
    let first: &Problem = &corpus.problems[0];
    assert_eq!((first.id.as_deref(), first.origin.line), (Some("a"), Some(3)));
    assert!(first.detail.contains("metadata.csv:1"), "{first}");
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_loops_are_not() {
    use std::os::unix::fs::symlink;
    let elsewhere = folder(&[("x/a.wav", ""), ("x/a.txt", "linked")]);
    let dir = folder(&[("own/b.wav", ""), ("own/b.txt", "own")]);
    symlink(elsewhere.path().join("x"), dir.path().join("linked")).unwrap();
    symlink(dir.path(), dir.path().join("own/loop")).unwrap();
    symlink("nowhere.wav", dir.path().join("own/c.wav")).unwrap();
    std::fs::write(dir.path().join("own/c.txt"), "dangling").unwrap();
    let corpus = detected(&dir);
    assert_eq!(ids(&corpus), ["linked/a", "own/b", "own/c"]);
}

#[cfg(unix)]
#[test]
fn unprintable_file_names_are_reported() {
    use std::os::unix::ffi::OsStrExt;
    let dir = folder(&[("a.wav", ""), ("a.txt", "x")]);
    std::fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"b\xff.wav")), "").unwrap();
    std::fs::write(dir.path().join("c\u{1b}[2J.wav"), "").unwrap();
    let corpus = detected(&dir);
    assert_eq!(kinds(&corpus), [(ProblemKind::Unreadable, Severity::Error); 2]);
    serde_json::to_string(&corpus.problems).expect("problems serialise to JSON");
}

#[test]
fn format_names_are_those_of_the_configuration() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    let error = "ljspech".parse::<Format>().unwrap_err().to_string();
    assert!(error.contains("ljspech") && error.contains("common_voice"), "{error}");
}

/// Counts lines independently of the parser.
fn count_lines(bytes: &[u8]) -> u64 {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let ends = bytes.iter().filter(|&&b| b == b'\n').count() as u64;
    ends + u64::from(!bytes.is_empty() && !bytes.ends_with(b"\n"))
}

fn check_line_count(format: Format, bytes: &[u8]) -> Result<(), TestCaseError> {
    let parsed = parse_metadata(format, bytes, Path::new("m"));
    let lines = match format {
        Format::Vctk | Format::LibriTts | Format::Folder => 1,
        _ => count_lines(bytes),
    };
    prop_assert_eq!(parsed.lines, lines);
    let accounted = parsed.entries.len() as u64 + parsed.problems.len() as u64 + parsed.blank + parsed.header;
    prop_assert_eq!(accounted, lines, "{}: {:?}", format, parsed);
    for entry in &parsed.entries {
        prop_assert!(!entry.id.is_empty() || lines == 1);
        prop_assert!(!entry.id.contains(char::is_control));
        prop_assert!(!entry.audio.as_deref().unwrap_or("").contains('\0'));
    }
    Ok(())
}

/// Bytes similar enough to metadata to reach every branch.
fn metadata_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"|".to_vec()),
        Just(b"\t".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"\xef\xbb\xbf".to_vec()),
        Just(b"audio_file|text|speaker_name\n".to_vec()),
        Just(b"client_id\tpath\tsentence\tlocale\n".to_vec()),
        Just(br#"{"audio_filepath":"a.wav","text":"x","duration":1e999}"#.to_vec()),
        Just(br#"{"audio":{"path":"a"},"text":[]}"#.to_vec()),
        "[a-z.\\\\/ ]{0,6}".prop_map(String::into_bytes),
        "\\PC{0,4}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_line_is_an_entry_or_a_problem(bytes in metadata_like()) {
        for format in Format::ALL {
            check_line_count(format, &bytes)?;
        }
    }

    #[test]
    fn every_declaration_is_an_utterance_or_a_problem(
        names in proptest::collection::vec("[ab]{0,2}", 0..12),
        texts in proptest::collection::vec("[ x|]{0,3}", 12),
    ) {
        let lines: Vec<String> = names.iter().zip(&texts).map(|(n, t)| format!("{n}|{t}\n")).collect();
        let dir = folder(&[("metadata.csv", &lines.concat())]);
        let options = ReadOptions { format: Some(Format::LjSpeech), ..Default::default() };
        let corpus = read(dir.path(), &options).unwrap();
        prop_assert_eq!(corpus.utterances.len() + corpus.problems.len(), lines.len());
        prop_assert!(corpus.utterances.windows(2).all(|pair| pair[0].id < pair[1].id));
    }

    #[test]
    fn both_sets_are_non_empty(
        ids in proptest::collection::btree_set("[a-z]{1,6}", 0..20),
        fraction in 0.0001..1.0f64,
        seed: u64,
    ) {
        let split = split_by_id(ids.iter().map(String::as_str), fraction, seed);
        let mut all: Vec<usize> = split.train.iter().chain(&split.validation).copied().collect();
        all.sort();
        prop_assert_eq!(all, (0..ids.len()).collect::<Vec<_>>());
        if ids.len() >= 2 {
            prop_assert!(!split.train.is_empty() && !split.validation.is_empty());
        }
    }
}
