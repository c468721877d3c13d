//! What a batch contains, as a table, as JSON and as an image.

use std::fmt::Write as _;

use anyhow::Context;
use myxtts_data::batch::{BatchInfo, Plan};
use myxtts_data::mel::picture::{Mel, mels_png};
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_train::overlay::CODES;
use myxtts_train::stages::gpt::AugmentedRow;
use serde::Serialize;

use super::FRAMES_PER_CODE;

/// The content of a batch.
#[derive(Serialize)]
pub(super) struct Report {
    pub step: u64,
    /// `None` for the worst-case batches, which come before all epochs.
    pub epoch: Option<u64>,
    pub position: u64,
    bucket: usize,
    pub frames: u32,
    pub tokens: u32,
    pub bytes: usize,
    padding: f64,
    fields: Vec<Field>,
    pub rows: Vec<Row>,
    replaced: Vec<String>,
    pub plan: Planned,
    /// Further batches of the step, with gradient accumulation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Report>,
}

#[derive(Serialize)]
struct Field {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    offset: usize,
    bytes: usize,
}

#[derive(Serialize)]
pub(super) struct Row {
    pub id: String,
    pub record: u32,
    pub speaker: String,
    language: String,
    pub frames: u32,
    tokens: u32,
    /// Share of the row's frames that is padding.
    padding: f64,
    pub companion: Option<String>,
    /// The clips whose segments it is joined from, in their order; empty where it is a whole clip.
    joined: Vec<String>,
    /// Whether the model does not get its text.
    without_text: bool,
    /// Number of its codes that are hidden from the model.
    hidden_codes: usize,
}

impl Row {
    /// What augmentation made of it, after a semicolon; empty where that is nothing.
    fn augmented(&self) -> String {
        let mut text = String::new();
        if !self.joined.is_empty() {
            text += &format!("; joined from {}", self.joined.join(" + "));
        }
        if self.without_text {
            text += "; without its text";
        }
        text
    }
}

#[derive(Serialize)]
pub(super) struct Planned {
    records: usize,
    left_out: usize,
    pub batches_per_epoch: u64,
    buckets: Vec<Bucket>,
}

#[derive(Serialize)]
struct Bucket {
    frames: u32,
    tokens: u32,
    rows: u32,
    records: u32,
    batches: u64,
    padding: f64,
}

impl Report {
    pub fn new(
        source: &dyn RecordSource,
        plan: &Plan,
        (info, augmented): (&BatchInfo, &[AugmentedRow]),
        slab: &[u8],
    ) -> Self {
        let numbers = |field: &str| -> Vec<i32> {
            let field = info.layout.field(field);
            let bytes = field.map_or(&[][..], |field| &slab[field.offset..field.offset + field.bytes]);
            bytes.as_chunks().0.iter().map(|value| i32::from_le_bytes(*value)).collect()
        };
        let (records, companions) = (numbers("record"), numbers("companion"));
        let (frames, tokens) = (numbers("dvae_mel_rows"), numbers("tokens_rows"));
        let name = |names: &[String], number: u32| names.get(number as usize).cloned().unwrap_or_default();
        let rung = info.layout.rung();
        // Batches of codes and of windows count frames in different units.
        let unit = if plan.settings().length == CODES { FRAMES_PER_CODE } else { 1 };
        let room = info.layout.field(DVAE_MEL.name).map_or(1, |field| field.shape[1] as u32);
        let rows = (0..info.rows_valid as usize)
            .map(|row| {
                let record = records[row] as usize;
                let frames = frames[row] as u32;
                let augmented = augmented.get(row).filter(|own| own.record as usize == record);
                let joined = augmented.filter(|own| own.is_joined).map(|own| &own.segments[..]);
                Row {
                    id: source.id(record),
                    record: record as u32,
                    speaker: name(source.speakers(), source.speaker(record)),
                    language: name(source.languages(), source.language(record)),
                    frames,
                    tokens: tokens.get(row).map_or(0, |&tokens| tokens as u32),
                    padding: 1.0 - f64::from(frames) / f64::from(room),
                    companion: companions
                        .get(row)
                        .and_then(|&c| usize::try_from(c).ok())
                        .map(|record| source.id(record)),
                    joined: joined
                        .unwrap_or_default()
                        .iter()
                        .map(|(record, _)| source.id(*record as usize))
                        .collect(),
                    without_text: augmented.is_some_and(|own| own.lost_text),
                    hidden_codes: augmented.map_or(0, |own| own.hidden),
                }
            })
            .collect();
        let fields = info.layout.fields().iter();
        let buckets = plan.buckets().iter().map(|bucket| Bucket {
            frames: unit * bucket.rung.frames,
            tokens: bucket.rung.tokens,
            rows: bucket.rows,
            records: bucket.records,
            batches: bucket.batches,
            padding: bucket.padding(),
        });
        Report {
            step: info.step,
            epoch: info.epoch,
            position: info.position,
            bucket: info.bucket,
            frames: room,
            tokens: rung.tokens,
            bytes: info.layout.bytes(),
            padding: info.padding(),
            fields: fields
                .map(|field| Field {
                    name: field.name.clone(),
                    dtype: field.dtype.numpy(),
                    shape: field.shape.clone(),
                    offset: field.offset,
                    bytes: field.bytes,
                })
                .collect(),
            rows,
            replaced: info.substitutions.iter().map(|bad| bad.problem.to_string()).collect(),
            plan: Planned {
                records: plan.records(),
                left_out: plan.excluded().len(),
                batches_per_epoch: plan.batches_per_epoch(),
                buckets: buckets.collect(),
            },
            further: Vec::new(),
        }
    }

