//! Conditioning that a device computes: gathered from mels that are resident there, so that batches carry only row indices,
//! or computed from waveforms that are copied there, as the mels of the DVAE stage are. The result never passes through the
//! host: it is copied to the waiting batch.

use super::conditioning_input::ConditioningInput;
use super::row_indices::RowIndices;
use crate::error::TrainError;
use crate::feed::{Finisher, Made};
use myxtts_data::cache::audio_overlay::AUDIO_OVERLAP;
use myxtts_data::mel::{FrontEnd, HIGHEST_HZ, LOG_FLOOR, Parameters};
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
pub(in crate::stages) type Shared = Arc<Mutex<ConditioningEngine>>;

/// Computes conditioning, or other mels, on a device.
pub(in crate::stages) struct ConditioningEngine {
    engine: Engine,
    how: How,
    frames: usize,
    bands: usize,
    /// Programs by number of rows.
    programs: HashMap<usize, Ready>,
    uploader: Uploader,
    /// Upload slots for the inputs of batches, used in turn.
    slots: VecDeque<Slot>,
}

/// The source of the conditioning.
pub(in crate::stages) enum How {
    Table(ParameterId),
    Mels { mel: Mel, stats: Vec<f32> },
}

/// The parts of a program before it is loaded.
struct ProgramSpec {
    tape: Tape,
    image: InputLayout,
    places: Value,
    sound: Option<Value>,
    made: Value,
    /// Constant inputs, written once. They follow the inputs that change.
    constants: Vec<(Value, Vec<f32>)>,
}

struct Ready {
    program: Program,
    /// Layout of the inputs that change; constants follow them.
    image: InputLayout,
    places: Value,
    sound: Option<Value>,
    made: Value,
}

/// One is filled while another is copied and a third is used. The filling thread blocks only where the device is further
/// behind than that, and more slots would not make it faster.
const SLOTS: usize = 3;

