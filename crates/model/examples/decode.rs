//! Measures how many codes per second a GPT of XTTS-v2's size generates on a GPU, by the number of concurrent
//! sequences. Its weights are random, and it never samples STOP. Prints one line of JSON per batch size.

use myxtts_model::sampling::Guards;
use myxtts_model::{GptSizes, Released, SamplingOptions, SlotOptions, Slots};
use myxtts_tensor::cuda::Cuda;
use myxtts_tensor::cuda::context::CudaOptions;
use myxtts_tensor::cuda::cupti::{KernelTimes, by_name};
use myxtts_tensor::random::Stream;
use serde_json::json;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

const USAGE: &str = "\
usage: decode [options]
  --layers 30 --width 1024 --heads 16 --audio-codes 1024   the network
  --batches 1,8,64      numbers of concurrent sequences, one measurement each
  --codes 600           codes per sequence
  --steps 16            steps queued at a time
  --text 60             tokens per text
  --greedy              always the most likely code
  --late-launch         start each kernel only after the previous one has ended
  --kernels             time of each kernel by CUPTI, over 32 steps after half of the codes";

struct Options {
    sizes: GptSizes,
    batches: Vec<usize>,
    codes: usize,
    steps: usize,
    text: usize,
    greedy: bool,
    late_launch: bool,
    kernels: bool,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let (mut layers, mut width, mut heads, mut codes) = (30, 1024, 16, 1024);
    let mut o = Options {
        sizes: GptSizes::v2(),
        batches: vec![1, 8, 64],
        codes: 600,
        steps: 16,
        text: 60,
        greedy: false,
        late_launch: false,
        kernels: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--layers" => layers = value()?.parse()?,
            "--width" => width = value()?.parse()?,
            "--heads" => heads = value()?.parse()?,
            "--audio-codes" => codes = value()?.parse()?,
            "--batches" => o.batches = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--codes" => o.codes = value()?.parse()?,
            "--steps" => o.steps = value()?.parse()?,
            "--text" => o.text = value()?.parse()?,
            "--greedy" => o.greedy = true,
            "--late-launch" => o.late_launch = true,
            "--kernels" => o.kernels = true,
            _ => return Err(USAGE.into()),
        }
    }
    o.sizes = GptSizes::of(layers, width, heads, 6681, codes);
    Ok(o)
}

