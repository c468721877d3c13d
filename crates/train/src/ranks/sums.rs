//! Sums over ranks by TCP: all ranks send to rank 0, which adds in the order of the ranks and sends the sum back. Replicas
//! in one process use the same order, so the results are bit-identical. Used for CPUs, and for the few numbers that ranks
//! with GPUs exchange on the host; gradients of GPUs use NCCL.

use super::health::Health;
use myxtts_tensor::collective::{Collective, CollectiveError};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Numbers per piece: small enough for socket buffers and caches.
const PIECE: usize = 1 << 16;

const REDUCE: u8 = 1;
const BROADCAST: u8 = 2;

/// The part of one rank in sums over TCP.
pub struct TcpSums {
    rank: usize,
    world: usize,
    /// On rank 0: one stream per other rank, in order; on another rank: the one to rank 0.
    streams: Mutex<Vec<TcpStream>>,
    health: Arc<Health>,
    /// Nanoseconds spent in calls.
    spent: AtomicU64,
}

struct Failed(usize, io::Error);

impl TcpSums {
    pub(super) fn new(
        (rank, world): (usize, usize),
        streams: Vec<TcpStream>,
        health: Arc<Health>,
    ) -> TcpSums {
        TcpSums { rank, world, streams: Mutex::new(streams), health, spent: AtomicU64::new(0) }
    }

    /// Time that this rank has spent in sums and copies, including waiting for others.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    fn streams(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rank at the other end of a stream.
    fn other(&self, i: usize) -> usize {
        if self.rank == 0 { i + 1 } else { 0 }
    }

    fn timed(
        &self,
        work: impl FnOnce(&mut [TcpStream]) -> Result<(), Failed>,
    ) -> Result<(), CollectiveError> {
        let began = Instant::now();
        let done = self.health.tracker().while_idle(|| work(&mut self.streams()));
        self.spent.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        done.map_err(|Failed(rank, error)| {
            let reason = self.health.explain(rank, &error).to_string();
            CollectiveError::Ended { rank, world: self.world, reason }
        })
    }

    /// Sends the header of a call and checks it against that of the others.
    fn head(&self, streams: &mut [TcpStream], call: u8, len: usize) -> Result<(), Failed> {
        let mut own = [0; 9];
        own[0] = call;
        own[1..].copy_from_slice(&(len as u64).to_le_bytes());
        for (i, stream) in streams.iter_mut().enumerate() {
            let failed = |error| Failed(self.other(i), error);
            if self.rank > 0 {
                stream.write_all(&own).map_err(failed)?;
                continue;
            }
            let mut theirs = [0; 9];
            stream.read_exact(&mut theirs).map_err(failed)?;
            if theirs != own {
                let words =
                    format!("it called {theirs:?} while rank 0 called {own:?}: a bug in this program");
                return Err(failed(io::Error::new(io::ErrorKind::InvalidData, words)));
            }
        }
        Ok(())
    }
}

impl Collective for TcpSums {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn all_reduce_sum(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        self.timed(|streams| {
            self.head(streams, REDUCE, values.len())?;
            let mut theirs = vec![0f32; PIECE.min(values.len())];
            // In pieces: otherwise both sides would wait for the other to read.
            for piece in values.chunks_mut(PIECE) {
                for (i, stream) in streams.iter_mut().enumerate() {
                    let failed = |error| Failed(self.other(i), error);
                    if self.rank > 0 {
                        stream.write_all(bytemuck::cast_slice(piece)).map_err(failed)?;
                        stream.read_exact(bytemuck::cast_slice_mut(piece)).map_err(failed)?;
                        continue;
                    }
                    let theirs = &mut theirs[..piece.len()];
                    stream.read_exact(bytemuck::cast_slice_mut(theirs)).map_err(failed)?;
                    piece.iter_mut().zip(theirs).for_each(|(sum, value)| *sum += *value);
                }
                if self.rank == 0 {
                    for (i, stream) in streams.iter_mut().enumerate() {
                        stream
                            .write_all(bytemuck::cast_slice(piece))
                            .map_err(|e| Failed(self.other(i), e))?;
                    }
                }
            }
            Ok(())
        })
    }

