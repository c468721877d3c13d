//! Connects the ranks: rank 0 listens, and the others open three connections each, for orders, sums and heartbeats. Both
//! sides prove that they know the token without sending it.

use super::discovery::{Identity, join_address};
use super::wire::{self, MAGIC, MAGIC_OF_ANY_VERSION};
use crate::rank_error::RankError;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time limit for the greeting of a new connection.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which rank 0 checks whether ranks that have connected are still there.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which a waiting rank checks again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a greeting: whoever sends it is not known yet.
const MAX_GREETING_BYTES: u64 = 4096;

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Channel {
    /// Orders and answers.
    Orders,
    /// Sums and copies of numbers.
    Sums,
    /// Heartbeats.
    Pulse,
}

impl Channel {
    const ALL: [Channel; 3] = [Channel::Orders, Channel::Sums, Channel::Pulse];
}

/// The three connections to another rank.
pub(super) struct Connections {
    /// The rank at the other end.
    pub rank: usize,
    /// `host (process 123)`, as that rank reports it.
    pub name: String,
    pub orders: TcpStream,
    pub sums: TcpStream,
    pub pulse: TcpStream,
}

/// The shared secret by which ranks authenticate each other.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// Derives the key from a shared word.
    pub fn of(word: &str) -> Token {
        Token(blake3::derive_key("myxtts rendezvous token", word.as_bytes()))
    }

    /// A random word that cannot be guessed.
    pub fn random_word() -> String {
        blake3::Hash::from_bytes(random()).to_hex()[..32].to_owned()
    }

    /// A hash of the token that does not reveal it, to compare tokens.
    pub fn fingerprint(&self) -> String {
        blake3::hash(&self.0).to_string()
    }

    /// Proof of knowing the token. `blake3::Hash` compares in constant time.
    fn proof(&self, nonce: &[u8; 32], who: &str) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.0).update(nonce).update(who.as_bytes()).finalize()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// 32 random bytes from the system, by the keys that the standard library generates for its maps.
fn random() -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for _ in 0..4 {
        hasher.update(&std::hash::RandomState::new().build_hasher().finish().to_le_bytes());
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    hasher.update(&now.as_nanos().to_le_bytes()).update(&std::process::id().to_le_bytes());
    *hasher.finalize().as_bytes()
}

/// The introduction of a connecting rank.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: String,
    rank: usize,
    world: usize,
    channel: Channel,
    name: String,
    /// The run, as the command line names it.
    run: Option<String>,
    nonce: [u8; 32],
    proof: String,
}

impl Hello {
    fn who(&self) -> String {
        let Hello { version, rank, world, channel, name, run, .. } = self;
        format!("{version} {rank} {world} {channel:?} {name} {run:?}")
    }
}

/// The answer of rank 0.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    proof: String,
    refused: Option<String>,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `host (process 123)`
pub(super) fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_else(|| "unknown host".to_owned());
    format!("{} (process {})", host.trim(), std::process::id())
}

/// Configures a connection: small messages are sent immediately, and a vanished machine is detected.
fn prepared(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)
}

/// The socket that rank 0 listens on: the loopback interface if it was named, else all addresses, since its name may resolve to
/// an address of another machine, such as a load balancer. By IPv6 only where the name has no IPv4 address.
fn listen(identity: &Identity) -> Result<TcpListener, RankError> {
    let (host, port) = (identity.host.as_str(), identity.port);
    let mut addresses = (host, port).to_socket_addrs().into_iter().flatten().peekable();
    let is_ipv6 = addresses.peek().is_some() && addresses.all(|address| address.is_ipv6());
    let interface = match (identity.is_loopback(), is_ipv6) {
        (true, false) => "127.0.0.1",
        (true, true) => "::1",
        (false, false) => "0.0.0.0",
        (false, true) => "::",
    };
    TcpListener::bind((interface, port)).map_err(|source| RankError::Listen {
        address: join_address(interface, port),
        asked: identity.address(),
        source,
    })
}