    /// An image of the mels, one below the other.
    pub fn picture(&self, slab: &[u8]) -> anyhow::Result<Vec<u8>> {
        let field = self.fields.iter().find(|field| field.name == DVAE_MEL.name);
        let field = field.context("the batch has no mel to draw")?;
        let values: Vec<f32> = (slab[field.offset..field.offset + field.bytes].as_chunks().0.iter())
            .map(|value| f32::from_le_bytes(*value))
            .collect();
        let (frames, channels) = (field.shape[1], field.shape[2]);
        let mels: Vec<Mel> = (values.chunks(frames * channels).zip(&self.rows))
            .map(|(values, row)| Mel { values, valid: row.frames as usize })
            .collect();
        Ok(mels_png(frames, channels, &mels))
    }

    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut out);
        out
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let when = match self.epoch {
            Some(epoch) => {
                format!("epoch {epoch}, batch {} of {}", self.position, self.plan.batches_per_epoch)
            }
            None => "worst-case batches, before all epochs".to_owned(),
        };
        writeln!(out, "step {}: {when}", self.step)?;
        self.write_rows(out)?;
        for report in &self.further {
            writeln!(out, "\nfurther batch of the same step:")?;
            report.write_rows(out)?;
        }
        writeln!(out)?;
        writeln!(
            out,
            "{:>6}  {:>6}  {:>5}  {:>8}  {:>8}  {:>7}",
            "frames", "tokens", "rows", "records", "batches", "padding"
        )?;
        for bucket in &self.plan.buckets {
            let Bucket { frames, tokens, rows, records, batches, padding } = bucket;
            writeln!(
                out,
                "{frames:>6}  {tokens:>6}  {rows:>5}  {records:>8}  {batches:>8}  {:>5.1} %",
                100.0 * padding
            )?;
        }
        if self.plan.left_out > 0 {
            writeln!(out, "{} records exceed the length limits and are left out", self.plan.left_out)?;
        }
        Ok(())
    }

    fn write_rows(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "shape: {} rows x {} frames, {} tokens; {:.1} MB, {:.1} % padding",
            self.rows.len(),
            self.frames,
            self.tokens,
            self.bytes as f64 / 1e6,
            100.0 * self.padding
        )?;
        writeln!(out)?;
        let widest = |what: fn(&Row) -> usize| self.rows.iter().map(what).max().unwrap_or(0);
        let id = widest(|row| row.id.chars().count()).max(9);
        let speaker = widest(|row| row.speaker.chars().count()).max(7);
        writeln!(
            out,
            "{:>3}  {:id$}  {:speaker$}  {:>5}  {:>6}  {:>6}  {:>7}  conditioned on",
            "row", "utterance", "speaker", "lang", "frames", "tokens", "padding"
        )?;
        for (i, row) in self.rows.iter().enumerate() {
            writeln!(
                out,
                "{i:>3}  {:id$}  {:speaker$}  {:>5}  {:>6}  {:>6}  {:>5.1} %  {}",
                row.id,
                row.speaker,
                row.language,
                row.frames,
                row.tokens,
                100.0 * row.padding,
                row.companion.as_deref().unwrap_or("-").to_owned() + &row.augmented()
            )?;
        }
        let hidden: usize = self.rows.iter().map(|row| row.hidden_codes).sum();
        if hidden > 0 {
            writeln!(out, "{hidden} input codes are hidden")?;
        }
        for bad in &self.replaced {
            writeln!(out, "replaced: {bad}")?;
        }
        Ok(())
    }
}
