//! The demo corpus: sentences of two small grammars, distributed evenly over languages and speakers.

use std::collections::HashSet;
use std::path::Path;

use myxtts_run::progress::Progress;
use myxtts_run::seed::Seed;

use super::folder::{DemoError, DemoReport, Item, Marker, existing_seconds, write_corpus};
use super::sentences::sentences;
use super::voice::{MAX_SPEAKERS, VOICES, Voice};
use super::{Language, seconds};

/// Options of the demo corpus.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Number of utterances, distributed evenly over languages and speakers.
    pub utterances: usize,
    /// The same seed gives the same corpus, byte for byte.
    pub seed: u64,
    /// Number of voices, counted from the first of [`Voice::all`].
    pub speakers: usize,
    /// The languages, each once.
    pub languages: Vec<Language>,
    /// Maximum length of an utterance; longer sentences are skipped. `None` for no limit.
    pub max_seconds: Option<f64>,
    /// Write into a folder with other content, replacing files of the same names.
    pub overwrite: bool,
}

impl Default for DemoOptions {
    fn default() -> Self {
        let languages = Language::ALL.to_vec();
        DemoOptions {
            utterances: 300,
            seed: 1,
            speakers: VOICES.len(),
            languages,
            max_seconds: None,
            overwrite: false,
        }
    }
}

const MARKER: &str = "demo-corpus.json";
/// Raised whenever the same options give different sentences or audio.
const EDITION: u32 = 1;

/// Writes the corpus to `dir`, which is created if missing. An existing demo corpus is changed to these options; with the
/// same options nothing in it changes.
pub fn write(dir: &Path, options: &DemoOptions, progress: &dyn Progress) -> Result<DemoReport, DemoError> {
    let items = plan(options)?;
    let seconds = write_corpus(dir, &items, &marker(options), options.overwrite, progress)?;
    Ok(report(dir, options, seconds))
}

/// Like [`write()`], but skips synthesis if the folder already contains exactly this corpus.
pub fn ensure(dir: &Path, options: &DemoOptions, progress: &dyn Progress) -> Result<DemoReport, DemoError> {
    let items = plan(options)?;
    match existing_seconds(dir, &items, &marker(options))? {
        Some(seconds) => Ok(report(dir, options, seconds)),
        None => write(dir, options, progress),
    }
}

fn report(dir: &Path, options: &DemoOptions, seconds: f64) -> DemoReport {
    DemoReport {
        dir: dir.to_owned(),
        utterances: options.utterances,
        seconds,
        speakers: Voice::all()[..options.speakers].iter().map(|voice| voice.name).collect(),
        languages: options.languages.iter().map(|language| language.code()).collect(),
    }
}

/// Checks the options that all synthetic corpora share.
pub(crate) fn check(utterances: usize, speakers: usize, languages: &[Language]) -> Result<(), DemoError> {
    let invalid = |message: String| Err(DemoError::Options(message));
    if !(1..=MAX_SPEAKERS).contains(&speakers) {
        return invalid(format!("{speakers} speakers requested: choose 1 to {MAX_SPEAKERS}"));
    }
    let distinct: HashSet<Language> = languages.iter().copied().collect();
    if languages.is_empty() || distinct.len() < languages.len() {
        return invalid("name each language once: en, fa, or both".to_owned());
    }
    if utterances == 0 {
        return invalid("0 utterances requested: choose at least 1".to_owned());
    }
    Ok(())
}

/// Distributes sentences over languages and speakers. The first n utterances do not depend on how many follow.
fn plan(options: &DemoOptions) -> Result<Vec<Item>, DemoError> {
    let DemoOptions { utterances, speakers, ref languages, max_seconds, .. } = *options;
    check(utterances, speakers, languages)?;
    let seed = Seed::new(options.seed).derive("demo corpus");
    // With a length limit, generate more sentences than needed.
    let generated = |n: usize| if max_seconds.is_some() { 4 * n + 64 } else { n };
    let each = utterances.div_ceil(languages.len());
    let mut texts: Vec<_> =
        languages.iter().map(|&language| sentences(language, seed, generated(each)).into_iter()).collect();
    let mut items = Vec::new();
    for i in 0..utterances {
        let voice = &Voice::all()[i / languages.len() % speakers];
        let fits = |item: &Item| {
            max_seconds.is_none_or(|most| seconds(&item.sentence, item.voice, item.seed) <= most)
        };
        let of_language = &mut texts[i % languages.len()];
        let Some(item) = of_language.map(|sentence| Item::new(i, sentence, voice, seed)).find(fits) else {
            let which = max_seconds.map_or(String::new(), |most| format!(" of at most {most} s"));
            return Err(DemoError::Options(format!(
                "{utterances} utterances requested, but there are only {i} different sentences{which}: request fewer"
            )));
        };
        items.push(item);
    }
    Ok(items)
}

fn marker(options: &DemoOptions) -> Marker {
    let languages: Vec<String> =
        options.languages.iter().map(|language| format!("\"{}\"", language.code())).collect();
    let mut fields = vec![
        format!("\"edition\": {EDITION}"),
        format!("\"utterances\": {}", options.utterances),
        format!("\"seed\": {}", options.seed),
        format!("\"speakers\": {}", options.speakers),
        format!("\"languages\": [{}]", languages.join(", ")),
    ];
    fields.extend(options.max_seconds.map(|most| format!("\"max_seconds\": {most}")));
    Marker::new(MARKER, "demo-corpus", &fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utterances_are_distributed_evenly() {
        let options = DemoOptions { utterances: 60, ..DemoOptions::default() };
        let items = plan(&options).expect("the defaults are in range");
        for language in Language::ALL {
            for voice in &VOICES {
                let of_both = |item: &&Item| item.sentence.language == language && item.voice == voice;
                assert_eq!(items.iter().filter(of_both).count(), 10, "{language:?} {}", voice.name);
            }
        }
        let more = plan(&DemoOptions { utterances: 90, ..DemoOptions::default() }).expect("in range");
        assert!(items.iter().zip(&more).all(|(a, b)| a.id == b.id && a.sentence == b.sentence));
    }

    #[test]
    fn no_utterance_exceeds_the_length_limit() {
        let limited = DemoOptions { utterances: 40, max_seconds: Some(3.0), ..DemoOptions::default() };
        let items = plan(&limited).expect("there are short sentences");
        assert_eq!(items.len(), 40);
        for item in &items {
            let (samples, _) =
                super::super::synthesise(&item.sentence.text, item.sentence.language, item.voice, item.seed);
            assert!(samples.len() as f64 / 22_050.0 <= 3.0, "{}", item.id);
        }
        let all = plan(&DemoOptions { utterances: 40, ..DemoOptions::default() }).expect("in range");
        assert!(items.iter().zip(&all).any(|(a, b)| a.sentence != b.sentence), "nothing was left out");
        // The options of `train` without a corpus.
        let languages = vec![Language::English];
        let training =
            DemoOptions { utterances: 2400, speakers: 2, languages, max_seconds: Some(3.2), ..limited };
        let items = plan(&training).expect("there are enough short sentences");
        assert!(items.iter().all(|item| seconds(&item.sentence, item.voice, item.seed) <= 3.2));
        let none = plan(&DemoOptions { max_seconds: Some(0.4), ..training });
        assert!(matches!(none, Err(DemoError::Options(message)) if message.contains("at most 0.4 s")));
    }
}
