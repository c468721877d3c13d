//! Decoding of intact audio files in every supported format.

use std::path::{Path, PathBuf};

use myxtts_data::audio::{AudioError, Container, Decoded, decode, decode_bytes, probe, wav};
use proptest::prelude::*;

/// Samples of the sweep in `testdata/audio` (see the README there for how it was made).
const SWEEP_SAMPLES: usize = 17_640;

pub fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/audio").join(name)
}

/// The tone in all test files: a sweep from 200 Hz upwards at half of full scale.
pub fn sweep(sample_rate: u32, samples: usize) -> Vec<f64> {
    let at = |n: usize| n as f64 / f64::from(sample_rate);
    (0..samples)
        .map(|n| 0.5 * (std::f64::consts::TAU * (200.0 * at(n) + 1200.0 * at(n) * at(n))).sin())
        .collect()
}

/// A WAV file field by field, so that a test can set any field to any value.
#[derive(Clone)]
pub struct Wav {
    pub tag: u16,
    pub channels: u16,
    pub sample_rate: u32,
    pub bits: u16,
    /// Appended to the fields of the fmt chunk.
    pub extension: Vec<u8>,
    /// Chunks between fmt and data.
    pub before: Vec<u8>,
    pub data: Vec<u8>,
    /// Chunks after the data chunk.
    pub after: Vec<u8>,
    /// Sizes to declare instead of the actual ones.
    pub riff_size: Option<u32>,
    pub data_size: Option<u32>,
}

impl Wav {
    pub fn new(tag: u16, bits: u16, channels: u16, values: &[f64]) -> Wav {
        let value = |v: f64| -> Vec<u8> {
            let scaled = (v * 2f64.powi(i32::from(bits) - 1)).round();
            match (tag, bits) {
                (1, 8) => vec![(scaled + 128.0) as u8],
                (1, 16) => (scaled as i16).to_le_bytes().to_vec(),
                (1, 24) => (scaled as i32).to_le_bytes()[..3].to_vec(),
                (1, 32) => (scaled as i32).to_le_bytes().to_vec(),
                (3, 32) => (v as f32).to_le_bytes().to_vec(),
                (3, 64) => v.to_le_bytes().to_vec(),
                other => panic!("unsupported sample format: {other:?}"),
            }
        };
        let frame = |&v: &f64| (0..channels).flat_map(|_| value(v)).collect::<Vec<u8>>();
        Wav {
            tag,
            channels,
            sample_rate: 22_050,
            bits,
            extension: Vec::new(),
            before: Vec::new(),
            data: values.iter().flat_map(frame).collect(),
            after: Vec::new(),
            riff_size: None,
            data_size: None,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let frame = self.channels * self.bits.div_ceil(8);
        let mut format = Vec::new();
        format.extend_from_slice(&self.tag.to_le_bytes());
        format.extend_from_slice(&self.channels.to_le_bytes());
        format.extend_from_slice(&self.sample_rate.to_le_bytes());
        format.extend_from_slice(&(self.sample_rate * u32::from(frame)).to_le_bytes());
        format.extend_from_slice(&frame.to_le_bytes());
        format.extend_from_slice(&self.bits.to_le_bytes());
        format.extend_from_slice(&self.extension);
        let data_size = self.data_size.unwrap_or(self.data.len() as u32);
        let padding: &[u8] = if self.data.len() % 2 == 1 { &[0] } else { &[] };
        let body = [
            &b"WAVE"[..],
            &chunk(b"fmt ", &format)[..],
            &self.before,
            b"data",
            &data_size.to_le_bytes(),
            &self.data,
            padding,
            &self.after,
        ]
        .concat();
        let riff_size = self.riff_size.unwrap_or(body.len() as u32);
        [b"RIFF", &riff_size.to_le_bytes()[..], &body].concat()
    }

    /// The same samples with a WAVEFORMATEXTENSIBLE header.
    pub fn extensible(mut self, valid_bits: u16) -> Wav {
        let tag = self.tag;
        self.tag = 0xFFFE;
        self.extension = [&22u16.to_le_bytes()[..], &valid_bits.to_le_bytes(), &4u32.to_le_bytes()].concat();
        self.extension.extend_from_slice(&tag.to_le_bytes());
        self.extension.extend_from_slice(b"\0\0\0\0\x10\0\x80\0\0\xAA\0\x38\x9B\x71");
        self
    }
}

pub fn chunk(id: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let padding: &[u8] = if content.len() % 2 == 1 { &[0] } else { &[] };
    [id, &(content.len() as u32).to_le_bytes()[..], content, padding].concat()
}

fn decoded(bytes: &[u8]) -> Decoded {
    decode_bytes(bytes, Path::new("test.wav")).unwrap()
}

fn worst(samples: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(samples.len(), wanted.len());
    samples.iter().zip(wanted).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max)
}

