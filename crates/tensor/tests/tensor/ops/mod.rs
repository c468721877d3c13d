//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod batch_norm;
mod detach;
mod group_norm;
mod linear;
mod matmul;
mod norm;
mod quantize;
mod rms_norm;
mod softmax;
mod weight_norm;

pub fn cases() -> Vec<Case> {
    [
        activation::cases(),
        batch_norm::cases(),
        detach::cases(),
        group_norm::cases(),
        linear::cases(),
        matmul::cases(),
        norm::cases(),
        quantize::cases(),
        rms_norm::cases(),
        softmax::cases(),
        weight_norm::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
