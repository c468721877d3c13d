//! Compact files: size, error, and files that are damaged or make false claims.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use myxtts_model::weights::compact::{limit_of_bits, relative_error};
use myxtts_model::weights::folder::MANIFEST;
use myxtts_model::weights::tensors::{TensorFile, TensorSpec};
use myxtts_model::weights::{ElementType, FolderWriter, ModelFolder, Part};
use myxtts_run::durable::OsDisk;
use myxtts_run::seed::Seed;

/// Normally distributed numbers.
fn normal(count: usize, seed: u64) -> Vec<f32> {
    let seed = Seed::new(seed);
    let one = |i: u64| (0..12).map(|k| seed.unit(12 * i + k) as f32).sum::<f32>() - 6.0;
    (0..count as u64).map(one).collect()
}

type Tensor = (&'static str, Vec<usize>, ElementType, Vec<u8>);

fn floats(name: &'static str, shape: &[usize], values: &[f32]) -> Tensor {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    (name, shape.to_vec(), ElementType::F32, bytes)
}

fn tensors() -> Vec<Tensor> {
    let counter = ("gpt.counter", vec![1], ElementType::I64, 7i64.to_le_bytes().to_vec());
    // Columns of very different size, as the sums of a codebook's codes have.
    let sums: Vec<f32> =
        normal(64 * 256, 2).iter().enumerate().map(|(i, x)| x * 10f32.powi((i % 256) as i32 / 64)).collect();
    vec![
        floats("gpt.matrix", &[200, 300], &normal(60_000, 1)),
        floats("gpt.kernel", &[32, 16, 5], &normal(32 * 16 * 5, 3)),
        floats("gpt.sums", &[64, 256], &sums),
        floats("gpt.zeros", &[64, 64], &[0.0; 4096]),
        floats("gpt.bias", &[3], &[1.0, -2.5, 1e-9]),
        floats("gpt.gains", &[2048, 1, 1], &normal(2048, 4)),
        floats("gpt.none", &[0, 4], &[]),
        counter,
    ]
}

/// Writes a model folder of one part, exactly and compactly.
fn write(folder: &Path, tensors: &[Tensor], bits: f32) -> (PathBuf, PathBuf) {
    let (exact, small) = (folder.join("exact"), folder.join("small"));
    let spec = |(name, shape, kind, _): &Tensor| TensorSpec {
        name: (*name).to_owned(),
        kind: *kind,
        shape: shape.clone(),
    };
    let specs: Vec<TensorSpec> = tensors.iter().map(spec).collect();
    let mut writer = FolderWriter::create(&OsDisk, &exact, true).unwrap();
    writer.tensors(Part::Gpt, &specs, &mut |i| Ok(Cow::Borrowed(&tensors[i].3[..]))).unwrap();
    writer.finish().unwrap();
    let model = ModelFolder::open(&exact).unwrap();
    let mut writer = FolderWriter::create(&OsDisk, &small, true).unwrap();
    writer.compact(Part::Gpt, model.part(Part::Gpt).unwrap(), limit_of_bits(bits).unwrap()).unwrap();
    writer.finish().unwrap();
    (exact.join("gpt.safetensors"), small.join("gpt.compact"))
}

#[test]
fn error_and_size_depend_on_the_bits_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let values = normal(200 * 512, 5);
    let mut before = 1.0;
    // Largest relative error, and largest share of the size in f32: the entropy of normal weights with these steps.
    for (bits, error, share) in [
        (4.0, 0.13, 0.12),
        (5.0, 0.065, 0.15),
        (6.0, 0.032, 0.18),
        (6.5, 0.023, 0.196),
        (7.0, 0.016, 0.212),
        (8.0, 0.008, 0.244),
    ] {
        let (exact, small) = write(folder.path(), &[floats("gpt.matrix", &[200, 512], &values)], bits);
        let size = |path: &Path| path.metadata().unwrap().len() as f64;
        let found = relative_error(&TensorFile::open(&exact).unwrap(), &TensorFile::open(&small).unwrap());
        let (found, part) = (found.unwrap(), size(&small) / size(&exact));
        println!("{bits} bits: error {found:.4}, {part:.3} of the size");
        assert!(found < error && found > error / 2.0, "{bits} bits: {found}");
        assert!(part < share, "{bits} bits: {part}");
        assert!(found < before);
        before = found;
    }
    for bits in [3.9, 8.1, f32::NAN, -1.0] {
        assert_eq!(limit_of_bits(bits), None);
    }
    assert_eq!([4.0, 6.5, 7.0, 8.0].map(limit_of_bits), [7, 44, 63, 127].map(Some));
}