const WIDTHS: [(u16, u16); 6] = [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)];

#[test]
fn wav_decodes_in_every_width_and_channel_count() {
    let wanted = sweep(22_050, 2_000);
    for (tag, bits) in WIDTHS {
        for channels in [1, 2, 3, 6] {
            let plain = Wav::new(tag, bits, channels, &wanted);
            for (how, wav) in [("plain", plain.clone()), ("extensible", plain.extensible(bits))] {
                let decoded = decoded(&wav.bytes());
                let off = worst(&decoded.clip.samples, &wanted);
                let step = if tag == 3 { 1e-7 } else { 0.51 / 2f64.powi(i32::from(bits) - 1) };
                assert!(off <= step.max(1e-7), "{how} {tag}/{bits} x {channels}: off by {off:e}");
                assert_eq!(decoded.info.container, Container::Wav);
                assert_eq!((decoded.info.channels, decoded.info.bits), (channels, Some(bits)));
                assert_eq!((decoded.frames, decoded.info.declared_frames), (2_000, Some(2_000)));
                assert_eq!((decoded.clip.sample_rate, decoded.clipped), (22_050, 0));
                assert!((decoded.peak - 0.5).abs() < 0.01);
            }
        }
    }
}

#[test]
fn channels_are_mixed_to_their_mean() {
    let mut stereo = Wav::new(3, 32, 2, &[0.0; 3]);
    stereo.data = [1.0f32, 0.0, 0.5, -0.5, -0.25, -0.75].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(decoded(&stereo.bytes()).clip.samples, [0.5, 0.0, -0.5]);
}

#[test]
fn twelve_bit_samples_decode_as_sixteen_bits() {
    let wanted = sweep(22_050, 500);
    let mut wav = Wav::new(1, 16, 1, &wanted);
    wav.bits = 12;
    let twelve = decoded(&wav.bytes());
    assert!(worst(&twelve.clip.samples, &wanted) < 1e-4);
    assert_eq!(twelve.info.bits, Some(12));
}

#[test]
fn quirks_of_real_writers_are_tolerated() {
    let wanted = sweep(22_050, 1_001);
    let good = Wav::new(1, 8, 1, &wanted);
    let expected = decoded(&good.bytes()).clip;
    let list = chunk(b"LIST", b"INFOISFT\x05\0\0\0Lavf\0");
    let with = |change: &dyn Fn(&mut Wav)| {
        let mut wav = good.clone();
        change(&mut wav);
        decoded(&wav.bytes()).clip
    };
    assert_eq!(with(&|wav| wav.before = list.clone()), expected, "an odd chunk before the data");
    assert_eq!(with(&|wav| wav.after = list.clone()), expected, "a chunk after the data");
    assert_eq!(
        with(&|wav| wav.before = list[..list.len() - 1].to_vec()),
        expected,
        "an odd chunk without its padding"
    );
    assert_eq!(
        with(&|wav| wav.before = [chunk(b"bext", &[7; 602]), chunk(b"fact", &1001u32.to_le_bytes())].concat()),
        expected,
        "bext and fact"
    );
    assert_eq!(with(&|wav| wav.before = chunk(b"JUNK", &vec![9; 70_000])), expected, "a long chunk before");
    assert_eq!(
        with(&|wav| (wav.riff_size, wav.data_size) = (Some(u32::MAX), Some(u32::MAX))).samples.len(),
        expected.samples.len() + 1,
        "streamed by ffmpeg: no size, so the padding byte is read as a sample"
    );
    assert_eq!(
        with(&|wav| (wav.riff_size, wav.data_size) = (Some(0x7FFF_F024), Some(0x7FFF_F000))).samples.len(),
        expected.samples.len() + 1,
        "streamed by sox"
    );
    assert_eq!(
        with(&|wav| (wav.riff_size, wav.data_size) = (Some(0), Some(0))).samples.len(),
        expected.samples.len() + 1,
        "never finished"
    );
    assert_eq!(with(&|wav| wav.riff_size = Some(3)), expected, "a wrong RIFF size");
    let garbage = [&good.bytes()[..], b"\x01\x02 garbage at the end"].concat();
    assert_eq!(decoded(&garbage).clip, expected, "garbage after the RIFF");
    let mut zero_rate = good.bytes();
    zero_rate[28..32].fill(0);
    assert_eq!(decoded(&zero_rate).clip, expected, "no byte rate");
}

