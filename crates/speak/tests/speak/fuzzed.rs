//! Damaged voice files, for one second.

use super::mutator::fuzz;
use super::parsers;
use myxtts_speak::Voice;
use myxtts_speak::voices::StoredVoice;

#[test]
fn voices() {
    let one = StoredVoice {
        name: "anna".to_owned(),
        voice: Voice { conditioning: vec![0.5; 12], speaker: Some(vec![0.25; 4]) },
        latents: 3,
        references: vec!["a.wav".to_owned()],
        seconds: 7.5,
        model: "0123456789abcdef".to_owned(),
        report: None,
    };
    let without = StoredVoice { voice: Voice { speaker: None, ..one.voice.clone() }, ..one.clone() };
    fuzz(concat!(module_path!(), "::voices"), &[one.to_bytes(), without.to_bytes()], parsers::voice);
}
