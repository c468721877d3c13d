//! Fuzzes the parsers of corpus and cache files, one second each.

use super::audio::Wav;
use super::cache::cache_fixture::{corpus, files_ending, prepared, scratch};
use super::mutator::fuzz;
use super::parsers;
use myxtts_data::audio::wav;
use myxtts_data::npy;

fn stored(path: &str) -> Vec<u8> {
    std::fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)).unwrap()
}

#[test]
fn wav_files() {
    let samples: Vec<f32> = (0..200).map(|i| (i as f32 * 0.3).sin()).collect();
    let mut good = vec![wav::encode_pcm16(&samples, 22_050)];
    for (format, bits) in [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)] {
        for channels in [1, 2] {
            good.push(Wav::new(format, bits, channels, &[0.25; 480]).bytes());
        }
    }
    good.push(Wav::new(1, 16, 2, &[0.25; 64]).extensible(16).bytes());
    fuzz(concat!(module_path!(), "::wav_files"), &good, parsers::wav);
}

#[test]
fn compressed_sound() {
    let files = ["sweep.flac", "sweep.mp3", "sweep_untagged.mp3", "sweep.ogg", "sweep.m4a", "sweep_alac.m4a"];
    let good = files.map(|name| stored(&format!("audio/{name}")));
    fuzz(concat!(module_path!(), "::compressed_sound"), &good, parsers::sound);
}

#[test]
fn metadata() {
    // The first byte is the layout's index in `Format::ALL`.
    let good = [
        "\x00audio_file|text|speaker_name\nwavs/a.wav|Hello there.|one\nwavs/b.wav|\"Quoted | text\"|two\n",
        "\x01a|Hello there, Mr. 3.|Hello there, mister three.\nb|And again.|And again.\n",
        "\x02client_id\tpath\tsentence\tlocale\nx\ta.mp3\tHello there.\ten\ny\tb.mp3\tسلام\tfa\n",
        "\x03{\"audio\":\"a.wav\",\"text\":\"Hello\",\"speaker\":\"one\",\"language\":\"en\",\"seconds\":1.5}\n",
        "\x04Hello there.\n",
        "\x05Hello there.\n",
        "\x06Hello there.\n",
    ];
    let good: Vec<Vec<u8>> = good.iter().map(|text| text.as_bytes().to_vec()).collect();
    fuzz(concat!(module_path!(), "::metadata"), &good, parsers::metadata);
}

#[test]
fn numpy_arrays() {
    let good = [npy::write_f32(&[3, 4], &[0.5; 12]), npy::write_f32(&[7], &[1.0; 7])];
    fuzz(concat!(module_path!(), "::numpy_arrays"), &good, parsers::npy);
}

#[test]
fn vocabularies() {
    let good = [stored("formats/v1/model/vocab.json")];
    fuzz(concat!(module_path!(), "::vocabularies"), &good, parsers::tokenizer);
}

/// Returns the files of a small cache with this name ending, without and with their trailing checksums.
fn of_cache(ending: &str, checksum: usize) -> Vec<Vec<u8>> {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 14), root.path().join("cache"));
    prepared(&dir, &utterances);
    let files = files_ending(&dir, ending).into_iter().map(|path| std::fs::read(path).unwrap());
    files.flat_map(|bytes| [bytes[..bytes.len() - checksum].to_vec(), bytes]).collect()
}

#[test]
fn seals() {
    fuzz(concat!(module_path!(), "::seals"), &of_cache(".seal", 32), parsers::shard);
}

#[test]
fn indexes() {
    fuzz(concat!(module_path!(), "::indexes"), &of_cache("index.bin", 0), parsers::index);
}
