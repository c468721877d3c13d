//! The loader's threads. They live as long as the loader, and every failure in one is reported.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::batch::{BatchInfo, Collator};
use crate::loader::LoaderError;
use crate::loader::queue::{Queue, Worker};
use crate::loader::slab::Slab;

/// How long a stop waits for batches in progress. A thread that is stuck in storage cannot be ended; it is abandoned, and
/// must not keep the program from exiting.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the name of a worker's thread.
pub(super) fn name(worker: usize) -> String {
    format!("batch-{worker}")
}

/// Retries of a batch that panicked: a transient cause disappears, a permanent one is reported twice.
const RETRIES: u32 = 1;

pub(super) struct Workers<S: Slab> {
    queue: Arc<Queue<S>>,
    collator: Collator,
    threads: Vec<JoinHandle<()>>,
}

impl<S: Slab> Workers<S> {
    pub(super) fn start(
        queue: &Arc<Queue<S>>,
        collator: &Collator,
        count: usize,
    ) -> Result<Self, LoaderError> {
        let threads = Vec::with_capacity(count);
        let mut workers = Workers { queue: queue.clone(), collator: collator.clone(), threads };
        for number in 0..count {
            match workers.spawn(number) {
                Ok(thread) => workers.threads.push(thread),
                Err(error) => {
                    // Workers that never started count as ended; dropping `workers` stops the others.
                    (number..count).for_each(|number| queue.worker_ended(&queue.worker(number)));
                    return Err(LoaderError::Thread(error));
                }
            }
        }
        Ok(workers)
    }

    /// Starts a thread that replaces an abandoned one, which cannot be ended.
    pub(super) fn replace(&mut self, number: usize) -> Result<(), LoaderError> {
        match self.spawn(number) {
            Ok(thread) => {
                self.threads[number] = thread;
                Ok(())
            }
            Err(error) => {
                // The loader ends with this error, and must not wait for the stuck thread.
                drop(self.threads.remove(number));
                self.queue.worker_ended(&self.queue.worker(number));
                Err(LoaderError::Thread(error))
            }
        }
    }

    fn spawn(&self, number: usize) -> std::io::Result<JoinHandle<()>> {
        let (queue, collator, worker) =
            (self.queue.clone(), self.collator.clone(), self.queue.worker(number));
        std::thread::Builder::new().name(name(number)).spawn(move || {
            work(&queue, &collator, &worker);
            queue.worker_ended(&worker);
        })
    }

    /// Stops the threads.
    pub(super) fn stop(&mut self) {
        self.queue.close();
        let ended = self.queue.wait_until_ended(STOP_TIMEOUT);
        for thread in self.threads.drain(..) {
            if ended || thread.is_finished() {
                // A panic was caught and reported with its step.
                let _ = thread.join();
            }
        }
    }
}

impl<S: Slab> Drop for Workers<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn work<S: Slab>(queue: &Queue<S>, collator: &Collator, worker: &Worker) {
    while let Some((step, mut slab)) = queue.claim(worker) {
        let mut panics = 0;
        let result = loop {
            // A panic leaves only the slab's bytes behind, which the next batch overwrites.
            let make = || collator.collate_reporting(step, slab.bytes(), &worker.position);
            let thread = name(worker.number);
            match std::panic::catch_unwind(AssertUnwindSafe(make)) {
                Ok(Ok(info)) => break Ok(BatchInfo { worker: worker.number, ..info }),
                Ok(Err(error)) => break Err(LoaderError::Batch { thread, source: Box::new(error) }),
                Err(panic) => {
                    let (clip, message) = (queue.describe_clip(worker), panic_message(&*panic));
                    let error = LoaderError::Panicked { thread, step, clip, message };
                    if panics == RETRIES {
                        break Err(error);
                    }
                    panics += 1;
                    queue.notes.push(format!("{error}; making the batch again"));
                }
            }
        };
        queue.finish(worker, step, result, slab);
    }
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    (panic.downcast_ref::<&str>().map(|message| (*message).to_owned()))
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