#[test]
fn rf64_sizes_are_read_from_ds64() {
    let good = Wav::new(1, 16, 1, &sweep(22_050, 500)).bytes();
    let mut sizes = Vec::new();
    sizes.extend_from_slice(&(good.len() as u64 - 8 + 36).to_le_bytes());
    sizes.extend_from_slice(&1000u64.to_le_bytes());
    sizes.extend_from_slice(&500u64.to_le_bytes());
    sizes.extend_from_slice(&0u32.to_le_bytes());
    let mut wide = [b"RF64\xFF\xFF\xFF\xFFWAVE", &chunk(b"ds64", &sizes)[..], &good[12..]].concat();
    let at = wide.len() - 1004;
    wide[at..at + 4].fill(0xFF);
    assert_eq!(decoded(&wide).clip, decoded(&good).clip);
    wide.truncate(wide.len() - 10);
    let cut = decode_bytes(&wide, Path::new("wide.wav")).unwrap_err();
    assert!(matches!(cut, AudioError::Truncated { declared: 1000, found: 990, .. }), "{cut}");
}

#[test]
fn floats_beyond_full_scale_are_clamped_and_the_peak_is_reported() {
    let loud = decoded(&Wav::new(3, 32, 1, &[0.5, 1.5, 1.5, 2.0, -3.0, 0.0]).bytes());
    assert_eq!(loud.clip.samples, [0.5, 1.0, 1.0, 1.0, -1.0, 0.0]);
    assert_eq!((loud.peak, loud.clipped), (3.0, 4));
}

/// Correlation at lag 0, which detects an encoder delay that was not removed.
fn correlation(samples: &[f32], wanted: &[f64]) -> f64 {
    let dot = |a: &mut dyn Iterator<Item = (f64, f64)>| a.map(|(x, y)| x * y).sum::<f64>();
    let ours: Vec<f64> = samples.iter().map(|&v| f64::from(v)).collect();
    let cross = dot(&mut ours.iter().copied().zip(wanted.iter().copied()));
    let (a, b) = (dot(&mut ours.iter().map(|&v| (v, v))), dot(&mut wanted.iter().map(|&v| (v, v))));
    cross / (a * b).sqrt()
}

