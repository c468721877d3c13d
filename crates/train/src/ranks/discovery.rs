//! Finds the rank of this process, the number of ranks and their meeting point: from the command line, else torchrun's
//! variables, else Slurm's. A pure function of its inputs.

use crate::rank_error::DiscoveryError;
use std::fmt;

/// Maximum number of ranks: far more than any cluster has, and small enough to list in a message.
const MAX_RANKS: usize = 65_536;
/// Port range of Slurm jobs: the job number selects one.
const SLURM_PORTS: std::ops::Range<u64> = 20_000..40_000;

/// Rank options of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankFlags {
    /// `--rank`.
    pub rank: Option<usize>,
    /// `--world-size`.
    pub world_size: Option<usize>,
    /// `--rendezvous`, as HOST:PORT.
    pub rendezvous: Option<String>,
}

/// Where the rank was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `--rank`, `--world-size` and `--rendezvous`.
    Flags,
    /// `RANK` and `WORLD_SIZE`, as torchrun, Kubernetes' PyTorchJob and `myxtts launch` set them.
    Torchrun,
    /// `SLURM_PROCID` and `SLURM_NTASKS`.
    Slurm,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Flags => "--rank and --world-size",
            Origin::Torchrun => "RANK and WORLD_SIZE (torchrun's variables)",
            Origin::Slurm => "SLURM_PROCID and SLURM_NTASKS (Slurm's variables)",
        })
    }
}

