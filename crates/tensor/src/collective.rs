//! Replicas that train together: sums and copies between them.
//!
//! [`Replica`] joins threads of one process, each with memory of its own; GPUs are joined by `cuda::nccl`. A replica
//! that ends, by a panic or an error, releases the others with an error; none waits for ever.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Why the replicas could not go on together. Every replica gets an error, and the group is over unless said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// One is gone.
    #[error("replica {rank} of {world} ended: {reason}")]
    Gone {
        /// Which.
        rank: usize,
        /// Of how many.
        world: usize,
        /// In its own words.
        reason: String,
    },
    /// They did not ask for the same thing. A fault of the program; the group could go on.
    #[error("replica {rank} of {world} called {found} while replica 0 called {expected}")]
    Disagreement {
        /// The first that differs from replica 0.
        rank: usize,
        /// Of how many.
        world: usize,
        /// What it called.
        found: String,
        /// What replica 0 called.
        expected: String,
    },
}

/// One member of a group of replicas. All of them make the same calls in the same order.
pub trait Collective: Send + Sync {
    /// Which one this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn world(&self) -> usize;

    /// Every replica's values become the sum over the replicas, added in the order of their ranks: the same bits on
    /// every replica and in every run.
    fn all_reduce_sum(&self, values: &mut [f32]) -> Result<(), CollectiveError>;

    /// Every replica's values become those of `root`.
    fn broadcast(&self, values: &mut [f32], root: usize) -> Result<(), CollectiveError>;

    /// Returns when every replica has called it.
    fn barrier(&self) -> Result<(), CollectiveError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    AllReduce { len: usize },
    Broadcast { len: usize, root: usize },
    Barrier,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Call::AllReduce { len } => write!(f, "all_reduce_sum of {len} values"),
            Call::Broadcast { len, root } => write!(f, "broadcast of {len} values from replica {root}"),
            Call::Barrier => write!(f, "barrier"),
        }
    }
}

/// What a replica calls, and where its values are.
#[derive(Clone, Copy)]
struct Post {
    call: Call,
    values: *mut f32,
}

// SAFETY: read by other threads only between the two barriers of a call, while the owner waits; see `Replica::meet`.
unsafe impl Send for Post {}

struct State {
    posts: Vec<Option<Post>>,
    arrived: usize,
    generation: u64,
    gone: Option<(usize, String)>,
}

struct Group {
    world: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it is held cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self, state: &State) -> Option<CollectiveError> {
        let (rank, reason) = state.gone.as_ref()?;
        Some(CollectiveError::Gone { rank: *rank, world: self.world, reason: reason.clone() })
    }

    /// Waits for all. Once the last has arrived everyone passes, whatever happens after.
    fn wait(&self, mut state: MutexGuard<'_, State>, give_up: bool) -> Result<(), CollectiveError> {
        if give_up && let Some(error) = self.gone(&state) {
            return Err(error);
        }
        state.arrived += 1;
        if state.arrived == self.world {
            state.arrived = 0;
            state.generation += 1;
            self.changed.notify_all();
            return Ok(());
        }
        let generation = state.generation;
        loop {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            if state.generation != generation {
                return Ok(());
            }
            if give_up && let Some(error) = self.gone(&state) {
                return Err(error);
            }
        }
    }

    /// Waits for all between the phases of a call. Giving up here would take memory away from under the others; nor
    /// is there need: all are inside the call, where nothing fails.
    fn phase(&self) {
        let passed = self.wait(self.state(), false);
        debug_assert!(passed.is_ok());
    }

    fn leave(&self, rank: usize, reason: String) {
        let mut state = self.state();
        // The first reason is the cause; what follows are its consequences.
        state.gone.get_or_insert((rank, reason));
        self.changed.notify_all();
    }
}

/// A replica in a thread of this process.
///
/// Dropping it ends the group: replicas that go on to call for something get an error.
pub struct Replica {
    rank: usize,
    group: Arc<Group>,
    /// One call at a time: two threads with one replica would count as two replicas.
    calling: Mutex<()>,
}

impl Replica {
    /// A group of so many, one for each thread.
    pub fn group(world: usize) -> Vec<Replica> {
        assert!(world > 0, "a group has at least one replica");
        let state = State { posts: vec![None; world], arrived: 0, generation: 0, gone: None };
        let group = Arc::new(Group { world, state: Mutex::new(state), changed: Condvar::new() });
        (0..world).map(|rank| Replica { rank, group: group.clone(), calling: Mutex::default() }).collect()
    }

