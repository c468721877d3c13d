//! Ctrl-C and SIGTERM: the first one requests a clean stop, the second one exits at once. Commands that keep no partial results
//! exit at the first. SIGHUP (a closed terminal) and SIGUSR1 (Slurm's warning before the time limit) always request a clean
//! stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use myxtts_run::exit::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Returns a flag that the first signal sets. The second signal ends the program at once; all files survive that, because they
/// are written durably.
pub fn stop_requested() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    // A separate flag: another rank may have set `stop` before the first signal arrives, and that first signal must not
    // interrupt a checkpoint that is being saved.
    let came = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order, so that only the second signal finds the flag set.
        let exit = i32::from(Exit::Stopped.code());
        signal_hook::flag::register_conditional_shutdown(signal, exit, came.clone())
            .and_then(|_| signal_hook::flag::register(signal, came.clone()))
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("listening for signals")?;
    }
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, stop.clone())
        .context("listening for signals")?;
    // A closed terminal sends SIGHUP twice, from the shell and from the kernel: the second must not interrupt the save that the
    // first requested. Under `nohup` it stays ignored.
    #[cfg(unix)]
    if !hangups_are_ignored() {
        signal_hook::flag::register(signal_hook::consts::SIGHUP, stop.clone())
            .context("listening for signals")?;
    }
    Ok(stop)
}

/// Whether the program was started with SIGHUP ignored, as `nohup` does.
#[cfg(unix)]
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = myxtts_run::procfs::mask(&status, "SigIgn").unwrap_or(0);
    mask & 1 << (signal_hook::consts::SIGHUP - 1) != 0
}

/// Makes the first signal end the program from now on: for commands that keep no partial results.
pub fn leave_at_once() -> anyhow::Result<()> {
    let at_once = Arc::new(AtomicBool::new(true));
    for signal in [SIGTERM, SIGINT] {
        let exit = i32::from(Exit::Stopped.code());
        signal_hook::flag::register_conditional_shutdown(signal, exit, at_once.clone())
            .context("listening for signals")?;
    }
    Ok(())
}
