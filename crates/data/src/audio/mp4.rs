//! The boxes of an MPEG-4 file, as far as needed to detect missing parts and encoder delay: symphonia's reader ignores edit
//! lists.

use std::path::Path;

use super::AudioError;

/// The part of the decoded track that is actual audio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Edit {
    /// Samples to skip at the start, in units of the track's time scale.
    pub(super) delay: u64,
    /// Maximum number of samples to keep; `None` keeps all.
    pub(super) length: Option<u64>,
}

/// Walks the top-level boxes and reads the edit list of the first audio track.
pub(super) fn check(bytes: &[u8], name: &Path) -> Result<Edit, AudioError> {
    let mut rest = bytes;
    let mut movie = None;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let Some(found) = next_box(rest) else {
            // Padding after the last box.
            if movie.is_some() && (rest.len() < 8 || rest.iter().all(|&byte| byte == 0)) {
                break;
            }
            return Err(AudioError::corrupt(name, format!("expected a box at byte {at}")));
        };
        if found.size > rest.len() as u64 {
            let declared = (at as u64).saturating_add(found.size);
            return Err(AudioError::truncated(name, declared, bytes.len() as u64, "bytes"));
        }
        // Fits in usize: just compared with the length of a slice.
        let (this, after) = rest.split_at(found.size as usize);
        if &found.kind == b"moov" {
            movie = Some(&this[found.header..]);
        }
        rest = after;
    }
    let movie = movie.ok_or_else(|| AudioError::end_missing(name, "its index (the moov box) is missing"))?;
    Ok(edit(movie).unwrap_or_default())
}

struct BoxHeader {
    kind: [u8; 4],
    header: usize,
    size: u64,
}

fn next_box(bytes: &[u8]) -> Option<BoxHeader> {
    let size = u64::from(number(bytes, 0)?);
    let kind = *bytes.get(4..)?.first_chunk::<4>()?;
    if !kind.iter().all(|&byte| (0x20..0x7F).contains(&byte) || byte == 0xA9) {
        return None;
    }
    let (header, size) = match size {
        0 => (8, bytes.len() as u64),
        1 => (16, long_number(bytes, 8)?),
        size => (8, size),
    };
    (size >= header as u64).then_some(BoxHeader { kind, header, size })
}

/// Contents of the child boxes of one kind.
fn children<'a>(mut bytes: &'a [u8], kind: &'static [u8; 4]) -> impl Iterator<Item = &'a [u8]> {
    std::iter::from_fn(move || {
        while let Some(found) = next_box(bytes) {
            let size = usize::try_from(found.size).ok().filter(|&size| size <= bytes.len())?;
            let (this, after) = bytes.split_at(size);
            bytes = after;
            if &found.kind == kind {
                return Some(&this[found.header..]);
            }
        }
        None
    })
}

fn child<'a>(bytes: &'a [u8], path: &[&'static [u8; 4]]) -> Option<&'a [u8]> {
    path.iter().try_fold(bytes, |bytes, kind| children(bytes, kind).next())
}

fn edit(movie: &[u8]) -> Option<Edit> {
    let track = children(movie, b"trak").find(|track| {
        child(track, &[b"mdia", b"hdlr"]).and_then(|handler| handler.get(8..12)) == Some(b"soun")
    })?;
    let movie_scale = timescale(child(movie, &[b"mvhd"])?)?;
    let scale = timescale(child(track, &[b"mdia", b"mdhd"])?)?;
    let list = child(track, &[b"edts", b"elst"])?;
    let wide = *list.first()? == 1;
    let entries = (number(list, 4)? as usize).min(list.len());
    let width = if wide { 20 } else { 12 };
    // An empty edit (media time -1) only delays the start; the first other one gives the range. More than one is a manual
    // cut and is ignored.
    let mut real = (0..entries).filter_map(|entry| {
        let at = 8 + entry * width;
        let (length, start) = if wide {
            (long_number(list, at)?, long_number(list, at + 8)? as i64)
        } else {
            (u64::from(number(list, at)?), i64::from(number(list, at + 4)? as i32))
        };
        u64::try_from(start).ok().map(|start| (length, start))
    });
    let (length, delay) = real.next()?;
    if real.next().is_some() {
        return None;
    }
    // Movie time is often only in milliseconds: round up so that no sample is lost.
    let length = u128::from(length) * u128::from(scale);
    let length = u64::try_from(length.div_ceil(u128::from(movie_scale))).ok()?;
    Some(Edit { delay, length: (length > 0).then_some(length) })
}

/// Units per second of an `mvhd` or `mdhd` box.
fn timescale(header: &[u8]) -> Option<u32> {
    let at = if *header.first()? == 1 { 20 } else { 12 };
    number(header, at).filter(|&scale| scale > 0)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|field| u32::from_be_bytes(*field))
}

fn long_number(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|field| u64::from_be_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let size = u32::try_from(8 + content.len()).unwrap();
        [&size.to_be_bytes()[..], kind, content].concat()
    }

    fn scaled(scale: u32) -> Vec<u8> {
        [&[0; 12][..], &scale.to_be_bytes(), &[0; 4]].concat()
    }

    fn movie(edits: &[(u32, i32)]) -> Vec<u8> {
        let mut list = [[0; 4], (edits.len() as u32).to_be_bytes()].concat();
        for (length, start) in edits {
            list.extend_from_slice(&length.to_be_bytes());
            list.extend_from_slice(&start.to_be_bytes());
            list.extend_from_slice(&[0, 1, 0, 0]);
        }
        let handler = boxed(b"hdlr", b"\0\0\0\0\0\0\0\0soun");
        let media = boxed(b"mdia", &[boxed(b"mdhd", &scaled(44_100)), handler].concat());
        let track = boxed(b"trak", &[boxed(b"edts", &boxed(b"elst", &list)), media].concat());
        boxed(b"moov", &[boxed(b"mvhd", &scaled(1000)), track].concat())
    }

    #[test]
    fn the_edit_list_selects_the_samples() {
        let name = Path::new("a.m4a");
        let edit = check(&movie(&[(1000, 1024)]), name).unwrap();
        assert_eq!(edit, Edit { delay: 1024, length: Some(44_100) });
        let delayed = check(&movie(&[(20, -1), (1000, 2112)]), name).unwrap();
        assert_eq!(delayed.delay, 2112);
        assert_eq!(check(&movie(&[(500, 0), (500, 44_100)]), name).unwrap(), Edit::default());
        assert_eq!(check(&movie(&[]), name).unwrap(), Edit::default());
    }

    #[test]
    fn truncation_and_a_missing_index_are_detected() {
        let name = Path::new("a.m4a");
        let file = [boxed(b"ftyp", b"M4A "), boxed(b"mdat", &[0; 50]), movie(&[(1000, 1024)])].concat();
        for end in 0..file.len() {
            assert!(check(&file[..end], name).is_err(), "cut at {end}");
        }
        let lost = check(&file[..12 + 58], name);
        assert!(matches!(lost, Err(AudioError::EndMissing { .. })), "{lost:?}");
    }
}
