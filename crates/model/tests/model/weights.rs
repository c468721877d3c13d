//! Tests weight files of Coqui's own code: imported, exported, grown and damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use myxtts_model::decoder::Decoder;
use myxtts_model::dvae::Dvae;
use myxtts_model::presets::{Networks, Preset, TextIds};
use myxtts_model::speaker::SpeakerEncoder;
use myxtts_model::weights::buffers;
use myxtts_model::weights::export::export;
use myxtts_model::weights::folder::{CONFIG, FolderWriter, MANIFEST, ModelFolder, Part, VOCABULARY};
use myxtts_model::weights::grow::{TEXT_TABLES, grow, grow_table};
use myxtts_model::weights::import::{ImportReport, Sources, import};
use myxtts_model::weights::pth::TorchFile;
use myxtts_model::weights::sizes::Shapes;
use myxtts_model::weights::tensors::TensorFile;
use myxtts_model::weights::{ElementType, Mismatch, Sizes, WeightsError, python_json};
use myxtts_model::{Declare, Gpt};
use myxtts_run::durable::OsDisk;
use myxtts_run::seed::Seed;

use crate::torch_builder::{self, Tensor, TorchBuilder, checkpoint};

/// A file of the goldens; the test fails if it is missing.
fn golden(file: &str) -> PathBuf {
    let folder = std::env::var_os("MYXTTS_GOLDENS").map(PathBuf::from);
    let folder =
        folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join("goldens"));
    let path = folder.join("checkpoint").join(file);
    assert!(path.exists(), "{} is missing; MYXTTS_GOLDENS names the folder of goldens", path.display());
    path
}

fn golden_json(file: &str) -> serde_json::Value {
    python_json::parse(&std::fs::read_to_string(golden(file)).unwrap()).unwrap()
}

fn names(list: &serde_json::Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn release() -> Sources {
    Sources {
        model: golden("model.pth"),
        config: Some(golden("config.json")),
        voices: Some(golden("speakers_xtts.pth")),
        ..Sources::default()
    }
}

fn imported(sources: &Sources, output: &Path) -> (ModelFolder, ImportReport) {
    let report = import(sources, &OsDisk, output, false).unwrap_or_else(|error| panic!("{error}"));
    (ModelFolder::open(output).unwrap_or_else(|error| panic!("{error}")), report)
}

/// All tensors of a folder, voices with the prefix `speakers.`.
fn all(folder: &ModelFolder) -> BTreeMap<String, (ElementType, Vec<usize>, Vec<u8>)> {
    let mut tensors = BTreeMap::new();
    for part in Part::ALL {
        let Some(file) = folder.part(part) else { continue };
        for name in file.names() {
            let view = file.get(name).unwrap();
            let name = if part == Part::Voices { format!("speakers.{name}") } else { name.to_owned() };
            let old = tensors.insert(name.clone(), (view.kind, view.shape.to_vec(), view.bytes.to_vec()));
            assert!(old.is_none(), "{name} is there twice");
        }
    }
    tensors
}

/// Asserts that the folder is bit-identical to the goldens for the names that `wanted` selects.
fn assert_matches_goldens(folder: &ModelFolder, wanted: impl Fn(&str) -> bool) -> usize {
    let expected = TensorFile::open(&golden("expected.safetensors")).unwrap();
    let found = all(folder);
    let wanted: BTreeSet<&str> = expected.names().filter(|name| wanted(name)).collect();
    assert_eq!(found.keys().map(String::as_str).collect::<BTreeSet<_>>(), wanted);
    for name in wanted {
        let want = expected.get(name).unwrap();
        let (kind, shape, bytes) = &found[name];
        assert_eq!((*kind, shape.as_slice()), (want.kind, want.shape), "{name}");
        assert!(bytes == want.bytes, "{name} has other numbers");
    }
    found.len()
}

#[test]
fn release_is_imported_bit_for_bit() {
    let out = tempfile::tempdir().unwrap();
    let (folder, report) = imported(&release(), out.path());
    let count = assert_matches_goldens(&folder, |name| !name.starts_with("dvae."));
    assert_eq!(count, report.tensors + 2 * report.voices.len());
    assert_eq!(report.tensors, names(&golden_json("keys.json")["release"]).len());
    assert!(report.dropped.is_empty() && report.notes.is_empty(), "{:?} {:?}", report.dropped, report.notes);
    let config = golden_json("config.json");
    assert_eq!(report.sizes.gpt.heads as u64, config["model_args"]["gpt_n_heads"].as_u64().unwrap());
    // The configuration is stored unchanged, though it is not valid JSON.
    assert_eq!(folder.text(CONFIG).unwrap().unwrap(), std::fs::read(golden("config.json")).unwrap());
}

#[test]
fn trainer_checkpoint_is_imported_bit_for_bit() {
    let out = tempfile::tempdir().unwrap();
    let model = golden("trainer_checkpoint.pth");
    let (folder, report) = imported(&Sources { model, ..Sources::default() }, out.path());
    assert_matches_goldens(&folder, |name| !name.starts_with("speakers."));
    let keys = golden_json("keys.json");
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list
    };
    assert_eq!(sorted(report.dropped), sorted(names(&keys["trainer_extra_to_drop"])));
    // No config.json was given: the heads are those of the configuration pickled with the weights.
    let config = golden_json("config.json");
    assert_eq!(report.sizes.gpt.heads as u64, config["model_args"]["gpt_n_heads"].as_u64().unwrap());
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert!(report.sizes.dvae.is_some());
}

