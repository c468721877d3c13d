//! Benchmarks XTTS's vocoder: forward and backward, forward only, and forward for one utterance. The same network
//! and sizes as the PyTorch peers under `bench/engine/`.

mod network;

use myxtts_tensor::cuda::context::CudaOptions;
use myxtts_tensor::engine::{OpTime, Streams};
use myxtts_tensor::random::Stream;
use myxtts_tensor::{
    Control, Device, Engine, EngineOptions, InitialWeights, Mode, Precision, Program, Training,
};
use network::{Generator, ProgramIo, input_steps};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: hifigan_step [options]
  --batch 16 --frames 32       utterances, and latents of each
  --device cuda|cuda:N|cpu     device (default: the first GPU, or the CPU)
  --precision bf16|f32         type of activations (default: bf16 on CUDA)
  --late-launch                start each kernel only after the previous one has finished
  --tf32                       round f32 products to TF32
  --steps 40 --warm 5          timed runs of each program, and warm-up runs
  --eager                      queue kernel by kernel instead of replaying a graph
  --two-streams                run weight gradients on a second stream
  --profile                    time by operation
  --json                       one line of JSON";

struct Options {
    batch: usize,
    frames: usize,
    device: Device,
    precision: Option<Precision>,
    tf32: bool,
    late_launch: bool,
    steps: usize,
    warm: usize,
    mode: Mode,
    streams: Streams,
    profile: bool,
    json: bool,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let first = if myxtts_tensor::cuda::Cuda::open(0, &CudaOptions::default()).is_ok() {
        Device::Cuda(0)
    } else {
        Device::Cpu
    };
    let mut o = Options {
        batch: 16,
        frames: 32,
        device: first,
        precision: None,
        tf32: false,
        late_launch: false,
        steps: 40,
        warm: 5,
        mode: Mode::Captured,
        streams: Streams::One,
        profile: false,
        json: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--batch" => o.batch = value()?.parse()?,
            "--frames" => o.frames = value()?.parse()?,
            "--device" => o.device = value()?.parse()?,
            "--precision" => {
                o.precision = Some(match value()?.as_str() {
                    "bf16" => Precision::Bf16,
                    "f32" => Precision::F32,
                    other => return Err(format!("unknown precision {other}\n{USAGE}").into()),
                });
            }
            "--tf32" => o.tf32 = true,
            "--late-launch" => o.late_launch = true,
            "--steps" => o.steps = value()?.parse()?,
            "--warm" => o.warm = value()?.parse()?,
            "--eager" => o.mode = Mode::Eager,
            "--two-streams" => o.streams = Streams::Two,
            "--profile" => o.profile = true,
            "--json" => o.json = true,
            _ => return Err(format!("{word}?\n{USAGE}").into()),
        }
    }
    if o.batch == 0 || o.frames == 0 || o.steps == 0 {
        return Err(format!("at least one utterance, one latent, one step\n{USAGE}").into());
    }
    Ok(o)
}

/// One of the three programs with its measurements.
struct Measured {
    name: &'static str,
    batch: usize,
    program: Program,
    /// From the end of one run to the end of the next, with a few in flight.
    median: f64,
    /// All runs queued and waited for once, divided by their number.
    mean: f64,
    /// Host time of a run.
    host: f64,
    power: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let o = options()?;
    let precision = o.precision.unwrap_or(match o.device {
        Device::Cpu => Precision::F32,
        Device::Cuda(_) => Precision::Bf16,
    });
    let generator = Generator::new();
    let settings = EngineOptions {
        training: Training::Adam,
        mode: o.mode,
        streams: o.streams,
        seed: 1,
        initial: InitialWeights::Sampled,
        cuda: CudaOptions { tf32: o.tf32, late_launch: o.late_launch, ..CudaOptions::default() },
    };
    let mut engine = Engine::new(o.device, Arc::clone(&generator.layout), precision, settings)?;
    // Largest first: scratch memory that grows later would move, and graphs captured before would be captured
    // again.
    let work =
        [("forward + backward", o.batch, true), ("forward", o.batch, false), ("forward, batch 1", 1, false)];
    let mut measured = Vec::new();
    for (name, batch, gradients) in work {
        let (tape, ports) = generator.tape(precision, batch, o.frames, gradients);
        let program = engine.load(tape)?;
        measured.push(measure(&mut engine, program, ports, (name, batch), &o)?);
    }
    if o.json {
        println!("{}", json(&o, precision, &engine, &measured));
    } else {
        report(&o, precision, &engine, &generator, &measured);
    }
    if o.profile {
        for one in &mut measured {
            println!("\n{}:", one.name);
            profile(engine.profile(&mut one.program, &Control::default())?);
        }
    }
    Ok(())
}

