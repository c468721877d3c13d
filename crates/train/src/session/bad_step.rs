//! Diagnosis of a step with NaN, Inf or exploding gradients: the parameters concerned, and the first operation with a bad
//! result.

use crate::error::TrainError;
use crate::stages::Stage;
use myxtts_tensor::engine::Magnitude;
use myxtts_tensor::ops::adamw::EXPLOSION_FACTOR;
use myxtts_tensor::parameters::Role;
use myxtts_tensor::{Control, Engine, Mode};
use serde_json::{Value, json};

/// Number of parameters that are named.
const NAMED: usize = 5;

/// Parameters with the largest gradient norms of the last executed step, in descending order; NaN and Inf come first. Steps
/// queued behind the one in question may have overwritten its gradients.
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

/// The norms for an event. NaN and Inf, which JSON cannot represent, become strings.
pub(crate) fn as_json(gradients: &[(String, f64)]) -> Value {
    let norm = |x: f64| if x.is_finite() { json!(x) } else { json!(x.to_string()) };
    gradients.iter().map(|(name, x)| json!({ "parameter": name, "norm": norm(*x) })).collect()
}

/// The norms as text.
pub(crate) fn in_words(gradients: &[(String, f64)]) -> String {
    let one = |(name, norm): &(String, f64)| format!("{name} {norm:.3e}");
    gradients.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Whether a step was skipped because its gradient norm is far above the clipping limit.
pub(crate) fn is_exploded(norm: f32, control: &Control) -> bool {
    control.clip > 0.0 && norm.is_finite() && norm > EXPLOSION_FACTOR * control.clip
}

/// Result of computing a batch again, operation by operation.
#[derive(Default)]
pub(crate) struct Recomputed {
    /// The first operation with a NaN or Inf result, as a clause.
    pub fault: Option<String>,
    /// Magnitude of the result of every operation, in order: shows where a gradient grows.
    pub magnitudes: Value,
}

/// Computes the last batch of a shape again and checks every result. Empty if a stage cannot compute a batch again. The
/// weights may change, so call it only if the run ends or rolls back to a checkpoint.
pub(crate) fn compute_again(
    stage: &mut dyn Stage,
    shape: [usize; 3],
    control: &Control,
) -> Result<Recomputed, TrainError> {
    let mode = stage.engine().mode();
    stage.engine_mut().set_mode(Mode::Checked);
    let replayed = stage.replay(shape, control);
    let waited = replayed.and_then(|ticket| ticket.map_or(Ok(()), |ticket| stage.wait(ticket).map(|_| ())));
    stage.engine_mut().set_mode(mode);
    waited?;
    let fault = stage.engine_mut().take_first_nonfinite().map(|fault| fault.to_string());
    let magnitudes = stage.engine_mut().take_magnitudes();
    let one = |m: Magnitude| json!({ "op": m.op, "scope": m.scope, "largest": m.largest });
    Ok(Recomputed { fault, magnitudes: magnitudes.into_iter().map(one).collect() })
}
