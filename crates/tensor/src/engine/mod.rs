//! The engine: a model's memory on one device, and the programs that run on it.

mod arena;
mod buffer;
mod checked;
mod cpu;
mod cuda;
mod fill;
mod forecast;
mod input_layout;
mod program;
mod ring;
mod staging;
mod upload;

pub use arena::{Arena, EngineState};
pub use checked::{Magnitude, NonFinite};
pub use forecast::Forecast;
pub use input_layout::InputLayout;
pub use program::{OpTime, Program};
pub use ring::Ticket;
pub use upload::{Slot, Upload, Uploader};

use crate::collective::Collective;
use crate::cuda::Cuda;
use crate::cuda::context::CudaOptions;
use crate::cuda::nccl::Communicator;
use crate::device::Device;
use crate::error::Error;
use crate::memory::MemoryNeed;
use crate::parameters::Layout;
use crate::step::{Control, Report};
use crate::tape::{EngineBuffer, Precision};
use arena::Arenas;
use buffer::Buffer;
use ring::Rings;
use staging::Staging;
use std::sync::Arc;
use std::time::Duration;

/// How programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// The first run of a program queues its kernels one by one, the second captures them in a CUDA graph, later
    /// ones replay it.
    #[default]
    Captured,
    /// Every run queues kernel by kernel, for debugging.
    Eager,
    /// Runs one operation at a time and checks every output, also on the CPU: see [`Engine::take_first_nonfinite`].
    Checked,
}

/// Number of streams a program uses on CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Streams {
    /// One operation after another.
    #[default]
    One,
    /// Weight gradients run concurrently with the rest. This pays where kernels are small or leave much of the
    /// device idle (convolutions, narrow networks), and costs a little where every product fills the device.
    Two,
}

/// Optimiser state an engine holds in addition to the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Training {
    /// Inference only: no gradients and no moments.
    #[default]
    None,
    /// Gradients and Adam's two moments.
    Adam,
    /// Gradients, Adam's two moments and a moving average of the weights.
    AdamWithAverage,
}

/// Weights of a new engine before any are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialWeights {
    /// Sampled as each parameter's `Init` specifies.
    #[default]
    Sampled,
    /// Zeros, for callers that load all weights anyway: sampling a billion numbers takes longer than reading them.
    Zeros,
}

/// Options for creating an engine.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// Optimiser state to hold.
    pub training: Training,
    /// How programs run.
    pub mode: Mode,
    /// Number of CUDA streams.
    pub streams: Streams,
    /// Seed of the initial weights.
    pub seed: u64,
    /// Weights before any are loaded.
    pub initial: InitialWeights,
    /// Options for CUDA devices.
    pub cuda: CudaOptions,
}

/// The device an engine runs on.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Cpu,
    Cuda(Arc<Cuda>),
}

/// A model's memory on one device, and the programs that run there.
pub struct Engine {
    backend: Backend,
    layout: Arc<Layout>,
    precision: Precision,
    mode: Mode,
    streams: Streams,
    arenas: Arenas,
    scratch: Buffer,
    /// Incremented whenever the scratch buffer is reallocated: programs of an older generation look up their
    /// addresses again.
    generation: u64,
    inputs: usize,
    rings: Rings,
    staging: Staging,
    collective: Option<Arc<dyn Collective>>,
    nccl: Option<Arc<Communicator>>,
    /// The first NaN or Inf since it was last taken; set in [`Mode::Checked`] only.
    first_nonfinite: Option<NonFinite>,
    /// Magnitudes of the last run's outputs; set in [`Mode::Checked`] only.
    magnitudes: Vec<Magnitude>,
}

impl Engine {
    /// Opens a device and allocates the parameters of `layout` with their initial values.
    pub fn new(
        device: Device,
        layout: Arc<Layout>,
        precision: Precision,
        options: EngineOptions,
    ) -> Result<Engine, Error> {
        let backend = match device {
            Device::Cpu => Backend::Cpu,
            Device::Cuda(ordinal) => Backend::Cuda(Arc::new(Cuda::open(ordinal, &options.cuda)?)),
        };
        Engine::on(backend, layout, precision, options)
    }