#[test]
fn voices_keep_names_and_data() {
    let out = tempfile::tempdir().unwrap();
    let (folder, report) = imported(&release(), out.path());
    let expected = TensorFile::open(&golden("expected.safetensors")).unwrap();
    let speakers = names(&golden_json("keys.json")["speakers"]);
    assert_eq!(report.voices, speakers);
    assert!(speakers.iter().any(|name| !name.is_ascii()));
    for (i, name) in speakers.iter().enumerate() {
        let (latents, vector) = folder.voice(name).unwrap();
        assert_eq!(latents, expected.get(&format!("speakers.{i}.gpt_cond_latent")).unwrap());
        assert_eq!(vector, expected.get(&format!("speakers.{i}.speaker_embedding")).unwrap());
    }
    assert!(folder.voice("nobody").is_none());
}

#[test]
fn tensors_next_to_a_pickled_configuration_are_read() {
    let file = TorchFile::open(&golden("config_object.pth")).unwrap();
    let pickle = file.pickle().unwrap();
    let expected = TensorFile::open(&golden("expected.safetensors")).unwrap();
    let mut count = 0;
    for (key, value) in pickle.root().get("model").unwrap().entries() {
        let (name, tensor) = (key.as_str().unwrap(), value.as_tensor().unwrap());
        let want = expected.get(name).unwrap();
        assert_eq!(tensor.shape, want.shape, "{name}");
        assert!(file.read(tensor).unwrap() == want.bytes, "{name}");
        count += 1;
    }
    assert_eq!(count, 3);
    let config = pickle.root().get("config").unwrap();
    assert!(config.class().unwrap().ends_with(".XttsConfig"), "{:?}", config.class());
    let layers = config.attribute("model_args").unwrap().attribute("gpt_layers").unwrap().as_int();
    assert!(layers.is_some());
}

#[test]
fn expected_names_match_the_release() {
    let table = include_str!("../../testdata/xtts_v2_tensors.tsv");
    let mut released = Shapes::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut cells = line.split('\t');
        let (name, shape) = (cells.next().unwrap(), cells.next().unwrap());
        released.insert(name.to_owned(), serde_json::from_str(shape).unwrap());
    }
    let expected = Sizes::v2().expected();
    assert_eq!(expected.len(), released.len());
    let mismatch = Mismatch::between(&released, &expected, &[]);
    assert!(mismatch.is_empty(), "{mismatch}");
    // And the sizes inferred from the shapes are right.
    assert_eq!(Sizes::from_shapes(&released, Some(16)), Sizes::v2());
    assert_eq!(Sizes::from_shapes(&released, None), Sizes::v2());
    // Only the fine-tuned part, as trainers log it.
    let buffer = ["running_mean", "running_var", "num_batches_tracked"];
    let gpt = expected.iter().filter(|(name, _)| name.starts_with("gpt."));
    assert!(gpt.clone().all(|(name, _)| !buffer.iter().any(|b| name.ends_with(b))));
    assert_eq!(gpt.map(|(_, shape)| shape.iter().product::<usize>()).sum::<usize>(), 441_018_563);
}

