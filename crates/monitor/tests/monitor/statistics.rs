//! Mean, spread and oscillation of a GPU that is played.

use myxtts_monitor::statistics::{Oscillation, Series};
use myxtts_monitor::{Gpu, Limit, Monitor, Sample, Simulated, Tally};

/// Ten minutes at half a second.
fn oscillation(utilisation: impl FnMut(f64) -> Option<f64>) -> Oscillation {
    let mut monitor = Monitor::new(Simulated::new(0.5, utilisation), None);
    (0..=1200).for_each(|_| drop(monitor.sample()));
    let summary = monitor.tally().summary();
    assert_eq!((summary.samples, summary.seconds), (1201, 600.0));
    summary.gpus[0].oscillation.unwrap()
}

/// Evenly spread over [0, 1), the same every time.
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
    let trembling = oscillation(|_| Some(94.0 + 6.0 * noise()));
    assert_eq!(trembling.score, 0.0);
    assert!(trembling.crossings_per_minute > 10.0, "{trembling:?}");
    // Loading, then training, then over: two changes are none.
    assert_eq!(oscillation(|time| Some(if (100.0..500.0).contains(&time) { 98.0 } else { 0.0 })).score, 0.0);
}

#[test]
fn a_square_wave_is_the_worst_there_is() {
    // Five seconds of everything, five of nothing: 12 crossings a minute.
    let whole = oscillation(|time| Some(if time % 10.0 < 5.0 { 100.0 } else { 0.0 }));
    assert!((whole.score - 1.0).abs() < 1e-3, "{whole:?}");
    assert!((whole.crossings_per_minute - 12.0).abs() < 0.2, "{whole:?}");
    assert!((whole.low_share - 0.5).abs() < 1e-2 && (whole.high_share - 0.5).abs() < 1e-2, "{whole:?}");
    // As fast again is as bad, and is told by the crossings.
    let fast = oscillation(|time| Some(if time % 5.0 < 2.5 { 100.0 } else { 0.0 }));
    assert!((fast.score - whole.score).abs() < 1e-3);
    assert!((fast.crossings_per_minute - 24.0).abs() < 0.4, "{fast:?}");
    // Half the swing is half the score; a fifth of the time low is 4 * 0.2 * 0.8 of it.
    let half = oscillation(|time| Some(if time % 10.0 < 5.0 { 90.0 } else { 40.0 }));
    assert!((half.score - 0.5).abs() < 1e-3, "{half:?}");
    let rarely = oscillation(|time| Some(if time % 10.0 < 8.0 { 100.0 } else { 0.0 }));
    assert!((rarely.score - 0.64).abs() < 1e-2, "{rarely:?}");
}

#[test]
fn noise_is_between() {
    let mut noise = noise();
    let wide = oscillation(|_| Some(100.0 * noise()));
    assert!((0.25..0.5).contains(&wide.score), "{wide:?}");
    let mut noise = self::noise();
    let narrow = oscillation(|_| Some(50.0 + 20.0 * noise()));
    assert!((0.0..0.1).contains(&narrow.score), "{narrow:?}");
    // A slow square wave with trembling on it has the crossings of the wave, not of the trembling.
    let mut noise = self::noise();
    let wave = oscillation(|time| Some(if time % 60.0 < 30.0 { 20.0 } else { 80.0 } + 10.0 * noise()));
    assert!((1.9..2.1).contains(&wave.crossings_per_minute), "{wave:?}");
}

#[test]
fn mean_and_spread() {
    let mut series = Series::default();
    assert!(series.figures().is_none() && series.oscillation(1.0).is_none());
    series.push(f64::NAN);
    assert!(series.figures().is_none());
    (0..=100).for_each(|value| series.push(f64::from(value)));
    let figures = series.figures().unwrap();
    assert_eq!((figures.samples, figures.p5, figures.p95), (101, 5.0, 95.0));
    assert!((figures.mean - 50.0).abs() < 1e-12);
    // Of 0 to n: the root of n (n + 2) / 12.
    assert!((figures.deviation - (100.0f64 * 102.0 / 12.0).sqrt()).abs() < 1e-9);
}

#[test]
fn a_week_of_samples_is_kept_within_bounds() {
    let mut series = Series::default();
    let mut noise = noise();
    (0..700_000).for_each(|_| series.push(100.0 * noise()));
    let figures = series.figures().unwrap();
    assert_eq!(figures.samples, 700_000);
    assert!((figures.mean - 50.0).abs() < 0.2 && (figures.deviation - 28.87).abs() < 0.2, "{figures:?}");
    assert!((figures.p5 - 5.0).abs() < 0.2 && (figures.p95 - 95.0).abs() < 0.2, "{figures:?}");
}

#[test]
fn what_is_not_known_is_left_out_and_limits_are_shares() {
    let mut seen = 0;
    let mut monitor = Monitor::new(
        Simulated::new(1.0, move |_| {
            seen += 1;
            (seen % 2 == 0).then_some(60.0)
        }),
        None,
    );
    (0..10).for_each(|_| drop(monitor.sample()));
    let summary = monitor.tally().summary();
    let rows: Vec<(&str, u64)> =
        summary.quantities.iter().map(|row| (row.name, row.figures.samples)).collect();
    assert_eq!(rows, [("cpu", 10), ("memory", 10), ("utilisation", 5)]);

    let mut tally = Tally::new();
    for limits in [Some(0x4), Some(0x4 | 0x40), Some(0), Some(1 << 40), None] {
        let gpu = Gpu { limits: limits.map(Limit::of_mask), ..Gpu::default() };
        tally.add(&Sample { gpus: vec![gpu], ..Sample::default() });
    }
    let gpu = &tally.summary().gpus[0];
    assert_eq!(gpu.oscillation, None);
    let limited: Vec<(Limit, f64)> = gpu.limited.iter().map(|(limit, share)| (*limit, *share)).collect();
    assert_eq!(limited, [(Limit::PowerCap, 0.5), (Limit::HardwareThermal, 0.25), (Limit::Other, 0.25)]);
}
