//! Many requests spoken together: one thread owns the model, and all texts advance in the same steps.
//!
//! A round: requests are taken from the queue, slots are given to those whose clients run out of sound first, codes are queued for
//! all slots, the decoder makes sound of the codes of the round before, again in that order, and the new codes are taken. While
//! somebody waits for the first sound, those who have enough to play are left for later. A request keeps a slot for one piece of
//! its text (a few sentences); then it stands in line with the others, so that nobody waits for the end of a long text.

use crate::metrics::{Metrics, Work};
use crate::model::ModelSpeaker;
use crate::queue::{HearJob, Job, Jobs, SpeakJob};
use crate::request::Request;
use myxtts_speak::{SpeakError, SpeakOptions, Synthesizer, Voice};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Codes of a round while somebody waits for the first sound, which comes with the fifth code; and while nobody does.
const FIRST_STEPS: usize = 5;
const STEPS: usize = 8;

/// While somebody waits for the first sound, those whose clients have this much left to play wait with theirs.
const AHEAD: Duration = Duration::from_millis(400);

/// Requests that are spoken in turns, for each slot: more wait in the queue.
const REQUESTS_PER_SLOT: usize = 2;

/// How often it is looked whether slow clients have taken something, where there is nothing else to do.
const LOOK: Duration = Duration::from_millis(5);

/// Speaks the requests of a queue.
pub(crate) struct Scheduler<'m> {
    speaker: &'m mut ModelSpeaker,
    active: Vec<Request>,
    most: usize,
    metrics: &'m Metrics,
    /// When the last work ended.
    ended: Instant,
}

impl<'m> Scheduler<'m> {
    pub fn new(speaker: &'m mut ModelSpeaker, metrics: &'m Metrics) -> Scheduler<'m> {
        let most = REQUESTS_PER_SLOT * speaker.synthesizer.at_once();
        Scheduler { speaker, active: Vec::new(), most, metrics, ended: Instant::now() }
    }

    /// Counts the time since the last work.
    fn worked(&mut self, work: Work) {
        let now = Instant::now();
        self.metrics.worked(work, now - std::mem::replace(&mut self.ended, now));
    }

    /// Until the queue is closed and all that was begun is finished; or the device fails, which all clients are told.
    pub fn run(mut self, jobs: &Jobs) -> Result<(), SpeakError> {
        while self.admit(jobs) {
            if let Err(error) = self.round() {
                for request in std::mem::take(&mut self.active) {
                    // It has failed already.
                    let _ = request.finish(&mut self.speaker.synthesizer, Some(&error));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes what waits; waits itself where there is nothing to do. Whether there is something to do.
    fn admit(&mut self, jobs: &Jobs) -> bool {
        while self.active.len() < self.most {
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
                Some(Job::Hear(HearJob { name, recording, reply, in_use: _in_use })) => {
                    let heard = self.speaker.hear(&name, &recording);
                    // Nobody there: the voice is kept all the same.
                    let _ = reply.send(heard);
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
            let is_awaited = self.active.iter().any(Request::is_awaited);
            self.speaker.synthesizer.advance(if is_awaited { FIRST_STEPS } else { STEPS })?;
            self.worked(Work::Advance);
            let mut failed = Vec::new();
            let due = Instant::now() + AHEAD;
            let synthesizer = &mut self.speaker.synthesizer;
            for (place, request) in self.active.iter_mut().enumerate() {
                if is_awaited && request.deadline() > due {
                    break;
                }
                if let Err(error) = request.sound(synthesizer) {
                    failed.push((place, error));
                }
            }
            self.worked(Work::Sound);
            let synthesizer = &mut self.speaker.synthesizer;
            for (place, request) in self.active.iter_mut().enumerate() {
                if let Err(error) = request.collect(synthesizer) {
                    failed.push((place, error));
                }
            }
            self.fail(failed)?;
            self.worked(Work::Collect);
            self.metrics.round();
        } else if self.active.iter().all(|request| !request.is_finished()) {
            std::thread::sleep(LOOK);
            self.ended = Instant::now();
        }
        self.release(Request::is_finished)
    }

    /// Gives free slots to those who are due, the most urgent first.
    fn fill_slots(&mut self) -> Result<(), SpeakError> {
        let synthesizer = &mut self.speaker.synthesizer;
        let (mut failed, mut free) = (Vec::new(), synthesizer.free_slots());
        for (place, request) in self.active.iter_mut().enumerate() {
            if free == 0 {
                break;
            }
            if !request.is_due() {
                continue;
            }
            if let Err(error) = request.begin_piece(synthesizer) {
                failed.push((place, error));
            }
            free = synthesizer.free_slots();
        }
        self.fail(failed)
    }

    /// Ends requests that cannot be said.
    fn fail(&mut self, mut failed: Vec<(usize, SpeakError)>) -> Result<(), SpeakError> {
        failed.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        failed.dedup_by_key(|(place, _)| *place);
        for (place, error) in failed {
            self.active.remove(place).finish(&mut self.speaker.synthesizer, Some(&error))?;
        }
        Ok(())
    }

    /// Ends requests that are done, or not wanted.
    fn release(&mut self, is_over: impl Fn(&Request) -> bool) -> Result<(), SpeakError> {
        let mut place = 0;
        while let Some(request) = self.active.get(place) {
            match is_over(request) {
                true => self.active.remove(place).finish(&mut self.speaker.synthesizer, None)?,
                false => place += 1,
            }
        }
        Ok(())
    }
}

/// Says a text in one slot, in two, in four, up to all of them: what is made on first use, such as recorded steps of so many
/// texts, is there before the first client.
pub(crate) fn warm_up(
    synthesizer: &mut Synthesizer,
    text: &str,
    language: &str,
    voice: &Arc<Voice>,
    options: &SpeakOptions,
) -> Result<(), SpeakError> {
    let (mut speeches, most) = (Vec::new(), synthesizer.free_slots());
    let mut count = 1;
    while count <= most {
        while speeches.len() < count {
            speeches.push(synthesizer.join(text, language, voice, options)?);
        }
        // The first of a size goes kernel by kernel, the second is recorded.
        for steps in [FIRST_STEPS, STEPS, FIRST_STEPS, STEPS] {
            synthesizer.advance(steps)?;
        }
        count *= 2;
    }
    for mut speech in speeches {
        synthesizer.collect(&mut speech)?;
        synthesizer.sound(&mut speech)?;
        synthesizer.leave(speech)?;
    }
    Ok(())
}
