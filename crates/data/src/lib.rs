//! From a folder of recordings to batches that are ready before they are needed. No tensor in it.
//!
//! Modules in the order the data passes through them:
//!
//! | module | what leaves it |
//! |---|---|
//! | [`dataset`] | [`utterance::Utterance`]: id, audio file, text, speaker, language |
//! | [`audio`] | `Clip`: mono samples at a known rate |
//! | [`mel`] | log-mel frames of the three XTTS front-ends |
//! | [`tokenizer`] | token ids |
//! | [`features`] | one utterance's arrays |
//! | [`check`] | a report of every [`problem::Problem`] |
//! | [`cache`] | shards of arrays behind a checksummed index; a [`record::RecordSource`] |
//! | [`order`] | which record stands at which position |
//! | [`batch`] | collated batches in the caller's memory |
//! | [`loader`] | the threads that make them ahead of time |

pub mod audio;
pub mod batch;
pub mod cache;
pub mod check;
pub mod dataset;
pub mod features;
pub mod loader;
pub mod mel;
pub mod npy;
pub mod order;
pub mod problem;
pub mod record;
pub mod tokenizer;
pub mod utterance;
