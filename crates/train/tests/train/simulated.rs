//! A simulated pipeline with its own clock: threads, buffer, copies and steps as recurrences, with an optional fault.
//!
//! Nothing sleeps and nothing is measured; a trace is a pure function of the fault and a seed.

use myxtts_train::diagnose::trace::{Batch, CpuUsage, Delayed, Setup, Trace};

/// The fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    SlowDisk,
    SlowDecode,
    SlowWorker,
    TinyBuffer,
    UploadLock,
    PageableUploads,
    ShapeChurn,
    /// Every `every` batches; in the step, or before it.
    Stall {
        every: usize,
        in_step: bool,
    },
    ProcessorHog,
    SlowStep,
    NoisyStep,
    Healthy,
}

/// Random numbers that depend only on a seed.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A factor around 1: the exponential of a normal number with this deviation; its median is 1.
    fn around(&mut self, deviation: f64) -> f64 {
        let normal = (0..12).map(|_| self.next()).sum::<f64>() - 6.0;
        (deviation * normal).exp()
    }
}

const WORKERS: usize = 4;
const STEP: f64 = 0.020;

/// A trace of `batches` batches with a fault; `noise` is the deviation of every single time.
pub fn trace(fault: Fault, seed: u64, batches: usize, noise: f64) -> Trace {
    let mut draws = Draws(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed);
    let slots = if fault == Fault::TinyBuffer { 2 } else { 12 };
    let window = if fault == Fault::TinyBuffer { WORKERS } else { 2 * WORKERS };
    let mut free_at = [0.0f64; WORKERS];
    // Per batch: when the feed's thread took it, and when its step began, which frees its slot.
    let (mut taken, mut begun): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    let (mut feed_free, mut ended) = (0.0f64, 0.0f64);
    let mut seen: Vec<[usize; 3]> = Vec::new();
    let mut done = Vec::with_capacity(batches);
    // Buffers fill before the first step, which is not part of the trace.
    let warm = 20;
    for i in 0..batches + warm {
        let mut a_time = |seconds: f64| seconds * draws.around(noise);
        let mut batch = Batch {
            read: a_time(0.006),
            decode: a_time(0.010) + a_time(0.008),
            collate: a_time(0.004),
            fill: a_time(0.002),
            upload: a_time(0.001),
            ..Batch::default()
        };
        // Every length occurs before the trace, as in a run that has warmed up.
        let bucket = if i < 4 { i } else { (draws.next() * 4.0) as usize };
        batch.shape = [16, 32 + 16 * bucket, 100];
        if fault == Fault::ShapeChurn {
            batch.shape[2] = 100 + (draws.next() * 400.0) as usize / 4;
        }
        // A step's time follows its shape.
        let usual = STEP * (0.9 + 0.06 * bucket as f64);
        let mut step = usual * draws.around(noise.min(0.08));

        let worker = (0..WORKERS).min_by(|a, b| free_at[*a].total_cmp(&free_at[*b])).unwrap();
        batch.worker = worker;
        match fault {
            Fault::SlowDisk => batch.read *= 25.0,
            Fault::SlowDecode => batch.decode *= 9.0,
            Fault::SlowWorker if worker == 2 => {
                [&mut batch.read, &mut batch.decode, &mut batch.collate]
                    .into_iter()
                    .for_each(|time| *time *= 18.0);
            }
            // Enough on average, but any single one varies.
            Fault::TinyBuffer => batch.read *= draws.around(0.5),
            Fault::ProcessorHog => {
                [&mut batch.read, &mut batch.decode, &mut batch.collate, &mut batch.fill]
                    .into_iter()
                    .for_each(|time| *time *= 4.5 * draws.around(0.2));
            }
            Fault::PageableUploads => batch.upload *= 8.0,
            Fault::UploadLock => batch.upload *= 4.0,
            Fault::SlowStep => step *= 1.6,
            Fault::NoisyStep => step *= draws.around(0.5),
            Fault::Stall { every, in_step: true } if i % every == 0 => step += 4.0 * STEP,
            // As long as all ready batches last, and longer.
            Fault::Stall { every, in_step: false } if i % every == 0 => {
                batch.fill += (every as f64 + 3.0) * STEP;
            }
            _ => {}
        }
        if fault == Fault::TinyBuffer && draws.next() < 0.3 {
            batch.read += 0.16 * draws.next();
        }

        // A thread claims a batch when it is free and the window has room.
        let place = i.checked_sub(window).map_or(0.0, |i| taken[i]);
        let made = free_at[worker].max(place) + batch.load();
        free_at[worker] = made;
        // The feed takes them in order, into a free slot.
        let slot = i.checked_sub(slots).map_or(0.0, |i| begun[i]);
        let took = feed_free.max(made).max(slot);
        taken.push(took);
        let filled = took + batch.fill;
        // A lock that a step holds while it runs; a copy from pageable memory waits for the device as well.
        let exclusive = matches!(fault, Fault::UploadLock | Fault::PageableUploads);
        let copied_from = if exclusive { filled.max(ended) } else { filled };
        if fault == Fault::UploadLock {
            batch.blocked = copied_from - filled;
        }
        let ready = copied_from + batch.upload;
        feed_free = ready;

        batch.compiled = !seen.contains(&batch.shape);
        if batch.compiled {
            seen.push(batch.shape);
            step += 0.150;
        }
        let begins = ended.max(ready);
        begun.push(begins);
        batch.wait = begins - ended;
        batch.step = step;
        batch.period = begins + step - ended;
        ended = begins + step;
        if i >= warm {
            done.push(batch);
        }
    }
    let alone = done.iter().map(|batch| {
        let bucket = (batch.shape[1] - 32) / 16;
        (batch.shape, STEP * (0.9 + 0.06 * bucket as f64) * draws.around(noise.min(0.08)))
    });
    // Three quarters of the time of the threads that make batches, divided by their number.
    let feeding = 0.75 * done.iter().map(|batch| batch.load() / WORKERS as f64 + batch.fill).sum::<f64>();
    let of = |own, all, feeding| CpuUsage { own, all, delayed: Some(Delayed { feeding, stepping: 0.02 }) };
    let cpu = match fault {
        Fault::ProcessorHog => of(0.25, 0.99, feeding),
        Fault::SlowDecode => of(0.90, 0.93, 0.05 * feeding),
        _ => of(0.30, 0.35, 0.01),
    };
    let alone: Vec<([usize; 3], f64)> = alone.collect();
    Trace {
        // Only the step takes time here.
        replayed: alone.clone(),
        alone,
        setup: Setup {
            workers: WORKERS,
            slots,
            batch_size: 16,
            cores: 8,
            batch_bytes: 12_000_000,
            on_gpu: true,
            pinned: fault != Fault::PageableUploads,
        },
        batches: done,
        cpu: Some(cpu),
        cores: Vec::new(),
        gpu: Vec::new(),
        no_gpu: None,
    }
}