#[test]
fn expected_names_match_other_sizes() {
    let expected = TensorFile::open(&golden("expected.safetensors")).unwrap();
    let shapes: Shapes = expected
        .names()
        .filter(|name| !name.starts_with("speakers."))
        .map(|name| (name.to_owned(), expected.get(name).unwrap().shape.to_vec()))
        .collect();
    let list = Sizes::from_shapes(&shapes, None).expected();
    let mismatch = Mismatch::between(&shapes, &list, &["dvae.discrete_loss."]);
    assert!(mismatch.is_empty(), "{mismatch}");
    let mut listed: Vec<String> =
        list.into_iter().map(|(name, _)| name).filter(|name| !name.starts_with("dvae.")).collect();
    let mut release = names(&golden_json("keys.json")["release"]);
    listed.sort();
    release.sort();
    assert_eq!(listed, release);
}

/// Tensors of the goldens' release, to be corrupted.
fn release_tensors() -> Vec<Tensor> {
    let expected = TensorFile::open(&golden("expected.safetensors")).unwrap();
    expected
        .names()
        .filter(|name| !name.starts_with("dvae.") && !name.starts_with("speakers."))
        .map(|name| {
            let view = expected.get(name).unwrap();
            let class = view.kind.storage();
            Tensor { name: name.to_owned(), class, shape: view.shape.to_vec(), bytes: view.bytes.to_vec() }
        })
        .collect()
}

#[test]
fn old_weight_norm_names_and_known_extras_are_accepted() {
    let out = tempfile::tempdir().unwrap();
    let mut tensors = release_tensors();
    let mut renamed = 0;
    for tensor in &mut tensors {
        let old = tensor.name.clone();
        tensor.name = old
            .replace("parametrizations.weight.original0", "weight_g")
            .replace("parametrizations.weight.original1", "weight_v");
        renamed += usize::from(tensor.name != old);
    }
    assert!(renamed > 0);
    for extra in ["gpt.gpt_inference.lm_head.1.weight", "gpt.gpt.wte.weight", "gpt.gpt.h.0.attn.masked_bias"]
    {
        tensors.push(Tensor { name: extra.to_owned(), ..tensors[0].clone() });
    }
    let model = out.path().join("legacy.pth");
    checkpoint(&tensors).write(&model);
    let sources = Sources { model, ..Sources::default() };
    let (folder, report) = imported(&sources, &out.path().join("model"));
    assert_matches_goldens(&folder, |name| !name.starts_with("dvae.") && !name.starts_with("speakers."));
    assert_eq!(report.dropped.len(), 3);
    // The heads were guessed, and a note reports it.
    assert!(report.notes.iter().any(|note| note.contains("heads")), "{:?}", report.notes);
}

#[test]
fn all_mismatches_are_reported_at_once() {
    let out = tempfile::tempdir().unwrap();
    let mut tensors = release_tensors();
    let gone = ["gpt.final_norm.bias", "hifigan_decoder.speaker_encoder.bn1.weight", "mel_stats"];
    tensors.retain(|tensor| !gone.contains(&tensor.name.as_str()));
    let bent = tensors.iter_mut().find(|tensor| tensor.name == "gpt.text_head.bias").unwrap();
    bent.shape.insert(0, 1);
    tensors.push(Tensor { name: "gpt.unheard.of".to_owned(), ..tensors[0].clone() });
    tensors.push(Tensor { name: "../../outside".to_owned(), ..tensors[0].clone() });
    let model = out.path().join("wrong.pth");
    checkpoint(&tensors).write(&model);
    let to = out.path().join("model");
    let error = import(&Sources { model, ..Sources::default() }, &OsDisk, &to, false).unwrap_err();
    let WeightsError::Mismatch { mismatch, .. } = &error else { panic!("{error}") };
    let mut missing: Vec<&str> = mismatch.missing.iter().map(|(name, _)| name.as_str()).collect();
    missing.sort_unstable();
    assert_eq!(missing, gone);
    assert_eq!(mismatch.left_over, ["../../outside", "gpt.unheard.of"]);
    assert_eq!(mismatch.wrong_shape.len(), 1);
    let text = error.to_string();
    for name in gone.iter().chain(&["gpt.text_head.bias", "gpt.unheard.of"]) {
        assert!(text.contains(name), "no {name} in {text}");
    }
    assert!(!to.exists(), "nothing is written for a model that is none");
}

