//! What is known of a step whose gradients are no numbers, or far too long: which parameters they belong to, and which
//! operation was the first to go wrong.

use crate::error::TrainError;
use crate::stages::Stage;
use myxtts_tensor::engine::Magnitude;
use myxtts_tensor::ops::adamw::EXPLOSION_FACTOR;
use myxtts_tensor::parameters::Role;
use myxtts_tensor::{Control, Engine, Mode};
use serde_json::{Value, json};

/// How many parameters are named.
const NAMED: usize = 5;

/// Parameters with the longest gradients of the step that ran last, the longest first; those that are no numbers before all
/// others. Steps that were queued behind the one in question may have replaced its gradients by their own.
pub(crate) fn longest_gradients(engine: &Engine) -> Result<Vec<(String, f64)>, TrainError> {
    let mut found = Vec::new();
    for (id, parameter) in engine.layout().parameters().filter(|(_, p)| matches!(p.role, Role::Trained(_))) {
        let gradient = engine.read_gradient(id)?;
        let norm = gradient.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        found.push((parameter.name.clone(), norm));
    }
    let key = |norm: f64| if norm.is_finite() { norm } else { f64::INFINITY };
    found.sort_by(|a, b| key(b.1).total_cmp(&key(a.1)));
    found.truncate(NAMED);
    Ok(found)
}

/// The same for an event: numbers that JSON cannot write are words.
pub(crate) fn as_json(gradients: &[(String, f64)]) -> Value {
    let norm = |x: f64| if x.is_finite() { json!(x) } else { json!(x.to_string()) };
    gradients.iter().map(|(name, x)| json!({ "parameter": name, "norm": norm(*x) })).collect()
}

/// The same in words.
pub(crate) fn in_words(gradients: &[(String, f64)]) -> String {
    let one = |(name, norm): &(String, f64)| format!("{name} {norm:.3e}");
    gradients.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Whether a gradient of this length was left out because of it.
pub(crate) fn is_exploded(norm: f32, control: &Control) -> bool {
    control.clip > 0.0 && norm.is_finite() && norm > EXPLOSION_FACTOR * control.clip
}

/// What is found when a batch is computed once more, one operation after the other.
#[derive(Default)]
pub(crate) struct Again {
    /// The first operation whose result is not finite, in words.
    pub fault: Option<String>,
    /// How large the results of every operation are, in order: shows where a gradient grows.
    pub magnitudes: Value,
}

/// Computes the last batch of a shape once more and looks at every result. Nothing is found where a stage cannot compute a
/// batch again. Weights may change: for a run that ends, or goes back to a checkpoint.
pub(crate) fn compute_again(
    stage: &mut dyn Stage,
    shape: [usize; 3],
    control: &Control,
) -> Result<Again, TrainError> {
    let mode = stage.engine().mode();
    stage.engine_mut().set_mode(Mode::Checked);
    let replayed = stage.replay(shape, control);
    let waited = replayed.and_then(|ticket| ticket.map_or(Ok(()), |ticket| stage.wait(ticket).map(|_| ())));
    stage.engine_mut().set_mode(mode);
    waited?;
    let fault = stage.engine_mut().take_first_nonfinite().map(|fault| fault.to_string());
    let magnitudes = stage.engine_mut().take_magnitudes();
    let one = |m: Magnitude| json!({ "op": m.op, "scope": m.scope, "largest": m.largest });
    Ok(Again { fault, magnitudes: magnitudes.into_iter().map(one).collect() })
}