fn measure(
    engine: &mut Engine,
    mut program: Program,
    ports: ProgramIo,
    (name, batch): (&'static str, usize),
    o: &Options,
) -> Result<Measured, Box<dyn Error>> {
    let mut random = Stream::new(7);
    for value in [ports.latents, ports.speaker] {
        let data = random.normals(program.tape().shape(value).len());
        engine.write(&program, value, &data)?;
    }
    let control = Control::default();
    // The first run times products, the second captures.
    for _ in 0..o.warm.max(2) {
        engine.run(&mut program, &control)?;
    }
    // On the CPU a run is finished when it returns.
    let ahead = if o.device == Device::Cpu { 0 } else { 3 };
    let (mut flying, mut host, mut ends) = (VecDeque::new(), Duration::ZERO, Vec::new());
    for _ in 0..o.steps + 1 {
        let start = Instant::now();
        flying.push_back(engine.submit(&mut program, &control)?);
        host += start.elapsed();
        if flying.len() > ahead
            && let Some(ticket) = flying.pop_front()
        {
            engine.wait(ticket)?;
            ends.push(Instant::now());
        }
    }
    for ticket in flying {
        engine.wait(ticket)?;
        ends.push(Instant::now());
    }
    let mut times: Vec<f64> = ends.windows(2).map(|w| (w[1] - w[0]).as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    engine.synchronize()?;
    let start = Instant::now();
    for _ in 0..o.steps {
        engine.submit(&mut program, &control)?;
    }
    engine.synchronize()?;
    let mean = start.elapsed().as_secs_f64() / o.steps as f64;
    let wave = engine.read(&program, ports.wave)?;
    let power = wave.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / wave.len() as f64;
    if !power.is_finite() {
        return Err(format!("{name}: the waveform is not finite").into());
    }
    let (median, host) = (times[times.len() / 2], host.as_secs_f64() / (o.steps + 1) as f64);
    Ok(Measured { name, batch, program, median, mean, host, power })
}

/// Seconds of audio in the given number of latents.
fn audio_seconds(frames: usize) -> f64 {
    (input_steps(frames) * 256) as f64 / 24_000.0
}

fn json(o: &Options, precision: Precision, engine: &Engine, measured: &[Measured]) -> String {
    let runs: Vec<String> = measured
        .iter()
        .map(|m| {
            format!(
                "{{\"name\":\"{}\",\"batch\":{},\"median_ms\":{:.4},\"mean_ms\":{:.4},\"host_ms\":{:.4},\
                 \"kernels\":{},\"operations\":{},\"scratch_bytes\":{},\"power\":{:e}}}",
                m.name,
                m.batch,
                m.median * 1e3,
                m.mean * 1e3,
                m.host * 1e3,
                m.program.captured_nodes().map_or("null".into(), |n| n.to_string()),
                m.program.tape().nodes().len(),
                m.program.plan().scratch_bytes,
                m.power
            )
        })
        .collect();
    format!(
        "{{\"frames\":{},\"device\":\"{}\",\"precision\":\"{precision:?}\",\"planned_bytes\":{},\"runs\":[{}]}}",
        o.frames,
        o.device,
        engine.memory().total(),
        runs.join(",")
    )
}

fn report(o: &Options, precision: Precision, engine: &Engine, generator: &Generator, measured: &[Measured]) {
    println!("{} latents each on {}, {precision:?}, {:?}, {:?}", o.frames, o.device, o.mode, o.streams);
    let parameters = generator.layout.trained_count();
    println!("{parameters} parameters; memory as planned:\n{}", engine.memory());
    for m in measured {
        println!(
            "{:<18} batch {:>2}: median {:.3} ms, mean {:.3} ms, host {:.3} ms; {:.1} s of sound a second; {} operations, \
             {} kernels recorded; {:.0} MiB of work memory; mean square {:.3e}",
            m.name,
            m.batch,
            m.median * 1e3,
            m.mean * 1e3,
            m.host * 1e3,
            m.batch as f64 * audio_seconds(o.frames) / m.median,
            m.program.tape().nodes().len(),
            m.program.captured_nodes().map_or("no".into(), |n| n.to_string()),
            m.program.plan().scratch_bytes as f64 / f64::from(1 << 20),
            m.power
        );
    }
}

fn profile(times: Vec<OpTime>) {
    let mut sums: BTreeMap<(&str, String), (Duration, usize)> = BTreeMap::new();
    for time in &times {
        let entry = sums.entry((time.op, time.shape.clone())).or_default();
        entry.0 += time.time;
        entry.1 += 1;
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(_, (time, _))| std::cmp::Reverse(*time));
    println!("{:<20} {:<24} {:>5} {:>10} {:>9}", "operation", "result", "times", "ms total", "us each");
    let mut by_name: BTreeMap<&str, Duration> = BTreeMap::new();
    for ((op, shape), (time, count)) in rows {
        *by_name.entry(op).or_default() += time;
        let ms = time.as_secs_f64() * 1e3;
        println!("{op:<20} {shape:<24} {count:>5} {ms:>10.3} {:>9.1}", ms * 1e3 / count as f64);
    }
    let mut by_name: Vec<_> = by_name.into_iter().collect();
    by_name.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    for (op, time) in by_name {
        println!("{op:<20} {:.3} ms", time.as_secs_f64() * 1e3);
    }
    println!("{:.3} ms total", times.iter().map(|t| t.time).sum::<Duration>().as_secs_f64() * 1e3);
}
