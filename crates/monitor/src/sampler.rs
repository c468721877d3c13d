//! Takes samples on a background thread at a fixed interval.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a sampler that is dropped waits for a call in progress. A driver that does not respond must not keep the program from
/// exiting; the thread is then abandoned.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Background sampler that runs until it is dropped.
pub struct Sampler<T> {
    samples: Arc<Mutex<Vec<(Instant, T)>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Clone + Send + 'static> Sampler<T> {
    /// Calls `take` now and after every interval. Intervals missed by a slow call are skipped.
    pub fn start(interval: Duration, take: impl FnMut() -> T + Send + 'static) -> io::Result<Sampler<T>> {
        Sampler::with_window(Duration::MAX, interval, take)
    }

    /// Like [`Sampler::start`], but discards samples older than `window`, for long runs.
    pub fn with_window(
        window: Duration,
        interval: Duration,
        mut take: impl FnMut() -> T + Send + 'static,
    ) -> io::Result<Sampler<T>> {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = channel::<()>();
        let shared = samples.clone();
        let work = move || {
            let mut due = Instant::now();
            loop {
                let sample = take();
                // The time of completion; the values are slightly older.
                let now = Instant::now();
                {
                    let mut samples = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    samples.retain(|(at, _): &(Instant, T)| now.duration_since(*at) <= window);
                    samples.push((now, sample));
                }
                while due <= now {
                    due += interval.max(Duration::from_millis(1));
                }
                if stopped.recv_timeout(due - now) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("sampler".to_owned()).spawn(work)?;
        Ok(Sampler { samples, stop: Some(stop), thread: Some(thread) })
    }

    /// Samples taken between two times, each with the seconds since `from`.
    pub fn between(&self, from: Instant, to: Instant) -> Vec<(f64, T)> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = samples.iter().filter(|(at, _)| (from..=to).contains(at));
        inside.map(|(at, sample)| ((*at - from).as_secs_f64(), sample.clone())).collect()
    }
}

impl<T> Drop for Sampler<T> {
    fn drop(&mut self) {
        self.stop = None;
        let Some(thread) = self.thread.take() else { return };
        let late = Instant::now() + STOP_TIMEOUT;
        while !thread.is_finished() {
            if Instant::now() > late {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}
