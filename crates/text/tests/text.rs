//! Tests the cleaners against reviewed tables and against the output of Coqui's own cleaner.

// Clippy exempts only functions marked as tests from this lint; test helpers need it too.
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