/// One process of a run of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Rank of this process, from 0.
    pub rank: usize,
    /// Number of ranks, at least 2.
    pub world: usize,
    /// Rank within its machine, which selects its GPU; `None` if not given.
    pub local_rank: Option<usize>,
    /// Number of ranks on its machine; 1 if not given.
    pub local_world: usize,
    /// Host that rank 0 listens on.
    pub host: String,
    /// Port that rank 0 listens on.
    pub port: u16,
    /// Where this was found.
    pub origin: Origin,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { rank, world, origin, .. } = self;
        write!(f, "rank {rank} of {world}, by {origin}; ranks meet at {}", self.address())
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn join_address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Identity {
    /// Where ranks meet: `host:port`.
    pub fn address(&self) -> String {
        join_address(&self.host, self.port)
    }

    /// Whether ranks meet on the loopback interface, which other machines cannot reach.
    pub fn is_loopback(&self) -> bool {
        let host = &self.host;
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

fn error<T>(words: impl Into<String>) -> Result<T, DiscoveryError> {
    Err(DiscoveryError(words.into()))
}

/// The rank of this process; `None` in a run of one process. `environment` looks up a variable.
pub fn discover(
    flags: &RankFlags,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Identity>, DiscoveryError> {
    let set = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
    if *flags != RankFlags::default() {
        return of_flags(flags, &set);
    }
    match (set("RANK"), set("WORLD_SIZE")) {
        (Some(rank), Some(world)) => return of_torchrun(&rank, &world, &set),
        (Some(_), None) => {
            return error(
                "RANK is set and WORLD_SIZE is not: torchrun sets both. Set WORLD_SIZE too, or unset RANK to train in one process",
            );
        }
        (None, Some(world)) if world.trim() != "1" => {
            return error(
                "WORLD_SIZE is set and RANK is not: torchrun sets both. Set RANK too, or unset WORLD_SIZE to train in one process",
            );
        }
        (None, _) => {}
    }
    match (set("SLURM_PROCID"), set("SLURM_NTASKS").or_else(|| set("SLURM_NPROCS"))) {
        (Some(rank), Some(tasks)) => of_slurm(&rank, &tasks, &set),
        _ => Ok(None),
    }
}

type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

fn of_flags(flags: &RankFlags, set: &Lookup<'_>) -> Result<Option<Identity>, DiscoveryError> {
    if flags.world_size == Some(1) && flags.rank.unwrap_or(0) == 0 {
        return Ok(None);
    }
    let (Some(rank), Some(world), Some(address)) = (flags.rank, flags.world_size, &flags.rendezvous) else {
        let given = [
            ("--rank", flags.rank.is_some()),
            ("--world-size", flags.world_size.is_some()),
            ("--rendezvous HOST:PORT", flags.rendezvous.is_some()),
        ];
        let named = |is: bool| {
            given.iter().filter(|(_, given)| *given == is).map(|(name, _)| *name).collect::<Vec<_>>()
        };
        return error(format!(
            "{} without {}: a rank needs all three, the same --world-size and --rendezvous on every rank",
            named(true).join(" and "),
            named(false).join(" and ")
        ));
    };
    let (host, port) = split_address(address)?;
    let variable = ["LOCAL_RANK", "SLURM_LOCALID"].into_iter().find_map(|name| Some((name, set(name)?)));
    let local_rank = variable.map(|(name, local)| number(name, &local)).transpose()?;
    checked(Identity { rank, world, local_rank, local_world: 1, host, port, origin: Origin::Flags })
}

fn of_torchrun(rank: &str, world: &str, set: &Lookup<'_>) -> Result<Option<Identity>, DiscoveryError> {
    let (rank, world) = (number("RANK", rank)?, number("WORLD_SIZE", world)?);
    if (rank, world) == (0, 1) {
        return Ok(None);
    }
    let (Some(host), Some(port)) = (set("MASTER_ADDR"), set("MASTER_PORT")) else {
        return error(
            "RANK and WORLD_SIZE are set, and MASTER_ADDR or MASTER_PORT is not: set them to the machine of rank 0 and a \
             free port there, or give --rendezvous HOST:PORT with --rank and --world-size",
        );
    };
    let mut port = port_of("MASTER_PORT", &port)?;
    if set("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True") {
        // torchrun itself listens on its port: ranks meet on the next one.
        port = port.checked_add(1).ok_or_else(|| {
            DiscoveryError(
                "MASTER_PORT is 65535, which torchrun itself listens on, and there is no port after it"
                    .into(),
            )
        })?;
    }
    let local_rank = set("LOCAL_RANK").map(|local| number("LOCAL_RANK", &local)).transpose()?;
    let local_world = set("LOCAL_WORLD_SIZE").map(|local| number("LOCAL_WORLD_SIZE", &local)).transpose()?;
    let local_world = local_world.unwrap_or(1).max(1);
    if local_rank.is_some_and(|local| local >= local_world.max(world)) {
        return error(format!(
            "LOCAL_RANK = {} is not one of the {world} ranks: check the program that starts the ranks",
            local_rank.unwrap_or(0)
        ));
    }
    checked(Identity { rank, world, local_rank, local_world, host, port, origin: Origin::Torchrun })
}

fn of_slurm(rank: &str, tasks: &str, set: &Lookup<'_>) -> Result<Option<Identity>, DiscoveryError> {
    let (rank, world) = (number("SLURM_PROCID", rank)?, number("SLURM_NTASKS", tasks)?);
    if (rank, world) == (0, 1) {
        return Ok(None);
    }
    let Some(nodes) = set("SLURM_STEP_NODELIST").or_else(|| set("SLURM_JOB_NODELIST")) else {
        return error(
            "SLURM_PROCID and SLURM_NTASKS are set, and SLURM_JOB_NODELIST is not: start ranks with srun, or give --rank, \
             --world-size and --rendezvous HOST:PORT",
        );
    };
    let host = match set("MASTER_ADDR") {
        Some(host) => host,
        None => first_host(&nodes).ok_or_else(|| {
            DiscoveryError(format!(
                "SLURM_JOB_NODELIST = {nodes:?} names no host: set MASTER_ADDR to the machine of rank 0"
            ))
        })?,
    };
    let port = match set("MASTER_PORT") {
        Some(port) => port_of("MASTER_PORT", &port)?,
        // The same on every rank, and rarely that of another job on the machine.
        None => {
            let job = set("SLURM_JOB_ID").and_then(|job| job.trim().parse::<u64>().ok()).unwrap_or(0);
            let span = SLURM_PORTS.end - SLURM_PORTS.start;
            u16::try_from(SLURM_PORTS.start + job % span).unwrap_or(u16::MAX)
        }
    };
    let local_rank = set("SLURM_LOCALID").map(|local| number("SLURM_LOCALID", &local)).transpose()?;
    // `4(x2)` or `2,1`: used only if the number is the same for all machines.
    let tasks = set("SLURM_STEP_TASKS_PER_NODE").or_else(|| set("SLURM_TASKS_PER_NODE"));
    let local_world = tasks.and_then(|tasks| tasks.split(['(', ',']).next()?.trim().parse().ok());
    let local_world = local_world.unwrap_or(1usize).max(1);
    checked(Identity { rank, world, local_rank, local_world, host, port, origin: Origin::Slurm })
}

fn checked(mut identity: Identity) -> Result<Option<Identity>, DiscoveryError> {
    // An IPv6 address may be written in brackets, as in URLs.
    identity.host = identity.host.trim().trim_start_matches('[').trim_end_matches(']').to_owned();
    let Identity { rank, world, origin, .. } = &identity;
    if *world == 0 || *world > MAX_RANKS {
        return error(format!("{world} ranks, by {origin}: 1 to {MAX_RANKS} are possible"));
    }
    if rank >= world {
        return error(format!(
            "rank {rank} of {world}, by {origin}: ranks are counted from 0, so the last of {world} is {}",
            world - 1
        ));
    }
    if *world == 1 {
        return Ok(None);
    }
    Ok(Some(identity))
}

fn number(name: &str, value: &str) -> Result<usize, DiscoveryError> {
    value.trim().parse().map_err(|_| DiscoveryError(format!("{name} = {value:?} is not a whole number")))
}

fn port_of(name: &str, value: &str) -> Result<u16, DiscoveryError> {
    match value.trim().parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => error(format!(
            "{name} = {value:?} is not a port: choose one from 1 to 65535 that is free on the machine of rank 0"
        )),
    }
}

/// `host:29500` or `[::1]:29500`.
pub fn split_address(address: &str) -> Result<(String, u16), DiscoveryError> {
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() => {
            // IPv6 addresses lose their brackets.
            let host = host.trim_start_matches('[').trim_end_matches(']');
            Ok((host.to_owned(), port_of("the port of --rendezvous", port)?))
        }
        _ => error(format!(
            "--rendezvous {address:?} is not HOST:PORT: write the machine of rank 0 and a free port there, such as node1:29500"
        )),
    }
}

/// The first host of Slurm's compact list: `node[001-004,007],other` gives `node001`.
pub(crate) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim().chars();
    while let Some(c) = rest.next() {
        match c {
            ',' => break,
            '[' => {
                // The first number of the first range; the rest of the bracket is skipped.
                let mut first = true;
                let mut closed = false;
                for c in rest.by_ref() {
                    match c {
                        ']' => {
                            closed = true;
                            break;
                        }
                        '-' | ',' => first = false,
                        c if first => host.push(c),
                        _ => {}
                    }
                }
                if !closed {
                    return None;
                }
            }
            ']' => return None,
            c => host.push(c),
        }
    }
    let host = host.trim();
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(flags: &RankFlags, variables: &[(&str, &str)]) -> Result<Option<Identity>, String> {
        let found = discover(flags, &|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        });
        found.map_err(|error| error.to_string())
    }

    fn by(variables: &[(&str, &str)]) -> Result<Option<Identity>, String> {
        with(&RankFlags::default(), variables)
    }

    const TORCHRUN: [(&str, &str); 6] = [
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("MASTER_PORT", "29500"),
    ];
    const SLURM: [(&str, &str); 5] = [
        ("SLURM_PROCID", "2"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_JOB_NODELIST", "node[003-004,007]"),
        ("SLURM_JOB_ID", "123456"),
    ];

    #[test]
    fn flags_override_torchrun_which_overrides_slurm() {
        assert_eq!(by(&[]).unwrap(), None);
        let all: Vec<_> = TORCHRUN.into_iter().chain(SLURM).collect();
        let flags =
            RankFlags { rank: Some(1), world_size: Some(2), rendezvous: Some("node9:4000".to_owned()) };
        let one = with(&flags, &all).unwrap().unwrap();
        assert_eq!((one.rank, one.world, one.origin), (1, 2, Origin::Flags));
        assert_eq!((one.host.as_str(), one.port, one.local_rank), ("node9", 4000, Some(1)));
        let one = by(&all).unwrap().unwrap();
        assert_eq!((one.rank, one.world, one.origin), (3, 4, Origin::Torchrun));
        assert_eq!((one.host.as_str(), one.port), ("10.0.0.1", 29500));
        assert_eq!((one.local_rank, one.local_world), (Some(1), 2));
        let one = by(&SLURM).unwrap().unwrap();
        assert_eq!((one.rank, one.world, one.origin), (2, 8, Origin::Slurm));
        assert_eq!((one.host.as_str(), one.port), ("node003", 23_456));
        assert!(one.to_string().contains("SLURM_PROCID"), "{one}");
    }

    #[test]
    fn a_world_size_of_one_has_no_ranks() {
        assert_eq!(by(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap(), None);
        assert_eq!(by(&[("WORLD_SIZE", "1")]).unwrap(), None);
        assert_eq!(by(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]).unwrap(), None);
        // An allocation without a task in it, and empty variables.
        assert_eq!(by(&[("SLURM_NTASKS", "4"), ("RANK", "")]).unwrap(), None);
        let alone = RankFlags { world_size: Some(1), ..RankFlags::default() };
        assert_eq!(with(&alone, &TORCHRUN).unwrap(), None);
    }

    #[test]
    fn contradictions_are_errors() {
        let flags = |rank, world_size, rendezvous: Option<&str>| RankFlags {
            rank,
            world_size,
            rendezvous: rendezvous.map(str::to_owned),
        };
        for (flags, variables, words) in [
            (flags(Some(1), None, None), vec![], "--rank without --world-size and --rendezvous HOST:PORT"),
            (flags(Some(2), Some(2), Some("a:1")), vec![], "the last of 2 is 1"),
            (flags(Some(0), Some(2), Some("a")), vec![], "is not HOST:PORT"),
            (flags(Some(0), Some(2), Some("a:0")), vec![], "is not a port"),
            (flags(None, None, None), vec![("RANK", "1")], "WORLD_SIZE is not"),
            (flags(None, None, None), vec![("WORLD_SIZE", "2")], "RANK is not"),
            (
                flags(None, None, None),
                vec![("RANK", "x"), ("WORLD_SIZE", "2")],
                "RANK = \"x\" is not a whole number",
            ),
            (flags(None, None, None), vec![("RANK", "1"), ("WORLD_SIZE", "2")], "MASTER_ADDR or MASTER_PORT"),
            (
                flags(None, None, None),
                vec![("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")],
                "SLURM_JOB_NODELIST",
            ),
            (
                flags(None, None, None),
                vec![("RANK", "5"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")],
                "rank 5 of 4",
            ),
        ] {
            let error = with(&flags, &variables).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn torchrun_listens_on_its_port_itself() {
        let mut variables = TORCHRUN.to_vec();
        variables.push(("TORCHELASTIC_USE_AGENT_STORE", "True"));
        assert_eq!(by(&variables).unwrap().unwrap().port, 29501);
    }

    #[test]
    fn the_first_host_of_a_list() {
        for (list, first) in [
            ("node1", Some("node1")),
            ("node[001-004,007]", Some("node001")),
            ("node[7,9-12],other", Some("node7")),
            ("a,b", Some("a")),
            ("rack[1-2]n[03-04].cluster", Some("rack1n03.cluster")),
            (" gpu-1 ", Some("gpu-1")),
            ("", None),
            ("node[1-2", None),
            ("],a", None),
        ] {
            assert_eq!(first_host(list).as_deref(), first, "{list:?}");
        }
    }

    #[test]
    fn loopback_addresses_are_recognised() {
        let mut one = by(&TORCHRUN).unwrap().unwrap();
        assert!(!one.is_loopback());
        for host in ["127.0.0.1", "localhost", "::1"] {
            one.host = host.to_owned();
            assert!(one.is_loopback(), "{host}");
        }
        let mut variables = TORCHRUN;
        variables[4] = ("MASTER_ADDR", "[::1]");
        let one = by(&variables).unwrap().unwrap();
        assert!(one.is_loopback());
        assert_eq!(one.address(), "[::1]:29500");
    }
}
