//! Text that comes in pieces, spoken sentence by sentence while more of it comes.
//!
//! Every sentence is a request of its own in the queue, two of them at a time at most, so that a session has no more of the model
//! than any other client. Their sounds come out in order, as one.

use crate::answer::ApiError;
use crate::limits::TEXT_CHARACTERS;
use crate::models::{Model, NotTaken};
use crate::queue::Refused;
use crate::routes::App;
use crate::sound::{SoundEvent, SoundReceiver};
use crate::speaker::{RATE, SpeakerError, Usage, Utterance};
use myxtts_speak::long_text::settled;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Sentences that are said or wait in the queue at the same time.
const AHEAD: usize = 2;

/// Characters that wait to be said.
const WAITING: usize = 1 << 16;

/// Silence between sentences.
const PAUSE: Duration = Duration::from_millis(200);

/// Until it is tried again where the queue is full, and how often.
const RETRY: Duration = Duration::from_millis(50);
const RETRIES: usize = 200;

/// A text on its way.
pub struct Session {
    app: Arc<App>,
    model: Arc<Model>,
    client: IpAddr,
    /// How it is said; its text is empty.
    manner: Utterance,
    /// What is not a whole sentence yet.
    text: String,
    waiting: VecDeque<String>,
    speaking: VecDeque<SoundReceiver>,
    is_ended: bool,
    has_spoken: bool,
    usage: Usage,
}

/// What comes of it next.
pub enum SessionEvent {
    /// At [`RATE`].
    Samples(Vec<i16>),
    /// All that came was said; more may come.
    Idle,
    /// All that was to be said was said.
    Finished(Usage),
    /// Nothing more comes.
    Failed(ApiError),
}

impl Session {
    pub fn new(app: Arc<App>, model: Arc<Model>, client: IpAddr, manner: Utterance) -> Session {
        Session {
            app,
            model,
            client,
            manner,
            text: String::new(),
            waiting: VecDeque::new(),
            speaking: VecDeque::new(),
            is_ended: false,
            has_spoken: false,
            usage: Usage::default(),
        }
    }

    /// Whether nothing is said and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.speaking.is_empty()
    }

    /// Takes a piece of text; sentences that are whole wait to be said.
    pub fn push(&mut self, piece: &str) -> Result<(), ApiError> {
        if self.is_ended {
            return Err(ApiError::field("text", "text_after_end", "text came after its end was told"));
        }
        let waiting: usize = self.waiting.iter().map(|text| text.chars().count()).sum();
        if waiting > WAITING {
            let message = format!("{waiting} characters wait to be said: send text as it is spoken");
            return Err(ApiError::field("text", "text_too_fast", message));
        }
        self.text.push_str(piece);
        let whole = settled(&self.text);
        let rest = self.text.split_off(whole);
        let sentences = std::mem::replace(&mut self.text, rest);
        let too_long = |text: &str| text.chars().count() > TEXT_CHARACTERS;
        if too_long(&self.text) || too_long(&sentences) {
            let message = format!(
                "more than {TEXT_CHARACTERS} characters came at once or without the end of a sentence"
            );
            return Err(ApiError::field("text", "string_above_max_length", message));
        }
        self.add(sentences);
        Ok(())
    }

    /// What came is said, whether its sentence is whole or not.
    pub fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.add(text);
    }

    fn add(&mut self, text: String) {
        if text.chars().any(char::is_alphanumeric) {
            self.waiting.push_back(text);
        }
    }

    /// No more text comes.
    pub fn end(&mut self) {
        self.flush();
        self.is_ended = true;
    }

    /// Forgets what was not said, and stops what is being said.
    pub fn cancel(&mut self) {
        self.text.clear();
        self.waiting.clear();
        self.speaking.clear();
    }

    /// Hands sentences to the queue. Whether there is nothing to wait for but a place in it.
    fn submit(&mut self) -> Result<bool, ApiError> {
        while self.speaking.len() < AHEAD
            && let Some(text) = self.waiting.front()
        {
            let utterance = Utterance { text: text.clone(), ..self.manner.clone() };
            match self.app.models.speak(&self.model, self.client, utterance) {
                Ok(receiver) => {
                    self.waiting.pop_front();
                    self.speaking.push_back(receiver);
                }
                Err(NotTaken::Refused(Refused::Full)) => return Ok(self.speaking.is_empty()),
                Err(not_taken) => return Err(not_taken.into()),
            }
        }
        Ok(false)
    }

    /// The next of its sound; waits for ever where there is none and more text may come. May be dropped and asked again.
    pub async fn next(&mut self) -> SessionEvent {
        let mut retries = 0;
        loop {
            match self.submit() {
                Ok(false) => {}
                Ok(true) if retries < RETRIES => {
                    retries += 1;
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
                Ok(true) => return SessionEvent::Failed(Refused::Full.into()),
                Err(error) => return SessionEvent::Failed(error),
            }
            let Some(receiver) = self.speaking.front_mut() else {
                if self.is_ended {
                    return SessionEvent::Finished(self.usage);
                }
                std::future::pending::<()>().await;
                continue;
            };
            match receiver.next().await {
                Some(SoundEvent::Samples(samples)) => {
                    self.has_spoken = true;
                    return SessionEvent::Samples(samples);
                }
                Some(SoundEvent::End(Ok(usage))) => {
                    self.speaking.pop_front();
                    self.usage.text_tokens += usage.text_tokens;
                    self.usage.audio_tokens += usage.audio_tokens;
                    if self.is_idle() && !self.is_ended {
                        return SessionEvent::Idle;
                    }
                    if self.has_spoken && !self.is_idle() {
                        let samples = (PAUSE.as_secs_f64() * f64::from(RATE)) as usize;
                        return SessionEvent::Samples(vec![0; samples]);
                    }
                }
                Some(SoundEvent::End(Err(error))) => {
                    self.cancel();
                    return SessionEvent::Failed(error.into());
                }
                None => {
                    self.cancel();
                    return SessionEvent::Failed(SpeakerError::Stopping.into());
                }
            }
        }
    }
}
