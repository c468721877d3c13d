//! The cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod arithmetic;
mod attention;
mod batch_norm;
mod conv1d;
mod conv2d;
mod conv_transpose1d;
mod convolution;
mod cross_entropy;
mod detach;
mod dropout;
mod embedding;
mod feed_forward;
mod frames;
mod geglu;
mod group_norm;
mod linear;
mod loss;
mod matmul;
mod mel;
mod norm;
mod quantize;
mod reduce;
mod rms_norm;
mod softmax;
mod stft;
mod time;
mod transform;
mod weight_norm;

pub fn cases() -> Vec<Case> {
    [
        activation::cases(),
        arithmetic::cases(),
        attention::cases(),
        batch_norm::cases(),
        conv1d::cases(),
        conv2d::cases(),
        conv_transpose1d::cases(),
        cross_entropy::cases(),
        detach::cases(),
        dropout::cases(),
        embedding::cases(),
        feed_forward::cases(),
        frames::cases(),
        geglu::cases(),
        group_norm::cases(),
        linear::cases(),
        loss::cases(),
        matmul::cases(),
        mel::cases(),
        norm::cases(),
        quantize::cases(),
        reduce::cases(),
        rms_norm::cases(),
        softmax::cases(),
        stft::cases(),
        time::cases(),
        transform::cases(),
        weight_norm::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
