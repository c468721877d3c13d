//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod arithmetic;
mod attention;
mod batch_norm;
mod cross_entropy;
mod dropout;
mod embedding;
mod feed_forward;
mod geglu;
mod group_norm;
mod linear;
mod loss;
mod matmul;
mod norm;
mod reduce;
mod rms_norm;
mod softmax;
mod time;
mod weight_norm;

pub fn cases() -> Vec<Case> {
    [
        activation::cases(),
        arithmetic::cases(),
        attention::cases(),
        batch_norm::cases(),
        cross_entropy::cases(),
        dropout::cases(),
        embedding::cases(),
        feed_forward::cases(),
        geglu::cases(),
        group_norm::cases(),
        linear::cases(),
        loss::cases(),
        matmul::cases(),
        norm::cases(),
        reduce::cases(),
        rms_norm::cases(),
        softmax::cases(),
        time::cases(),
        weight_norm::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
