//! A bounded queue of jobs in which clients take turns, so that a client with many requests does not delay the others.

use crate::audio_stream::AudioSink;
use crate::speaker::{EncodedVoice, SpeakerError, Utterance};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tempfile::TempPath;
use tokio::sync::oneshot;

/// A job for the worker thread.
pub enum Job {
    /// Speak a text.
    Speak(SpeakJob),
    /// Encode a voice and store it.
    EncodeVoice(EncodeVoiceJob),
}

/// A text to speak.
pub struct SpeakJob {
    /// The text and its options.
    pub utterance: Utterance,
    /// Receives the audio.
    pub sink: AudioSink,
}

/// A voice to encode and store.
pub struct EncodeVoiceJob {
    /// Its name, already validated.
    pub name: String,
    /// The recording; deleted when this is dropped.
    pub recording: TempPath,
    /// Receives the result.
    pub reply: oneshot::Sender<Result<EncodedVoice, SpeakerError>>,
    /// Keeps the model open while the job needs it.
    pub in_use: Arc<()>,
}

impl Job {
    /// Whether the client still waits for it.
    fn is_wanted(&self) -> bool {
        match self {
            Job::Speak(job) => job.sink.is_wanted(),
            Job::EncodeVoice(job) => !job.reply.is_closed(),
        }
    }

    fn refuse(self, error: SpeakerError) {
        match self {
            Job::Speak(job) => job.sink.finish(Err(error)),
            // The client has disconnected.
            Job::EncodeVoice(job) => drop(job.reply.send(Err(error))),
        }
    }
}

/// Why a job was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// The queue is full.
    Full,
    /// The server is stopping.
    Closed,
}

/// The queue of one model.
pub struct Jobs {
    state: Mutex<State>,
    added: Condvar,
    capacity: usize,
}

#[derive(Default)]
struct State {
    /// One queue per client with jobs; the first one is next.
    clients: VecDeque<(IpAddr, VecDeque<Job>)>,
    length: usize,
    is_closed: bool,
}

impl State {
    fn take(&mut self) -> Option<Job> {
        let (client, mut jobs) = self.clients.pop_front()?;
        let job = jobs.pop_front();
        self.length -= usize::from(job.is_some());
        if !jobs.is_empty() {
            self.clients.push_back((client, jobs));
        }
        job
    }

    /// Takes the first job whose client still waits.
    fn take_wanted(&mut self) -> Option<Job> {
        while let Some(job) = self.take() {
            if job.is_wanted() {
                return Some(job);
            }
            job.refuse(SpeakerError::TimedOut);
        }
        None
    }

    fn remove_unwanted(&mut self) {
        for (_, jobs) in &mut self.clients {
            jobs.retain(Job::is_wanted);
        }
        self.clients.retain(|(_, jobs)| !jobs.is_empty());
        self.length = self.clients.iter().map(|(_, jobs)| jobs.len()).sum();
    }
}

impl Jobs {
    /// Creates a queue for at most `capacity` jobs, at least one.
    pub fn new(capacity: usize) -> Jobs {
        Jobs { state: Mutex::default(), added: Condvar::new(), capacity: capacity.max(1) }
    }

    /// Adds a job to the queue of its client. In a full queue, jobs of disconnected clients are removed first.
    pub fn add(&self, client: IpAddr, job: Job) -> Result<(), QueueError> {
        let mut state = self.state();
        if state.is_closed {
            return Err(QueueError::Closed);
        }
        if state.length >= self.capacity {
            state.remove_unwanted();
        }
        if state.length >= self.capacity {
            return Err(QueueError::Full);
        }
        match state.clients.iter_mut().find(|(one, _)| *one == client) {
            Some((_, jobs)) => jobs.push_back(job),
            None => state.clients.push_back((client, VecDeque::from([job]))),
        }
        state.length += 1;
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// Waits for the next job; `None` once the queue is closed.
    pub fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(job) = state.take_wanted() {
                return Some(job);
            }
            state = self.added.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the next job without waiting.
    pub fn try_next(&self) -> Option<Job> {
        let mut state = self.state();
        if state.is_closed { None } else { state.take_wanted() }
    }

    /// Whether the queue is closed.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Closes the queue and rejects all waiting jobs.
    pub fn close(&self) {
        self.fail(&SpeakerError::Stopping);
    }

    /// [`Self::close`] with a given reason.
    pub fn fail(&self, reason: &SpeakerError) {
        let mut state = self.state();
        state.is_closed = true;
        while let Some(job) = state.take() {
            job.refuse(reason.clone());
        }
        drop(state);
        self.added.notify_all();
    }

    /// Number of waiting jobs.
    pub fn len(&self) -> usize {
        self.state().length
    }

    /// Whether no job waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio_stream;

    fn job(text: &str) -> (Job, audio_stream::AudioReceiver) {
        let (sink, receiver) =
            audio_stream::channel(Default::default(), Default::default(), Default::default());
        let utterance = Utterance {
            text: text.to_owned(),
            voice: "default".to_owned(),
            language: None,
            speed: 1.0,
            seed: 0,
            sampling: Default::default(),
        };
        (Job::Speak(SpeakJob { utterance, sink }), receiver)
    }

    fn text(job: Option<Job>) -> String {
        match job {
            Some(Job::Speak(job)) => job.utterance.text,
            _ => String::new(),
        }
    }

    #[test]
    fn clients_take_turns_and_jobs_of_disconnected_clients_are_removed() {
        let jobs = Jobs::new(4);
        let (greedy, modest) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut receivers = Vec::new();
        for (client, name) in [(greedy, "a1"), (greedy, "a2"), (greedy, "a3"), (modest, "b1")] {
            let (job, receiver) = job(name);
            jobs.add(client, job).unwrap();
            receivers.push(receiver);
        }
        let (more, _kept) = job("b2");
        assert_eq!(jobs.add(modest, more).unwrap_err(), QueueError::Full);
        assert_eq!(text(jobs.next()), "a1");
        assert_eq!(text(jobs.next()), "b1", "the second client does not wait for all jobs of the first");
        drop(receivers.remove(1));
        assert_eq!(text(jobs.next()), "a3", "the client of a2 disconnected");
        assert!(jobs.try_next().is_none() && jobs.is_empty());
        // Jobs of disconnected clients do not fill the queue.
        for number in 0..8 {
            let (job, receiver) = job(&number.to_string());
            jobs.add(greedy, job).unwrap();
            drop(receiver);
        }
        jobs.close();
        assert!(jobs.next().is_none());
        let (late, _kept) = job("late");
        assert_eq!(jobs.add(greedy, late).unwrap_err(), QueueError::Closed);
    }
}
