//! The devices of a run: those it trains on, and the GPU that prepares its batches.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::ranks::RankError;
use crate::ranks::discovery::Identity;
use crate::run_error::RunError;
use crate::strategy::{self, AvailableGpus, Decision, Feed, Strategy, StrategyRequest};
use crate::training_data::DataGpu;
use myxtts_run::plan::Plan;
use myxtts_tensor::Device;
use serde_json::json;
use std::time::Duration;

/// Device options of the command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceRequest<'a> {
    /// `--device`; `None` for `auto`.
    pub device: Option<Device>,
    /// `--simulate-gpus`: number of GPUs that the CPU simulates, or with `training.multi_gpu` the GPU of `device`.
    pub simulate_gpus: Option<u32>,
    /// `--strict-devices`: a GPU of the settings that is missing is an error.
    pub strict: bool,
    /// The rank of this process; `None` in a run of one process.
    pub rank: Option<&'a Identity>,
}

impl DeviceRequest<'_> {
    /// Chooses the devices of a run, or of one rank of it.
    pub fn choose(&self, plan: &Plan) -> Result<RunDevices, RunError> {
        match self.rank {
            None => Ok(RunDevices::choose(plan, self.device, self.simulate_gpus, self.strict)?),
            Some(identity) => {
                check_rank_settings(plan, self.simulate_gpus)?;
                Ok(RunDevices::for_rank(plan, self.device, identity)?)
            }
        }
    }
}

/// The devices of a run, with the reason for each choice.
pub struct RunDevices {
    /// One for each replica.
    pub machines: Vec<ComputeDevice>,
    strategy: Decision<Strategy>,
    feed: Decision<Feed>,
    /// The device that simulates GPUs; `None` if they are real.
    simulated: Option<Device>,
    /// Whether gradients are rounded to bf16 before they are summed.
    rounded: bool,
}

impl RunDevices {
    /// Chooses the devices of a run of one process, on this machine or on a simulated one with `simulate_gpus` GPUs. With
    /// `training.multi_gpu`, a GPU named by `device` simulates them: replicas that share it learn what as many processes learn, and
    /// so are a reference for them.
    ///
    /// If `data.data_gpu` or `data.model_gpu` name GPUs that do not exist, the run falls back to those that do, unless
    /// `strict` makes that an error.
    pub fn choose(
        plan: &Plan,
        device: Option<Device>,
        simulate_gpus: Option<u32>,
        strict: bool,
    ) -> Result<RunDevices, TrainError> {
        let real = || AvailableGpus::of(&myxtts_tensor::device::devices());
        let (found, device) = match (simulate_gpus, device) {
            (None, _) => (real(), device),
            (Some(count), Some(shared @ Device::Cuda(_))) if plan.training.multi_gpu => {
                // It must exist, as without simulation.
                strategy::strategy(&real(), &StrategyRequest { device, ..StrategyRequest::default() })?;
                (AvailableGpus::simulated_on(shared, count), None)
            }
            (Some(count), _) => (AvailableGpus::simulated(count), device),
        };
        let request = StrategyRequest::of(plan, device);
        let fallback = if strict { None } else { strategy::fall_back(&found, &request) };
        let request = fallback.as_ref().map_or(&request, |(instead, _)| instead);
        let strategy = strategy::strategy(&found, request)?;
        let mut feed = strategy::feed(&found, request)?;
        if let Some((_, sentence)) = fallback {
            if feed.choice == Feed::Buffered {
                feed.reason = "a GPU named for them does not exist here".to_owned();
            }
            feed.warnings.push(sentence);
        }
        let machines = ComputeDevice::all(&strategy.choice.devices(&found))?;
        let rounded = plan.training.reduce_bf16 && machines.len() > 1;
        Ok(RunDevices { machines, strategy, feed, simulated: found.simulated, rounded })
    }

