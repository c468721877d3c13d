//! Vocabularies: the golden ids, training independent of threads and order, extension that changes
//! no id, and rejection of broken files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use myxtts_data::tokenizer::{
    Coverage, ExtendOptions, TEXT_TOKEN_LIMIT, Tokenizer, TokenizerError, TrainOptions, coverage, extend,
    train,
};
use myxtts_text::{Cleaner, alphabet};
use proptest::prelude::*;

use crate::table::{property_config, table};

/// The goldens in the repository, used by tests that contain ids of this vocabulary.
fn own_goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens/tokenizer")
}

/// The requested goldens: others of the same format must work unchanged.
fn goldens() -> PathBuf {
    std::env::var_os("MYXTTS_GOLDENS")
        .map_or_else(own_goldens, |folder| PathBuf::from(folder).join("tokenizer"))
}

fn xtts() -> Tokenizer {
    Tokenizer::load(&own_goldens().join("vocab.json")).expect("the golden vocabulary")
}

#[derive(serde::Deserialize)]
struct Golden {
    language: String,
    raw: String,
    cleaned: String,
    ids: Vec<i32>,
    has_unk: bool,
}

fn golden_cases(folder: &Path) -> Vec<Golden> {
    let json = std::fs::read(folder.join("cases.json")).expect("the golden cases");
    serde_json::from_slice(&json).expect("golden cases are JSON")
}

/// Sentences of both languages, from the cleaner tables: enough words to learn from.
fn corpus() -> Vec<(String, String)> {
    let lines = |name: &str, language: &str| {
        table(name).into_iter().map(move |case| (language.to_owned(), case.input)).collect::<Vec<_>>()
    };
    let mut corpus = lines("persian.tsv", "fa");
    corpus.extend(lines("english.tsv", "en"));
    corpus
}

fn persian() -> Vec<(String, String)> {
    corpus().into_iter().filter(|(language, _)| language == "fa").collect()
}

#[test]
fn golden_texts_encode_to_golden_ids() {
    let xtts = Tokenizer::load(&goldens().join("vocab.json")).unwrap();
    for golden in golden_cases(&goldens()) {
        let encoded = xtts.encode(&golden.raw, &golden.language, Cleaner::Coqui).unwrap();
        assert_eq!(encoded.cleaned, golden.cleaned);
        assert_eq!(encoded.ids, golden.ids, "{}", golden.raw);
        assert_eq!(!encoded.unknown.is_empty(), golden.has_unk, "{}: {:?}", golden.raw, encoded.unknown);
        assert_eq!(encoded.pieces.len(), encoded.ids.len());
        assert_eq!(encoded.pieces[0], format!("[{}]", golden.language));
        if !golden.has_unk {
            assert_eq!(encoded.pieces[1..].concat().replace("[SPACE]", " "), golden.cleaned);
        }
        assert_eq!(encoded.ids[0], xtts.language_id(&golden.language).unwrap());
    }
}

#[test]
fn the_xtts_vocabulary_is_described() {
    let xtts = xtts();
    assert_eq!(xtts.vocabulary_size(), 5413);
    assert_eq!(xtts.pieces(), 5411);
    assert_eq!((xtts.stop_id(), xtts.unk_id(), xtts.space_id(), xtts.start_id()), (0, 1, 2, 261));
    assert_eq!(
        xtts.languages(),
        ["ar", "cs", "de", "en", "es", "fr", "it", "ja", "nl", "pl", "pt", "ru", "tr", "zh-cn"]
    );
    assert_eq!(xtts.language_id("zh"), Some(5023));
}

#[test]
fn a_vocabulary_round_trips_through_its_file() {
    let xtts = xtts();
    let again = Tokenizer::from_bytes(&xtts.to_json(), Path::new("again")).unwrap();
    assert_eq!(again.fingerprint(), xtts.fingerprint());
    let original: serde_json::Value =
        serde_json::from_slice(&std::fs::read(own_goldens().join("vocab.json")).unwrap()).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&xtts.to_json()).unwrap();
    assert_eq!(written, original);
}

