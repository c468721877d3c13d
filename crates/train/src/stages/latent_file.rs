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
        self.append_bytes(record, &bytes)
    }

    fn append_bytes(&mut self, record: usize, bytes: &[u8]) -> Result<(), TrainError> {
        let offset = self.end;
        self.file
            .write_all_at(bytes, offset)
            .map_err(failed("write the GPT's states to a temporary file in", &self.folder))?;
        self.end += bytes.len() as u64;
        self.spans[record] = Span { offset, rows: bytes.len() / (self.width * BYTES as usize) };
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
        size_of_val(&self.spans[..])
    }

    /// The states for another process: the width, the number of records, then the number of rows and the rows of each.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, TrainError> {
        let mut bytes = Vec::with_capacity(16 + 8 * self.spans.len() + self.end as usize);
        bytes.extend((self.width as u64).to_le_bytes());
        bytes.extend((self.spans.len() as u64).to_le_bytes());
        for span in &self.spans {
            bytes.extend((span.rows as u64).to_le_bytes());
            let from = bytes.len();
            bytes.resize(from + span.rows * self.width * BYTES as usize, 0);
            self.file
                .read_exact_at(&mut bytes[from..], span.offset)
                .map_err(failed("read the GPT's states from a temporary file in", &self.folder))?;
        }
        Ok(bytes)
    }

    /// Writes what [`LatentFile::encode`] returned to a temporary file of this process; `None` if it is something else.
    pub(crate) fn decode(folder: &Path, bytes: &[u8]) -> Result<Option<LatentFile>, TrainError> {
        let Some((width, records, mut rest)) = header(bytes) else { return Ok(None) };
        let mut all = LatentFile::create(folder, width, records)?;
        for record in 0..records {
            let Some((rows, after)) = rest.split_first_chunk::<8>() else { return Ok(None) };
            let length = usize::try_from(u64::from_le_bytes(*rows)).ok();
            let length = length.and_then(|rows| rows.checked_mul(width * BYTES as usize));
            let Some(own) = length.and_then(|length| after.get(..length)) else { return Ok(None) };
            if !own.is_empty() {
                all.append_bytes(record, own)?;
            }
            rest = &after[own.len()..];
        }
        Ok(rest.is_empty().then_some(all))
    }
}

/// The width, the number of records and the rest. Every record has at least the bytes of its length.
fn header(bytes: &[u8]) -> Option<(usize, usize, &[u8])> {
    let (width, rest) = bytes.split_first_chunk::<8>()?;
    let (records, rest) = rest.split_first_chunk::<8>()?;
    let width =
        usize::try_from(u64::from_le_bytes(*width)).ok().filter(|width| (1..=1 << 20).contains(width))?;
    let records = usize::try_from(u64::from_le_bytes(*records)).ok()?;
    (records <= rest.len() / 8).then_some((width, records, rest))
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

    #[test]
    fn another_process_reads_the_same_states() {
        let sent = file(&[4, 0, 5]);
        let bytes = sent.encode().unwrap();
        let folder = Path::new("");
        let received = LatentFile::decode(folder, &bytes).unwrap().unwrap();
        for record in 0..3 {
            assert_eq!(received.rows(record), sent.rows(record));
            let [mut a, mut b] = [Vec::new(), Vec::new()];
            sent.read(record, 0, sent.rows(record), &mut a).unwrap();
            received.read(record, 0, sent.rows(record), &mut b).unwrap();
            assert_eq!(a, b);
        }
        for length in 0..bytes.len() {
            assert!(LatentFile::decode(folder, &bytes[..length]).unwrap().is_none(), "cut at {length}");
        }
        let claims = [u64::MAX.to_le_bytes(), u64::MAX.to_le_bytes()].concat();
        assert!(LatentFile::decode(folder, &claims).unwrap().is_none());
    }
}
