//! Transfers samples from the worker thread to a client.
//!
//! The speaker does not block on a slow client: it checks [`AudioSink::is_full`] before it speaks more, and serves other
//! requests meanwhile.

use crate::limits::{AHEAD_BYTES, PENDING_AUDIO_BYTES, REQUEST_TIME};
use crate::metrics::Metrics;
use crate::speaker::{RATE, SpeakerError, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Bytes of samples that wait for clients, over all requests.
pub type PendingBytes = Arc<AtomicUsize>;

/// An event of the stream.
pub(crate) enum AudioEvent {
    /// 16-bit samples at [`RATE`].
    Samples(Vec<i16>),
    /// The last event.
    End(Result<Usage, SpeakerError>),
}

/// Converts 16-bit samples to floats in [-1, 1).
pub(crate) fn to_f32(samples: &[i16]) -> Vec<f32> {
    samples.iter().map(|sample| f32::from(*sample) / 32768.0).collect()
}

/// Sending side: the audio of one request.
pub struct AudioSink {
    sender: UnboundedSender<AudioEvent>,
    pending: Pending,
    metrics: Arc<Metrics>,
    arrived: Instant,
    /// When the first samples were sent.
    started: Option<Instant>,
    /// Number of samples sent.
    sent: u64,
    /// Keeps the model open while the request needs it.
    _in_use: Arc<()>,
}

/// Bytes of samples that wait for one client, also counted in the total.
#[derive(Clone)]
struct Pending {
    all: PendingBytes,
    own: PendingBytes,
}

impl Pending {
    fn add(&self, bytes: usize) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.own.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        self.own.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Receiving side; dropped when the client disconnects.
pub struct AudioReceiver {
    receiver: UnboundedReceiver<AudioEvent>,
    pending: Pending,
}

/// Creates a sink and its receiver. The sink holds `in_use` as long as it exists.
pub fn channel(waiting: PendingBytes, metrics: Arc<Metrics>, in_use: Arc<()>) -> (AudioSink, AudioReceiver) {
    let (sender, receiver) = unbounded_channel();
    metrics.request_started();
    let pending = Pending { all: waiting, own: PendingBytes::default() };
    let sink = AudioSink {
        sender,
        pending: pending.clone(),
        metrics,
        arrived: Instant::now(),
        started: None,
        sent: 0,
        _in_use: in_use,
    };
    (sink, AudioReceiver { receiver, pending })
}

impl AudioSink {
    /// Sends samples in [-1, 1] at [`RATE`]. Returns whether more are wanted.
    pub fn push(&mut self, samples: &[f32]) -> bool {
        if samples.is_empty() {
            return self.is_wanted();
        }
        if !self.is_wanted() {
            return false;
        }
        if self.started.is_none() {
            self.started = Some(Instant::now());
            self.metrics.first_audio(self.arrived.elapsed());
        }
        self.metrics.add_audio(samples.len() as f64 / f64::from(RATE));
        let samples: Vec<i16> =
            samples.iter().map(|sample| (sample * 32768.0).round_ties_even() as i16).collect();
        let bytes = 2 * samples.len();
        self.sent += samples.len() as u64;
        self.pending.add(bytes);
        match self.sender.send(AudioEvent::Samples(samples)) {
            Ok(()) => true,
            Err(_) => {
                self.pending.remove(bytes);
                false
            }
        }
    }

    /// Whether so much audio waits for this client, or for all clients, that no more should be spoken for now.
    pub fn is_full(&self) -> bool {
        let own = self.pending.own.load(Ordering::Relaxed);
        own > AHEAD_BYTES || (own > 0 && self.pending.all.load(Ordering::Relaxed) > PENDING_AUDIO_BYTES)
    }

    /// When a client that plays the audio as it arrives will run out of it; the arrival time before the first audio.
    pub fn playback_end(&self) -> Instant {
        let played = Duration::from_secs_f64(self.sent as f64 / f64::from(RATE));
        self.started.map_or(self.arrived, |started| started + played)
    }

    /// Whether the client is still connected and the time limit is not reached.
    pub fn is_wanted(&self) -> bool {
        !self.sender.is_closed() && self.arrived.elapsed() < REQUEST_TIME
    }

    /// Ends the stream. If the time limit was reached, that is reported instead of `result`.
    pub fn finish(self, result: Result<Usage, SpeakerError>) {
        let is_cancelled = self.sender.is_closed();
        self.metrics.ended(is_cancelled);
        let result = match self.arrived.elapsed() < REQUEST_TIME || is_cancelled {
            true => result,
            false => Err(SpeakerError::TimedOut),
        };
        // A client that has disconnected receives nothing.
        let _ = self.sender.send(AudioEvent::End(result));
    }
}

impl Drop for AudioSink {
    fn drop(&mut self) {
        self.metrics.request_ended();
    }
}

impl AudioReceiver {
    pub(crate) async fn next(&mut self) -> Option<AudioEvent> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<AudioEvent>> {
        let event = std::task::ready!(self.receiver.poll_recv(context));
        if let Some(AudioEvent::Samples(samples)) = &event {
            self.pending.remove(2 * samples.len());
        }
        Poll::Ready(event)
    }
}

impl Drop for AudioReceiver {
    fn drop(&mut self) {
        self.receiver.close();
        while let Ok(event) = self.receiver.try_recv() {
            if let AudioEvent::Samples(samples) = event {
                self.pending.remove(2 * samples.len());
            }
        }
    }
}
