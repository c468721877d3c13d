//! A bounded in-memory LRU cache.
//!
//! Values are computed outside the lock and only once: a second thread that wants the same value waits for the first. The
//! least recently used value is evicted first. One lock is enough: it is held for a look-up, while computing a value takes
//! milliseconds.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Values by key, with a bound on their total size.
pub struct MemoryCache<V> {
    bound: usize,
    state: Mutex<State<V>>,
}

struct State<V> {
    entries: HashMap<usize, Entry<V>>,
    /// Keys of the ready values, by the time of their last use.
    by_age: BTreeMap<u64, usize>,
    clock: u64,
    used: usize,
    peak: usize,
    hits: u64,
    computed: u64,
}

enum Entry<V> {
    Ready { value: Arc<V>, bytes: usize, age: u64 },
    Pending(Arc<Pending<V>>),
}

/// A value that is being computed. Waiting threads take it from here, so they get it even if it is too large to be cached.
struct Pending<V> {
    outcome: Mutex<Outcome<V>>,
    done: Condvar,
}

enum Outcome<V> {
    Waiting,
    Value(Arc<V>),
    /// The computation panicked; another thread must retry.
    Abandoned,
}

/// Statistics of a [`MemoryCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes in use.
    pub used: usize,
    /// Peak of `used`.
    pub peak: usize,
    /// Maximum number of bytes.
    pub bound: usize,
    /// Requests served from memory.
    pub hits: u64,
    /// Number of values computed.
    pub computed: u64,
}

impl<V> MemoryCache<V> {
    /// Creates a cache of at most `bound` bytes; 0 caches nothing.
    pub fn new(bound: usize) -> Self {
        let state = State {
            entries: HashMap::new(),
            by_age: BTreeMap::new(),
            clock: 0,
            used: 0,
            peak: 0,
            hits: 0,
            computed: 0,
        };
        MemoryCache { bound, state: Mutex::new(state) }
    }

    /// Returns the value of `key`, computing it if it is not cached. `compute` also returns the size of the value in bytes.
    pub fn get(&self, key: usize, compute: impl Fn() -> (V, usize)) -> Arc<V> {
        loop {
            let pending = {
                let mut state = lock(&self.state);
                match state.touch(key) {
                    Some(Entry::Ready { value, .. }) => {
                        let value = Arc::clone(value);
                        state.hits += 1;
                        return value;
                    }
                    Some(Entry::Pending(pending)) => Err(Arc::clone(pending)),
                    None => {
                        let pending =
                            Arc::new(Pending { outcome: Mutex::new(Outcome::Waiting), done: Condvar::new() });
                        state.entries.insert(key, Entry::Pending(Arc::clone(&pending)));
                        state.computed += 1;
                        Ok(pending)
                    }
                }
            };
            match pending {
                Ok(mine) => {
                    // If `compute` panics, dropping this wakes the waiting threads.
                    let mut promise = Promise { cache: self, key, pending: mine, outcome: None };
                    let (value, bytes) = compute();
                    let value = Arc::new(value);
                    promise.outcome = Some((Arc::clone(&value), bytes));
                    return value;
                }
                Err(theirs) => {
                    if let Some(value) = theirs.wait() {
                        lock(&self.state).hits += 1;
                        return value;
                    }
                }
            }
        }
    }

    /// Returns the statistics so far.
    pub fn usage(&self) -> MemoryUse {
        let state = lock(&self.state);
        MemoryUse {
            used: state.used,
            peak: state.peak,
            bound: self.bound,
            hits: state.hits,
            computed: state.computed,
        }
    }
}

impl<V> State<V> {
    /// Returns the entry of a key and makes it the most recently used.
    fn touch(&mut self, key: usize) -> Option<&Entry<V>> {
        self.clock += 1;
        let entry = self.entries.get_mut(&key)?;
        if let Entry::Ready { age, .. } = entry {
            self.by_age.remove(age);
            *age = self.clock;
            self.by_age.insert(self.clock, key);
        }
        Some(entry)
    }

