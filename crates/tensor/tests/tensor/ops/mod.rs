//! Cases of the suite, one file per file of operations.

use crate::suite::Case;

mod activation;
mod arithmetic;
mod attention;
mod batch_norm;
mod cached_attention;
mod concatenate;
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
mod interpolate;
mod linear;
mod loss;
mod matmul;
mod mel;
mod norm;
mod pad;
mod quantize;
mod reduce;
mod rms_norm;
mod slice;
mod softmax;
mod stft;
mod time;
mod transform;
mod transpose;
mod weight_norm;

pub fn cases() -> Vec<Case> {
    [
        activation::cases(),
        arithmetic::cases(),
        attention::cases(),
        batch_norm::cases(),
        cached_attention::cases(),
        concatenate::cases(),
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
        interpolate::cases(),
        linear::cases(),
        loss::cases(),
        matmul::cases(),
        mel::cases(),
        norm::cases(),
        pad::cases(),
        quantize::cases(),
        reduce::cases(),
        rms_norm::cases(),
        slice::cases(),
        softmax::cases(),
        stft::cases(),
        time::cases(),
        transform::cases(),
        transpose::cases(),
        weight_norm::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
