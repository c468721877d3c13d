//! Handles the report of a step: guards, events, curves, progress.

use super::pace::Pace;
use super::{Guards, InFlightStep, Session, bad_step};
use crate::error::TrainError;
use crate::stages::{self, Stage};
use myxtts_run::guard::{BadStepVerdict, SpikeVerdict};
use myxtts_run::progress::StepProgress;
use myxtts_tensor::Report;
use serde_json::json;

/// Steps between two points of a curve.
const CURVE_EVERY: u64 = 10;
/// Steps at the beginning of a stage that are all points of its curves.
const CURVE_START: u64 = 100;

impl Session<'_> {
    /// Checks the report of a step, and writes it to events, curves and progress.
    pub(super) fn reported(
        &mut self,
        stage: &mut dyn Stage,
        one: &InFlightStep,
        report: &Report,
        guards: &mut Guards,
        pace: &mut Pace,
        before: u64,
    ) -> Result<(), TrainError> {
        let name = stages::name(stage.kind());
        let (step, loss) = (one.step + 1, f64::from(report.loss));
        if let Some(fault) = stage.engine_mut().take_first_nonfinite() {
            let fault = fault.to_string();
            self.progress.say(&format!("step {step} of `{name}`: {fault}"));
            self.events.append_durably("fault", json!({ "stage": name, "step": step, "fault": fault }))?;
        }
        let exploded = report.good && bad_step::is_exploded(report.norm, &one.control);
        let verdict = guards.bad.observe(report.good && !exploded);
        if verdict != BadStepVerdict::Fine {
            let clips: Vec<String> = one.records.iter().map(|&record| stage.clip(record)).collect();
            let gradients = bad_step::longest_gradients(stage.engine())?;
            let mut event = json!({ "stage": name, "step": step, "clips": clips, "loss": loss.to_string(),
                                    "gradients": bad_step::as_json(&gradients) });
            if exploded {
                event["norm"] = json!(report.norm);
                self.events.append_durably("exploded_gradient", event.clone())?;
                self.progress.say(&format!(
                    "step {step} of `{name}` was skipped: its gradient norm {:.3e} is far above \
                     training.gradient_clip = {}; largest gradients now: {}",
                    report.norm,
                    one.control.clip,
                    bad_step::in_words(&gradients)
                ));
            } else {
                self.events.append_durably("bad_step", event.clone())?;
                self.progress.say(&format!(
                    "step {step} of `{name}` was skipped: its loss or gradient is NaN or Inf; its clips: {}",
                    clips.join(", ")
                ));
            }
            let spent = match verdict {
                BadStepVerdict::StopInARow(count) => Some(format!("{count} steps in a row")),
                BadStepVerdict::StopTotal(count) => Some(format!("{count} steps")),
                BadStepVerdict::Fine | BadStepVerdict::Skip => None,
            };
            if let Some(how_many) = spent {
                let saved = self.folder.path().join(format!("bad-batch-{name}-{step}.json"));
                let again = bad_step::compute_again(stage, one.shape, &one.control)?;
                event["first_fault"] = json!(again.fault);
                event["magnitudes"] = again.magnitudes;
                myxtts_run::durable::write(&saved, event.to_string().as_bytes())?;
                let (stage, clips) = (name, clips.join(", "));
                let fault = again
                    .fault
                    .map_or_else(String::new, |fault| format!(". When the batch is computed again, {fault}"));
                let how_many = how_many.into();
                return Err(TrainError::BadSteps { stage, step, how_many, exploded, saved, clips, fault });
            }
            return Ok(());
        }
        if let SpikeVerdict::Spike { median, limit } = guards.spikes.observe(loss) {
            let clips: Vec<String> = one.records.iter().map(|&record| stage.clip(record)).collect();
            self.progress.say(&format!(
                "step {step} of `{name}`: a loss of {loss:.3} is a spike: the median before it is {median:.3}, and \
                 training.spike_limit = {} allows {limit:.3}",
                self.plan.training.spike_limit
            ));
            self.events
                .append("spike", json!({ "stage": name, "step": step, "loss": loss, "clips": clips }))?;
        }
        guards.trend.observe(loss);
        let numbers = stage.numbers(report);
        if step.is_multiple_of(CURVE_EVERY) || step <= CURVE_START {
            let curve = |what: &str| format!("{name}/{what}");
            let mut curves = vec![
                (curve("loss"), loss as f32),
                (curve("gradient"), report.norm),
                (curve("learning_rate"), one.rate as f32),
                (curve("clips_per_second"), pace.rate() as f32),
            ];
            // The name `busy` is explained at `StepProgress::on_device`.
            let shares = [
                ("busy", pace.on_device()),
                ("wait", pace.waiting()),
                ("communication", pace.communicating()),
            ];
            curves.extend(shares.iter().filter_map(|(what, share)| Some((curve(what), (*share)? as f32))));
            curves.extend(numbers.iter().map(|(what, x)| (curve(what), *x as f32)));
            let curves: Vec<(&str, f32)> = curves.iter().map(|(tag, x)| (tag.as_str(), *x)).collect();
            self.board.scalars(before + step, &curves)?;
            let measured: serde_json::Map<_, _> =
                numbers.iter().map(|(what, x)| ((*what).to_owned(), json!(x))).collect();
            self.events.append(
                "step",
                json!({ "stage": name, "step": step, "loss": loss, "gradient": report.norm, "rate": one.rate,
                        "clips_per_second": pace.rate(), "busy": pace.on_device(), "wait": pace.waiting(),
                        "communication": pace.communicating(), "numbers": measured }),
            )?;
        }
        self.progress.step(&StepProgress {
            step,
            epoch: step as f64 / stage.epoch_steps() as f64,
            loss,
            mean: guards.trend.mean().unwrap_or(loss),
            direction: guards.trend.known_direction(),
            numbers,
            rate: pace.rate(),
            on_device: pace.on_device(),
            wait: pace.waiting(),
            communication: pace.communicating(),
            learning_rate: one.rate,
        });
        Ok(())
    }
}
