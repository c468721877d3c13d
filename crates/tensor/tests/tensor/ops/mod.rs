//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod batch_norm;
mod detach;
mod frames;
mod group_norm;
mod linear;
mod matmul;
mod mel;
mod norm;
mod quantize;
mod rms_norm;
mod softmax;
mod stft;
mod transform;
mod weight_norm;

pub fn cases() -> Vec<Case> {
    [
        activation::cases(),
        batch_norm::cases(),
        detach::cases(),
        frames::cases(),
        group_norm::cases(),
        linear::cases(),
        matmul::cases(),
        mel::cases(),
        norm::cases(),
        quantize::cases(),
        rms_norm::cases(),
        softmax::cases(),
        stft::cases(),
        transform::cases(),
        weight_norm::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