/// Rank 0: waits until all others have connected.
pub(super) fn accept(
    identity: &Identity,
    (token, run): (&Token, Option<&str>),
    limit: Duration,
    say: &dyn Fn(&str),
    stopped: &dyn Fn() -> bool,
) -> Result<Vec<Connections>, RankError> {
    let listener = listen(identity)?;
    listener.set_nonblocking(true).map_err(RankError::Socket)?;
    let (began, world) = (Instant::now(), identity.world);
    let (found, greeted) = mpsc::channel();
    let mut come: Vec<[Option<TcpStream>; 3]> = (1..world).map(|_| [None, None, None]).collect();
    let mut names: Vec<Option<String>> = vec![None; world - 1];
    let mut checked = Instant::now();
    while come.iter().flatten().any(Option::is_none) {
        if stopped() {
            return Err(RankError::Stopped);
        }
        if began.elapsed() > limit {
            let missing = (1..world).filter(|rank| come[rank - 1].iter().any(Option::is_none));
            return Err(RankError::Absent {
                missing: missing.collect(),
                world,
                address: identity.address(),
                seconds: limit.as_secs_f64(),
            });
        }
        if checked.elapsed() > CHECK_INTERVAL {
            checked = Instant::now();
            for (i, (streams, name)) in come.iter_mut().zip(&mut names).enumerate() {
                if let Some(name) = free_if_gone(streams, name) {
                    say(&format!("note: rank {} has disconnected and may connect again: {name}", i + 1));
                }
            }
        }
        match listener.accept() {
            Ok((stream, from)) => {
                let (token, run, found) = (token.clone(), run.map(str::to_owned), found.clone());
                // In a thread of its own, so that a silent connection blocks no other.
                let greeting = std::thread::Builder::new().name("greeting".into());
                let started = greeting.spawn(move || {
                    let _ = found.send((from, greet(stream, world, &token, run.as_deref())));
                });
                started.map_err(RankError::Socket)?;
            }
            Err(error) if wire::is_timeout(&error) => {}
            Err(error) => return Err(RankError::Socket(error)),
        }
        let next = greeted.recv_timeout(POLL_INTERVAL);
        let Ok((from, greeting)) = next else { continue };
        match greeting {
            Err(why) => say(&format!("note: a connection from {from} was refused: {why}")),
            Ok((hello, stream)) => {
                match take(&mut come[hello.rank - 1], &mut names[hello.rank - 1], &hello, stream) {
                    Ok(true) => say(&format!("rank {} of {world} has connected: {}", hello.rank, hello.name)),
                    Ok(false) => {}
                    Err(why) => say(&format!("note: a connection from {from} was refused: {why}")),
                }
            }
        }
    }
    let mut all = Vec::new();
    for (i, (streams, name)) in come.into_iter().zip(names).enumerate() {
        let [Some(orders), Some(sums), Some(pulse)] = streams else { continue };
        all.push(Connections { rank: i + 1, name: name.unwrap_or_default(), orders, sums, pulse });
    }
    Ok(all)
}

/// Removes the connections of a rank whose process has ended, so that another may take its place; returns its name.
fn free_if_gone(streams: &mut [Option<TcpStream>; 3], name: &mut Option<String>) -> Option<String> {
    let is_gone = |stream: &TcpStream| {
        // Before all ranks have connected, the other side sends nothing, so only the end of the stream can be read.
        let read = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
        let restored = stream.set_nonblocking(false);
        restored.is_err() || read.map_or_else(|error| !wire::is_timeout(&error), |bytes| bytes == 0)
    };
    if !streams.iter().flatten().any(is_gone) {
        return None;
    }
    *streams = [None, None, None];
    name.take()
}

/// Stores a connection and returns whether the rank is complete now; an error if that rank is connected already.
fn take(
    streams: &mut [Option<TcpStream>; 3],
    name: &mut Option<String>,
    hello: &Hello,
    mut stream: TcpStream,
) -> Result<bool, String> {
    free_if_gone(streams, name);
    let place = &mut streams[hello.channel as usize];
    let taken = match name {
        Some(name) if *name != hello.name || place.is_some() => {
            Some(format!("rank {} is connected already: {name}. Give every process its own rank", hello.rank))
        }
        _ => None,
    };
    let welcome = Welcome { proof: String::new(), refused: taken.clone() };
    let sent = wire::send(&mut stream, &welcome).and_then(|()| prepared(&stream));
    if let Some(why) = taken {
        return Err(why);
    }
    sent.map_err(|error| format!("rank {}: {error}", hello.rank))?;
    *name = Some(hello.name.clone());
    *place = Some(stream);
    Ok(streams.iter().all(Option::is_some))
}

