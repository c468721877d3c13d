//! Benchmarks one training step of a GPT: time, device utilisation and memory. The same network and sizes as the
//! PyTorch peers under `bench/engine/`.

mod network;

use myxtts_tensor::cuda::context::CudaOptions;
use myxtts_tensor::cuda::cupti::{KernelTimes, busy, by_name};
use myxtts_tensor::engine::{OpTime, Streams};
use myxtts_tensor::random::Stream;
use myxtts_tensor::{
    Control, Device, Engine, EngineOptions, InitialWeights, Mode, Precision, Program, Recompute, Training,
};
use network::{Build, Gpt, Sizes, Step};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: gpt_step [options]
  --layers 30 --width 1024 --heads 16 --vocabulary 7000 --batch 16 --time 512   the network and its batch
  --device cuda|cuda:N|cpu     device (default: the first GPU, or the CPU)
  --precision bf16|f32         type of activations (default: bf16 on CUDA)
  --late-launch                start each kernel only after the previous one has finished
  --tf32                       round f32 products to TF32
  --steps 60 --warm 10         timed steps, and warm-up steps
  --eager                      queue kernel by kernel instead of replaying a graph
  --recompute none|norms|all   what the backward pass recomputes: nothing, norms (default), activations too
  --two-streams                run weight gradients on a second stream
  --checkpoint                 recompute whole blocks
  --busy                       kernel time over wall time, by CUPTI
  --soak                       device and host memory after a tenth of the steps and at the end
  --profile                    time by operation
  --json                       one line of JSON";

struct Options {
    sizes: Sizes,
    device: Device,
    precision: Option<Precision>,
    tf32: bool,
    late_launch: bool,
    steps: usize,
    warm: usize,
    mode: Mode,
    streams: Streams,
    build: Build,
    busy: bool,
    soak: bool,
    profile: bool,
    json: bool,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let sizes = Sizes { layers: 30, width: 1024, heads: 16, vocabulary: 7000, batch: 16, time: 512 };
    let first = if myxtts_tensor::cuda::Cuda::open(0, &CudaOptions::default()).is_ok() {
        Device::Cuda(0)
    } else {
        Device::Cpu
    };
    let mut o = Options {
        sizes,
        device: first,
        precision: None,
        tf32: false,
        late_launch: false,
        steps: 60,
        warm: 10,
        mode: Mode::Captured,
        streams: Streams::One,
        build: Build { recompute: Recompute::Norms, ..Build::default() },
        busy: false,
        soak: false,
        profile: false,
        json: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--layers" => o.sizes.layers = value()?.parse()?,
            "--width" => o.sizes.width = value()?.parse()?,
            "--heads" => o.sizes.heads = value()?.parse()?,
            "--vocabulary" => o.sizes.vocabulary = value()?.parse()?,
            "--batch" => o.sizes.batch = value()?.parse()?,
            "--time" => o.sizes.time = value()?.parse()?,
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
            "--recompute" => {
                o.build.recompute = match value()?.as_str() {
                    "none" => Recompute::Marked,
                    "norms" => Recompute::Norms,
                    "all" => Recompute::Cheap,
                    other => return Err(format!("unknown option {other}\n{USAGE}").into()),
                };
            }
            "--two-streams" => o.streams = Streams::Two,
            "--checkpoint" => o.build.checkpoint = true,
            "--busy" => o.busy = true,
            "--soak" => o.soak = true,
            "--profile" => o.profile = true,
            "--json" => o.json = true,
            _ => return Err(format!("{word}?\n{USAGE}").into()),
        }
    }
    Ok(o)
}

