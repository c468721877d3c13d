//! Requests of SillyTavern and Open WebUI.

use crate::client::{form, get, post, send};
use crate::fake;
use serde_json::json;

#[test]
fn requests_of_sillytavern() {
    let (server, shared) = fake::start(None, 4);
    let address = server.address();
    assert_eq!(
        get(address, "/speakers").json(),
        json!([{ "name": "anna", "voice_id": "anna", "preview_url": "" }])
    );
    assert_eq!(
        get(address, "/languages").json(),
        json!({ "languages": { "English": "en", "Persian": "fa" } })
    );
    let settings = json!({
        "temperature": 0.6, "speed": 1.5, "length_penalty": 1, "repetition_penalty": 4.0, "top_k": 40, "top_p": 0.8,
        "enable_text_splitting": true, "stream_chunk_size": 100
    });
    assert_eq!(post(address, "/set_tts_settings", &settings).status, 200);
    let streamed = get(address, "/tts_stream/?text=hello%20you&speaker_wav=anna&language=en");
    assert_eq!((streamed.status, streamed.header("content-type")), (200, Some("audio/wav")));
    let request = json!({ "text": "hello you", "speaker_wav": "anna.wav", "language": "fa" });
    let whole = post(address, "/tts_to_audio/", &request);
    assert_eq!(whole.body, streamed.body);
    let received = shared.received.lock().unwrap().clone();
    assert_eq!((received[0].text.as_str(), received[0].language.as_deref()), ("hello you", Some("en")));
    assert_eq!(
        (received[1].voice.as_str(), received[1].language.as_deref(), received[1].speed),
        ("anna", Some("fa"), 1.5)
    );
    assert_eq!((received[1].sampling.temperature, received[1].sampling.top_k), (Some(0.6), Some(40)));
    for wrong in [json!({ "temperature": 0 }), json!({ "top_p": 2 }), json!({ "speed": "x" })] {
        post(address, "/set_tts_settings", &wrong).error(400);
    }
    for path in [
        "/tts_stream/",
        "/tts_stream/?text=a",
        "/tts_stream/?text=a&speaker_wav=anna",
        "/tts_stream/?text=%ff&speaker_wav=%00&language=%",
    ] {
        get(address, path).error(400);
    }
    post(address, "/tts_to_audio/", &json!({ "text": 3 })).error(400);
}

#[test]
fn voices_are_listed_added_and_removed() {
    let (server, shared) = fake::start(None, 4);
    let address = server.address();
    for path in ["/v1/audio/voices", "/audio/voices"] {
        assert_eq!(get(address, path).json(), json!({ "voices": [{ "id": "anna", "name": "anna" }] }));
    }
    let add = |name: &str, recording: &[u8]| {
        let (kind, body) = form(name, recording);
        send(address, "POST", "/v1/audio/voices", &[("Content-Type", &kind)], &body).answer()
    };
    let added = add("مینا", b"RIFF");
    assert_eq!((added.status, &added.json()["id"]), (200, &json!("مینا")));
    assert_eq!(shared.voices.lock().unwrap().len(), 2);
    add("مینا", b"RIFF").error(409);
    for name in ["", "../anna", "a/b", ".hidden", "a\u{0}b", "anna(2)", &"a".repeat(65), &"a".repeat(2000)] {
        assert_eq!(add(name, b"RIFF").error(400)["param"], "name", "{name:?}");
    }
    let wrong =
        send(address, "POST", "/v1/audio/voices", &[("Content-Type", "application/json")], b"{}").answer();
    wrong.error(415);
    let (kind, mut body) = form("ben", b"RIFF");
    body.truncate(body.len() / 2);
    send(address, "POST", "/v1/audio/voices", &[("Content-Type", &kind)], &body).answer().error(400);
    add("large", &vec![0; (10 << 20) + 1]).error(413);
    assert_eq!(shared.voices.lock().unwrap().len(), 2);
    let remove = |path: &str| send(address, "DELETE", path, &[], b"").answer();
    assert_eq!(remove("/v1/audio/voices/%D9%85%DB%8C%D9%86%D8%A7").json()["deleted"], true);
    remove("/v1/audio/voices/nobody").error(404);
    remove("/v1/audio/voices/..%2Fanna").error(400);
    remove("/v1/audio/voices/%ff").error(400);
    assert_eq!(*shared.voices.lock().unwrap(), ["anna"]);
}
