//! From a demo corpus to records: the cache and runtime mode must agree, and settings must have their effect.

use std::collections::BTreeSet;
use std::sync::Arc;

use myxtts_data::audio::{self, Clip, Resampler, wav};
use myxtts_data::batch::{Collator, Plan, Rows, Settings};
use myxtts_data::cache::{self, Featurizer, PrepareOptions, Runtime, RuntimeOptions, Store};
use myxtts_data::dataset::{self, Corpus, ReadOptions};
use myxtts_data::features::{Extractor, INPUT_SAMPLE_RATE, OUTPUT_SAMPLE_RATE, Recipe};
use myxtts_data::record::{COLUMNS, RecordSource};
use myxtts_data::tokenizer::{Tokenizer, TrainOptions, train};
use myxtts_data::utterance::Utterance;
use myxtts_demo::{self as demo, DemoOptions};
use myxtts_run::config::keys;
use myxtts_run::progress::Silent;
use myxtts_run::seed::Seed;
use myxtts_text::Cleaner;

fn corpus(folder: &std::path::Path) -> Corpus {
    let options = DemoOptions { utterances: 8, ..DemoOptions::default() };
    demo::write(folder, &options, &Silent).unwrap();
    dataset::read(folder, &ReadOptions::default()).unwrap()
}

fn tokenizer(corpus: &Corpus) -> Tokenizer {
    let texts = corpus.utterances.iter().map(|u| (u.language.as_str(), u.text.as_str()));
    train(texts, &TrainOptions { vocab_size: 400, ..TrainOptions::default() }).unwrap()
}

fn everything() -> Recipe {
    Recipe { columns: COLUMNS.to_vec(), ..Recipe::default() }
}

/// The demo corpus, with some clips that have to be decoded whole and some that cannot be used.
fn odd_corpus(folder: &std::path::Path) -> Corpus {
    let mut corpus = corpus(folder);
    let rewrite = |utterance: &Utterance, change: &dyn Fn(Clip) -> Vec<u8>| {
        let clip = audio::decode(&utterance.audio).unwrap().clip;
        std::fs::write(&utterance.audio, change(clip)).unwrap();
    };
    // Whatever the demo's sample rate: some clips at the input rate, some at others.
    for (n, utterance) in corpus.utterances.iter_mut().enumerate() {
        let rate = [22_050, 22_050, 44_100, 16_000][n % 4];
        rewrite(utterance, &|clip| {
            wav::encode_pcm16(&Resampler::new(clip.sample_rate, rate).resample(&clip.samples), rate)
        });
    }
    rewrite(&corpus.utterances[5], &|clip| wav::encode_pcm16(&vec![0.0; clip.samples.len()], 22_050));
    corpus
}

#[test]
fn the_cache_and_runtime_mode_give_the_same_records() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = odd_corpus(&folder.path().join("demo"));
    for (n, loudness_lufs) in [None, Some(-20.0)].into_iter().enumerate() {
        let recipe = Recipe { loudness_lufs, ..everything() };
        let extractor = Arc::new(Extractor::new(recipe, tokenizer(&corpus)));
        let dir = folder.path().join(format!("cache{n}"));
        let options = PrepareOptions { workers: 2, failure_budget: 0.2, ..PrepareOptions::default() };
        let prepared = cache::prepare(&dir, &corpus.utterances, &*extractor, &options, &Silent).unwrap();
        let store = Store::open(&dir).unwrap();
        // First read in pieces, then with everything kept in memory.
        let memory_bytes = if n == 0 { 0 } else { 1 << 30 };
        let options = RuntimeOptions { failure_budget: 0.2, memory_bytes, ..RuntimeOptions::default() };
        let runtime = Runtime::open(&corpus.utterances, extractor.clone(), &options, &Silent).unwrap();
        assert_eq!(runtime.keeps_all(), n > 0);
        assert_eq!((store.len(), runtime.len(), runtime.piecewise_records()), (7, 7, 3));
        assert_eq!(runtime.problems(), prepared.problems);
        for record in 0..store.len() {
            assert_eq!(store.id(record), runtime.id(record));
            for (at, column) in COLUMNS.iter().enumerate() {
                let rows = store.rows(record, at);
                assert!(rows > 0);
                assert_eq!(rows, runtime.rows(record, at), "{} of {}", column.name, store.id(record));
                // All rows, the beginning, a piece from the middle, the end, and rows past the end.
                for (first, count) in [(0, rows + 3), (0, 1), (rows / 3, 5), (rows - 2, 9), (rows, 4)] {
                    let read = |source: &dyn RecordSource| {
                        let mut out = vec![0xAA; count as usize * column.row_bytes()];
                        let rows = source.read(record, at, first, &mut out).unwrap();
                        (rows, out)
                    };
                    assert!(
                        read(&store) == read(&runtime),
                        "{count} from {first} of {rows}, {} of {}",
                        column.name,
                        store.id(record)
                    );
                }
            }
        }
    }
}