fn main() -> Result<(), Box<dyn Error>> {
    let o = options()?;
    let precision = o.precision.unwrap_or(match o.device {
        Device::Cpu => Precision::F32,
        Device::Cuda(_) => Precision::Bf16,
    });
    let started = Instant::now();
    let gpt = Gpt::new(o.sizes);
    let settings = EngineOptions {
        training: Training::Adam,
        mode: o.mode,
        streams: o.streams,
        seed: 1,
        initial: InitialWeights::Sampled,
        cuda: CudaOptions { tf32: o.tf32, late_launch: o.late_launch, ..CudaOptions::default() },
    };
    let free = |engine: &Engine| engine.cuda().and_then(|c| c.memory().ok()).map_or(0, |(free, _)| free);
    let mut engine = Engine::new(o.device, Arc::clone(&gpt.layout), precision, settings)?;
    let ready = started.elapsed();
    let (tape, step) = gpt.step(precision, o.build);
    let mut program = engine.load(tape)?;
    feed(&engine, &program, step, o.sizes)?;
    let control = Control { rate: 1e-4, ..Control::default() };
    let first = engine.run(&mut program, &control)?;
    for _ in 0..o.warm {
        engine.run(&mut program, &control)?;
    }
    let used = engine
        .cuda()
        .and_then(|c| c.memory().ok())
        .map_or(0, |(_, total)| total)
        .saturating_sub(free(&engine));
    let tenth = if o.soak { o.steps / 10 } else { 0 };
    if o.soak {
        timed(&mut engine, &mut program, &control, tenth)?;
        println!("after {tenth} steps: {}", memory_in_use(&engine));
    }
    let times = timed(&mut engine, &mut program, &control, o.steps - tenth)?;
    if o.soak {
        println!("after {} steps: {}", o.steps, memory_in_use(&engine));
    }
    let last = engine.run(&mut program, &control)?;
    let share = if o.busy { Some(busy_share(&mut engine, &mut program, &control)?) } else { None };
    let need = engine.memory();
    let samples = o.sizes.batch as f64 / times.median;
    if o.json {
        println!(
            "{{\"layers\":{},\"width\":{},\"batch\":{},\"time\":{},\"device\":\"{}\",\"precision\":\"{precision:?}\",\
             \"median_ms\":{:.4},\"p99_ms\":{:.4},\"variation\":{:.5},\"host_ms\":{:.4},\"samples_per_second\":{samples:.2},\
             \"planned_bytes\":{},\"used_bytes\":{used},\"busy_under_cupti\":{},\"kernel_ms\":{},\"kernels\":{},\"start_seconds\":{:.3},\
             \"first_loss\":{},\"last_loss\":{}}}",
            o.sizes.layers,
            o.sizes.width,
            o.sizes.batch,
            o.sizes.time,
            o.device,
            times.median * 1e3,
            times.p99 * 1e3,
            times.variation,
            times.host * 1e3,
            need.total(),
            share.map_or("null".into(), |(s, _)| format!("{s:.5}")),
            share.map_or("null".into(), |(_, k)| format!("{:.4}", k * 1e3)),
            program.captured_nodes().map_or("null".into(), |n| n.to_string()),
            ready.as_secs_f64(),
            first.loss,
            last.loss,
        );
    } else {
        println!("{:?} on {}, {precision:?}, {:?}", o.sizes, o.device, o.mode);
        println!("{} parameters; memory as planned:\n{need}", gpt.layout.trained_count());
        println!(
            "  used on the device {:.1} MiB; ready after {:.2} s",
            used as f64 / 1048576.0,
            ready.as_secs_f64()
        );
        println!(
            "median {:.3} ms, p99 {:.3} ms, variation {:.2} %, host {:.3} ms a step, {samples:.1} samples/s, {:.0} tokens/s",
            times.median * 1e3,
            times.p99 * 1e3,
            times.variation * 100.0,
            times.host * 1e3,
            samples * o.sizes.time as f64
        );
        if let Some((share, kernels)) = share {
            println!(
                "kernels run {:.2} % of the time while CUPTI records; {:.3} ms per step, {:.2} % of the median",
                share * 100.0,
                kernels * 1e3,
                kernels / times.median * 100.0
            );
        }
        if let Some(kernels) = program.captured_nodes() {
            println!("{kernels} kernels and copies in the captured step");
        }
        println!("loss {:.4} -> {:.4}", first.loss, last.loss);
    }
    for warning in engine.take_warnings() {
        eprintln!("{warning}");
    }
    if o.profile {
        profile(engine.profile(&mut program, &control)?);
    }
    Ok(())
}

