//! Fuzzing without a fuzzer: mutated copies of valid files, parsed in a child process with little memory, for one second or
//! `MYXTTS_FUZZ_SECONDS`. Tests include this file; the parsers are in `parsers/`, where cargo-fuzz uses them too.
//!
//! Input `n` is a pure function of the valid files, `MYXTTS_FUZZ_SEED` and `n`, as far as the parsers are deterministic, so
//! failures can be reproduced. An accepted input is added to those that are mutated further.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variables of the child: the test that it runs, and the file to which it writes its current input.
const CHILD: &str = "MYXTTS_TEST_FUZZ_CHILD";
const AT: &str = "MYXTTS_TEST_FUZZ_AT";
/// Address space limit of a child in KiB: its threads and libraries use a part of it.
const MEMORY_KIB: u64 = 1 << 20;
/// Maximum CPU time per input.
const MAX_CPU_TIME: Duration = Duration::from_secs(1);
/// Maximum length of an input beyond that of the valid files, in bytes.
const MAX_EXTRA_BYTES: usize = 4096;
/// Maximum number of accepted inputs that are mutated further.
const MAX_ACCEPTED: usize = 256;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Numbers at which sizes and counts tend to go wrong.
const NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];
/// The same, and more, in decimal text.
const WORDS: [&str; 16] = [
    "0",
    "-1",
    "4294967295",
    "1099511627776",
    "9223372036854775807",
    "18446744073709551616",
    "1e999",
    "NaN",
    "null",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "\\u0000",
    "\n",
];

fn damage(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random, longest: usize) {
    let at = random.below(bytes.len());
    let length = 1 + random.below(16.min(bytes.len()));
    let end = (at + length).min(bytes.len());
    match random.below(10) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[at] = random.next() as u8,
        2 => drop(bytes.drain(at..end)),
        3 => bytes.truncate(at),
        4 => {
            let copied = bytes[at..end].to_vec();
            let to = random.below(bytes.len() + 1);
            bytes.splice(to..to, copied);
        }
        5 => {
            // Overwrites bytes with a number of any width and byte order.
            let (number, width) = (NUMBERS[random.below(NUMBERS.len())], 1 << random.below(4));
            let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
            let number = if random.below(2) == 0 { &little[..width] } else { &big[8 - width..] };
            let end = (at + width).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
        6 => {
            // Replaces a decimal number by another.
            let digits = |byte: &u8| byte.is_ascii_digit();
            let start = bytes[at..].iter().position(digits).map_or(at, |first| at + first);
            let end = start + bytes[start..].iter().take_while(|byte| digits(byte)).count();
            bytes.splice(start..end, WORDS[random.below(WORDS.len())].bytes());
        }
        7 => drop(bytes.splice(at..at, WORDS[random.below(WORDS.len())].bytes())),
        8 if !other.is_empty() => {
            let from = random.below(other.len());
            let upto = (from + 1 + random.below(64)).min(other.len());
            bytes.splice(at..end, other[from..upto].iter().copied());
        }
        _ => {
            let more: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            bytes.splice(at..at, more);
        }
    }
    bytes.truncate(longest);
}

/// Generates inputs in order.
struct Inputs {
    seed: u64,
    kept: Vec<Vec<u8>>,
    good: usize,
    longest: usize,
}

impl Inputs {
    fn new(good: &[Vec<u8>]) -> Inputs {
        assert!(!good.is_empty(), "there is nothing to damage");
        let seed = std::env::var("MYXTTS_FUZZ_SEED").map_or(1, |seed| seed.parse().unwrap());
        let longest = good.iter().map(Vec::len).max().unwrap_or(0) + MAX_EXTRA_BYTES;
        Inputs { seed, kept: good.to_vec(), good: good.len(), longest }
    }

    fn input(&self, number: u64) -> Vec<u8> {
        // The valid files come first, unchanged.
        if (number as usize) < self.good {
            return self.kept[number as usize].clone();
        }
        let mut random = Random(self.seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut bytes = self.kept[random.below(self.kept.len())].clone();
        let other = random.below(self.kept.len());
        for _ in 0..1 + random.below(6) {
            damage(&mut bytes, &self.kept[other], &mut random, self.longest);
        }
        bytes
    }

    fn accept(&mut self, number: u64, input: Vec<u8>) {
        if (number as usize) < self.good {
            return;
        }
        if self.kept.len() < self.good + MAX_ACCEPTED {
            self.kept.push(input);
        } else {
            let place = self.good + Random(number).below(MAX_ACCEPTED);
            self.kept[place] = input;
        }
    }
}

/// CPU time of this thread, if the system reports it: a busy machine must not fail a test.
fn cpu_time() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

/// Parses inputs for the given time and writes the current position to `at`.
fn parse_for(seconds: f64, good: &[Vec<u8>], parse: fn(&[u8]) -> bool, at: &Path) -> (u64, u64) {
    let (mut inputs, at, began) = (Inputs::new(good), File::create(at).unwrap(), Instant::now());
    let (mut number, mut count) = (0, 0);
    while began.elapsed().as_secs_f64() < seconds {
        let input = inputs.input(number);
        at.write_all_at(&input, 16).unwrap();
        at.write_all_at(&[number.to_le_bytes(), (input.len() as u64).to_le_bytes()].concat(), 0).unwrap();
        let (start, busy) = (Instant::now(), cpu_time());
        let accepted = parse(&input);
        if start.elapsed() > MAX_CPU_TIME {
            let spent = cpu_time().zip(busy).map_or(start.elapsed(), |(now, then)| now - then);
            assert!(spent <= MAX_CPU_TIME, "input {number} took {spent:?}");
        }
        assert!(accepted || number as usize >= good.len(), "valid file {number} is rejected");
        if accepted {
            count += 1;
            inputs.accept(number, input);
        }
        number += 1;
    }
    (number, count)
}

/// Mutates valid files and parses them. `test` is the path of the calling test, which is run again as the child process. An
/// input that makes the child panic, abort, hang or use too much memory is written to a file that the failure message names.
pub fn fuzz(test: &str, good: &[Vec<u8>], parse: fn(&[u8]) -> bool) {
    let seconds: f64 = std::env::var("MYXTTS_FUZZ_SECONDS").map_or(1.0, |seconds| seconds.parse().unwrap());
    if std::env::var(CHILD).is_ok_and(|child| child == test) {
        let (inputs, taken) = parse_for(seconds, good, parse, Path::new(&std::env::var(AT).unwrap()));
        println!("{test}: {inputs} inputs, {taken} accepted");
        return;
    }
    let at = tempfile::NamedTempFile::new().unwrap();
    // The name without the crate.
    let name = test.split_once("::").unwrap().1;
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(CHILD, test)
        .env(AT, at.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs_f64(seconds) + Duration::from_secs(60);
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.to_string(),
            None if Instant::now() > deadline => {
                child.kill().unwrap();
                break "timed out".to_owned();
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let output = child.wait_with_output().unwrap();
    let [said, words] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if output.status.success() {
        let line = said.lines().find(|line| line.contains(" inputs, ")).unwrap();
        println!("{}", &line[line.find(test).unwrap()..]);
        return;
    }
    let mut all = Vec::new();
    File::open(at.path()).unwrap().read_to_end(&mut all).unwrap();
    let word = |place: usize| u64::from_le_bytes(all[place..place + 8].try_into().unwrap()) as usize;
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.fuzzed", name.replace("::", "-")));
    fs::write(&kept, &all[16..16 + word(8)]).unwrap();
    panic!(
        "{name}: input {} crashed the process ({ended}); it was written to {}\n{words}",
        word(0),
        kept.display()
    );
}
