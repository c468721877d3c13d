//! Behaviour of the data path, one module per noun.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "data/audio.rs"]
mod audio;
#[path = "data/balance.rs"]
mod balance;
#[path = "data/batches.rs"]
mod batches;
#[path = "data/broken_audio.rs"]
mod broken_audio;
#[path = "data/cache.rs"]
mod cache;
#[path = "data/check.rs"]
mod check;
#[path = "data/dataset.rs"]
mod dataset;
#[path = "data/features.rs"]
mod features;
#[path = "data/fuzzed.rs"]
mod fuzzed;
#[path = "data/joined.rs"]
mod joined;
#[path = "data/loader.rs"]
mod loader;
#[path = "data/mel_goldens.rs"]
mod mel_goldens;
#[path = "../../../fuzz/mutator.rs"]
mod mutator;
#[path = "data/order.rs"]
mod order;
#[path = "data/overlay.rs"]
mod overlay;
#[path = "../../../fuzz/parsers/data.rs"]
mod parsers;
#[path = "data/phonemes.rs"]
mod phonemes;
#[path = "data/restores.rs"]
mod restores;
#[path = "data/split.rs"]
mod split;
#[path = "data/synthetic.rs"]
mod synthetic;
// The cleaned texts of the table are compared in the crate `text`; here only the written ones are read.
#[allow(dead_code)]
#[path = "../../text/tests/text/table.rs"]
mod table;
#[path = "data/tokenizer.rs"]
mod tokenizer;
