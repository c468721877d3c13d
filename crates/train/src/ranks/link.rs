//! The ranks of a run, as one process sees them: rank 0 sends orders and receives answers, another rank receives orders.

use super::discovery::Identity;
use super::health::{Health, Peer};
use super::rendezvous::{self, Connections, Token};
use super::sums::TcpSums;
use super::wire;
use crate::error::TrainError;
use crate::rank_error::RankError;
use crate::stages::StageKind;
use myxtts_run::exit::Exit;
use myxtts_tensor::{Control, Report};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How ranks connect and monitor each other.
#[derive(Clone, Debug)]
pub struct Options {
    /// The shared secret by which ranks authenticate each other.
    pub token: Option<Token>,
    /// The run that the command line names; ranks that name different ones do not belong together.
    pub run: Option<String>,
    /// Time that ranks wait for each other at the beginning.
    pub rendezvous: Duration,
    /// Time without a heartbeat after which a rank is lost. All ranks use that of rank 0.
    pub limit: Duration,
}

impl Options {
    /// Default time that ranks wait for each other at the beginning.
    pub const RENDEZVOUS: Duration = Duration::from_secs(300);
    /// Default time without a heartbeat after which a rank is lost: all ranks have then ended within 30 s.
    pub const LIMIT: Duration = Duration::from_secs(15);
}

/// An order of rank 0 to the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Begins a stage. The model follows as a blob, and then the data that the stage builds on.
    Stage { kind: StageKind, fine_tune: bool },
    /// All ranks have built their stage and join, by NCCL with this id on GPUs.
    Join { nccl: Option<Vec<u8>> },
    /// Queues one step.
    Submit { step: u64, control: [u32; 4], seed: u64 },
    /// Requests the report of a step.
    Wait { step: u64 },
    /// Runs the work between two steps.
    Between { step: u64 },
    /// Takes over the arenas of rank 0; `steps` is the engine's own count.
    Restore { steps: u64 },
    /// Requests the hash of the trained weights.
    Hash,
    /// Ends the stage.
    EndStage,
    /// Ends the run.
    Finish { exit: u8 },
}

/// The answer of another rank. A rank that fails sends no answer: it reports the reason on the heartbeat connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The stage is built on this device.
    Built {
        device: String,
    },
    Submitted {
        rows: u64,
        records: Vec<u32>,
        notes: Vec<String>,
        waited: Duration,
    },
    /// Numbers as bits: a loss may be NaN or Inf.
    Report {
        loss: u32,
        norm: u32,
        good: bool,
        steps: u64,
        notes: Vec<u32>,
    },
    Hash(String),
    Done,
}

impl Answer {
    pub fn of(report: &Report) -> Answer {
        Answer::Report {
            loss: report.loss.to_bits(),
            norm: report.norm.to_bits(),
            good: report.good,
            steps: report.steps,
            notes: report.notes.iter().map(|note| note.to_bits()).collect(),
        }
    }
}

pub(crate) fn bits(control: &Control) -> [u32; 4] {
    [control.rate, control.weight, control.clip, control.average].map(f32::to_bits)
}

pub(crate) fn control_of(bits: [u32; 4], seed: u64) -> Control {
    let [rate, weight, clip, average] = bits.map(f32::from_bits);
    Control { rate, weight, clip, average, seed }
}

struct Orders {
    rank: usize,
    stream: TcpStream,
}

/// The first message of rank 0, when all ranks have connected.
#[derive(Serialize, Deserialize)]
struct Ready {
    limit: Duration,
}

/// All ranks of a run.
pub struct Ranks {
    identity: Identity,
    health: Arc<Health>,
    sums: Arc<TcpSums>,
    /// On rank 0: one connection per other rank, in order; on another rank: the one to rank 0.
    orders: Mutex<Vec<Orders>>,
}

