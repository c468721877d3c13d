//! Settings that are said again with `train --resume`: taken over where they may change, refused by name where not.

use myxtts_run::folder::RunFolder;
use myxtts_run::plan::{Changed, Plan, Stage};
use serde_json::json;

use crate::failure::UsageError;
use crate::output::errln;

/// The stages with steps, in the order they run, and the setting that says how many.
const STEPS: [(Stage, &str); 3] = [
    (Stage::Dvae, "training.dvae_steps"),
    (Stage::Gpt, "training.gpt_steps"),
    (Stage::Decoder, "training.decoder_steps"),
];

/// Takes over what is said `now` of the settings of a run that goes on, and keeps it with the run.
pub fn change_settings(folder: &RunFolder, plan: &mut Plan, now: &Plan) -> anyhow::Result<()> {
    let events = folder.events().read()?;
    let seen = |kind: &str, stage: Stage| {
        let name = myxtts_train::stages::name(stage);
        events
            .iter()
            .any(|event| event.kind == kind && event.fields.get("stage").is_some_and(|stage| stage == name))
    };
    // A stage that is over, or that another has followed, is not gone back to.
    let over = |at: usize| {
        seen("stage_end", STEPS[at].0) || STEPS[at + 1..].iter().any(|(later, _)| seen("stage", *later))
    };
    let settled = |path: &str| {
        let at = STEPS.iter().position(|(_, steps)| *steps == path).filter(|&at| over(at))?;
        let (stage, run) = (myxtts_train::stages::name(STEPS[at].0), folder.path().display().to_string());
        Some(format!(
            "the stage `{stage}` of this run is over; `train --from {run}/model` trains it further in a run of its own"
        ))
    };
    let Changed { taken, refused } = plan.change(now, &settled);
    if !refused.is_empty() {
        return Err(UsageError(format!(
            "the run {0} goes on as it was begun, and these settings cannot change:\n  {1}\nleave them out, or begin a new run",
            folder.name(),
            refused.join("\n  ")
        ))
        .into());
    }
    if !taken.is_empty() {
        folder.settle(plan)?;
        folder.event_log()?.append_durably("settings", json!({ "changed": taken }))?;
        taken.iter().for_each(|line| errln!("changed      {line}"));
    }
    Ok(())
}
