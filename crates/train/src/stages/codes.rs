//! The audio codes of every record: computed once by the trained DVAE, and stored in the run folder.

use crate::bad_records::BadRecords;
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::job_control::{JobControl, check_stop};
use crate::model::{DVAE, Model};
use crate::overlay::{floats, position};
use myxtts_data::loader::FailureBudget;
use myxtts_data::mel::LOG_OF_FLOOR;
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_model::Declare;
use myxtts_model::dvae::{Dvae, DvaeSizes};
use myxtts_run::durable::{self, Disk};
use myxtts_tensor::{Control, DType, Engine, EngineOptions, Program, Tape, Training, Value};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Clips are padded with silence to a multiple of this many frames, as the original pads its batches: so a few programs
/// serve all lengths.
const UNIT: usize = 64;

/// Maximum number of frames of a batch, padding included.
const BATCH_FRAMES: usize = 1 << 14;

/// Share of the codebook below which a DVAE is reported as not trained enough.
const MIN_USED_SHARE: f64 = 0.05;

/// Computes codes from mels.
pub struct Encoder {
    engine: Engine,
    dvae: Dvae,
    stats: Vec<f32>,
    /// By rows and padded frames: the program, its input and its result.
    programs: HashMap<(usize, usize), (Program, Value, Value)>,
}

/// Number of frames that a clip is padded to.
fn padded(frames: usize) -> usize {
    frames.next_multiple_of(UNIT).max(UNIT)
}

/// Number of clips per batch.
fn batch_rows(padded: usize) -> usize {
    (BATCH_FRAMES / padded).max(1)
}

impl Encoder {
    /// Opens the DVAE of a model for inference.
    pub fn new(model: &Model, machine: ComputeDevice) -> Result<Encoder, TrainError> {
        let missing = TrainError::Missing { stage: "gpt", what: "audio codes (a DVAE)", earlier: "dvae" };
        if !model.has(DVAE) {
            return Err(missing);
        }
        let sizes = DvaeSizes::of_shapes(&|name| model.shape(name), "dvae.")?;
        let mut declare = Declare::new(0.0, &|_| false);
        let dvae = Dvae::declare(&mut declare, &sizes, "dvae.");
        let (layout, released) = declare.finish();
        let options = EngineOptions { training: Training::None, ..EngineOptions::default() };
        // Always in f32: with another rounding, another code could be chosen.
        let mut engine = Engine::new(machine.device, layout, myxtts_tensor::Precision::F32, options)?;
        if let Some(name) = model.fill(&mut engine, &released)?.into_iter().next() {
            return Err(TrainError::UnusableModel(format!(
                "the model's DVAE lacks {name}: import or train it again"
            )));
        }
        let stats = model.mel_stats(sizes.channels);
        Ok(Encoder { engine, dvae, stats, programs: HashMap::new() })
    }

    /// The codes of raw log-mels `[frames, bands]`.
    pub fn codes(&mut self, mel: &[f32]) -> Result<Vec<i32>, TrainError> {
        let codes = self.codes_of_all(&[mel])?;
        Ok(codes.into_iter().next().unwrap_or_default())
    }

    /// The codes of several clips, each raw log-mels `[frames, bands]`. Clips of equal padded length share a batch: a clip is
    /// padded as it would be alone, so that its codes do not depend on the others.
    pub fn codes_of_all(&mut self, mels: &[&[f32]]) -> Result<Vec<Vec<i32>>, TrainError> {
        let bands = self.stats.len();
        let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (clip, mel) in mels.iter().enumerate() {
            by_length.entry(padded(mel.len() / bands)).or_default().push(clip);
        }
        let mut all = vec![Vec::new(); mels.len()];
        for (padded, clips) in by_length {
            for batch in clips.chunks(batch_rows(padded)) {
                let ids = self.encode(batch.iter().map(|&clip| mels[clip]), batch.len(), padded)?;
                for (&clip, ids) in batch.iter().zip(ids.chunks_exact(ids.len() / batch.len())) {
                    let count = self.dvae.sizes().codes_of(mels[clip].len() / bands);
                    all[clip] = ids[..count].to_vec();
                }
            }
        }
        Ok(all)
    }