impl Ranks {
    /// Connects to the other ranks. `say` prints a line; `stop` is set when the run should stop, here or on any rank.
    pub fn meet(
        identity: Identity,
        options: &Options,
        stop: &Arc<AtomicBool>,
        say: &dyn Fn(&str),
    ) -> Result<Ranks, RankError> {
        let token = match &options.token {
            Some(token) => token.clone(),
            // Only this machine can connect. Its other users can too, so `launch` sets a token.
            None if identity.is_loopback() => Token::of("loopback"),
            None => {
                return Err(RankError::NoToken { address: identity.address() });
            }
        };
        let stopped = || stop.load(Ordering::Relaxed);
        let secret = (&token, options.run.as_deref());
        let (connections, limit) = if identity.rank == 0 {
            let all = rendezvous::accept(&identity, secret, options.rendezvous, say, &stopped)?;
            for one in &all {
                let ready = wire::send(&mut &one.orders, &Ready { limit: options.limit });
                ready.map_err(|error| RankError::Lost {
                    rank: one.rank,
                    world: identity.world,
                    name: one.name.clone(),
                    reason: format!(
                        "it ended when all ranks had connected ({error}); its output has the reason"
                    ),
                })?;
            }
            (all, options.limit)
        } else {
            let lead = rendezvous::connect(&identity, secret, options.rendezvous, &stopped)?;
            let ready = wait_for_all(&lead.orders, &identity, options.rendezvous, &stopped)?;
            (vec![lead], ready.limit)
        };
        Ranks::new(identity, connections, limit, stop)
    }

    fn new(
        identity: Identity,
        connections: Vec<Connections>,
        limit: Duration,
        stop: &Arc<AtomicBool>,
    ) -> Result<Ranks, RankError> {
        let (mut peers, mut orders, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for Connections { rank, name, orders: own, sums: adds, pulse } in connections {
            peers.push(Peer { rank, name, pulse });
            orders.push(Orders { rank, stream: own });
            sums.push(adds);
        }
        let place = (identity.rank, identity.world);
        let health = Health::start(place, limit, peers, stop.clone())?;
        for stream in orders.iter().map(|one| &one.stream).chain(&sums) {
            health.watch(stream)?;
        }
        let sums = Arc::new(TcpSums::new(place, sums, health.clone()));
        Ok(Ranks { identity, health, sums, orders: Mutex::new(orders) })
    }

    /// The identity of this rank.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.identity.rank
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.identity.world
    }

    /// Whether this is rank 0, which sends the orders.
    pub fn is_lead(&self) -> bool {
        self.identity.rank == 0
    }

    /// The heartbeat monitor.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Sums of a few numbers, and of gradients without a GPU.
    pub fn sums(&self) -> &Arc<TcpSums> {
        &self.sums
    }

    fn orders(&self) -> MutexGuard<'_, Vec<Orders>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the connection to every other rank, in order.
    fn each<T>(&self, mut work: impl FnMut(&mut TcpStream) -> io::Result<T>) -> Result<Vec<T>, RankError> {
        let done: Result<Vec<T>, (usize, io::Error)> = self.health.tracker().while_idle(|| {
            let mut orders = self.orders();
            orders.iter_mut().map(|one| work(&mut one.stream).map_err(|error| (one.rank, error))).collect()
        });
        done.map_err(|(rank, error)| {
            if wire::is_timeout(&error) {
                let words = format!(
                    "it has not answered for {} s, though it sends heartbeats",
                    self.health.answer_limit().as_secs()
                );
                self.health.lost(rank, words);
            }
            self.health.explain(rank, &error)
        })
    }

    /// Rank 0: sends an order to all.
    pub(crate) fn order(&self, order: &Order) -> Result<(), RankError> {
        self.each(|stream| wire::send(stream, order)).map(|_| ())
    }

    /// Rank 0: the answers of all, by rank. `patient` sets no time limit.
    pub(crate) fn answers(&self, patient: bool) -> Result<Vec<Answer>, RankError> {
        let limit = (!patient).then(|| self.health.answer_limit());
        self.each(|stream| {
            stream.set_read_timeout(limit)?;
            wire::receive(stream)
        })
    }

    /// Another rank: waits for the next order.
    pub(crate) fn next_order(&self) -> Result<Order, RankError> {
        self.received()
    }

