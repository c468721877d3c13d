//! Tests sizes inferred from the shapes of files: a release's, a small one's, a damaged one's.

use crate::goldens;
use crate::rig::{TRAINED, release};
use myxtts_model::declare::Declare;
use myxtts_model::decoder::{Decoder, DecoderSizes};
use myxtts_model::dvae::{Dvae, DvaeSizes};
use myxtts_model::shapes::ShapeError;
use myxtts_model::speaker::{PREFIX, SpeakerEncoder, SpeakerSizes};
use std::collections::BTreeSet;

#[test]
fn sizes_are_inferred_from_the_shapes_of_a_release() {
    let shapes = release("");
    let of = |name: &str| shapes.get(name).map(|(shape, _)| shape.clone());
    assert_eq!(SpeakerSizes::of_shapes(&of), Ok(SpeakerSizes::v2()));
    assert_eq!(DecoderSizes::of_shapes(&of), Ok(DecoderSizes::v2()));
    assert_eq!(DvaeSizes::of_shapes(&of, "dvae."), Ok(DvaeSizes::v2()));
    // A damaged or foreign file is an error, never a panic.
    let missing = DvaeSizes::of_shapes(&of, "").unwrap_err();
    assert_eq!(missing, ShapeError::Missing { name: "encoder.0.0.weight".into() });
    for (name, shape) in [
        ("attention.0.weight", vec![128, 2047, 1]),
        ("layer1.0.se.fc.0.weight", vec![64, 32]),
        ("layer4.0.conv1.weight", vec![0, 128, 3, 3]),
        ("fc.weight", vec![512]),
    ] {
        let name = format!("{PREFIX}{name}");
        let damaged = |key: &str| if key == name { Some(shape.clone()) } else { of(key) };
        let error = SpeakerSizes::of_shapes(&damaged).unwrap_err();
        assert!(error.to_string().contains(&name), "{error}");
    }
}

/// A whole checkpoint with its own sizes: the declared tensors are those it contains.
#[test]
fn checkpoint_of_other_sizes_matches_its_declaration() {
    let tensors = goldens::tensors("checkpoint/expected.safetensors");
    let of = |name: &str| tensors.get(name).map(|tensor| tensor.shape.clone());
    let mut declare = Declare::new(0.0, TRAINED);
    Dvae::declare(&mut declare, &DvaeSizes::of_shapes(&of, "dvae.").unwrap(), "dvae.");
    SpeakerEncoder::declare(&mut declare, &SpeakerSizes::of_shapes(&of).unwrap());
    Decoder::declare(&mut declare, &DecoderSizes::of_shapes(&of).unwrap());
    let (_, released) = declare.finish();
    for parameter in &released {
        assert_eq!(of(&parameter.name).as_ref(), Some(&parameter.shape), "{}", parameter.name);
    }
    let declared: BTreeSet<&str> = released.iter().map(|parameter| parameter.name.as_str()).collect();
    let ours = |name: &&String| name.starts_with("hifigan_decoder.") || name.starts_with("dvae.");
    let beside = ["torch_spec.", "num_batches_tracked", "discrete_loss."];
    for name in tensors.keys().filter(ours) {
        let known = declared.contains(name.as_str()) || beside.iter().any(|b| name.contains(b));
        assert!(known, "{name} is in the checkpoint and was not declared");
    }
}