#[test]
fn export_and_import_round_trip() {
    let out = tempfile::tempdir().unwrap();
    let (first, exported, second) = (out.path().join("1"), out.path().join("x"), out.path().join("2"));
    let sources = Sources {
        model: golden("trainer_checkpoint.pth"),
        config: Some(golden("config.json")),
        voices: Some(golden("speakers_xtts.pth")),
        vocabulary: Some(vocabulary(out.path(), TEXT_TOKENS)),
        ..Sources::default()
    };
    let (folder, report) = imported(&sources, &first);
    assert_eq!(report.sizes.gpt.text_tokens, TEXT_TOKENS);
    let report = export(&folder, &OsDisk, &exported, false).unwrap();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    let files: BTreeSet<&str> = report.files.iter().map(String::as_str).collect();
    let all_files =
        ["config.json", "dvae.pth", "mel_stats.pth", "model.pth", "speakers_xtts.pth", "vocab.json"];
    assert_eq!(files, BTreeSet::from(all_files));
    for file in [CONFIG, VOCABULARY] {
        assert_eq!(std::fs::read(exported.join(file)).unwrap(), std::fs::read(first.join(file)).unwrap());
    }
    let again = Sources {
        model: exported.join("model.pth"),
        dvae: Some(exported.join("dvae.pth")),
        mel_stats: Some(exported.join("mel_stats.pth")),
        vocabulary: Some(exported.join(VOCABULARY)),
        config: Some(exported.join(CONFIG)),
        voices: Some(exported.join("speakers_xtts.pth")),
        unchecked: false,
    };
    let (folder, _) = imported(&again, &second);
    assert_matches_goldens(&folder, |_| true);
    let first = ModelFolder::open(&first).unwrap();
    assert_eq!(folder.manifest().files, first.manifest().files);
    assert_eq!(folder.manifest().parts, first.manifest().parts);
    // A second export would overwrite: only allowed on request.
    assert!(matches!(export(&folder, &OsDisk, &exported, false), Err(WeightsError::Occupied { .. })));
    export(&folder, &OsDisk, &exported, true).unwrap();
}

