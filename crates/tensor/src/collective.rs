//! Collective operations between replicas that train together.
//!
//! [`Replica`] connects threads of one process, each with its own memory; `cuda::nccl` connects GPUs. When a
//! replica ends, by a panic or an error, the others get an error instead of waiting forever.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Why a collective call failed. Every replica gets an error. The group is unusable afterwards unless noted
/// otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// A replica has left the group.
    #[error("replica {rank} of {world} ended: {reason}")]
    Ended {
        /// Rank of the replica that ended.
        rank: usize,
        /// Number of replicas in the group.
        world: usize,
        /// Reason that replica gave.
        reason: String,
    },
    /// The replicas made different calls. This is a programming error; the group stays usable.
    #[error("replica {rank} of {world} called {found} while replica 0 called {expected}")]
    Disagreement {
        /// The first rank that differs from replica 0.
        rank: usize,
        /// Number of replicas in the group.
        world: usize,
        /// The call that rank made.
        found: String,
        /// The call replica 0 made.
        expected: String,
    },
}

/// One member of a group of replicas. All members make the same calls in the same order.
pub trait Collective: Send + Sync {
    /// Rank of this replica, counted from 0.
    fn rank(&self) -> usize;

    /// Number of replicas.
    fn world(&self) -> usize;

    /// Replaces the values on every replica by their sum over the replicas. Addition is in rank order, so the bits
    /// are the same on every replica and in every run.
    fn all_reduce_sum(&self, values: &mut [f32]) -> Result<(), CollectiveError>;

    /// Replaces the values on every replica by those of `root`.
    fn broadcast(&self, values: &mut [f32], root: usize) -> Result<(), CollectiveError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    AllReduce { len: usize },
    Broadcast { len: usize, root: usize },
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Call::AllReduce { len } => write!(f, "all_reduce_sum of {len} values"),
            Call::Broadcast { len, root } => write!(f, "broadcast of {len} values from replica {root}"),
        }
    }
}

/// A replica's call and the address of its values.
#[derive(Clone, Copy)]
struct PostedCall {
    call: Call,
    values: *mut f32,
}

// SAFETY: other threads read it only between the two barriers of a call, while its owner waits; see
// `Replica::rendezvous`.
unsafe impl Send for PostedCall {}

struct State {
    posts: Vec<Option<PostedCall>>,
    arrived: usize,
    generation: u64,
    ended: Option<(usize, String)>,
}

struct Group {
    world: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held cannot leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, state: &State) -> Option<CollectiveError> {
        let (rank, reason) = state.ended.as_ref()?;
        Some(CollectiveError::Ended { rank: *rank, world: self.world, reason: reason.clone() })
    }

    /// Waits for all replicas. Once the last one has arrived, all of them pass, whatever happens afterwards.
    fn wait(&self, mut state: MutexGuard<'_, State>, fail_if_ended: bool) -> Result<(), CollectiveError> {
        if fail_if_ended && let Some(error) = self.ended(&state) {
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
            if fail_if_ended && let Some(error) = self.ended(&state) {
                return Err(error);
            }
        }
    }

    /// Waits for all replicas between the phases of a call. Returning early here would free memory that the others
    /// still read, and is not needed: all replicas are inside the call, where nothing can fail.
    fn phase(&self) {
        let passed = self.wait(self.state(), false);
        debug_assert!(passed.is_ok());
    }

    fn end_group(&self, rank: usize, reason: String) {
        let mut state = self.state();
        // The first reason is the cause; later ones are consequences of it.
        state.ended.get_or_insert((rank, reason));
        self.changed.notify_all();
    }
}

/// A replica that runs in a thread of this process.
///
/// Dropping it ends the group: later calls of the other replicas return an error.
pub struct Replica {
    rank: usize,
    group: Arc<Group>,
    /// Serialises calls: two threads calling through one replica would count as two replicas.
    calling: Mutex<()>,
}