/// Random weights, as slices of one array of normal samples: sampling each weight would take longer.
fn weights(sizes: &GptSizes) -> impl Fn(&Released) -> Result<Vec<f32>, myxtts_tensor::Error> {
    let normals = Stream::new(1).normals(1 << 20);
    let stop = sizes.stop_audio as usize;
    move |parameter| {
        let count: usize = parameter.shape.iter().product();
        let shift =
            parameter.name.bytes().fold(7usize, |hash, b| hash.wrapping_mul(131).wrapping_add(b.into()));
        let scale = if parameter.name.contains("embedding") { 0.3 } else { 0.02 };
        let norm = parameter.name.contains("ln_") || parameter.name.contains("final_norm");
        let base = if norm && parameter.name.ends_with("weight") { 1.0 } else { 0.0 };
        let mut data: Vec<f32> =
            (0..count).map(|i| base + scale * normals[(i + shift) % ((1 << 20) - 3)]).collect();
        if parameter.name == "gpt.mel_head.bias" {
            data[stop] = -1e9;
        }
        Ok(data)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let o = options()?;
    let cuda =
        Arc::new(Cuda::open(0, &CudaOptions { late_launch: o.late_launch, ..CudaOptions::default() })?);
    let most = o.batches.iter().copied().max().unwrap_or(1);
    let start = Instant::now();
    let mut slots =
        Slots::on_cuda(Arc::clone(&cuda), &o.sizes, SlotOptions { slots: most, ..SlotOptions::default() })?;
    slots.load(weights(&o.sizes))?;
    let load_s = start.elapsed().as_secs_f64();
    let codes = o.codes.min(o.sizes.max_audio - 3);
    for &batch in &o.batches {
        // Once to capture the graphs, once to be timed.
        speak(&mut slots, &o, batch, 2 * o.steps, None)?;
        let timed = speak(&mut slots, &o, batch, codes, None)?;
        let mut line = json!({
            "device": cuda.name(), "layers": o.sizes.layers, "width": o.sizes.width, "batch": batch,
            "codes": codes, "steps_at_a_time": o.steps, "text": o.text, "late_launch": o.late_launch,
            "together": slots.advances_together(), "load_s": load_s,
            "prompt_ms": timed.prompt_ms, "codes_per_s": timed.codes_per_s,
            "first_100_codes_per_s": timed.first, "last_100_codes_per_s": timed.last,
        });
        if o.kernels {
            line["kernels"] = kernels(&cuda, &mut slots, &o, batch, codes / 2)?;
        }
        println!("{line}");
    }
    Ok(())
}

struct Timed {
    prompt_ms: f64,
    codes_per_s: f64,
    first: f64,
    last: f64,
}

type Look<'a> = &'a mut dyn FnMut(&mut Slots) -> Result<(), Box<dyn Error>>;

/// Generates `codes` codes in `batch` slots; calls `then` with the slots before they are released.
fn speak(
    slots: &mut Slots,
    o: &Options,
    batch: usize,
    codes: usize,
    then: Option<Look<'_>>,
) -> Result<Timed, Box<dyn Error>> {
    let voice = Stream::new(3).normals(o.sizes.perceiver.latents * o.sizes.width);
    let start = Instant::now();
    let mut joined = Vec::new();
    for seed in 0..batch as u64 {
        let mut stream = Stream::new(seed);
        let text: Vec<i32> = (0..o.text).map(|_| stream.below(6000) as i32).collect();
        let guards = Guards::none();
        let options = SamplingOptions { seed, greedy: o.greedy, guards, ..SamplingOptions::default() };
        joined.push(slots.join(&voice, &text, &options)?);
    }
    let prompt_ms = start.elapsed().as_secs_f64() * 1e3 / batch as f64;
    let start = Instant::now();
    let (mut done, mut marks) = (0, vec![(0, 0.0)]);
    while done < codes {
        let steps = o.steps.min(codes - done);
        slots.advance(steps)?;
        for &slot in &joined {
            let taken = slots.take(slot)?;
            assert_eq!(taken.codes.len(), steps, "a sequence ended early: {:?}", taken.ended);
        }
        done += steps;
        marks.push((done, start.elapsed().as_secs_f64()));
    }
    let rate = |from: (usize, f64), to: (usize, f64)| batch as f64 * (to.0 - from.0) as f64 / (to.1 - from.1);
    let near = |code: usize| marks.iter().copied().min_by_key(|m| m.0.abs_diff(code)).unwrap_or((0, 0.0));
    let end = near(codes);
    let timed = Timed {
        prompt_ms,
        codes_per_s: rate(marks[0], end),
        first: rate(marks[0], near(100.min(codes))),
        last: rate(near(codes.saturating_sub(100)), end),
    };
    let seen = then.map_or(Ok(()), |then| then(slots));
    joined.into_iter().try_for_each(|slot| slots.leave(slot))?;
    seen.map(|()| timed)
}

/// Time of each kernel in a step, and of the step, in microseconds.
fn kernels(
    cuda: &Cuda,
    slots: &mut Slots,
    o: &Options,
    batch: usize,
    codes: usize,
) -> Result<serde_json::Value, Box<dyn Error>> {
    const STEPS: usize = 32;
    let mut made = serde_json::Value::Null;
    let mut look = |slots: &mut Slots| -> Result<(), Box<dyn Error>> {
        cuda.synchronize()?;
        slots.recapture()?;
        let times = KernelTimes::start()?;
        slots.advance(STEPS)?;
        cuda.synchronize()?;
        let records = times.stop()?.records;
        let table: serde_json::Map<_, _> = by_name(&records)
            .into_iter()
            .map(|(name, count, ns)| {
                let each = ns as f64 / 1e3 / count as f64;
                let of_step = ns as f64 / 1e3 / STEPS as f64;
                (name.to_string(), json!({ "count": count, "each_us": each, "of_step_us": of_step }))
            })
            .collect();
        made = serde_json::Value::Object(table);
        Ok(())
    };
    if let Err(reason) = speak(slots, o, batch, codes, Some(&mut look)) {
        return Ok(json!(reason.to_string()));
    }
    Ok(made)
}
