//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod linear;
mod norm;

pub fn cases() -> Vec<Case> {
    [activation::cases(), linear::cases(), norm::cases()].into_iter().flatten().collect()
}
