//! A stage over several ranks, as rank 0 runs it: it sends the same orders to all ranks, and the training loop sees one
//! stage. Every rank runs the same steps on its slice of every batch; only the state of rank 0 is saved.

pub(crate) use super::join::slice;
use super::join::{self, JoinedEngine};
use super::link::{Answer, Order, Ranks, bits};
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::mirrored::{copy_arenas, merge_reports};
use crate::model::Model;
use crate::rank_activity::STEP_TIMEOUT;
use crate::rank_error::RankError;
use crate::replica_slice::ReplicaSlice;
use crate::stages::{Stage, StageCore, StageKind, Submitted, Validation};
use myxtts_tensor::engine::Ticket;
use myxtts_tensor::{Control, Report};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A stage with one process per rank.
pub struct Distributed {
    // Declared first: captured steps must be dropped before the group they wait in.
    stage: Box<dyn Stage>,
    joined: JoinedEngine,
    ranks: Arc<Ranks>,
    /// Queued steps, by the ticket of rank 0.
    queued: VecDeque<(Ticket, u64)>,
    /// Time that steps waited for sums, from their reports.
    summed: Duration,
}

impl Distributed {
    /// Builds the part of rank 0 while the other ranks build theirs, and joins them.
    pub fn new(
        ranks: &Arc<Ranks>,
        machine: ComputeDevice,
        build: impl FnOnce(ReplicaSlice) -> Result<Box<dyn Stage>, TrainError>,
    ) -> Result<Distributed, TrainError> {
        ranks.health().tracker().rest("building the stage", None);
        let mut stage = build(join::slice(ranks))?;
        ranks.health().tracker().new_stage();
        for (i, answer) in ranks.answers(true)?.into_iter().enumerate() {
            let (rank, expected) = (i + 1, join::kind_of(machine));
            match answer {
                Answer::Built { device } if device == expected => {}
                Answer::Built { device: found } => {
                    return Err(RankError::Devices { rank, found, expected }.into());
                }
                other => return Err(unexpected(&other)),
            }
        }
        let nccl = join::new_id(machine.device)?;
        ranks.order(&Order::Join { nccl: nccl.clone() })?;
        let joined = JoinedEngine::join(ranks, stage.engine_mut(), nccl.as_deref())?;
        let (ranks, queued) = (ranks.clone(), VecDeque::new());
        let summed = Duration::ZERO;
        let mut all = Distributed { stage, joined, ranks, queued, summed };
        // Initialised or loaded, the weights are the same already; machines that round differently get those of rank 0.
        all.restored()?;
        Ok(all)
    }

    /// Sets a time limit for the work of rank 0 between its steps, from now on.
    fn between_steps(&self) {
        self.ranks.health().tracker().rest("the work between two steps", Some(STEP_TIMEOUT));
    }

    fn done(&self, patient: bool) -> Result<(), TrainError> {
        for answer in self.ranks.answers(patient)? {
            match answer {
                Answer::Done => {}
                other => return Err(unexpected(&other)),
            }
        }
        Ok(())
    }
}

fn unexpected(answer: &Answer) -> TrainError {
    let words = format!("unexpected answer {answer:?}: a bug in this program");
    RankError::Socket(std::io::Error::new(std::io::ErrorKind::InvalidData, words)).into()
}

impl Drop for Distributed {
    fn drop(&mut self) {
        self.announce("the end of the stage", None);
        // After a loss, no rank receives messages any more.
        if self.ranks.health().cause().is_none() {
            let _ = self.ranks.order(&Order::EndStage);
        }
    }
}

impl Stage for Distributed {
    fn core(&self) -> &dyn StageCore {
        self.stage.core()
    }

    fn core_mut(&mut self) -> &mut dyn StageCore {
        self.stage.core_mut()
    }

