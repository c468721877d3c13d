//! Behaviour of the data path, one module per concern.

#[path = "data/coqui_goldens.rs"]
mod coqui_goldens;
#[path = "data/corrections.rs"]
mod corrections;
