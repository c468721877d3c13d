//! Event files, read by an independent reader and, on request, by TensorBoard itself.

use std::path::Path;
use std::sync::Arc;

use myxtts_run::durable::fault::{DiskOperation, Effect, FaultPlan, FaultyDisk};
use myxtts_run::tensorboard::{TensorBoard, TensorBoardError};

/// CRC-32C bit by bit, without a table.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let differ = (crc ^ u32::from(byte >> bit)) & 1;
            crc = (crc >> 1) ^ (0x82f6_3b78 * differ);
        }
    }
    !crc
}

fn unmasked(stored: &[u8]) -> u32 {
    u32::from_le_bytes(stored.try_into().unwrap()).wrapping_sub(0xa282_ead8).rotate_left(15)
}

fn records(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut records) = (file, Vec::new());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        assert_eq!(unmasked(&rest[8..12]), crc32c(&rest[..8]));
        let record = &rest[12..12 + length];
        assert_eq!(unmasked(&rest[12 + length..16 + length]), crc32c(record));
        records.push(record.to_vec());
        rest = &rest[16 + length..];
    }
    records
}

#[derive(Clone, Debug, PartialEq)]
enum Field {
    Int(u64),
    Eight(u64),
    Bytes(Vec<u8>),
    Four(u32),
}

fn varint(rest: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = rest[0];
        *rest = &rest[1..];
        value |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            return value;
        }
    }
}

