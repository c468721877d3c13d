//! Samples on their way from the worker thread to a client.
//!
//! Whoever speaks does not wait for a slow client: it asks [`SoundSink::is_full`] before it says more, and says something else
//! meanwhile.

use crate::limits::{AHEAD_BYTES, REQUEST_TIME, WAITING_SOUND_BYTES};
use crate::metrics::Metrics;
use crate::speaker::{RATE, SpeakerError, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Bytes of samples that wait for clients, of all requests together.
pub type WaitingBytes = Arc<AtomicUsize>;

/// What comes out.
pub(crate) enum SoundEvent {
    /// 16 bits each.
    Samples(Vec<i16>),
    /// The last.
    End(Result<Usage, SpeakerError>),
}

/// Where the sound of one request goes.
pub struct SoundSink {
    sender: UnboundedSender<SoundEvent>,
    waiting: Waiting,
    metrics: Arc<Metrics>,
    arrived: Instant,
    /// When the first samples were sent.
    begun: Option<Instant>,
    /// Samples that were sent.
    sent: u64,
    /// Kept as long as a model is needed for it.
    _in_use: Arc<()>,
}

/// Bytes of samples that wait for one client, counted among all.
#[derive(Clone)]
struct Waiting {
    all: WaitingBytes,
    own: WaitingBytes,
}

impl Waiting {
    fn add(&self, bytes: usize) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.own.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        self.own.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Where it comes out. Dropped when the client leaves.
pub struct SoundReceiver {
    receiver: UnboundedReceiver<SoundEvent>,
    waiting: Waiting,
}

/// A sink and its receiver. `in_use` is kept as long as the sink is.
pub fn channel(waiting: WaitingBytes, metrics: Arc<Metrics>, in_use: Arc<()>) -> (SoundSink, SoundReceiver) {
    let (sender, receiver) = unbounded_channel();
    metrics.came();
    let waiting = Waiting { all: waiting, own: WaitingBytes::default() };
    let sink = SoundSink {
        sender,
        waiting: waiting.clone(),
        metrics,
        arrived: Instant::now(),
        begun: None,
        sent: 0,
        _in_use: in_use,
    };
    (sink, SoundReceiver { receiver, waiting })
}

impl SoundSink {
    /// Sends samples in [-1, 1] at [`RATE`]. Whether more is wanted.
    pub fn push(&mut self, samples: &[f32]) -> bool {
        if samples.is_empty() {
            return self.is_wanted();
        }
        if !self.is_wanted() {
            return false;
        }
        if self.begun.is_none() {
            self.begun = Some(Instant::now());
            self.metrics.first_sound(self.arrived.elapsed());
        }
        self.metrics.add_sound(samples.len() as f64 / f64::from(RATE));
        let samples: Vec<i16> =
            samples.iter().map(|sample| (sample * 32768.0).round_ties_even() as i16).collect();
        let bytes = 2 * samples.len();
        self.sent += samples.len() as u64;
        self.waiting.add(bytes);
        match self.sender.send(SoundEvent::Samples(samples)) {
            Ok(()) => true,
            Err(_) => {
                self.waiting.remove(bytes);
                false
            }
        }
    }

    /// Whether so much waits for this client, or for all of them, that no more is to be said for now.
    pub fn is_full(&self) -> bool {
        let own = self.waiting.own.load(Ordering::Relaxed);
        own > AHEAD_BYTES || (own > 0 && self.waiting.all.load(Ordering::Relaxed) > WAITING_SOUND_BYTES)
    }

    /// When a client that plays as it receives has nothing left to play: the arrival before the first sound.
    pub fn runs_out(&self) -> Instant {
        let played = Duration::from_secs_f64(self.sent as f64 / f64::from(RATE));
        self.begun.map_or(self.arrived, |begun| begun + played)
    }

    /// Whether the client is still there and there is time left.
    pub fn is_wanted(&self) -> bool {
        !self.sender.is_closed() && self.arrived.elapsed() < REQUEST_TIME
    }

    /// Ends the sound. Where it was stopped by us, the reason is told instead of `result`.
    pub fn finish(self, result: Result<Usage, SpeakerError>) {
        let was_left = self.sender.is_closed();
        self.metrics.ended(was_left);
        let result = match self.arrived.elapsed() < REQUEST_TIME || was_left {
            true => result,
            false => Err(SpeakerError::TimedOut),
        };
        // A client that left is told nothing.
        let _ = self.sender.send(SoundEvent::End(result));
    }
}

impl Drop for SoundSink {
    fn drop(&mut self) {
        self.metrics.went();
    }
}

impl SoundReceiver {
    pub(crate) async fn next(&mut self) -> Option<SoundEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<SoundEvent>> {
        let event = std::task::ready!(self.receiver.poll_recv(context));
        if let Some(SoundEvent::Samples(samples)) = &event {
            self.waiting.remove(2 * samples.len());
        }
        Poll::Ready(event)
    }
}

impl Drop for SoundReceiver {
    fn drop(&mut self) {
        self.receiver.close();
        while let Ok(event) = self.receiver.try_recv() {
            if let SoundEvent::Samples(samples) = event {
                self.waiting.remove(2 * samples.len());
            }
        }
    }
}
