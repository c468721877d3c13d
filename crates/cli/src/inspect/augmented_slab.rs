//! Replaces the texts and mels that the loader wrote into a batch by those of its augmented rows.

use anyhow::Context;
use myxtts_data::batch::BatchInfo;
use myxtts_data::record::{DVAE_MEL, RecordSource, TOKENS};
use myxtts_train::stages::gpt::AugmentedRow;

use super::batch::FRAMES_PER_CODE;

/// Replaces texts and mels of a batch by those that its augmented rows have.
pub fn replace_augmented(
    source: &dyn RecordSource,
    augmented: &[AugmentedRow],
    info: &mut BatchInfo,
    slab: &mut [u8],
) -> anyhow::Result<()> {
    let layout = info.layout.clone();
    let (Some(mels), Some(tokens)) = (layout.field(DVAE_MEL.name), layout.field(TOKENS.name)) else {
        return Ok(());
    };
    let mel = source.columns().iter().position(|column| *column == DVAE_MEL);
    let mel = mel.context("the records have no mels")?;
    let lengths = |name: &str| layout.field(&format!("{name}_rows")).map(|field| field.offset);
    for (row, own) in augmented.iter().enumerate().filter(|(_, own)| own.is_joined || own.lost_text) {
        // Another record was used here: this one's mel cannot be read.
        if layout.field("record").is_none_or(|field| number(slab, field.offset, row) != own.record as i32) {
            continue;
        }
        if own.is_joined {
            let bytes = mels.bytes / layout.rows() as usize;
            let into = &mut slab[mels.offset + row * bytes..][..bytes];
            into.fill(0);
            let mut filled = 0;
            for (record, codes) in &own.segments {
                let frames = codes.len() * FRAMES_PER_CODE as usize;
                let end = (filled + frames * DVAE_MEL.row_bytes()).min(bytes);
                let first = codes.start as u32 * FRAMES_PER_CODE;
                let rows = source.read(*record as usize, mel, first, &mut into[filled..end])?;
                filled += rows as usize * DVAE_MEL.row_bytes();
            }
            let rows = (filled / DVAE_MEL.row_bytes()) as i32;
            replace_length(slab, lengths(DVAE_MEL.name), (row, rows), DVAE_MEL.row_bytes(), info);
        }
        let bytes = tokens.bytes / layout.rows() as usize;
        let into = &mut slab[tokens.offset + row * bytes..][..bytes];
        into.fill(0);
        for (place, token) in into.as_chunks_mut::<4>().0.iter_mut().zip(&own.tokens) {
            *place = token.to_le_bytes();
        }
        let rows = own.tokens.len() as i32;
        replace_length(slab, lengths(TOKENS.name), (row, rows), TOKENS.row_bytes(), info);
    }
    Ok(())
}

/// The number of a row in the field that begins at `offset`.
fn number(slab: &[u8], offset: usize, row: usize) -> i32 {
    slab[offset..].as_chunks().0.get(row).map_or(-1, |bytes| i32::from_le_bytes(*bytes))
}

/// Replaces the length of an array in the field at `offset`, and counts the bytes that are not padding.
fn replace_length(
    slab: &mut [u8],
    offset: Option<usize>,
    (row, rows): (usize, i32),
    row_bytes: usize,
    info: &mut BatchInfo,
) {
    let Some(offset) = offset else { return };
    let before = number(slab, offset, row);
    slab[offset + 4 * row..][..4].copy_from_slice(&rows.to_le_bytes());
    let bytes = |rows: i32| rows.max(0) as u64 * row_bytes as u64;
    info.used_bytes = info.used_bytes + bytes(rows) - bytes(before);
}
