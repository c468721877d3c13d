//! Ways of loading data, measured one after the other on the same stage: from loading everything on demand to the pipeline
//! that training uses.

use super::{BenchSettings, Figures, measure};
use crate::compute_device::ComputeDevice;
use crate::corpus::{Assembled, Assembly, RecordMode};
use crate::feed::{Depth, FeedSettings};
use crate::model::Model;
use crate::run_error::RunError;
use crate::session::AHEAD;
use crate::stage_context::StageContext;
use crate::stages::gpt::Conditioning;
use crate::training_data::DataGpu;
use myxtts_run::durable;
use myxtts_run::durable::fault::disk_from_env;
use myxtts_run::plan::{Plan, StageKind};
use myxtts_run::progress::Progress;
use myxtts_tensor::engine::{OpTime, Upload};
use myxtts_tensor::{Control, Device, Mode};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Codes of records that are computed on demand, next to those of the cache.
const ON_DEMAND_CODES: &str = "codes-computed.bin";

/// One way of loading data.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Name in the table and in JSON.
    pub name: String,
    /// What it does, in one line.
    pub description: &'static str,
    /// Where its records come from.
    pub records: RecordMode,
    /// How its batches get to the device.
    pub feeding: FeedSettings,
    /// Where conditioning or mels come from.
    pub conditioning: ConditioningSource,
    /// Whether its steps are captured.
    pub mode: Mode,
    /// Number of steps that may be queued before the loop waits for the first.
    pub ahead: usize,
}

/// Where the conditioning of GPT batches, or the mels of DVAE batches, come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditioningSource {
    /// Each batch carries them.
    Batch,
    /// They are resident on the device.
    Device,
    /// A GPU computes them from waveforms: a second one if there is one.
    DataGpu,
}

impl Variant {
    /// Whether a stage can be fed this way.
    pub fn suits(&self, stage: StageKind) -> bool {
        match self.conditioning {
            ConditioningSource::Batch => true,
            ConditioningSource::Device => stage == StageKind::Gpt,
            // Decoder batches contain nothing that a GPU would compute from waveforms.
            ConditioningSource::DataGpu => stage != StageKind::Decoder,
        }
    }

    fn corpus_key(&self) -> CorpusKey {
        CorpusKey { records: self.records, on_data_gpu: self.conditioning == ConditioningSource::DataGpu }
    }
}

/// All variants. `records` is where training reads its records from.
pub fn variants(workers: usize, records: RecordMode) -> Vec<Variant> {
    let feeding = |slots| FeedSettings {
        workers,
        upload: Upload::Ahead,
        depth: Some(Depth::of(slots)),
        under_way: 0,
        ..FeedSettings::default()
    };
    let buffered = |slots| Variant {
        name: format!("buffered {slots}"),
        description: "batches made and copied ahead, steps queued ahead: training when the conditioning does not fit the GPU",
        records,
        feeding: feeding(slots),
        conditioning: ConditioningSource::Batch,
        mode: Mode::Captured,
        ahead: AHEAD,
    };
    let on_demand = RecordMode::OnDemand { memory_bytes: 0 };
    vec![
        Variant {
            name: "per sample".into(),
            description: "every clip decoded and computed when its step is due, on one thread, without overlap",
            records: on_demand,
            feeding: FeedSettings { workers: 1, upload: Upload::WithStep, depth: None, ..feeding(12) },
            ahead: 0,
            ..buffered(12)
        },
        Variant {
            name: "blocking".into(),
            description: "each batch made when its step is due, without overlap",
            feeding: FeedSettings { upload: Upload::WithStep, depth: None, ..feeding(12) },
            ahead: 0,
            ..buffered(12)
        },
        Variant {
            name: "prefetch".into(),
            description: "batches made ahead, copied when their step is due, one step at a time",
            feeding: FeedSettings { upload: Upload::WithStep, ..feeding(12) },
            ahead: 0,
            ..buffered(12)
        },
        Variant {
            name: "kernel by kernel".into(),
            description: "as buffered, with steps that are not captured as CUDA graphs",
            mode: Mode::Eager,
            ..buffered(12)
        },
        Variant {
            name: "no cache".into(),
            description: "as buffered, with every clip decoded and computed for each batch",
            records: on_demand,
            ..buffered(12)
        },
        buffered(12),
        buffered(50),
        buffered(100),
        Variant {
            name: "resident".into(),
            description: "as buffered, conditioning resident on the GPU and batches carry only row indices: training by default",
            conditioning: ConditioningSource::Device,
            ..buffered(12)
        },
        Variant {
            name: "data GPU".into(),
            description: "clips decoded for every batch, conditioning or mels computed from them on a separate GPU, 50 batches buffered",
            conditioning: ConditioningSource::DataGpu,
            feeding: FeedSettings { depth: Some(Depth { min: 50, ..Depth::of(50) }), ..feeding(50) },
            ..buffered(50)
        },
    ]
}

/// What is measured of every variant.
#[derive(Clone, Copy)]
pub struct BenchRequest<'a> {
    /// Settings.
    pub plan: &'a Plan,
    /// The device that is measured.
    pub machine: ComputeDevice,
    /// The stage whose steps are timed.
    pub stage: StageKind,
    /// Number of timed steps.
    pub steps: u64,
    /// Minimum number of warm-up steps.
    pub warm: u64,
    /// Whether the operations of a step are timed too, for the last batch shape.
    pub operations: bool,
    /// Receives the progress of opening the corpora and of building stages.
    pub progress: &'a dyn Progress,
}

