//! Encoded files read back: by the WAV reader of the project, by symphonia, and Opus by its own decoder.

use std::path::Path;

use myxtts_data::audio::{Decoded, decode_bytes};
use myxtts_demo as demo;
use myxtts_run::output_path::OutputPath;
use myxtts_speak::audio_file::{
    AudioFileError, AudioWriter, Depth, Encoder, Format, SinkKind, Stream, appendable_length,
};
use proptest::prelude::*;

const RATE: u32 = 24_000;

fn speech() -> Vec<f32> {
    demo::speak("This is my voice, and it goes on.", demo::Language::English, &demo::VOICES[0])
}

/// Encodes samples in chunks of `piece`.
fn encoded(format: Format, rate: u32, kind: SinkKind, samples: &[f32], piece: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::begin(format, rate, kind, &mut out).unwrap();
    for piece in samples.chunks(piece) {
        encoder.encode(piece, &mut out).unwrap();
    }
    let replaced = encoder.finish(&mut out).unwrap();
    if let (Some(replaced), SinkKind::Seekable) = (replaced, kind) {
        out[..replaced.len()].copy_from_slice(&replaced);
    }
    out
}

fn decoded(bytes: &[u8]) -> Decoded {
    decode_bytes(bytes, Path::new("test")).unwrap()
}

fn rounded(samples: &[f32], steps: f32) -> Vec<f32> {
    samples.iter().map(|sample| (sample * steps).round_ties_even() / steps).collect()
}

/// Signal-to-difference ratio in dB, at the best delay.
fn similarity_db(sound: &[f32], other: &[f32], max_delay: usize) -> f64 {
    let energy: f64 = sound.iter().map(|&a| f64::from(a).powi(2)).sum();
    let noise = |delay: usize| -> f64 {
        sound.iter().zip(&other[delay..]).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum()
    };
    let least = (0..=max_delay.min(other.len())).map(noise).fold(f64::MAX, f64::min);
    10.0 * (energy / least).log10()
}

#[test]
fn lossless_formats_restore_the_samples() {
    let speech = speech();
    for start in [SinkKind::Seekable, SinkKind::Streamed] {
        for (format, steps) in [
            (Format::Wav(Depth::Int16), 32768.0),
            (Format::Wav(Depth::Int24), 8_388_608.0),
            (Format::Wav(Depth::Float), f32::INFINITY),
            (Format::Flac, 32768.0),
        ] {
            let bytes = encoded(format, RATE, start, &speech, 1000);
            let back = decoded(&bytes);
            let expected = if steps.is_finite() { rounded(&speech, steps) } else { speech.clone() };
            assert!(back.clip.samples == expected, "{format} {start:?}");
            assert_eq!(back.clip.sample_rate, RATE);
            assert_eq!(
                bytes,
                encoded(format, RATE, start, &speech, 4096),
                "{format} does not depend on the pieces"
            );
        }
    }
    let raw = encoded(Format::Pcm, RATE, SinkKind::Streamed, &speech, 77);
    let values: Vec<f32> =
        raw.chunks_exact(2).map(|b| f32::from(i16::from_le_bytes([b[0], b[1]])) / 32768.0).collect();
    assert!(values == rounded(&speech, 32768.0));
}

#[test]
fn flac_is_smaller_than_wav_and_has_its_length_in_seekable_files() {
    let speech = speech();
    let flac = encoded(Format::Flac, RATE, SinkKind::Seekable, &speech, 999);
    assert!(flac.len() < speech.len() * 2 * 7 / 10, "{} of {} bytes", flac.len(), speech.len() * 2);
    assert_eq!(decoded(&flac).info.declared_frames, Some(speech.len() as u64));
    let sent = encoded(Format::Flac, RATE, SinkKind::Streamed, &speech, 999);
    assert_eq!(decoded(&sent).info.declared_frames, None);
    // A changed frame is detected, so the checksums are present and correct.
    let mut broken = flac.clone();
    let at = flac.len() / 2;
    broken[at] ^= 1;
    assert!(decode_bytes(&broken, Path::new("broken")).is_err());
}

