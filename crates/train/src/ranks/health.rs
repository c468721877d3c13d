//! Heartbeats. Every rank sends heartbeats on a connection of its own, from a dedicated thread. Rank 0 receives those of all
//! ranks, and the others those of rank 0. A rank that is silent for too long, or whose connection ends, is lost: all ranks
//! are informed and all sockets are closed, so that no rank keeps waiting for a lost one.
//!
//! Heartbeats also carry what the main thread does (`rank_activity`), by which rank 0 detects one that hangs.

use super::wire;
use crate::rank_activity::{Activity, Entered, Phase, STEP_TIMEOUT, Tracker, hanging};
use crate::rank_error::RankError;
use myxtts_run::exit::Exit;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which a thread checks for messages to send.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for writing a heartbeat, which is a few bytes.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that an ending rank waits for the others to read the reason.
const LINGER: Duration = Duration::from_secs(1);
/// Time that a failed call waits for the heartbeat to name the rank that caused it.
pub const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// A later step may always take this many times the time without a heartbeat: 30 s by default.
const STEP_LIMITS: u32 = 2;
/// Time that a rank which was informed of a loss gets to end by itself.
pub const GRACE: Duration = Duration::from_secs(5);

/// A message on the heartbeat connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Pulse {
    /// A heartbeat, with what the main thread does.
    Beat(Activity),
    /// This rank received a stop signal: all ranks should stop cleanly.
    Stop,
    /// A rank is lost.
    Lost(Cause),
    /// This rank ends without an error; a closed connection is no loss.
    Bye,
}

/// The lost rank, and how the loss was detected.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cause {
    rank: usize,
    name: String,
    reason: String,
    /// The exit code of a rank that reported its own failure.
    exit: Option<u8>,
}

/// Another rank, on its heartbeat connection.
pub(crate) struct Peer {
    pub rank: usize,
    pub name: String,
    pub pulse: TcpStream,
}

struct PeerWriter {
    rank: usize,
    name: String,
    writer: Mutex<TcpStream>,
}

#[derive(Default)]
struct State {
    cause: Option<Cause>,
    /// Sockets that are closed on a loss, which releases the threads that wait on them.
    sockets: Vec<TcpStream>,
    actions: Vec<Box<dyn FnOnce() + Send>>,
}

/// Monitors whether all ranks are alive.
pub struct Health {
    rank: usize,
    world: usize,
    limit: Duration,
    tracker: Arc<Tracker>,
    /// What each peer last reported; `None` before its first heartbeat.
    reported: Mutex<Vec<Option<Activity>>>,
    peers: Vec<PeerWriter>,
    state: Mutex<State>,
    /// The run is over: connections may end.
    over: AtomicBool,
    listening: AtomicUsize,
    stop: Arc<AtomicBool>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health {
    /// Starts to send and receive heartbeats. A rank that is silent for `limit` is lost. `stop` is set when another rank receives
    /// a stop request; if it is set on this rank, the others are informed.
    pub(crate) fn start(
        (rank, world): (usize, usize),
        limit: Duration,
        peers: Vec<Peer>,
        stop: Arc<AtomicBool>,
    ) -> Result<Arc<Health>, RankError> {
        let mut writers = Vec::new();
        let mut readers = Vec::new();
        for Peer { rank, name, pulse } in peers {
            pulse.set_read_timeout(Some(limit)).map_err(RankError::Socket)?;
            pulse.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(RankError::Socket)?;
            let writer = pulse.try_clone().map_err(RankError::Socket)?;
            writers.push(PeerWriter { rank, name, writer: Mutex::new(writer) });
            readers.push(pulse);
        }
        let health = Arc::new(Health {
            rank,
            world,
            limit,
            tracker: Tracker::new(limit * STEP_LIMITS),
            reported: Mutex::new(vec![None; writers.len()]),
            peers: writers,
            state: Mutex::default(),
            over: AtomicBool::new(false),
            listening: AtomicUsize::new(readers.len()),
            stop,
        });
        for (i, reader) in readers.into_iter().enumerate() {
            let own = health.clone();
            let named = std::thread::Builder::new().name(format!("pulse of rank {}", health.peers[i].rank));
            named.spawn(move || own.listen(i, reader)).map_err(RankError::Socket)?;
        }
        let own = Arc::downgrade(&health);
        let every = limit / 5;
        let named = std::thread::Builder::new().name("pulse".into());
        let beat = move || {
            let (mut last, mut asked, mut was_overdue) = (None::<Instant>, false, false);
            while let Some(health) = own.upgrade() {
                if health.over.load(Ordering::Acquire) {
                    return;
                }
                if !asked && health.stop.load(Ordering::Relaxed) {
                    asked = true;
                    health.broadcast(&Pulse::Stop, None);
                }
                let activity = health.tracker.activity();
                // Rank 0 learns at once that this rank takes too long.
                let news = activity.is_overdue() && !was_overdue;
                was_overdue = activity.is_overdue();
                if health.rank == 0 {
                    health.check_for_hang(&activity);
                }
                if news || last.is_none_or(|last| last.elapsed() >= every) {
                    last = Some(Instant::now());
                    health.broadcast(&Pulse::Beat(activity), None);
                }
                drop(health);
                std::thread::sleep(CHECK_INTERVAL.min(every));
            }
        };
        named.spawn(beat).map_err(RankError::Socket)?;
        Ok(health)
    }

    /// Records what the main thread of this rank does.
    pub(crate) fn tracker(&self) -> &Arc<Tracker> {
        &self.tracker
    }

    /// Runs something that waits for the device of this rank, and so for the devices of all ranks.
    pub(crate) fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let _device: Entered = self.tracker.device();
        wait()
    }