    /// Caches a value that fits within the bound, evicting others first.
    fn keep(&mut self, key: usize, value: Arc<V>, bytes: usize, bound: usize) {
        if bytes > bound {
            return;
        }
        while self.used > bound - bytes {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            if let Some(Entry::Ready { bytes, .. }) = self.entries.remove(&oldest) {
                self.used -= bytes;
            }
        }
        self.clock += 1;
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        self.by_age.insert(self.clock, key);
        self.entries.insert(key, Entry::Ready { value, bytes, age: self.clock });
    }
}

impl<V> Pending<V> {
    fn wait(&self) -> Option<Arc<V>> {
        let mut outcome = lock(&self.outcome);
        loop {
            match &*outcome {
                Outcome::Value(value) => return Some(Arc::clone(value)),
                Outcome::Abandoned => return None,
                Outcome::Waiting => {
                    outcome = self.done.wait(outcome).unwrap_or_else(|poisoned| poisoned.into_inner());
                }
            }
        }
    }
}

/// Publishes the outcome to waiting threads when dropped.
struct Promise<'c, V> {
    cache: &'c MemoryCache<V>,
    key: usize,
    pending: Arc<Pending<V>>,
    outcome: Option<(Arc<V>, usize)>,
}

impl<V> Drop for Promise<'_, V> {
    fn drop(&mut self) {
        let mut state = lock(&self.cache.state);
        state.entries.remove(&self.key);
        let outcome = match self.outcome.take() {
            Some((value, bytes)) => {
                state.keep(self.key, Arc::clone(&value), bytes, self.cache.bound);
                Outcome::Value(value)
            }
            None => Outcome::Abandoned,
        };
        drop(state);
        *lock(&self.pending.outcome) = outcome;
        self.pending.done.notify_all();
    }
}

/// A panic leaves no state half updated here, so a poisoned lock is safe to use.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_least_recently_used_are_evicted_first_and_the_bound_holds() {
        let cache = MemoryCache::new(100);
        let get = |key: usize| *cache.get(key, || (key * 10, 40));
        assert_eq!((get(1), get(2), get(1), get(3)), (10, 20, 10, 30));
        assert_eq!(cache.usage().computed, 3);
        get(1);
        assert_eq!(cache.usage().computed, 3, "1 was used after 2, so 2 was evicted");
        get(2);
        assert_eq!(cache.usage(), MemoryUse { used: 80, peak: 80, bound: 100, hits: 2, computed: 4 });
    }

    #[test]
    fn a_value_that_is_too_large_is_returned_and_not_cached() {
        let cache = MemoryCache::new(10);
        assert_eq!(*cache.get(0, || (1, 4)), 1);
        assert_eq!(*cache.get(1, || (2, 11)), 2);
        assert_eq!(cache.usage().used, 4, "nothing was evicted for it either");
    }

    #[test]
    fn concurrent_requests_compute_once() {
        let cache = MemoryCache::new(1000);
        let computed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let value = cache.get(7, || {
                        computed.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        (70, 1)
                    });
                    assert_eq!(*value, 70);
                });
            }
        });
        assert_eq!(computed.into_inner(), 1);
    }

    #[test]
    fn after_a_panic_the_value_is_computed_again() {
        let cache: MemoryCache<u32> = MemoryCache::new(1000);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cache.get(1, || panic!("on purpose"));
        }));
        assert!(panicked.is_err());
        assert_eq!(*cache.get(1, || (5, 1)), 5);
    }

    #[test]
    fn accounting_is_exact_under_contention() {
        let cache = MemoryCache::new(500);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let cache = &cache;
                scope.spawn(move || {
                    let seed = myxtts_run::seed::Seed::new(thread);
                    for i in 0..2000 {
                        let key = seed.below(i, 60) as usize;
                        assert_eq!(*cache.get(key, || (key, 10 + key)), key);
                    }
                });
            }
        });
        let state = lock(&cache.state);
        let held: usize =
            state.entries.values().map(|e| if let Entry::Ready { bytes, .. } = e { *bytes } else { 0 }).sum();
        assert_eq!((held, state.by_age.len()), (state.used, state.entries.len()));
        assert!(state.peak <= 500);
    }
}
