//! Files that try to execute code, claim to be larger than they are, or refer to data past their end. Each is rejected
//! or has no effect within two seconds and 256 MiB, and none causes a panic.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use myxtts_model::weights::folder::ModelFolder;
use myxtts_model::weights::import::{Sources, import};
use myxtts_model::weights::pickle::{LIMITS, Node, Pickle, PickleError};
use myxtts_model::weights::pth::TorchFile;
use myxtts_model::weights::tensors::TensorFile;
use myxtts_model::weights::{WeightsError, python_json};
use myxtts_run::durable::OsDisk;

use crate::torch_builder::{TorchBuilder, dict, int, pickle, storage, tensor, text};

thread_local! {
    /// Bytes currently allocated by this thread, and the maximum so far.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// The system allocator with a counter per thread, because tests run in parallel.
struct Counting;

fn count(bytes: isize) {
    // The counter of a terminating thread may already be destroyed.
    let _ = HELD.try_with(|held| {
        let now = held.get().0 + bytes;
        held.set((now, held.get().1.max(now)));
    });
}

// SAFETY: every call is forwarded to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks exist while the data moves.
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// CPU time of this thread, if the system reports it: a busy machine must not fail a test.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

/// Runs `work` and checks the limits.
pub fn within_limits<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let before = HELD.get().0;
    HELD.set((before, before));
    let (start, busy) = (Instant::now(), cpu_time());
    let result = work();
    let (mut took, peak) = (start.elapsed(), HELD.get().1 - before);
    if let (Some(before), Some(after)) = (busy, cpu_time()) {
        took = after - before;
    }
    assert!(took < Duration::from_secs(2), "{name} took {took:?}");
    assert!(peak < 256 << 20, "{name} took {peak} bytes");
    result
}

