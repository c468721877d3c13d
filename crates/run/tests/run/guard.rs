//! Loss guards: their verdicts, and that a restored guard gives the same verdicts.

use std::fmt::Debug;

use myxtts_run::guard::{BadStepGuard, BadStepVerdict, EarlyStop, SpikeDetector, SpikeVerdict, StopVerdict};
use myxtts_run::loss_trend::{Direction, LossTrend};
use myxtts_run::schedule::{Decay, Schedule};
use myxtts_run::seed::Seed;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Falling, noisy losses with spikes, NaN and Inf.
fn losses(count: u64) -> Vec<f64> {
    let seed = Seed::new(5).derive("losses");
    let loss = |i: u64| match seed.below(3 * i, 40) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 | 3 => 50.0 + seed.unit(3 * i + 1),
        _ => 5.0 / (1.0 + i as f64 / 100.0) + 0.3 * seed.unit(3 * i + 1),
    };
    (0..count).map(loss).collect()
}

/// Asserts that a guard which is saved and restored before every step gives the same verdicts as one that is not, and
/// ends in the same state bit for bit.
fn assert_restores<M, A>(new: M, mut observe: impl FnMut(&mut M, f64) -> A)
where
    M: Serialize + DeserializeOwned + Clone + PartialEq + Debug,
    A: PartialEq + Debug,
{
    let (mut uninterrupted, mut restored) = (new.clone(), new);
    for (i, loss) in losses(600).into_iter().enumerate() {
        let stored = serde_json::to_string(&restored).unwrap();
        restored = serde_json::from_str(&stored).unwrap();
        assert_eq!(serde_json::to_string(&restored).unwrap(), stored, "step {i}");
        assert_eq!(observe(&mut restored, loss), observe(&mut uninterrupted, loss), "step {i}");
        // Equality of floats is equality of bits here: no state holds a NaN, and JSON keeps the sign of 0.
        assert_eq!(restored, uninterrupted, "step {i}");
    }
}

#[test]
fn guards_restored_at_every_step_behave_the_same() {
    assert_restores(SpikeDetector::new(50, 6.0, 4), |guard, loss| format!("{:?}", guard.observe(loss)));
    assert_restores(BadStepGuard::new(3, 20), |guard, loss| guard.observe(loss.is_finite()));
    assert_restores(EarlyStop::new(Some(10), 0.01), |guard, loss| guard.observe(loss));
    assert_restores(LossTrend::new(64), |guard, loss| {
        guard.observe(loss);
        (guard.slope().map(f64::to_bits), guard.mean().map(f64::to_bits), guard.direction())
    });
}

#[test]
fn spikes_are_detected_and_noise_and_progress_are_not() {
    let seed = Seed::new(6);
    let mut spikes = SpikeDetector::new(100, 8.0, 5);
    for i in 0..2000 {
        let loss = 7.0 * (-(i as f64) / 500.0).exp() + 1.0 + 0.4 * seed.unit(i);
        if i % 100 == 99 {
            let verdict = spikes.observe(loss + 6.0);
            assert!(
                matches!(verdict, SpikeVerdict::Spike { median, limit } if median < limit),
                "{i}: {verdict:?}"
            );
        }
        assert_eq!(spikes.observe(loss), SpikeVerdict::Fine, "{i}");
    }
}

#[test]
fn one_spike_does_not_hide_the_next() {
    let mut spikes = SpikeDetector::new(20, 6.0, 1000);
    (0..20).for_each(|i| assert_eq!(spikes.observe(1.0 + 0.001 * i as f64), SpikeVerdict::Fine));
    for _ in 0..50 {
        assert!(matches!(spikes.observe(2.0), SpikeVerdict::Spike { .. }));
    }
}

#[test]
fn a_loss_that_stays_high_becomes_the_new_level() {
    let mut spikes = SpikeDetector::new(20, 6.0, 3);
    (0..20).for_each(|_| assert_eq!(spikes.observe(1.0), SpikeVerdict::Fine));
    assert!(matches!(spikes.observe(9.0), SpikeVerdict::Spike { .. }));
    assert!(matches!(spikes.observe(9.0), SpikeVerdict::Spike { .. }));
    assert_eq!(spikes.observe(9.0), SpikeVerdict::NewLevel);
    (0..20).for_each(|_| assert_eq!(spikes.observe(9.0), SpikeVerdict::Fine));
}

#[test]
fn tiny_differences_between_equal_losses_are_not_spikes() {
    let mut spikes = SpikeDetector::new(8, 5.0, 3);
    (0..8).for_each(|_| assert_eq!(spikes.observe(2.0), SpikeVerdict::Fine));
    assert_eq!(spikes.observe(2.0001), SpikeVerdict::Fine);
    // NaN as the first loss must not panic.
    assert!(matches!(SpikeDetector::new(8, 5.0, 3).observe(f64::NAN), SpikeVerdict::Spike { .. }));
    assert_eq!(SpikeDetector::new(8, 5.0, 3).observe(1e300), SpikeVerdict::Fine);
}

