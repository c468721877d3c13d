//! Splitting long text: complete, in order and within the limit, for any text.

use std::time::Duration;

use myxtts_speak::long_text::{LONGEST_UNIT, Pause, Piece, Pieces};
use proptest::prelude::*;

fn characters(text: &str) -> usize {
    text.chars().count()
}

fn pieces(text: &str, limit: usize) -> Vec<Piece> {
    Pieces::new(text.as_bytes(), limit, &characters).map(Result::unwrap).collect()
}

fn shown(text: &str, limit: usize) -> Vec<(String, Pause)> {
    pieces(text, limit).into_iter().map(|piece| (piece.text, piece.pause)).collect()
}

fn solid(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

#[test]
fn short_sentences_are_merged_up_to_nine_tenths_of_the_limit() {
    let text = "One two. Three four. Five six. Seven eight.";
    let found = shown(text, 24);
    // "One two. Three four." has 20 of the 21 characters that may be filled.
    let expected = [
        ("One two. Three four.", Pause::Sentence),
        ("Five six.", Pause::Sentence),
        ("Seven eight.", Pause::End),
    ];
    assert_eq!(found, expected.map(|(text, pause)| (text.to_owned(), pause)));
    // A single sentence may fill the limit; merged ones may not.
    let whole = "abcdefghij abcdefghij ab.";
    assert_eq!(shown(whole, 25), [(whole.to_owned(), Pause::End)]);
}

#[test]
fn every_piece_has_the_pause_that_follows_it() {
    let explicit = |ms| Pause::Explicit(Duration::from_millis(ms));
    let text = "[pause:500ms]First, [pause:1s] second. Third.\n\n* * *\n\nFourth.[pause:1s]\n\n[pause:2s]\nA long sentence, which goes on.";
    let expected = [
        ("", explicit(500)),
        ("First,", explicit(1000)),
        ("second. Third.", Pause::Paragraph),
        ("* * *", Pause::Paragraph),
        ("Fourth.", explicit(3000)),
        ("A long sentence,", Pause::Cut),
        ("which goes on.", Pause::End),
    ];
    let found = shown(text, 20);
    assert_eq!(found, expected.map(|(text, pause)| (text.to_owned(), pause)));
    let spoken: Vec<bool> = pieces(text, 20).iter().map(Piece::is_spoken).collect();
    assert_eq!(spoken, [false, true, true, false, true, true, true]);
    assert_eq!(shown("", 9), []);
    assert_eq!(shown("end [pause:1s]", 9), [("end".to_owned(), explicit(1000))]);
}

#[test]
fn endings_with_quotes_stay_in_one_piece() {
    for text in ["\"Why?\"", "He asked: \"Why?\"", "Oh!”", "«چرا؟»", "「なぜ？」"] {
        assert_eq!(shown(text, 40), [(text.to_owned(), Pause::End)]);
    }
}

#[test]
fn a_book_without_blank_lines_is_read_in_bounded_memory() {
    /// Repeats one sentence endlessly and records how much was read.
    struct Book {
        left: usize,
    }
    impl std::io::Read for Book {
        fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
            let sentence = b"The rain in Spain stays mainly in the plain. ";
            let count = sentence.len().min(bytes.len()).min(self.left);
            bytes[..count].copy_from_slice(&sentence[..count]);
            self.left -= count;
            Ok(count)
        }
    }
    let length = 45 * 20_000;
    let mut pieces = Pieces::new(Book { left: length }, 100, &characters);
    let (mut consumed, mut ahead) = (0u64, 0);
    while let Some(piece) = pieces.next() {
        let piece = piece.unwrap();
        assert_eq!(
            piece.text,
            "The rain in Spain stays mainly in the plain. The rain in Spain stays mainly in the plain."
        );
        consumed += piece.text.len() as u64 + 1;
        ahead = ahead.max(pieces.bytes_read() - consumed.min(pieces.bytes_read()));
    }
    assert_eq!(consumed, length as u64);
    assert!(ahead <= 2 * LONGEST_UNIT as u64, "{ahead} bytes were held");
}

