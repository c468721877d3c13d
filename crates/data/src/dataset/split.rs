//! Training and validation: which side an utterance is on follows from its id alone, so a corpus can
//! grow, shrink or be read in another order and nothing that was heard in training is ever tested on.

use myxtts_run::seed::Seed;
use rayon::prelude::*;

use crate::record::RecordSource;

/// Whether the utterance belongs to validation. Pure in its arguments; raising `fraction` only adds.
pub fn is_validation(id: &str, fraction: f64, seed: u64) -> bool {
    // Written so that NaN says no.
    lot(id, seed) < fraction
}

/// The lot an id draws, in `[0, 1)`.
fn lot(id: &str, seed: u64) -> f64 {
    Seed::new(seed).derive("validation").derive(id).unit(0)
}

/// Positions of the two sides, each in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// What is learnt from.
    pub train: Vec<usize>,
    /// What is only measured on.
    pub validation: Vec<usize>,
}

/// Splits by [`is_validation`]. Where that leaves one side empty the id nearest to the other side crosses over: there is
/// always one to learn from, and where there are two and a fraction above 0 also one to measure on.
pub fn split<'a>(ids: impl IntoIterator<Item = &'a str>, fraction: f64, seed: u64) -> Split {
    let ids: Vec<&str> = ids.into_iter().collect();
    let (mut validation, mut train): (Vec<usize>, Vec<usize>) =
        (0..ids.len()).partition(|&i| is_validation(ids[i], fraction, seed));
    // By lot, and by id where two draw the same: the position must not matter.
    let nearest = |side: &[usize], highest: bool| {
        let order = |a: &usize, b: &usize| {
            let by_lot = lot(ids[side[*a]], seed).total_cmp(&lot(ids[side[*b]], seed));
            by_lot.then_with(|| ids[side[*a]].cmp(ids[side[*b]]))
        };
        if highest { (0..side.len()).max_by(order) } else { (0..side.len()).min_by(order) }
    };
    match (train.is_empty(), validation.is_empty()) {
        (false, true) if ids.len() >= 2 && fraction > 0.0 => {
            validation.extend(nearest(&train, false).map(|at| train.remove(at)));
        }
        (true, false) => train.extend(nearest(&validation, true).map(|at| validation.remove(at))),
        _ => {}
    }
    Split { train, validation }
}

/// The two sides of a record source, as record numbers.
pub fn split_records(source: &dyn RecordSource, fraction: f64, seed: u64) -> Split {
    let ids: Vec<String> = (0..source.len()).into_par_iter().map(|record| source.id(record)).collect();
    split(ids.iter().map(String::as_str), fraction, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_of_known_ids_never_changes() {
        // A change of these would move utterances of existing runs between the sides.
        let ids: Vec<String> = (0..40).map(|i| format!("LJ001-{i:04}")).collect();
        let chosen: Vec<usize> = (0..40).filter(|&i| is_validation(&ids[i], 0.1, 0)).collect();
        assert_eq!(chosen, [22, 29, 34]);
    }

    #[test]
    fn strange_fractions_are_harmless() {
        assert_eq!(split(["a", "b"], f64::NAN, 0).validation.len(), 0);
        assert_eq!(split(["a", "b"], -1.0, 0).validation.len(), 0);
        assert_eq!(split(["a", "b", "c"], 7.0, 0).train.len(), 1);
        // One alone is learnt from, whatever lot it draws.
        for id in ["a", "b", "c", "d", "e", "f"] {
            assert_eq!(split([id], 0.5, 0), Split { train: vec![0], validation: vec![] });
        }
        assert_eq!(split([], 0.5, 0), Split::default());
    }
}