#[test]
fn compressed_files_decode_to_the_sweep() {
    let wanted = sweep(22_050, SWEEP_SAMPLES);
    for (name, container, at_least) in [
        ("sweep.flac", Container::Flac, 0.999_999),
        ("sweep_alac.m4a", Container::Mp4, 0.999_999),
        ("sweep.ogg", Container::Ogg, 0.99),
        ("sweep.mp3", Container::Mp3, 0.99),
        ("sweep.m4a", Container::Mp4, 0.98),
    ] {
        let decoded = decode(&testdata(name)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(decoded.info.container, container, "{name}");
        assert_eq!((decoded.clip.sample_rate, decoded.info.channels), (22_050, 1), "{name}");
        assert_eq!(decoded.frames, SWEEP_SAMPLES as u64, "{name}: length without encoder delay and padding");
        let found = correlation(&decoded.clip.samples, &wanted);
        assert!(found > at_least, "{name}: correlation {found}");
    }
}

#[test]
fn stereo_mp3_is_mixed_to_the_mean() {
    let decoded = decode(&testdata("sweep_stereo_vbr.mp3")).unwrap();
    assert_eq!((decoded.clip.sample_rate, decoded.info.channels), (44_100, 2));
    let wanted: Vec<f64> = sweep(44_100, 35_280).iter().map(|v| v * 0.75).collect();
    assert_eq!(decoded.clip.samples.len(), wanted.len());
    assert!(correlation(&decoded.clip.samples, &wanted) > 0.98);
    assert!(worst(&decoded.clip.samples[2_000..30_000], &wanted[2_000..30_000]) < 0.1);
}

#[test]
fn an_mp3_without_a_tag_keeps_the_encoder_delay() {
    let decoded = decode(&testdata("sweep_untagged.mp3")).unwrap();
    assert!(decoded.frames > SWEEP_SAMPLES as u64);
    assert_eq!(decoded.frames % 576, 0);
}

#[test]
fn probing_agrees_with_decoding() {
    for name in
        ["sweep.flac", "sweep_alac.m4a", "sweep.ogg", "sweep.mp3", "sweep.m4a", "sweep_stereo_vbr.mp3"]
    {
        let (probed, decoded) = (probe(&testdata(name)).unwrap(), decode(&testdata(name)).unwrap());
        assert_eq!(probed.declared_frames, Some(decoded.frames), "{name}");
        assert_eq!((probed.sample_rate, probed.channels), (decoded.info.sample_rate, decoded.info.channels));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clip.wav");
    let mut wav = Wav::new(1, 24, 2, &sweep(22_050, 900));
    for before in [Vec::new(), chunk(b"LIST", &[3; 333]), chunk(b"LIST", &vec![3; 100_000])] {
        wav.before = before;
        std::fs::write(&file, wav.bytes()).unwrap();
        assert_eq!(probe(&file).unwrap(), decode(&file).unwrap().info);
    }
}

#[test]
fn the_file_extension_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    for source in ["sweep.mp3", "sweep.flac", "sweep.ogg", "sweep.m4a"] {
        let misnamed = folder.path().join("clip.wav");
        std::fs::copy(testdata(source), &misnamed).unwrap();
        assert_eq!(decode(&misnamed).unwrap(), decode(&testdata(source)).unwrap(), "{source}");
    }
}

#[test]
fn tags_around_a_flac_file_are_skipped() {
    let good = std::fs::read(testdata("sweep.flac")).unwrap();
    let mut trailer = b"TAG".to_vec();
    trailer.resize(128, b' ');
    let tagged = [b"ID3\x04\0\0\0\0\0\x05hello", &good[..], &trailer].concat();
    let name = Path::new("tagged.flac");
    assert_eq!(decode_bytes(&tagged, name).unwrap(), decode_bytes(&good, name).unwrap());
}

/// Other decoders skip a damaged frame silently.
#[test]
fn a_flipped_bit_in_a_flac_file_is_an_error_or_changes_nothing() {
    let good = std::fs::read(testdata("sweep.flac")).unwrap();
    let name = Path::new("flipped.flac");
    let expected = decode_bytes(&good, name).unwrap().clip;
    let (mut rejected, mut harmless) = (0, 0);
    for bit in (0..good.len() * 8).step_by(73) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        match decode_bytes(&bad, name) {
            Err(_) => rejected += 1,
            Ok(decoded) => {
                assert_eq!(decoded.clip, expected, "bit {bit} changed the samples without an error");
                harmless += 1;
            }
        }
    }
    println!("{rejected} rejected, {harmless} without effect");
    assert!(rejected > 20 * harmless, "{harmless} flips had no effect, {rejected} were rejected");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sixteen_bit_wav_round_trips(samples in proptest::collection::vec(-1.2f32..1.2, 1..500)) {
        let back = decoded(&wav::encode_pcm16(&samples, 24_000));
        prop_assert_eq!(back.clip.sample_rate, 24_000);
        for (a, b) in back.clip.samples.iter().zip(&samples) {
            prop_assert!((a - b.clamp(-1.0, 32767.0 / 32768.0)).abs() <= 0.5 / 32768.0);
        }
        // Rounded values round-trip exactly.
        let again = decoded(&wav::encode_pcm16(&back.clip.samples, 24_000));
        prop_assert_eq!(again.clip, back.clip);
    }

    #[test]
    fn no_bytes_make_the_wav_reader_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        changes in proptest::collection::vec((0usize..120, any::<u8>()), 0..6),
    ) {
        let name = Path::new("fuzz.wav");
        let _ = decode_bytes(&bytes, name);
        let mut good = Wav::new(1, 16, 2, &sweep(22_050, 20)).extensible(16).bytes();
        for (at, value) in changes {
            let at = at % good.len();
            good[at] = value;
        }
        let _ = decode_bytes(&good, name);
        bytes.splice(0..0, *b"RIFF\x10\0\0\0WAVE");
        let _ = decode_bytes(&bytes, name);
    }
}
