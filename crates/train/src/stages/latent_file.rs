//! The GPT's states of every record in an unnamed temporary file: an hour of speech has 159 MB of them at a width of 1024,
//! and a batch of the decoder reads only a few windows.

use crate::error::TrainError;
use half::bf16;
use myxtts_run::durable::DurableError;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes per number.
const BYTES: u64 = size_of::<bf16>() as u64;
/// Bytes that are sent to another process at a time.
const PIECE: u64 = 1 << 20;

/// The states of every record, `[codes + 1, width]` each: row i predicted code i, and the last row predicted the end.
/// Rounded to bf16, which is half the bytes and as exact as the GPU that computed them. Only the offsets are in memory. The
/// system removes the file when this is dropped, or the process is killed.
#[derive(Debug)]
pub struct LatentFile {
    file: File,
    /// The folder of the file, for messages.
    folder: PathBuf,
    width: usize,
    spans: Vec<Span>,
    end: u64,
}

/// The rows of a record in the file; 0 rows if it has no states.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    offset: u64,
    rows: usize,
}

impl LatentFile {
    /// An empty file in `folder` for `records` records; in the system's folder of temporary files if `folder` is not a
    /// folder.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(folder: &Path, width: usize, records: usize) -> Result<LatentFile, TrainError> {
        let folder = if folder.is_dir() { folder.to_owned() } else { std::env::temp_dir() };
        let file = tempfile::tempfile_in(&folder).map_err(failed("create a temporary file in", &folder))?;
        Ok(LatentFile { file, folder, width, spans: vec![Span::default(); records], end: 0 })
    }

    /// Writes the states of a record, as whole rows. Each record may be written once at most.
    pub fn append(&mut self, record: usize, states: &[bf16]) -> Result<(), TrainError> {
        let bytes: Vec<u8> = states.iter().flat_map(|x| x.to_bits().to_le_bytes()).collect();
        self.spans[record] = Span { offset: self.end, rows: states.len() / self.width };
        self.write(&bytes)
    }

    /// Appends bytes to the file.
    fn write(&mut self, bytes: &[u8]) -> Result<(), TrainError> {
        self.file
            .write_all_at(bytes, self.end)
            .map_err(failed("write the GPT's states to a temporary file in", &self.folder))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Number of rows of a record; 0 if it has no states.
    pub fn rows(&self, record: usize) -> usize {
        self.spans[record].rows
    }

    /// Reads rows of a record, `first` and the following `count - 1`, which it has to have, and appends them to `out`.
    pub fn read(&self, record: usize, first: usize, count: usize, out: &mut Vec<f32>) -> io::Result<()> {
        let Span { offset, rows } = self.spans[record];
        assert!(first + count <= rows, "record {record} has {rows} rows, not {first} + {count}");
        let row = self.width as u64 * BYTES;
        let mut bytes = vec![0; count * row as usize];
        self.file.read_exact_at(&mut bytes, offset + first as u64 * row)?;
        let number = |pair: &[u8]| bf16::from_bits(u16::from_le_bytes([pair[0], pair[1]])).to_f32();
        out.extend(bytes.chunks_exact(2).map(number));
        Ok(())
    }

    /// Bytes of the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.end
    }

    /// Bytes in memory, independent of the length of clips.
    pub fn memory_bytes(&self) -> usize {
        // Every field is named, so that a new one cannot hold states unnoticed.
        let LatentFile { file: _, folder: _, width: _, spans, end: _ } = self;
        size_of_val(&spans[..])
    }

    /// Sends the states to other processes in pieces of bounded size: first the [header](Self::header), then the file.
    pub(crate) fn send(
        &self,
        mut send: impl FnMut(&[u8]) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        send(&self.header())?;
        let mut piece = vec![0; self.end.min(PIECE) as usize];
        for from in (0..self.end).step_by(PIECE as usize) {
            let piece = &mut piece[..(self.end - from).min(PIECE) as usize];
            self.file
                .read_exact_at(piece, from)
                .map_err(failed("read the GPT's states from a temporary file in", &self.folder))?;
            send(piece)?;
        }
        Ok(())
    }

    /// Writes the pieces of [`LatentFile::send`] to a temporary file of this process; `None` if they are anything other than the
    /// states of `records` records.
    pub(crate) fn receive(
        folder: &Path,
        records: usize,
        mut receive: impl FnMut() -> Result<Vec<u8>, TrainError>,
    ) -> Result<Option<LatentFile>, TrainError> {
        let Some((width, spans, end)) = decode_header(&receive()?) else { return Ok(None) };
        if spans.len() != records {
            return Ok(None);
        }
        let mut all = LatentFile { spans, ..LatentFile::create(folder, width, 0)? };
        while all.end < end {
            let piece = receive()?;
            if piece.is_empty() || piece.len() as u64 > end - all.end {
                return Ok(None);
            }
            all.write(&piece)?;
        }
        Ok(Some(all))
    }

    /// The width, then offset and rows of every record.
    fn header(&self) -> Vec<u8> {
        let spans = self.spans.iter().flat_map(|span| [span.offset, span.rows as u64]);
        [self.width as u64].into_iter().chain(spans).flat_map(u64::to_le_bytes).collect()
    }
}