#[test]
fn batches_are_the_same_bytes_with_and_without_a_cache() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = odd_corpus(&folder.path().join("demo"));
    let extractor = Arc::new(Extractor::new(everything(), tokenizer(&corpus)));
    let dir = folder.path().join("cache");
    let options = PrepareOptions { failure_budget: 0.2, ..PrepareOptions::default() };
    cache::prepare(&dir, &corpus.utterances, &*extractor, &options, &Silent).unwrap();
    let options = RuntimeOptions { failure_budget: 0.2, memory_bytes: 0, ..RuntimeOptions::default() };
    let runtime = Runtime::open(&corpus.utterances, extractor, &options, &Silent).unwrap();
    let batches = |source: Arc<dyn RecordSource>| -> Vec<Vec<u8>> {
        let settings =
            Settings { rows: Rows::Fixed(3), seed: Seed::new(5), buckets: 2, ..Settings::default() };
        let plan = Arc::new(Plan::new(&*source, 0..source.len() as u32, settings).unwrap());
        let collator = Collator::new(source, plan, 0, 1).unwrap();
        let made = (0..12).map(|step| {
            let mut slab = vec![0; collator.slab_bytes()];
            let info = collator.collate(step, &mut slab).unwrap();
            slab.truncate(info.layout.bytes());
            slab
        });
        made.collect()
    };
    assert!(batches(Arc::new(Store::open(&dir).unwrap())) == batches(Arc::new(runtime)));
}

#[test]
fn a_file_that_changed_after_opening_is_bad_data() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = odd_corpus(&folder.path().join("demo"));
    let extractor = Arc::new(Extractor::new(everything(), tokenizer(&corpus)));
    let utterance = &corpus.utterances[0];
    let bytes = std::fs::read(&utterance.audio).unwrap();
    for memory_bytes in [0, 1 << 30] {
        std::fs::write(&utterance.audio, &bytes).unwrap();
        let options = RuntimeOptions { failure_budget: 0.2, memory_bytes, ..RuntimeOptions::default() };
        let runtime = Runtime::open(&corpus.utterances, extractor.clone(), &options, &Silent).unwrap();
        let record = (0..runtime.len()).find(|&record| runtime.id(record) == utterance.id).unwrap();
        let read = |column: usize| runtime.read(record, column, 0, &mut [0; 640]);
        assert_eq!(read(2).unwrap(), 2);
        // Half of its samples in a valid file.
        let half = 44 + (bytes.len() - 44) / 4 * 2;
        let mut changed = bytes[..half].to_vec();
        changed[4..8].copy_from_slice(&((half - 8) as u32).to_le_bytes());
        changed[40..44].copy_from_slice(&((half - 44) as u32).to_le_bytes());
        std::fs::write(&utterance.audio, changed).unwrap();
        // Reads another array, because the first may be cached.
        let error = read(1).unwrap_err().to_string();
        assert!(error.contains(&utterance.id) && error.contains("changed"), "{memory_bytes}: {error}");
    }
}

/// Steps of a store as ids: the order that a model would see.
fn order_of(store: &Store) -> Vec<Vec<String>> {
    let settings = Settings { rows: Rows::Fixed(3), seed: Seed::new(5), buckets: 2, ..Settings::default() };
    let plan = Plan::new(store, 0..store.len() as u32, settings).unwrap();
    (0..20).map(|step| plan.step(step).records().flatten().map(|r| store.id(r as usize)).collect()).collect()
}

#[test]
fn the_order_does_not_depend_on_shards_workers_or_the_order_of_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(&folder.path().join("demo"));
    let extractor = Extractor::new(Recipe::default(), tokenizer(&corpus));
    let mut reversed = corpus.utterances.clone();
    reversed.reverse();
    let mut seen = Vec::new();
    for (n, (shard_size, workers)) in [(64, 1), (4, 2), (1, 3), (2, 1)].into_iter().enumerate() {
        let dir = folder.path().join(format!("cache{n}"));
        let options = PrepareOptions { workers, shard_size, ..PrepareOptions::default() };
        let utterances = if n % 2 == 0 { &corpus.utterances } else { &reversed };
        cache::prepare(&dir, utterances, &extractor, &options, &Silent).unwrap();
        let store = Store::open(&dir).unwrap();
        for utterance in &corpus.utterances {
            let record = store.find(&utterance.id).unwrap();
            assert_eq!(store.id(record), utterance.id);
        }
        seen.push((store.index().shards(), order_of(&store), store.fingerprint()));
    }
    assert_eq!(seen.iter().map(|(shards, ..)| *shards).collect::<Vec<_>>(), [1, 2, 8, 4]);
    for (_, order, fingerprint) in &seen[1..] {
        assert_eq!((order, fingerprint), (&seen[0].1, &seen[0].2));
    }
}