fn feed(engine: &Engine, program: &Program, step: Step, sizes: Sizes) -> Result<(), Box<dyn Error>> {
    let mut random = Stream::new(7);
    let n = sizes.batch * sizes.time;
    let ids: Vec<i32> = (0..n).map(|_| random.below(sizes.vocabulary) as i32).collect();
    let targets: Vec<i32> = (0..n).map(|_| random.below(sizes.vocabulary) as i32).collect();
    engine.write_i32(program, step.ids, &ids)?;
    engine.write_i32(program, step.targets, &targets)?;
    Ok(())
}

/// Device memory in use and the process's resident memory.
fn memory_in_use(engine: &Engine) -> String {
    let device = engine.cuda().and_then(|c| c.memory().ok()).map_or(0, |(free, total)| total - free);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let host = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("unknown").trim().to_owned();
    format!("device {device} bytes, host {host}")
}

struct Times {
    median: f64,
    p99: f64,
    variation: f64,
    host: f64,
}

/// Times steps with a few in flight, as in training: a step's time is from the end of the previous one to its own
/// end.
fn timed(
    engine: &mut Engine,
    program: &mut Program,
    control: &Control,
    steps: usize,
) -> Result<Times, Box<dyn Error>> {
    // On the CPU a step is finished when it is submitted: waiting for it later would make the last ones look free.
    let ahead = if engine.cuda().is_some() { 3 } else { 0 };
    let mut flying = VecDeque::new();
    let mut host = Vec::with_capacity(steps);
    let mut ends = Vec::with_capacity(steps);
    for _ in 0..steps + 1 {
        let start = Instant::now();
        flying.push_back(engine.submit(program, control)?);
        host.push(start.elapsed().as_secs_f64());
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
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / times.len() as f64;
    times.sort_by(f64::total_cmp);
    host.sort_by(f64::total_cmp);
    Ok(Times {
        median: times[times.len() / 2],
        p99: times[(times.len() * 99 / 100).min(times.len() - 1)],
        variation: variance.sqrt() / mean,
        host: host[host.len() / 2],
    })
}

/// Kernel time over wall time while CUPTI records, which itself widens the gaps, and the kernel time of one step.
fn busy_share(
    engine: &mut Engine,
    program: &mut Program,
    control: &Control,
) -> Result<(f64, f64), Box<dyn Error>> {
    engine.synchronize()?;
    let times = KernelTimes::start()?;
    let mut flying = VecDeque::new();
    for _ in 0..20 {
        flying.push_back(engine.submit(program, control)?);
        if flying.len() > 3
            && let Some(ticket) = flying.pop_front()
        {
            engine.wait(ticket)?;
        }
    }
    engine.synchronize()?;
    let recorded = times.stop()?;
    let kernels = recorded.records;
    let from = kernels.iter().map(|r| r.start_ns).min().unwrap_or(0);
    let to = kernels.iter().map(|r| r.end_ns).max().unwrap_or(1);
    if std::env::var_os("GPT_STEP_KERNELS").is_some() {
        for line in by_name(&kernels).iter().take(40) {
            println!("{line:?}");
        }
    }
    let share = busy(&kernels, from, to);
    Ok((share, share * (to - from) as f64 * 1e-9 / 20.0))
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
    let total: Duration = times.iter().map(|t| t.time).sum();
    println!("{:<20} {:<24} {:>5} {:>10} {:>9}", "operation", "result", "times", "ms total", "us each");
    for ((op, shape), (time, count)) in rows {
        println!(
            "{op:<20} {shape:<24} {count:>5} {:>10.3} {:>9.1}",
            time.as_secs_f64() * 1e3,
            time.as_secs_f64() * 1e6 / count as f64
        );
    }
    println!("{:.3} ms total", total.as_secs_f64() * 1e3);
}
