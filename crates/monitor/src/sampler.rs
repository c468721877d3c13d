//! Samples taken on a thread of their own, at a fixed interval, while something else runs.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Takes samples until it is dropped.
pub struct Sampler<T> {
    taken: Arc<Mutex<Vec<(Instant, T)>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Clone + Send + 'static> Sampler<T> {
    /// Asks `look` now and after every interval. A look that takes longer is not made up for.
    pub fn start(interval: Duration, look: impl FnMut() -> T + Send + 'static) -> io::Result<Sampler<T>> {
        Sampler::keeping(Duration::MAX, interval, look)
    }

    /// As [`Sampler::start`], and forgets what is older than `window`: for what runs for days.
    pub fn keeping(
        window: Duration,
        interval: Duration,
        mut look: impl FnMut() -> T + Send + 'static,
    ) -> io::Result<Sampler<T>> {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = channel::<()>();
        let into = taken.clone();
        let work = move || {
            let mut due = Instant::now();
            loop {
                let sample = look();
                // The moment it is complete: what it tells lies before.
                let now = Instant::now();
                {
                    let mut taken = into.lock().unwrap_or_else(PoisonError::into_inner);
                    taken.retain(|(at, _): &(Instant, T)| now.duration_since(*at) <= window);
                    taken.push((now, sample));
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
        Ok(Sampler { taken, stop: Some(stop), thread: Some(thread) })
    }

    /// What was taken between two moments, with the seconds since the first of them.
    pub fn between(&self, from: Instant, to: Instant) -> Vec<(f64, T)> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = taken.iter().filter(|(at, _)| (from..=to).contains(at));
        inside.map(|(at, sample)| ((*at - from).as_secs_f64(), sample.clone())).collect()
    }
}

impl<T> Drop for Sampler<T> {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
