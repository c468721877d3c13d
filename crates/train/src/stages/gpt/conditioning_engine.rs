//! Conditioning that a device computes: gathered from mels that are resident there, so that batches carry only row indices,
//! or computed from waveforms that are copied there, as the mels of the DVAE stage are. The result never passes through the
//! host: it is copied to the waiting batch.

use super::conditioning_input::ConditioningInput;
use super::row_indices::RowIndices;
use crate::error::TrainError;
use crate::feed::{BatchCost, Finisher};
use myxtts_data::cache::audio_overlay::AUDIO_OVERLAP;
use myxtts_data::mel::{FrontEnd, HIGHEST_HZ, LOG_FLOOR, LOG_OF_FLOOR, Parameters};
use myxtts_data::record::{CONDITIONING_MEL, RecordError, RecordSource};
use myxtts_tensor::engine::{Forecast, InputLayout, Slot, Upload, Uploader};
use myxtts_tensor::ops::frames::Framing;
use myxtts_tensor::ops::mel::{Log, Mel, Scale};
use myxtts_tensor::ops::stft::{Spectrum, Stft, Window};
use myxtts_tensor::parameters::{Layout, LayoutBuilder, Role};
use myxtts_tensor::{
    Control, DType, Device, Engine, EngineOptions, Init, ParameterId, Precision, Program, Tape, Value,
};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A conditioning engine shared by the thread that fills batches and the one that finishes them.
pub(in crate::stages) type SharedEngine = Arc<Mutex<ConditioningEngine>>;

/// Computes conditioning, or other mels, on a device.
pub(in crate::stages) struct ConditioningEngine {
    engine: Engine,
    mel_source: MelSource,
    frames: usize,
    bands: usize,
    /// Programs by number of rows.
    programs: HashMap<usize, Ready>,
    uploader: Uploader,
    /// Upload slots for the inputs of batches, used in turn.
    slots: VecDeque<Slot>,
}

/// The source of the conditioning.
pub(in crate::stages) enum MelSource {
    Table(ParameterId),
    Mels { mel: Mel, stats: Vec<f32> },
}

/// The parts of a program before it is loaded.
struct ProgramSpec {
    tape: Tape,
    image: InputLayout,
    mel_indices: Value,
    waveforms: Option<Value>,
    made: Value,
    /// Constant inputs, written once. They follow the inputs that change.
    constants: Vec<(Value, Vec<f32>)>,
}

struct Ready {
    program: Program,
    /// Layout of the inputs that change; constants follow them.
    image: InputLayout,
    mel_indices: Value,
    waveforms: Option<Value>,
    made: Value,
}

/// One is filled while another is copied and a third is used. The filling thread blocks only if the device is further
/// behind than that, and more slots would not make it faster.
const SLOTS: usize = 3;

/// A batch that may carry the input of its mels.
pub(in crate::stages) trait HasMelInput: Send {
    fn take_mel_input(&mut self) -> Option<ConditioningInput>;
}

/// The mel front-end of conditioning or of the DVAE, as in [`myxtts_data::mel`].
fn front_end(of: FrontEnd) -> Mel {
    let Parameters { sample_rate, n_fft, window, hop, channels } = of.parameters();
    Mel {
        stft: Stft { points: n_fft, length: window, window: Window::Hann, hop },
        spectrum: Spectrum::Power,
        rate: f64::from(sample_rate),
        channels,
        range: (0.0, HIGHEST_HZ),
        scale: Scale::Htk,
        area: true,
        log: Log::Floor(LOG_FLOOR),
    }
}

/// All mels as one table.
pub(super) fn table(mels: usize, bands: usize) -> (Arc<Layout>, MelSource) {
    let mut layout = LayoutBuilder::new();
    let table = layout.add("mels", [mels, bands], Role::Frozen, Init::Zeros);
    (Arc::new(layout.finish()), MelSource::Table(table))
}

/// Mels computed from waveforms, divided by `stats`.
pub(in crate::stages) fn waveform_source(of: FrontEnd, stats: &[f32]) -> (Arc<Layout>, MelSource) {
    let mel_source = MelSource::Mels { mel: front_end(of), stats: stats.to_vec() };
    (Arc::new(LayoutBuilder::new().finish()), mel_source)
}

