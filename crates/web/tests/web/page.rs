//! The web page: its files, history, corpora and runs.

use crate::client::{Answer, get, post, send};
use crate::fake::{self, Hummer, Shared, served, wait_for};
use myxtts_demo::{self as demo, DemoOptions};
use myxtts_run::config::{HostResources, Sources};
use myxtts_run::folder::RunFolder;
use myxtts_run::plan::Plan;
use myxtts_run::progress::Silent;
use myxtts_web::{Server, StudioOptions};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A server whose runs and corpora are in a folder, and whose program is a script of the test.
fn start(at: &Path) -> Server {
    std::fs::create_dir_all(at.join("data")).unwrap();
    let mut options = fake::options(None, 4);
    options.studio =
        StudioOptions { runs: at.join("runs"), roots: vec![at.join("data")], program: at.join("myxtts") };
    let shared = Arc::new(Shared::default());
    let hummer = shared.clone();
    let server =
        Server::start(options, vec![served("hummer", shared, move || Ok(Hummer(hummer.clone())))], None)
            .unwrap();
    wait_for(|| server.facts().is_some());
    server
}

fn send_json(server: &Server, method: &str, path: &str, json: &Json) -> Answer {
    send(server.address(), method, path, &[JSON], json.to_string().as_bytes()).answer()
}

#[test]
fn only_the_page_itself_needs_no_token() {
    let (server, _) = fake::start(Some("a-long-secret"), 4);
    let address = server.address();
    let page = get(address, "/");
    assert_eq!(page.status, 200);
    assert!(String::from_utf8_lossy(&page.body).contains("/page/app.js"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let script = get(address, "/page/app.js");
    assert_eq!((script.status, script.header("content-type")), (200, Some("text/javascript; charset=utf-8")));
    let known = [("If-None-Match", script.header("etag").unwrap())];
    assert_eq!(send(address, "GET", "/page/app.js", &known, b"").answer().status, 304);
    get(address, "/page/..%2fCargo.toml").error(404);
    for path in ["/studio/state", "/studio/runs", "/studio/history", "/page"] {
        get(address, path).error(401);
    }
    send(address, "POST", "/", &[JSON], b"{}").answer().error(401);
}

#[test]
fn every_route_of_the_page_needs_the_token() {
    let (server, _) = fake::start(Some("a-long-secret"), 4);
    for (method, path) in [
        ("GET", "state"),
        ("GET", "voices"),
        ("GET", "history"),
        ("POST", "history"),
        ("DELETE", "history/1"),
        ("GET", "history/1/sound"),
        ("PUT", "history/1/sound"),
        ("GET", "folders?root=0"),
        ("GET", "check?root=0"),
        ("POST", "check"),
        ("GET", "clips?root=0"),
        ("GET", "clips/sound?root=0"),
        ("GET", "clips/mel?root=0"),
        ("GET", "settings"),
        ("POST", "plan"),
        ("GET", "runs"),
        ("POST", "runs"),
        ("GET", "runs/a"),
        ("GET", "runs/a/log"),
        ("POST", "runs/a/stop"),
        ("POST", "runs/a/resume"),
        ("GET", "runs/a/diagnosis"),
        ("POST", "runs/a/diagnosis"),
        ("GET", "runs/a/samples/a.wav"),
        ("GET", "runs/a/recordings/a"),
        ("GET", "runs/a/recordings/a/mel"),
        ("GET", "machine"),
    ] {
        let path = format!("/studio/{path}");
        send(server.address(), method, &path, &[JSON, ("Authorization", "Bearer wrong-secret")], b"{}")
            .answer()
            .error(401);
    }
}

#[test]
fn pages_of_other_origins_cannot_change_anything() {
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path());
    let entry = json!({ "said": { "text": "a", "voice": "b" }, "seconds": 1.0, "first_ms": 1.0, "rtf": 1.0 })
        .to_string();
    let add = |headers: &[(&str, &str)]| {
        send(server.address(), "POST", "/studio/history", headers, entry.as_bytes()).answer()
    };
    add(&[("Content-Type", "text/plain")]).error(415);
    add(&[]).error(415);
    // A page of another program on the same machine may use the API, but not train or remove.
    add(&[JSON, ("Origin", "http://localhost:3000")]).error(403);
    add(&[JSON, ("Sec-Fetch-Site", "cross-site")]).error(403);
    assert_eq!(get(server.address(), "/studio/history").json(), json!({ "items": [] }));
    assert_eq!(add(&[JSON, ("Origin", "http://localhost")]).status, 201);
}

#[test]
fn the_history_is_kept() {
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path());
    let entry = |text: &str| {
        let said = json!({ "text": text, "voice": "anna", "speed": 1 });
        json!({ "said": said, "seconds": 1.5, "first_ms": 20.0, "rtf": 0.1 })
    };
    let add = |json: &Json| send_json(&server, "POST", "/studio/history", json);
    let first = add(&entry("one")).json()["id"].as_str().unwrap().to_owned();
    let second = add(&entry("two")).json()["id"].as_str().unwrap().to_owned();
    assert!(first < second);
    assert_eq!(
        get(server.address(), "/studio/history").json(),
        json!({ "items": [] }),
        "without sound it is not whole"
    );
    let wav = crate::model::recording();
    let sound = |id: &str, body: &[u8]| {
        let path = format!("/studio/history/{id}/sound");
        send(server.address(), "PUT", &path, &[("Content-Type", "audio/wav")], body).answer()
    };
    sound(&first, b"no sound").error(400);
    for id in ["123", "..", "..%2f..%2fx", "a"] {
        sound(id, &wav).error(404);
    }
    assert_eq!((sound(&first, &wav).status, sound(&second, &wav).status), (200, 200));
    let listed = |server: &Server| {
        let items = get(server.address(), "/studio/history").json()["items"].clone();
        items
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["said"]["text"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&server), ["two", "one"]);
    // Another server reads the same history.
    let other = start(at.path());
    assert_eq!(listed(&other), ["two", "one"]);
    assert_eq!(get(other.address(), &format!("/studio/history/{first}/sound")).body, wav);
    assert_eq!(send_json(&other, "DELETE", &format!("/studio/history/{first}"), &json!({})).status, 200);
    assert_eq!(listed(&server), ["two"]);
    add(&json!({ "said": { "text": 1, "voice": "a" } })).error(400);
    add(&json!({ "said": { "text": "x", "voice": "a" }, "seconds": "long" })).error(400);
}

