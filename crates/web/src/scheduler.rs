//! Continuous batching: one thread owns the model, and all texts advance in the same steps.
//!
//! In each round, requests are taken from the queue, slots are assigned to those whose clients run out of audio first, codes are
//! queued for all slots, the decoder converts the codes of the previous round to audio in the same order, and the new codes are
//! collected. While a client waits for its first audio, clients with enough to play are deferred. A request keeps a slot for one
//! piece of its text (a few sentences) and then waits its turn, so that no client waits for the end of a long text.

use crate::metrics::{Metrics, Work};
use crate::model::ModelSpeaker;
use crate::queue::{EncodeVoiceJob, Job, Jobs, SpeakJob};
use crate::request::Request;
use myxtts_speak::{SpeakError, SpeakOptions, Synthesizer, Voice};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Codes per round while a client waits for its first audio, which comes with the fifth code, and otherwise.
const FIRST_STEPS: usize = 5;
const STEPS: usize = 8;

/// While a client waits for its first audio, clients with at least this much left to play are deferred.
const AHEAD: Duration = Duration::from_millis(400);

/// Active requests per slot, which take turns; further ones wait in the queue.
const REQUESTS_PER_SLOT: usize = 2;

/// Polling interval for slow clients when there is nothing else to do.
const POLL: Duration = Duration::from_millis(5);

/// Speaks the requests of a queue.
pub(crate) struct Scheduler<'m> {
    speaker: &'m mut ModelSpeaker,
    active: Vec<Request>,
    capacity: usize,
    metrics: &'m Metrics,
    /// When the last measured phase ended.
    ended: Instant,
}

impl<'m> Scheduler<'m> {
    pub fn new(speaker: &'m mut ModelSpeaker, metrics: &'m Metrics) -> Scheduler<'m> {
        let capacity = REQUESTS_PER_SLOT * speaker.synthesizer.slots();
        Scheduler { speaker, active: Vec::new(), capacity, metrics, ended: Instant::now() }
    }

    /// Adds the time since the last phase to the metrics.
    fn worked(&mut self, work: Work) {
        let now = Instant::now();
        self.metrics.worked(work, now - std::mem::replace(&mut self.ended, now));
    }

    /// Runs until the queue is closed and all active requests are finished, or until the device fails, which is reported to
    /// all clients.
    pub fn run(mut self, jobs: &Jobs) -> Result<(), SpeakError> {
        while self.admit(jobs) {
            if let Err(error) = self.round() {
                for request in std::mem::take(&mut self.active) {
                    // Already failing; a second error is ignored.
                    let _ = request.finish(&mut self.speaker.synthesizer, Some(&error));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes waiting jobs, blocking if there is nothing to do. Returns whether there are active requests.
    fn admit(&mut self, jobs: &Jobs) -> bool {
        while self.active.len() < self.capacity {
            let job = match self.active.is_empty() {
                true => {
                    let job = jobs.next();
                    self.ended = Instant::now();
                    job
                }
                false => jobs.try_next(),
            };
            match job {
                None => break,
                Some(Job::Speak(SpeakJob { utterance, sink })) => {
                    self.active.extend(Request::begin(self.speaker, &utterance, sink));
                }
                Some(Job::EncodeVoice(EncodeVoiceJob { name, recording, reply, in_use: _in_use })) => {
                    let encoded = self.speaker.encode_voice(&name, &recording);
                    // The voice is stored even if the client has disconnected.
                    let _ = reply.send(encoded);
                }
            }
        }
        !self.active.is_empty()
    }

    fn round(&mut self) -> Result<(), SpeakError> {
        self.release(|request| !request.is_wanted())?;
        self.active.sort_by_key(Request::deadline);
        self.fill_slots()?;
        self.worked(Work::Begin);
        if self.active.iter().any(Request::is_speaking) {
            let awaits_first_audio = self.active.iter().any(Request::awaits_first_audio);
            self.speaker.synthesizer.advance(if awaits_first_audio { FIRST_STEPS } else { STEPS })?;
            self.worked(Work::Advance);
            let mut failed = Vec::new();
            let due = Instant::now() + AHEAD;
            let synthesizer = &mut self.speaker.synthesizer;
            for (index, request) in self.active.iter_mut().enumerate() {
                if awaits_first_audio && request.deadline() > due {
                    break;
                }
                if let Err(error) = request.send_audio(synthesizer) {
                    failed.push((index, error));
                }
            }
            self.worked(Work::Sound);
            let synthesizer = &mut self.speaker.synthesizer;
            for (index, request) in self.active.iter_mut().enumerate() {
                if let Err(error) = request.collect(synthesizer) {
                    failed.push((index, error));
                }
            }
            self.fail(failed)?;
            self.worked(Work::Collect);
            self.metrics.round();
        } else if self.active.iter().all(|request| !request.is_finished()) {
            std::thread::sleep(POLL);
            self.ended = Instant::now();
        }
        self.release(Request::is_finished)
    }

    /// Assigns free slots to requests that are due, the most urgent first.
    fn fill_slots(&mut self) -> Result<(), SpeakError> {
        let synthesizer = &mut self.speaker.synthesizer;
        let (mut failed, mut free) = (Vec::new(), synthesizer.free_slots());
        for (index, request) in self.active.iter_mut().enumerate() {
            if free == 0 {
                break;
            }
            if !request.is_due() {
                continue;
            }
            if let Err(error) = request.begin_piece(synthesizer) {
                failed.push((index, error));
            }
            free = synthesizer.free_slots();
        }
        self.fail(failed)
    }

    /// Ends requests that failed.
    fn fail(&mut self, mut failed: Vec<(usize, SpeakError)>) -> Result<(), SpeakError> {
        failed.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
        failed.dedup_by_key(|(index, _)| *index);
        for (index, error) in failed {
            self.active.remove(index).finish(&mut self.speaker.synthesizer, Some(&error))?;
        }
        Ok(())
    }

    /// Ends requests that are finished or no longer wanted.
    fn release(&mut self, is_over: impl Fn(&Request) -> bool) -> Result<(), SpeakError> {
        let mut index = 0;
        while let Some(request) = self.active.get(index) {
            match is_over(request) {
                true => self.active.remove(index).finish(&mut self.speaker.synthesizer, None)?,
                false => index += 1,
            }
        }
        Ok(())
    }
}

/// Speaks a text in one slot, in two, in four, up to all of them, so that everything built on first use, such as the captured
/// steps for each batch size, exists before the first client.
pub(crate) fn warm_up(
    synthesizer: &mut Synthesizer,
    text: &str,
    language: &str,
    voice: &Arc<Voice>,
    options: &SpeakOptions,
) -> Result<(), SpeakError> {
    let (mut speeches, slots) = (Vec::new(), synthesizer.free_slots());
    let mut count = 1;
    while count <= slots {
        while speeches.len() < count {
            speeches.push(synthesizer.join(text, language, voice, options)?);
        }
        // The first step of a size runs kernel by kernel, the second is captured.
        for steps in [FIRST_STEPS, STEPS, FIRST_STEPS, STEPS] {
            synthesizer.advance(steps)?;
        }
        count *= 2;
    }
    for mut speech in speeches {
        synthesizer.collect(&mut speech)?;
        synthesizer.take_audio(&mut speech)?;
        synthesizer.leave(speech)?;
    }
    Ok(())
}