    fn received<T: DeserializeOwned>(&self) -> Result<T, RankError> {
        let mut all = self.each(wire::receive)?;
        all.pop().ok_or(RankError::Socket(io::ErrorKind::NotConnected.into()))
    }

    /// Another rank: answers rank 0.
    pub(crate) fn answer(&self, answer: &Answer) -> Result<(), RankError> {
        self.each(|stream| wire::send(stream, answer)).map(|_| ())
    }

    /// Sends bytes of rank 0 to all others.
    pub(crate) fn broadcast_bytes(&self, own: Option<&[u8]>) -> Result<Option<Vec<u8>>, RankError> {
        match own {
            Some(bytes) => self.each(|stream| wire::send_blob(stream, bytes)).map(|_| None),
            None => match self.each(wire::receive_blob::<Order>)?.pop() {
                // Rank 0 received a stop request before it had computed the bytes.
                Some(Err(Order::Finish { exit })) => {
                    Err(RankError::Finished(Exit::from_code(exit).unwrap_or(Exit::Internal)))
                }
                Some(Err(order)) => Err(unexpected(&order)),
                Some(Ok(bytes)) => Ok(Some(bytes)),
                None => Ok(None),
            },
        }
    }

    /// Computes a value on rank 0 and sends it to all others as bytes.
    pub(crate) fn broadcast<T>(
        &self,
        make: impl FnOnce() -> Result<T, TrainError>,
        encode: impl FnOnce(&T) -> Vec<u8>,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<T, TrainError> {
        if self.is_lead() {
            let made = make()?;
            self.broadcast_bytes(Some(&encode(&made)))?;
            return Ok(made);
        }
        let bytes = self.broadcast_bytes(None)?.unwrap_or_default();
        decode(&bytes).ok_or_else(|| {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the message of rank 0 cannot be decoded");
            RankError::Socket(error).into()
        })
    }

    /// Rank 0: ends the run without an error, on all ranks.
    pub fn finish(&self, exit: Exit) -> Result<(), RankError> {
        // First: ranks end, and close their connections, as soon as they have received the order.
        self.health.expect_end();
        let order = Order::Finish { exit: exit.code() };
        // Every rank is notified, even if another one cannot be reached.
        let told: Vec<io::Result<()>> =
            self.orders().iter_mut().map(|one| wire::send(&mut one.stream, &order)).collect();
        self.health.finish();
        told.into_iter().collect::<io::Result<()>>().map_err(RankError::Socket)
    }
}

/// An order that is not expected here: ranks of one version never see it.
pub(crate) fn unexpected(order: &Order) -> RankError {
    let words = format!("unexpected order {order:?}: a bug in this program");
    RankError::Socket(io::Error::new(io::ErrorKind::InvalidData, words))
}

/// Another rank: waits until rank 0 reports that all have connected.
fn wait_for_all(
    orders: &TcpStream,
    identity: &Identity,
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Ready, RankError> {
    let began = Instant::now();
    orders.set_read_timeout(Some(Duration::from_millis(100))).map_err(RankError::Socket)?;
    loop {
        if stopped() {
            return Err(RankError::Stopped);
        }
        match orders.peek(&mut [0]) {
            Ok(1) => break,
            Ok(_) => return Err(left(identity)),
            Err(error) if wire::is_timeout(&error) && began.elapsed() < limit => {}
            Err(error) if wire::is_timeout(&error) => {
                let (rank, world, address) = (identity.rank, identity.world, identity.address());
                return Err(RankError::Incomplete { rank, world, address, seconds: limit.as_secs_f64() });
            }
            Err(_) => return Err(left(identity)),
        }
    }
    orders.set_read_timeout(None).map_err(RankError::Socket)?;
    wire::receive(&mut &*orders).map_err(|_| left(identity))
}

fn left(identity: &Identity) -> RankError {
    RankError::Lost {
        rank: 0,
        world: identity.world,
        name: identity.address(),
        reason: "it ended before all ranks had connected; its output has the reason".to_owned(),
    }
}