    /// Encodes `rows` clips as one batch of `padded` frames each; the codes of the padding are included.
    fn encode<'a>(
        &mut self,
        mels: impl Iterator<Item = &'a [f32]>,
        rows: usize,
        padded: usize,
    ) -> Result<Vec<i32>, TrainError> {
        let bands = self.stats.len();
        let mut data = vec![LOG_OF_FLOOR; rows * padded * bands];
        data.chunks_exact_mut(padded * bands)
            .zip(mels)
            .for_each(|(row, mel)| row[..mel.len()].copy_from_slice(mel));
        for frame in data.chunks_exact_mut(bands) {
            frame.iter_mut().zip(&self.stats).for_each(|(x, s)| *x /= s);
        }
        let (program, input, ids) = match self.programs.entry((rows, padded)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let mut tape = Tape::new(self.engine.layout().clone(), self.engine.precision());
                let input = tape.input([rows, padded, bands], DType::F32);
                let encoded = self.dvae.encode(&mut tape, input);
                let ids = self.dvae.codes(&mut tape, encoded);
                tape.keep(ids);
                entry.insert((self.engine.load(tape)?, input, ids))
            }
        };
        self.engine.write(program, *input, &data)?;
        self.engine.run(program, &Control::default())?;
        Ok(self.engine.read_i32(program, *ids)?)
    }

    /// Decodes codes to raw log-mels `[4 x codes, bands]`.
    pub fn mels(&mut self, codes: &[i32]) -> Result<Vec<f32>, TrainError> {
        if codes.is_empty() {
            return Ok(Vec::new());
        }
        let mut tape = Tape::new(self.engine.layout().clone(), self.engine.precision());
        let input = tape.input([1, codes.len()], DType::I32);
        let mel = self.dvae.decode(&mut tape, input);
        tape.keep(mel);
        let mut program = self.engine.load(tape)?;
        self.engine.write_i32(&program, input, codes)?;
        self.engine.run(&mut program, &Control::default())?;
        let mut mel = self.engine.read(&program, mel)?;
        for frame in mel.chunks_exact_mut(self.stats.len()) {
            frame.iter_mut().zip(&self.stats).for_each(|(x, s)| *x *= s);
        }
        Ok(mel)
    }
}

/// The file of the audio codes; it may not exist yet.
#[derive(Clone, Copy)]
pub struct CodesFile<'a> {
    /// The disk that it is written with.
    pub disk: &'a dyn Disk,
    /// Path of the file.
    pub path: &'a Path,
}

/// The codes of all records, empty for a record that cannot be read or has NaN or Inf: later stages leave it out. They are
/// read from `kept` if it belongs to the same records and DVAE, else computed. Two processes may compute them at once:
/// each writes a whole file, and both are equal.
pub fn codes_of(
    source: &dyn RecordSource,
    model: &Model,
    machine: ComputeDevice,
    failures: FailureBudget,
    CodesFile { disk, path: kept }: CodesFile<'_>,
    JobControl { progress, stop }: JobControl<'_>,
) -> Result<Vec<Vec<i32>>, TrainError> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&source.fingerprint());
    model.hash("dvae.", &mut hasher);
    model.hash(crate::model::MEL_STATS, &mut hasher);
    let key = *hasher.finalize().as_bytes();
    if let Some(codes) = read(kept, &key, source.len()) {
        return Ok(codes);
    }
    let mut encoder = Encoder::new(model, machine)?;
    let mut codes = vec![Vec::new(); source.len()];
    let (mut silent, mut bad) = (Vec::new(), BadRecords::new("audio codes", failures.rate, source.len()));
    let column = position(source, DVAE_MEL);
    let length = |record: &usize| padded(source.rows(*record, column) as usize);
    // Longest first, so that the engine allocates the memory of its largest batch only once.
    let mut records: Vec<usize> = (0..source.len()).collect();
    records.sort_by_key(|record| Reverse(length(record)));
    progress.start("audio codes", source.len() as u64);
    for same in records.chunk_by(|one, other| length(one) == length(other)) {
        for batch in same.chunks(batch_rows(length(&same[0]))) {
            check_stop(stop).inspect_err(|_| progress.finish())?;
            let read: Vec<_> = batch.par_iter().map(|&record| floats(source, record, DVAE_MEL)).collect();
            let mut mels = Vec::with_capacity(batch.len());
            for (&record, mel) in batch.iter().zip(read) {
                match bad.check(mel).inspect_err(|_| progress.finish())? {
                    // Every row has a nearest code, even NaN: the record would be trained on as if it were speech.
                    Some(mel) if mel.iter().any(|x| !x.is_finite()) => silent.push(record),
                    Some(mel) => mels.push((record, mel)),
                    None => {}
                }
            }
            let clips: Vec<&[f32]> = mels.iter().map(|(_, mel)| &mel[..]).collect();
            for ((record, _), made) in mels.iter().zip(encoder.codes_of_all(&clips)?) {
                codes[*record] = made;
            }
            progress.advance(batch.len() as u64);
        }
        encoder.programs.clear();
    }
    progress.finish();
    if let Some(line) = bad.message("the stages gpt and decoder") {
        progress.say(&line);
    }
    if !silent.is_empty() {
        silent.sort_unstable();
        let silent: Vec<String> = silent.into_iter().map(|record| source.id(record)).collect();
        progress
            .say(&format!("left out, because their mels have NaN or Inf: {}", super::list_names(&silent)));
    }
    if let Some(line) = collapsed(&codes, encoder.dvae.sizes().codes) {
        progress.say(&line);
    }
    durable::write_with(disk, kept, &to_bytes(&codes, &key))?;
    Ok(codes)
}