    fn description(&self) -> Vec<String> {
        let mut lines = self.stage.description();
        lines.push(format!(
            "{} ranks, each with an equal slice of every batch; {}",
            self.ranks.world(),
            self.joined.description()
        ));
        lines
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        self.ranks.order(&Order::Submit { step, control: bits(control), seed: control.seed })?;
        let mut all = {
            let _step = self.ranks.health().tracker().step(step);
            crate::fault::hang_if_requested(self.ranks.rank(), step);
            self.stage.submit(step, control)?
        };
        self.between_steps();
        self.queued.push_back((all.ticket, step));
        all.shape[0] *= self.ranks.world();
        for answer in self.ranks.answers(false)? {
            match answer {
                Answer::Submitted { rows, records, notes, waited } => {
                    all.rows += rows;
                    all.records.extend(records);
                    all.notes.extend(notes);
                    // The step waits for the slowest rank.
                    all.waited = all.waited.max(waited);
                }
                other => return Err(unexpected(&other)),
            }
        }
        Ok(all)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Report, TrainError> {
        let Some(at) = self.queued.iter().position(|(known, _)| *known == ticket) else {
            return self.stage.wait(ticket);
        };
        // Reports of earlier steps that were not requested are dropped.
        let Some((_, step)) = self.queued.drain(..=at).next_back() else { return self.stage.wait(ticket) };
        self.ranks.order(&Order::Wait { step })?;
        let health = self.ranks.health().clone();
        let mut reports = vec![health.while_waiting(|| self.stage.wait(ticket))?];
        self.between_steps();
        for answer in self.ranks.answers(false)? {
            match answer {
                Answer::Report { loss, norm, good, steps, notes } => {
                    let mut report = Report {
                        loss: f32::from_bits(loss),
                        norm: f32::from_bits(norm),
                        good,
                        steps,
                        ..reports[0]
                    };
                    report.notes.iter_mut().zip(notes).for_each(|(note, bits)| *note = f32::from_bits(bits));
                    reports.push(report);
                }
                other => return Err(unexpected(&other)),
            }
        }
        self.summed += Duration::from_secs_f64(f64::from(reports[0].reduce_wait_ms.max(0.0)) / 1e3);
        merge_reports(&reports)
    }

    /// When one rank gets no batch, others may be in the middle of the step or past it.
    fn survives_missing_batch(&self) -> bool {
        false
    }

    fn announce(&mut self, what: &'static str, limit: Option<Duration>) {
        self.ranks.health().tracker().rest(what, limit);
    }

    fn restored(&mut self) -> Result<(), TrainError> {
        self.announce("restoring weights", None);
        self.stage.restored()?;
        let steps = self.stage.engine().state()?.steps;
        self.ranks.order(&Order::Restore { steps })?;
        copy_arenas(self.stage.engine_mut())?;
        self.done(true)
    }

    fn communication(&self) -> Option<Duration> {
        Some(self.joined.spent().unwrap_or(self.summed))
    }

    fn verify(&mut self) -> Result<Option<String>, TrainError> {
        self.announce("the end of the stage", None);
        self.ranks.order(&Order::Hash)?;
        let own = join::hash(self.stage.engine())?;
        for (i, answer) in self.ranks.answers(true)?.into_iter().enumerate() {
            match answer {
                Answer::Hash(theirs) if theirs == own => {}
                Answer::Hash(_) => return Err(RankError::Apart { rank: i + 1 }.into()),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(Some(format!(
            "the weights of all {} ranks are the same bits ({})",
            self.ranks.world(),
            &own[..16]
        )))
    }

    fn between(&mut self, step: u64) -> Result<(), TrainError> {
        self.ranks.order(&Order::Between { step })?;
        let between =
            self.ranks.health().tracker().announce("the work between two steps", Some(STEP_TIMEOUT));
        self.stage.between(step)?;
        drop(between);
        self.done(true)
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        self.announce("a validation", None);
        self.stage.validate()
    }
}

/// Rank 0: announces a stage to the others, and sends them the model that it builds on.
pub(crate) fn begin_stage(
    ranks: &Ranks,
    kind: StageKind,
    fine_tune: bool,
    model: &Model,
) -> Result<(), TrainError> {
    ranks.order(&Order::Stage { kind, fine_tune })?;
    ranks.broadcast_bytes(Some(&model.to_bytes()?))?;
    Ok(())
}
