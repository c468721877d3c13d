//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod arithmetic;
mod concatenate;
mod cross_entropy;
mod dropout;
mod embedding;
mod geglu;
mod interpolate;
mod linear;
mod loss;
mod norm;
mod pad;
mod reduce;
mod slice;
mod time;
mod transpose;

pub fn cases() -> Vec<Case> {
    [
        activation::cases(),
        arithmetic::cases(),
        concatenate::cases(),
        cross_entropy::cases(),
        dropout::cases(),
        embedding::cases(),
        geglu::cases(),
        interpolate::cases(),
        linear::cases(),
        loss::cases(),
        norm::cases(),
        pad::cases(),
        reduce::cases(),
        slice::cases(),
        time::cases(),
        transpose::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
