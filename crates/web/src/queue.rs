//! What waits for the speaker: a bounded queue in which clients take turns, so that one with many requests does not keep the
//! others waiting.

use crate::sound::SoundSink;
use crate::speaker::{HeardVoice, SpeakerError, Utterance};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tempfile::TempPath;
use tokio::sync::oneshot;

/// Something for the worker thread to do.
pub enum Job {
    /// Say a text.
    Speak(SpeakJob),
    /// Hear a voice and keep it.
    Hear(HearJob),
}

/// A text to be said.
pub struct SpeakJob {
    /// What and how.
    pub utterance: Utterance,
    /// Where its sound goes.
    pub sink: SoundSink,
}

/// A voice to be heard and kept.
pub struct HearJob {
    /// Its name, which was checked.
    pub name: String,
    /// The recording; it is removed with this.
    pub recording: TempPath,
    /// The answer.
    pub reply: oneshot::Sender<Result<HeardVoice, SpeakerError>>,
    /// Kept as long as the model is needed for it.
    pub in_use: Arc<()>,
}

impl Job {
    /// Whether somebody still waits for it.
    fn is_wanted(&self) -> bool {
        match self {
            Job::Speak(job) => job.sink.is_wanted(),
            Job::Hear(job) => !job.reply.is_closed(),
        }
    }

    fn refuse(self, error: SpeakerError) {
        match self {
            Job::Speak(job) => job.sink.finish(Err(error)),
            // Nobody there: nothing to tell.
            Job::Hear(job) => drop(job.reply.send(Err(error))),
        }
    }
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many wait as may.
    Full,
    /// The server is stopping.
    Closed,
}

/// Jobs that wait.
pub struct Jobs {
    state: Mutex<State>,
    added: Condvar,
    capacity: usize,
}

#[derive(Default)]
struct State {
    /// A line for each client that has jobs; the first line is next.
    lines: VecDeque<(IpAddr, VecDeque<Job>)>,
    length: usize,
    is_closed: bool,
}

impl State {
    fn take(&mut self) -> Option<Job> {
        let (client, mut line) = self.lines.pop_front()?;
        let job = line.pop_front();
        self.length -= usize::from(job.is_some());
        if !line.is_empty() {
            self.lines.push_back((client, line));
        }
        job
    }

    /// The first that somebody still waits for.
    fn take_wanted(&mut self) -> Option<Job> {
        while let Some(job) = self.take() {
            if job.is_wanted() {
                return Some(job);
            }
            job.refuse(SpeakerError::TimedOut);
        }
        None
    }

    fn forget_unwanted(&mut self) {
        for (_, line) in &mut self.lines {
            line.retain(Job::is_wanted);
        }
        self.lines.retain(|(_, line)| !line.is_empty());
        self.length = self.lines.iter().map(|(_, line)| line.len()).sum();
    }
}

impl Jobs {
    /// At most so many wait; at least one.
    pub fn new(capacity: usize) -> Jobs {
        Jobs { state: Mutex::default(), added: Condvar::new(), capacity: capacity.max(1) }
    }

    /// Puts a job at the end of its client's line. Jobs of clients that left make room.
    pub fn add(&self, client: IpAddr, job: Job) -> Result<(), Refused> {
        let mut state = self.state();
        if state.is_closed {
            return Err(Refused::Closed);
        }
        if state.length >= self.capacity {
            state.forget_unwanted();
        }
        if state.length >= self.capacity {
            return Err(Refused::Full);
        }
        match state.lines.iter_mut().find(|(one, _)| *one == client) {
            Some((_, line)) => line.push_back(job),
            None => state.lines.push_back((client, VecDeque::from([job]))),
        }
        state.length += 1;
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// Waits for the next job; none where the queue was closed.
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

    /// The next job, if one waits.
    pub fn try_next(&self) -> Option<Job> {
        let mut state = self.state();
        if state.is_closed { None } else { state.take_wanted() }
    }

    /// Whether no job will come any more.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Takes no more jobs, and tells those that wait.
    pub fn close(&self) {
        self.fail(&SpeakerError::Stopping);
    }

    /// The same, with the reason.
    pub fn fail(&self, reason: &SpeakerError) {
        let mut state = self.state();
        state.is_closed = true;
        while let Some(job) = state.take() {
            job.refuse(reason.clone());
        }
        drop(state);
        self.added.notify_all();
    }

    /// Jobs that wait.
    pub fn len(&self) -> usize {
        self.state().length
    }

    /// Whether none waits.
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
    use crate::sound;

    fn job(text: &str) -> (Job, sound::SoundReceiver) {
        let (sink, receiver) = sound::channel(Default::default(), Default::default(), Default::default());
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
    fn clients_take_turns_and_who_leaves_makes_room() {
        let jobs = Jobs::new(4);
        let (greedy, modest) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut receivers = Vec::new();
        for (client, name) in [(greedy, "a1"), (greedy, "a2"), (greedy, "a3"), (modest, "b1")] {
            let (job, receiver) = job(name);
            jobs.add(client, job).unwrap();
            receivers.push(receiver);
        }
        let (more, _kept) = job("b2");
        assert_eq!(jobs.add(modest, more).unwrap_err(), Refused::Full);
        assert_eq!(text(jobs.next()), "a1");
        assert_eq!(text(jobs.next()), "b1", "the second client does not wait for all of the first");
        drop(receivers.remove(1));
        assert_eq!(text(jobs.next()), "a3", "a2's client left");
        assert!(jobs.try_next().is_none() && jobs.is_empty());
        // A queue full of clients that left is not full.
        for number in 0..8 {
            let (job, receiver) = job(&number.to_string());
            jobs.add(greedy, job).unwrap();
            drop(receiver);
        }
        jobs.close();
        assert!(jobs.next().is_none());
        let (late, _kept) = job("late");
        assert_eq!(jobs.add(greedy, late).unwrap_err(), Refused::Closed);
    }
}