#[test]
fn corpora_are_visible_inside_their_roots_only() {
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path());
    let options = DemoOptions { utterances: 6, ..DemoOptions::default() };
    demo::write(&at.path().join("data/mine"), &options, &Silent).unwrap();
    demo::write(&at.path().join("secret"), &options, &Silent).unwrap();
    std::os::unix::fs::symlink(at.path().join("secret"), at.path().join("data/link")).unwrap();
    let address = server.address();
    let folders = get(address, "/studio/folders?root=0&path=").json();
    assert_eq!(
        folders["folders"],
        json!([{ "name": "mine", "looks_like_corpus": true }]),
        "the link is not listed"
    );
    let clips = get(address, "/studio/clips?root=0&path=mine&count=4").json();
    assert_eq!((&clips["total"], clips["clips"].as_array().unwrap().len()), (&json!(6), 4));
    assert!(clips["clips"][0]["seconds"].as_f64().unwrap() > 0.5);
    let id = clips["clips"][0]["id"].as_str().unwrap();
    let sound = get(address, &format!("/studio/clips/sound?root=0&path=mine&id={id}"));
    assert!(sound.status == 200 && sound.body.starts_with(b"RIFF"));
    let mel = get(address, &format!("/studio/clips/mel?root=0&path=mine&id={id}"));
    assert!(mel.body.starts_with(b"\x89PNG"));
    let found = get(address, &format!("/studio/clips?root=0&path=mine&search={id}")).json();
    assert_eq!(found["total"], 1);
    for path in ["link", "..%2fsecret", "..", "%2fetc", "none"] {
        for route in ["folders", "clips", "check"] {
            get(address, &format!("/studio/{route}?root=0&path={path}")).error(404);
        }
        send_json(&server, "POST", "/studio/check", &json!({ "root": 0, "path": path.replace("%2f", "/") }))
            .error(404);
    }
    get(address, "/studio/folders?root=7&path=").error(404);
    // Metadata may name any file; files outside are not served.
    let outside = at.path().join("secret/wavs");
    let stolen = std::fs::read_dir(outside).unwrap().next().unwrap().unwrap().path();
    let listed = json!({ "audio_filepath": stolen, "text": "stolen", "speaker": "a", "lang": "en" });
    std::fs::create_dir_all(at.path().join("data/sly")).unwrap();
    std::fs::write(at.path().join("data/sly/manifest.jsonl"), format!("{listed}\n")).unwrap();
    let clips = get(address, "/studio/clips?root=0&path=sly").json();
    let id = clips["clips"][0]["id"].as_str().unwrap().to_owned();
    get(address, &format!("/studio/clips/sound?root=0&path=sly&id={id}")).error(404);
}

/// A run folder as left by training.
fn write_run(at: &Path, name: &str) {
    let machine = HostResources { cores: 2, memory_bytes: None };
    let plan = Plan::resolve(&Sources::for_host(machine)).unwrap();
    let folder = RunFolder::create(&at.join("runs"), Some(name), &plan).unwrap();
    let mut events = folder.event_log().unwrap();
    events
        .append("stage", json!({ "stage": "gpt", "from": 0, "steps": 40, "described": ["small"] }))
        .unwrap();
    for step in [1, 10, 20] {
        let numbers = json!({ "text": 2.0 });
        events
            .append(
                "step",
                json!({ "stage": "gpt", "step": step, "loss": 5.0 - step as f64 / 10.0, "numbers": numbers }),
            )
            .unwrap();
    }
    events.append("sample", json!({ "stage": "gpt", "step": 20, "file": "gpt-000020-en_1.wav", "text": "hello", "seconds": 1.0 })).unwrap();
    std::fs::write(folder.samples().join("gpt-000020-en_1.wav"), crate::model::recording()).unwrap();
}