/// Reads everything in a file that can be read, then tries to import it.
fn read_all(path: &Path) -> Result<(), WeightsError> {
    let file = TorchFile::open(path)?;
    let damaged = file.damaged();
    assert!(damaged.len() < 100_001);
    let pickle = file.pickle()?;
    for (_, value) in pickle.root().entries() {
        if let Some(tensor) = value.as_tensor() {
            file.read_converted(tensor)?;
        }
    }
    let out = path.with_extension("model");
    let sources = Sources { model: path.to_owned(), unchecked: true, ..Sources::default() };
    match import(&sources, &OsDisk, &out, false) {
        Err(_) if !out.exists() => Ok(()),
        Err(error) => panic!("{} was partly written: {error}", out.display()),
        Ok(_) => panic!("{} was imported", path.display()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The file is rejected when it is opened, parsed or read.
    Refused,
    /// The file is read without side effects, and is not a model.
    Inert,
}
use Fate::{Inert, Refused};

fn floats(count: usize) -> Vec<u8> {
    vec![0; count * 4]
}

fn f32_storage(key: &str, count: i64) -> Vec<u8> {
    storage("torch\nFloatStorage", key, count)
}

/// A named tensor and its storage of four elements.
fn one(value: Vec<u8>) -> Vec<u8> {
    TorchBuilder::of(pickle(&dict(&[("gpt.x".to_owned(), value)]))).with("data/0", floats(4)).bytes()
}

fn plain(value: &[u8]) -> Vec<u8> {
    TorchBuilder::of(pickle(value)).bytes()
}

/// Replaces bytes `offset` after the first occurrence of `mark`.
fn patch(mut bytes: Vec<u8>, mark: &[u8], offset: usize, new: &[u8]) -> Vec<u8> {
    let at = bytes.windows(mark.len()).position(|w| w == mark).unwrap() + offset;
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

fn valid_file() -> Vec<u8> {
    one(tensor(&f32_storage("0", 4), 0, &[4], &[1]))
}

fn cases() -> Vec<(&'static str, Vec<u8>, Fate)> {
    let many = |code: &[u8], count: usize| code.repeat(count);
    // Each list contains the previous one ten times: 10^40 elements if expanded.
    let billion_laughs = {
        let mut value = b"]q\0".to_vec();
        for level in 0..40u8 {
            value.extend([b']', b'q', level + 1, b'(']);
            value.extend([b'h', level].repeat(10));
            value.push(b'e');
        }
        value
    };
    let bad_zip_count = patch(valid_file(), b"PK\x05\x06", 10, &[0xff, 0xff]);
    vec![
        // Code execution.
        ("os.system", plain(&[b"cos\nsystem\n(", &text("touch /tmp/owned")[..], b"tR"].concat()), Inert),
        ("builtins.eval", plain(&[b"cbuiltins\neval\n(", &text("1+1")[..], b"tR"].concat()), Inert),
        (
            "a global from the stack",
            plain(&[&text("posix")[..], &text("system"), b"\x93(", &text("true"), b"tR"].concat()),
            Inert,
        ),
        ("getattr chains", plain(b"cbuiltins\ngetattr\n(cos\nenviron\nX\x03\0\0\0gettR)R)R"), Inert),
        ("an object with a state", plain(b"csubprocess\nPopen\n)\x81}X\x04\0\0\0argsK\x01sb"), Inert),
        ("an instance of protocol 0", plain(b"(ios\nsystem\n"), Refused),
        ("an extension code", plain(b"\x82\x01"), Refused),
        ("a buffer out of band", plain(b"\x97"), Refused),
        // Excessive size.
        ("billion laughs", plain(&billion_laughs), Inert),
        (
            "five million nested lists",
            plain(&[many(b"]", 5_000_000), many(b"a", 4_999_999)].concat()),
            Refused,
        ),
        ("half a million nested lists", plain(&[many(b"]", 500_000), many(b"a", 499_999)].concat()), Inert),
        ("nested tuples", plain(&[b")".to_vec(), many(b"\x85", 900_000)].concat()), Inert),
        (
            "a million objects",
            plain(&[b"cx\ny\nq\0(".to_vec(), many(b"h\0)R", 1_000_000), b"t".to_vec()].concat()),
            Refused,
        ),
        ("copies of the top", plain(&[b"]".to_vec(), many(b"2", 30_000_000)].concat()), Refused),
        ("marks", plain(&many(b"(", 30_000_000)), Refused),
        ("a pickle of 40 MB", plain(&[b"N".to_vec(), many(b"0N", 20_000_000)].concat()), Refused),
        ("a huge string", plain(&[b"\x8d", &u64::MAX.to_le_bytes()[..]].concat()), Refused),
        ("a huge long", plain(&[b"\x8b", &u32::MAX.to_le_bytes()[..]].concat()), Refused),
        ("a huge frame", plain(&[b"\x95", &u64::MAX.to_le_bytes()[..], b"N"].concat()), Refused),
        ("a huge memo", plain(b"Nr\xff\xff\xff\xff"), Refused),
        ("a memo that was never set", plain(b"h\x05"), Refused),
        ("a list in itself", plain(b"]q\0h\0a"), Inert),
        ("a dict in itself", plain(b"}q\0X\x01\0\0\0mh\0s"), Inert),
        ("a model in itself", plain(b"}q\0X\x05\0\0\0modelh\0s"), Inert),
        ("a set in itself", plain(b"\x8fq\0(h\0\x90"), Inert),
        ("a tuple that ends a mark twice", plain(b"tt"), Refused),
        ("a global without an end", plain(&[b"c".to_vec(), many(b"x", 1_000_000)].concat()), Refused),
        // Tensors.
        ("a negative stride", one(tensor(&f32_storage("0", 4), 0, &[4], &[-1])), Refused),
        ("a negative offset", one(tensor(&f32_storage("0", 4), -1, &[1], &[1])), Refused),
        ("beyond its storage", one(tensor(&f32_storage("0", 4), 1, &[4], &[1])), Refused),
        ("strides beyond its storage", one(tensor(&f32_storage("0", 4), 0, &[2, 2], &[3, 1])), Refused),
        (
            "strides that overflow",
            one(tensor(&f32_storage("0", 4), 1, &[3, 3], &[i64::MAX, i64::MAX])),
            Refused,
        ),
        (
            "a shape that overflows",
            one(tensor(&f32_storage("0", 4), 0, &[1 << 40, 1 << 40], &[0, 0])),
            Refused,
        ),
        (
            "an empty shape that overflows",
            one(tensor(&f32_storage("0", 4), 0, &[0, 1 << 40, 1 << 40], &[1, 1, 1])),
            Inert,
        ),
        ("four numbers as a billion", one(tensor(&f32_storage("0", 4), 0, &[1 << 30], &[0])), Refused),
        ("a storage that claims more", one(tensor(&f32_storage("0", 1 << 50), 0, &[1 << 50], &[1])), Refused),
        ("a storage that claims less", one(tensor(&f32_storage("0", 2), 0, &[2], &[1])), Refused),
        ("a missing storage", one(tensor(&f32_storage("../../../etc/passwd", 4), 0, &[4], &[1])), Refused),
        (
            "a storage of an unknown class",
            one(tensor(&storage("os\nsystem", "0", 4), 0, &[4], &[1])),
            Refused,
        ),
        (
            "a storage of complex numbers",
            one(tensor(&storage("torch\nComplexFloatStorage", "0", 4), 0, &[4], &[1])),
            Refused,
        ),
        ("forty dimensions", one(tensor(&f32_storage("0", 4), 0, &[1; 40], &[1; 40])), Refused),
        ("fewer strides than dimensions", one(tensor(&f32_storage("0", 4), 0, &[2, 2], &[1])), Refused),
        ("a tensor without arguments", plain(b"ctorch._utils\n_rebuild_tensor_v2\n)R"), Refused),
        ("a parameter of itself", plain(b"ctorch._utils\n_rebuild_parameter\n(NNNtR"), Refused),
        // The container.
        ("an empty file", Vec::new(), Refused),
        ("no zip", b"#!/bin/sh\nrm -rf /\n".repeat(100), Refused),
        ("torch before 1.6", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(), Refused),
        ("a compressed entry", patch(valid_file(), b"PK\x01\x02", 10, &[8]), Refused),
        ("an encrypted entry", patch(valid_file(), b"PK\x01\x02", 8, &[1]), Refused),
        ("an entry larger than the file", patch(valid_file(), b"PK\x01\x02", 20, &[0xf0; 8]), Refused),
        ("an entry at an invalid position", patch(valid_file(), b"PK\x01\x02", 42, &[0xf0; 4]), Refused),
        ("a directory at another position", patch(valid_file(), b"PK\x05\x06", 16, &[0xf0; 4]), Refused),
        ("a wrong number of entries", bad_zip_count, Refused),
        ("an entry twice", duplicate_valid(), Refused),
        ("overlapping entries", overlapping(), Refused),
        ("a missing 64-bit directory", missing_zip64_record(), Refused),
        (
            "names that leave the folder",
            TorchBuilder::of(pickle(b"}")).with("../../../../tmp/owned", b"x").bytes(),
            Inert,
        ),
        ("big-endian numbers", TorchBuilder::of(pickle(b"}")).with("byteorder", b"big").bytes(), Refused),
        ("no pickle", TorchBuilder::of("not a pickle").bytes(), Refused),
        ("a pickle of protocol 9", TorchBuilder::of(b"\x80\x09N.".to_vec()).bytes(), Refused),
        ("a model that is a number", plain(&dict(&[("model".to_owned(), int(7))])), Inert),
        ("storages with long names", plain(&storages(1000, 400_000)), Refused),
        ("a storage a million times", plain(&storages(20, 1_000_000)), Refused),
        ("a tensor a hundred thousand times", tensors(100_000, false), Inert),
        ("a tensor a million times", tensors(1_000_000, false), Refused),
        ("a name of a megabyte, used many times", tensors(60_000, true), Inert),
        ("a block with a huge number", huge_number(), Inert),
        ("a tensor with a huge empty dimension", huge_dimension(), Inert),
    ]
}

fn duplicate_valid() -> Vec<u8> {
    TorchBuilder::of(pickle(b"}")).with("data/0", floats(1)).with("data/0", floats(2)).bytes()
}

/// The directory gives the second entry the position of the first.
fn overlapping() -> Vec<u8> {
    let bytes = TorchBuilder::of(pickle(b"}")).with("data/0", floats(9)).with("data/1", floats(9)).bytes();
    let mut places: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, w)| *w == b"PK\x01\x02").map(|(at, _)| at).collect();
    let (last, middle) = (places.pop().unwrap(), places.pop().unwrap());
    let mut bytes = bytes;
    let header: [u8; 4] = bytes[middle + 42..][..4].try_into().unwrap();
    bytes[last + 42..last + 46].copy_from_slice(&header);
    bytes
}

fn missing_zip64_record() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.pth");
    TorchBuilder::of(pickle(b"}")).write_wide(&path, 10);
    patch(std::fs::read(path).unwrap(), b"PK\x06\x07", 8, &[0xff; 8])
}

