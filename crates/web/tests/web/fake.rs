//! A fake speaker that hums one tone per word, controlled by the text.
//!
//! | text | behaviour |
//! |---|---|
//! | contains `hold` | hums once, then waits until it is released or the client disconnects |
//! | contains `fail` | fails before any audio |
//! | contains `break` | fails after the first word |

use myxtts_speak::SpeakError;
use myxtts_speak::voices::VoiceError;
use myxtts_web::metrics::Metrics;
use myxtts_web::speaker::EncodedVoice;
use myxtts_web::{
    AudioSink, Job, Jobs, ModelLimits, ServedModel, Server, ServerOptions, Speaker, SpeakerError,
    SpeakerFacts, StudioOptions, Usage, Utterance, VoiceDetails, VoiceStore,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Samples per word.
pub const WORD: usize = 4800;

#[derive(Default)]
pub struct Shared {
    pub released: AtomicBool,
    /// Number of utterances being spoken.
    pub speaking: AtomicUsize,
    /// Received utterances, in order.
    pub received: Mutex<Vec<Utterance>>,
    pub voices: Mutex<Vec<String>>,
}

impl VoiceStore for Shared {
    fn names(&self) -> Result<Vec<String>, VoiceError> {
        Ok(self.voices.lock().unwrap().clone())
    }

    fn remove(&self, name: &str) -> Result<(), VoiceError> {
        let mut voices = self.voices.lock().unwrap();
        let Some(index) = voices.iter().position(|one| one == name) else {
            return Err(VoiceError::Unknown { name: name.to_owned(), names: voices.clone() });
        };
        voices.remove(index);
        Ok(())
    }

    fn details(&self, name: &str) -> Result<Option<VoiceDetails>, VoiceError> {
        let known = self.voices.lock().unwrap().iter().any(|one| one == name);
        Ok(known.then_some(VoiceDetails { seconds: 1.0, report: None }))
    }
}

pub struct Hummer(pub Arc<Shared>);

pub fn hum() -> Vec<f32> {
    (0..WORD).map(|i| 0.5 * (i as f32 * 440.0 / 24_000.0 * std::f32::consts::TAU).sin()).collect()
}

impl Hummer {
    fn speak(&self, utterance: &Utterance, sink: &mut AudioSink) -> Result<Usage, SpeakerError> {
        self.0.received.lock().unwrap().push(utterance.clone());
        if !self.0.voices.lock().unwrap().contains(&utterance.voice) {
            let message = format!("there is no voice {:?}", utterance.voice);
            return Err(SpeakerError::Refused { param: "voice", code: "voice_not_found", message });
        }
        let text = &utterance.text;
        if text.contains("fail") {
            return Err(SpeakerError::Failed("it failed as requested".to_owned()));
        }
        let words = text.split_whitespace().count();
        let mut usage = Usage { text_tokens: words, audio_tokens: 0 };
        for _ in 0..words {
            if !sink.push(&hum()) {
                return Ok(usage);
            }
            usage.audio_tokens += 1;
            if text.contains("break") {
                // The first audio is being sent.
                std::thread::sleep(Duration::from_millis(100));
                return Err(SpeakerError::Failed("it broke as requested".to_owned()));
            }
            while text.contains("hold") && !self.0.released.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(2));
                if !sink.is_wanted() {
                    return Ok(usage);
                }
            }
        }
        Ok(usage)
    }
}

impl Speaker for Hummer {
    fn facts(&self) -> SpeakerFacts {
        SpeakerFacts { languages: vec!["en".to_owned(), "fa".to_owned()] }
    }

    fn warm_up(&mut self) -> Result<(), SpeakError> {
        Ok(())
    }

    fn work(&mut self, jobs: &Jobs, _: &Metrics) -> Result<(), SpeakError> {
        while let Some(job) = jobs.next() {
            match job {
                Job::Speak(mut job) => {
                    self.0.speaking.fetch_add(1, Ordering::SeqCst);
                    let result = self.speak(&job.utterance, &mut job.sink);
                    self.0.speaking.fetch_sub(1, Ordering::SeqCst);
                    job.sink.finish(result);
                }
                Job::EncodeVoice(job) => {
                    self.0.voices.lock().unwrap().push(job.name);
                    let _ = job.reply.send(Ok(EncodedVoice { seconds: 1.0, advice: Vec::new() }));
                }
            }
        }
        Ok(())
    }
}

pub fn options(token: Option<&str>, queue: usize) -> ServerOptions {
    ServerOptions {
        address: ([127, 0, 0, 1], 0).into(),
        token: token.map(str::to_owned),
        queue,
        model_limits: ModelLimits::default(),
        wyoming: Some(0),
        origins: Vec::new(),
        studio: StudioOptions::default(),
    }
}

/// A model for a server.
pub fn served<S: Speaker + 'static>(
    name: &str,
    voices: Arc<dyn VoiceStore>,
    open: impl Fn() -> Result<S, SpeakError> + Send + Sync + 'static,
) -> ServedModel {
    let open = move || open().map(|speaker| Box::new(speaker) as Box<dyn Speaker>);
    ServedModel { name: name.to_owned(), voices, bytes: 1, open: Arc::new(open) }
}

/// A ready server with a hummer.
pub fn start(token: Option<&str>, queue: usize) -> (Server, Arc<Shared>) {
    let shared = Arc::new(Shared { voices: Mutex::new(vec!["anna".to_owned()]), ..Shared::default() });
    let hummer = shared.clone();
    let served = served("hummer", shared.clone(), move || Ok(Hummer(hummer.clone())));
    let server = Server::start(options(token, queue), vec![served], None).unwrap();
    wait_for(|| server.facts().is_some());
    (server, shared)
}

/// Waits until a condition holds, at most a minute.
#[track_caller]
pub fn wait_for(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "the condition did not become true");
        std::thread::sleep(Duration::from_millis(2));
    }
}
