//! Samples on their way from the worker thread to a client.
//!
//! The worker does not wait for a slow client, unless so much waits for slow clients together that memory would grow; a client
//! that leaves is noticed with the next samples.

use crate::limits::{REQUEST_TIME, WAITING_SOUND_BYTES};
use crate::metrics::Metrics;
use crate::speaker::{RATE, SpeakerError, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How often the worker looks whether slow clients have read something.
const LOOK: Duration = Duration::from_millis(5);

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
    waiting: WaitingBytes,
    metrics: Arc<Metrics>,
    arrived: Instant,
    has_begun: bool,
}

/// Where it comes out. Dropped when the client leaves.
pub struct SoundReceiver {
    receiver: UnboundedReceiver<SoundEvent>,
    waiting: WaitingBytes,
}

/// A sink and its receiver.
pub fn channel(waiting: WaitingBytes, metrics: Arc<Metrics>) -> (SoundSink, SoundReceiver) {
    let (sender, receiver) = unbounded_channel();
    let sink =
        SoundSink { sender, waiting: waiting.clone(), metrics, arrived: Instant::now(), has_begun: false };
    (sink, SoundReceiver { receiver, waiting })
}

impl SoundSink {
    /// Sends samples in [-1, 1] at [`RATE`]. Whether more is wanted.
    pub fn push(&mut self, samples: &[f32]) -> bool {
        if samples.is_empty() {
            return self.is_wanted();
        }
        while self.waiting.load(Ordering::Relaxed) > WAITING_SOUND_BYTES {
            if !self.is_wanted() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        if !self.is_wanted() {
            return false;
        }
        if !self.has_begun {
            self.has_begun = true;
            self.metrics.first_sound(self.arrived.elapsed());
        }
        self.metrics.add_sound(samples.len() as f64 / f64::from(RATE));
        let samples: Vec<i16> =
            samples.iter().map(|sample| (sample * 32768.0).round_ties_even() as i16).collect();
        let bytes = 2 * samples.len();
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        match self.sender.send(SoundEvent::Samples(samples)) {
            Ok(()) => true,
            Err(_) => {
                self.waiting.fetch_sub(bytes, Ordering::Relaxed);
                false
            }
        }
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

impl SoundReceiver {
    pub(crate) async fn next(&mut self) -> Option<SoundEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<SoundEvent>> {
        let event = std::task::ready!(self.receiver.poll_recv(context));
        if let Some(SoundEvent::Samples(samples)) = &event {
            self.waiting.fetch_sub(2 * samples.len(), Ordering::Relaxed);
        }
        Poll::Ready(event)
    }
}

impl Drop for SoundReceiver {
    fn drop(&mut self) {
        self.receiver.close();
        while let Ok(event) = self.receiver.try_recv() {
            if let SoundEvent::Samples(samples) = event {
                self.waiting.fetch_sub(2 * samples.len(), Ordering::Relaxed);
            }
        }
    }
}
