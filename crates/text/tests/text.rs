//! Cleaners against reviewed tables and against what Coqui's own cleaner gave.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "text/coqui_goldens.rs"]
mod coqui_goldens;
#[path = "text/corrections.rs"]
mod corrections;
#[path = "text/english.rs"]
mod english;
#[path = "text/persian.rs"]
mod persian;
#[path = "text/table.rs"]
mod table;
