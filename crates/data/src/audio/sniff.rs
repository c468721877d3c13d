//! Detects the container by the first bytes. The file extension is not reliable: `.wav` files that contain MP3 are common.

use super::Container;

/// Returns the container and its offset (after an ID3v2 tag), or a description of unsupported content.
pub(super) fn sniff(bytes: &[u8]) -> Result<(Container, usize), String> {
    let start = skip_id3(bytes);
    let head = &bytes[start..];
    let at = |offset: usize, tag: &[u8]| head.get(offset..).is_some_and(|rest| rest.starts_with(tag));

    if (at(0, b"RIFF") || at(0, b"RF64") || at(0, b"BW64")) && at(8, b"WAVE") {
        return Ok((Container::Wav, start));
    }
    if at(0, b"fLaC") {
        return Ok((Container::Flac, start));
    }
    if at(0, b"OggS") {
        return Ok((Container::Ogg, start));
    }
    if at(4, b"ftyp") {
        return Ok((Container::Mp4, start));
    }
    // Some encoders leave zeros between the tag and the first frame.
    let padding = head.iter().take(MAX_PADDING).take_while(|&&byte| byte == 0).count();
    if let [0xFF, second, ..] = head[padding..]
        && second & 0xE0 == 0xE0
    {
        return match second >> 1 & 3 {
            0 => Err("AAC as a bare ADTS stream".into()),
            _ => Ok((Container::Mp3, start + padding)),
        };
    }
    Err(describe(head, start > 0))
}

const MAX_PADDING: usize = 4096;

/// Offset of the content after any ID3v2 tags.
fn skip_id3(bytes: &[u8]) -> usize {
    let mut start = 0;
    while let [b'I', b'D', b'3', _, _, flags, a, b, c, d, ..] = bytes[start..] {
        if (a | b | c | d) & 0x80 != 0 {
            break;
        }
        let size = [a, b, c, d].iter().fold(0usize, |size, &byte| size << 7 | usize::from(byte));
        let footer = if flags & 0x10 != 0 { 10 } else { 0 };
        match start.checked_add(10 + size + footer) {
            Some(next) if next <= bytes.len() => start = next,
            _ => break,
        }
    }
    start
}

fn describe(head: &[u8], tagged: bool) -> String {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"RIFX", "a big-endian (RIFX) WAV file"),
        (b"RIFF", "a RIFF file that is not WAVE"),
        (b"FORM", "an AIFF file"),
        (b"caff", "a Core Audio file"),
        (b".snd", "an AU file"),
        (b"#!AMR", "an AMR file"),
        (b"\x1A\x45\xDF\xA3", "a Matroska or WebM file"),
        (b"\x30\x26\xB2\x75", "a Windows Media file"),
        (b"wvpk", "a WavPack file"),
        (b"MAC ", "a Monkey's Audio file"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1F\x8B", "a gzip archive"),
        (b"%PDF", "a PDF document"),
        (b"<", "HTML or XML text (a failed download?)"),
        (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull`"),
    ];
    if let Some((_, name)) = KNOWN.iter().find(|(magic, _)| head.starts_with(magic)) {
        return (*name).to_owned();
    }
    let first: String = head.iter().take(8).map(|byte| byte.escape_ascii().to_string()).collect();
    match (tagged, head.is_empty()) {
        (true, true) => "an ID3 tag without content".to_owned(),
        (true, false) => format!("unknown content after the ID3 tag (it starts with \"{first}\")"),
        _ => format!("unknown content (it starts with \"{first}\")"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_detected_by_content() {
        assert_eq!(sniff(b"RIFF\0\0\0\0WAVEfmt "), Ok((Container::Wav, 0)));
        assert_eq!(sniff(b"fLaC\0\0\0\x22"), Ok((Container::Flac, 0)));
        assert_eq!(sniff(b"OggS\0\x02"), Ok((Container::Ogg, 0)));
        assert_eq!(sniff(b"\0\0\0\x1CftypM4A "), Ok((Container::Mp4, 0)));
        assert_eq!(sniff(b"\xFF\xFB\x90\x64"), Ok((Container::Mp3, 0)));
        assert_eq!(sniff(b"ID3\x04\0\0\0\0\0\x02..\xFF\xF3\x90\x64"), Ok((Container::Mp3, 12)));
        assert_eq!(sniff(b"ID3\x04\0\0\0\0\0\x02..\0\0\0\xFF\xF3\x90\x64"), Ok((Container::Mp3, 15)));
    }

    #[test]
    fn unsupported_content_is_described() {
        assert!(sniff(b"RIFF\0\0\0\0AVI LIST").unwrap_err().contains("not WAVE"));
        assert!(sniff(b"\xFF\xF1\x50\x80").unwrap_err().contains("ADTS"));
        assert!(sniff(b"<!DOCTYPE html>").unwrap_err().contains("HTML"));
        assert!(sniff(b"hello there").unwrap_err().contains("hello th"));
        assert!(sniff(b"ID3\x04\0\0\0\0\0\0").unwrap_err().contains("without content"));
        assert!(sniff(b"ID3\x04\0\0\x7F\x7F\x7F\x7F").is_err(), "a tag longer than the file");
    }
}
