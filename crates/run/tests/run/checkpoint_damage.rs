//! Damage is detected: every bit of a manifest, thousands of bits of blobs, every truncation.

use std::path::Path;

use myxtts_run::checkpoint::{CHUNK_BYTES, Checkpoints, Damage, Latest};
use myxtts_run::seed::Seed;
use serde_json::json;

use super::checkpoint::{content, quick_store, scratch};

/// Saves two checkpoints. Damage to the second must be detected, and the first be used instead.
fn save_two(dir: &Path, length: usize) -> std::path::PathBuf {
    let mut store = quick_store(dir);
    for step in 1..3 {
        let bytes = content(step, "weights", length);
        store.save(step, &[("weights", &bytes)], json!({ "note": "é \u{1F3B5}" }), Some(0.25)).unwrap();
    }
    dir.join("000002-step-2")
}

fn damage_of_second(dir: &Path) -> Damage {
    let Latest { checkpoint, mut damaged } = Checkpoints::at(dir).latest_valid().unwrap();
    assert_eq!(checkpoint.expect("the first is valid").step, 1);
    assert_eq!(damaged.len(), 1);
    damaged.remove(0).damage
}

#[test]
fn every_flipped_bit_and_truncation_of_a_manifest_is_detected() {
    let root = scratch();
    let file = save_two(root.path(), 10).join("manifest");
    let original = std::fs::read(&file).unwrap();
    for bit in 0..original.len() * 8 {
        let mut flipped = original.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, &flipped).unwrap();
        let damage = damage_of_second(root.path());
        assert!(matches!(damage, Damage::ManifestChanged), "bit {bit}: {damage}");
    }
    for length in 0..original.len() {
        std::fs::write(&file, &original[..length]).unwrap();
        assert!(matches!(damage_of_second(root.path()), Damage::ManifestChanged), "{length} bytes");
    }
    std::fs::write(&file, [&original[..], b"\n"].concat()).unwrap();
    assert!(matches!(damage_of_second(root.path()), Damage::ManifestChanged));
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(damage_of_second(root.path()), Damage::ManifestMissing));
    std::fs::write(&file, &original).unwrap();
    assert_eq!(Checkpoints::at(root.path()).latest_valid().unwrap().checkpoint.unwrap().step, 2);
}

#[test]
fn flipped_bits_and_truncations_of_a_blob_are_detected() {
    let root = scratch();
    let file = save_two(root.path(), 3000).join("weights.bin");
    let original = std::fs::read(&file).unwrap();
    let seed = Seed::new(2).derive("bits");
    for n in 0..10_000 {
        let bit = seed.below(n, original.len() as u64 * 8) as usize;
        let mut flipped = original.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, &flipped).unwrap();
        let damage = damage_of_second(root.path());
        assert!(matches!(damage, Damage::BlobChanged { from: 0, to: 3000, .. }), "bit {bit}: {damage}");
    }
    for length in 0..original.len() {
        std::fs::write(&file, &original[..length]).unwrap();
        let damage = damage_of_second(root.path());
        assert!(matches!(damage, Damage::BlobLength { found, .. } if found == length as u64), "{damage}");
    }
    std::fs::write(&file, [&original[..], &[0]].concat()).unwrap();
    assert!(matches!(damage_of_second(root.path()), Damage::BlobLength { found: 3001, wanted: 3000, .. }));
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(damage_of_second(root.path()), Damage::BlobMissing { .. }));
}

#[test]
fn damage_is_located_and_detected_while_reading() {
    let root = scratch();
    let length = 2 * CHUNK_BYTES + 77;
    let folder = save_two(root.path(), length);
    let file = folder.join("weights.bin");
    let original = std::fs::read(&file).unwrap();
    let seed = Seed::new(3).derive("bits");
    for n in 0..40 {
        let at = seed.below(n, length as u64) as usize;
        let mut flipped = original.clone();
        flipped[at] ^= 1 << (n % 8);
        std::fs::write(&file, &flipped).unwrap();
        let loaded = Checkpoints::at(root.path()).load("000002-step-2").unwrap();
        let message = loaded.read("weights").unwrap_err().to_string();
        let from = at / CHUNK_BYTES * CHUNK_BYTES;
        let to = (from + CHUNK_BYTES).min(length);
        assert!(message.contains(&format!("bytes {from} to {to}")), "{message}");
    }
    // Two swapped chunks have the right bytes in the wrong order.
    let (first, rest) = original.split_at(CHUNK_BYTES);
    let (second, tail) = rest.split_at(CHUNK_BYTES);
    std::fs::write(&file, [second, first, tail].concat()).unwrap();
    assert!(matches!(damage_of_second(root.path()), Damage::BlobChanged { from: 0, .. }));
}

/// A checksum is not a signature: a crafted manifest must be harmless.
#[test]
fn crafted_manifests_with_a_valid_checksum_are_harmless() {
    let root = scratch();
    let file = save_two(root.path(), 10).join("manifest");
    let original = std::fs::read(&file).unwrap();
    let body = &original[original.iter().position(|&byte| byte == b'\n').unwrap() + 1..];
    let seed = Seed::new(8).derive("made up");
    let pieces: [&[u8]; 8] = [b"9", b"-1", b"null", b"\"", b"[[[[", b"18446744073709551615", b"}", b"../x"];
    let (mut accepted, mut refused) = (0, 0);
    for n in 0..3000 {
        let mut crafted = body.to_vec();
        for i in 0..1 + seed.with(n).below(0, 3) {
            let at = seed.with(n).below(3 * i + 1, crafted.len() as u64) as usize;
            let piece = pieces[seed.with(n).below(3 * i + 2, 8) as usize];
            let end = (at + seed.with(n).below(3 * i + 3, 6) as usize).min(crafted.len());
            crafted.splice(at..end, piece.iter().copied());
        }
        let header = format!("myxtts-checkpoint {}\n", blake3::hash(&crafted).to_hex());
        std::fs::write(&file, [header.as_bytes(), &crafted].concat()).unwrap();
        let latest = Checkpoints::at(root.path()).latest_valid().unwrap();
        if latest.damaged.is_empty() {
            accepted += 1
        } else {
            refused += 1
        }
        assert!(latest.checkpoint.is_some());
    }
    assert!(accepted > 10 && refused > 1000, "{accepted} accepted, {refused} refused");
}