fn fields(message: &[u8]) -> Vec<(u64, Field)> {
    let (mut rest, mut fields) = (message, Vec::new());
    let take = |rest: &mut &[u8], n: usize| {
        let (now, later) = rest.split_at(n);
        *rest = later;
        now.to_vec()
    };
    while !rest.is_empty() {
        let key = varint(&mut rest);
        let field = match key & 7 {
            0 => Field::Int(varint(&mut rest)),
            1 => Field::Eight(u64::from_le_bytes(take(&mut rest, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut rest) as usize;
                Field::Bytes(take(&mut rest, length))
            }
            5 => Field::Four(u32::from_le_bytes(take(&mut rest, 4).try_into().unwrap())),
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn bytes(message: &[u8], number: u64) -> Vec<u8> {
    match fields(message).into_iter().find(|(field, _)| *field == number) {
        Some((_, Field::Bytes(bytes))) => bytes,
        other => panic!("field {number} is {other:?}"),
    }
}

fn ints(message: &[u8]) -> Vec<(u64, u64)> {
    fields(message)
        .into_iter()
        .filter_map(|(n, f)| if let Field::Int(i) = f { Some((n, i)) } else { None })
        .collect()
}

/// A grey 3 x 2 PNG file with uncompressed data.
pub fn png() -> Vec<u8> {
    let raw = [0u8, 10, 20, 30, 0, 40, 50, 60];
    let mut zlib = vec![0x78, 0x01, 1, raw.len() as u8, 0, !(raw.len() as u8), 0xff];
    zlib.extend(raw);
    let (a, b) =
        raw.iter().map(|&x| u32::from(x)).fold((1, 0), |(a, b), x| ((a + x) % 65521, (b + a + x) % 65521));
    zlib.extend((b << 16 | a).to_be_bytes());
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [
        (b"IHDR", [&3u32.to_be_bytes()[..], &2u32.to_be_bytes(), &[8, 0, 0, 0, 0]].concat()),
        (b"IDAT", zlib),
        (b"IEND", vec![]),
    ] {
        file.extend((data.len() as u32).to_be_bytes());
        let body = [&kind[..], &data].concat();
        file.extend(&body);
        file.extend(crc32fast::hash(&body).to_be_bytes());
    }
    file
}

/// Ten samples at 24 kHz, preceded by an unknown chunk.
pub fn wav() -> Vec<u8> {
    let data: Vec<u8> = (0..10i16).flat_map(|i| (i * 1000).to_le_bytes()).collect();
    let mut body = b"WAVELIST\x03\0\0\0abc\0fmt \x10\0\0\0\x01\0\x01\0".to_vec();
    body.extend(24_000u32.to_le_bytes());
    body.extend(48_000u32.to_le_bytes());
    body.extend(b"\x02\0\x10\0data");
    body.extend((data.len() as u32).to_le_bytes());
    body.extend(data);
    [b"RIFF", &(body.len() as u32).to_le_bytes()[..], &body].concat()
}

fn write_all(folder: &Path) -> TensorBoard {
    let mut board = TensorBoard::open(folder).unwrap();
    board.scalar("loss/gpt", 1, 2.5).unwrap();
    board.scalars(300, &[("loss/gpt", 1.25), ("rate", 1e-4), ("nothing", f32::NAN)]).unwrap();
    board.image("mel/سلام", 300, &png()).unwrap();
    board.audio("voice", 300, &wav()).unwrap();
    board.text("spoken", 300, "Hello, **world**. درود").unwrap();
    board.sync().unwrap();
    board
}

#[test]
fn an_independent_reader_finds_all_events() {
    let folder = tempfile::tempdir().unwrap();
    let board = write_all(folder.path());
    assert!(board.path().file_name().unwrap().to_str().unwrap().starts_with("events.out.tfevents."));
    let events = records(&std::fs::read(board.path()).unwrap());
    assert_eq!(events.len(), 6);
    assert_eq!(bytes(&events[0], 3), b"brain.Event:2");
    for event in &events {
        let [(1, Field::Eight(time)), ..] = fields(event)[..] else { panic!("no time") };
        assert!(f64::from_bits(time) > 1.6e9);
    }
    let value = |event: usize| bytes(&bytes(&events[event], 5), 1);

    assert_eq!(ints(&events[1]), [(2, 1)]);
    let scalar = fields(&value(1));
    assert_eq!(scalar, [(1, Field::Bytes(b"loss/gpt".to_vec())), (2, Field::Four(2.5f32.to_bits()))]);
    let three = fields(&bytes(&events[2], 5));
    assert_eq!((three.len(), ints(&events[2])), (3, vec![(2, 300)]));

    assert_eq!(bytes(&value(3), 1), "mel/سلام".as_bytes());
    let image = bytes(&value(3), 4);
    assert_eq!((ints(&image), bytes(&image, 4)), (vec![(1, 2), (2, 3), (3, 1)], png()));

    let audio = bytes(&value(4), 6);
    assert_eq!(fields(&audio)[0], (1, Field::Four(24_000f32.to_bits())));
    assert_eq!((ints(&audio), bytes(&audio, 4)), (vec![(2, 1), (3, 10)], wav()));
    assert_eq!(bytes(&audio, 5), b"audio/wav");

    let tensor = bytes(&value(5), 8);
    assert_eq!(
        (ints(&tensor), bytes(&tensor, 8)),
        (vec![(1, 7)], "Hello, **world**. درود".as_bytes().to_vec())
    );
    assert_eq!(bytes(&bytes(&bytes(&value(5), 9), 1), 1), b"text");
}

#[test]
fn a_resumed_run_logs_its_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_all(folder.path());
    let second = TensorBoard::resume(folder.path(), 200).unwrap();
    assert!(first.path() < second.path());
    let events = records(&std::fs::read(second.path()).unwrap());
    assert_eq!((ints(&events[1]), ints(&bytes(&events[1], 7))), (vec![(2, 200)], vec![(1, 1)]));
}

#[test]
fn invalid_images_and_audio_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut board = TensorBoard::open(folder.path()).unwrap();
    for end in 0..26 {
        let error = board.image("p", 1, &png()[..end]).unwrap_err();
        assert!(matches!(error, TensorBoardError::Image { .. }), "{end}: {error}");
    }
    let whole = wav();
    for end in 0..whole.len() - 20 {
        let error = board.audio("s", 1, &whole[..end]).unwrap_err();
        assert!(matches!(error, TensorBoardError::Audio { .. }), "{end}: {error}");
    }
    for position in 0..44 {
        let mut changed = wav();
        changed[position] = 0xff;
        let _ = board.audio("s", 1, &changed);
    }
    records(&std::fs::read(board.path()).unwrap());
}

#[test]
fn a_failed_write_leaves_no_partial_record() {
    let folder = tempfile::tempdir().unwrap();
    let plan = FaultPlan { only: Some(DiskOperation::Write), ..FaultPlan::every(3, Effect::NoSpace) };
    let mut board = TensorBoard::open_on(Arc::new(FaultyDisk::new(plan)), folder.path(), None).unwrap();
    let written = (0..20).filter(|&step| board.scalar("loss", step, 1.0).is_ok()).count();
    assert!((5..20).contains(&written));
    assert_eq!(records(&std::fs::read(board.path()).unwrap()).len(), written + 1);
}

/// `MYXTTS_PYTHON` is a Python interpreter with the package `tensorboard`:
/// `cargo test -p myxtts-run --test run -- --ignored tensorboard`.
#[test]
#[ignore = "needs Python with tensorboard"]
fn tensorboard_itself_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    drop(write_all(folder.path()));
    let mut resumed = TensorBoard::resume(folder.path(), 200).unwrap();
    resumed.scalar("loss/gpt", 250, 0.75).unwrap();
    std::fs::write(folder.path().join("expected.png"), png()).unwrap();
    std::fs::write(folder.path().join("expected.wav"), wav()).unwrap();
    let python = std::env::var("MYXTTS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../parity/tensorboard_reads.py");
    let output = std::process::Command::new(python).arg(script).arg(folder.path()).output().unwrap();
    let messages =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    println!("{messages}");
}
