//! Transcript files, for the layouts that store one next to each audio file.

use std::io::Read;
use std::path::{Path, PathBuf};

use myxtts_run::regular_file;
use rayon::prelude::*;

use super::Draft;
use super::metadata::{Entry, MAX_LINE_BYTES, Parsed, malformed};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Origin;

/// Parses one transcript, counted as one line: its lines are joined by spaces.
pub(super) fn parse(bytes: &[u8], file: &Path) -> Parsed {
    let mut parsed = Parsed { lines: 1, columns: 1, ..Parsed::default() };
    match text(bytes) {
        Ok(text) => parsed.entries.push(Entry {
            id: file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            audio: None,
            text,
            speaker: None,
            language: None,
            seconds: None,
            line: 1,
        }),
        Err(detail) => parsed.problems.push(malformed(file, None, detail)),
    }
    parsed
}

fn text(bytes: &[u8]) -> Result<String, String> {
    if bytes.len() > MAX_LINE_BYTES {
        return Err(format!("over {MAX_LINE_BYTES} bytes; too long for the transcript of one utterance"));
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err("the transcript is UTF-16; save it as UTF-8".to_owned());
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        format!("byte 0x{:02x} at offset {at} is not UTF-8; save the file as UTF-8", bytes[at])
    })?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Ok(lines.join(" "))
}

/// An utterance whose transcript has not been read yet.
pub(super) struct Pending {
    pub(super) id: String,
    pub(super) audio: PathBuf,
    pub(super) transcript: PathBuf,
    pub(super) speaker: Option<String>,
}

/// Reads transcripts in parallel; results are in input order.
pub(super) fn read_all(pending: Vec<Pending>) -> (Vec<Draft>, Vec<Problem>) {
    let read: Vec<Result<Draft, Problem>> = pending.into_par_iter().map(read_one).collect();
    let mut drafts = Vec::with_capacity(read.len());
    let mut problems = Vec::new();
    for outcome in read {
        match outcome {
            Ok(draft) => drafts.push(draft),
            Err(problem) => problems.push(problem),
        }
    }
    (drafts, problems)
}

fn read_one(pending: Pending) -> Result<Draft, Problem> {
    let Pending { id, audio, transcript, speaker } = pending;
    let mut bytes = Vec::new();
    let outcome = regular_file::open(&transcript)
        .and_then(|file| file.take(MAX_LINE_BYTES as u64 + 1).read_to_end(&mut bytes));
    let text = match outcome {
        Ok(_) => text(&bytes).map_err(|detail| (ProblemKind::MalformedLine, detail)),
        Err(error) => Err((ProblemKind::Unreadable, format!("the transcript cannot be read: {error}"))),
    };
    let origin = Origin { file: transcript, line: None };
    match text {
        Ok(text) => Ok(Draft { id, audio, text, speaker, language: None, seconds: None, origin }),
        Err((kind, detail)) => Err(Problem { kind, severity: Severity::Error, id: Some(id), origin, detail }),
    }
}

/// The problem for an audio file without a transcript.
pub(super) fn missing_transcript(id: String, audio: &Path, wanted: &str) -> Problem {
    Problem {
        kind: ProblemKind::EmptyText,
        severity: Severity::Error,
        id: Some(id),
        origin: Origin { file: audio.to_owned(), line: None },
        detail: format!("the transcript is missing: {wanted}; write one or remove the audio file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_the_bom_is_removed() {
        assert_eq!(text(b"\xef\xbb\xbf one \r\n\r\n two\n").unwrap(), "one two");
        assert_eq!(text(b"").unwrap(), "");
        assert!(text(b"ab\xe9").unwrap_err().contains("offset 2"));
        assert!(text(b"\xff\xfea\0").unwrap_err().contains("UTF-16"));
        assert!(text(&vec![b'a'; MAX_LINE_BYTES + 1]).unwrap_err().contains("65536"));
    }
}
