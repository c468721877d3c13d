//! The recogniser that the settings name.

use myxtts_data::text::compare::Numerals;
use myxtts_run::plan::Plan;
use myxtts_train::evaluate::listener::Listener;
use myxtts_train::evaluate::recognizer::Recognizer;

/// A listener with the recogniser of the settings; none where they name none.
pub fn listener(plan: &Plan) -> anyhow::Result<Option<Listener>> {
    let training = &plan.training;
    let numerals = if training.recognizer_digits { Numerals::Digits } else { Numerals::Numbers };
    let recognizer = match (&training.recognizer_command, &training.recognizer_url) {
        (Some(command), _) => Recognizer::command(command)?,
        (None, Some(url)) => Recognizer::url(url, &training.recognizer_model)?,
        (None, None) => return Ok(None),
    };
    Ok(Some(Listener::new(recognizer, numerals)))
}
