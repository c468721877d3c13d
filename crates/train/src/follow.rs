//! A rank other than 0: builds its part of every stage and executes the orders of rank 0 until the run ends.

use crate::error::TrainError;
use crate::mirrored::copy_arenas;
use crate::model::Model;
use crate::rank_activity::STEP_TIMEOUT;
use crate::rank_error::RankError;
use crate::ranks::Ranks;
use crate::ranks::join::{self, JoinedEngine};
use crate::ranks::link::{Answer, Order, control_of, unexpected};
use crate::stage_context::StageContext;
use crate::stages::{self, Stage};
use myxtts_run::exit::Exit;
use myxtts_tensor::engine::Ticket;
use std::collections::VecDeque;
use std::sync::Arc;

/// Follows rank 0 to the end of the run with the settings and data of `context`; returns the exit code that rank 0 ends
/// with.
pub fn follow(ranks: &Arc<Ranks>, context: &StageContext<'_>) -> Result<Exit, TrainError> {
    match follow_orders(ranks, context) {
        Err(TrainError::Ranks(RankError::Finished(exit))) => Ok(exit),
        ended => ended,
    }
}

fn follow_orders(ranks: &Arc<Ranks>, context: &StageContext<'_>) -> Result<Exit, TrainError> {
    loop {
        match ranks.next_order()? {
            Order::Finish { exit } => return Ok(Exit::from_code(exit).unwrap_or(Exit::Internal)),
            Order::Stage { kind, fine_tune } => {
                let bytes = ranks.broadcast_bytes(None)?.unwrap_or_default();
                let mut model = Model::from_bytes(&bytes)?;
                drop(bytes);
                let recipe = context.plan.recipe(kind, fine_tune);
                ranks.health().tracker().rest("building the stage", None);
                let stage = context.stage(kind, &recipe, &mut model)?;
                drop(model);
                context.progress.say(&format!(
                    "rank {} of {}: `{}` on {}",
                    ranks.rank(),
                    ranks.world(),
                    stages::name(kind),
                    context.machine.device
                ));
                ranks.answer(&Answer::Built { device: join::kind_of(context.machine) })?;
                if let Some(exit) = serve(ranks, stage, context)? {
                    return Ok(exit);
                }
            }
            // Rank 0 could not begin the stage.
            Order::EndStage => {}
            order => return Err(unexpected(&order).into()),
        }
    }
}

/// Serves one stage to its end.
fn serve(
    ranks: &Arc<Ranks>,
    mut stage: Box<dyn Stage>,
    context: &StageContext<'_>,
) -> Result<Option<Exit>, TrainError> {
    let joined = match ranks.next_order()? {
        Order::Join { nccl } => JoinedEngine::join(ranks, stage.engine_mut(), nccl.as_deref())?,
        Order::EndStage => return Ok(None),
        order => return Err(unexpected(&order).into()),
    };
    let mut queued: VecDeque<(u64, Ticket)> = VecDeque::new();
    let tracker = ranks.health().tracker();
    tracker.new_stage();
    let ended = loop {
        // Rank 0 waits for the answer to every order; what is not a step may copy or hash all weights.
        tracker.rest("an order of rank 0", Some(STEP_TIMEOUT));
        let answer = match ranks.next_order()? {
            Order::Submit { step, control, seed } => {
                let entered = tracker.step(step);
                crate::fault::hang_if_requested(ranks.rank(), step);
                let done = stage.submit(step, &control_of(control, seed))?;
                drop(entered);
                queued.push_back((step, done.ticket));
                let stages::Submitted { rows, records, notes, waited, .. } = done;
                Answer::Submitted { rows, records, notes, waited }
            }
            Order::Wait { step } => {
                let ticket = loop {
                    match queued.pop_front() {
                        Some((known, ticket)) if known == step => break ticket,
                        Some(_) => {}
                        None => return Err(unexpected(&Order::Wait { step }).into()),
                    }
                };
                Answer::of(&ranks.health().while_waiting(|| stage.wait(ticket))?)
            }
            Order::Between { step } => {
                stage.between(step)?;
                Answer::Done
            }
            Order::Restore { steps } => {
                copy_arenas(stage.engine_mut())?;
                stage.engine_mut().set_state(myxtts_tensor::engine::EngineState { steps })?;
                stage.restored()?;
                Answer::Done
            }
            Order::Hash => {
                let hash = join::hash(stage.engine())?;
                let (rank, world, name) = (ranks.rank(), ranks.world(), stages::name(stage.kind()));
                context
                    .progress
                    .say(&format!("rank {rank} of {world}: `{name}` ends with weights {hash:.16}"));
                Answer::Hash(hash)
            }
            Order::EndStage => break None,
            Order::Finish { exit } => break Some(Exit::from_code(exit).unwrap_or(Exit::Internal)),
            order => return Err(unexpected(&order).into()),
        };
        ranks.answer(&answer)?;
    };
    tracker.rest("the end of the stage", None);
    // Captured steps must be dropped before the group they wait in.
    drop(stage);
    drop(joined);
    Ok(ended)
}