#[test]
fn the_arrays_of_a_record_cover_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(&folder.path().join("demo"));
    let extractor = Extractor::new(everything(), tokenizer(&corpus));
    let whole = Extractor::new(Recipe { trim_db: None, ..everything() }, tokenizer(&corpus));
    for utterance in &corpus.utterances {
        let bytes = std::fs::read(&utterance.audio).unwrap();
        let features = extractor.compute(utterance, &bytes).unwrap();
        let rows: Vec<usize> = COLUMNS
            .iter()
            .zip(&features.arrays)
            .map(|(column, array)| array.len() / column.row_bytes())
            .collect();
        let samples = (features.seconds * INPUT_SAMPLE_RATE as f32).round() as usize;
        assert_eq!(rows[1], 1 + samples / 256);
        assert_eq!(rows[2], rows[1]);
        let at_16k = samples * 16_000 / INPUT_SAMPLE_RATE as usize;
        assert!(rows[3].abs_diff(1 + at_16k / 160) <= 1);
        let at_24k = samples * OUTPUT_SAMPLE_RATE as usize / INPUT_SAMPLE_RATE as usize;
        assert!(rows[4].abs_diff(at_24k) <= 2, "{} and {at_24k}", rows[4]);
        // The demo's clips begin and end with silence, so trimming must have removed some.
        assert!(whole.compute(utterance, &bytes).unwrap().seconds > features.seconds + 0.05);
    }
}

#[test]
fn every_setting_of_the_recipe_changes_the_fingerprint() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(&folder.path().join("demo"));
    let base = Recipe::default();
    let recipes = [
        base.clone(),
        Recipe { columns: base.columns[..2].to_vec(), ..base.clone() },
        Recipe { trim_db: None, ..base.clone() },
        Recipe { trim_db: Some(40.0), ..base.clone() },
        Recipe { loudness_lufs: Some(-23.0), ..base.clone() },
        Recipe { min_seconds: 0.4, ..base.clone() },
        Recipe { max_mel_frames: 999, ..base.clone() },
        Recipe { max_text_tokens: 399, ..base.clone() },
        Recipe { cleaner: Cleaner::Coqui, ..base.clone() },
    ];
    let mut prints: Vec<[u8; 32]> =
        recipes.into_iter().map(|r| Extractor::new(r, tokenizer(&corpus)).fingerprint()).collect();
    let other = train([("en", "other words")], &TrainOptions { vocab_size: 400, ..TrainOptions::default() });
    prints.push(Extractor::new(base, other.unwrap()).fingerprint());
    let count = prints.len();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), count);
}

#[test]
fn clips_outside_the_limits_are_rejected_with_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(&folder.path().join("demo"));
    let utterance = &corpus.utterances[0];
    let bytes = std::fs::read(&utterance.audio).unwrap();
    let rejection = |recipe: Recipe| {
        Extractor::new(recipe, tokenizer(&corpus)).compute(utterance, &bytes).unwrap_err().to_string()
    };
    assert!(rejection(Recipe { min_seconds: 60.0, ..Recipe::default() }).contains("the minimum is 60.00 s"));
    assert!(rejection(Recipe { max_mel_frames: 20, ..Recipe::default() }).contains("the maximum is 20"));
    assert!(rejection(Recipe { max_text_tokens: 2, ..Recipe::default() }).contains("the maximum is 2"));
}

#[test]
fn the_names_in_the_configuration_are_those_of_this_crate() {
    // Detection tries layouts in its own order; only the names must agree.
    let formats: BTreeSet<&str> = dataset::Format::ALL.iter().map(|format| format.name()).collect();
    assert_eq!(keys::FORMATS[0], "auto");
    assert_eq!(keys::FORMATS[1..].iter().copied().collect::<BTreeSet<_>>(), formats);
    assert_eq!(keys::COLUMNS, COLUMNS.map(|column| column.name));
}