    /// As `new`, on a device that is already open.
    pub fn on_cuda(
        cuda: Arc<Cuda>,
        layout: Arc<Layout>,
        precision: Precision,
        options: EngineOptions,
    ) -> Result<Engine, Error> {
        cuda.bind()?;
        Engine::on(Backend::Cuda(cuda), layout, precision, options)
    }

    fn on(
        backend: Backend,
        layout: Arc<Layout>,
        precision: Precision,
        options: EngineOptions,
    ) -> Result<Engine, Error> {
        if precision == Precision::Bf16 {
            match &backend {
                Backend::Cpu => {
                    return Err(Error::Unsupported("the CPU computes in f32 only: use f32".into()));
                }
                Backend::Cuda(cuda) if cuda.capability().0 < 8 => {
                    return Err(Error::Unsupported(format!(
                        "{} (compute capability {}.{}) does not support bf16: use f32",
                        cuda.name(),
                        cuda.capability().0,
                        cuda.capability().1
                    )));
                }
                Backend::Cuda(_) => {}
            }
        }
        let need = MemoryNeed {
            libraries: match &backend {
                Backend::Cpu => 0,
                Backend::Cuda(cuda) => cuda.library_bytes(),
            },
            ..arena::need(&layout, precision, options.training)
        };
        fits(&backend, &need, need.total() - need.libraries)?;
        let arenas = Arenas::new(&backend, &layout, precision, options.training)?;
        let scratch = Buffer::new(&backend, 0)?;
        let (rings, staging) = (Rings::new(&backend)?, Staging::new(&backend)?);
        let mut engine = Engine {
            backend,
            layout,
            precision,
            mode: options.mode,
            streams: options.streams,
            arenas,
            scratch,
            generation: 0,
            inputs: 0,
            rings,
            staging,
            collective: None,
            nccl: None,
            first_nonfinite: None,
            magnitudes: Vec::new(),
        };
        if options.initial == InitialWeights::Sampled {
            engine.initialise(options.seed)?;
        }
        Ok(engine)
    }

    /// The parameter layout.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The open CUDA device; `None` on the CPU.
    pub fn cuda(&self) -> Option<&Arc<Cuda>> {
        match &self.backend {
            Backend::Cpu => None,
            Backend::Cuda(cuda) => Some(cuda),
        }
    }

    /// Element type of activations.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Joins a group that sums on the host, used by programs with `Tape::reduce_gradients`: replicas on CPUs, or replicas
    /// that share one GPU, for comparisons. On a GPU, steps are then not captured.
    pub fn join(&mut self, collective: Arc<dyn Collective>) {
        self.collective = Some(collective);
    }

    /// Joins a group of CUDA replicas. A caller that keeps a clone of the handle can abort it when another replica
    /// has died.
    pub fn join_nccl(&mut self, nccl: Arc<Communicator>) {
        self.nccl = Some(nccl);
    }

    /// Whether replicas on a GPU are summed by the host, which a captured step cannot do.
    pub(crate) fn sums_on_host(&self) -> bool {
        self.nccl.is_none() && self.collective.is_some()
    }

    /// Warnings since the last call, such as a cache folder that cannot be written.
    pub fn take_warnings(&self) -> Vec<String> {
        self.cuda().map_or_else(Vec::new, |cuda| cuda.take_warnings())
    }

    /// The first operation since the last call with a NaN or Inf output. Recorded in [`Mode::Checked`] only.
    pub fn take_first_nonfinite(&mut self) -> Option<NonFinite> {
        self.first_nonfinite.take()
    }

    /// Magnitudes of all outputs of the last run, in order. Recorded in [`Mode::Checked`] only.
    pub fn take_magnitudes(&mut self) -> Vec<Magnitude> {
        std::mem::take(&mut self.magnitudes)
    }

