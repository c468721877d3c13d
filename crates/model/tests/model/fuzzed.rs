//! Fuzzes the weight file parsers with damaged files, for one second each.

#[path = "../../../../fuzz/mutator.rs"]
mod mutator;
#[path = "../../../../fuzz/parsers/model.rs"]
mod parsers;

use crate::torch_builder::{Tensor, TorchBuilder, checkpoint, dict, int, pickle, text};
use mutator::fuzz;

/// A small `.pth` with tensors of three element types.
fn sample_file() -> TorchBuilder {
    let tensor = |name: &str, class, width: usize| Tensor {
        name: name.to_owned(),
        class,
        shape: vec![2, 3],
        bytes: vec![1; 6 * width],
    };
    checkpoint(&[
        tensor("gpt.text_embedding.weight", "FloatStorage", 4),
        tensor("gpt.mel_head.bias", "HalfStorage", 2),
        tensor("gpt.counter", "LongStorage", 8),
    ])
}

fn example_file(name: &str) -> Vec<u8> {
    std::fs::read(parsers::model().join(name)).unwrap()
}

#[test]
fn pickles() {
    // The parser prepends the first two bytes.
    let config = pickle(&dict(&[("config".to_owned(), text("{}")), ("step".to_owned(), int(7))]));
    let good = [sample_file().pickle[2..].to_vec(), config[2..].to_vec()];
    fuzz(concat!(module_path!(), "::pickles"), &good, parsers::pickle);
}

#[test]
fn archives() {
    fuzz(concat!(module_path!(), "::archives"), &[sample_file().bytes()], parsers::archive);
}

#[test]
fn torch_files() {
    fuzz(concat!(module_path!(), "::torch_files"), &[sample_file().bytes()], parsers::torch);
}

#[test]
fn safetensors_files() {
    let header = br#"{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}}"#;
    let mut good = (header.len() as u64).to_le_bytes().to_vec();
    good.extend(header);
    good.extend([0; 22]);
    fuzz(concat!(module_path!(), "::safetensors_files"), &[good], parsers::safetensors);
}

#[test]
fn compact_files() {
    let tensor =
        r#"{"name":"a","dtype":"F32","shape":[2,3],"bytes":15,"quantised":{"limit":7,"scale":"row"}}"#;
    let header = format!(r#"[{tensor},{{"name":"b","dtype":"I64","shape":[1],"bytes":13}}]"#);
    let mut good = (header.len() as u32).to_le_bytes().to_vec();
    good.extend(header.as_bytes());
    // Two scales, then stored DEFLATE blocks: six integers, and one number of eight bytes.
    good.extend([0x80, 0x3f, 0x80, 0x3f, 1, 6, 0, 0xf9, 0xff, 0, 7, 14, 1, 2, 3]);
    good.extend([1, 8, 0, 0xf7, 0xff, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert!(parsers::compact(&good));
    fuzz(concat!(module_path!(), "::compact_files"), &[good], parsers::compact);
}

#[test]
fn model_manifests() {
    fuzz(concat!(module_path!(), "::model_manifests"), &[example_file("manifest.json")], parsers::manifest);
}

#[test]
fn python_configurations() {
    let good =
        br#"{"model": "xtts", "lr": 5e-06, "limit": Infinity, "none": null, "languages": ["en", "fa"]}"#;
    fuzz(concat!(module_path!(), "::python_configurations"), &[good.to_vec()], parsers::configuration);
}