impl MelSource {
    /// The program for batches of `rows` rows.
    fn spec(&self, layout: &Arc<Layout>, rows: usize, (frames, bands): (usize, usize)) -> ProgramSpec {
        let mut tape = Tape::new(layout.clone(), Precision::F32);
        let mel_indices = tape.input([rows, frames], DType::I32);
        let hops = frames + AUDIO_OVERLAP as usize;
        let waveforms = match self {
            MelSource::Table(_) => None,
            MelSource::Mels { mel, .. } => Some(tape.input([rows + 1, hops * mel.stft.hop], DType::F32)),
        };
        let (image, mut constants) = (InputLayout::new(&tape), Vec::new());
        let table = match self {
            MelSource::Table(table) => tape.parameter(*table),
            MelSource::Mels { mel, stats } => {
                let Stft { length, hop, .. } = mel.stft;
                let wave = waveforms.expect("built above for waveforms");
                let basis = tape.input([2 * mel.stft.bins(), length], DType::F32);
                let filters = tape.input([mel.channels, mel.stft.bins()], DType::F32);
                let scales = tape.input([mel.channels, mel.channels], DType::F32);
                let framed = tape.frames(wave, Framing { size: length, hop, pad: 0 });
                let bins = tape.fourier(framed, &mel.stft, basis);
                let power = tape.spectrum(bins, mel.spectrum);
                let filtered = tape.transform(power, filters);
                let mels = tape.mel_log(filtered, mel.log);
                let mels = tape.transform(mels, scales);
                let diagonal = |i: usize| match (i / stats.len(), i % stats.len()) {
                    (row, column) if row == column => 1.0 / stats[row],
                    _ => 0.0,
                };
                let scaled = (0..stats.len() * stats.len()).map(diagonal).collect();
                constants = vec![(basis, mel.stft.basis()), (filters, mel.filters()), (scales, scaled)];
                tape.reshape(mels, [(rows + 1) * frames, bands])
            }
        };
        let made = tape.embedding(table, mel_indices);
        tape.keep(made);
        ProgramSpec { tape, image, mel_indices, waveforms, made, constants }
    }
}

/// Bytes that an engine would need on a device, for batches of these numbers of rows.
pub(in crate::stages) fn forecast(
    device: Device,
    (layout, mel_source): (Arc<Layout>, MelSource),
    (frames, bands): (usize, usize),
    rows: &BTreeSet<usize>,
) -> usize {
    let forecast = Forecast::new(device, &layout, Precision::F32, &EngineOptions::default());
    let (mut inputs, mut scratch, mut slot) = (0, 0, 0);
    for &rows in rows {
        let spec = mel_source.spec(&layout, rows, (frames, bands));
        let plan = forecast.plan_of(&spec.tape);
        inputs += plan.input_bytes;
        scratch = scratch.max(plan.scratch_bytes);
        slot = slot.max(spec.image.bytes());
    }
    let waiting = if device == Device::Cpu { 0 } else { SLOTS * slot };
    forecast.memory().total() + inputs + scratch + waiting
}

impl ConditioningEngine {
    /// Reads all conditioning mels of a source, divides them by `stats` and stores them on a device. Also returns the source
    /// with row indices instead of mels.
    pub(super) fn resident(
        device: Device,
        source: Arc<dyn RecordSource>,
        frames: usize,
        stats: &[f32],
    ) -> Result<(ConditioningEngine, RowIndices), TrainError> {
        let (bands, at) = (stats.len(), crate::overlay::position(&*source, CONDITIONING_MEL));
        let mut found = Vec::with_capacity(source.len());
        let all: usize = (0..source.len()).map(|record| source.rows(record, at) as usize).sum();
        let mut mels = vec![LOG_OF_FLOOR; (all + 1) * bands];
        let mut first = 0;
        for record in 0..source.len() {
            let rows = source.rows(record, at) as usize;
            let into = bytemuck::cast_slice_mut(&mut mels[first * bands..][..rows * bands]);
            found.push((
                first as i32,
                match source.read(record, at, 0, into) {
                    Ok(rows) => Ok(rows),
                    // Batches with this record get the same error as from the source.
                    Err(RecordError::Bad(problem)) => Err(problem),
                    Err(error) => return Err(error.into()),
                },
            ));
            first += rows;
        }
        for frame in mels.chunks_exact_mut(bands) {
            frame.iter_mut().zip(stats).for_each(|(x, s)| *x /= s);
        }
        let (layout, mel_source) = table(all + 1, bands);
        let mut engine = Engine::new(device, layout, Precision::F32, EngineOptions::default())?;
        if let MelSource::Table(table) = mel_source {
            engine.write_parameter(table, &mels)?;
        }
        let own = ConditioningEngine::with_engine(engine, mel_source, frames, bands)?;
        Ok((own, RowIndices::new(source, at, found, all as i32)))
    }

