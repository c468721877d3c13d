//! Ctrl-C and SIGTERM: the first asks the work to stop cleanly, the second leaves at once; where nothing is kept, the first
//! does.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use myxtts_run::exit::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};

/// A flag that the first signal raises. The second ends the program on the spot; every file of ours
/// survives that.
pub fn stop_requested() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: the second signal finds the flag raised, the first does not.
        let exit = i32::from(Exit::Stopped.code());
        signal_hook::flag::register_conditional_shutdown(signal, exit, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("listening for signals")?;
    }
    Ok(stop)
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
