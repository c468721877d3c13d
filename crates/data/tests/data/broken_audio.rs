//! Two hundred files with detectable damage: each is rejected with a reason.

use std::path::Path;

use myxtts_data::audio::{AudioError, decode, decode_bytes, probe, wav};
use myxtts_data::problem::ProblemKind::{
    self, Corrupt, LengthDiffers, Missing, TooShort, Truncated, Unreadable,
};

use super::audio::{Wav, chunk, sweep, testdata};

/// A broken file and the accepted kinds of its error.
struct Broken {
    name: String,
    content: Content,
    kinds: &'static [ProblemKind],
}

enum Content {
    Bytes(Vec<u8>),
    Folder,
    Nothing,
}

#[derive(Default)]
struct Collection(Vec<Broken>);

impl Collection {
    fn add(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>, kinds: &'static [ProblemKind]) {
        self.0.push(Broken { name: name.into(), content: Content::Bytes(bytes.into()), kinds });
    }

    /// Adds the file truncated at each of the offsets.
    fn cuts(&mut self, name: &str, good: &[u8], at: impl IntoIterator<Item = usize>) {
        let (stem, extension) = name.rsplit_once('.').unwrap();
        for end in at {
            self.add(
                format!("{stem}_cut_{end}.{extension}"),
                &good[..end],
                &[Truncated, Unreadable, Corrupt],
            );
        }
    }

    /// Adds the file with one bit flipped in each of the bytes.
    fn flips(&mut self, name: &str, good: &[u8], bytes: impl IntoIterator<Item = usize>) {
        let (stem, extension) = name.rsplit_once('.').unwrap();
        for at in bytes {
            let mut bad = good.to_vec();
            bad[at] ^= 1 << (at % 8);
            self.add(format!("{stem}_flip_{at}.{extension}"), bad, &[Corrupt, Truncated, Unreadable]);
        }
    }
}

fn patched(good: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}

/// Faults in every field of the 44 bytes before the samples.
fn wav_headers(files: &mut Collection) {
    let good = Wav::new(1, 16, 1, &sweep(22_050, 2_205)).bytes();
    files.cuts("header.wav", &good, 1..45);
    files.cuts("data.wav", &good, [45, 46, 100, 441, 1000, 2222, 4000, 4400, 4452, 4453]);
    for at in [0, 1, 2, 3, 8, 9, 10, 11] {
        files.add(format!("magic_{at}.wav"), patched(&good, at, b"#"), &[Unreadable]);
    }
    for at in [12, 13, 14, 15, 36, 37, 38, 39] {
        files.add(format!("chunk_name_{at}.wav"), patched(&good, at, b"\x07"), &[Corrupt]);
    }
    for size in [0u32, 8, 15, 100_000, u32::MAX] {
        let kinds = &[Corrupt, Truncated];
        files.add(format!("fmt_size_{size}.wav"), patched(&good, 16, &size.to_le_bytes()), kinds);
    }
    for tag in [0u16, 2, 6, 7, 0x11, 0x55, 0x1234] {
        files.add(format!("tag_{tag}.wav"), patched(&good, 20, &tag.to_le_bytes()), &[Unreadable]);
    }
    files.add("tag_extensible_without_extension.wav", patched(&good, 20, b"\xFE\xFF"), &[Corrupt]);
    for channels in [0u16, 2, 65, u16::MAX] {
        files.add(
            format!("channels_{channels}.wav"),
            patched(&good, 22, &channels.to_le_bytes()),
            &[Corrupt],
        );
    }
    for rate in [0u32, 1, 999, 44_100, 768_001, u32::MAX] {
        files.add(format!("rate_{rate}.wav"), patched(&good, 24, &rate.to_le_bytes()), &[Corrupt]);
    }
    for rate in [1u32, 88_200] {
        files.add(format!("byte_rate_{rate}.wav"), patched(&good, 28, &rate.to_le_bytes()), &[Corrupt]);
    }
    for block in [0u16, 1, 3, 4, u16::MAX] {
        files.add(format!("block_{block}.wav"), patched(&good, 32, &block.to_le_bytes()), &[Corrupt]);
    }
    for bits in [0u16, 8, 24, 32, 33, 64, u16::MAX] {
        files.add(format!("bits_{bits}.wav"), patched(&good, 34, &bits.to_le_bytes()), &[Corrupt]);
    }
    for size in [4411u32, 4412, 5410, 1 << 28] {
        files.add(format!("data_size_{size}.wav"), patched(&good, 40, &size.to_le_bytes()), &[Truncated]);
    }
    files.add("data_size_odd.wav", patched(&good, 40, &4409u32.to_le_bytes()), &[Corrupt]);
    for size in [8u32, 2000, 4000] {
        files.add(format!("data_size_{size}.wav"), patched(&good, 40, &size.to_le_bytes()), &[LengthDiffers]);
    }
}

