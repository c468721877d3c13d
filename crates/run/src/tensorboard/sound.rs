//! The form of a WAV file, as far as TensorBoard wants to know it.

pub struct Form {
    pub rate: u32,
    pub channels: u16,
    pub frames: u64,
}

/// Finds `fmt ` and `data`. The sound itself is the browser's business.
pub fn read(wav: &[u8]) -> Result<Form, &'static str> {
    if wav.len() < 12 || &wav[..4] != b"RIFF" || &wav[8..12] != b"WAVE" {
        return Err("it does not begin as one");
    }
    let mut rest = &wav[12..];
    let mut format = None;
    while let Some((head, body)) = rest.split_first_chunk::<8>() {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        match &head[..4] {
            b"fmt " => {
                let Some((fmt, _)) = body.split_first_chunk::<16>() else {
                    return Err("its header is cut off");
                };
                let channels = u16::from_le_bytes([fmt[2], fmt[3]]);
                let rate = u32::from_le_bytes([fmt[4], fmt[5], fmt[6], fmt[7]]);
                let frame = u16::from_le_bytes([fmt[12], fmt[13]]);
                format = Some((channels, rate, u64::from(frame)));
            }
            b"data" => {
                let Some((channels, rate, frame)) = format else {
                    return Err("its data come before its format");
                };
                if frame == 0 || channels == 0 || rate == 0 {
                    return Err("its format is all zeros");
                }
                return Ok(Form { rate, channels, frames: length.min(body.len()) as u64 / frame });
            }
            _ => {}
        }
        // Chunks begin at even places.
        rest = body.get(length.saturating_add(length % 2)..).unwrap_or_default();
    }
    Err("it has no data")
}
