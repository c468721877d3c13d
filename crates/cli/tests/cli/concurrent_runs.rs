//! Several runs on one corpus, started at the same moment.

use std::process::Child;

use myxtts_run::lock::FolderLock;

use super::train::{corpus, myxtts};

fn run(folder: &std::path::Path, name: &str) -> Child {
    let mut arguments = vec!["train", "corpus", "--name", name, "--device", "cpu", "--preset", "tiny"];
    arguments.extend(["--stage", "dvae", "--set", "training.dvae_steps=1", "--set", "data.num_workers=1"]);
    myxtts(folder, &arguments).spawn().unwrap()
}

fn done(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {words}", output.status);
    words
}

/// One process writes vocabulary and cache, the others wait for them; later runs need no lock.
#[test]
fn runs_started_together_all_train() {
    let folder = corpus();
    let folder = folder.path();
    let together = ["one", "two", "three"].map(|name| run(folder, name));
    together.into_iter().for_each(|child| drop(done(child)));
    let _held = FolderLock::acquire(&folder.join("corpus/.myxtts-cache")).unwrap();
    let words = done(run(folder, "four"));
    assert!(!words.contains("waiting until"), "{words}");
    let model =
        |name: &str| std::fs::read(folder.join(format!("runs/{name}/model/dvae.safetensors"))).unwrap();
    for name in ["two", "three", "four"] {
        assert!(model(name) == model("one"), "{name} has other weights");
    }
}
