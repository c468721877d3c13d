//! A speaker that hums: as long as a text has words, and as it is told by the text.
//!
//! | text | what it does |
//! |---|---|
//! | contains `hold` | hums once, then until it is released or nobody listens |
//! | contains `fail` | fails before any sound |
//! | contains `break` | fails after the first |

use myxtts_speak::SpeakError;
use myxtts_speak::voices::VoiceError;
use myxtts_web::metrics::Metrics;
use myxtts_web::speaker::HeardVoice;
use myxtts_web::{
    Job, Jobs, Keeping, ServedModel, Server, ServerOptions, SoundSink, Speaker, SpeakerError, SpeakerFacts,
    StudioOptions, Usage, Utterance, VoiceDetails, VoiceStore,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Samples of a word.
pub const WORD: usize = 4800;

#[derive(Default)]
pub struct Shared {
    pub released: AtomicBool,
    /// Utterances that are being spoken.
    pub speaking: AtomicUsize,
    /// What was asked for, in its order.
    pub heard: Mutex<Vec<Utterance>>,
    pub voices: Mutex<Vec<String>>,
}

impl VoiceStore for Shared {
    fn names(&self) -> Result<Vec<String>, VoiceError> {
        Ok(self.voices.lock().unwrap().clone())
    }

    fn remove(&self, name: &str) -> Result<(), VoiceError> {
        let mut voices = self.voices.lock().unwrap();
        let Some(place) = voices.iter().position(|one| one == name) else {
            return Err(VoiceError::Unknown { name: name.to_owned(), names: voices.clone() });
        };
        voices.remove(place);
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
    fn say(&self, utterance: &Utterance, sink: &mut SoundSink) -> Result<Usage, SpeakerError> {
        self.0.heard.lock().unwrap().push(utterance.clone());
        if !self.0.voices.lock().unwrap().contains(&utterance.voice) {
            let message = format!("there is no voice {:?}", utterance.voice);
            return Err(SpeakerError::Refused { param: "voice", code: "voice_not_found", message });
        }
        let text = &utterance.text;
        if text.contains("fail") {
            return Err(SpeakerError::Failed("it failed as it was told".to_owned()));
        }
        let words = text.split_whitespace().count();
        let mut usage = Usage { text_tokens: words, audio_tokens: 0 };
        for _ in 0..words {
            if !sink.push(&hum()) {
                return Ok(usage);
            }
            usage.audio_tokens += 1;
            if text.contains("break") {
                // The first sound is on its way.
                std::thread::sleep(Duration::from_millis(100));
                return Err(SpeakerError::Failed("it broke as it was told".to_owned()));
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
                    let said = self.say(&job.utterance, &mut job.sink);
                    self.0.speaking.fetch_sub(1, Ordering::SeqCst);
                    job.sink.finish(said);
                }
                Job::Hear(job) => {
                    self.0.voices.lock().unwrap().push(job.name);
                    let _ = job.reply.send(Ok(HeardVoice { seconds: 1.0, advice: Vec::new() }));
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
        keeping: Keeping::default(),
        wyoming: Some(0),
        origins: Vec::new(),
        studio: StudioOptions::default(),
    }
}

/// A model as a server is given it.
pub fn served<S: Speaker + 'static>(
    name: &str,
    voices: Arc<dyn VoiceStore>,
    open: impl Fn() -> Result<S, SpeakError> + Send + Sync + 'static,
) -> ServedModel {
    let open = move || open().map(|speaker| Box::new(speaker) as Box<dyn Speaker>);
    ServedModel { name: name.to_owned(), voices, bytes: 1, open: Arc::new(open) }
}

/// A server with a hummer that is ready.
pub fn start(token: Option<&str>, queue: usize) -> (Server, Arc<Shared>) {
    let shared = Arc::new(Shared { voices: Mutex::new(vec!["anna".to_owned()]), ..Shared::default() });
    let hummer = shared.clone();
    let served = served("hummer", shared.clone(), move || Ok(Hummer(hummer.clone())));
    let server = Server::start(options(token, queue), vec![served], None).unwrap();
    wait_for(|| server.facts().is_some());
    (server, shared)
}

/// Waits for something that must come soon.
#[track_caller]
pub fn wait_for(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "it did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}