#[test]
fn a_missing_language_error_names_the_known_ones_and_the_command_to_add_it() {
    let error = xtts().encode("سلام", "fa", Cleaner::Default).unwrap_err().to_string();
    for part in ["[fa]", "zh-cn", "myxtts tokenizer extend", "--language fa"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn training_covers_every_character_and_keeps_the_special_ids() {
    let options = TrainOptions { vocab_size: 450, languages: vec!["de".into()], ..TrainOptions::default() };
    let trained = train(corpus(), &options).unwrap();
    assert_eq!((trained.stop_id(), trained.unk_id(), trained.space_id(), trained.start_id()), (0, 1, 2, 3));
    assert_eq!(trained.languages(), ["de", "en", "fa"]);
    assert_eq!(trained.language_id("de"), Some(4));
    assert_eq!(trained.vocabulary_size(), 450);
    for (language, text) in corpus() {
        let encoded = trained.encode(&text, &language, Cleaner::Default).unwrap();
        assert!(encoded.unknown.is_empty() && !encoded.ids.contains(&1), "{text}: {:?}", encoded.unknown);
        let joined: String =
            encoded.pieces[1..].iter().map(|p| if p == "[SPACE]" { " " } else { p }).collect();
        assert_eq!(joined, encoded.cleaned);
    }
    for language in ["de", "en", "fa"] {
        assert!(
            alphabet(language, Cleaner::Default).unwrap().chars().all(|c| trained.knows(c)),
            "{language}"
        );
    }
}

#[test]
fn training_depends_only_on_the_texts() {
    let options = TrainOptions { vocab_size: 700, ..TrainOptions::default() };
    let with_threads = |threads: usize, corpus: Vec<(String, String)>| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| train(corpus, &options).unwrap().to_json())
    };
    let mut backwards = corpus();
    backwards.reverse();
    let first = with_threads(1, corpus());
    assert_eq!(with_threads(4, corpus()), first);
    assert_eq!(with_threads(3, backwards), first);
}

/// Compares with the `tokenizers` trainer, which may break ties between equal entries differently; these
/// texts have no such ties.
#[test]
fn training_agrees_with_the_tokenizers_library() {
    use tokenizers::models::TrainerWrapper;
    use tokenizers::models::bpe::{BPE, BpeTrainer};
    use tokenizers::pre_tokenizers::whitespace::Whitespace;

    let options = TrainOptions { vocab_size: 500, ..TrainOptions::default() };
    let english: Vec<String> = corpus()
        .into_iter()
        .filter(|(language, _)| language == "en")
        .map(|(language, text)| myxtts_text::clean(&text, &language, Cleaner::Default).unwrap())
        .collect();
    let ours = train(english.iter().map(|text| ("en", text)), &options).unwrap();

    let specials = ["[STOP]", "[UNK]", "[SPACE]", "[START]", "[en]"];
    let trainer = BpeTrainer::builder()
        .vocab_size(500)
        .min_frequency(2)
        .show_progress(false)
        .special_tokens(specials.iter().map(|s| tokenizers::AddedToken::from(*s, true)).collect())
        .initial_alphabet(alphabet("en", Cleaner::Default).unwrap().chars().filter(|&c| c != ' ').collect())
        .build();
    let mut theirs = tokenizers::Tokenizer::new(BPE::default());
    theirs.with_pre_tokenizer(Some(Whitespace));
    theirs.train(&mut TrainerWrapper::from(trainer), english.iter()).unwrap();

    let ours: serde_json::Value = serde_json::from_slice(&ours.to_json()).unwrap();
    let ours: HashMap<String, u32> = serde_json::from_value(ours["model"]["vocab"].clone()).unwrap();
    assert_eq!(ours, theirs.get_vocab(true));
}

#[test]
fn a_vocabulary_too_small_for_its_characters_is_rejected() {
    let options = TrainOptions { vocab_size: 20, ..TrainOptions::default() };
    let error = train(corpus(), &options).unwrap_err();
    assert!(matches!(error, TokenizerError::TooSmall { requested: 20, .. }), "{error}");
    assert!(matches!(train(Vec::<(&str, &str)>::new(), &options).unwrap_err(), TokenizerError::NoText(None)));
}

