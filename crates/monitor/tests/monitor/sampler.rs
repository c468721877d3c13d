//! Background sampling of a simulated GPU.

use crate::simulated::SimulatedMachine;
use myxtts_monitor::{Probe, Sampler};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

#[test]
fn samples_are_in_order_and_stop_with_the_sampler() {
    let mut probe = SimulatedMachine::new(1.0, Some);
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = calls.clone();
    let start = Instant::now();
    let sampler = Sampler::start(Duration::from_millis(1), move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let at = probe.now();
        (at, probe.gpus()[0].utilisation)
    })
    .unwrap();
    while calls.load(std::sync::atomic::Ordering::Relaxed) < 5 {
        std::thread::yield_now();
    }
    let seen = sampler.between(start, Instant::now());
    assert!(seen.len() >= 4, "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1.0 < pair[1].1.0), "{seen:?}");
    assert_eq!(seen[2].1, (2.0, Some(2.0)));
    assert!(sampler.between(start - Duration::from_secs(1), start).is_empty());
    drop(sampler);
    let last = calls.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), last, "it is still sampling");
}

/// A program that sampled a GPU whose driver hung could not exit.
#[test]
fn a_sampler_whose_call_hangs_is_abandoned() {
    let (release, released) = channel::<()>();
    let (to_test, called) = channel();
    let sampler = Sampler::start(Duration::from_millis(1), move || {
        let _ = to_test.send(());
        let _ = released.recv();
    })
    .unwrap();
    called.recv().unwrap();
    let (to_test, dropped) = channel();
    std::thread::spawn(move || {
        drop(sampler);
        to_test.send(()).unwrap();
    });
    dropped.recv_timeout(Duration::from_secs(60)).expect("the sampler waits for its call");
    drop(release);
}
