//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod arithmetic;
mod attention;
mod cross_entropy;
mod embedding;
mod feed_forward;
mod geglu;
mod linear;
mod norm;
mod time;

pub fn cases() -> Vec<Case> {
    [
        activation::cases(),
        arithmetic::cases(),
        attention::cases(),
        cross_entropy::cases(),
        embedding::cases(),
        feed_forward::cases(),
        geglu::cases(),
        linear::cases(),
        norm::cases(),
        time::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