/// The side of rank 0 in a greeting, up to what depends on other connections.
fn greet(
    mut stream: TcpStream,
    world: usize,
    token: &Token,
    run: Option<&str>,
) -> Result<(Hello, TcpStream), String> {
    let mut said = || -> io::Result<(Hello, [u8; 32])> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
        stream.set_write_timeout(Some(GREETING_TIMEOUT))?;
        let nonce = random();
        stream.write_all(&[&MAGIC[..], &nonce].concat())?;
        Ok((wire::receive_short::<Hello>(&mut stream, MAX_GREETING_BYTES)?, nonce))
    };
    let (hello, nonce) = said().map_err(|error| format!("it did not introduce itself: {error}"))?;
    let known =
        blake3::Hash::from_hex(&hello.proof).is_ok_and(|proof| proof == token.proof(&nonce, &hello.who()));
    let refused = if !known {
        Some("the tokens differ: set MYXTTS_RENDEZVOUS_TOKEN to the same text on all ranks".to_owned())
    } else if hello.version != VERSION {
        Some(format!(
            "it has version {} and rank 0 has {VERSION}: start the same version everywhere",
            hello.version
        ))
    } else if hello.world != world {
        Some(format!(
            "it expects {} ranks and rank 0 expects {world}: give all the same --world-size",
            hello.world
        ))
    } else if let (Some(theirs), Some(own)) = (&hello.run, run)
        && theirs != own
    {
        Some(format!(
            "it was started for the run {theirs} and rank 0 for the run {own}: two jobs meet at one address, give each its own port"
        ))
    } else if hello.rank == 0 || hello.rank >= world {
        Some(format!("it claims rank {}, which is not in 1 to {}", hello.rank, world - 1))
    } else {
        None
    };
    // A refused rank only gets the reason, and no proof that this side knows the token.
    let proof = if known { token.proof(&hello.nonce, "rank 0").to_string() } else { String::new() };
    wire::send(&mut stream, &Welcome { proof, refused: refused.clone() })
        .map_err(|error| error.to_string())?;
    match refused {
        Some(why) => Err(why),
        None => Ok((hello, stream)),
    }
}