#[test]
fn a_paragraph_read_in_parts_is_split_as_if_it_were_read_whole() {
    let sentence = |n: usize| format!("Sentence number {n} {}has an end. ", "and more words ".repeat(n % 7));
    let long: String = (0..600).map(sentence).collect();
    assert!(long.len() > 2 * LONGEST_UNIT);
    let found = pieces(&long, 150);
    // The same text in paragraphs of one sentence each, merged by hand.
    let mut expected: Vec<String> = Vec::new();
    for n in 0..600 {
        let next = sentence(n).trim().to_owned();
        match expected.last_mut() {
            Some(last) if characters(last) + 1 + characters(&next) <= 135 => *last = format!("{last} {next}"),
            _ => expected.push(next),
        }
    }
    assert_eq!(found.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>(), expected);
    assert!(found[..found.len() - 1].iter().all(|piece| piece.pause == Pause::Sentence));
}

/// Text with every character and mark that the splitter treats specially.
fn texts() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "word",
        "Dr.",
        "e.g.",
        "3.14",
        "1,000",
        "A",
        "“Go!”",
        "\"Why?\"",
        "...",
        "…",
        "سلام",
        "چرا؟",
        "۔",
        "؛",
        "你好。",
        "！",
        "ठीक।",
        "[pause:1s]",
        "[pause:",
        "]",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "-",
        "👨‍👩‍👧‍👦",
        "é",
        "e\u{301}",
        "\u{200c}",
        "\0",
        "\u{1b}[0m",
        ",",
        ";",
        "supercalifragilistic",
    ]);
    prop::collection::vec((words, prop::sample::select(vec!["", " ", ", ", ". "])), 0..60)
        .prop_map(|words| words.into_iter().flat_map(|(word, space)| [word, space]).collect())
}

/// The text without white space, byte order marks and pause marks, nor what becomes a mark once another is removed.
fn without_marks(text: &str) -> String {
    let mut text = solid(&text.replace('\u{feff}', ""));
    let is_mark = |inside: &str| {
        let number = inside.strip_suffix("ms").or_else(|| inside.strip_suffix('s')).unwrap_or(inside);
        number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && number.parse::<f64>().is_ok()
    };
    let next = |text: &str| {
        text.match_indices("[pause:").find_map(|(start, opening)| {
            let inside = &text[start + opening.len()..];
            let length = inside.find(']').filter(|&length| is_mark(&inside[..length]))?;
            Some(start..start + opening.len() + length + 1)
        })
    };
    while let Some(mark) = next(&text) {
        text.replace_range(mark, "");
    }
    text
}

fn holds(text: &str, limit: usize) -> Result<(), TestCaseError> {
    let found = pieces(text, limit);
    // In order and complete, except for marks.
    let joined: String = found.iter().map(|piece| piece.text.as_str()).collect();
    prop_assert_eq!(without_marks(&joined), without_marks(text));
    for piece in &found {
        use unicode_segmentation::UnicodeSegmentation;
        let graphemes = piece.text.graphemes(true).count();
        prop_assert!(characters(&piece.text) <= limit || graphemes == 1, "{:?} is above {}", piece, limit);
        prop_assert_eq!(piece.text.trim(), &piece.text);
        prop_assert!(!piece.text.is_empty() || matches!(piece.pause, Pause::Explicit(_)));
    }
    // Only the last piece ends the text.
    let ends = found.iter().filter(|piece| piece.pause == Pause::End).count();
    prop_assert!(ends <= 1 && (ends == 0 || found.last().unwrap().pause == Pause::End));
    Ok(())
}

#[test]
fn a_pause_mark_made_of_a_number_without_a_unit_failed_a_random_text() {
    for text in ["[pause:3.14]", "a [pause: 3.14 ] b", "[pause:[pause:1s]3.14]"] {
        holds(text, 1).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_string_is_split_completely_and_within_the_limit(text in any::<String>(), limit in 1..60usize) {
        holds(&text, limit)?;
    }

    #[test]
    fn plausible_text_is_split_completely_and_within_the_limit(text in texts(), limit in 1..60usize) {
        holds(&text, limit)?;
    }

    #[test]
    fn any_bytes_give_pieces_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for piece in Pieces::new(bytes.as_slice(), 10, &characters) {
            if piece.is_err() {
                break;
            }
        }
    }

    #[test]
    fn the_chunk_size_of_the_reader_does_not_matter(text in texts(), step in 1..7usize) {
        struct Slow<'b>(&'b [u8], usize);
        impl std::io::Read for Slow<'_> {
            fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
                let count = self.1.min(self.0.len()).min(bytes.len());
                bytes[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let slow: Vec<Piece> = Pieces::new(Slow(text.as_bytes(), step), 30, &characters).map(Result::unwrap).collect();
        prop_assert_eq!(slow, pieces(&text, 30));
    }
}
