//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod attention;
mod cross_entropy;
mod embedding;
mod feed_forward;
mod linear;
mod norm;

pub fn cases() -> Vec<Case> {
    [
        activation::cases(),
        attention::cases(),
        feed_forward::cases(),
        cross_entropy::cases(),
        embedding::cases(),
        linear::cases(),
        norm::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
