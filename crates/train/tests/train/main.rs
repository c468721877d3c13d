//! Integration tests of training and evaluation.

// Helpers of tests are tests too; clippy only exempts functions marked as tests.
#![allow(clippy::unwrap_used)]

mod simulated;
mod small;
mod synthetic;
// Shared with other crates, which speak with it.
#[allow(dead_code)]
#[path = "../../../speak/tests/speak/tiny.rs"]
mod tiny;

mod accumulation;
mod align;
mod bad_records;
mod best;
mod chart;
mod checked;
mod codes;
mod conditioning;
mod diagnose;
mod evaluate;
mod feed;
mod flat;
mod guards;
mod injected_faults;
mod interrupted;
mod kills;
mod mirrored;
mod module_cycles;
mod no_batches;
mod notes;
mod portable;
mod preview;
mod prompts;
mod recognizer;
mod resume;
mod samples;
mod strategy;
mod tune;
mod vocabulary;
mod whole_batch;