#[test]
fn all_tensors_round_trip_and_small_ones_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let (exact, small) = write(folder.path(), &tensors(), 7.0);
    let (exact, small) = (TensorFile::open(&exact).unwrap(), TensorFile::open(&small).unwrap());
    assert!(exact.names().eq(small.names()));
    for name in exact.names() {
        let (a, b) = (exact.get(name).unwrap(), small.get(name).unwrap());
        assert_eq!((a.kind, a.shape), (b.kind, b.shape), "{name}");
        if !["gpt.matrix", "gpt.kernel", "gpt.sums"].contains(&name) {
            assert!(a.bytes == b.bytes, "{name}");
        }
        if b.kind == ElementType::F32 {
            assert!(b.as_f32().is_some(), "{name} is aligned");
        }
    }
    // Small columns keep their own precision.
    let column = |file: &TensorFile| -> Vec<f32> {
        file.get("gpt.sums").unwrap().to_f32().unwrap().into_iter().step_by(256).collect()
    };
    let (a, b) = (column(&exact), column(&small));
    let norm = |values: &[f32]| values.iter().map(|x| x * x).sum::<f32>().sqrt();
    let difference: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
    assert!(norm(&difference) < 0.03 * norm(&a), "{} of {}", norm(&difference), norm(&a));
}

#[test]
fn weights_without_a_suitable_scale_are_stored_exactly() {
    let folder = tempfile::tempdir().unwrap();
    for extreme in [f32::NAN, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-44] {
        let mut values = vec![extreme; 2048];
        values[0] = -values[0];
        let (exact, small) = write(folder.path(), &[floats("gpt.matrix", &[32, 64], &values)], 8.0);
        let (exact, small) = (TensorFile::open(&exact).unwrap(), TensorFile::open(&small).unwrap());
        let (a, b) = (exact.get("gpt.matrix").unwrap(), small.get("gpt.matrix").unwrap());
        match extreme.is_finite() {
            true => assert!(b.to_f32().unwrap().iter().all(|value| value.is_finite()), "{extreme}"),
            false => assert!(a.bytes == b.bytes, "{extreme}"),
        }
    }
}

/// A file with the given header.
fn file(version: u32, header: &str, data: &[u8]) -> Vec<u8> {
    let length = header.len() as u32;
    [b"myxttscw", &version.to_le_bytes()[..], &length.to_le_bytes(), header.as_bytes(), data].concat()
}

