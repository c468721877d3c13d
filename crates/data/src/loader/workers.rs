//! The loader's threads: they live as long as it does, and nothing that goes wrong in one stays there.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::batch::{BatchInfo, Collator};
use crate::loader::LoaderError;
use crate::loader::queue::{Queue, Worker};
use crate::loader::slab::Slab;

/// How long a stop waits for batches in hand. A thread that is stuck in the storage cannot be ended;
/// it is left behind, and must not keep the program from ending.
const PATIENCE: Duration = Duration::from_secs(5);

/// The name of a worker's thread.
pub(super) fn name(worker: usize) -> String {
    format!("batch-{worker}")
}

/// A batch whose making panicked is tried so often again: what was a matter of chance passes, what is not says so twice.
const AGAIN: u32 = 1;

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
            match workers.thread(number) {
                Ok(thread) => workers.threads.push(thread),
                Err(error) => {
                    // Those that never started have left; dropping `workers` stops the others.
                    (number..count).for_each(|number| queue.leave(&queue.worker(number)));
                    return Err(LoaderError::Thread(error));
                }
            }
        }
        Ok(workers)
    }

    /// Starts a thread in the place of one that was given up. That one is left behind: nothing can end it.
    pub(super) fn replace(&mut self, number: usize) -> Result<(), LoaderError> {
        match self.thread(number) {
            Ok(thread) => {
                self.threads[number] = thread;
                Ok(())
            }
            Err(error) => {
                // The loader ends with this error, and must not wait for the one that is stuck.
                drop(self.threads.remove(number));
                self.queue.leave(&self.queue.worker(number));
                Err(LoaderError::Thread(error))
            }
        }
    }

    fn thread(&self, number: usize) -> std::io::Result<JoinHandle<()>> {
        let (queue, collator, worker) =
            (self.queue.clone(), self.collator.clone(), self.queue.worker(number));
        std::thread::Builder::new().name(name(number)).spawn(move || {
            work(&queue, &collator, &worker);
            queue.leave(&worker);
        })
    }

    /// Ends the threads.
    pub(super) fn stop(&mut self) {
        self.queue.close();
        let left = self.queue.wait_until_left(PATIENCE);
        for thread in self.threads.drain(..) {
            if left || thread.is_finished() {
                // A panic has been caught and reported with its step.
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
            // Whatever state a panic leaves behind is only the slab's bytes, which the next batch overwrites.
            let make = || collator.collate_seen(step, slab.bytes(), &worker.beacon);
            let thread = name(worker.number);
            match std::panic::catch_unwind(AssertUnwindSafe(make)) {
                Ok(Ok(info)) => break Ok(BatchInfo { worker: worker.number, ..info }),
                Ok(Err(error)) => break Err(LoaderError::Batch { thread, source: Box::new(error) }),
                Err(panic) => {
                    let (clip, message) = (queue.clip(worker), said(&*panic));
                    let error = LoaderError::Panicked { thread, step, clip, message };
                    if panics == AGAIN {
                        break Err(error);
                    }
                    panics += 1;
                    queue.notes.tell(format!("{error}; the batch is made again"));
                }
            }
        };
        queue.finish(worker, step, result, slab);
    }
}

/// The words of a panic.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    (panic.downcast_ref::<&str>().map(|words| (*words).to_owned()))
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a word".to_owned())
}
