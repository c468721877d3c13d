//! Ctrl-C and SIGTERM: the first asks the work to stop cleanly, the second leaves at once; where nothing is kept, the first
//! does. SIGHUP, of a terminal that was closed, and SIGUSR1, by which Slurm tells a job that its time is up, ask to stop
//! cleanly as often as they come.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use myxtts_run::exit::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};

/// A flag that the first signal raises. The second ends the program on the spot; every file of ours
/// survives that.
pub fn stop_requested() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    // A flag of its own: another rank may have raised `stop` when the first signal comes, which must not cost what is
    // being saved.
    let came = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: the second signal finds the flag raised, the first does not.
        let exit = i32::from(Exit::Stopped.code());
        signal_hook::flag::register_conditional_shutdown(signal, exit, came.clone())
            .and_then(|_| signal_hook::flag::register(signal, came.clone()))
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("listening for signals")?;
    }
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, stop.clone())
        .context("listening for signals")?;
    // A closed terminal sends SIGHUP twice, from the shell and from the kernel: the second must not cost what the first
    // is about to save. Under `nohup` it stays ignored.
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
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal_hook::consts::SIGHUP - 1) != 0
}

/// From here on the first signal ends the program: of what it measures nothing is kept before the end.
pub fn leave_at_once() -> anyhow::Result<()> {
    let at_once = Arc::new(AtomicBool::new(true));
    for signal in [SIGTERM, SIGINT] {
        let exit = i32::from(Exit::Stopped.code());
        signal_hook::flag::register_conditional_shutdown(signal, exit, at_once.clone())
            .context("listening for signals")?;
    }
    Ok(())
}
