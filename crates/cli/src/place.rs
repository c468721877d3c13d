//! Where `train` trains: what there is, what was asked, and what comes of both, in words.

use myxtts_run::plan::Plan;
use myxtts_tensor::Device;
use myxtts_train::ranks::RankError;
use myxtts_train::ranks::discovery::Identity;
use myxtts_train::strategy::{self, Asked, Chosen, Feed, Found, Strategy};
use myxtts_train::{Machine, TrainError};
use serde_json::json;
use std::time::Duration;

/// The devices of a run, and why it is these.
pub struct Place {
    /// One for each replica.
    pub machines: Vec<Machine>,
    strategy: Chosen<Strategy>,
    feed: Chosen<Feed>,
    simulated: bool,
    /// Gradients are rounded to bf16 where they meet.
    rounded: bool,
}

impl Place {
    /// What a plan and the command line mean on this machine, or on one of so many GPUs as are simulated. A GPU for batches
    /// and one for the model that are not both here become one, unless `strict` makes that an error.
    pub fn choose(
        plan: &Plan,
        device: Option<Device>,
        simulate: Option<u32>,
        strict: bool,
    ) -> Result<Place, TrainError> {
        let found = match simulate {
            Some(count) => Found::simulated(count),
            None => Found::of(&myxtts_tensor::device::devices()),
        };
        let asked = Asked::of(plan, device);
        let fallen_back = if strict { None } else { strategy::fall_back(&found, &asked) };
        let asked = fallen_back.as_ref().map_or(&asked, |(instead, _)| instead);
        let strategy = strategy::strategy(&found, asked)?;
        let mut feed = strategy::feed(&found, asked)?;
        if let Some((_, sentence)) = fallen_back {
            if feed.choice == Feed::Buffered {
                feed.reason = "a GPU that was named for it is not here".to_owned();
            }
            feed.warnings.push(sentence);
        }
        let machines = Machine::all(&strategy.choice.devices(&found))?;
        let rounded = plan.training.reduce_bf16 && machines.len() > 1;
        Ok(Place { machines, strategy, feed, simulated: found.simulated, rounded })
    }

    /// Where one of several processes trains: on the device that is named, on the GPU of its number among those of its
    /// machine, on the only one it sees, or on the processor. `machines` has one entry for each rank, all like this one's.
    pub fn of_rank(plan: &Plan, device: Option<Device>, identity: &Identity) -> Result<Place, TrainError> {
        let found = Found::of(&myxtts_tensor::device::devices());
        let asked = Asked::of(plan, device);
        let visible: Vec<u32> = match &asked.visible {
            Some(visible) => visible.clone(),
            None => found.gpus.iter().map(|(number, _)| *number).collect(),
        };
        let mut strategy = match (device, &visible[..], identity.local_rank) {
            (None, gpus @ [_, _, ..], Some(local_rank)) => {
                let gpu = gpus.get(local_rank).ok_or(RankError::NoGpu { local_rank, gpus: gpus.len() })?;
                // Checked as if it were named.
                let asked = Asked { visible: Some(vec![*gpu]), ..asked };
                strategy::strategy(&found, &asked)?
            }
            _ => strategy::strategy(&found, &asked)?,
        };
        let Identity { rank, world, .. } = identity;
        strategy.reason = format!("rank {rank} of {world}; {}", strategy.reason);
        let machines = Machine::all(&strategy.choice.devices(&found))?;
        let machines = vec![machines[0]; *world];
        let reason = "every rank makes its own slice of every batch".to_owned();
        let feed = Chosen { choice: Feed::Buffered, reason, warnings: Vec::new() };
        Ok(Place { machines, strategy, feed, simulated: false, rounded: plan.training.reduce_bf16 })
    }

    /// `mirrored on GPUs 0 and 1: ...`
    pub fn sentence(&self) -> String {
        let simulated = if self.simulated { " (simulated)" } else { "" };
        format!("{}{simulated}: {}", self.strategy.choice, self.strategy.reason)
    }

    /// What is said when a run begins.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("trains on {}", self.sentence())];
        if self.rounded {
            lines.push("gradients are summed in bf16: half the bytes, and each sum is rounded".to_owned());
        }
        match &self.feed.choice {
            Feed::Buffered => lines.push(format!("batches come buffered: {}", self.feed.reason)),
            Feed::MultiGpu { .. } => {
                lines.push(format!("batches come from a GPU of their own: {}", self.feed.reason));
                lines.push(
                    "it makes the mels of the dvae stage's batches, audio codes once, the conditioning of the gpt stage's \
                     batches, and the gpt's states once; the decoder's batches of states and sound come buffered"
                        .to_owned(),
                );
            }
        }
        lines.extend(
            self.strategy.warnings.iter().chain(&self.feed.warnings).map(|line| format!("note: {line}")),
        );
        lines
    }

    /// The GPU that prepares batches, if there is one of its own.
    pub fn data_gpu(&self) -> Option<DataGpu> {
        match self.feed.choice {
            Feed::Buffered => None,
            Feed::MultiGpu { data, buffer_size, model_start_delay, .. } => Some(DataGpu {
                device: if self.simulated { Device::Cpu } else { Device::Cuda(data as usize) },
                buffer_size,
                model_start_delay: Duration::from_secs_f64(model_start_delay.max(0.0)),
            }),
        }
    }

    /// The same for the log of events.
    pub fn event(&self) -> serde_json::Value {
        let devices: Vec<String> = self.machines.iter().map(|machine| machine.device.to_string()).collect();
        json!({
            "strategy": self.strategy,
            "feed": self.feed,
            "devices": devices,
            "simulated": self.simulated,
        })
    }
}

/// A GPU that prepares batches.
#[derive(Clone, Copy, Debug)]
pub struct DataGpu {
    /// Which.
    pub device: Device,
    /// Batches that wait for the model.
    pub buffer_size: usize,
    /// How long the model waits at least.
    pub model_start_delay: Duration,
}
