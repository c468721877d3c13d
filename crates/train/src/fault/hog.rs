//! Other programs that keep every core busy.

use std::process::{Child, Command, Stdio};

/// Programs per core: with only one per core, a thread that sleeps often would still get a core at once.
const PROGRAMS_PER_CORE: usize = 3;

/// Runs as long as its parent exists, in case the parent is killed before it can end this. It starts no further programs.
const BUSY_LOOP: &str =
    "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done";

/// Keeps all cores busy until it is dropped.
///
/// These are separate processes, which report nothing: `diagnose` can only find them by the system's counters.
pub struct Hog {
    programs: Vec<Child>,
}

impl Hog {
    /// Starts the programs.
    ///
    /// # Errors
    ///
    /// There is no shell, or it cannot be started.
    pub fn start() -> std::io::Result<Hog> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut hog = Hog { programs: Vec::new() };
        for _ in 0..PROGRAMS_PER_CORE * cores {
            let mut shell = Command::new("sh");
            let shell = shell.args(["-c", BUSY_LOOP]).stdin(Stdio::null()).stdout(Stdio::null());
            hog.programs.push(shell.stderr(Stdio::null()).spawn()?);
        }
        Ok(hog)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        for program in &mut self.programs {
            // Fails for a program that has ended by itself.
            let _ = program.kill();
        }
        for program in &mut self.programs {
            let _ = program.wait();
        }
    }
}
