//! Mels as images: time to the right, low frequencies at the bottom, brighter is louder.

/// Colour map from dark to bright, interpolated linearly (viridis): perceptually uniform, also in grey and for colour-blind
/// readers.
const SCALE: [[u8; 3]; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];

/// Palette index of separator lines, after those of the colour map.
const LINE: u8 = 255;

/// One mel, `[frames, channels]`; all mels of an image have the same shape.
pub struct Mel<'a> {
    /// Values, frame by frame.
    pub values: &'a [f32],
    /// Number of frames without padding; a line marks the end if it is less than all frames.
    pub valid: usize,
}

/// Encodes one mel as a PNG image.
pub fn mel_png(frames: usize, channels: usize, values: &[f32]) -> Vec<u8> {
    mels_png(frames, channels, &[Mel { values, valid: frames }])
}

/// Encodes mels of one shape, stacked vertically, with a common colour scale.
pub fn mels_png(frames: usize, channels: usize, mels: &[Mel]) -> Vec<u8> {
    // An image has at least one pixel, even without frames.
    let width = frames.max(1);
    let height = (mels.len() * (channels + 1)).saturating_sub(1).max(1);
    let mut pixels = vec![LINE; width * height];
    let (low, high) = range(mels);
    for (i, mel) in mels.iter().enumerate() {
        assert_eq!(mel.values.len(), frames * channels, "a mel must have the shape of the image");
        for channel in 0..channels {
            let line = i * (channels + 1) + channels - 1 - channel;
            for frame in 0..frames {
                let value = (mel.values[frame * channels + channel] - low) / (high - low);
                let end = frame == mel.valid && mel.valid > 0;
                // NaN is drawn as the lowest value.
                pixels[line * width + frame] = if end { LINE } else { (value.clamp(0.0, 1.0) * 254.0) as u8 };
            }
        }
    }
    encode(width, height, &pixels)
}

/// Lowest and highest finite value, never equal.
fn range(mels: &[Mel]) -> (f32, f32) {
    let values = mels.iter().flat_map(|mel| mel.values).filter(|value| value.is_finite());
    let (low, high) = values
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)));
    if low < high { (low, high) } else { (0.0, 1.0) }
}

fn encode(width: usize, height: usize, pixels: &[u8]) -> Vec<u8> {
    let mut palette: Vec<u8> = (0..255).flat_map(colour).collect();
    palette.extend([255; 3]);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette);
    let mut writer = encoder.write_header().expect("writing to memory does not fail");
    writer.write_image_data(pixels).expect("there is one byte per pixel");
    writer.finish().expect("writing to memory does not fail");
    file
}

/// The colour of `level`, 0 to 254.
fn colour(level: u8) -> [u8; 3] {
    let position = f32::from(level) / 254.0 * (SCALE.len() - 1) as f32;
    let below = (position as usize).min(SCALE.len() - 2);
    let share = position - below as f32;
    std::array::from_fn(|i| {
        let (a, b) = (f32::from(SCALE[below][i]), f32::from(SCALE[below + 1][i]));
        (a + share * (b - a)).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(file: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (info.width, info.height, pixels)
    }

    #[test]
    fn low_frequencies_are_at_the_bottom_and_time_runs_right() {
        // Two frames of three channels; only the lowest channel of the second frame is loud.
        let (width, height, pixels) = decode(&mel_png(2, 3, &[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]));
        assert_eq!((width, height), (2, 3));
        assert_eq!(pixels, [0, 0, 0, 0, 0, 254]);
        assert_eq!((colour(0), colour(254)), (SCALE[0], SCALE[8]));
    }

    #[test]
    fn lines_separate_stacked_mels_and_mark_their_ends() {
        let quiet = [0.0f32; 4];
        let loud = [0.0, 0.0, 0.0, 2.0];
        let mels = [Mel { values: &quiet, valid: 1 }, Mel { values: &loud, valid: 2 }];
        let (width, height, pixels) = decode(&mels_png(2, 2, &mels));
        assert_eq!((width, height), (2, 5));
        assert_eq!(pixels, [0, LINE, 0, LINE, LINE, LINE, 0, 254, 0, 0]);
    }

    #[test]
    fn empty_mels_and_nan_can_be_drawn() {
        decode(&mel_png(0, 80, &[]));
        decode(&mels_png(10, 80, &[]));
        assert_eq!(decode(&mel_png(1, 2, &[f32::NAN, f32::INFINITY])).2, [254, 0]);
    }
}
