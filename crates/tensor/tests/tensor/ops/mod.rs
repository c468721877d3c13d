//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod arithmetic;
mod cross_entropy;
mod dropout;
mod embedding;
mod geglu;
mod linear;
mod loss;
mod norm;
mod reduce;
mod time;

pub fn cases() -> Vec<Case> {
    [
        activation::cases(),
        arithmetic::cases(),
        cross_entropy::cases(),
        dropout::cases(),
        embedding::cases(),
        geglu::cases(),
        linear::cases(),
        loss::cases(),
        norm::cases(),
        reduce::cases(),
        time::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
