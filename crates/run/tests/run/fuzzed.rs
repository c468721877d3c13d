//! Fuzzes the parsers of run files, one second each.

use super::mutator::fuzz;
use super::parsers;

fn stored(path: &str) -> Vec<u8> {
    std::fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)).unwrap()
}

#[test]
fn configurations() {
    let files = ["bottleneck_fix", "multi_gpu", "oscillation_fix", "small_gpu"];
    let valid = files.map(|name| stored(&format!("configs/{name}.yaml")));
    fuzz(concat!(module_path!(), "::configurations"), &valid, parsers::yaml);
}

#[test]
fn plans() {
    fuzz(concat!(module_path!(), "::plans"), &[stored("formats/v1/runs/left/plan.json")], parsers::plan);
}

#[test]
fn event_logs() {
    let valid = [stored("formats/v1/runs/left/events.jsonl")];
    fuzz(concat!(module_path!(), "::event_logs"), &valid, parsers::events);
}

#[test]
fn checkpoint_manifests() {
    let valid = [stored("formats/v1/runs/left/checkpoints/000001-step-2/manifest")];
    fuzz(concat!(module_path!(), "::checkpoint_manifests"), &valid, parsers::checkpoint);
}