impl Replica {
    /// Creates a group of `world` replicas, one for each thread.
    pub fn group(world: usize) -> Vec<Replica> {
        assert!(world > 0, "a group has at least one replica");
        let state = State { posts: vec![None; world], arrived: 0, generation: 0, ended: None };
        let group = Arc::new(Group { world, state: Mutex::new(state), changed: Condvar::new() });
        (0..world).map(|rank| Replica { rank, group: group.clone(), calling: Mutex::default() }).collect()
    }

    /// Ends the group because this replica cannot continue; the others get `reason`.
    pub fn fail(&self, reason: impl Into<String>) {
        self.group.end_group(self.rank, reason.into());
    }

    /// Posts the call, waits for the calls of the others, then runs `work` on all of them.
    ///
    /// Why the pointers stay valid: other replicas read a replica's values only inside `work`, that is, after all
    /// have arrived and before all have finished. During that time the owner's thread is inside this function and
    /// holds the borrow.
    fn rendezvous(
        &self,
        call: Call,
        values: *mut f32,
        work: impl FnOnce(&[PostedCall]),
    ) -> Result<(), CollectiveError> {
        let _guard = self.calling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.group.state();
        state.posts[self.rank] = Some(PostedCall { call, values });
        self.group.wait(state, true)?;
        let posts: Vec<PostedCall> = self.group.state().posts.iter().flatten().copied().collect();
        let other = posts.iter().position(|post| post.call != posts[0].call);
        if other.is_none() {
            work(&posts);
        }
        // No replica posts its next call before all have read this one.
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
        self.group.end_group(
            self.rank,
            if std::thread::panicking() { "it panicked".into() } else { "it left the group".into() },
        );
    }
}

/// The part of the values that a rank sums for all replicas.
fn part(len: usize, world: usize, rank: usize) -> std::ops::Range<usize> {
    // Whole cache lines, so that no two ranks write to the same one; the last parts may be short or empty.
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
        // A block of sums stays in the L1 cache while the replicas are added to it one after another.
        const BLOCK: usize = 2048;
        let (len, own) = (values.len(), values.as_mut_ptr());
        let world = self.group.world;
        self.rendezvous(Call::AllReduce { len }, own, |posts| {
            // SAFETY argument for all reads and writes below: in the first phase rank r writes part r of its own
            // values, and only rank r reads part r of any replica. In the second phase a rank writes its other
            // parts and reads part q of rank q, which is no longer written.
            let mine = part(len, world, self.rank);
            let mut sums = [0.0f32; BLOCK];
            let mut start = mine.start;
            while start < mine.end {
                let size = BLOCK.min(mine.end - start);
                let sums = &mut sums[..size];
                // SAFETY: see the argument above.
                let values_of = |rank: usize| unsafe {
                    std::slice::from_raw_parts(posts[rank].values.add(start).cast_const(), size)
                };
                sums.copy_from_slice(values_of(0));
                for rank in 1..world {
                    for (sum, value) in sums.iter_mut().zip(values_of(rank)) {
                        *sum += value;
                    }
                }
                // SAFETY: see the argument above; the shared slices are no longer used.
                unsafe { std::ptr::copy_nonoverlapping(sums.as_ptr(), own.add(start), size) };
                start += size;
            }
            self.group.phase();
            for (rank, post) in posts.iter().enumerate().filter(|&(rank, _)| rank != self.rank) {
                let part = part(len, world, rank);
                // SAFETY: see the argument above; the buffers belong to different ranks, each borrowed mutably by
                // its owner.
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
        self.rendezvous(Call::Broadcast { len, root }, own, |posts| {
            if self.rank != root {
                // SAFETY: no replica writes the values of `root`, and only this thread touches its own.
                unsafe { std::ptr::copy_nonoverlapping(posts[root].values.cast_const(), own, len) };
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_values_in_order() {
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