    /// Time after which an answer of another rank is missing, whatever that rank reports.
    pub(crate) fn answer_limit(&self) -> Duration {
        STEP_TIMEOUT.max(self.tracker.limit(Phase::Step) * 2)
    }

    /// Rank 0: a main thread, GPU or network that hangs does not stop heartbeats, so what they report is checked.
    fn check_for_hang(&self, own: &Activity) {
        let all: Option<Vec<Activity>> =
            std::iter::once(Some(own.clone())).chain(locked(&self.reported).iter().cloned()).collect();
        if let Some((rank, reason)) = all.and_then(|all| hanging(&all)) {
            self.lost(rank, reason);
        }
    }

    /// Sends a message to all peers except the one it came from.
    fn broadcast(&self, what: &Pulse, except: Option<usize>) {
        for peer in self.peers.iter().filter(|peer| Some(peer.rank) != except) {
            // A failure to send is detected by the thread that receives from that rank.
            let _ = wire::send(&mut *locked(&peer.writer), what);
        }
    }

    fn listen(&self, i: usize, mut reader: TcpStream) {
        let peer = &self.peers[i];
        loop {
            match wire::receive::<Pulse>(&mut reader) {
                Ok(Pulse::Beat(activity)) => locked(&self.reported)[i] = Some(activity),
                Ok(Pulse::Stop) => self.stop.store(true, Ordering::Relaxed),
                Ok(Pulse::Lost(cause)) => {
                    self.lose(cause, Some(peer.rank));
                    break;
                }
                Ok(Pulse::Bye) => {
                    self.receive_bye(i);
                    break;
                }
                Err(_) if self.over.load(Ordering::Acquire) => break,
                Err(error) => {
                    self.lose(self.loss_cause(peer, &error), None);
                    break;
                }
            }
        }
        self.listening.fetch_sub(1, Ordering::AcqRel);
    }

    /// A follower learns from rank 0 that the run is over; rank 0 learns it per follower.
    fn receive_bye(&self, i: usize) {
        if self.peers[i].rank == 0 {
            self.over.store(true, Ordering::Release);
            self.broadcast(&Pulse::Bye, None);
        }
    }