/// Faults in the samples or in the order of the chunks.
fn wav_bodies(files: &mut Collection) {
    for (name, tag, bits, value) in [
        ("nan", 3, 32, f64::NAN),
        ("infinite", 3, 32, f64::INFINITY),
        ("minus_infinite", 3, 32, f64::NEG_INFINITY),
        ("nan_64", 3, 64, f64::NAN),
        ("beyond_float", 3, 64, 1e300),
    ] {
        let mut values = sweep(22_050, 300);
        values[177] = value;
        files.add(format!("{name}.wav"), Wav::new(tag, bits, 1, &values).bytes(), &[Corrupt]);
    }
    let good = Wav::new(1, 16, 1, &sweep(22_050, 300));
    let extensible = good.clone().extensible(16).bytes();
    files.add("valid_bits.wav", good.clone().extensible(17).bytes(), &[Corrupt]);
    files.add("unknown_guid.wav", patched(&extensible, 50, b"?"), &[Unreadable]);
    files.add("extensible_adpcm.wav", patched(&extensible, 44, b"\x02"), &[Unreadable]);
    let with = |change: &dyn Fn(&mut Wav)| {
        let mut wav = good.clone();
        change(&mut wav);
        wav.bytes()
    };
    let fact = |frames: u32| chunk(b"fact", &frames.to_le_bytes());
    files.add("fact_says_more.wav", with(&|wav| wav.before = fact(301)), &[LengthDiffers]);
    files.add("fact_says_less.wav", with(&|wav| wav.before = fact(299)), &[LengthDiffers]);
    let format = good.bytes()[12..36].to_vec();
    files.add("two_formats.wav", with(&|wav| wav.before = format.clone()), &[Corrupt]);
    files.add("long_list.wav", with(&|wav| wav.before = b"LIST\xFF\xFF\0\0abcd".to_vec()), &[Truncated]);
    files.add("no_samples.wav", Wav::new(1, 16, 1, &[]).bytes(), &[TooShort]);
    let bytes = good.bytes();
    files.add("no_format.wav", [&bytes[..12], &bytes[36..]].concat(), &[Corrupt]);
    files.add("no_data.wav", [&bytes[..36], &fact(300)[..]].concat(), &[Corrupt]);
    files.add("big_endian.wav", patched(&bytes, 3, b"X"), &[Unreadable]);
}

