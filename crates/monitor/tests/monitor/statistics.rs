//! Mean, spread and oscillation of a simulated GPU.

use crate::simulated::SimulatedMachine;
use myxtts_monitor::statistics::{Oscillation, Series};
use myxtts_monitor::{ClockLimit, GpuSample, Monitor, Sample, SummaryBuilder};

/// Samples ten minutes at intervals of half a second.
fn oscillation(utilisation: impl FnMut(f64) -> Option<f64>) -> Oscillation {
    let mut monitor = Monitor::new(SimulatedMachine::new(0.5, utilisation), None);
    (0..=1200).for_each(|_| drop(monitor.sample()));
    let summary = monitor.summary();
    assert_eq!((summary.samples, summary.seconds), (1201, 600.0));
    summary.gpus[0].oscillation.unwrap()
}

/// Uniform in [0, 1), the same in every run.
fn noise() -> impl FnMut() -> f64 {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    }
}

#[test]
fn a_steady_gpu_does_not_oscillate() {
    let flat = oscillation(|_| Some(97.0));
    assert_eq!((flat.score, flat.low, flat.high, flat.crossings_per_minute), (0.0, 97.0, 97.0, 0.0));
    let mut noise = noise();
    let noisy = oscillation(|_| Some(94.0 + 6.0 * noise()));
    assert_eq!(noisy.score, 0.0);
    assert!(noisy.crossings_per_minute > 10.0, "{noisy:?}");
    // Loading, training, finished: two crossings are not an oscillation.
    assert_eq!(oscillation(|time| Some(if (100.0..500.0).contains(&time) { 98.0 } else { 0.0 })).score, 0.0);
}

#[test]
fn a_square_wave_scores_highest() {
    // Five seconds at 100 %, five at 0 %: 12 crossings per minute.
    let whole = oscillation(|time| Some(if time % 10.0 < 5.0 { 100.0 } else { 0.0 }));
    assert!((whole.score - 1.0).abs() < 1e-3, "{whole:?}");
    assert!((whole.crossings_per_minute - 12.0).abs() < 0.2, "{whole:?}");
    assert!((whole.low_share - 0.5).abs() < 1e-2 && (whole.high_share - 0.5).abs() < 1e-2, "{whole:?}");
    // Twice the frequency has the same score and twice the crossings.
    let fast = oscillation(|time| Some(if time % 5.0 < 2.5 { 100.0 } else { 0.0 }));
    assert!((fast.score - whole.score).abs() < 1e-3);
    assert!((fast.crossings_per_minute - 24.0).abs() < 0.4, "{fast:?}");
    // Half the amplitude is half the score; a fifth of the time low gives 4 * 0.2 * 0.8.
    let half = oscillation(|time| Some(if time % 10.0 < 5.0 { 90.0 } else { 40.0 }));
    assert!((half.score - 0.5).abs() < 1e-3, "{half:?}");
    let rarely = oscillation(|time| Some(if time % 10.0 < 8.0 { 100.0 } else { 0.0 }));
    assert!((rarely.score - 0.64).abs() < 1e-2, "{rarely:?}");
}

#[test]
fn noise_scores_in_between() {
    let mut noise = noise();
    let wide = oscillation(|_| Some(100.0 * noise()));
    assert!((0.25..0.5).contains(&wide.score), "{wide:?}");
    let mut noise = self::noise();
    let narrow = oscillation(|_| Some(50.0 + 20.0 * noise()));
    assert!((0.0..0.1).contains(&narrow.score), "{narrow:?}");
    // A slow square wave with noise has the crossings of the wave, not of the noise.
    let mut noise = self::noise();
    let wave = oscillation(|time| Some(if time % 60.0 < 30.0 { 20.0 } else { 80.0 } + 10.0 * noise()));
    assert!((1.9..2.1).contains(&wave.crossings_per_minute), "{wave:?}");
}

#[test]
fn mean_and_spread() {
    let mut series = Series::default();
    assert!(series.spread().is_none() && series.oscillation(1.0).is_none());
    series.push(f64::NAN);
    assert!(series.spread().is_none());
    (0..=100).for_each(|value| series.push(f64::from(value)));
    let spread = series.spread().unwrap();
    assert_eq!((spread.samples, spread.p5, spread.p95), (101, 5.0, 95.0));
    assert!((spread.mean - 50.0).abs() < 1e-12);
    // The deviation of 0 to n is sqrt(n (n + 2) / 12).
    assert!((spread.deviation - (100.0f64 * 102.0 / 12.0).sqrt()).abs() < 1e-9);
}

#[test]
fn a_week_of_samples_uses_bounded_memory() {
    let mut series = Series::default();
    let mut noise = noise();
    (0..700_000).for_each(|_| series.push(100.0 * noise()));
    let spread = series.spread().unwrap();
    assert_eq!(spread.samples, 700_000);
    assert!((spread.mean - 50.0).abs() < 0.2 && (spread.deviation - 28.87).abs() < 0.2, "{spread:?}");
    assert!((spread.p5 - 5.0).abs() < 0.2 && (spread.p95 - 95.0).abs() < 0.2, "{spread:?}");
}

#[test]
fn unknown_values_are_left_out_and_limits_are_fractions() {
    let mut seen = 0;
    let mut monitor = Monitor::new(
        SimulatedMachine::new(1.0, move |_| {
            seen += 1;
            (seen % 2 == 0).then_some(60.0)
        }),
        None,
    );
    (0..10).for_each(|_| drop(monitor.sample()));
    let summary = monitor.summary();
    let rows: Vec<(&str, u64)> =
        summary.quantities.iter().map(|row| (row.name, row.spread.samples)).collect();
    assert_eq!(rows, [("cpu", 10), ("memory", 10), ("utilisation", 5)]);

    let mut builder = SummaryBuilder::new();
    for limits in [Some(0x4), Some(0x4 | 0x40), Some(0), Some(1 << 40), None] {
        let gpu = GpuSample { limits: limits.map(ClockLimit::from_mask), ..GpuSample::default() };
        builder.add(&Sample { gpus: vec![gpu], ..Sample::default() });
    }
    let gpu = &builder.summary().gpus[0];
    assert_eq!(gpu.oscillation, None);
    let limited: Vec<(ClockLimit, f64)> = gpu.limited.iter().map(|(limit, share)| (*limit, *share)).collect();
    assert_eq!(
        limited,
        [(ClockLimit::PowerCap, 0.5), (ClockLimit::HardwareThermal, 0.25), (ClockLimit::Other, 0.25)]
    );
}