#[test]
fn extending_changes_no_id_and_no_old_text() {
    let base = xtts();
    let old = golden_cases(&own_goldens()).into_iter().map(|golden| (golden.language, golden.raw));
    let options = ExtendOptions { new_tokens: 300, ..ExtendOptions::new("fa") };
    let (extended, report) = extend(&base, persian().into_iter().chain(old), &options).unwrap();

    assert_eq!(report.old_texts, golden_cases(&own_goldens()).len());
    assert_eq!(report.old_texts_changed, 0);
    for golden in golden_cases(&own_goldens()) {
        let encoded = extended.encode(&golden.raw, &golden.language, Cleaner::Coqui).unwrap();
        assert_eq!(encoded.ids, golden.ids, "{}", golden.raw);
    }
    let json = |tokenizer: &Tokenizer| -> serde_json::Value {
        serde_json::from_slice(&tokenizer.to_json()).unwrap()
    };
    let (before, after) = (json(&base), json(&extended));
    for (piece, id) in before["model"]["vocab"].as_object().unwrap() {
        assert_eq!(&after["model"]["vocab"][piece], id, "{piece}");
    }
    let old_merges = before["model"]["merges"].as_array().unwrap();
    assert_eq!(&after["model"]["merges"].as_array().unwrap()[..old_merges.len()], &old_merges[..]);

    // New ids begin after the largest, and the language token is the last.
    assert_eq!(report.first_id, 5413);
    assert_eq!(report.language_id as usize, extended.vocabulary_size() - 1);
    assert!(extended.vocabulary_size() <= 5413 + 300);
    for c in ['پ', 'ژ', 'گ', '\u{200c}'] {
        assert!(report.characters.contains(&c), "{c:?} in {:?}", report.characters);
    }
    assert!(report.before.unknown > 0);
    assert_eq!(report.after.unknown, 0);
    assert!(report.pieces > 0, "{report:?}");
    assert!(
        report.after.tokens < report.before.tokens,
        "{} {} {}",
        report.pieces,
        report.after.tokens,
        report.before.tokens
    );
    assert_eq!(extended.encode("پارچه‌ی گران", "fa", Cleaner::Default).unwrap().ids[0], report.language_id);
}

#[test]
fn sharing_letters_gives_shorter_texts_and_is_reported() {
    let base = xtts();
    // A nightingale in Arabic, a thousand in Persian.
    let arabic = [("ar", "هزار"), ("ar", "كتاب"), ("en", "hello")];
    let texts = || persian().into_iter().chain(arabic.map(|(l, t)| (l.to_owned(), t.to_owned())));
    let own = ExtendOptions { new_tokens: 300, ..ExtendOptions::new("fa") };
    let shared = ExtendOptions { shared: true, ..own.clone() };
    let (_, own) = extend(&base, texts(), &own).unwrap();
    let (_, shared) = extend(&base, texts(), &shared).unwrap();
    assert_eq!((own.old_texts, own.old_texts_changed), (3, 0));
    assert_eq!((shared.old_texts, shared.old_texts_changed), (3, 1));
    assert!(shared.after.tokens < own.after.tokens, "{} {}", shared.after.tokens, own.after.tokens);
}

#[test]
fn extending_a_known_language_keeps_its_token() {
    let options = ExtendOptions { new_tokens: 50, ..ExtendOptions::new("en") };
    let (extended, report) = extend(&xtts(), [("en", "hello ŵorld ŵorld")], &options).unwrap();
    assert_eq!(report.language_id, 259);
    assert_eq!(report.characters, ['—', 'ŵ'].into_iter().filter(|c| !xtts().knows(*c)).collect::<Vec<_>>());
    assert_eq!(extended.languages(), xtts().languages());
    let none = extend(&xtts(), [("en", "hello")], &ExtendOptions::new("fa")).unwrap_err();
    assert!(none.to_string().contains("\"fa\""), "{none}");
}

#[test]
fn coverage_counts_unknown_characters_with_examples_and_long_texts() {
    let long = "hello ".repeat(300);
    let texts =
        [("a", "en", "Grüß Gott ♥"), ("b", "en", "ŵŵ ok"), ("c", "fa", "گل"), ("d", "en", long.as_str())];
    let covered: Coverage = coverage(&xtts(), texts, Cleaner::Default);
    assert_eq!(covered.texts, 4);
    assert_eq!(covered.unknown, 3);
    let first = &covered.per_character[0];
    assert_eq!((first.character, first.count, first.unknown), ('ŵ', 2, 2));
    assert_eq!((first.code.as_str(), &first.examples[..]), ("U+0175", &["b".to_owned()][..]));
    assert_eq!(covered.per_character[1].character, 'گ');
    assert!(covered.missing_languages.contains("fa"));
    assert_eq!(covered.over_limit, 1);
    assert_eq!(covered.longest[0].id, "d");
    assert!(covered.longest[0].tokens > TEXT_TOKEN_LIMIT);
    assert!((covered.unknown_rate() - 3.0 / covered.characters as f64).abs() < 1e-12);
    let bad = coverage(&xtts(), [("x", "zu", "1999")], Cleaner::Default);
    assert_eq!((bad.uncleanable, bad.texts), (1, 0));
    assert_eq!(bad.uncleanable_examples[0].0, "x");
}