/// One storage, described once and referenced many times.
fn storages(name: usize, times: usize) -> Vec<u8> {
    let mut value = storage("torch\nFloatStorage", &"0".repeat(name), 4);
    value.truncate(value.len() - 1);
    [b"]", &value[..], b"q\x000(", &b"h\0Q".repeat(times), b"e"].concat()
}

/// A tensor of eight dimensions, rebuilt for each of many keys, which are all the same key or not strings.
fn tensors(times: usize, long: bool) -> Vec<u8> {
    let value = tensor(&f32_storage("0", 4), 0, &[1; 8], &[1; 8]);
    let (call, _) = value.split_at(value.len() - 1);
    let key = if long { text(&"x".repeat(1 << 20)) } else { b"K\x01".to_vec() };
    let function = b"ctorch._utils\n_rebuild_tensor_v2\nq\0".to_vec();
    let arguments = &call[call.iter().position(|&b| b == b'(').unwrap()..];
    let head = [b"}", &function[..], arguments, b"q\x010", b"0", &key, b"q\x020("].concat();
    TorchBuilder::of(pickle(&[&head[..], &b"h\x02h\0h\x01R".repeat(times), b"u"].concat()))
        .with("data/0", floats(4))
        .bytes()
}

/// Names whose indices would produce endless lists if trusted.
fn huge_number() -> Vec<u8> {
    let value = tensor(&f32_storage("0", 4), 0, &[4], &[1]);
    let names = [
        "gpt.gpt.h.4294967295.ln_1.weight",
        "dvae.encoder.4294967295.0.weight",
        "hifigan_decoder.waveform_decoder.ups.99999999.parametrizations.weight.original1",
    ];
    let pairs: Vec<(String, Vec<u8>)> =
        names.iter().map(|name| ((*name).to_owned(), value.clone())).collect();
    TorchBuilder::of(pickle(&dict(&pairs))).with("data/0", floats(4)).bytes()
}