/// A warning if the DVAE uses few codes of its codebook, or one code most of the time: the GPT then predicts codes well
/// that carry no speech. A corpus with fewer codes than the codebook has is compared with its own number of codes.
fn collapsed(codes: &[Vec<i32>], codebook: usize) -> Option<String> {
    let mut counts: HashMap<i32, usize> = HashMap::new();
    codes.iter().flatten().for_each(|&code| *counts.entry(code).or_default() += 1);
    let (used, total) = (counts.len(), counts.values().sum::<usize>());
    let most = counts.values().copied().max()?;
    let few = (used as f64) < MIN_USED_SHARE * codebook.min(total) as f64;
    (few || 2 * most > total).then(|| {
        format!(
            "warning: the DVAE uses {used} of {codebook} codes, one of them for {:.0} % of the audio, so the GPT's accuracy \
             means nothing: train the DVAE longer (--dvae-steps)",
            100.0 * most as f64 / total as f64
        )
    })
}

/// File format: the key, number of records, codes of each record, and the hash of all that.
fn to_bytes(codes: &[Vec<i32>], key: &[u8; 32]) -> Vec<u8> {
    let mut bytes = key.to_vec();
    bytes.extend((codes.len() as u64).to_le_bytes());
    for codes in codes {
        bytes.extend((codes.len() as u32).to_le_bytes());
        bytes.extend_from_slice(bytemuck::cast_slice(codes));
    }
    let hash = *blake3::hash(&bytes).as_bytes();
    bytes.extend(hash);
    bytes
}

/// Serialises codes for another process.
pub(crate) fn encode(codes: &[Vec<i32>]) -> Vec<u8> {
    to_bytes(codes, &[0; 32])
}

/// Reads the output of [`encode`], for `records` records.
pub(crate) fn decode(bytes: &[u8], records: usize) -> Option<Vec<Vec<i32>>> {
    from_bytes(bytes, &[0; 32], records)
}

/// Reads the file; `None` if it does not match, and codes are computed again.
fn read(path: &Path, key: &[u8; 32], records: usize) -> Option<Vec<Vec<i32>>> {
    from_bytes(&std::fs::read(path).ok()?, key, records)
}

fn from_bytes(bytes: &[u8], key: &[u8; 32], records: usize) -> Option<Vec<Vec<i32>>> {
    let (bytes, hash) = bytes.split_last_chunk::<32>()?;
    if blake3::hash(bytes).as_bytes() != hash {
        return None;
    }
    let mut rest = bytes.strip_prefix(key)?.strip_prefix(&(records as u64).to_le_bytes())?;
    let mut codes = Vec::with_capacity(records);
    for _ in 0..records {
        let (count, after) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*count) as usize * 4;
        codes.push(bytemuck::allocation::pod_collect_to_vec(after.get(..length)?));
        rest = &after[length..];
    }
    Some(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapsed_codebook_is_reported() {
        let all: Vec<i32> = (0..1024).collect();
        assert_eq!(collapsed(&[all.clone(), all.clone()], 1024), None);
        assert_eq!(collapsed(&[], 1024), None, "no codes");
        // A few short clips cannot use a twentieth of a large codebook.
        assert_eq!(collapsed(&[vec![1, 2, 3, 4], Vec::new()], 1024), None);
        // Evenly used, but few.
        let few: Vec<i32> = (0..2000).map(|at| at % 40).collect();
        let line = collapsed(&[few], 1024).unwrap();
        assert!(line.starts_with("warning: the DVAE uses 40 of 1024 codes"), "{line}");
        // Many, but one of them nearly always.
        let line = collapsed(&[all, vec![7; 2000]], 1024).unwrap();
        assert!(line.contains("1024 of 1024 codes, one of them for 66 % of the audio"), "{line}");
    }
}