    fn found(&mut self, found: checked::Findings) {
        self.first_nonfinite = self.first_nonfinite.take().or(found.first_nonfinite);
        self.magnitudes = found.magnitudes;
    }

    /// Fills the scratch buffer with NaN. The next run must be unaffected, because it writes everything it reads.
    /// [`Mode::Checked`] does this before every run, which exposes operations that read uninitialised memory.
    pub fn poison_scratch(&self) -> Result<(), Error> {
        // NaN in f32 and in bf16.
        self.scratch.fill(0xff)
    }

    /// The current mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Changes how programs run.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Memory currently held, by purpose.
    pub fn memory(&self) -> MemoryNeed {
        let arenas = self.arenas.need();
        MemoryNeed {
            scratch: self.scratch.bytes(),
            // Besides the inputs of programs, the control and report buffers.
            inputs: self.inputs + arenas.inputs,
            libraries: self.cuda().map_or(0, |c| c.library_bytes()),
            ..arenas
        }
    }

    /// Device memory in use beyond what this engine holds: the driver's context, loaded kernels, other processes.
    pub fn driver_bytes(&self) -> Result<usize, Error> {
        let Some(cuda) = self.cuda() else { return Ok(0) };
        let (free, total) = cuda.memory()?;
        Ok((total - free).saturating_sub(self.memory().total()))
    }

    /// Waits until all queued work is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.backend {
            Backend::Cpu => Ok(()),
            Backend::Cuda(cuda) => {
                cuda.bind()?;
                cuda.synchronize()
            }
        }
    }

    /// Queues one run of a program; its report can be requested later.
    pub fn submit(&mut self, program: &mut Program, control: &Control) -> Result<Ticket, Error> {
        let slots = control.encode();
        self.prepare(program)?;
        match self.backend.clone() {
            Backend::Cpu => {
                self.arenas.buffer(EngineBuffer::Control).write_f32(0, &slots)?;
                let found = cpu::run(self, program)?;
                self.found(found);
                let report = self.arenas.buffer(EngineBuffer::Report).read_f32(0..slots.len())?;
                Ok(self.rings.keep(Report::decode(&report)))
            }
            Backend::Cuda(cuda) => {
                cuda.bind()?;
                let ticket =
                    self.rings.send(&cuda, &slots, self.arenas.buffer(EngineBuffer::Control).address())?;
                let found = cuda::run(self, program, &cuda)?;
                self.found(found);
                self.rings.receive(&cuda, ticket, self.arenas.buffer(EngineBuffer::Report).address())?;
                Ok(ticket)
            }
        }
    }

    /// Runs a program and waits for its report.
    pub fn run(&mut self, program: &mut Program, control: &Control) -> Result<Report, Error> {
        let ticket = self.submit(program, control)?;
        self.wait(ticket)
    }

    /// Device time of all runs reported so far, each from its start to its end; `None` on the CPU. Includes gaps
    /// between kernels, excludes copies of inputs before a run. CUPTI reports the time of each kernel.
    pub fn busy(&self) -> Option<Duration> {
        self.rings.busy()
    }

    /// The report of a run, or `None` if it is not finished.
    pub fn report(&mut self, ticket: Ticket) -> Result<Option<Report>, Error> {
        self.rings.poll(ticket)
    }

    /// Waits for the report of a run.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Report, Error> {
        self.rings.wait(ticket)
    }
}

/// Checks that `bytes` more fit on the device.
pub(crate) fn fits(backend: &Backend, need: &MemoryNeed, bytes: usize) -> Result<(), Error> {
    if let Backend::Cuda(cuda) = backend {
        let (free, _) = cuda.memory()?;
        if bytes > free {
            let device = format!("cuda:{} ({})", cuda.ordinal(), cuda.name());
            return Err(Error::OutOfMemory { device, need: Box::new(need.clone()), free });
        }
    }
    Ok(())
}