    /// Ends the group because this replica cannot go on; the others get the reason.
    pub fn fail(&self, reason: impl Into<String>) {
        self.group.leave(self.rank, reason.into());
    }

    /// Posts the call, waits for the others' and does `work` on all of them.
    ///
    /// Why the memory is there: a replica's values are read by others only inside `work`, that is after all have
    /// arrived and before all have finished, and until then its own thread is in here, holding them borrowed.
    fn meet(&self, call: Call, values: *mut f32, work: impl FnOnce(&[Post])) -> Result<(), CollectiveError> {
        let _one = self.calling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.group.state();
        state.posts[self.rank] = Some(Post { call, values });
        self.group.wait(state, true)?;
        let posts: Vec<Post> = self.group.state().posts.iter().flatten().copied().collect();
        let other = posts.iter().position(|post| post.call != posts[0].call);
        if other.is_none() {
            work(&posts);
        }
        // Nobody posts anew before all have looked.
        self.group.phase();
        other.map_or(Ok(()), |rank| {
            Err(CollectiveError::Disagreement {
                rank,
                world: self.group.world,
                found: posts[rank].call.to_string(),
                expected: posts[0].call.to_string(),
            })
        })
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.group.leave(
            self.rank,
            if std::thread::panicking() { "it panicked".into() } else { "it left the group".into() },
        );
    }
}

/// The part of the values that a rank adds up for all.
fn part(len: usize, world: usize, rank: usize) -> std::ops::Range<usize> {
    // In whole cache lines, so that no two ranks write to one; the last parts may be short or empty.
    const LINE: usize = 16;
    let size = len.div_ceil(world).next_multiple_of(LINE);
    (size * rank).min(len)..(size * (rank + 1)).min(len)
}

impl Collective for Replica {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.group.world
    }

    fn all_reduce_sum(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        // A block of sums stays in the nearest cache while the replicas are added to it one after the other.
        const BLOCK: usize = 2048;
        let (len, own) = (values.len(), values.as_mut_ptr());
        let world = self.group.world;
        self.meet(Call::AllReduce { len }, own, |posts| {
            // SAFETY, of all that is read and written below: rank r writes part r of its own values in the first
            // phase, and that part of anyone's values is read by rank r alone; in the second phase it writes its
            // other parts, and what is read of others is part q of rank q, which nobody writes.
            let mine = part(len, world, self.rank);
            let mut sums = [0.0f32; BLOCK];
            let mut start = mine.start;
            while start < mine.end {
                let size = BLOCK.min(mine.end - start);
                let sums = &mut sums[..size];
                // SAFETY: above.
                let of = |rank: usize| unsafe {
                    std::slice::from_raw_parts(posts[rank].values.add(start).cast_const(), size)
                };
                sums.copy_from_slice(of(0));
                for rank in 1..world {
                    for (sum, value) in sums.iter_mut().zip(of(rank)) {
                        *sum += value;
                    }
                }
                // SAFETY: above; the shared slices are no longer used.
                unsafe { std::ptr::copy_nonoverlapping(sums.as_ptr(), own.add(start), size) };
                start += size;
            }
            self.group.phase();
            for (rank, post) in posts.iter().enumerate().filter(|&(rank, _)| rank != self.rank) {
                let part = part(len, world, rank);
                // SAFETY: above; the buffers are different ranks', each borrowed mutably by its own.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        post.values.add(part.start).cast_const(),
                        own.add(part.start),
                        part.len(),
                    );
                }
            }
        })
    }

    fn broadcast(&self, values: &mut [f32], root: usize) -> Result<(), CollectiveError> {
        assert!(root < self.group.world, "replica {root} of {}", self.group.world);
        let (len, own) = (values.len(), values.as_mut_ptr());
        self.meet(Call::Broadcast { len, root }, own, |posts| {
            if self.rank != root {
                // SAFETY: nobody writes root's values, and only this thread touches its own.
                unsafe { std::ptr::copy_nonoverlapping(posts[root].values.cast_const(), own, len) };
            }
        })
    }

    fn barrier(&self) -> Result<(), CollectiveError> {
        self.meet(Call::Barrier, std::ptr::null_mut(), |_| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole_in_order() {
        for world in 1..9 {
            for len in [0, 1, 15, 16, 17, 100, 127, 128, 129, 1000, 4096] {
                let mut end = 0;
                for rank in 0..world {
                    let part = part(len, world, rank);
                    assert_eq!(part.start, end);
                    end = part.end;
                }
                assert_eq!(end, len);
            }
        }
    }
}
