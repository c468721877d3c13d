//! A rank whose main thread hangs while its heartbeat thread keeps sending.

use std::time::Duration;

/// Debug builds read this variable, as RANK:STEP; release builds ignore it.
const VARIABLE: &str = "MYXTTS_FAULT_HANG";

/// Hangs for ever if that was requested for this step of this rank. Steps are counted from 0.
pub(crate) fn hang_if_requested(rank: usize, step: u64) {
    if cfg!(debug_assertions) && std::env::var(VARIABLE).is_ok_and(|place| place == format!("{rank}:{step}"))
    {
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
}