#[test]
fn bad_steps_are_skipped_until_the_budget_is_used_up() {
    let mut bad = BadStepGuard::new(2, 4);
    let verdicts: Vec<_> =
        [true, false, false, true, false, false, false].map(|good| bad.observe(good)).into();
    use BadStepVerdict::{Fine, Skip, StopInARow};
    assert_eq!(verdicts, [Fine, Skip, Skip, Fine, Skip, Skip, StopInARow(3)]);
    let mut bad = BadStepGuard::new(2, 4);
    for _ in 0..4 {
        assert_eq!((bad.observe(false), bad.observe(true)), (Skip, Fine));
    }
    assert_eq!(bad.observe(false), BadStepVerdict::StopTotal(5));
    assert_eq!(bad.total(), 5);
    assert_eq!(BadStepGuard::new(0, 0).observe(false), StopInARow(1));
}

#[test]
fn early_stop_ends_after_its_patience() {
    let mut stop = EarlyStop::new(Some(3), 0.1);
    use StopVerdict::{Better, Stop, Waiting};
    let observe = |score| {
        assert!(!stop.is_exhausted());
        stop.observe(score)
    };
    let verdicts: Vec<_> = [5.0, 4.95, 4.8, f64::NAN, 4.75, 4.75].map(observe).into();
    assert!(stop.is_exhausted());
    assert_eq!(verdicts, [Better, Waiting(Some(2)), Better, Waiting(Some(2)), Waiting(Some(1)), Stop]);
    assert_eq!(stop.best(), Some(4.8));
    let mut never = EarlyStop::new(None, 0.0);
    assert_eq!(never.observe(1.0), Better);
    (0..1000).for_each(|_| assert_eq!(never.observe(1.0), Waiting(None)));
    assert!(!never.is_exhausted());
}

#[test]
fn the_learning_rate_warms_up_decays_and_stays_at_the_floor() {
    let schedule = Schedule { rate: 1e-3, warmup: 100, decay: Decay::Cosine { steps: 1100, floor: 0.1 } };
    assert_eq!(schedule.at(0), 1e-3 / 100.0);
    assert_eq!(schedule.at(99), 1e-3);
    assert_eq!(schedule.at(100), 1e-3);
    assert!((schedule.at(600) - 0.55e-3).abs() < 1e-12);
    assert!((schedule.at(1100) - 1e-4).abs() < 1e-15 && schedule.at(u64::MAX) == schedule.at(1100));
    for step in 0..2000 {
        let (now, next) = (schedule.at(step), schedule.at(step + 1));
        assert!(now > 0.0 && now <= 1e-3);
        assert!(if step < 99 { next > now } else { next <= now }, "step {step}");
    }
    let constant = Schedule { decay: Decay::Constant, ..schedule };
    assert_eq!((constant.at(0), constant.at(100), constant.at(1 << 40)), (1e-5, 1e-3, 1e-3));
    // Fewer steps than the warm-up, and none at all.
    for steps in [0, 50, 100] {
        let short = Schedule { decay: Decay::Cosine { steps, floor: 0.0 }, ..schedule };
        assert_eq!((short.at(49), short.at(100)), (0.5e-3, 0.0), "{steps}");
    }
    let stored = serde_json::to_string(&schedule).unwrap();
    assert_eq!(serde_json::from_str::<Schedule>(&stored).unwrap(), schedule);
}

#[test]
fn a_trend_is_distinguished_from_noise() {
    let seed = Seed::new(7);
    let directions = |slope: f64, stream: u64| {
        let mut trend = LossTrend::new(100);
        assert_eq!((trend.slope(), trend.mean(), trend.direction()), (None, None, Direction::Flat));
        for i in 0..100 {
            trend.observe(3.0 + slope * i as f64 + seed.with(stream).unit(i));
            trend.observe(f64::NAN);
        }
        trend.direction()
    };
    for stream in 0..200 {
        assert_eq!(directions(-0.01, stream), Direction::Falling, "{stream}");
        assert_eq!(directions(0.01, stream), Direction::Rising, "{stream}");
    }
    let wrong = (0..1000).filter(|&stream| directions(0.0, stream) != Direction::Flat).count();
    assert!(wrong <= 3, "noise was taken for a trend {wrong} times in 1000");

    let mut line = LossTrend::new(10);
    (0..30).for_each(|i| line.observe(f64::from(30 - i)));
    assert_eq!((line.slope(), line.direction()), (Some(-1.0), Direction::Falling));
    assert_eq!(line.direction().to_string(), "falling");

    // A loss counts as steady only after a whole window; a clear trend is known earlier.
    let (mut steady, mut falling) = (LossTrend::new(20), LossTrend::new(20));
    for i in 0..19 {
        steady.observe(f64::from(i % 2));
        falling.observe(f64::from(-i));
        assert_eq!(steady.known_direction(), None, "{i}");
    }
    steady.observe(1.0);
    assert_eq!(steady.known_direction(), Some(Direction::Flat));
    assert_eq!(falling.known_direction(), Some(Direction::Falling));
}
