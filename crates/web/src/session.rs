//! Streaming text input: text arrives in pieces and is spoken sentence by sentence.
//!
//! Every sentence is a separate request in the queue, at most two at a time, so that a session gets no more of the model than
//! any other client. Their audio is delivered in order as one stream.

use crate::audio_stream::{AudioEvent, AudioReceiver};
use crate::limits::TEXT_CHARACTERS;
use crate::models::{EnqueueError, Model};
use crate::queue::QueueError;
use crate::response::ApiError;
use crate::routes::App;
use crate::speaker::{RATE, SpeakerError, Usage, Utterance};
use myxtts_speak::long_text::complete_sentences;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Sentences of a session that are spoken or queued at the same time.
const AHEAD: usize = 2;

/// Maximum number of characters waiting to be spoken.
const MAX_WAITING: usize = 1 << 16;

/// Silence between sentences.
const PAUSE: Duration = Duration::from_millis(200);

/// Interval and number of retries when the queue is full.
const RETRY: Duration = Duration::from_millis(50);
const RETRIES: usize = 200;

/// A session with one client.
pub struct Session {
    app: Arc<App>,
    model: Arc<Model>,
    client: IpAddr,
    /// Voice and other options; its text is empty.
    options: Utterance,
    /// Text that is not a complete sentence yet.
    text: String,
    waiting: VecDeque<String>,
    speaking: VecDeque<AudioReceiver>,
    is_ended: bool,
    has_spoken: bool,
    usage: Usage,
}

/// Next event of a session.
pub enum SessionEvent {
    /// Samples at [`RATE`].
    Samples(Vec<i16>),
    /// All text so far was spoken; more may come.
    Idle,
    /// All text was spoken and no more will come.
    Finished(Usage),
    /// The session failed.
    Failed(ApiError),
}

impl Session {
    pub fn new(app: Arc<App>, model: Arc<Model>, client: IpAddr, options: Utterance) -> Session {
        Session {
            app,
            model,
            client,
            options,
            text: String::new(),
            waiting: VecDeque::new(),
            speaking: VecDeque::new(),
            is_ended: false,
            has_spoken: false,
            usage: Usage::default(),
        }
    }

    /// Whether no text is being spoken or waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.speaking.is_empty()
    }

    /// Adds a piece of text; complete sentences are queued.
    pub fn push(&mut self, piece: &str) -> Result<(), ApiError> {
        if self.is_ended {
            return Err(ApiError::field(
                "text",
                "text_after_end",
                "text arrived after the end of the session",
            ));
        }
        let waiting: usize = self.waiting.iter().map(|text| text.chars().count()).sum();
        if waiting > MAX_WAITING {
            let message = format!("{waiting} characters are waiting to be spoken: send text more slowly");
            return Err(ApiError::field("text", "text_too_fast", message));
        }
        self.text.push_str(piece);
        let complete = complete_sentences(&self.text);
        let rest = self.text.split_off(complete);
        let sentences = std::mem::replace(&mut self.text, rest);
        let too_long = |text: &str| text.chars().count() > TEXT_CHARACTERS;
        if too_long(&self.text) || too_long(&sentences) {
            let message = format!(
                "more than {TEXT_CHARACTERS} characters arrived at once or without the end of a sentence"
            );
            return Err(ApiError::field("text", "string_above_max_length", message));
        }
        self.add(sentences);
        Ok(())
    }

    /// Queues the text so far, even if its sentence is incomplete.
    pub fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.add(text);
    }

    fn add(&mut self, text: String) {
        if text.chars().any(char::is_alphanumeric) {
            self.waiting.push_back(text);
        }
    }

    /// Marks the end of the text.
    pub fn end(&mut self) {
        self.flush();
        self.is_ended = true;
    }

    /// Discards waiting text and stops what is being spoken.
    pub fn cancel(&mut self) {
        self.text.clear();
        self.waiting.clear();
        self.speaking.clear();
    }

    /// Moves sentences to the queue of the model. Returns `true` if the session can only wait for space in it.
    fn submit(&mut self) -> Result<bool, ApiError> {
        while self.speaking.len() < AHEAD
            && let Some(text) = self.waiting.front()
        {
            let utterance = Utterance { text: text.clone(), ..self.options.clone() };
            match self.app.models.speak(&self.model, self.client, utterance) {
                Ok(receiver) => {
                    self.waiting.pop_front();
                    self.speaking.push_back(receiver);
                }
                Err(EnqueueError::Queue(QueueError::Full)) => return Ok(self.speaking.is_empty()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// The next event; pending while there is no audio and more text may come. Cancel-safe.
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
                Ok(true) => return SessionEvent::Failed(QueueError::Full.into()),
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
                Some(AudioEvent::Samples(samples)) => {
                    self.has_spoken = true;
                    return SessionEvent::Samples(samples);
                }
                Some(AudioEvent::End(Ok(usage))) => {
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
                Some(AudioEvent::End(Err(error))) => {
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