fn huge_dimension() -> Vec<u8> {
    let value = tensor(&f32_storage("0", 4), 0, &[0, i64::MAX], &[1, 1]);
    let names = ["gpt.text_embedding.weight", "dvae.encoder.0.0.weight", "dvae.codebook.embed"];
    let pairs: Vec<(String, Vec<u8>)> =
        names.iter().map(|name| ((*name).to_owned(), value.clone())).collect();
    TorchBuilder::of(pickle(&dict(&pairs))).with("data/0", floats(4)).bytes()
}

#[test]
fn every_hostile_file_is_rejected_or_inert() {
    let folder = tempfile::tempdir().unwrap();
    let cases = cases();
    assert!(cases.len() >= 30);
    for (i, (name, bytes, fate)) in cases.into_iter().enumerate() {
        let path = folder.path().join(format!("{i}.pth"));
        std::fs::write(&path, bytes).unwrap();
        let outcome = within_limits(name, || read_all(&path));
        let found = if outcome.is_err() { Refused } else { Inert };
        assert_eq!(found, fate, "{name}: {:?}", outcome.map_err(|error| error.to_string()));
    }
}

#[test]
fn limits_are_measured() {
    let caught = std::panic::catch_unwind(|| within_limits("a large one", || vec![0u8; 300 << 20].len()));
    assert!(caught.is_err());
}

#[test]
fn calls_become_inert_objects() {
    let bytes = pickle(&[b"cos\nsystem\n(", &text("reboot")[..], b"tR"].concat());
    let parsed = Pickle::parse(&bytes).unwrap();
    assert_eq!(parsed.root().class().as_deref(), Some("os.system"));
    assert!(matches!(parsed.root().node(), Node::Object(_)));
    let cycle = pickle(b"]q\0h\0a");
    let cycle = Pickle::parse(&cycle).unwrap();
    assert_eq!(cycle.len(), 1);
    assert!(cycle.root().members()[0].members()[0].members().len() == 1);
}