#[test]
fn tensors_of_every_type_stride_and_offset_are_read() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("kinds.pth");
    let halves: Vec<u8> = [0x3c00u16, 0xc000, 0x7bff].iter().flat_map(|b| b.to_le_bytes()).collect();
    let brains: Vec<u8> = [0x3f80u16, 0xc000, 0x0000].iter().flat_map(|b| b.to_le_bytes()).collect();
    let doubles: Vec<u8> = [0.1f64, -2.0].iter().flat_map(|b| b.to_le_bytes()).collect();
    let floats: Vec<u8> = (0..7u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    let of = |class: &str, key: &str, count| torch_builder::storage(&format!("torch\n{class}"), key, count);
    let pairs = [
        ("half", torch_builder::tensor(&of("HalfStorage", "0", 3), 0, &[3], &[1])),
        ("brain", torch_builder::tensor(&of("BFloat16Storage", "1", 3), 1, &[2], &[1])),
        ("double", torch_builder::tensor(&of("DoubleStorage", "2", 2), 0, &[2, 1], &[1, 7])),
        ("transposed", torch_builder::tensor(&of("FloatStorage", "3", 7), 1, &[2, 3], &[1, 2])),
        ("scalar", torch_builder::tensor(&of("LongStorage", "4", 1), 0, &[], &[])),
        ("empty", torch_builder::tensor(&of("FloatStorage", "3", 7), 0, &[0, 4], &[4, 1])),
        ("bools", torch_builder::tensor(&of("BoolStorage", "5", 2), 0, &[2], &[1])),
    ];
    let pairs: Vec<(String, Vec<u8>)> = pairs.map(|(name, value)| (name.to_owned(), value)).into();
    TorchBuilder::of(torch_builder::pickle(&torch_builder::dict(&pairs)))
        .with("data/0", halves)
        .with("data/1", brains)
        .with("data/2", doubles)
        .with("data/3", floats)
        .with("data/4", 42i64.to_le_bytes())
        .with("data/5", [1, 0])
        .write(&path);
    let file = TorchFile::open(&path).unwrap();
    let pickle = file.pickle().unwrap();
    let read =
        |name: &str| file.read_converted(pickle.root().get(name).unwrap().as_tensor().unwrap()).unwrap();
    let numbers = |name: &str| ElementType::F32.to_f32(&read(name).1).unwrap();
    assert_eq!(numbers("half"), [1.0, -2.0, 65504.0]);
    assert_eq!(numbers("brain"), [-2.0, 0.0]);
    assert_eq!(numbers("double"), [0.1f32, -2.0]);
    assert_eq!(numbers("transposed"), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
    assert_eq!(
        (read("scalar").0, read("scalar").1.to_vec()),
        (ElementType::I64, 42i64.to_le_bytes().to_vec())
    );
    assert!(read("empty").1.is_empty());
    assert_eq!((read("bools").0, read("bools").1.to_vec()), (ElementType::Bool, vec![1, 0]));
}

#[test]
fn archives_past_four_gigabytes_are_written_and_read() {
    // 64-bit fields are used from 100 bytes on, as if that were the 32-bit limit.
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("wide.pth");
    let floats: Vec<u8> = (0..100u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    let value =
        torch_builder::tensor(&torch_builder::storage("torch\nFloatStorage", "0", 100), 0, &[100], &[1]);
    TorchBuilder::of(torch_builder::pickle(&value)).with("data/0", floats.clone()).write_wide(&path, 100);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.windows(4).any(|w| w == b"PK\x06\x06"), "no 64-bit directory was written");
    let file = TorchFile::open(&path).unwrap();
    assert!(file.damaged().is_empty());
    let pickle = file.pickle().unwrap();
    assert_eq!(file.read(pickle.root().as_tensor().unwrap()).unwrap(), floats);
}

#[test]
fn damage_to_a_folder_is_reported() {
    let out = tempfile::tempdir().unwrap();
    imported(&release(), out.path());
    let files = ["gpt.safetensors", "speakers.safetensors", "config.json"];
    let broken = |change: &dyn Fn(&Path)| {
        let copy = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(out.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        assert!(ModelFolder::open(copy.path()).is_ok());
        change(copy.path());
        ModelFolder::open(copy.path()).unwrap_err().to_string()
    };
    let flip = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    for file in files {
        assert!(broken(&|copy| flip(&copy.join(file))).contains(file));
        let short = broken(&|copy| {
            let bytes = std::fs::read(copy.join(file)).unwrap();
            std::fs::write(copy.join(file), &bytes[..bytes.len() - 1]).unwrap();
        });
        assert!(short.contains(file) && short.contains("bytes instead of"), "{short}");
    }
    // All of them at once.
    let several = broken(&|copy| files.iter().for_each(|file| flip(&copy.join(file))));
    assert!(files.iter().all(|file| several.contains(file)), "{several}");
    assert!(broken(&|copy| flip(&copy.join(MANIFEST))).contains(MANIFEST));
    assert!(
        broken(&|copy| std::fs::remove_file(copy.join("decoder.safetensors")).unwrap()).contains("decoder")
    );
    assert!(
        broken(&|copy| std::fs::remove_file(copy.join(MANIFEST)).unwrap()).contains("not a model folder")
    );
}

#[test]
fn damaged_download_is_reported() {
    let out = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(golden("model.pth")).unwrap();
    // Corrupts the data of a storage, after its header, its name and the padding: no other bytes hold data.
    let name = b"/data/0";
    let named = bytes.windows(name.len()).position(|window| window == name).unwrap();
    let header = bytes[..named].windows(4).rposition(|window| window == b"PK\x03\x04").unwrap();
    let length = |at: usize| usize::from(u16::from_le_bytes([bytes[header + at], bytes[header + at + 1]]));
    let first = header + 30 + length(26) + length(28);
    bytes[first] ^= 1;
    let model = out.path().join("model.pth");
    std::fs::write(&model, bytes).unwrap();
    let mut sources = Sources { model, config: Some(golden("config.json")), ..Sources::default() };
    let to = out.path().join("model");
    let error = import(&sources, &OsDisk, &to, false).unwrap_err();
    assert!(error.to_string().contains("model/data/"), "{error}");
    sources.unchecked = true;
    import(&sources, &OsDisk, &to, false).unwrap();
}

#[test]
fn non_empty_folder_is_replaced_only_on_request() {
    let out = tempfile::tempdir().unwrap();
    imported(&release(), out.path());
    assert!(matches!(import(&release(), &OsDisk, out.path(), false), Err(WeightsError::Occupied { .. })));
    assert!(ModelFolder::open(out.path()).is_ok());
    // Without voices and configuration this time: those of the old model must not stay.
    let plain = Sources { model: golden("trainer_checkpoint.pth"), ..Sources::default() };
    import(&plain, &OsDisk, out.path(), true).unwrap();
    assert!(!out.path().join(CONFIG).exists() && !out.path().join(Part::Voices.file()).exists());
    // A folder with the user's own files is not overwritten, and they survive `--force`.
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join(CONFIG), "mine").unwrap();
    assert!(matches!(import(&plain, &OsDisk, other.path(), false), Err(WeightsError::Occupied { .. })));
    import(&plain, &OsDisk, other.path(), true).unwrap();
    assert_eq!(std::fs::read(other.path().join(CONFIG)).unwrap(), b"mine");
    // A started and never finished model is overwritten.
    std::fs::remove_file(out.path().join(MANIFEST)).unwrap();
    import(&plain, &OsDisk, out.path(), false).unwrap();
}

#[test]
fn manifest_is_written_last() {
    let out = tempfile::tempdir().unwrap();
    let mut writer = FolderWriter::create(&OsDisk, out.path(), false).unwrap();
    writer.text(CONFIG, b"{}").unwrap();
    drop(writer);
    assert!(ModelFolder::open(out.path()).unwrap_err().to_string().contains("not a model folder"));
}

#[test]
fn text_tables_grow_and_keep_every_old_row() {
    let out = tempfile::tempdir().unwrap();
    let (folder, report) = imported(&release(), out.path());
    let (rows, dim) = (report.sizes.gpt.text_tokens, report.sizes.gpt.dim);
    for (name, width) in TEXT_TABLES.into_iter().zip([dim, dim, 1]) {
        let old = folder.numbers(name).unwrap();
        let grown = |seed: u64| grow_table(name, &old, width, rows + 700, seed);
        let table = grown(7);
        assert_eq!(table, grown(7), "{name}");
        assert_ne!(table, grown(8), "{name}");
        assert_eq!(table.len(), (rows + 700) * width, "{name}");
        let bits = |numbers: &[f32]| numbers.iter().map(|n| n.to_bits()).collect::<Vec<_>>();
        assert!(bits(&table[..old.len()]) == bits(&old), "{name}");
        for channel in 0..width {
            let of = |table: &[f32]| {
                let values: Vec<f64> = table.iter().skip(channel).step_by(width).map(|&v| v.into()).collect();
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
                (mean, variance.sqrt())
            };
            let ((mean, deviation), (new_mean, new_deviation)) = (of(&old), of(&table[old.len()..]));
            // With 700 samples the mean is off by 0.04 standard deviations and the deviation by 3 %; the bounds are
            // five times that.
            assert!((new_mean - mean).abs() < 0.2 * deviation, "{name} {channel}: {mean} {new_mean}");
            assert!((new_deviation / deviation - 1.0).abs() < 0.15, "{name} {channel}");
        }
    }
    // New rows of a constant table equal the old ones.
    let same = grow(&[1.0, 2.0, 1.0, 2.0], 2, 4, Seed::new(1));
    assert_eq!(same, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn export_updates_an_outdated_configuration() {
    let out = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(golden("config.json")).unwrap();
    let rows = golden_json("config.json")["model_args"]["gpt_number_text_tokens"].as_u64().unwrap();
    let stale = text.replace(
        &format!("\"gpt_number_text_tokens\": {rows}"),
        &format!("\"gpt_number_text_tokens\": {}", rows + 1),
    );
    assert_ne!(stale, text);
    let config = out.path().join(CONFIG);
    std::fs::write(&config, stale).unwrap();
    let sources = Sources { config: Some(config), ..release() };
    let (folder, report) = imported(&sources, &out.path().join("model"));
    assert!(report.notes.iter().any(|note| note.contains("gpt_number_text_tokens")), "{:?}", report.notes);
    export(&folder, &OsDisk, &out.path().join("x"), false).unwrap();
    let written = std::fs::read_to_string(out.path().join("x").join(CONFIG)).unwrap();
    assert_eq!(written.matches(": Infinity").count(), text.matches(": Infinity").count());
    assert_eq!(python_json::parse(&written).unwrap(), python_json::parse(&text).unwrap());
}

/// Rows of the text table of the golden checkpoints.
const TEXT_TOKENS: usize = 48;

/// Writes a vocabulary with `tokens` tokens.
fn vocabulary(folder: &Path, tokens: usize) -> PathBuf {
    let path = folder.join(format!("vocab-{tokens}.json"));
    let pieces: BTreeMap<String, usize> = (0..tokens - 1).map(|id| (format!("p{id}"), id)).collect();
    let added = serde_json::json!([{ "id": tokens - 1, "content": "[START]" }]);
    let json = serde_json::json!({ "model": { "vocab": pieces, "merges": [] }, "added_tokens": added });
    std::fs::write(&path, json.to_string()).unwrap();
    path
}

#[test]
fn vocabulary_of_another_size_is_rejected() {
    let out = tempfile::tempdir().unwrap();
    for tokens in [TEXT_TOKENS - 1, TEXT_TOKENS + 1, 2] {
        let sources = Sources {
            model: golden("trainer_checkpoint.pth"),
            config: Some(golden("config.json")),
            vocabulary: Some(vocabulary(out.path(), tokens)),
            ..Sources::default()
        };
        let error = import(&sources, &OsDisk, &out.path().join("model"), false).unwrap_err().to_string();
        assert!(error.contains(&format!("{tokens} tokens")) && error.contains("--vocab"), "{error}");
        assert!(!out.path().join("model").exists());
    }
}

/// For every preset: the tensors training stores plus those an export adds are those of a release of that size.
#[test]
fn exports_of_trained_models_have_all_tensors() {
    for preset in Preset::ALL {
        let Networks { dvae, gpt, decoder, speaker, .. } = Networks::of(preset, TextIds::v2());
        let mut declare = Declare::new(0.0, &|_| false);
        let heads = gpt.heads;
        Gpt::declare(&mut declare, gpt);
        Dvae::declare(&mut declare, &dvae, "dvae.");
        Decoder::declare(&mut declare, &decoder);
        SpeakerEncoder::declare(&mut declare, &speaker);
        let (_, released) = declare.finish();
        let mut shapes: Shapes = released.into_iter().map(|one| (one.name, one.shape)).collect();
        shapes.insert("mel_stats".to_owned(), vec![80]);
        let added = buffers::missing(&shapes);
        assert!(added.iter().any(|buffer| buffer.name.ends_with("num_batches_tracked")));
        for buffer in &added {
            let count: usize = buffer.shape.iter().product();
            assert_eq!(buffer.bytes.len(), count * buffer.kind.size(), "{}", buffer.name);
        }
        shapes.extend(added.into_iter().map(|buffer| (buffer.name, buffer.shape)));
        let mismatch = Mismatch::between(&shapes, &Sizes::from_shapes(&shapes, Some(heads)).expected(), &[]);
        assert!(mismatch.is_empty(), "{preset:?}: {mismatch}");
    }
}

#[test]
fn exported_feature_buffers_match_the_release() {
    let out = tempfile::tempdir().unwrap();
    let sources =
        Sources { model: golden("model.pth"), config: Some(golden("config.json")), ..Sources::default() };
    let (folder, _) = imported(&sources, &out.path().join("model"));
    let part = folder.part(Part::Speaker).unwrap();
    let shapes: Shapes = part
        .names()
        .filter(|name| !name.contains("torch_spec"))
        .map(|name| (name.to_owned(), part.get(name).unwrap().shape.to_vec()))
        .collect();
    let made: Vec<_> =
        buffers::missing(&shapes).into_iter().filter(|one| one.name.contains("torch_spec")).collect();
    assert_eq!(made.len(), 3);
    for buffer in made {
        let released = folder.numbers(&buffer.name).unwrap();
        let ours: Vec<f32> =
            buffer.bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(ours.len(), released.len(), "{}", buffer.name);
        let apart = ours.iter().zip(&released).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-5, "{}: {apart}", buffer.name);
    }
}
