//! The loader's threads: they live as long as it does, and nothing that goes wrong in one stays there.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::batch::{BatchInfo, Collator};
use crate::loader::LoaderError;
use crate::loader::queue::Queue;
use crate::loader::slab::Slab;

/// How long a stop waits for batches in hand. A thread that is stuck in the storage cannot be ended;
/// it is left behind, and must not keep the program from ending.
const PATIENCE: Duration = Duration::from_secs(5);

/// The name of a worker's thread.
pub(super) fn name(worker: usize) -> String {
    format!("batch-{worker}")
}

pub(super) struct Workers<S: Slab> {
    queue: Arc<Queue<S>>,
    threads: Vec<JoinHandle<()>>,
}

impl<S: Slab> Workers<S> {
    pub(super) fn start(
        queue: &Arc<Queue<S>>,
        collator: &Collator,
        count: usize,
    ) -> Result<Self, LoaderError> {
        let mut workers = Workers { queue: queue.clone(), threads: Vec::with_capacity(count) };
        for worker in 0..count {
            let (queue, collator) = (queue.clone(), collator.clone());
            let thread = std::thread::Builder::new().name(name(worker)).spawn(move || {
                work(&queue, &collator, worker);
                queue.leave();
            });
            match thread {
                Ok(thread) => workers.threads.push(thread),
                Err(error) => {
                    // Those that never started have left; dropping `workers` stops the others.
                    (worker..count).for_each(|_| workers.queue.leave());
                    return Err(LoaderError::Thread(error));
                }
            }
        }
        Ok(workers)
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

fn work<S: Slab>(queue: &Queue<S>, collator: &Collator, worker: usize) {
    while let Some((step, mut slab)) = queue.claim(worker) {
        // Whatever state a panic leaves behind is only the slab's bytes, which the next batch overwrites.
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| collator.collate(step, slab.bytes())));
        let result = match made {
            Ok(Ok(info)) => Ok(BatchInfo { worker, ..info }),
            Ok(Err(error)) => Err(LoaderError::Batch { thread: name(worker), source: Box::new(error) }),
            Err(panic) => Err(LoaderError::Panicked { thread: name(worker), step, message: said(&*panic) }),
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
