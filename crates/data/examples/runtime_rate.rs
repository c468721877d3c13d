//! Measures how fast one core makes the GPT stage's batches without a cache, from WAV files of 6.5 s. Prints one JSON object.
//!
//! ```text
//! cargo run --release -p myxtts-data --example runtime_rate -- [SECONDS] [FRAMES] [HERTZ]
//! ```
//!
//! FRAMES is the window of conditioning (517: preset small and above; 96: tiny). HERTZ is the rate of the files: at any
//! other than 22,050 they have to be resampled, so that a clip is read whole.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use myxtts_data::audio::wav::encode_pcm16;
use myxtts_data::batch::{Collator, Part, Plan, Rows, Settings};
use myxtts_data::cache::{Runtime, RuntimeOptions};
use myxtts_data::features::{Extractor, Recipe};
use myxtts_data::record::{COLUMNS, CONDITIONING_MEL, RecordSource, TOKENS};
use myxtts_data::tokenizer::{TrainOptions, train};
use myxtts_data::utterance::{Origin, Utterance};
use myxtts_run::progress::Silent;
use myxtts_run::seed::Seed;

const CLIPS: usize = 256;
const ROWS: u32 = 16;
const CLIP_SECONDS: f64 = 6.5;
const TEXT: &str = "the recordings of a library, read aloud one sentence after the other, number";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let frames: u32 = arguments.next().map_or(Ok(517), |text| text.parse())?;
    let hertz: u32 = arguments.next().map_or(Ok(22_050), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let utterances = (0..CLIPS)
        .map(|clip| {
            let audio = folder.path().join(format!("{clip:04}.wav"));
            let seed = Seed::new(clip as u64);
            let samples: Vec<f32> = (0..(CLIP_SECONDS * f64::from(hertz)) as u64)
                .map(|at| (at as f32 * 0.03).sin() * 0.3 + (seed.unit(at) as f32 - 0.5) * 0.1)
                .collect();
            std::fs::write(&audio, encode_pcm16(&samples, hertz))?;
            let origin = Origin { file: "synthetic".into(), line: None };
            let text = format!("{TEXT} {clip}");
            Ok(Utterance {
                id: format!("{clip:04}"),
                audio,
                text,
                speaker: "one".into(),
                language: "en".into(),
                origin,
            })
        })
        .collect::<Result<Vec<Utterance>, std::io::Error>>()?;
    let texts = utterances.iter().map(|u| (u.language.as_str(), u.text.as_str()));
    let tokenizer = train(texts, &TrainOptions { vocab_size: 400, ..TrainOptions::default() })?;
    let recipe = Recipe { columns: COLUMNS.to_vec(), ..Recipe::default() };
    let extractor = Arc::new(Extractor::new(recipe, tokenizer));
    // Nothing is cached: every clip is computed each time it is read.
    let options = RuntimeOptions { memory_bytes: 0, workers: 1, ..RuntimeOptions::default() };
    let began = Instant::now();
    let source: Arc<dyn RecordSource> = Arc::new(Runtime::open(&utterances, extractor, &options, &Silent)?);
    let opened = began.elapsed().as_secs_f64();
    let settings = Settings {
        rows: Rows::Fixed(ROWS),
        parts: vec![Part::whole(TOKENS), Part::companion(CONDITIONING_MEL, frames)],
        ..Settings::default()
    };
    let plan = Arc::new(Plan::new(&*source, 0..CLIPS as u32, settings)?);
    let collator = Collator::new(source, plan.clone(), 0, 1)?;
    let mut slab = vec![0; collator.slab_bytes()];
    let (mut clips, mut step) = (0, 0);
    let (mut reading, mut computing) = (Duration::ZERO, Duration::ZERO);
    let (began, before) = (Instant::now(), thread_seconds());
    while began.elapsed().as_secs_f64() < seconds {
        let info = collator.collate(step, &mut slab)?;
        clips += info.rows_valid;
        reading += info.reading.saturating_sub(info.computing);
        computing += info.computing;
        step += 1;
    }
    let (took, core) = (began.elapsed().as_secs_f64(), thread_seconds() - before);
    println!(
        "{}",
        serde_json::json!({
            "clips": CLIPS, "clip_seconds": CLIP_SECONDS, "hertz": hertz, "frames": frames,
            "open_seconds": opened, "clips_per_second": f64::from(clips) / took,
            "clips_per_core_second": f64::from(clips) / core,
            "reading_share": reading.as_secs_f64() / took, "computing_share": computing.as_secs_f64() / took,
        })
    );
    Ok(())
}

/// CPU seconds of this thread: other threads may use the core too.
fn thread_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}
