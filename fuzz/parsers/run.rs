//! The parsers of `myxtts-run` that read untrusted files. Each returns whether it accepted the bytes.

use myxtts_run::checkpoint::{Checkpoints, MANIFEST};
use myxtts_run::config::parse_yaml;
use myxtts_run::events::EventReader;
use myxtts_run::plan::Plan;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A temporary folder that exists as long as the process.
fn scratch() -> &'static Path {
    static FOLDER: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

/// Overwrites a file in place. It is not truncated first: some file systems would then wait for the disk.
fn put(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
}

/// Configuration files.
pub fn yaml(bytes: &[u8]) -> bool {
    parse_yaml(Path::new("fuzz.yaml"), bytes).is_ok()
}

/// `plan.json` of a run.
pub fn plan(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(plan) = Plan::from_json(text) else { return false };
    let again = Plan::from_json(&plan.to_json()).expect("what was written can be read");
    assert!(plan.differences(&again).is_empty(), "a plan is another one when it is written and read");
    true
}

/// `events.jsonl` of a run.
pub fn events(bytes: &[u8]) -> bool {
    let path = scratch().join("events.jsonl");
    put(&path, bytes);
    let mut reader = EventReader::new(&path);
    let events = reader.read().unwrap();
    assert!(reader.read().unwrap().is_empty(), "an event was told twice");
    !events.is_empty()
}

/// The manifest of a checkpoint, with a corrected checksum, which no mutation would get past. The first line of `bytes` is
/// the manifest's own, whose checksum is recomputed.
pub fn checkpoint(bytes: &[u8]) -> bool {
    let folder: PathBuf = scratch().join("checkpoints");
    let own = folder.join("000001-step-2");
    std::fs::create_dir_all(&own).unwrap();
    let start = bytes.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let (head, body) = bytes.split_at(start);
    let magic = &head[..head.len().saturating_sub(65)];
    let sum = blake3::hash(body).to_hex();
    put(&own.join(MANIFEST), &[magic, sum.as_bytes(), b"\n", body].concat());
    let checkpoints = Checkpoints::at(&folder);
    let listing = checkpoints.list().unwrap();
    for checkpoint in &listing.checkpoints {
        // Its parts do not exist.
        assert!(checkpoint.bytes() == 0 || checkpoints.verify(checkpoint).is_err());
        let _ = checkpoints.load(&checkpoint.name()).map(|loaded| loaded.read("weights"));
    }
    !listing.checkpoints.is_empty()
}