/// A batch that may carry the input of its mels.
pub(in crate::stages) trait BringsSound: Send {
    fn take_given(&mut self) -> Option<ConditioningInput>;
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
pub(super) fn table(mels: usize, bands: usize) -> (Arc<Layout>, How) {
    let mut layout = LayoutBuilder::new();
    let table = layout.add("mels", [mels, bands], Role::Frozen, Init::Zeros);
    (Arc::new(layout.finish()), How::Table(table))
}

/// Mels computed from waveforms, divided by `stats`.
pub(in crate::stages) fn of_sound(of: FrontEnd, stats: &[f32]) -> (Arc<Layout>, How) {
    let how = How::Mels { mel: front_end(of), stats: stats.to_vec() };
    (Arc::new(LayoutBuilder::new().finish()), how)
}

impl How {
    /// The program for batches of `rows` rows.
    fn spec(&self, layout: &Arc<Layout>, rows: usize, (frames, bands): (usize, usize)) -> ProgramSpec {
        let mut tape = Tape::new(layout.clone(), Precision::F32);
        let places = tape.input([rows, frames], DType::I32);
        let hops = frames + AUDIO_OVERLAP as usize;
        let sound = match self {
            How::Table(_) => None,
            How::Mels { mel, .. } => Some(tape.input([rows + 1, hops * mel.stft.hop], DType::F32)),
        };
        let (image, mut constants) = (InputLayout::new(&tape), Vec::new());
        let table = match self {
            How::Table(table) => tape.parameter(*table),
            How::Mels { mel, stats } => {
                let Stft { length, hop, .. } = mel.stft;
                let wave = sound.expect("built above for waveforms");
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
        let made = tape.embedding(table, places);
        tape.keep(made);
        ProgramSpec { tape, image, places, sound, made, constants }
    }
}

/// Bytes that an engine would need on a device, for batches of these numbers of rows.
pub(in crate::stages) fn forecast(
    device: Device,
    (layout, how): (Arc<Layout>, How),
    (frames, bands): (usize, usize),
    rows: &BTreeSet<usize>,
) -> usize {
    let forecast = Forecast::new(device, &layout, Precision::F32, &EngineOptions::default());
    let (mut inputs, mut scratch, mut slot) = (0, 0, 0);
    for &rows in rows {
        let spec = how.spec(&layout, rows, (frames, bands));
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
        let mut mels = vec![1e-5f32.ln(); (all + 1) * bands];
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
        let (layout, how) = table(all + 1, bands);
        let mut engine = Engine::new(device, layout, Precision::F32, EngineOptions::default())?;
        if let How::Table(table) = how {
            engine.write_parameter(table, &mels)?;
        }
        let own = ConditioningEngine::on(engine, how, frames, bands)?;
        Ok((own, RowIndices::new(source, at, found, all as i32)))
    }

    /// Computes mels from waveforms on a device.
    pub fn of_sound(
        device: Device,
        of: FrontEnd,
        frames: usize,
        stats: &[f32],
    ) -> Result<ConditioningEngine, TrainError> {
        let (layout, how) = of_sound(of, stats);
        let engine = Engine::new(device, layout, Precision::F32, EngineOptions::default())?;
        ConditioningEngine::on(engine, how, frames, stats.len())
    }

    fn on(engine: Engine, how: How, frames: usize, bands: usize) -> Result<ConditioningEngine, TrainError> {
        let uploader = engine.uploader(Upload::Ahead)?;
        let (programs, slots) = (HashMap::new(), VecDeque::new());
        Ok(ConditioningEngine { engine, how, frames, bands, programs, uploader, slots })
    }

    fn ready(&mut self, rows: usize) -> Result<&mut Ready, TrainError> {
        if !self.programs.contains_key(&rows) {
            let ProgramSpec { tape, image, places, sound, made, constants } =
                self.how.spec(self.engine.layout(), rows, (self.frames, self.bands));
            let program = self.engine.load(tape)?;
            for (value, data) in constants {
                self.engine.write(&program, value, &data)?;
            }
            self.programs.insert(rows, Ready { program, image, places, sound, made });
        }
        Ok(self.programs.get_mut(&rows).expect("made above"))
    }

    /// Bytes in use on its device.
    pub fn held(&self) -> usize {
        let waiting: usize = match self.engine.cuda() {
            Some(_) => self.slots.iter().map(Slot::room).sum(),
            None => 0,
        };
        self.engine.memory().total() + waiting
    }

    /// A slot for the conditioning input of a batch of `rows` rows; `made` is the range of the result in the batch's inputs.
    pub fn place(&mut self, rows: usize, made: Range<usize>) -> Result<ConditioningInput, TrainError> {
        let ready = self.ready(rows)?;
        let (bytes, places) = (ready.image.bytes(), ready.image.range(ready.places));
        let sound = ready.sound.map(|sound| ready.image.range(sound));
        let used = if self.slots.len() == SLOTS { self.slots.pop_front() } else { None };
        let slot = match used.filter(|slot| slot.capacity() >= bytes) {
            Some(slot) => slot,
            None => self.uploader.slot(bytes)?,
        };
        Ok(ConditioningInput { slot, rows, places, sound, made })
    }

    /// [`Self::place`] of a shared engine, as soon as the slot may be written; the wait is measured.
    pub fn placed(
        own: &Shared,
        rows: usize,
        range: Range<usize>,
        counted: &mut Made,
    ) -> Result<ConditioningInput, TrainError> {
        let mut given = own.lock().unwrap_or_else(PoisonError::into_inner).place(rows, range)?;
        let began = Instant::now();
        given.slot.bytes()?;
        counted.blocked += began.elapsed();
        Ok(given)
    }

    /// Computes the conditioning of a batch, copies it into the batch's slot and then sends the rest.
    fn finish(
        &mut self,
        uploader: &Uploader,
        slot: &mut Slot,
        length: usize,
        given: ConditioningInput,
    ) -> Result<(), TrainError> {
        self.ready(given.rows)?;
        let ConditioningEngine { engine, programs, uploader: own, slots, .. } = self;
        let ready = programs.get_mut(&given.rows).expect("made above");
        let mut brought = given.slot;
        own.send(&mut brought, ready.image.bytes())?;
        engine.take(&ready.program, &mut brought)?;
        slots.push_back(brought);
        // Not waited for: everything that follows is queued behind it on the same stream.
        engine.submit(&mut ready.program, &Control::default())?;
        uploader.send_with(slot, length, given.made, (engine, &ready.program, ready.made))?;
        Ok(())
    }

    /// The finisher of a feed: the device adds the conditioning.
    pub fn finisher<B: BringsSound>(own: &Shared) -> Finisher<B> {
        let own = Arc::clone(own);
        Box::new(move |uploader, slot, length, batch: &mut B| {
            let mut own = own.lock().unwrap_or_else(PoisonError::into_inner);
            match batch.take_given() {
                Some(given) => own.finish(uploader, slot, length, given),
                None => Ok(uploader.send(slot, length)?),
            }
        })
    }
}
