//! Frames between ranks: kind, length, bytes. Small messages are JSON; models, codes and sums are raw memory, so all
//! machines of a run must be little-endian, as every machine with a GPU is.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// First bytes of every connection, to detect another program on the port.
pub(super) const MAGIC: &[u8; 16] = b"myxtts ranks 2\r\n";
/// What they begin with in every version.
pub(super) const MAGIC_OF_ANY_VERSION: &[u8] = b"myxtts ranks ";

/// Maximum length of a message that is not a blob.
const MAX_MESSAGE_BYTES: u64 = 64 << 20;

const MESSAGE: u8 = 1;
const BLOB: u8 = 2;

/// Writes a message.
pub(super) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
    frame(to, MESSAGE, &bytes)
}

/// Writes bytes.
pub(super) fn send_blob(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    frame(to, BLOB, bytes)
}

fn frame(to: &mut impl Write, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let mut head = [0; 9];
    head[0] = kind;
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    if bytes.len() < 1 << 16 {
        // One packet instead of two.
        return to.write_all(&[&head[..], bytes].concat());
    }
    to.write_all(&head)?;
    to.write_all(bytes)
}

/// Reads a message.
pub(super) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let (kind, length) = head(from)?;
    message(from, kind, length)
}

/// As [`receive`], but refuses a message of more than `limit` bytes.
pub(super) fn receive_short<T: DeserializeOwned>(from: &mut impl Read, limit: u64) -> io::Result<T> {
    let (kind, length) = head(from)?;
    if length > limit {
        let words = format!("a message of {length} bytes instead of a greeting");
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    message(from, kind, length)
}

/// Reads bytes, or the message that was sent instead.
pub(super) fn receive_blob<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Result<Vec<u8>, T>> {
    let (kind, length) = head(from)?;
    match kind {
        BLOB => bytes(from, length).map(Ok),
        _ => message(from, kind, length).map(Err),
    }
}

fn head(from: &mut impl Read) -> io::Result<(u8, u64)> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    Ok((head[0], head[1..].iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte))))
}

fn message<T: DeserializeOwned>(from: &mut impl Read, kind: u8, length: u64) -> io::Result<T> {
    let invalid = |words: String| io::Error::new(io::ErrorKind::InvalidData, words);
    if kind != MESSAGE || length > MAX_MESSAGE_BYTES {
        return Err(invalid(format!("a frame of kind {kind} with {length} bytes instead of a message")));
    }
    serde_json::from_slice(&bytes(from, length)?)
        .map_err(|error| invalid(format!("a message that cannot be decoded: {error}")))
}

fn bytes(from: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    // The buffer grows as bytes arrive, not by the claimed length.
    let mut bytes = Vec::new();
    let read = from.take(length).read_to_end(&mut bytes)?;
    if (read as u64) < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Whether reading ended by its time limit.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        let mut bytes = Vec::new();
        send(&mut bytes, &("word", 7)).unwrap();
        send_blob(&mut bytes, &vec![3; 100_000]).unwrap();
        send_blob(&mut bytes, &[]).unwrap();
        let mut from = &bytes[..];
        assert_eq!(receive::<(String, u32)>(&mut from).unwrap(), ("word".to_owned(), 7));
        assert_eq!(receive_blob::<u32>(&mut from).unwrap(), Ok(vec![3; 100_000]));
        assert_eq!(receive_blob::<u32>(&mut from).unwrap(), Ok(Vec::new()));
        assert!(receive_blob::<u32>(&mut from).is_err());
        let mut bytes = Vec::new();
        send(&mut bytes, &5).unwrap();
        assert_eq!(receive_blob::<u32>(&mut &bytes[..]).unwrap(), Err(5));
    }

    #[test]
    fn a_claimed_length_allocates_no_memory() {
        let mut bytes = vec![BLOB];
        bytes.extend(u64::MAX.to_le_bytes());
        assert_eq!(receive_blob::<u32>(&mut &bytes[..]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        bytes[0] = MESSAGE;
        let short = receive_short::<u32>(&mut &bytes[..], 100).unwrap_err().to_string();
        assert!(short.contains("instead of a greeting"), "{short}");
        assert_eq!(receive::<u32>(&mut &bytes[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
