//! The engine: the memory of a model on one device, and the programs that run on it.

mod arena;
mod buffer;
mod checked;
mod cpu;
mod cuda;
mod fill;
mod forecast;
mod image;
mod program;
mod ring;
mod staging;
mod upload;

pub use arena::{Arena, State};
pub use checked::{Fault, Magnitude};
pub use forecast::Forecast;
pub use image::Image;
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
use crate::tape::{Flat, Precision};
use arena::Arenas;
use buffer::Buffer;
use ring::Rings;
use staging::Staging;
use std::sync::Arc;
use std::time::Duration;

/// How programs are run on CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// The first run of a program queues its kernels one by one, the second records them, later ones replay.
    #[default]
    Captured,
    /// Every run queues kernel by kernel: for debugging.
    Eager,
    /// One operation after another, on the processor too, and every result looked at: see [`Engine::take_fault`].
    Checked,
}

/// How many streams a program uses on CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Streams {
    /// One operation after another.
    #[default]
    One,
    /// Gradients of weights run beside the rest: it pays where kernels are small or leave much of the device idle
    /// (convolutions, narrow networks), and costs a little where every product fills the device.
    Two,
}

/// What an engine keeps beside the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Training {
    /// Weights alone.
    #[default]
    None,
    /// Gradients and Adam's moments.
    Adam,
    /// And a moving average of the weights.
    AdamWithAverage,
}

/// What weights are before anybody writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// Drawn, each parameter as it says.
    #[default]
    Drawn,
    /// Zeros: for whoever writes all of them anyway. Drawing a billion numbers takes longer than reading them.
    Zeros,
}

/// How an engine is made.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// What is kept beside the weights.
    pub training: Training,
    /// How programs run.
    pub mode: Mode,
    /// On how many streams.
    pub streams: Streams,
    /// The seed of the initial weights.
    pub seed: u64,
    /// What the weights are before anybody writes them.
    pub initial: Initial,
    /// For CUDA devices.
    pub cuda: CudaOptions,
}

/// Where an engine runs.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Cpu,
    Cuda(Arc<Cuda>),
}

/// A model's memory on one device, and what runs there.
pub struct Engine {
    backend: Backend,
    layout: Arc<Layout>,
    precision: Precision,
    mode: Mode,
    streams: Streams,
    arenas: Arenas,
    scratch: Buffer,
    /// Grows with every new scratch buffer: programs of an older one look their addresses up again.
    generation: u64,
    inputs: usize,
    rings: Rings,
    staging: Staging,
    collective: Option<Arc<dyn Collective>>,
    nccl: Option<Arc<Communicator>>,
    /// The first result that was not finite since somebody asked, where results are looked at.
    fault: Option<Fault>,
    /// How large the results of the last run were, where they are looked at.
    magnitudes: Vec<Magnitude>,
}

impl Engine {
    /// Opens a device and takes memory for the parameters of `layout`, with their initial values.
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

    /// As `new`, on a device that is open already.
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
                    return Err(Error::Unsupported("the CPU computes in f32: ask for f32".into()));
                }
                Backend::Cuda(cuda) if cuda.capability().0 < 8 => {
                    return Err(Error::Unsupported(format!(
                        "{} (compute capability {}.{}) has no bf16: ask for f32",
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
            fault: None,
            magnitudes: Vec::new(),
        };
        if options.initial == Initial::Drawn {
            engine.initialise(options.seed)?;
        }
        Ok(engine)
    }

    /// The parameters.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The open CUDA device, if it is one.
    pub fn cuda(&self) -> Option<&Arc<Cuda>> {
        match &self.backend {
            Backend::Cpu => None,
            Backend::Cuda(cuda) => Some(cuda),
        }
    }

    /// The type activations have.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Joins replicas on the CPU: programs with `Tape::reduce_gradients` meet there.
    pub fn join(&mut self, collective: Arc<dyn Collective>) {
        self.collective = Some(collective);
    }

    /// Joins replicas on CUDA. Whoever keeps a handle as well can abort it when another replica has died.
    pub fn join_nccl(&mut self, nccl: Arc<Communicator>) {
        self.nccl = Some(nccl);
    }

    /// What went wrong without stopping anything, since it was last asked: a cache that cannot be written.
    pub fn take_warnings(&self) -> Vec<String> {
        self.cuda().map_or_else(Vec::new, |cuda| cuda.take_warnings())
    }

    /// The first operation since this was last asked whose result was not finite. Only [`Mode::Checked`] looks.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// How large the results of every operation of the last run were, in order. Only [`Mode::Checked`] looks.
    pub fn take_magnitudes(&mut self) -> Vec<Magnitude> {
        std::mem::take(&mut self.magnitudes)
    }

    fn found(&mut self, found: checked::Found) {
        self.fault = self.fault.take().or(found.fault);
        self.magnitudes = found.magnitudes;
    }

    /// Makes everything that programs compute in no numbers. The next run must not mind: it writes what it reads. With
    /// [`Mode::Checked`] this is done before every run, so that an operation that reads what nobody wrote is found.
    pub fn forget_scratch(&self) -> Result<(), Error> {
        // NaN in f32 and in bf16.
        self.scratch.fill(0xff)
    }

    /// How programs run.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Changes how programs run.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// The memory that is held now, by purpose.
    pub fn memory(&self) -> MemoryNeed {
        let arenas = self.arenas.need();
        MemoryNeed {
            scratch: self.scratch.bytes(),
            // Beside those of programs, the few numbers every step is told and tells.
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

    /// Waits until everything queued is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.backend {
            Backend::Cpu => Ok(()),
            Backend::Cuda(cuda) => {
                cuda.bind()?;
                cuda.synchronize()
            }
        }
    }

    /// Queues one run of a program; its report can be asked for later.
    pub fn submit(&mut self, program: &mut Program, control: &Control) -> Result<Ticket, Error> {
        let slots = control.encode();
        self.prepare(program)?;
        match self.backend.clone() {
            Backend::Cpu => {
                self.arenas.flat(Flat::Control).write_f32(0, &slots)?;
                let found = cpu::run(self, program)?;
                self.found(found);
                let report = self.arenas.flat(Flat::Report).read_f32(0..slots.len())?;
                Ok(self.rings.keep(Report::decode(&report)))
            }
            Backend::Cuda(cuda) => {
                cuda.bind()?;
                let ticket = self.rings.send(&cuda, &slots, self.arenas.flat(Flat::Control).address())?;
                let found = cuda::run(self, program, &cuda)?;
                self.found(found);
                self.rings.receive(&cuda, ticket, self.arenas.flat(Flat::Report).address())?;
                Ok(ticket)
            }
        }
    }

    /// Runs a program and waits for its report.
    pub fn run(&mut self, program: &mut Program, control: &Control) -> Result<Report, Error> {
        let ticket = self.submit(program, control)?;
        self.wait(ticket)
    }

    /// How long the device was at runs that were reported on, each from its beginning to its end; none on the processor. Gaps
    /// between kernels count, the copies of inputs before a run do not. Kernel times alone are CUPTI's to tell.
    pub fn busy(&self) -> Option<Duration> {
        self.rings.busy()
    }

    /// The report of a run, if it is done.
    pub fn report(&mut self, ticket: Ticket) -> Result<Option<Report>, Error> {
        self.rings.poll(ticket)
    }

    /// The report of a run, as soon as it is done.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Report, Error> {
        self.rings.wait(ticket)
    }
}

/// Whether `bytes` more fit the device.
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
