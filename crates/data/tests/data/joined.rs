//! Several sources as one.

use std::sync::Arc;

use myxtts_data::record::{
    Column, DVAE_MEL, JoinError, JoinInput, JoinedSource, RecordError, RecordSource, SharedSpeakers, TOKENS,
};

/// `each` records of each of these speakers; the first byte of every array is the record's number.
struct Few {
    speakers: Vec<String>,
    languages: Vec<String>,
    each: usize,
    columns: Vec<Column>,
}

fn few(speakers: &[&str], language: &str, each: usize) -> Arc<Few> {
    let speakers = speakers.iter().map(|name| (*name).to_owned()).collect();
    Arc::new(Few { speakers, languages: vec![language.to_owned()], each, columns: vec![TOKENS] })
}

impl RecordSource for Few {
    fn columns(&self) -> &[Column] {
        &self.columns
    }
    fn len(&self) -> usize {
        self.speakers.len() * self.each
    }
    fn rows(&self, record: usize, _: usize) -> u32 {
        record as u32 + 1
    }
    fn speaker(&self, record: usize) -> u32 {
        (record / self.each) as u32
    }
    fn language(&self, _: usize) -> u32 {
        0
    }
    fn speakers(&self) -> &[String] {
        &self.speakers
    }
    fn languages(&self) -> &[String] {
        &self.languages
    }
    fn id(&self, record: usize) -> String {
        format!("clip-{record}")
    }
    fn read(&self, record: usize, _: usize, _: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        out[0] = record as u8;
        Ok(1)
    }
    fn fingerprint(&self) -> [u8; 32] {
        [self.each as u8; 32]
    }
}

fn input(source: Arc<Few>, label: Option<&str>, shared: SharedSpeakers) -> JoinInput {
    JoinInput { source, label: label.map(str::to_owned), shared }
}

fn names(joined: &JoinedSource) -> Vec<String> {
    (0..joined.len()).map(|r| joined.speakers()[joined.speaker(r) as usize].clone()).collect()
}

#[test]
fn records_follow_source_order_with_prefixed_ids() {
    let none = few(&[], "en", 1);
    let parts = [few(&["ann", "bob"], "en", 2), none, few(&["eve"], "fa", 3)];
    let joined = JoinedSource::new(
        ["a", "empty", "b"]
            .into_iter()
            .zip(parts)
            .map(|(label, part)| input(part, Some(label), SharedSpeakers::Only(None)))
            .collect(),
    )
    .unwrap();
    assert_eq!(joined.len(), 7);
    let ids: Vec<String> = (0..7).map(|record| joined.id(record)).collect();
    assert_eq!(ids, ["a:clip-0", "a:clip-1", "a:clip-2", "a:clip-3", "b:clip-0", "b:clip-1", "b:clip-2"]);
    assert_eq!(names(&joined), ["ann", "ann", "bob", "bob", "eve", "eve", "eve"]);
    let languages: Vec<&str> =
        (0..7).map(|record| joined.languages()[joined.language(record) as usize].as_str()).collect();
    assert_eq!(languages, ["en", "en", "en", "en", "fa", "fa", "fa"]);
    for (record, own) in [0, 1, 2, 3, 0, 1, 2].into_iter().enumerate() {
        let mut out = [9; 4];
        joined.read(record, 0, 0, &mut out).unwrap();
        assert_eq!((usize::from(out[0]), joined.rows(record, 0)), (own, own as u32 + 1));
    }
}

#[test]
fn equal_speaker_names_are_two_people_unless_shared() {
    let join = |shared: SharedSpeakers| {
        let [a, b] =
            [&["default", "ann"][..], &["default", "bob"][..]].map(|speakers| few(speakers, "en", 1));
        JoinedSource::new(vec![input(a, Some("a"), shared.clone()), input(b, Some("b"), shared)]).unwrap()
    };
    let apart = join(SharedSpeakers::Only(None));
    assert_eq!(names(&apart), ["default", "ann", "default (b)", "bob"]);
    assert_eq!(apart.renamed(), [("default".to_owned(), "default (b)".to_owned())]);
    for shared in [SharedSpeakers::Names, SharedSpeakers::Only(Some("default".to_owned()))] {
        let together = join(shared);
        assert_eq!(names(&together), ["default", "ann", "default", "bob"]);
        assert!(together.renamed().is_empty());
    }
}

#[test]
fn the_first_source_keeps_its_numbers_and_the_fingerprint_covers_all() {
    let first = || few(&["ann", "bob"], "en", 2);
    let with = |other: Arc<Few>, label: &str| {
        let parts = vec![
            input(first(), None, SharedSpeakers::Names),
            input(other, Some(label), SharedSpeakers::Names),
        ];
        JoinedSource::new(parts).unwrap()
    };
    let joined = with(few(&["bob"], "en", 2), "val");
    for record in 0..4 {
        assert_eq!(joined.id(record), first().id(record));
        assert_eq!(joined.speaker(record), first().speaker(record));
    }
    assert_eq!(joined.speaker(4), 1, "bob is bob");
    assert_ne!(joined.fingerprint(), with(few(&["bob"], "en", 3), "val").fingerprint());
    assert_ne!(joined.fingerprint(), with(few(&["bob"], "en", 2), "other").fingerprint());
    assert_ne!(joined.fingerprint(), first().fingerprint());
}

#[test]
fn sources_with_other_columns_are_errors() {
    let other = Few { speakers: vec![], languages: vec![], each: 1, columns: vec![DVAE_MEL] };
    let parts = vec![
        input(few(&["ann"], "en", 1), None, SharedSpeakers::Names),
        input(Arc::new(other), Some("b"), SharedSpeakers::Names),
    ];
    assert!(matches!(JoinedSource::new(parts), Err(JoinError::Columns { label, .. }) if label == "b"));
    assert!(matches!(JoinedSource::new(Vec::new()), Err(JoinError::Nothing)));
}
