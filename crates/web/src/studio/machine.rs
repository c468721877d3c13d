//! GPU, CPU and memory use of the last hour.

use super::{answered, internal};
use crate::routes::App;
use axum::extract::State;
use axum::response::Response;
use myxtts_monitor::{LocalMachine, Monitor, Sampler};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_secs(3600);

/// Samples since the first request; the first response therefore has few.
pub async fn show(State(app): State<Arc<App>>) -> Response {
    answered(&app, |studio| {
        let sampler = studio.machine.get_or_init(|| {
            let mut monitor = Monitor::new(LocalMachine::new(), None);
            Sampler::with_window(WINDOW, EVERY, move || monitor.sample()).ok()
        });
        let sampler = sampler.as_ref().ok_or_else(|| internal("the machine cannot be monitored"))?;
        let now = Instant::now();
        let samples = sampler.between(now.checked_sub(WINDOW).unwrap_or(now), now);
        let names: Vec<_> = samples.last().map_or(Vec::new(), |(_, last)| {
            last.gpus
                .iter()
                .map(|gpu| json!({ "name": gpu.name, "memory_total": gpu.memory_total }))
                .collect()
        });
        let points: Vec<_> = samples
            .iter()
            .map(|(_, sample)| {
                let gpus: Vec<_> = sample
                    .gpus
                    .iter()
                    .map(|gpu| {
                        json!({ "busy": gpu.utilisation, "memory": gpu.memory_used, "clock": gpu.sm_clock,
                                "power": gpu.power, "temperature": gpu.temperature })
                    })
                    .collect();
                let host = &sample.host;
                json!({ "time": sample.time, "cpu": host.cpu, "memory": host.memory_used,
                        "memory_total": host.memory_total, "gpus": gpus })
            })
            .collect();
        Ok(json!({ "gpus": names, "samples": points }))
    })
    .await
}
