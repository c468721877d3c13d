//! Options of a plan: batch size, order and columns.

use std::collections::BTreeMap;

use myxtts_run::plan::Plan as RunPlan;
use myxtts_run::seed::Seed;
use serde::{Deserialize, Serialize};

use crate::batch::ladder::Ladder;
use crate::mel::LOG_OF_FLOOR;
use crate::record::{CONDITIONING_MEL, Column, DVAE_MEL, Dtype, SPEAKER_MEL, TOKENS};

/// Frames of conditioning that XTTS-v2 trains with: 6 s.
pub(crate) const CONDITIONING_FRAMES: u32 = 517;

/// Number of rows of a batch, over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// The same in every bucket.
    Fixed(u32),
    /// As many as fit a budget: a row of `T` frames costs `T + T^2 / quadratic`.
    Budget {
        /// Budget of a batch in frames.
        frames: u64,
        /// Length in frames at which attention costs as much as the rest; `None` counts frames only.
        quadratic: Option<u32>,
        /// Rows come in multiples of this (at least one multiple). Every rank count that divides it gives the same batches,
        /// so it is part of the order, and the rank count is not.
        multiple: u32,
    },
}

impl Rows {
    /// Returns the number of rows of a batch whose rows have `frames` frames.
    pub fn at(self, frames: u32) -> u32 {
        match self {
            Rows::Fixed(rows) => rows,
            Rows::Budget { frames: budget, quadratic, multiple } => {
                let t = u128::from(frames.max(1));
                // Over the common denominator, so that the cost is not rounded.
                let fitting = match quadratic {
                    Some(q) => u128::from(budget) * u128::from(q.max(1)) / (t * u128::from(q.max(1)) + t * t),
                    None => u128::from(budget) / t,
                };
                let multiple = multiple.max(1);
                let fitting = u32::try_from(fitting).unwrap_or(u32::MAX);
                (fitting / multiple).max(1) * multiple
            }
        }
    }
}

/// What happens to the records that do not fill a bucket's last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tail {
    /// The batch is filled up from the start of the bucket's own order. Every record occurs at least once per epoch, and at
    /// most twice if its bucket holds a whole batch (balance may repeat it).
    Fill,
    /// The batch is dropped; the order of the next epoch drops other records.
    Drop,
    /// The batch has fewer valid rows. Without balance every record occurs exactly once: for validation.
    Short,
}

/// Order of batches and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A different order in each epoch.
    Shuffled,
    /// By bucket and record number, always the same: for validation.
    Fixed,
}

/// Use of a record in a row; the source of a part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The record of the row.
    Own,
    /// Another record of the same speaker.
    Companion,
}

/// How much of an array is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Take {
    /// All of it. The bucket's shape has room for the length column and for the tokens.
    Whole,
    /// The given number of rows from a sampled position; all of a shorter array.
    Window(u32),
}

/// One array of a batch: `[rows, capacity, width]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Column to read.
    pub column: Column,
    /// Record to read it from.
    pub role: Role,
    /// How much of it to take.
    pub take: Take,
    /// Value of the padding after the end of the array.
    pub pad: f32,
    /// Extra rows taken after the counted ones, from an array that has as many more: used if computing a result for a row
    /// needs the rows that follow it. Reported lengths do not include them.
    pub overlap: u32,
}

impl Part {
    /// The whole array of the row's record.
    pub fn whole(column: Column) -> Self {
        Part { column, role: Role::Own, take: Take::Whole, pad: silence_value(&column), overlap: 0 }
    }

    /// A window of the array of the row's record.
    pub fn window(column: Column, rows: u32) -> Self {
        Part { column, role: Role::Own, take: Take::Window(rows), pad: silence_value(&column), overlap: 0 }
    }

    /// A window of the companion's array.
    pub fn companion(column: Column, rows: u32) -> Self {
        Part {
            column,
            role: Role::Companion,
            take: Take::Window(rows),
            pad: silence_value(&column),
            overlap: 0,
        }
    }

    /// Returns the part's name in a batch.
    pub fn name(&self) -> String {
        match self.role {
            Role::Own => self.column.name.to_owned(),
            Role::Companion => format!("companion_{}", self.column.name),
        }
    }

    /// [`pad`](Self::pad) as bytes of the column's type; unused bytes at the end are 0.
    pub(crate) fn pad_bytes(&self) -> [u8; 4] {
        match self.column.dtype {
            Dtype::F32 => self.pad.to_le_bytes(),
            Dtype::I32 => (self.pad as i32).to_le_bytes(),
            Dtype::I16 => {
                let [a, b] = (self.pad as i16).to_le_bytes();
                [a, b, 0, 0]
            }
        }
    }
}

/// Returns the value of a column in silence.
fn silence_value(column: &Column) -> f32 {
    if *column == DVAE_MEL || *column == CONDITIONING_MEL {
        LOG_OF_FLOOR
    } else if *column == SPEAKER_MEL {
        1e-6f32.ln()
    } else {
        0.0
    }
}