#[test]
fn every_protocol_is_supported() {
    // Protocols 2 to 5 of {"a": [1, -70000, 2**40, 1.5, True, None, b"x", "ü", (1, 2, 3, 4)]}, as Python 3.11 writes
    // them.
    let expected = |bytes: &[u8]| {
        let parsed = Pickle::parse(bytes).unwrap();
        let list = parsed.root().get("a").unwrap().members();
        let ints: Vec<Option<i64>> = list.iter().map(|value| value.as_int()).collect();
        assert_eq!(ints[..3], [Some(1), Some(-70000), Some(1 << 40)]);
        assert!(matches!(list[3].node(), Node::Float(value) if *value == 1.5));
        assert!(matches!(list[4].node(), Node::Bool(true)));
        assert!(matches!(list[5].node(), Node::None));
        assert_eq!(list[7].as_str(), Some("ü"));
        assert_eq!(list[8].members().len(), 4);
    };
    let two: &[u8] = b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\x90\xee\xfe\xff\x8a\x06\x00\x00\x00\x00\x00\x01G?\xf8\x00\x00\x00\x00\x00\x00\x88Nc_codecs\nencode\nq\x03X\x01\x00\x00\x00xq\x04X\x06\x00\x00\x00latin1q\x05\x86q\x06Rq\x07X\x02\x00\x00\x00\xc3\xbcq\x08(K\x01K\x02K\x03K\x04tq\tes.";
    let five: &[u8] = b"\x80\x05\x95:\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94]\x94(K\x01J\x90\xee\xfe\xff\x8a\x06\x00\x00\x00\x00\x00\x01G?\xf8\x00\x00\x00\x00\x00\x00\x88NC\x01x\x94\x8c\x02\xc3\xbc\x94(K\x01K\x02K\x03K\x04t\x94es.";
    expected(two);
    expected(five);
    let mut three = two.to_vec();
    three[1] = 3;
    expected(&three);
    let mut four = five.to_vec();
    four[1] = 4;
    expected(&four);
}

#[test]
fn truncated_files_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pth");
    let whole = TorchBuilder::of(pickle(&dict(&[(
        "gpt.x".to_owned(),
        tensor(&f32_storage("0", 4), 0, &[2, 2], &[1, 2]),
    )])))
    .with("data/0", floats(4))
    .with("version", b"3\n")
    .bytes();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(TorchFile::open(&path).is_err(), "cut at {length}");
    }
    std::fs::write(&path, &whole).unwrap();
    read_all(&path).unwrap();
    // The pickle alone, truncated and with every byte changed in turn.
    let file = pickle(&dict(&[("a".to_owned(), tensor(&f32_storage("0", 4), 0, &[2, 2], &[1, 2]))]));
    for length in 0..file.len() {
        assert!(Pickle::parse(&file[..length]).is_err(), "cut at {length}");
    }
    for at in 0..file.len() {
        for flip in [1u8, 0x7f, 0x80, 0xff] {
            let mut changed = file.clone();
            changed[at] ^= flip;
            let _ = Pickle::parse(&changed);
        }
    }
    // And the container.
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0xff;
        std::fs::write(&path, &changed).unwrap();
        if let Ok(file) = TorchFile::open(&path)
            && let Ok(pickle) = file.pickle()
        {
            for (_, value) in pickle.root().entries() {
                if let Some(tensor) = value.as_tensor() {
                    let _ = file.read(tensor);
                }
            }
        }
    }
}

#[test]
fn errors_name_the_limits() {
    let bytes = vec![0; LIMITS.bytes + 1];
    let parsed = Pickle::parse(&bytes);
    assert!(matches!(parsed, Err(PickleError::TooLarge { what: "bytes", .. })));
}