fn not_audio(files: &mut Collection) {
    for (name, text) in [
        ("text.wav", "The quick brown fox jumps over the lazy dog.\n"),
        ("not_found.wav", "<!DOCTYPE html><html><body>404 Not Found</body></html>"),
        ("pointer.flac", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
        ("archive.mp3", "PK\x03\x04 and so on"),
        ("aiff.wav", "FORM\0\0\x10\0AIFFCOMM"),
    ] {
        files.add(name, text, &[Unreadable]);
    }
    files.add("zeros.wav", vec![0; 1000], &[Unreadable]);
    files.add("ones.mp3", vec![0xFF; 1000], &[Unreadable]);
    files.add("aac.m4a", b"\xFF\xF1\x50\x80\x02\x1F\xFC".repeat(10), &[Unreadable]);
    files.add("only_a_tag.mp3", b"ID3\x04\0\0\0\0\0\x0Afilled up.", &[Unreadable]);
    files.add("empty.wav", Vec::new(), &[TooShort]);
    files.0.push(Broken { name: "folder.wav".into(), content: Content::Folder, kinds: &[Unreadable] });
    files.0.push(Broken { name: "missing.wav".into(), content: Content::Nothing, kinds: &[Missing] });
}

fn compressed(files: &mut Collection) {
    let read = |name: &str| std::fs::read(testdata(name)).unwrap();

    let flac = read("sweep.flac");
    files.cuts("sound.flac", &flac, [3, 20, 41, 60, flac.len() / 2, flac.len() - 1000, flac.len() - 1]);
    // After the metadata: flips in frames.
    files.flips("sound.flac", &flac, (flac.len() - 8_000..flac.len()).step_by(727));
    // Sample rate, length and MD5 in STREAMINFO.
    files.flips("description.flac", &flac, [18, 25, 30]);

    let mp3 = read("sweep.mp3");
    files.cuts("tagged.mp3", &mp3, [30, 400, 1000, mp3.len() / 2, mp3.len() - 500, mp3.len() - 1]);
    let untagged = read("sweep_untagged.mp3");
    files.cuts("untagged.mp3", &untagged, [3, 200, 1000, untagged.len() / 2 + 7, untagged.len() - 1]);
    let stereo = read("sweep_stereo_vbr.mp3");
    files.cuts("stereo.mp3", &stereo, [500, stereo.len() / 2, stereo.len() - 30]);
    let gap = [&mp3[..2000], &mp3[2050..]].concat();
    files.add("gap.mp3", gap, &[Corrupt]);
    files.add("overwritten.mp3", patched(&mp3, 1800, &[b'x'; 400]), &[Corrupt]);
    files.add("lost_end.mp3", [&mp3[..3000], &[0; 2000][..]].concat(), &[Corrupt, Truncated]);

    let ogg = read("sweep.ogg");
    files.cuts("sound.ogg", &ogg, [10, 58, ogg.len() / 2, ogg.len() - 1]);
    files.flips("sound.ogg", &ogg, [5, 40, 700, ogg.len() / 2, ogg.len() - 2]);
    files.add("opus.ogg", read("sweep_opus.ogg"), &[Unreadable]);

    for name in ["sweep.m4a", "sweep_alac.m4a"] {
        let m4a = read(name);
        files.cuts(name, &m4a, [20, m4a.len() / 2, m4a.len() - 1]);
    }
    let m4a = read("sweep.m4a");
    let index = m4a.windows(4).position(|window| window == b"moov").unwrap();
    files.add("lost_index.m4a", &m4a[..index - 4], &[Truncated]);
    files.add("renamed_index.m4a", patched(&m4a, index, b"free"), &[Truncated]);
}

fn all() -> Vec<Broken> {
    let mut files = Collection::default();
    wav_headers(&mut files);
    wav_bodies(&mut files);
    not_audio(&mut files);
    compressed(&mut files);
    files.0
}

#[test]
fn two_hundred_broken_files_are_rejected_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let files = all();
    let mut reported = 0;
    let mut wrong = Vec::new();
    for file in &files {
        let path = folder.path().join(&file.name);
        match &file.content {
            Content::Bytes(bytes) => {
                assert!(!path.exists(), "{} occurs twice", file.name);
                std::fs::write(&path, bytes).unwrap();
            }
            Content::Folder => std::fs::create_dir(&path).unwrap(),
            Content::Nothing => {}
        }
        match decode(&path) {
            Ok(decoded) => wrong.push(format!("{}: decoded to {} samples", file.name, decoded.frames)),
            Err(error) if !file.kinds.contains(&error.kind()) => {
                wrong.push(format!("{}: reported as {:?}: {error}", file.name, error.kind()));
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(&file.name), "the file name is missing in: {message}");
                assert_eq!(error.path(), path);
                println!("{:?}: {}", error.kind(), message.replace(&path.display().to_string(), &file.name));
                reported += 1;
            }
        }
        // Probing reads only the header, which may be intact; it must not panic.
        let _ = probe(&path);
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), files.len(), wrong.join("\n"));
    assert_eq!((reported, files.len()), (200, 200));
}

