//! From a folder of recordings to batches that are ready before they are needed. Contains no tensors.
//!
//! Opens a corpus and makes a batch:
//!
//! ```
//! use std::sync::Arc;
//!
//! use myxtts_data::batch::{Collator, Plan, Rows, Settings};
//! use myxtts_data::cache::{Runtime, RuntimeOptions};
//! use myxtts_data::dataset::{self, ReadOptions};
//! use myxtts_data::features::{Extractor, Recipe};
//! use myxtts_data::record::RecordSource;
//! use myxtts_data::tokenizer::{self, TrainOptions};
//! use myxtts_demo::DemoOptions;
//! use myxtts_run::progress::Silent;
//!
//! let folder = tempfile::tempdir()?;
//! myxtts_demo::write(folder.path(), &DemoOptions { utterances: 4, ..DemoOptions::default() }, &Silent)?;
//!
//! let corpus = dataset::read(folder.path(), &ReadOptions::default())?;
//! let texts = corpus.utterances.iter().map(|one| (one.language.as_str(), one.text.as_str()));
//! let tokenizer = tokenizer::train(texts, &TrainOptions { vocab_size: 400, ..TrainOptions::default() })?;
//! let extractor = Arc::new(Extractor::new(Recipe::default(), tokenizer));
//! let records = Runtime::open(&corpus.utterances, extractor, &RuntimeOptions::default(), &Silent)?;
//! let records: Arc<dyn RecordSource> = Arc::new(records);
//!
//! let settings = Settings { rows: Rows::Fixed(2), ..Settings::default() };
//! let plan = Arc::new(Plan::new(&*records, 0..records.len() as u32, settings)?);
//! let collator = Collator::new(records, plan, 0, 1)?;
//! let mut slab = vec![0; collator.slab_bytes()];
//! let batch = collator.collate(0, &mut slab)?;
//! assert_eq!(batch.rows_valid, 2);
//! for field in batch.layout.fields() {
//!     println!("{} {:?} at byte {}", field.name, field.shape, field.offset);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Modules in the order the data passes through them:
//!
//! | module | output |
//! |---|---|
//! | [`dataset`] | [`utterance::Utterance`]: id, audio file, text, speaker, language |
//! | [`audio`] | `Clip`: mono samples at a known rate |
//! | [`mel`] | log-mel frames of the three XTTS front-ends |
//! | [`tokenizer`] | token ids |
//! | [`features`] | the arrays of one utterance |
//! | [`check`] | a report of every [`problem::Problem`] |
//! | [`cache`] | shards of arrays with a checksummed index; a [`record::RecordSource`] |
//! | [`order`] | the record at each position |
//! | [`batch`] | collated batches in the caller's memory |
//! | [`loader`] | batches made ahead of time by worker threads |

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
