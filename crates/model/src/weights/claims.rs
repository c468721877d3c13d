//! Checks the GPT sizes that a manifest claims against the shapes of the tensors before anything is allocated by them. A
//! manifest is untrusted input: nothing in it may determine the size of an allocation on its own.

use super::sizes::{Shapes, Sizes};
use crate::declare::Declare;
use crate::gpt::{Gpt, GptSizes};

/// Maximum number of differences reported; there may be hundreds.
const MAX_REPORTED: usize = 6;

/// Checks that a GPT of these sizes has exactly these tensors; returns the differences otherwise.
pub fn check_gpt(claimed: &GptSizes, shapes: &Shapes) -> Result<(), String> {
    let contradictions = contradictions(claimed, shapes);
    if !contradictions.is_empty() {
        return Err(summary("the sizes in the manifest do not fit the tensors", &contradictions));
    }
    // Only after the check above: it bounds the number of declared layers by the tensors present.
    let mut declare = Declare::new(0.0, &|_| false);
    Gpt::declare(&mut declare, claimed.clone());
    let (_, released) = declare.finish();
    let mut wrong = Vec::new();
    for tensor in &released {
        match shapes.get(&tensor.name) {
            None => wrong.push(format!("{} is missing", tensor.name)),
            Some(found) if *found != tensor.shape => {
                wrong.push(format!("{} is {found:?} instead of {:?}", tensor.name, tensor.shape));
            }
            Some(_) => {}
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(summary("the tensors are not those of a GPT of these sizes", &wrong))
    }
}

fn summary(what: &str, differences: &[String]) -> String {
    let more = match differences.len().saturating_sub(MAX_REPORTED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let first: Vec<&str> = differences.iter().take(MAX_REPORTED).map(String::as_str).collect();
    format!("{what}: {}{more}", first.join("; "))
}

/// Claims that contradict the shapes or that no network can satisfy.
fn contradictions(claimed: &GptSizes, shapes: &Shapes) -> Vec<String> {
    let found = Sizes::from_shapes(shapes, Some(claimed.heads)).gpt;
    let (conditioning, perceiver) = (&claimed.conditioning, &claimed.perceiver);
    let same = [
        ("layers", Some(claimed.layers), found.layers),
        ("width", Some(claimed.width), found.dim),
        ("text_vocabulary", Some(claimed.text_vocabulary), found.text_tokens),
        ("audio_vocabulary", Some(claimed.audio_vocabulary), found.audio_tokens),
        ("max_text + 2", claimed.max_text.checked_add(2), found.text_positions),
        ("max_audio + 3", claimed.max_audio.checked_add(3), found.audio_positions),
        ("conditioning.mels", Some(conditioning.mels), found.mels),
        ("conditioning.width", Some(conditioning.width), found.dim),
        ("conditioning.blocks", Some(conditioning.blocks), found.conditioning_layers),
        ("perceiver.latents", Some(perceiver.latents), found.latents),
        ("perceiver.width", Some(perceiver.width), found.dim),
        ("perceiver.depth", Some(perceiver.depth), found.resampler_layers),
        (
            "perceiver.heads x head_size",
            perceiver.heads.checked_mul(perceiver.head_size),
            found.resampler_inner,
        ),
        ("perceiver.inner", Some(perceiver.inner), found.resampler_hidden),
    ];
    let differs = same.into_iter().filter(|(_, claimed, found)| *claimed != Some(*found));
    let mut wrong: Vec<String> = differs
        .map(|(name, claimed, found)| match claimed {
            Some(claimed) => format!("{name} is {claimed} in the manifest and {found} in the tensors"),
            None => format!("{name} overflows in the manifest and is {found} in the tensors"),
        })
        .collect();
    let mut parts = |name: &str, whole: usize, parts: usize| {
        if parts == 0 || whole == 0 || !whole.is_multiple_of(parts) {
            wrong.push(format!("{name} = {parts} does not divide {whole} channels"));
        }
    };
    parts("heads", claimed.width, claimed.heads);
    parts("conditioning.heads", claimed.width, conditioning.heads);
    parts("conditioning.groups", claimed.width, conditioning.groups);
    parts("perceiver.heads", found.resampler_inner, perceiver.heads);
    let mut id = |name: &str, id: i32, rows: usize| {
        if usize::try_from(id).ok().is_none_or(|id| id >= rows) {
            wrong.push(format!("{name} = {id} is not one of {rows} rows"));
        }
    };
    id("start_text", claimed.start_text, found.text_tokens);
    id("stop_text", claimed.stop_text, found.text_tokens);
    id("start_audio", claimed.start_audio, found.audio_tokens);
    id("stop_audio", claimed.stop_audio, found.audio_tokens);
    if claimed.start_audio == claimed.stop_audio || claimed.audio_vocabulary < 3 {
        wrong.push(
            "START and STOP of the codes must be two different rows in addition to at least one code"
                .to_owned(),
        );
    }
    // The code stride must be one a DVAE can have: a power of two in samples, at most 65,536 (about four seconds at 16 kHz).
    if !claimed.code_stride.is_power_of_two() || claimed.code_stride > 1 << 16 {
        wrong.push(format!(
            "code_stride = {} is not a possible number of samples per code",
            claimed.code_stride
        ));
    }
    wrong
}