/// Another rank: connects to rank 0, which may start later.
pub(super) fn connect(
    identity: &Identity,
    secret: (&Token, Option<&str>),
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Connections, RankError> {
    let name = own_name();
    let began = Instant::now();
    let mut streams = Vec::new();
    for channel in Channel::ALL {
        streams.push(connect_one(identity, secret, (began, limit), channel, &name, stopped)?);
    }
    let mut streams = streams.into_iter();
    match (streams.next(), streams.next(), streams.next()) {
        (Some(orders), Some(sums), Some(pulse)) => {
            Ok(Connections { rank: 0, name: identity.address(), orders, sums, pulse })
        }
        _ => Err(RankError::Socket(io::ErrorKind::NotConnected.into())),
    }
}

fn connect_one(
    identity: &Identity,
    secret: (&Token, Option<&str>),
    (began, limit): (Instant, Duration),
    channel: Channel,
    name: &str,
    stopped: &dyn Fn() -> bool,
) -> Result<TcpStream, RankError> {
    let address = identity.address();
    let mut last = String::from("no attempt was made");
    while began.elapsed() < limit {
        if stopped() {
            return Err(RankError::Stopped);
        }
        match try_once(identity, secret, channel, name) {
            Ok(stream) => return Ok(stream),
            Err(Attempt::Refused(why)) => {
                return Err(RankError::Refused { rank: identity.rank, address, why });
            }
            Err(Attempt::Failed(why)) => last = why,
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Err(RankError::Unreachable { rank: identity.rank, address, seconds: limit.as_secs_f64(), last })
}

enum Attempt {
    /// Rank 0 refused this rank; trying again would not help.
    Refused(String),
    /// Rank 0 may not be listening yet.
    Failed(String),
}

impl From<io::Error> for Attempt {
    fn from(error: io::Error) -> Attempt {
        Attempt::Failed(error.to_string())
    }
}

fn try_once(
    identity: &Identity,
    (token, run): (&Token, Option<&str>),
    channel: Channel,
    name: &str,
) -> Result<TcpStream, Attempt> {
    let addresses: Vec<SocketAddr> = (identity.host.as_str(), identity.port).to_socket_addrs()?.collect();
    let mut stream = Err(Attempt::Failed(format!("{} has no address", identity.host)));
    for address in &addresses {
        stream = TcpStream::connect_timeout(address, CONNECT_TIMEOUT).map_err(Attempt::from);
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    stream.set_write_timeout(Some(GREETING_TIMEOUT))?;
    let mut begin = [0; 48];
    stream.read_exact(&mut begin)?;
    let (magic, nonce) = begin.split_at(MAGIC.len());
    if magic != MAGIC && magic.starts_with(MAGIC_OF_ANY_VERSION) {
        return Err(Attempt::Refused(format!(
            "it has another version of the program, and rank {} has {VERSION}: start the same version everywhere",
            identity.rank
        )));
    }
    if magic != MAGIC {
        return Err(Attempt::Failed("another program listens there: choose another port".to_owned()));
    }
    let mut key = [0; 32];
    key.copy_from_slice(nonce);
    let Identity { rank, world, .. } = *identity;
    let (version, name, run) = (VERSION.to_owned(), name.to_owned(), run.map(str::to_owned));
    let mut hello = Hello { version, rank, world, channel, name, run, nonce: random(), proof: String::new() };
    hello.proof = token.proof(&key, &hello.who()).to_string();
    wire::send(&mut stream, &hello)?;
    let welcome: Welcome = wire::receive(&mut stream)?;
    if let Some(why) = welcome.refused {
        return Err(Attempt::Refused(why));
    }
    let known = blake3::Hash::from_hex(&welcome.proof);
    if !known.is_ok_and(|proof| proof == token.proof(&hello.nonce, "rank 0")) {
        return Err(Attempt::Refused(
            "rank 0 does not know the token: another program listens in its place".into(),
        ));
    }
    // The second answer says whether the rank was still free.
    let placed: Welcome = wire::receive(&mut stream)?;
    if let Some(why) = placed.refused {
        return Err(Attempt::Refused(why));
    }
    prepared(&stream)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::super::discovery::Origin;
    use super::*;

    fn identity(rank: usize, world: usize, port: u16) -> Identity {
        let (host, origin) = ("127.0.0.1".to_owned(), Origin::Flags);
        Identity { rank, world, local_rank: None, local_world: 1, host, port, origin }
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    const SHORT: Duration = Duration::from_millis(400);

    #[test]
    fn ranks_connect_in_any_order_and_others_are_refused() {
        let port = free_port();
        let token = Token::of("secret");
        let others: Vec<_> = [2, 1]
            .map(|rank| {
                let token = token.clone();
                std::thread::spawn(move || {
                    connect(&identity(rank, 3, port), (&token, None), Duration::from_secs(20), &|| false)
                })
            })
            .into_iter()
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        let stranger = std::thread::spawn(move || {
            let token = Token::of("guess");
            connect(&identity(1, 3, port), (&token, None), Duration::from_secs(20), &|| false).map(|_| ())
        });
        // A silent connection must not block the others.
        let silent = std::thread::spawn(move || {
            let mut tries = (0..100).map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                TcpStream::connect(("127.0.0.1", port))
            });
            tries.find_map(Result::ok)
        });
        let limit = Duration::from_secs(20);
        let all = accept(&identity(0, 3, port), (&token, None), limit, &|_| {}, &|| false).unwrap();
        assert_eq!(all.iter().map(|one| one.rank).collect::<Vec<_>>(), [1, 2]);
        for other in others {
            assert!(other.join().unwrap().is_ok());
        }
        drop(silent.join().unwrap());
        // Refused while rank 0 still listened, or too late to connect.
        let error = match stranger.join().unwrap() {
            Err(error) => error.to_string(),
            Ok(()) => panic!("a stranger was let in"),
        };
        assert!(error.contains("token") || error.contains("could not reach"), "{error}");
    }

    #[test]
    fn missing_ranks_are_named() {
        let port = free_port();
        let error = accept(&identity(0, 3, port), (&Token::of("a"), None), SHORT, &|_| {}, &|| false);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("ranks 1 and 2 of 3") && error.contains(&port.to_string()), "{error}");
        let error = connect(&identity(1, 3, port), (&Token::of("a"), None), SHORT, &|| false);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("rank 1 could not reach rank 0"), "{error}");
        let error = connect(&identity(1, 3, port), (&Token::of("a"), None), SHORT, &|| true).err().unwrap();
        assert!(matches!(error, RankError::Stopped));
    }

    #[test]
    fn duplicate_ranks_and_other_world_sizes_are_refused() {
        let port = free_port();
        let token = Token::of("a");
        let lead = {
            let token = token.clone();
            let limit = Duration::from_secs(20);
            std::thread::spawn(move || {
                accept(&identity(0, 3, port), (&token, None), limit, &|_| {}, &|| false)
            })
        };
        let long = Duration::from_secs(20);
        let error =
            connect(&identity(1, 5, port), (&token, None), long, &|| false).err().unwrap().to_string();
        assert!(error.contains("expects 5 ranks and rank 0 expects 3"), "{error}");
        let first = connect(&identity(1, 3, port), (&token, None), long, &|| false).unwrap();
        let error =
            connect(&identity(1, 3, port), (&token, None), long, &|| false).err().unwrap().to_string();
        assert!(error.contains("rank 1 is connected already"), "{error}");
        let second = connect(&identity(2, 3, port), (&token, None), long, &|| false).unwrap();
        assert_eq!(lead.join().unwrap().unwrap().len(), 2);
        drop((first, second));
    }

    #[test]
    fn a_rank_that_ended_before_all_had_connected_may_connect_again() {
        let port = free_port();
        let (token, long) = (Token::of("a"), Duration::from_secs(20));
        let lead = {
            let token = token.clone();
            std::thread::spawn(move || {
                accept(&identity(0, 3, port), (&token, None), long, &|_| {}, &|| false)
            })
        };
        // As when a pod is started again: another process, with another name.
        let ended = connect(&identity(1, 3, port), (&token, None), long, &|| false).unwrap();
        drop(ended);
        let began = (Instant::now(), long);
        let streams = Channel::ALL.map(|channel| {
            connect_one(&identity(1, 3, port), (&token, None), began, channel, "another", &|| false).unwrap()
        });
        let second = connect(&identity(2, 3, port), (&token, None), long, &|| false).unwrap();
        let all = lead.join().unwrap().unwrap();
        assert_eq!(all.iter().map(|one| one.rank).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(all[0].name, "another");
        drop((streams, second));
    }

    #[test]
    fn ranks_of_two_jobs_that_meet_at_one_port_are_told_apart_by_their_runs() {
        let port = free_port();
        let (token, long) = (Token::of("loopback"), Duration::from_secs(20));
        let lead = {
            let token = token.clone();
            std::thread::spawn(move || {
                accept(&identity(0, 2, port), (&token, Some("mina")), long, &|_| {}, &|| false)
            })
        };
        let error = connect(&identity(1, 2, port), (&token, Some("reza")), long, &|| false).err().unwrap();
        let error = error.to_string();
        assert!(error.contains("for the run reza and rank 0 for the run mina"), "{error}");
        // A rank that does not name its run may join.
        let other = connect(&identity(1, 2, port), (&token, None), long, &|| false).unwrap();
        assert_eq!(lead.join().unwrap().unwrap().len(), 1);
        drop(other);
    }

    #[test]
    fn ranks_meet_at_ipv6_addresses() {
        if TcpListener::bind("[::1]:0").is_err() {
            println!("skipped: this machine has no IPv6");
            return;
        }
        let (token, long) = (Token::of("a"), Duration::from_secs(20));
        let at = |rank, port| Identity { host: "::1".to_owned(), ..identity(rank, 2, port) };
        let port = free_port();
        assert_eq!(at(0, 29_500).address(), "[::1]:29500");
        let other = {
            let (token, identity) = (token.clone(), at(1, port));
            std::thread::spawn(move || connect(&identity, (&token, None), long, &|| false).map(drop))
        };
        let all = accept(&at(0, port), (&token, None), long, &|_| {}, &|| false).unwrap();
        assert_eq!(all.len(), 1);
        other.join().unwrap().unwrap();
    }

    #[test]
    fn another_version_and_another_program_are_told_apart() {
        for (answer, expected) in [
            (&b"myxtts ranks 1\r\n"[..], "another version"),
            (&b"HTTP/1.1 400 Bad"[..], "another program listens"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let answering = std::thread::spawn(move || {
                while let Ok((mut stream, _)) = listener.accept() {
                    if stream.write_all(&[answer, &[0; 32]].concat()).is_err() || answer[0] == b'm' {
                        return;
                    }
                }
            });
            let error = connect(&identity(1, 2, port), (&Token::of("a"), None), SHORT, &|| false);
            let error = error.err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
            drop(answering);
        }
    }
}
