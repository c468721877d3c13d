//! Connects the ranks: rank 0 listens, and the others open three connections each, for orders, sums and heartbeats. Both
//! sides prove that they know the token without sending it.

use super::discovery::Identity;
use super::wire::{self, MAGIC};
use crate::rank_error::RankError;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time limit for the greeting of a new connection.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a waiting rank checks again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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
    nonce: [u8; 32],
    proof: String,
}

impl Hello {
    fn who(&self) -> String {
        format!("{} {} {} {:?} {}", self.version, self.rank, self.world, self.channel, self.name)
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

/// The socket that rank 0 listens on: the addresses of its name, or all addresses if its name resolves to an address of
/// another machine, such as a load balancer.
fn listen(identity: &Identity) -> Result<TcpListener, RankError> {
    let (host, port) = (identity.host.as_str(), identity.port);
    let all = format!("0.0.0.0:{port}");
    let address = if identity.is_loopback() { format!("127.0.0.1:{port}") } else { all };
    TcpListener::bind(&address).map_err(|source| RankError::Listen {
        address: address.clone(),
        asked: format!("{host}:{port}"),
        source,
    })
}

/// Rank 0: waits until all others have connected.
pub(super) fn accept(
    identity: &Identity,
    token: &Token,
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
    while come.iter().flatten().any(Option::is_none) {
        if stopped() {
            return Err(RankError::Stopped);
        }
        if began.elapsed() > limit {
            let missing = (1..world).filter(|rank| come[rank - 1].iter().any(Option::is_none));
            return Err(RankError::Absent {
                missing: missing.collect(),
                world,
                address: format!("{}:{}", identity.host, identity.port),
                seconds: limit.as_secs(),
            });
        }
        match listener.accept() {
            Ok((stream, from)) => {
                let (token, found) = (token.clone(), found.clone());
                // In a thread of its own, so that a silent connection blocks no other.
                let greeting = std::thread::Builder::new().name("greeting".into());
                let started = greeting.spawn(move || {
                    let _ = found.send((from, greet(stream, world, &token)));
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

/// Stores a connection and returns whether the rank is complete now; an error if that rank is connected already.
fn take(
    streams: &mut [Option<TcpStream>; 3],
    name: &mut Option<String>,
    hello: &Hello,
    mut stream: TcpStream,
) -> Result<bool, String> {
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
fn greet(mut stream: TcpStream, world: usize, token: &Token) -> Result<(Hello, TcpStream), String> {
    let mut said = || -> io::Result<(Hello, [u8; 32])> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
        stream.set_write_timeout(Some(GREETING_TIMEOUT))?;
        let nonce = random();
        stream.write_all(&[&MAGIC[..], &nonce].concat())?;
        Ok((wire::receive::<Hello>(&mut stream)?, nonce))
    };
    let (hello, nonce) = said().map_err(|error| format!("it did not introduce itself: {error}"))?;
    let known =
        blake3::Hash::from_hex(&hello.proof).is_ok_and(|proof| proof == token.proof(&nonce, &hello.who()));
    let refused = if !known {
        Some("the tokens differ: give all ranks the same --rendezvous-token".to_owned())
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
    token: &Token,
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Connections, RankError> {
    let name = own_name();
    let began = Instant::now();
    let mut streams = Vec::new();
    for channel in Channel::ALL {
        streams.push(connect_one(identity, token, (began, limit), channel, &name, stopped)?);
    }
    let mut streams = streams.into_iter();
    match (streams.next(), streams.next(), streams.next()) {
        (Some(orders), Some(sums), Some(pulse)) => Ok(Connections {
            rank: 0,
            name: format!("{}:{}", identity.host, identity.port),
            orders,
            sums,
            pulse,
        }),
        _ => Err(RankError::Socket(io::ErrorKind::NotConnected.into())),
    }
}

fn connect_one(
    identity: &Identity,
    token: &Token,
    (began, limit): (Instant, Duration),
    channel: Channel,
    name: &str,
    stopped: &dyn Fn() -> bool,
) -> Result<TcpStream, RankError> {
    let address = format!("{}:{}", identity.host, identity.port);
    let mut last = String::from("no attempt was made");
    while began.elapsed() < limit {
        if stopped() {
            return Err(RankError::Stopped);
        }
        match try_once(identity, token, channel, name) {
            Ok(stream) => return Ok(stream),
            Err(Attempt::Refused(why)) => {
                return Err(RankError::Refused { rank: identity.rank, address, why });
            }
            Err(Attempt::Failed(why)) => last = why,
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Err(RankError::Unreachable { rank: identity.rank, address, seconds: limit.as_secs(), last })
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

fn try_once(identity: &Identity, token: &Token, channel: Channel, name: &str) -> Result<TcpStream, Attempt> {
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
    if magic != MAGIC {
        return Err(Attempt::Failed("another program listens there: choose another port".to_owned()));
    }
    let mut key = [0; 32];
    key.copy_from_slice(nonce);
    let Identity { rank, world, .. } = *identity;
    let (version, name) = (VERSION.to_owned(), name.to_owned());
    let mut hello = Hello { version, rank, world, channel, name, nonce: random(), proof: String::new() };
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
                    connect(&identity(rank, 3, port), &token, Duration::from_secs(20), &|| false)
                })
            })
            .into_iter()
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        let stranger = std::thread::spawn(move || {
            let token = Token::of("guess");
            connect(&identity(1, 3, port), &token, Duration::from_secs(20), &|| false).map(|_| ())
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
        let all = accept(&identity(0, 3, port), &token, limit, &|_| {}, &|| false).unwrap();
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
        let error = accept(&identity(0, 3, port), &Token::of("a"), SHORT, &|_| {}, &|| false);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("ranks 1 and 2 of 3") && error.contains(&port.to_string()), "{error}");
        let error = connect(&identity(1, 3, port), &Token::of("a"), SHORT, &|| false);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("rank 1 could not reach rank 0"), "{error}");
        let error = connect(&identity(1, 3, port), &Token::of("a"), SHORT, &|| true).err().unwrap();
        assert!(matches!(error, RankError::Stopped));
    }

    #[test]
    fn duplicate_ranks_and_other_world_sizes_are_refused() {
        let port = free_port();
        let token = Token::of("a");
        let lead = {
            let token = token.clone();
            let limit = Duration::from_secs(20);
            std::thread::spawn(move || accept(&identity(0, 3, port), &token, limit, &|_| {}, &|| false))
        };
        let long = Duration::from_secs(20);
        let error = connect(&identity(1, 5, port), &token, long, &|| false).err().unwrap().to_string();
        assert!(error.contains("expects 5 ranks and rank 0 expects 3"), "{error}");
        let first = connect(&identity(1, 3, port), &token, long, &|| false).unwrap();
        let error = connect(&identity(1, 3, port), &token, long, &|| false).err().unwrap().to_string();
        assert!(error.contains("rank 1 is connected already"), "{error}");
        let second = connect(&identity(2, 3, port), &token, long, &|| false).unwrap();
        assert_eq!(lead.join().unwrap().unwrap().len(), 2);
        drop((first, second));
    }
}