/// All settings of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Seed of all sampling.
    pub seed: Seed,
    /// Batch size.
    pub rows: Rows,
    /// What happens to the last batch of a bucket.
    pub tail: Tail,
    /// Shuffled or fixed.
    pub order: Order,
    /// Start with one batch of each bucket's longest records, largest bucket first: running out of memory shows at once, and
    /// every shape occurs early.
    pub worst_first: bool,
    /// Maximum number of shapes.
    pub buckets: u32,
    /// Shapes are multiples of this many frames.
    pub frame_unit: u32,
    /// Text capacities are multiples of this many tokens.
    pub token_unit: u32,
    /// Longer records are excluded and reported.
    pub max_frames: Option<u32>,
    /// Records with more tokens are excluded and reported.
    pub max_tokens: Option<u32>,
    /// Column whose length decides the bucket.
    pub length: Column,
    /// Arrays of a batch.
    pub parts: Vec<Part>,
    /// Shapes to use instead of fitting them: validation uses the shapes of training.
    pub ladder: Option<Ladder>,
    /// Temperature for balancing speakers and languages; 1 disables it.
    pub balance: f64,
}

impl Default for Settings {
    /// Settings of the GPT stage.
    fn default() -> Self {
        Settings {
            seed: Seed::new(0),
            rows: Rows::Fixed(56),
            tail: Tail::Fill,
            order: Order::Shuffled,
            worst_first: false,
            buckets: 8,
            frame_unit: 32,
            token_unit: 16,
            max_frames: None,
            max_tokens: None,
            length: DVAE_MEL,
            parts: vec![
                Part::whole(TOKENS),
                Part::whole(DVAE_MEL),
                Part::companion(CONDITIONING_MEL, CONDITIONING_FRAMES),
            ],
            ladder: None,
            balance: 1.0,
        }
    }
}

impl Settings {
    /// Returns the settings of a run, with the arrays of the GPT stage.
    pub fn from_plan(plan: &RunPlan) -> Self {
        let data = &plan.data;
        Settings {
            seed: Seed::new(plan.training.seed),
            rows: match data.frame_budget {
                None => Rows::Fixed(data.batch_size as u32),
                Some(frames) => Rows::Budget {
                    frames: frames as u64,
                    quadratic: data.quadratic_frames.map(|frames| frames as u32),
                    multiple: 1,
                },
            },
            order: if data.shuffle { Order::Shuffled } else { Order::Fixed },
            worst_first: data.worst_batch_first,
            buckets: data.buckets as u32,
            max_frames: Some(data.max_mel_frames as u32),
            max_tokens: Some(data.max_text_tokens as u32),
            balance: data.balance_temperature,
            ..Settings::default()
        }
    }

    /// Whether rows have companions.
    pub(crate) fn has_companions(&self) -> bool {
        self.parts.iter().any(|part| part.role == Role::Companion)
    }

    /// Whether the length of the text counts: only if text is part of the batch.
    pub(crate) fn has_tokens(&self) -> bool {
        self.parts.iter().any(|part| part.column == TOKENS && part.take == Take::Whole)
    }

    /// Returns the settings as text, by name; a saved state is compared by them.
    pub fn described(&self) -> BTreeMap<String, String> {
        let or_none = |limit: Option<u32>| limit.map_or("none".to_owned(), |limit| limit.to_string());
        let rows = match self.rows {
            Rows::Fixed(rows) => format!("{rows} rows"),
            Rows::Budget { frames, quadratic, multiple } => {
                format!("{frames} frames, quadratic {}, multiple {multiple}", or_none(quadratic))
            }
        };
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|part| match part.take {
                Take::Whole => format!("{} padded with {}", part.name(), part.pad),
                Take::Window(rows) => format!("{} cut to {rows} padded with {}", part.name(), part.pad),
            })
            .collect();
        [
            ("seed", self.seed.value().to_string()),
            ("batch size", rows),
            ("tail", format!("{:?}", self.tail).to_lowercase()),
            ("order", format!("{:?}", self.order).to_lowercase()),
            ("worst batch first", self.worst_first.to_string()),
            ("buckets", self.buckets.to_string()),
            ("frame unit", self.frame_unit.to_string()),
            ("token unit", self.token_unit.to_string()),
            ("max frames", or_none(self.max_frames)),
            ("max tokens", or_none(self.max_tokens)),
            ("balance temperature", self.balance.to_string()),
            ("length column", self.length.name.to_owned()),
            ("arrays", parts.join(", ")),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_holds_fewer_long_rows_than_short_ones() {
        let rows = Rows::Budget { frames: 32_000, quadratic: Some(1000), multiple: 1 };
        // 1000 + 1000^2 / 1000 = 2000 each
        assert_eq!(rows.at(1000), 16);
        assert_eq!(rows.at(500), 42);
        let linear = Rows::Budget { frames: 32_000, quadratic: None, multiple: 4 };
        assert_eq!((linear.at(1000), linear.at(900)), (32, 32));
        assert!((1..2000).all(|t| rows.at(t) >= rows.at(t + 1)), "the ladder relies on this");
    }

    #[test]
    fn a_row_larger_than_the_budget_still_gets_one_multiple() {
        let rows = Rows::Budget { frames: 100, quadratic: Some(1000), multiple: 4 };
        assert_eq!(rows.at(u32::MAX), 4);
        assert_eq!(rows.at(0), 96);
    }

    #[test]
    fn padding_has_the_type_of_the_column() {
        assert_eq!(Part::whole(TOKENS).pad_bytes(), [0; 4]);
        assert_eq!(Part::whole(DVAE_MEL).pad_bytes(), (-11.512_925f32).to_le_bytes());
        let part = Part { pad: -2.0, ..Part::window(crate::record::WAVEFORM, 8) };
        assert_eq!(part.pad_bytes(), [0xfe, 0xff, 0, 0]);
    }
}
