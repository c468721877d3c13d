//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod group_norm;
mod linear;
mod norm;
mod rms_norm;

pub fn cases() -> Vec<Case> {
    [activation::cases(), group_norm::cases(), linear::cases(), norm::cases(), rms_norm::cases()]
        .into_iter()
        .flatten()
        .collect()
}