/// The list above would prove nothing if intact files were rejected too.
#[test]
fn the_intact_files_decode() {
    for name in ["sweep.flac", "sweep.mp3", "sweep_untagged.mp3", "sweep.ogg", "sweep.m4a", "sweep_alac.m4a"]
    {
        decode(&testdata(name)).unwrap_or_else(|error| panic!("{error}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("good.wav");
    std::fs::write(&path, Wav::new(1, 16, 1, &sweep(22_050, 2_205)).bytes()).unwrap();
    decode(Path::new(&path)).unwrap();
}

const CHILD: &str = "MYXTTS_TEST_WAV_CHILD";

/// A process with little memory; in the normal test run it returns at once.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    assert!(matches!(decode(Path::new(&path)), Err(AudioError::TooLong { .. })));
}

#[test]
fn a_wav_of_four_gigabytes_is_not_read_into_memory() {
    let folder = tempfile::tempdir().unwrap();
    let header = |channels: u16, bytes: u32| {
        let mut wav = wav::encode_pcm16(&[], 48_000);
        wav[22..24].copy_from_slice(&channels.to_le_bytes());
        wav[32..34].copy_from_slice(&(2 * channels).to_le_bytes());
        wav[28..32].copy_from_slice(&(48_000 * 2 * u32::from(channels)).to_le_bytes());
        wav[4..8].copy_from_slice(&(bytes + 36).to_le_bytes());
        wav[40..44].copy_from_slice(&bytes.to_le_bytes());
        wav
    };
    // A sparse file: no space on disk, but it would fill the memory.
    let path = folder.path().join("large.wav");
    let bytes = 0xffff_ff00u32;
    std::fs::write(&path, header(1, bytes)).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(u64::from(bytes) + 44).unwrap();
    let began = std::time::Instant::now();
    let error = decode(&path).unwrap_err();
    assert!(matches!(error, AudioError::TooLong { .. }), "{error}");
    assert!(began.elapsed().as_secs() < 5, "the whole file was read");
    let name = concat!(module_path!(), "::child").split_once("::").unwrap().1;
    let limited = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 1048576; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1"])
        .env(CHILD, &path)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&limited.stdout);
    assert!(limited.status.success() && printed.contains("1 passed"), "{printed}");
    // Other formats are rejected by size.
    std::fs::write(&path, b"OggS").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len((1 << 30) + 1).unwrap();
    let error = decode(&path).unwrap_err();
    assert!(matches!(error, AudioError::TooLarge { .. }), "{error}");
    let error = probe(&path).unwrap_err();
    assert!(matches!(error, AudioError::TooLarge { .. }), "{error}");
    // Chunks before the samples may exceed the first read of the header.
    let mut late = header(1, bytes - 200_000);
    let chunk = [b"junk".as_slice(), &100_000u32.to_le_bytes(), &vec![0; 100_000]].concat();
    late.splice(36..36, chunk);
    std::fs::write(&path, &late).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(u64::from(bytes)).unwrap();
    let error = probe(&path).unwrap_err();
    assert!(matches!(error, AudioError::TooLong { .. }), "{error}");
    // Decoding in chunks and as a whole gives the same samples.
    let frames = 17_000_003usize;
    let mut whole = header(2, 4 * frames as u32);
    whole.extend((0..frames * 2).flat_map(|i| ((i as u32).wrapping_mul(2_654_435_761) as u16).to_le_bytes()));
    std::fs::write(&path, &whole).unwrap();
    let (chunked, whole) = (decode(&path).unwrap(), decode_bytes(&whole, &path).unwrap());
    assert!(chunked == whole, "{:?} {:?}", chunked.info, whole.info);
}
