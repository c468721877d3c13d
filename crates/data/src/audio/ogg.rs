//! The pages of an Ogg file. symphonia's reader skips a page with a wrong checksum; here such a page, a missing page or a
//! missing end-of-stream flag counts as damage.

use std::path::Path;

use super::AudioError;

const HEADER: usize = 27;

/// Walks all pages: every checksum matches, none is missing, the last has the end-of-stream flag, and the codec is
/// supported.
pub(super) fn check(bytes: &[u8], name: &Path) -> Result<(), AudioError> {
    let mut at = 0;
    let mut stream = None;
    let mut sequence = 0u32;
    loop {
        let Some(header) = bytes.get(at..at + HEADER) else {
            return Err(AudioError::end_missing(name, "the end-of-stream page is missing"));
        };
        if !header.starts_with(b"OggS\0") {
            return Err(AudioError::corrupt(name, format!("expected a page at byte {at}")));
        }
        let segments = usize::from(header[26]);
        let table = bytes.get(at + HEADER..at + HEADER + segments);
        let body: usize = table.unwrap_or_default().iter().map(|&length| usize::from(length)).sum();
        let end = at + HEADER + segments + body;
        let (Some(_), Some(page)) = (table, bytes.get(at..end)) else {
            return Err(AudioError::truncated(name, end as u64, bytes.len() as u64, "bytes"));
        };
        let field =
            |from: usize| u32::from_le_bytes([page[from], page[from + 1], page[from + 2], page[from + 3]]);
        let (serial, number, checksum) = (field(14), field(18), field(22));
        if checksum != checksum_of(page) {
            let what = format!("the checksum of the page at byte {at} does not match");
            return Err(AudioError::corrupt(name, what));
        }
        match stream {
            None => {
                codec(&page[HEADER + segments..]).map_err(|what| AudioError::unsupported(name, what))?;
                stream = Some(serial);
            }
            Some(first) if first != serial => {
                return Err(AudioError::unsupported(name, "an Ogg file with several streams"));
            }
            Some(_) if number != sequence => {
                let what = format!("expected page {sequence}, found page {number}");
                return Err(AudioError::corrupt(name, what));
            }
            Some(_) => {}
        }
        sequence = number.wrapping_add(1);
        const LAST: u8 = 4;
        if page[5] & LAST != 0 {
            return match bytes[end..].starts_with(b"OggS") {
                true => Err(AudioError::unsupported(name, "an Ogg file with several streams")),
                false => Ok(()),
            };
        }
        at = end;
    }
}

/// Checks the codec by the first packet.
fn codec(packet: &[u8]) -> Result<(), &'static str> {
    match packet {
        _ if packet.starts_with(b"\x01vorbis") || packet.starts_with(b"\x7FFLAC") => Ok(()),
        _ if packet.starts_with(b"OpusHead") => Err("Opus in Ogg"),
        _ if packet.starts_with(b"Speex") => Err("Speex in Ogg"),
        _ => Err("an Ogg file without Vorbis or FLAC"),
    }
}

/// CRC-32 with polynomial 0x04C11DB7, most significant bit first, initial value zero; the checksum field itself counts as
/// zeros.
fn checksum_of(page: &[u8]) -> u32 {
    const FIELD: std::ops::Range<usize> = 22..26;
    page.iter().enumerate().fold(0, |crc, (position, &byte)| {
        let byte = if FIELD.contains(&position) { 0 } else { byte };
        crc << 8 ^ TABLE[usize::from((crc >> 24) as u8 ^ byte)]
    })
}

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc >> 31 == 1 { 0x04C1_1DB7 } else { 0 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn page(kind: u8, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut page = b"OggS\0".to_vec();
        page.push(kind);
        page.extend_from_slice(&[0; 8]);
        page.extend_from_slice(&7u32.to_le_bytes());
        page.extend_from_slice(&sequence.to_le_bytes());
        page.extend_from_slice(&[0; 4]);
        page.push(1);
        page.push(u8::try_from(body.len()).unwrap());
        page.extend_from_slice(body);
        let checksum = checksum_of(&page);
        page[22..26].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    fn pages(sequence: [u32; 3], last: u8) -> Vec<u8> {
        [
            page(2, sequence[0], b"\x01vorbis"),
            page(0, sequence[1], b"some data"),
            page(last, sequence[2], b"more data"),
        ]
        .concat()
    }

    #[test]
    fn the_checksum_matches_the_format() {
        // By hand for one byte: 0x01 shifted out is the polynomial itself.
        assert_eq!(checksum_of(&[1]), 0x04C1_1DB7);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_detected() {
        let good = pages([0, 1, 2], 4);
        let name = Path::new("a.ogg");
        assert!(check(&good, name).is_ok());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bad, name).is_err(), "bit {bit}");
        }
        for end in 0..good.len() {
            assert!(check(&good[..end], name).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_missing_page_and_a_missing_end_are_reported() {
        let name = Path::new("a.ogg");
        assert!(matches!(check(&pages([0, 1, 3], 4), name), Err(AudioError::Corrupt { .. })));
        assert!(matches!(check(&pages([0, 1, 2], 0), name), Err(AudioError::EndMissing { .. })));
    }
}