#[test]
fn wav_headers_have_the_right_sizes() {
    let sample = [0.5f32; 3];
    let size = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let wav = encoded(Format::Wav(Depth::Int16), RATE, SinkKind::Seekable, &sample, 9);
    assert_eq!(wav, myxtts_data::audio::wav::encode_pcm16(&sample, RATE));
    let odd = encoded(Format::Wav(Depth::Int24), RATE, SinkKind::Seekable, &sample, 9);
    assert_eq!((odd.len(), size(&odd, 4), size(&odd, 40)), (44 + 9 + 1, 46, 9));
    let sent = encoded(Format::Wav(Depth::Float), RATE, SinkKind::Streamed, &sample, 9);
    assert_eq!((size(&sent, 4), size(&sent, 54)), (u32::MAX, u32::MAX));
    for format in [Format::Wav(Depth::Int16), Format::Wav(Depth::Float), Format::Pcm] {
        let length = encoded(format, RATE, SinkKind::Streamed, &[0.0; 100], 9).len() as u64;
        assert_eq!(appendable_length(format, 100), Some(length));
    }
    // Sizes above 4 GiB do not fit into the header.
    let mut long = Encoder::resume(Format::Wav(Depth::Int16), RATE, 1 << 31).unwrap();
    let mut out = Vec::new();
    long.encode(&sample, &mut out).unwrap();
    let start = long.finish(&mut out).unwrap().unwrap();
    assert_eq!((size(&start, 4), size(&start, 40)), (u32::MAX, u32::MAX));
}

#[test]
fn mp3_is_decoded_by_symphonia_with_its_length() {
    let speech = speech();
    for rate in [22_050, RATE] {
        let mp3 = encoded(Format::Mp3, rate, SinkKind::Seekable, &speech, 1234);
        let back = decoded(&mp3);
        assert_eq!(back.clip.sample_rate, rate);
        assert_eq!(back.clip.samples.len(), speech.len());
        let db = similarity_db(&speech, &back.clip.samples, 0);
        assert!(db > 15.0, "{db} dB at {rate}");
        assert_eq!(mp3, encoded(Format::Mp3, rate, SinkKind::Seekable, &speech, 99));
    }
    // A stream begins with the encoder's delay and has no length.
    let sent = decoded(&encoded(Format::Mp3, RATE, SinkKind::Streamed, &speech, 1234));
    assert!(sent.clip.samples.len() >= speech.len());
    assert!(similarity_db(&speech[..speech.len() - 2000], &sent.clip.samples, 1500) > 15.0);
}

#[test]
fn opus_is_decoded_with_its_length() {
    let speech = speech();
    for start in [SinkKind::Seekable, SinkKind::Streamed] {
        let bytes = encoded(Format::Opus, RATE, start, &speech, 1234);
        let mut reader = opus_pure::OggOpusReader::new(bytes.as_slice()).unwrap();
        let mut decoder = reader.head().decoder(RATE as i32).unwrap();
        let mut trim = opus_pure::Trim::new(reader.head(), RATE as i32, 1).unwrap();
        let mut block = vec![0.0; opus_pure::MAX_PACKET_SAMPLES];
        let mut back = Vec::new();
        for packet in reader.packets() {
            let packet = packet.unwrap();
            let count = decoder.decode(&packet.data, opus_pure::MAX_PACKET_SAMPLES, &mut block).unwrap();
            back.extend_from_slice(trim.keep(&packet, &block[..count]));
        }
        assert_eq!(back.len(), speech.len());
        let db = similarity_db(&speech, &back, 0);
        assert!(db > 10.0, "{db} dB");
        assert_eq!(bytes, encoded(Format::Opus, RATE, start, &speech, 99));
    }
}