/// Variants with their opened corpora.
pub struct VariantBench<'a> {
    request: BenchRequest<'a>,
    corpora: Vec<(CorpusKey, Assembled)>,
    /// Built for the first variant, and used for all.
    model: Option<Model>,
}

/// What a corpus is opened with: variants of the same key share one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CorpusKey {
    records: RecordMode,
    on_data_gpu: bool,
}

/// Measurements of one variant. Its serialised form is a row of `myxtts bench --json`.
#[derive(Serialize)]
pub struct Row {
    /// Name of the variant.
    #[serde(rename = "way")]
    pub variant: String,
    /// Measurements of the variant.
    #[serde(flatten)]
    pub figures: Figures,
    /// The operations of a step, the longest first; empty where they were not requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<Operation>,
    /// Lines about the stage as this variant trains it.
    #[serde(skip)]
    pub stage_description: Vec<String>,
}

/// Time of all operations of one kind, scope and shape in a step.
#[derive(Serialize)]
pub struct Operation {
    /// The kind of operation.
    pub op: &'static str,
    /// The part of the model it belongs to.
    pub scope: String,
    /// Shape of its first output.
    pub shape: String,
    /// How often a step runs it.
    pub count: usize,
    /// Total time, in milliseconds.
    pub ms: f64,
}

impl<'a> BenchRequest<'a> {
    /// Opens every record source of the variants once, before any stage is built.
    pub fn open(self, variants: &[Variant], stop: &Arc<AtomicBool>) -> Result<VariantBench<'a>, RunError> {
        let mut corpora: Vec<(CorpusKey, Assembled)> = Vec::new();
        for key in variants.iter().map(Variant::corpus_key) {
            if corpora.iter().any(|(opened, _)| *opened == key) {
                continue;
            }
            let data_gpu = key.on_data_gpu.then(|| data_gpu(self.machine));
            let assembly = Assembly { records: Some(key.records), data_gpu, ..Assembly::default() };
            let assembled = assembly.assemble(self.plan, stop, self.progress)?;
            // Codes are saved there, also of records that need no cache.
            durable::create_folder(&*disk_from_env(), &assembled.home)?;
            corpora.push((key, assembled));
        }
        Ok(VariantBench { request: self, corpora, model: None })
    }
}

impl VariantBench<'_> {
    /// Number of training clips; 0 without a variant.
    pub fn clips(&self) -> usize {
        self.corpora.first().map_or(0, |(_, assembled)| assembled.corpus.train.len())
    }

    /// Builds the stage of a variant and measures it.
    ///
    /// # Panics
    /// If the variant is not one of those that were opened.
    pub fn measure(&mut self, variant: &Variant) -> Result<Row, RunError> {
        let BenchRequest { plan, machine, stage: kind, steps, warm, operations, progress } = self.request;
        let opened = self.corpora.iter().find(|(key, _)| *key == variant.corpus_key());
        let (_, Assembled { corpus, home, .. }) = opened.expect("a variant that was opened");
        let mut context = StageContext::of(plan, corpus, machine, home, progress);
        (context.feeding, context.mode) = (variant.feeding, variant.mode);
        match variant.conditioning {
            ConditioningSource::Batch => context.conditioning = Conditioning::Batch,
            ConditioningSource::Device => context.conditioning = Conditioning::Resident { at_most: 1.0 },
            ConditioningSource::DataGpu => {}
        }
        if variant.records.is_on_demand() {
            // The codes file names its records: cached and on-demand records would overwrite each other's.
            context.codes = home.join(ON_DEMAND_CODES);
        }
        let model = match &mut self.model {
            Some(model) => model,
            None => self.model.insert(context.untrained(kind)?),
        };
        let recipe = plan.recipe(kind, false);
        let mut stage = context.stage(kind, &recipe, model)?;
        let stage_description = stage.description();
        let profiled = (steps / 3).clamp(10, 40);
        let amount = BenchSettings { steps, warm, ahead: variant.ahead, profiled };
        let figures = measure(&mut *stage, &recipe, plan.training.seed, amount)?;
        let operations = match figures.raw.last() {
            Some(last) if operations => by_operation(&stage.profile(last.shape(), &Control::default())?),
            _ => Vec::new(),
        };
        Ok(Row { variant: variant.name.clone(), figures, operations, stage_description })
    }
}

/// The GPU that prepares batches: the next one after `machine`, or the same one on a separate stream.
fn data_gpu(machine: ComputeDevice) -> DataGpu {
    let device = match machine.device {
        Device::Cuda(own) if ComputeDevice::choose(Some(Device::Cuda(own + 1))).is_ok() => {
            Device::Cuda(own + 1)
        }
        device => device,
    };
    DataGpu { device, buffer_size: 50, model_start_delay: Duration::ZERO }
}

/// Sums the operations of a step by kind, scope and shape, the longest first.
fn by_operation(times: &[OpTime]) -> Vec<Operation> {
    let mut all: BTreeMap<(&'static str, &str, &str), (usize, Duration)> = BTreeMap::new();
    for OpTime { op, scope, shape, time } in times {
        let (count, sum) = all.entry((op, scope, shape)).or_default();
        *count += 1;
        *sum += *time;
    }
    let mut rows: Vec<Operation> = all
        .into_iter()
        .map(|((op, scope, shape), (count, time))| {
            let (scope, shape) = (scope.to_owned(), shape.to_owned());
            Operation { op, scope, shape, count, ms: time.as_secs_f64() * 1e3 }
        })
        .collect();
    rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    rows
}
