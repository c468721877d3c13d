//! Signs of life. Every rank beats on a connection of its own, from a thread that does nothing else; rank 0 listens to all
//! and tells all, the others listen to rank 0. A rank that is silent for too long, or whose connection ends, is lost: that
//! is told, and everything that anybody could wait for is ended, so that nobody waits for a rank that is gone.

use super::wire;
use crate::rank_error::RankError;
use myxtts_run::exit::Exit;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a thread looks whether there is something to say.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a sign of life may take to be written: it is a few bytes.
const WRITING: Duration = Duration::from_secs(2);
/// How long whoever ends waits for others to have read why.
const LINGER: Duration = Duration::from_secs(1);
/// How long a step may take where all ranks give signs of life: the first one compiles.
pub(crate) const STALLED: Duration = Duration::from_secs(900);
/// How long a rank that heard of a loss may take to end by itself.
pub const GRACE: Duration = Duration::from_secs(5);

/// What goes over the connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Pulse {
    /// Alive.
    Beat,
    /// A signal asked this rank to stop: all shall, cleanly.
    Stop,
    /// Somebody is gone.
    Lost(Cause),
    /// It ends in good order; what follows is no loss.
    Bye,
}

/// Who is gone, and how that was noticed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cause {
    rank: usize,
    name: String,
    reason: String,
    /// The exit code of one that told why it ends itself.
    exit: Option<u8>,
}

/// A rank that is listened to.
pub(crate) struct Peer {
    pub rank: usize,
    pub name: String,
    pub pulse: TcpStream,
}

struct Told {
    rank: usize,
    name: String,
    writer: Mutex<TcpStream>,
}

#[derive(Default)]
struct State {
    cause: Option<Cause>,
    /// Ended when somebody is lost: whoever waits there is released.
    sockets: Vec<TcpStream>,
    actions: Vec<Box<dyn FnOnce() + Send>>,
}

