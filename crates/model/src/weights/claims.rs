//! The sizes that a manifest claims of a GPT, held to the shapes of its tensors before anything is made by them: a manifest
//! is a file from outside, and nothing in it may size an allocation by its own word.

use super::sizes::{Shapes, Sizes};
use crate::declare::Declare;
use crate::gpt::{Gpt, GptSizes};

/// Differences that are named; there may be hundreds.
const NAMED: usize = 6;

/// Whether a GPT of these sizes has exactly these tensors; where not, what differs.
pub fn check_gpt(said: &GptSizes, shapes: &Shapes) -> Result<(), String> {
    let contradictions = contradictions(said, shapes);
    if !contradictions.is_empty() {
        return Err(listed("the sizes in the manifest do not fit the tensors", &contradictions));
    }
    // Only now: as many layers are declared as there are tensors for.
    let mut declare = Declare::new(0.0, &|_| false);
    Gpt::declare(&mut declare, said.clone());
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
    if wrong.is_empty() { Ok(()) } else { Err(listed("it has not the tensors of such a GPT", &wrong)) }
}

fn listed(what: &str, differences: &[String]) -> String {
    let more = match differences.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let first: Vec<&str> = differences.iter().take(NAMED).map(String::as_str).collect();
    format!("{what}: {}{more}", first.join("; "))
}

/// Claims that the shapes contradict, or that no network can have.
fn contradictions(said: &GptSizes, shapes: &Shapes) -> Vec<String> {
    let found = Sizes::of(shapes, Some(said.heads)).gpt;
    let (conditioning, perceiver) = (&said.conditioning, &said.perceiver);
    let same = [
        ("layers", Some(said.layers), found.layers),
        ("width", Some(said.width), found.dim),
        ("text_vocabulary", Some(said.text_vocabulary), found.text_tokens),
        ("audio_vocabulary", Some(said.audio_vocabulary), found.audio_tokens),
        ("max_text + 2", said.max_text.checked_add(2), found.text_positions),
        ("max_audio + 3", said.max_audio.checked_add(3), found.audio_positions),
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
            Some(claimed) => format!("{name} is said to be {claimed} and is {found}"),
            None => format!("{name} is more than can be counted, and is {found}"),
        })
        .collect();
    let mut parts = |name: &str, whole: usize, parts: usize| {
        if parts == 0 || whole == 0 || !whole.is_multiple_of(parts) {
            wrong.push(format!("{name} = {parts} do not divide {whole} channels"));
        }
    };
    parts("heads", said.width, said.heads);
    parts("conditioning.heads", said.width, conditioning.heads);
    parts("conditioning.groups", said.width, conditioning.groups);
    parts("perceiver.heads", found.resampler_inner, perceiver.heads);
    let mut id = |name: &str, id: i32, rows: usize| {
        if usize::try_from(id).ok().is_none_or(|id| id >= rows) {
            wrong.push(format!("{name} = {id} is no row of {rows}"));
        }
    };
    id("start_text", said.start_text, found.text_tokens);
    id("stop_text", said.stop_text, found.text_tokens);
    id("start_audio", said.start_audio, found.audio_tokens);
    id("stop_audio", said.stop_audio, found.audio_tokens);
    if said.start_audio == said.stop_audio || said.audio_vocabulary < 3 {
        wrong.push("START and STOP of the codes are not two rows beside a code".to_owned());
    }
    // A step that is not as long as a DVAE's: a power of two of samples, at most four seconds.
    if !said.code_stride.is_power_of_two() || said.code_stride > 1 << 16 {
        wrong.push(format!(
            "code_stride = {} is no number of samples that a code can stand for",
            said.code_stride
        ));
    }
    wrong
}
