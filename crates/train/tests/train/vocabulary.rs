//! A model that takes over a larger vocabulary.

use crate::tiny;
use myxtts_data::tokenizer::{ExtendOptions, Tokenizer, TrainOptions, extend, train};
use myxtts_model::weights::Part;
use myxtts_train::TrainError;
use myxtts_train::model::Model;

const TABLES: [(&str, usize); 3] = [
    ("gpt.text_embedding.weight", tiny::WIDTH),
    ("gpt.text_head.weight", tiny::WIDTH),
    ("gpt.text_head.bias", 1),
];

#[test]
fn new_rows_are_appended_to_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    tiny::write(&path, &[Part::Dvae]);
    let own = Tokenizer::load(&path.join("vocab.json")).unwrap();
    let mut model = Model::open(&path).unwrap();
    let old = TABLES.map(|(name, _)| model.numbers(name).unwrap());
    // Its own vocabulary changes nothing.
    assert!(model.adopt_vocabulary(&own, 7).unwrap().is_none());
    assert_eq!(TABLES.map(|(name, _)| model.numbers(name).unwrap()), old);

    let russian = [("ru", "Доброе утро, мир."), ("ru", "Утро доброе, и мир.")];
    let (larger, _) = extend(&own, russian, &ExtendOptions::new("ru")).unwrap();
    let (before, after) = (own.vocabulary_size(), larger.vocabulary_size());
    assert!(after > before);
    assert_eq!(model.adopt_vocabulary(&larger, 7).unwrap(), Some((before, after)));
    for ((name, width), old) in TABLES.into_iter().zip(&old) {
        let new = model.numbers(name).unwrap();
        assert_eq!(new.len(), after * width, "{name}");
        assert!(old.iter().zip(&new).all(|(a, b)| a.to_bits() == b.to_bits()), "{name}");
    }
    assert_eq!(model.shape("gpt.text_head.bias"), Some(vec![after]));
    assert_eq!(model.gpt_sizes(&larger).unwrap().unwrap().text_vocabulary, after);
    // Doing it once is enough, and it cannot be undone.
    assert!(model.adopt_vocabulary(&larger, 7).unwrap().is_none());
    assert!(model.adopt_vocabulary(&own, 7).is_err());

    let mut model = Model::open(&path).unwrap();
    let other = train(russian, &TrainOptions { vocab_size: 200, ..TrainOptions::default() }).unwrap();
    let refused = model.adopt_vocabulary(&other, 7);
    assert!(matches!(refused, Err(TrainError::Vocabulary(ref why)) if why.contains("another vocabulary")));
}
