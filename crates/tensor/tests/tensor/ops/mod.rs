//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod conv1d;
mod conv2d;
mod conv_transpose1d;
mod convolution;
mod cross_entropy;
mod embedding;
mod linear;
mod norm;

pub fn cases() -> Vec<Case> {
    [
        activation::cases(),
        conv1d::cases(),
        conv2d::cases(),
        conv_transpose1d::cases(),
        cross_entropy::cases(),
        embedding::cases(),
        linear::cases(),
        norm::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