#[test]
fn voices_sharing_a_huge_dict_are_rejected() {
    // Without a limit, each voice would search all of the dict.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("voices.pth");
    let filler = b"NN".repeat(300_000);
    let names: Vec<u8> = (0..60_000).flat_map(|i| [text(&i.to_string()), b"h\0".to_vec()].concat()).collect();
    let value = [b"}}q\0(", &filler[..], b"uq\x000(", &names, b"u"].concat();
    TorchBuilder::of(pickle(&value)).write(&path);
    let root = std::env::var_os("MYXTTS_GOLDENS").map(std::path::PathBuf::from);
    let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join("goldens"));
    let model = root.join("checkpoint").join("model.pth");
    let sources = Sources { model, voices: Some(path), ..Sources::default() };
    let outcome = within_limits("voices", || import(&sources, &OsDisk, &folder.path().join("model"), false));
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("voices do not fit this model"), "{error}");
}

fn safetensors(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
}

#[test]
fn inconsistent_safetensors_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lie.safetensors");
    let one = |shape: &str, offsets: &str| {
        format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let sound = safetensors(&one("[2]", "[0,8]"), 8);
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(TensorFile::open(&path).unwrap().get("a").unwrap().shape, [2]);
    let overlap = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#;
    let cases = [
        ("empty", Vec::new()),
        ("short", vec![1, 2, 3]),
        ("a huge header", [&u64::MAX.to_le_bytes()[..], b"{}"].concat()),
        ("a header of 90 MB", [&(90u64 << 20).to_le_bytes()[..], &vec![b' '; 90 << 20]].concat()),
        ("no JSON", safetensors("nonsense", 8)),
        ("deep JSON", safetensors(&"[".repeat(1 << 20), 8)),
        ("beyond the end", safetensors(&one("[4]", "[0,16]"), 8)),
        ("backwards", safetensors(&one("[2]", "[8,0]"), 8)),
        ("another shape", safetensors(&one("[3]", "[0,8]"), 8)),
        ("a shape that overflows", safetensors(&one("[4294967296,4294967296]", "[0,8]"), 8)),
        ("a negative shape", safetensors(&one("[-2]", "[0,8]"), 8)),
        ("overlapping tensors", safetensors(overlap, 12)),
        ("unused data", safetensors(&one("[2]", "[0,8]"), 80)),
        (
            "an unsupported element type",
            safetensors(&one("[8]", "[0,8]").replace("F32", "U8").replace("U8", "F8_E4M3"), 8),
        ),
    ];
    for (name, bytes) in cases {
        std::fs::write(&path, bytes).unwrap();
        assert!(within_limits(name, || TensorFile::open(&path)).is_err(), "{name}");
    }
    for length in 0..sound.len() {
        std::fs::write(&path, &sound[..length]).unwrap();
        assert!(TensorFile::open(&path).is_err(), "cut at {length}");
    }
}

#[test]
fn manifest_cannot_name_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("model");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    for name in ["../secret", "/etc/passwd", "a/../../secret", "manifest.json", ""] {
        let body = serde_json::json!({
            "format": 1, "source": "", "licence": "", "parts": {}, "voices": [],
            "files": {name: {"bytes": 6, "blake3": blake3::hash(b"secret").to_string()}},
        });
        let body = format!("{}\n", &body.to_string()[1..]);
        let manifest = format!("{{\"checksum\": \"{}\",\n{body}", blake3::hash(body.as_bytes()));
        std::fs::write(inner.join("manifest.json"), manifest).unwrap();
        let error = ModelFolder::open(&inner).unwrap_err().to_string();
        assert!(error.contains("is not a file of a model"), "{name}: {error}");
    }
    for manifest in
        ["", "{}", "{\"checksum\": \"\",\n", "\u{feff}{\"checksum\": \"00\",\n}", "{\"checksum\": \"é"]
    {
        std::fs::write(inner.join("manifest.json"), manifest).unwrap();
        assert!(ModelFolder::open(&inner).is_err(), "{manifest:?}");
    }
}

#[test]
fn deeply_nested_configurations_are_rejected() {
    for text in
        ["[".repeat(1 << 20), "{\"a\":".repeat(1 << 18), "Infinity,".repeat(1 << 18), "\"".repeat(1 << 20)]
    {
        assert!(within_limits("brackets", || python_json::parse(&text)).is_err());
    }
}