#[test]
fn runs_are_read_from_their_folders() {
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path());
    write_run(at.path(), "one");
    let address = server.address();
    let runs = get(address, "/studio/runs").json()["runs"].clone();
    assert_eq!(
        (&runs[0]["name"], &runs[0]["state"], &runs[0]["step"]),
        (&json!("one"), &json!("stopped"), &json!(20))
    );
    let run = get(address, "/studio/runs/one").json();
    assert_eq!(run["parts"][0]["curves"]["loss"], json!([4.9, 4.0, 3.0]));
    assert_eq!(run["samples"][0]["sentence"], "en_1");
    let seen = run["seen"].as_str().unwrap();
    assert_eq!(get(address, &format!("/studio/runs/one?seen={seen}")).json()["same"], true);
    // Later events are visible at the next request.
    let (folder, _) = RunFolder::resume(&at.path().join("runs"), "one").unwrap();
    folder.event_log().unwrap().append("step", json!({ "stage": "gpt", "step": 30, "loss": 2.0 })).unwrap();
    drop(folder);
    assert_eq!(get(address, &format!("/studio/runs/one?seen={seen}")).json()["step"], 30);
    let sample = get(address, "/studio/runs/one/samples/gpt-000020-en_1.wav");
    assert!(sample.status == 200 && sample.body.starts_with(b"RIFF"));
    for path in [
        "one/samples/..%2fplan.json",
        "one/samples/none.wav",
        "one/samples/%2fetc%2fpasswd",
        "..%2fone",
        "none",
        ".page",
        "one/recordings/en_1",
    ] {
        get(address, &format!("/studio/runs/{path}")).error(404);
    }
    let request = json!({ "settings": { "model.preset": "tiny", "training.gpt_steps": 5 }, "name": "two" });
    let plan = post(address, "/studio/plan", &request).json();
    let value = |path: &str| {
        let all = plan["values"].as_array().unwrap();
        all.iter().find(|one| one["path"] == path).unwrap()["value"].clone()
    };
    assert_eq!((value("model.preset"), value("training.gpt_steps")), (json!("tiny"), json!("5")));
    assert!(plan["command"].as_str().unwrap().starts_with("myxtts train --name=two"), "{}", plan["command"]);
}

/// A script that acts like `myxtts train`: it creates a run, holds its lock, and stops on request.
const TRAINER: &str = r#"#!/bin/sh
for word in "$@"; do
  case "$word" in
    --name=*) name=${word#--name=} ;;
    --resume=*) name=${word#--resume=} ;;
    --runs-dir=*) runs=${word#--runs-dir=} ;;
  esac
done
echo "told: $*" >&2
[ "$name" = bad ] && { echo "error: it cannot be done" >&2; exit 2; }
[ -z "$MYXTTS_TOKEN" ] || exit 3
mkdir -p "$runs/$name/samples"
echo $$ > "$runs/$name/write.lock"
[ -f "$runs/$name/plan.json" ] || cp "$runs/one/plan.json" "$runs/$name/plan.json"
trap ': > "$runs/$name/write.lock"; exit 143' TERM
while :; do sleep 0.05; done
"#;

#[test]
fn a_run_is_started_stopped_and_resumed() {
    use std::os::unix::fs::PermissionsExt;
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path());
    write_run(at.path(), "one");
    let program = at.path().join("myxtts");
    std::fs::write(&program, TRAINER).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let address = server.address();
    let start = |name: &str| {
        post(address, "/studio/runs", &json!({ "name": name, "settings": { "model.preset": "tiny" } }))
    };
    let refused = start("bad").error(400);
    assert!(refused["message"].as_str().unwrap().contains("it cannot be done"), "{refused}");
    start("one").error(409);
    start("../one").error(400);
    assert_eq!(start("two").json()["name"], "two");
    let state = || get(address, "/studio/runs/two").json()["state"].as_str().unwrap().to_owned();
    assert_eq!(state(), "running");
    let log = get(address, "/studio/runs/two/log").json();
    assert!(log["log"].as_str().unwrap().contains("--set=model.preset=tiny"), "{log}");
    let busy = start("three").error(409);
    assert!(busy["message"].as_str().unwrap().contains("two"), "{busy}");
    post(address, "/studio/runs/two/resume", &json!({})).error(409);
    assert_eq!(post(address, "/studio/runs/two/stop", &json!({})).status, 200);
    wait_for(|| state() == "stopped");
    post(address, "/studio/runs/two/stop", &json!({})).error(409);
    post(address, "/studio/runs/none/stop", &json!({})).error(404);
    assert_eq!(post(address, "/studio/runs/two/resume", &json!({})).status, 200);
    assert_eq!(state(), "running");
    assert_eq!(post(address, "/studio/runs/two/stop", &json!({})).status, 200);
    wait_for(|| state() == "stopped");
}