/// Each of these made the `tokenizers` crate panic or was accepted by it silently.
#[test]
fn broken_vocabularies_are_rejected_with_a_reason() {
    let file = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json: serde_json::Value = serde_json::from_str(
            r#"{"added_tokens":[{"id":0,"content":"[STOP]"},{"id":1,"content":"[UNK]"},{"id":2,"content":"[SPACE]"},
            {"id":3,"content":"[START]"}],"pre_tokenizer":{"type":"Whitespace"},"model":{"type":"BPE",
            "unk_token":"[UNK]","vocab":{"[STOP]":0,"[UNK]":1,"[SPACE]":2,"[START]":3,"a":4,"b":5,"ab":6},
            "merges":["a b"]}}"#,
        )
        .unwrap();
        change(&mut json);
        Tokenizer::from_bytes(&serde_json::to_vec(&json).unwrap(), Path::new("v.json"))
            .map_err(|e| e.to_string())
    };
    assert!(file(&|_| {}).is_ok());
    type Change = dyn Fn(&mut serde_json::Value);
    let cases: [(&Change, &str); 9] = [
        (&|json| json["model"]["merges"] = serde_json::json!(["ab ab"]), "\"abab\""),
        (&|json| json["model"]["merges"] = serde_json::json!(["a"]), "merge 0"),
        (&|json| json["model"]["vocab"]["b"] = 4.into(), "share the id 4"),
        (&|json| json["model"]["vocab"]["b"] = 4_000_000_000u32.into(), "4000000000"),
        (&|json| json["model"]["vocab"][""] = 9.into(), "empty"),
        (&|json| json["added_tokens"][3]["id"] = 9.into(), "[START]"),
        (&|json| json["model"]["type"] = "Unigram".into(), "model.type"),
        (&|json| json["normalizer"] = serde_json::json!({"type": "NFC"}), "normalizer"),
        (&|json| json["model"]["continuing_subword_prefix"] = "####".into(), "continuing_subword_prefix"),
    ];
    for (change, reason) in cases {
        let error = file(change).unwrap_err();
        assert!(error.contains(reason) && error.contains("v.json"), "{error}");
    }
    let double = br#"{"model":{"vocab":{"a":1,"a":2},"merges":[]}}"#;
    assert!(Tokenizer::from_bytes(double, Path::new("v")).is_err());
    assert!(Tokenizer::from_bytes(b"\xff{", Path::new("v")).is_err());
    assert!(matches!(Tokenizer::load(Path::new("no/such/file")).unwrap_err(), TokenizerError::Io { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..property_config() })]

    /// Any text in an old language's own alphabet, not only the golden ones.
    #[test]
    fn texts_in_an_old_alphabet_keep_their_ids(seed in any::<prop::sample::Index>(), picks in prop::collection::vec(any::<prop::sample::Index>(), 1..60)) {
        thread_local! {
            static BOTH: (Tokenizer, Tokenizer) = {
                let options = ExtendOptions { new_tokens: 300, ..ExtendOptions::new("fa") };
                (xtts(), extend(&xtts(), persian(), &options).unwrap().0)
            };
        }
        BOTH.with(|(base, extended)| {
            let languages = ["ar", "cs", "de", "en", "es", "fr", "it", "nl", "pl", "pt", "ru", "tr"];
            let language = languages[seed.index(languages.len())];
            let letters: Vec<char> = alphabet(language, Cleaner::Default).unwrap().chars().collect();
            let text: String = picks.iter().map(|pick| letters[pick.index(letters.len())]).collect();
            let before = base.encode(&text, language, Cleaner::Coqui).unwrap();
            prop_assert_eq!(extended.encode(&text, language, Cleaner::Coqui).unwrap().ids, before.ids);
            Ok(())
        })?;
    }
}