    /// Computes mels from waveforms on a device.
    pub fn from_waveforms(
        device: Device,
        of: FrontEnd,
        frames: usize,
        stats: &[f32],
    ) -> Result<ConditioningEngine, TrainError> {
        let (layout, mel_source) = waveform_source(of, stats);
        let engine = Engine::new(device, layout, Precision::F32, EngineOptions::default())?;
        ConditioningEngine::with_engine(engine, mel_source, frames, stats.len())
    }

    fn with_engine(
        engine: Engine,
        mel_source: MelSource,
        frames: usize,
        bands: usize,
    ) -> Result<ConditioningEngine, TrainError> {
        let uploader = engine.uploader(Upload::Ahead)?;
        let (programs, slots) = (HashMap::new(), VecDeque::new());
        Ok(ConditioningEngine { engine, mel_source, frames, bands, programs, uploader, slots })
    }

    fn ready(&mut self, rows: usize) -> Result<&mut Ready, TrainError> {
        if !self.programs.contains_key(&rows) {
            let ProgramSpec { tape, image, mel_indices, waveforms, made, constants } =
                self.mel_source.spec(self.engine.layout(), rows, (self.frames, self.bands));
            let program = self.engine.load(tape)?;
            for (value, data) in constants {
                self.engine.write(&program, value, &data)?;
            }
            self.programs.insert(rows, Ready { program, image, mel_indices, waveforms, made });
        }
        Ok(self.programs.get_mut(&rows).expect("made above"))
    }

    /// Bytes in use on its device.
    pub fn held(&self) -> usize {
        let waiting: usize = match self.engine.cuda() {
            Some(_) => self.slots.iter().map(Slot::capacity).sum(),
            None => 0,
        };
        self.engine.memory().total() + waiting
    }

    /// A slot for the conditioning input of a batch of `rows` rows; `made` is the range of the result in the batch's inputs.
    pub fn input(&mut self, rows: usize, made: Range<usize>) -> Result<ConditioningInput, TrainError> {
        let ready = self.ready(rows)?;
        let (bytes, mel_indices) = (ready.image.bytes(), ready.image.range(ready.mel_indices));
        let waveforms = ready.waveforms.map(|waveforms| ready.image.range(waveforms));
        let used = if self.slots.len() == SLOTS { self.slots.pop_front() } else { None };
        let slot = match used.filter(|slot| slot.capacity() >= bytes) {
            Some(slot) => slot,
            None => self.uploader.slot(bytes)?,
        };
        Ok(ConditioningInput { slot, rows, mel_indices, waveforms, made })
    }

    /// [`Self::input`] of a shared engine, as soon as the slot may be written; the wait is measured.
    pub fn wait_for_input(
        own: &SharedEngine,
        rows: usize,
        range: Range<usize>,
        counted: &mut BatchCost,
    ) -> Result<ConditioningInput, TrainError> {
        let mut input = own.lock().unwrap_or_else(PoisonError::into_inner).input(rows, range)?;
        let began = Instant::now();
        input.slot.bytes()?;
        counted.blocked += began.elapsed();
        Ok(input)
    }

    /// Computes the conditioning of a batch, copies it into the batch's slot and then sends the rest.
    fn finish(
        &mut self,
        uploader: &Uploader,
        slot: &mut Slot,
        length: usize,
        input: ConditioningInput,
    ) -> Result<(), TrainError> {
        self.ready(input.rows)?;
        let ConditioningEngine { engine, programs, uploader: own, slots, .. } = self;
        let ready = programs.get_mut(&input.rows).expect("made above");
        let mut input_slot = input.slot;
        own.send(&mut input_slot, ready.image.bytes())?;
        engine.take(&ready.program, &mut input_slot)?;
        slots.push_back(input_slot);
        // Not waited for: everything that follows is queued behind it on the same stream.
        engine.submit(&mut ready.program, &Control::default())?;
        uploader.send_with(slot, length, input.made, (engine, &ready.program, ready.made))?;
        Ok(())
    }

    /// The finisher of a feed: the device adds the conditioning.
    pub fn finisher<B: HasMelInput>(own: &SharedEngine) -> Finisher<B> {
        let own = Arc::clone(own);
        Box::new(move |uploader, slot, length, batch: &mut B| {
            let mut own = own.lock().unwrap_or_else(PoisonError::into_inner);
            match batch.take_mel_input() {
                Some(input) => own.finish(uploader, slot, length, input),
                None => Ok(uploader.send(slot, length)?),
            }
        })
    }
}
