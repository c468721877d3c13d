//! What a run will not do with the clips it has, said before it begins.

use std::collections::BTreeMap;

use myxtts_data::record::RecordSource;
use myxtts_run::plan::DataPlan;
use myxtts_train::TrainError;
use myxtts_train::pipeline::Corpus;

/// Speakers that are named one by one.
const NAMED: usize = 5;

/// What to say of a corpus; an error where nothing can be learnt from it.
pub fn caveats(corpus: &Corpus, data: &DataPlan) -> Result<Vec<String>, TrainError> {
    let mut said = Vec::new();
    match corpus.train.len() {
        0 => {
            return Err(TrainError::NoData(format!(
                "no clip is left to learn from: {} can be used, and data.val_fraction = {} holds {} of them out",
                corpus.source.len(),
                data.val_fraction,
                corpus.validation.len()
            )));
        }
        1 => said.push(
            "there is one clip to learn from: it will be learnt by heart, and no other sentence can be expected of the model"
                .to_owned(),
        ),
        _ => {}
    }
    if corpus.validation.is_empty() {
        let remedy = match corpus.source.len() {
            1 => "that takes a second clip",
            _ => "raise data.val_fraction to have them",
        };
        said.push(format!(
            "nothing is held out (data.val_fraction = {}): no validation, no best checkpoint, no early stop and no samples at \
             the end; {remedy}",
            data.val_fraction
        ));
    }
    let alone = alone(&*corpus.source, &corpus.train);
    if !alone.is_empty() {
        let names: Vec<&str> = alone.iter().take(NAMED).map(String::as_str).collect();
        let more = match alone.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        said.push(format!(
            "one clip alone: {}{more}; such a voice is heard by half of the clip itself, and only the other half is learnt",
            names.join(", ")
        ));
    }
    Ok(said)
}

/// Speakers with one record.
fn alone(source: &dyn RecordSource, records: &[u32]) -> Vec<String> {
    let mut clips: BTreeMap<u32, usize> = BTreeMap::new();
    for &record in records {
        *clips.entry(source.speaker(record as usize)).or_default() += 1;
    }
    let names = source.speakers();
    let single = clips.into_iter().filter(|(_, count)| *count == 1);
    single.filter_map(|(speaker, _)| names.get(speaker as usize).cloned()).collect()
}
