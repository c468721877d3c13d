//! Samples beside other work, on a GPU that is played.

use myxtts_monitor::{Probe, Sampler, Simulated};
use std::time::{Duration, Instant};

#[test]
fn samples_come_in_order_between_two_moments_and_end_with_the_sampler() {
    let mut probe = Simulated::new(1.0, Some);
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = asked.clone();
    let began = Instant::now();
    let sampler = Sampler::start(Duration::from_millis(1), move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let at = probe.now();
        (at, probe.gpus()[0].utilisation)
    })
    .unwrap();
    while asked.load(std::sync::atomic::Ordering::Relaxed) < 5 {
        std::thread::yield_now();
    }
    let seen = sampler.between(began, Instant::now());
    assert!(seen.len() >= 4, "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1.0 < pair[1].1.0), "{seen:?}");
    assert_eq!(seen[2].1, (2.0, Some(2.0)));
    assert!(sampler.between(began - Duration::from_secs(1), began).is_empty());
    drop(sampler);
    let last = asked.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), last, "it went on");
}