    /// Chooses the device of one process of several: the named one, the GPU with its local rank, the only visible one, or
    /// the CPU. `machines` has one entry per rank, all like that of this rank.
    pub(crate) fn for_rank(
        plan: &Plan,
        device: Option<Device>,
        identity: &Identity,
    ) -> Result<RunDevices, TrainError> {
        let found = AvailableGpus::of(&myxtts_tensor::device::devices());
        let request = StrategyRequest::of(plan, device);
        let visible: Vec<u32> = match &request.visible {
            Some(visible) => visible.clone(),
            None => found.gpus.iter().map(|(number, _)| *number).collect(),
        };
        let mut strategy = match (device, &visible[..], identity.local_rank) {
            (None, gpus @ [_, _, ..], Some(local_rank)) => {
                let gpu = gpus.get(local_rank).ok_or(RankError::NoGpu { local_rank, gpus: gpus.len() })?;
                // Checked as if the user had named it.
                let request = StrategyRequest { visible: Some(vec![*gpu]), ..request };
                strategy::strategy(&found, &request)?
            }
            _ => strategy::strategy(&found, &request)?,
        };
        let Identity { rank, world, .. } = identity;
        strategy.reason = format!("rank {rank} of {world}; {}", strategy.reason);
        let machines = ComputeDevice::all(&strategy.choice.devices(&found))?;
        let machines = vec![machines[0]; *world];
        let reason = "every rank makes its own slice of every batch".to_owned();
        let feed = Decision { choice: Feed::Buffered, reason, warnings: Vec::new() };
        Ok(RunDevices { machines, strategy, feed, simulated: None, rounded: plan.training.reduce_bf16 })
    }

    /// The device of the first replica.
    pub fn first(&self) -> ComputeDevice {
        self.machines.first().copied().unwrap_or(ComputeDevice::CPU)
    }

    /// The devices in one sentence: `mirrored on GPUs 0 and 1: ...`
    pub fn summary(&self) -> String {
        let simulated = match self.simulated {
            None => String::new(),
            Some(Device::Cpu) => " (simulated)".to_owned(),
            Some(device) => format!(" (all simulated by {device})"),
        };
        format!("{}{simulated}: {}", self.strategy.choice, self.strategy.reason)
    }

    /// Lines that are reported when a run begins.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("trains on {}", self.summary())];
        if self.rounded {
            lines.push("gradients are summed in bf16: half the bytes, and each sum is rounded".to_owned());
        }
        match &self.feed.choice {
            Feed::Buffered => {
                lines.push(format!("batches are made on the CPU and buffered: {}", self.feed.reason))
            }
            Feed::MultiGpu { .. } => {
                lines.push(format!("batches are prepared on a separate GPU: {}", self.feed.reason));
                lines.push(
                    "it computes the mels of the dvae stage's batches, the audio codes once, the conditioning of the gpt \
                     stage's batches, and the GPT's latents once; the decoder's batches are made on the CPU and buffered"
                        .to_owned(),
                );
            }
        }
        lines.extend(
            self.strategy.warnings.iter().chain(&self.feed.warnings).map(|line| format!("note: {line}")),
        );
        lines
    }

    /// The GPU that prepares batches; `None` if the loader threads do.
    pub fn data_gpu(&self) -> Option<DataGpu> {
        match self.feed.choice {
            Feed::Buffered => None,
            Feed::MultiGpu { data, buffer_size, model_start_delay, .. } => Some(DataGpu {
                device: self.simulated.unwrap_or(Device::Cuda(data as usize)),
                buffer_size,
                model_start_delay: Duration::from_secs_f64(model_start_delay.max(0.0)),
            }),
        }
    }

    /// The devices, for the event log.
    pub fn event(&self) -> serde_json::Value {
        let devices: Vec<String> = self.machines.iter().map(|machine| machine.device.to_string()).collect();
        json!({
            "strategy": self.strategy,
            "feed": self.feed,
            "devices": devices,
            "simulated": self.simulated.is_some(),
        })
    }
}

/// Refuses settings that a run of several processes does not support.
fn check_rank_settings(plan: &Plan, simulate_gpus: Option<u32>) -> Result<(), RunError> {
    let refused = if plan.training.multi_gpu {
        Some(
            "training.multi_gpu (--multi-gpu) cannot be combined with several ranks on a machine, which have one GPU each: add \
             --multi-gpu=false",
        )
    } else if plan.data.data_gpu.is_some() || plan.data.model_gpu.is_some() {
        Some(
            "data.data_gpu and data.model_gpu cannot be combined with several ranks: every rank prepares its own batches",
        )
    } else if simulate_gpus.is_some() {
        Some(
            "--simulate-gpus cannot be combined with several ranks: `myxtts launch --ranks` starts ranks on the CPU",
        )
    } else {
        None
    };
    refused.map_or(Ok(()), |message| Err(RunError::UnsupportedWithRanks(message)))
}