#[test]
fn streams_are_written_incrementally() {
    let speech = speech();
    let second = &speech[..RATE as usize];
    for format in Format::ALL {
        let mut out = Vec::new();
        let mut encoder = Encoder::begin(format, RATE, SinkKind::Streamed, &mut out).unwrap();
        let header = out.len();
        encoder.encode(second, &mut out).unwrap();
        // FLAC buffers up to a block, Opus up to a page.
        assert!(out.len() > header + 2000, "{format}: {} bytes after a second", out.len() - header);
    }
}

#[test]
fn formats_are_known_by_name_and_extension() {
    for format in Format::ALL {
        assert_eq!(format.name().parse::<Format>().unwrap(), format);
    }
    let of = |name: &str| Format::from_path(Path::new(name));
    assert_eq!(of("a.WAV").unwrap(), Format::Wav(Depth::Int16));
    assert_eq!(of("b/c.ogg").unwrap(), Format::Opus);
    let message = |name: &str| of(name).unwrap_err().to_string();
    assert!(
        message("a.m4a").contains("no encoder for \".m4a\"") && message("a.m4a").contains("flac, mp3, opus")
    );
    assert!(message("a").contains("no extension"));
    let rate = Encoder::begin(Format::Opus, 22_050, SinkKind::Streamed, &mut Vec::new()).err().unwrap();
    assert!(matches!(rate, AudioFileError::Rate { .. }) && rate.to_string().contains("mp3, flac or wav"));
}

#[test]
fn files_are_complete_or_absent_and_pipes_receive_all_bytes() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("a.flac");
    let speech = speech();
    let destination = OutputPath::check("-o", &path).unwrap();
    let mut writer = AudioWriter::begin(destination.create().unwrap(), Format::Flac, RATE).unwrap();
    writer.write(&speech).unwrap();
    assert!(!path.exists());
    writer.finish().unwrap().finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), encoded(Format::Flac, RATE, SinkKind::Seekable, &speech, 500));
    let mut file = AudioWriter::begin(std::fs::File::create(&path).unwrap(), Format::Flac, RATE).unwrap();
    file.write(&speech).unwrap();
    file.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), encoded(Format::Flac, RATE, SinkKind::Seekable, &speech, 500));
    let mut pipe = AudioWriter::begin(Stream(Vec::new()), Format::Flac, RATE).unwrap();
    pipe.write(&speech).unwrap();
    assert_eq!(pipe.finish().unwrap().0, encoded(Format::Flac, RATE, SinkKind::Streamed, &speech, 500));
}

/// Samples that are hard for a predictor: silence, noise, full-scale squares, NaN and infinities.
fn hard_samples() -> impl Strategy<Value = Vec<f32>> {
    let value = prop_oneof![
        Just(0.0f32),
        Just(1.0),
        Just(-1.0),
        -1.0f32..1.0,
        Just(f32::NAN),
        Just(f32::INFINITY),
        Just(9.0)
    ];
    let run = (value, 1..3000usize, any::<bool>()).prop_map(|(value, count, alternates)| {
        (0..count).map(|i| if alternates && i % 2 == 1 { -value } else { value }).collect::<Vec<f32>>()
    });
    prop::collection::vec(run, 0..5).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn flac_is_lossless_for_any_samples(sound in hard_samples(), piece in 1..5000usize) {
        let bytes = encoded(Format::Flac, RATE, SinkKind::Seekable, &sound, piece);
        if !sound.is_empty() {
            let wav = decoded(&encoded(Format::Wav(Depth::Int16), RATE, SinkKind::Seekable, &sound, piece));
            prop_assert_eq!(decoded(&bytes).clip.samples, wav.clip.samples);
        }
    }

    #[test]
    fn encoders_accept_any_samples(sound in hard_samples(), piece in 1..5000usize) {
        for format in [Format::Mp3, Format::Opus, Format::Wav(Depth::Float), Format::Wav(Depth::Int24)] {
            encoded(format, RATE, SinkKind::Streamed, &sound, piece);
        }
    }
}
