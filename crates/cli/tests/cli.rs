//! Tests of the program from the outside, one module per command or topic, and of the structure of the workspace.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "cli/bench.rs"]
mod bench;
#[path = "cli/cache.rs"]
mod cache;
#[cfg(unix)]
#[path = "cli/cache_under_train.rs"]
mod cache_under_train;
#[path = "cli/check.rs"]
mod check;
#[path = "cli/cleaner.rs"]
mod cleaner;
#[cfg(unix)]
#[path = "cli/cluster.rs"]
mod cluster;
#[path = "cli/compact.rs"]
mod compact;
#[path = "cli/concurrent_runs.rs"]
mod concurrent_runs;
#[path = "cli/config.rs"]
mod config;
#[path = "cli/demo_corpus.rs"]
mod demo_corpus;
#[path = "cli/devices.rs"]
mod devices;
#[path = "cli/diagnose.rs"]
mod diagnose;
#[path = "cli/docs.rs"]
mod docs;
#[path = "cli/edges.rs"]
mod edges;
#[path = "cli/evaluate.rs"]
mod evaluate;
#[path = "cli/fine_tuning.rs"]
mod fine_tuning;
#[path = "cli/first_steps.rs"]
mod first_steps;
#[path = "cli/formats.rs"]
mod formats;
#[path = "cli/full_disk.rs"]
mod full_disk;
#[path = "cli/held_out.rs"]
mod held_out;
#[path = "cli/inputs_kept.rs"]
mod inputs_kept;
#[path = "cli/inspect.rs"]
mod inspect;
#[path = "cli/messages.rs"]
mod messages;
#[cfg(unix)]
#[path = "cli/monitor.rs"]
mod monitor;
#[cfg(unix)]
#[path = "cli/ranks.rs"]
mod ranks;
#[cfg(unix)]
#[path = "cli/ranks_slices.rs"]
mod ranks_slices;
#[cfg(unix)]
#[path = "cli/regressions.rs"]
mod regressions;
#[path = "cli/retention.rs"]
mod retention;
#[path = "cli/serve.rs"]
mod serve;
#[path = "cli/settings.rs"]
mod settings;
#[path = "cli/shards.rs"]
mod shards;
#[cfg(unix)]
#[path = "cli/signals.rs"]
mod signals;
#[path = "cli/speak.rs"]
mod speak;
#[path = "cli/synthesize_corpus.rs"]
mod synthesize_corpus;
#[path = "../../speak/tests/speak/tiny.rs"]
mod tiny;
#[path = "cli/tokenizer.rs"]
mod tokenizer;
#[path = "cli/train.rs"]
mod train;
#[path = "cli/tune.rs"]
mod tune;
#[path = "cli/voice.rs"]
mod voice;
#[path = "cli/weights.rs"]
mod weights;