/// The width, the spans and the bytes of the file that they are in.
fn decode_header(bytes: &[u8]) -> Option<(usize, Vec<Span>, u64)> {
    let (numbers, []) = bytes.as_chunks::<8>() else { return None };
    let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let width = numbers.next().filter(|width| (1..=1 << 20).contains(width))?;
    let (mut spans, mut end) = (Vec::with_capacity(bytes.len() / 16), 0u64);
    while let Some(offset) = numbers.next() {
        let rows = numbers.next()?;
        let length = rows.checked_mul(width * BYTES)?;
        end = end.max(offset.checked_add(length)?);
        spans.push(Span { offset, rows: usize::try_from(rows).ok()? });
    }
    // The records have all of the file, each its own part.
    let length: Option<u64> =
        spans.iter().try_fold(0u64, |sum, span| sum.checked_add(span.rows as u64 * width * BYTES));
    (length == Some(end)).then_some((width as usize, spans, end))
}

fn failed(action: &'static str, folder: &Path) -> impl FnOnce(io::Error) -> TrainError {
    let path = folder.to_owned();
    move |source| DurableError { action, path, source }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 3;

    fn states(record: usize, rows: usize) -> Vec<bf16> {
        (0..rows * WIDTH).map(|i| bf16::from_f32(((record * 7 + i) as f32 * 0.61).sin())).collect()
    }

    fn file(lengths: &[usize]) -> LatentFile {
        let mut all = LatentFile::create(&std::env::temp_dir(), WIDTH, lengths.len()).unwrap();
        // In another order than that of the records, as batches sorted by length give them.
        for (record, &rows) in lengths.iter().enumerate().rev().filter(|(_, rows)| **rows > 0) {
            all.append(record, &states(record, rows)).unwrap();
        }
        all
    }

    /// 159 MB for an hour of speech, on every rank.
    #[test]
    fn the_decoder_held_the_states_of_every_clip() {
        let (short, long) = (file(&[2, 0, 3]), file(&[2000, 0, 3000]));
        assert_eq!(short.memory_bytes(), long.memory_bytes());
        assert_eq!(long.file_bytes(), 5000 * WIDTH as u64 * 2);
        for (record, rows) in [(0, 2000), (1, 0), (2, 3000)] {
            assert_eq!(long.rows(record), rows);
            let memory: Vec<f32> = states(record, rows).iter().map(|x| x.to_f32()).collect();
            for (first, count) in [(0, rows), (rows / 3, rows / 2), (rows, 0)] {
                let mut read = vec![0.5];
                long.read(record, first, count, &mut read).unwrap();
                assert_eq!(
                    read[1..],
                    memory[first * WIDTH..][..count * WIDTH],
                    "record {record} from {first}"
                );
            }
        }
    }

    fn pieces(sent: &LatentFile) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        sent.send(|piece| {
            pieces.push(piece.to_vec());
            Ok(())
        })
        .unwrap();
        pieces
    }

    fn received(pieces: &[Vec<u8>]) -> Option<LatentFile> {
        let mut pieces = pieces.iter().cloned();
        LatentFile::receive(Path::new(""), 3, || Ok(pieces.next().unwrap_or_default())).unwrap()
    }

    #[test]
    fn another_process_reads_the_same_states() {
        for lengths in [[4, 0, 5], [0, 0, 0], [200_000, 1, 350_000]] {
            let sent = file(&lengths);
            let received = received(&pieces(&sent)).unwrap();
            assert_eq!(received.file_bytes(), sent.file_bytes());
            for (record, rows) in lengths.into_iter().enumerate() {
                assert_eq!((received.rows(record), sent.rows(record)), (rows, rows));
                let [mut a, mut b] = [Vec::new(), Vec::new()];
                sent.read(record, 0, rows, &mut a).unwrap();
                received.read(record, 0, rows, &mut b).unwrap();
                assert_eq!(a, b);
            }
        }
    }

    /// The states were sent as one blob, which rank 0 and every other rank held in memory.
    #[test]
    fn no_piece_is_longer_than_the_limit() {
        let pieces = pieces(&file(&[200_000, 1, 350_000]));
        let lengths: Vec<u64> = pieces.iter().map(|piece| piece.len() as u64).collect();
        assert_eq!(lengths[..4], [8 + 16 * 3, PIECE, PIECE, PIECE]);
        assert_eq!(lengths[4..], [550_001 * WIDTH as u64 * BYTES - 3 * PIECE]);
    }

    #[test]
    fn damaged_pieces_are_refused() {
        let pieces = pieces(&file(&[4, 0, 5]));
        let [header, states] = &pieces[..] else { panic!("{} pieces", pieces.len()) };
        for length in 0..header.len() {
            assert!(received(&[header[..length].to_vec(), states.clone()]).is_none(), "cut at {length}");
        }
        assert!(received(&[header.clone(), states[1..].to_vec()]).is_none(), "missing bytes");
        assert!(received(&[header.clone(), [&states[..], &[0]].concat()]).is_none(), "bytes too many");
        for claims in [[u64::MAX, 0, 1], [3, u64::MAX, 1], [3, 0, u64::MAX], [3, 1, 1], [0, 0, 0]] {
            let header = claims.into_iter().chain([0; 4]).flat_map(u64::to_le_bytes).collect();
            assert!(received(&[header, vec![0; 6]]).is_none(), "{claims:?}");
        }
    }
}