    fn loss_cause(&self, peer: &PeerWriter, error: &io::Error) -> Cause {
        let reason = if wire::is_timeout(error) {
            format!(
                "it sent no heartbeat for {:.0} s: its process hangs or was stopped, its machine is down, or the network \
                 to it is cut",
                self.limit.as_secs_f64()
            )
        } else {
            let why = match error.kind() {
                io::ErrorKind::UnexpectedEof => String::new(),
                _ => format!(" ({error})"),
            };
            format!("its connection ended{why}: its process was killed, or its machine or network went down")
        };
        Cause { rank: peer.rank, name: peer.name.clone(), reason, exit: None }
    }

    /// Records a loss; only the first cause counts. Releases everything that waits.
    fn lose(&self, cause: Cause, from: Option<usize>) {
        let (sockets, actions) = {
            let mut state = locked(&self.state);
            if state.cause.is_some() {
                return;
            }
            state.cause = Some(cause.clone());
            (std::mem::take(&mut state.sockets), std::mem::take(&mut state.actions))
        };
        self.broadcast(&Pulse::Lost(cause), from);
        for socket in sockets {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        actions.into_iter().for_each(|action| action());
    }

    /// Reports that this rank failed: all ranks receive the reason and end with its exit code.
    pub fn fail(&self, reason: &str, exit: Exit) {
        let name = super::rendezvous::own_name();
        let cause = Cause { rank: self.rank, name, reason: reason.to_owned(), exit: Some(exit.code()) };
        self.lose(cause, None);
        self.linger();
    }

    /// Reports a loss that was not detected by heartbeat.
    pub(crate) fn lost(&self, rank: usize, reason: String) {
        let name = self.name_of(rank);
        self.lose(Cause { rank, name, reason, exit: None }, None);
    }

    fn name_of(&self, rank: usize) -> String {
        let known = self.peers.iter().find(|peer| peer.rank == rank);
        known.map_or_else(super::rendezvous::own_name, |peer| peer.name.clone())
    }

    /// Why the ranks cannot continue; `None` while all are alive.
    pub fn cause(&self) -> Option<RankError> {
        let Cause { rank, name, reason, exit } = locked(&self.state).cause.clone()?;
        let world = self.world;
        Some(match exit.and_then(Exit::from_code) {
            Some(exit) => RankError::Failed { rank, world, name, reason, exit },
            None => RankError::Lost { rank, world, name, reason },
        })
    }

    /// As [`cause`](Self::cause), but waits up to `limit` for one: a failed call to a lost rank may return before its
    /// heartbeat is missed.
    pub fn cause_within(&self, limit: Duration) -> Option<RankError> {
        let began = Instant::now();
        loop {
            let cause = self.cause();
            if cause.is_some() || began.elapsed() >= limit {
                return cause;
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    /// Explains why reading from or writing to a rank failed: by the heartbeat, which may need a moment to detect it, else
    /// by the socket error.
    pub(crate) fn explain(&self, rank: usize, error: &io::Error) -> RankError {
        if let Some(cause) = self.cause_within(EXPLAIN_TIMEOUT) {
            return cause;
        }
        self.lost(rank, format!("its connection failed ({error})"));
        self.cause().unwrap_or(RankError::Socket(io::ErrorKind::NotConnected.into()))
    }

    /// Registers a socket that is closed on a loss.
    pub(crate) fn watch(&self, socket: &TcpStream) -> Result<(), RankError> {
        let copy = socket.try_clone().map_err(RankError::Socket)?;
        let mut state = locked(&self.state);
        if state.cause.is_some() {
            let _ = copy.shutdown(Shutdown::Both);
        }
        state.sockets.push(copy);
        Ok(())
    }

    /// Registers an action for a loss; it runs immediately if a rank is lost already.
    pub fn on_loss(&self, action: impl FnOnce() + Send + 'static) {
        let mut state = locked(&self.state);
        if state.cause.is_some() {
            drop(state);
            action();
        } else {
            state.actions.push(Box::new(action));
        }
    }

    /// From now on, connections that end are no loss.
    pub(crate) fn expect_end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Marks the run as over, so that connections may end. Waits briefly for the others to receive it.
    pub(crate) fn finish(&self) {
        self.expect_end();
        self.broadcast(&Pulse::Bye, None);
        self.linger();
    }

    /// Waits briefly until the others have closed their connections: a connection closed with unread data would drop the
    /// last message sent.
    pub fn linger(&self) {
        let began = Instant::now();
        while self.listening.load(Ordering::Acquire) > 0 && began.elapsed() < LINGER {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    const LIMIT: Duration = Duration::from_millis(1000);

    struct Three {
        lead: Arc<Health>,
        others: Vec<Arc<Health>>,
        stops: Vec<Arc<AtomicBool>>,
        /// The far ends of the connections, for the test to close.
        cut: Vec<TcpStream>,
    }

    fn three() -> Three {
        let stops: Vec<Arc<AtomicBool>> = (0..3).map(|_| Arc::default()).collect();
        let (mut peers, mut others, mut cut) = (Vec::new(), Vec::new(), Vec::new());
        for (rank, stop) in stops.iter().enumerate().skip(1) {
            let (near, far) = pair();
            cut.push(far.try_clone().unwrap());
            peers.push(Peer { rank, name: format!("host{rank}"), pulse: near });
            let own = vec![Peer { rank: 0, name: "host0".into(), pulse: far }];
            others.push(Health::start((rank, 3), LIMIT, own, stop.clone()).unwrap());
        }
        let lead = Health::start((0, 3), LIMIT, peers, stops[0].clone()).unwrap();
        Three { lead, others, stops, cut }
    }

    fn cause_of(health: &Health) -> RankError {
        let began = Instant::now();
        loop {
            if let Some(cause) = health.cause() {
                return cause;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "the loss was not detected");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_disconnected_rank_is_named_to_all() {
        let three = three();
        std::thread::sleep(LIMIT * 3 / 2);
        assert!(
            three.lead.cause().is_none() && three.others[0].cause().is_none(),
            "silence was seen too early"
        );
        let (waiting, far) = pair();
        three.others[0].watch(&waiting).unwrap();
        let waits = std::thread::spawn(move || {
            let mut waiting = waiting;
            wire::receive::<u32>(&mut waiting).is_err()
        });
        three.cut[1].shutdown(Shutdown::Both).unwrap();
        for health in [&three.lead, &three.others[0]] {
            let cause = cause_of(health);
            assert!(matches!(&cause, RankError::Lost { rank: 2, name, .. } if name == "host2"), "{cause}");
            assert_eq!(cause.exit(), Exit::Retry);
        }
        // The disconnected rank reports the loss of rank 0.
        assert!(matches!(cause_of(&three.others[1]), RankError::Lost { rank: 0, .. }));
        assert!(waits.join().unwrap(), "a thread still waits");
        drop(far);
    }

    #[test]
    fn missing_heartbeats_are_detected_within_the_limit() {
        let (near, far) = pair();
        let began = Instant::now();
        let peers = vec![Peer { rank: 1, name: "host1".into(), pulse: near }];
        let lead = Health::start((0, 2), LIMIT, peers, Arc::default()).unwrap();
        let acted = Arc::new(AtomicBool::new(false));
        let seen = acted.clone();
        lead.on_loss(move || seen.store(true, Ordering::Relaxed));
        let cause = cause_of(&lead);
        assert!(cause.to_string().contains("rank 1 of 2 (host1) is lost: it sent no heartbeat"), "{cause}");
        assert!(began.elapsed() >= LIMIT && began.elapsed() < LIMIT * 20, "{:?}", began.elapsed());
        while !acted.load(Ordering::Relaxed) {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(far);
    }

    #[test]
    fn a_rank_that_hangs_is_named_by_all_despite_heartbeats() {
        let three = three();
        // All have measured steps; then one does not come back from its step, and the others wait for it.
        for health in [&three.lead, &three.others[0], &three.others[1]] {
            (0..3).for_each(|step| drop(health.tracker().step(step)));
        }
        let hung = three.others[1].tracker().step(3);
        let began = Instant::now();
        let lead = three.lead.clone();
        let other = three.others[0].tracker().clone();
        let cause = other.while_idle(|| lead.tracker().while_idle(|| cause_of(&lead)));
        let took = began.elapsed();
        assert!(cause.to_string().contains("rank 2 of 3 (host2) is lost: its main thread hangs"), "{cause}");
        assert!(cause.to_string().contains("in step 4 for 2 s, and 2 s are allowed"), "{cause}");
        assert!(took >= LIMIT * STEP_LIMITS && took < LIMIT * (STEP_LIMITS + 8), "{took:?}");
        for health in &three.others {
            assert!(matches!(cause_of(health), RankError::Lost { rank: 2, .. }));
        }
        drop(hung);
    }

    #[test]
    fn a_gpu_that_hangs_is_detected_when_all_ranks_wait_for_theirs() {
        let three = three();
        let all: Vec<_> = three.others.iter().chain([&three.lead]).cloned().collect();
        for health in &all {
            (0..3).for_each(|_| health.while_waiting(|| ()));
        }
        let waiting: Vec<_> = all.iter().map(|health| health.tracker().device()).collect();
        let cause = cause_of(&three.lead);
        assert!(cause.to_string().contains("a GPU or the network between GPUs hangs"), "{cause}");
        assert_eq!(cause.exit(), Exit::Retry);
        drop(waiting);
    }

    #[test]
    fn what_is_announced_may_take_longer_than_a_step() {
        let three = three();
        for health in &three.others {
            (0..3).for_each(|step| drop(health.tracker().step(step)));
        }
        let step = three.others[0].tracker().step(3);
        let slow = three.others[0].tracker().announce("waiting for a batch", Some(LIMIT * 60));
        std::thread::sleep(LIMIT * (STEP_LIMITS + 1));
        assert!(three.lead.cause().is_none(), "{:?}", three.lead.cause());
        drop(slow);
        drop(step);
        three.lead.finish();
    }

    #[test]
    fn a_failed_call_waits_for_the_heartbeat_to_name_the_lost_rank() {
        let three = three();
        let began = Instant::now();
        assert!(three.lead.cause_within(Duration::ZERO).is_none());
        assert!(began.elapsed() < LIMIT, "it waited without being asked to");
        let (lead, far) = (three.lead.clone(), three.cut[1].try_clone().unwrap());
        let call = std::thread::spawn(move || lead.cause_within(Duration::from_secs(20)));
        std::thread::sleep(Duration::from_millis(100));
        far.shutdown(Shutdown::Both).unwrap();
        let cause = call.join().unwrap();
        assert!(matches!(cause, Some(RankError::Lost { rank: 2, .. })), "{cause:?}");
    }

    #[test]
    fn a_failure_keeps_its_message_and_a_normal_end_is_no_failure() {
        let three = three();
        three.others[0].fail("the disk is full", Exit::Io);
        for health in [&three.lead, &three.others[1]] {
            let cause = cause_of(health);
            assert!(
                cause.to_string().contains("rank 1") && cause.to_string().contains("the disk is full"),
                "{cause}"
            );
            assert_eq!(cause.exit(), Exit::Io);
        }
        let three = self::three();
        three.lead.finish();
        std::thread::sleep(LIMIT * 3 / 2);
        assert!(three.others.iter().chain([&three.lead]).all(|health| health.cause().is_none()));
    }

    #[test]
    fn a_rank_that_ends_before_the_others_are_told_is_no_loss() {
        let three = three();
        three.lead.expect_end();
        three.cut[0].shutdown(Shutdown::Both).unwrap();
        std::thread::sleep(LIMIT / 2);
        assert!(three.lead.cause().is_none(), "{:?}", three.lead.cause());
        assert!(three.others[1].cause().is_none(), "{:?}", three.others[1].cause());
        three.lead.finish();
    }

    #[test]
    fn a_request_to_stop_reaches_rank_0_from_any_rank() {
        let three = three();
        three.stops[2].store(true, Ordering::Relaxed);
        let began = Instant::now();
        while !three.stops[0].load(Ordering::Relaxed) {
            assert!(began.elapsed() < Duration::from_secs(20), "rank 0 was not asked to stop");
            std::thread::sleep(Duration::from_millis(5));
        }
        three.lead.finish();
    }
}