/// Whether all ranks are there.
pub struct Health {
    rank: usize,
    world: usize,
    limit: Duration,
    stalled: Duration,
    /// Since when this rank waits for its device, where it does.
    waiting: Mutex<Option<Instant>>,
    peers: Vec<Told>,
    state: Mutex<State>,
    /// All is done; connections that end now are not missed.
    over: AtomicBool,
    listening: AtomicUsize,
    stop: Arc<AtomicBool>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health {
    /// Begins to beat and to listen. One that is silent for `limit` is lost. `stop` is raised where another rank was asked
    /// to stop, and where it is raised here, the others are told.
    pub(crate) fn start(
        place: (usize, usize),
        limit: Duration,
        peers: Vec<Peer>,
        stop: Arc<AtomicBool>,
    ) -> Result<Arc<Health>, RankError> {
        Health::start_with(place, (limit, STALLED), peers, stop)
    }

    fn start_with(
        (rank, world): (usize, usize),
        (limit, stalled): (Duration, Duration),
        peers: Vec<Peer>,
        stop: Arc<AtomicBool>,
    ) -> Result<Arc<Health>, RankError> {
        let mut told = Vec::new();
        let mut readers = Vec::new();
        for Peer { rank, name, pulse } in peers {
            pulse.set_read_timeout(Some(limit)).map_err(RankError::Socket)?;
            pulse.set_write_timeout(Some(WRITING)).map_err(RankError::Socket)?;
            let writer = pulse.try_clone().map_err(RankError::Socket)?;
            told.push(Told { rank, name, writer: Mutex::new(writer) });
            readers.push(pulse);
        }
        let health = Arc::new(Health {
            rank,
            world,
            limit,
            stalled,
            waiting: Mutex::default(),
            peers: told,
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
            let (mut last, mut asked) = (None::<Instant>, false);
            while let Some(health) = own.upgrade() {
                if health.over.load(Ordering::Acquire) {
                    return;
                }
                if !asked && health.stop.load(Ordering::Relaxed) {
                    asked = true;
                    health.tell(&Pulse::Stop, None);
                }
                health.look_for_a_stall();
                if last.is_none_or(|last| last.elapsed() >= every) {
                    last = Some(Instant::now());
                    health.tell(&Pulse::Beat, None);
                }
                drop(health);
                std::thread::sleep(LOOK_EVERY.min(every));
            }
        };
        named.spawn(beat).map_err(RankError::Socket)?;
        Ok(health)
    }

    /// Does what waits for the device of this rank, and so for those of all others.
    pub(crate) fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        *locked(&self.waiting) = Some(Instant::now());
        let waited = wait();
        *locked(&self.waiting) = None;
        waited
    }

    /// A GPU or a network that hangs keeps no heart from beating.
    fn look_for_a_stall(&self) {
        if locked(&self.waiting).is_some_and(|since| since.elapsed() > self.stalled) {
            let seconds = self.stalled.as_secs_f64();
            self.lost(
                self.rank,
                format!(
                    "its step has not ended for {seconds:.0} s, though all ranks give signs of life: a GPU or the network \
                     between GPUs hangs"
                ),
            );
        }
    }

    /// Tells all peers, but one where that one said it.
    fn tell(&self, what: &Pulse, except: Option<usize>) {
        for peer in self.peers.iter().filter(|peer| Some(peer.rank) != except) {
            // One that cannot be told is noticed by who listens to it.
            let _ = wire::send(&mut *locked(&peer.writer), what);
        }
    }

    fn listen(&self, i: usize, mut reader: TcpStream) {
        let peer = &self.peers[i];
        loop {
            match wire::receive::<Pulse>(&mut reader) {
                Ok(Pulse::Beat) => {}
                Ok(Pulse::Stop) => self.stop.store(true, Ordering::Relaxed),
                Ok(Pulse::Lost(cause)) => {
                    self.lose(cause, Some(peer.rank));
                    break;
                }
                Ok(Pulse::Bye) => {
                    self.over_with(i);
                    break;
                }
                Err(_) if self.over.load(Ordering::Acquire) => break,
                Err(error) => {
                    self.lose(self.noticed(peer, &error), None);
                    break;
                }
            }
        }
        self.listening.fetch_sub(1, Ordering::AcqRel);
    }

    /// A follower hears that all is done from rank 0; rank 0 hears of one follower alone.
    fn over_with(&self, i: usize) {
        if self.peers[i].rank == 0 {
            self.over.store(true, Ordering::Release);
            self.tell(&Pulse::Bye, None);
        }
    }

    fn noticed(&self, peer: &Told, error: &io::Error) -> Cause {
        let reason = if wire::is_timeout(error) {
            format!(
                "it gave no sign of life for {:.0} s: its process hangs or was stopped, its machine is down, or the network \
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

    /// Somebody is gone: the first cause counts. All waiting ends.
    fn lose(&self, cause: Cause, from: Option<usize>) {
        let (sockets, actions) = {
            let mut state = locked(&self.state);
            if state.cause.is_some() {
                return;
            }
            state.cause = Some(cause.clone());
            (std::mem::take(&mut state.sockets), std::mem::take(&mut state.actions))
        };
        self.tell(&Pulse::Lost(cause), from);
        for socket in sockets {
            // It may have ended already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        actions.into_iter().for_each(|action| action());
    }

    /// This rank cannot go on: all are told why, and end with its exit code.
    pub fn fail(&self, reason: &str, exit: Exit) {
        let name = super::rendezvous::own_name();
        let cause = Cause { rank: self.rank, name, reason: reason.to_owned(), exit: Some(exit.code()) };
        self.lose(cause, None);
        self.linger();
    }

    /// A rank is gone by another sign than its heartbeat.
    pub(crate) fn lost(&self, rank: usize, reason: String) {
        let name = self.name_of(rank);
        self.lose(Cause { rank, name, reason, exit: None }, None);
    }

    fn name_of(&self, rank: usize) -> String {
        let known = self.peers.iter().find(|peer| peer.rank == rank);
        known.map_or_else(super::rendezvous::own_name, |peer| peer.name.clone())
    }

    /// Why the ranks cannot go on; none while all are there.
    pub fn cause(&self) -> Option<RankError> {
        let Cause { rank, name, reason, exit } = locked(&self.state).cause.clone()?;
        let world = self.world;
        Some(match exit.and_then(Exit::from_code) {
            Some(exit) => RankError::Failed { rank, world, name, reason, exit },
            None => RankError::Lost { rank, world, name, reason },
        })
    }

    /// Why reading from or writing to a rank failed: by the heartbeat, which may take a moment, or by the socket's words.
    pub(crate) fn explain(&self, rank: usize, error: &io::Error) -> RankError {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            if let Some(cause) = self.cause() {
                return cause;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.lost(rank, format!("its connection failed ({error})"));
        self.cause().unwrap_or(RankError::Socket(io::ErrorKind::NotConnected.into()))
    }

    /// A socket that is ended when somebody is lost.
    pub(crate) fn watch(&self, socket: &TcpStream) -> Result<(), RankError> {
        let copy = socket.try_clone().map_err(RankError::Socket)?;
        let mut state = locked(&self.state);
        if state.cause.is_some() {
            let _ = copy.shutdown(Shutdown::Both);
        }
        state.sockets.push(copy);
        Ok(())
    }

    /// What is done when somebody is lost, at once where that has happened.
    pub fn on_loss(&self, action: impl FnOnce() + Send + 'static) {
        let mut state = locked(&self.state);
        if state.cause.is_some() {
            drop(state);
            action();
        } else {
            state.actions.push(Box::new(action));
        }
    }

    /// All is done: connections may end. Waits a moment for the others to have heard it.
    pub(crate) fn finish(&self) {
        self.over.store(true, Ordering::Release);
        self.tell(&Pulse::Bye, None);
        self.linger();
    }

    /// Waits until the others have ended their connections, for a moment: a connection that ends with something unread
    /// takes back what was sent last.
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
        /// The far ends of the connections, to be cut.
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
            assert!(began.elapsed() < Duration::from_secs(20), "nobody noticed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_rank_that_is_cut_off_is_named_to_all() {
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
        // The one that was cut off misses rank 0.
        assert!(matches!(cause_of(&three.others[1]), RankError::Lost { rank: 0, .. }));
        assert!(waits.join().unwrap(), "somebody still waits");
        drop(far);
    }

    #[test]
    fn silence_is_noticed_within_the_limit() {
        let (near, far) = pair();
        let began = Instant::now();
        let peers = vec![Peer { rank: 1, name: "host1".into(), pulse: near }];
        let lead = Health::start((0, 2), LIMIT, peers, Arc::default()).unwrap();
        let acted = Arc::new(AtomicBool::new(false));
        let seen = acted.clone();
        lead.on_loss(move || seen.store(true, Ordering::Relaxed));
        let cause = cause_of(&lead);
        assert!(
            cause.to_string().contains("rank 1 of 2 (host1) is lost: it gave no sign of life"),
            "{cause}"
        );
        assert!(began.elapsed() >= LIMIT && began.elapsed() < LIMIT * 20, "{:?}", began.elapsed());
        while !acted.load(Ordering::Relaxed) {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(far);
    }

    #[test]
    fn a_step_that_never_ends_is_noticed_though_hearts_beat() {
        let (near, far) = pair();
        let peers = vec![Peer { rank: 1, name: "host1".into(), pulse: near }];
        let stalled = Duration::from_millis(200);
        let lead = Health::start_with((0, 2), (LIMIT * 5, stalled), peers, Arc::default()).unwrap();
        let own = vec![Peer { rank: 0, name: "host0".into(), pulse: far }];
        let other = Health::start((1, 2), LIMIT * 5, own, Arc::default()).unwrap();
        assert_eq!(lead.while_waiting(|| 7), 7);
        let began = Instant::now();
        let cause = lead.while_waiting(|| cause_of(&lead));
        assert!(cause.to_string().contains("its step has not ended"), "{cause}");
        assert!(began.elapsed() >= stalled);
        assert!(matches!(cause_of(&other), RankError::Lost { rank: 0, .. }));
    }

    #[test]
    fn a_failure_is_told_in_its_own_words_and_a_good_end_is_no_failure() {
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