/// A DEFLATE stream of `count` zeros.
fn zeros(count: usize) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![0; count]).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn false_headers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lie.compact");
    let data = zeros(8);
    let of = |fields: &str, bytes: usize| format!(r#"{{"name":"a","dtype":"F32",{fields},"bytes":{bytes}}}"#);
    let one = |fields: &str| format!("[{}]", of(fields, data.len()));
    let good = file(1, &one(r#""shape":[2]"#), &data);
    std::fs::write(&path, &good).unwrap();
    assert_eq!(TensorFile::open(&path).unwrap().get("a").unwrap().as_f32().unwrap(), [0.0; 2]);
    let quantised = |shape: &str, limit: i64, scale: &str| {
        format!(r#""shape":{shape},"quantised":{{"limit":{limit},"scale":"{scale}"}}"#)
    };
    let scaled = [&[0u8; 4][..], &zeros(8)].concat();
    let with = |fields: &str| file(1, &format!("[{}]", of(fields, scaled.len())), &scaled);
    std::fs::write(&path, with(&quantised("[2,4]", 7, "row"))).unwrap();
    assert!(TensorFile::open(&path).is_ok());
    let infinite = [&[0x80, 0x7f, 0, 0][..], &zeros(8)].concat();
    let bomb = zeros(100 << 20);
    let huge = format!(r#"[{{"name":"a","dtype":"F32","shape":[{}],"bytes":{}}}]"#, 25 << 20, bomb.len());
    let twice = format!("[{},{}]", of(r#""shape":[2]"#, data.len()), of(r#""shape":[2]"#, data.len()));
    let far = format!(r#"[{}]"#, of(r#""shape":[2]"#, data.len() + 1));
    let cases = [
        (file(2, "[]", &[]), "version 2"),
        (file(1, "{}", &[]), "header is damaged"),
        (file(1, &"[".repeat(1 << 20), &[]), "header is damaged"),
        ([b"myxttscw", &1u32.to_le_bytes()[..], &u32::MAX.to_le_bytes()].concat(), "claims a header"),
        ([b"myxttscw", &1u32.to_le_bytes()[..], &99u32.to_le_bytes()].concat(), "within its header"),
        (file(1, &one(r#""shape":[3]"#), &data), "fewer bytes than its shape"),
        (file(1, &one(r#""shape":[1]"#), &data), "more bytes than its shape"),
        (file(1, &one(r#""shape":[4294967296,4294967296]"#), &data), "overflows"),
        (file(1, &one(r#""shape":[1099511627776]"#), &data), "claims tensors of"),
        (file(1, &one(r#""shape":[-1]"#), &data), "header is damaged"),
        (file(1, &one(r#""shape":[2],"more":1"#), &data), "header is damaged"),
        (file(1, &far, &data), "past the end"),
        (file(1, &twice, &[&data[..], &data].concat()), "present twice"),
        (file(1, &one(r#""shape":[2]"#), &[&data[..], b"x"].concat()), "after its last tensor"),
        (file(1, &huge, &bomb), "claims tensors of"),
        (with(&quantised("[2,4]", 0, "row")), "does not know"),
        (with(&quantised("[2,4]", 128, "row")), "does not know"),
        (with(&quantised("[2,4]", 300, "row")), "header is damaged"),
        (with(&quantised("[2,4]", 7, "depth")), "header is damaged"),
        (with(&quantised("[2,4,1]", 7, "column")), "no rows or columns"),
        (with(&quantised("[]", 7, "row")), "no rows or columns"),
        (with(&quantised("[999999999999,1]", 7, "row")), "scales need"),
        (
            with(&quantised("[2,4]", 7, "row").replace("\"shape\"", "\"dtype\":\"I32\",\"shape\"")),
            "header is damaged",
        ),
        (
            file(1, &format!("[{}]", of(&quantised("[2,4]", 7, "row"), infinite.len())), &infinite),
            "not finite",
        ),
    ];
    for (bytes, what) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = crate::hostile::within_limits(what, || TensorFile::open(&path)).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("lie.compact"), "{what}: {error}");
    }
}

#[test]
fn damaged_files_are_refused_or_read_but_never_crash() {
    let folder = tempfile::tempdir().unwrap();
    let (_, small) = write(folder.path(), &tensors()[3..], 7.0);
    let good = std::fs::read(&small).unwrap();
    let path = folder.path().join("bad.compact");
    for length in (0..good.len()).step_by(if good.len() > 4000 { 7 } else { 1 }) {
        std::fs::write(&path, &good[..length]).unwrap();
        assert!(TensorFile::open(&path).is_err(), "cut at {length}");
    }
    let mut refused = 0;
    for at in (0..good.len()).step_by(if good.len() > 4000 { 5 } else { 1 }) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, bytes).unwrap();
        refused += usize::from(TensorFile::open(&path).is_err());
    }
    assert!(refused > 0);
    // In a folder, the checksum refuses every one of them.
    let model = small.parent().unwrap();
    let mut bytes = good.clone();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&small, bytes).unwrap();
    let error = ModelFolder::open(model).unwrap_err().to_string();
    assert!(error.contains("gpt.compact does not match its checksum"), "{error}");
}

#[test]
fn a_part_is_stored_in_one_form_and_replaces_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let (exact, small) = write(folder.path(), &tensors(), 7.0);
    let model = small.parent().unwrap();
    // The safetensors of another writer, in place of the compact file.
    let file = TensorFile::open(&exact).unwrap();
    let spec = TensorSpec { name: "gpt.bias".to_owned(), kind: ElementType::F32, shape: vec![3] };
    let mut writer = FolderWriter::create(&OsDisk, model, true).unwrap();
    let bias = file.get("gpt.bias").unwrap();
    writer.tensors(Part::Gpt, &[spec], &mut |_| Ok(Cow::Borrowed(bias.bytes))).unwrap();
    writer.finish().unwrap();
    assert!(!small.exists() && model.join("gpt.safetensors").is_file());
    // A folder with an unfinished compact model may be written to.
    std::fs::remove_file(model.join(MANIFEST)).unwrap();
    std::fs::rename(model.join("gpt.safetensors"), &small).unwrap();
    assert!(FolderWriter::create(&OsDisk, model, false).is_ok());
    // Both forms at once.
    let mut writer = FolderWriter::create(&OsDisk, model, true).unwrap();
    writer.compact(Part::Gpt, &file, 63).unwrap();
    let spec = TensorSpec { name: "gpt.bias".to_owned(), kind: ElementType::F32, shape: vec![3] };
    writer.tensors(Part::Gpt, &[spec], &mut |_| Ok(Cow::Borrowed(bias.bytes))).unwrap();
    writer.finish().unwrap();
    let error = ModelFolder::open(model).unwrap_err().to_string();
    assert!(error.contains("lists both gpt.compact and gpt.safetensors"), "{error}");
}
