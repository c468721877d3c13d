//! Threads that burn every core, as other programs would.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads for each core: with as many as cores a thread that sleeps often still gets one at once.
const FOR_EACH_CORE: usize = 3;
/// After so much burning a thread looks at the clock and at its own count.
const TURN: Duration = Duration::from_millis(5);

/// Burns until it is dropped.
///
/// These are threads and not programs, so that none is left behind when this one is killed. What they take is told, for
/// whoever counts it as others'.
pub struct Hog {
    stop: Arc<AtomicBool>,
    threads: Vec<(JoinHandle<()>, Arc<AtomicU64>)>,
}

impl Hog {
    /// Burns.
    pub fn start() -> Hog {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |number: usize| {
            let (stop, ticks) = (stop.clone(), Arc::new(AtomicU64::new(0)));
            let told = ticks.clone();
            let thread = std::thread::Builder::new().name(format!("hog-{number}"));
            // One that cannot be started burns nothing.
            Some((thread.spawn(move || burn(&stop, &told)).ok()?, ticks))
        };
        let threads = (0..FOR_EACH_CORE * cores).filter_map(start).collect();
        Hog { stop, threads }
    }

    /// Seconds of one core that they took.
    pub fn seconds(&self) -> f64 {
        self.threads.iter().map(|(_, ticks)| ticks.load(Relaxed)).sum::<u64>() as f64 / 100.0
    }
}

fn burn(stop: &AtomicBool, told: &AtomicU64) {
    while !stop.load(Relaxed) {
        let began = Instant::now();
        while began.elapsed() < TURN {
            std::hint::spin_loop();
        }
        told.store(own_ticks(), Relaxed);
    }
}

/// Hundredths of a second that this thread took.
fn own_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for (thread, _) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