    fn broadcast(&self, values: &mut [f32], root: usize) -> Result<(), CollectiveError> {
        assert!(root == 0, "only rank 0 can be the source");
        self.timed(|streams| {
            self.head(streams, BROADCAST, values.len())?;
            for (i, stream) in streams.iter_mut().enumerate() {
                let done = match self.rank {
                    0 => stream.write_all(bytemuck::cast_slice(values)),
                    _ => stream.read_exact(bytemuck::cast_slice_mut(values)),
                };
                done.map_err(|error| Failed(self.other(i), error))?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::health::Peer;
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    /// `world` ranks, as threads connected only by sockets.
    fn ranks(world: usize) -> Vec<TcpSums> {
        let limit = Duration::from_secs(5);
        let (mut peers, mut streams, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for rank in 1..world {
            let ((near, far), (pulse, their)) = (pair(), pair());
            peers.push(Peer { rank, name: format!("host{rank}"), pulse });
            streams.push(near);
            let own = vec![Peer { rank: 0, name: "host0".into(), pulse: their }];
            let health = Health::start((rank, world), limit, own, Arc::default()).unwrap();
            health.watch(&far).unwrap();
            others.push(TcpSums::new((rank, world), vec![far], health));
        }
        let health = Health::start((0, world), limit, peers, Arc::default()).unwrap();
        streams.iter().for_each(|stream| health.watch(stream).unwrap());
        let mut all = vec![TcpSums::new((0, world), streams, health)];
        all.extend(others);
        all
    }

    #[test]
    fn sums_are_added_in_the_order_of_ranks() {
        // Values of very different magnitudes, so that the order of addition shows in the bits; more than one piece.
        let len = PIECE * 2 + 17;
        let value = |rank: usize, i: usize| {
            ((i * 7 + rank * 13) % 101) as f32 * 10f32.powi((rank * 5 + i) as i32 % 9 - 4)
        };
        let mut expected: Vec<f32> = (0..len).map(|i| value(0, i)).collect();
        for rank in 1..3 {
            expected.iter_mut().enumerate().for_each(|(i, sum)| *sum += value(rank, i));
        }
        let threads: Vec<_> = ranks(3)
            .into_iter()
            .map(|sums| {
                std::thread::spawn(move || {
                    let mut own: Vec<f32> = (0..len).map(|i| value(sums.rank(), i)).collect();
                    sums.all_reduce_sum(&mut own).unwrap();
                    let mut copied = vec![sums.rank() as f32; 5];
                    sums.broadcast(&mut copied, 0).unwrap();
                    assert_eq!(copied, [0.0; 5]);
                    assert!(sums.spent() > Duration::ZERO);
                    own
                })
            })
            .collect();
        for thread in threads {
            let found = thread.join().unwrap();
            assert!(found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }

    #[test]
    fn waiting_ranks_are_released_on_a_loss() {
        let mut all = ranks(3);
        let gone = all.pop();
        let threads: Vec<_> = all
            .into_iter()
            .map(|sums| {
                std::thread::spawn(move || sums.all_reduce_sum(&mut [1.0; 9]).unwrap_err().to_string())
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        // As when its process is killed: all its sockets close.
        let gone = gone.unwrap();
        gone.streams().iter().for_each(|stream| stream.shutdown(std::net::Shutdown::Both).unwrap());
        gone.health.fail("it was killed", myxtts_run::exit::Exit::Retry);
        for thread in threads {
            let error = thread.join().unwrap();
            assert!(error.contains("rank 2 of 3"), "{error}");
        }
    }

    #[test]
    fn ranks_with_different_calls_are_an_error() {
        let all = ranks(2);
        let threads: Vec<_> = all
            .into_iter()
            .map(|sums| {
                std::thread::spawn(move || sums.all_reduce_sum(&mut vec![1.0; 4 + sums.rank()]).err())
            })
            .collect();
        let errors: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let words = errors[0].as_ref().unwrap().to_string();
        assert!(words.contains("while rank 0 called"), "{words}");
    }
}
