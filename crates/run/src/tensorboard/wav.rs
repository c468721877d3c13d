//! Reads the header of a WAV file, as far as TensorBoard needs it.

/// Format of a WAV file.
pub struct WavFormat {
    /// Samples per second.
    pub rate: u32,
    pub channels: u16,
    /// Samples per channel.
    pub frames: u64,
}

/// Finds the `fmt ` and `data` chunks. The samples themselves are not checked.
pub fn read_format(wav: &[u8]) -> Result<WavFormat, &'static str> {
    if wav.len() < 12 || &wav[..4] != b"RIFF" || &wav[8..12] != b"WAVE" {
        return Err("it has no RIFF header");
    }
    let mut rest = &wav[12..];
    let mut format = None;
    while let Some((head, body)) = rest.split_first_chunk::<8>() {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        match &head[..4] {
            b"fmt " => {
                let Some((fmt, _)) = body.split_first_chunk::<16>() else {
                    return Err("its header is truncated");
                };
                let channels = u16::from_le_bytes([fmt[2], fmt[3]]);
                let rate = u32::from_le_bytes([fmt[4], fmt[5], fmt[6], fmt[7]]);
                let frame = u16::from_le_bytes([fmt[12], fmt[13]]);
                format = Some((channels, rate, u64::from(frame)));
            }
            b"data" => {
                let Some((channels, rate, frame)) = format else {
                    return Err("its data chunk comes before its format chunk");
                };
                if frame == 0 || channels == 0 || rate == 0 {
                    return Err("its format chunk contains zeros");
                }
                return Ok(WavFormat { rate, channels, frames: length.min(body.len()) as u64 / frame });
            }
            _ => {}
        }
        // Chunks start at even offsets.
        rest = body.get(length.saturating_add(length % 2)..).unwrap_or_default();
    }
    Err("it has no data chunk")
}
