//! Other programs that burn every core.

use std::process::{Child, Command, Stdio};

/// Programs for each core: with as many as cores a thread that sleeps often still gets one at once.
const FOR_EACH_CORE: usize = 3;

/// Burns as long as whoever started it is there, should that one be killed before it could end this. Nothing it runs is a
/// program of its own.
const BURN: &str =
    "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done";

/// Burns until it is dropped.
///
/// These are processes of their own, which report nothing: they are found by what the system counts, or not at all.
pub struct Hog {
    programs: Vec<Child>,
}

impl Hog {
    /// Burns.
    ///
    /// # Errors
    /// There is no shell, or it cannot be started.
    pub fn start() -> std::io::Result<Hog> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut hog = Hog { programs: Vec::new() };
        for _ in 0..FOR_EACH_CORE * cores {
            let mut shell = Command::new("sh");
            let shell = shell.args(["-c", BURN]).stdin(Stdio::null()).stdout(Stdio::null());
            hog.programs.push(shell.stderr(Stdio::null()).spawn()?);
        }
        Ok(hog)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        for program in &mut self.programs {
            // One that has ended by itself cannot be ended again.
            let _ = program.kill();
        }
        for program in &mut self.programs {
            let _ = program.wait();
        }
    }
}
