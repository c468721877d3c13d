//! Builds stages: on one device, on several, or on the ranks of a run.

use crate::align::Alignments;
use crate::bad_records::BadRecords;
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::feed::FeedSettings;
use crate::job_control::JobControl;
use crate::mirrored::{Build, Mirrored};
use crate::model::{GPT, Model};
use crate::overlay::{WithCodes, position};
use crate::rank_error::RankError;
use crate::ranks::{Ranks, lead};
use crate::replica_slice::ReplicaSlice;
use crate::samples::Samples;
use crate::sizes::Sizes;
use crate::stage_settings::{conditioning, dvae_settings, feeding, gpt_rows, gpt_settings, lengths};
use crate::stages::clips::Clips;
use crate::stages::codes::{self, CodesFile, codes_of};
use crate::stages::decoder::{DecoderSettings, DecoderStage};
use crate::stages::dvae::{DvaeSettings, DvaeStage, MelDevice, TokenTargets};
use crate::stages::gpt::{Conditioning, GptSettings, GptStage, Lengths, Regularization};
use crate::stages::latent_file::LatentFile;
use crate::stages::latents::{LatentSettings, latents_of};
use crate::stages::{RecordSplit, Stage, StageKind};
use crate::training_data::Corpus;
use myxtts_data::features::Recipe as Features;
use myxtts_data::record::DVAE_MEL;
use myxtts_run::durable::fault::disk_from_env;
use myxtts_run::plan::{Plan, Recipe};
use myxtts_run::progress::Progress;
use myxtts_tensor::Mode;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The stages in the order they run.
pub const ORDER: [StageKind; 3] = [StageKind::Dvae, StageKind::Gpt, StageKind::Decoder];

/// The file inside a run that holds its audio codes.
const CODES_FILE: &str = "codes.bin";

/// Everything a stage is built from except the model.
pub struct StageContext<'a> {
    /// Settings of the run.
    pub plan: &'a Plan,
    /// The data it trains on.
    pub corpus: &'a Corpus,
    /// The device of the stage, or of its first replica.
    pub machine: ComputeDevice,
    /// The devices of the replicas; empty if there is only one.
    pub machines: &'a [ComputeDevice],
    /// Processes that share every batch, with one replica each; `None` in a run of one process.
    pub ranks: Option<&'a Arc<Ranks>>,
    /// The file of the audio codes; it may not exist yet.
    pub codes: PathBuf,
    /// How batches get to the device.
    pub feeding: FeedSettings,
    /// Where the conditioning of the GPT's batches comes from.
    pub conditioning: Conditioning,
    /// Lengths that the GPT's batches are padded to.
    pub lengths: Lengths,
    /// Whether steps are captured as graphs or launched kernel by kernel.
    pub mode: Mode,
    /// Receives the progress of computing codes and latents.
    pub progress: &'a dyn Progress,
    /// When true, that computation stops.
    pub stop: Arc<AtomicBool>,
}

impl<'a> StageContext<'a> {
    /// The context for a plan, with files in `folder`.
    pub fn of(
        plan: &'a Plan,
        corpus: &'a Corpus,
        machine: ComputeDevice,
        folder: &Path,
        progress: &'a dyn Progress,
    ) -> StageContext<'a> {
        let mode = match (plan.training.enable_eager_debug, plan.training.enable_graph_mode) {
            (true, _) => Mode::Checked,
            (false, true) => Mode::Captured,
            (false, false) => Mode::Eager,
        };
        StageContext {
            plan,
            corpus,
            machine,
            machines: &[],
            ranks: None,
            codes: folder.join(CODES_FILE),
            feeding: feeding(plan),
            conditioning: conditioning(plan, corpus, machine),
            lengths: lengths(plan),
            mode,
            progress,
            stop: Arc::default(),
        }
    }

    /// Number of replicas that share every batch.
    fn replicas(&self) -> usize {
        self.ranks.map_or(self.machines.len(), |ranks| ranks.world())
    }

    /// Builds a stage, ready for its first step.
    pub fn stage(
        &self,
        kind: StageKind,
        recipe: &Recipe,
        model: &mut Model,
    ) -> Result<Box<dyn Stage>, TrainError> {
        let &StageContext { plan, corpus, machine, feeding, lengths, mode, progress, .. } = self;
        let sizes = Sizes::of(plan, machine, &corpus.tokenizer, model)?;
        let (seed, source, recipe) = (plan.training.seed, corpus.source.clone(), *recipe);
        let sides: (Arc<[u32]>, Arc<[u32]>) = (corpus.train[..].into(), corpus.validation[..].into());
        match kind {
            StageKind::Dvae => {
                let token_targets = self.token_targets(&sizes)?;
                let mut settings =
                    DvaeSettings { mode, feeding, token_targets, ..dvae_settings(plan, &sizes) };
                if let Some(side) = &corpus.data_side {
                    settings.feeding.depth = side.depth(settings.feeding.depth);
                    settings.mels = Some(MelDevice {
                        device: side.device,
                        waveforms: side.waveforms.clone(),
                        start_delay: side.model_start_delay,
                    });
                }
                self.build_on_devices(settings.rows as usize, model, move |machine, slice, model| {
                    let (settings, source) = (settings.clone(), source.clone());
                    let sides = RecordSplit { train: &sides.0, validation: &sides.1 };
                    Ok(Box::new(DvaeStage::new(slice, settings, recipe, machine, source, sides, model)?))
                })
            }
            StageKind::Gpt => {
                let mut settings = GptSettings {
                    feeding,
                    lengths,
                    mode,
                    conditioning: self.conditioning.clone(),
                    rows: gpt_rows(plan, self.replicas()),
                    ..gpt_settings(plan, &sizes)
                };
                if let Some(side) = &corpus.data_side {
                    settings.feeding.depth = side.depth(settings.feeding.depth);
                    settings.start_delay = Some(side.model_start_delay);
                }
                let source = self.with_codes(model)?;
                self.complete(&mut settings.regularization, &source, !model.has(GPT))?;
                let rows = match plan.data.frame_budget {
                    // Batches limited by length get a multiple of this number of rows.
                    Some(_) => self.replicas().max(1),
                    None => plan.data.batch_size,
                };
                self.build_on_devices(rows, model, move |machine, slice, model| {
                    let (settings, source) = (settings.clone(), source.clone());
                    let sides = RecordSplit { train: &sides.0, validation: &sides.1 };
                    Ok(Box::new(GptStage::new(slice, settings, recipe, machine, source, sides, model)?))
                })
            }
            StageKind::Decoder => {
                let how = LatentSettings {
                    frames: sizes.conditioning_frames,
                    seed,
                    tokenizer: &corpus.tokenizer,
                    failures: feeding.failures,
                    folder: self.codes.parent().unwrap_or(Path::new("")),
                };
                let coded = self.with_codes(model)?;
                let make = || {
                    latents_of(
                        &coded,
                        model,
                        self.data_machine(),
                        how,
                        JobControl { progress, stop: &self.stop },
                    )
                };
                let latents = match self.ranks {
                    None => make()?,
                    Some(ranks) => broadcast_latents(ranks, make, how.folder, source.len())?,
                };
                let settings = DecoderSettings { mode, feeding, ..DecoderSettings::from_plan(plan, &sizes) };
                let clips = Arc::new(Clips::load(&settings, &*source, latents, corpus.split())?);
                self.build_on_devices(settings.rows, model, move |machine, slice, model| {
                    let (settings, source, clips) = (settings.clone(), source.clone(), clips.clone());
                    Ok(Box::new(DecoderStage::new(slice, settings, recipe, machine, source, clips, model)?))
                })
            }
        }
    }

    /// Builds a stage on one device, or a replica of it on as many devices as a batch of `rows` rows can be split over. The
    /// batch sizes of some stages are fixed, so one of three devices may stay idle.
    fn build_on_devices(
        &self,
        rows: usize,
        model: &mut Model,
        build: impl Fn(ComputeDevice, ReplicaSlice, &Model) -> Result<Box<dyn Stage>, TrainError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Box<dyn Stage>, TrainError> {
        let rounded = self.plan.training.reduce_bf16;
        if let Some(ranks) = self.ranks {
            let build = |slice: ReplicaSlice| build(self.machine, slice.rounded(rounded), model);
            return match ranks.is_lead() {
                true => Ok(Box::new(lead::Distributed::new(ranks, self.machine, build)?)),
                false => build(lead::slice(ranks)),
            };
        }
        let most = (1..=self.machines.len()).rev().find(|&n| rows.is_multiple_of(n)).unwrap_or(1);
        if most == 1 {
            return build(self.machine, ReplicaSlice::WHOLE, model);
        }
        // Replicas are built on their own threads, from one model in memory.
        let whole = Arc::new(std::mem::take(model));
        let of = whole.clone();
        let build: Build =
            Arc::new(move |machine, slice: ReplicaSlice| build(machine, slice.rounded(rounded), &of));
        let stage = Mirrored::new(&self.machines[..most], &build);
        drop(build);
        *model = Arc::try_unwrap(whole).unwrap_or_else(|whole| (*whole).clone());
        let mut stage = stage?;
        stage.set_idle(self.machines.len() - most);
        Ok(Box::new(stage))
    }

    /// The samples that are spoken during training and at its end.
    pub(crate) fn samples<'b>(&'b self, model: &'b Model) -> Samples<'b> {
        Samples {
            sentences: &self.corpus.sentences,
            source: &*self.corpus.source,
            model,
            machine: self.machine,
            cleaner: Features::from_plan(&self.plan.data).cleaner,
            memory_limit: self.plan.training.memory_limit,
        }
    }

    /// The stages before `stage`, untrained: the time of a step does not depend on the values of its weights.
    pub fn untrained(&self, stage: StageKind) -> Result<Model, TrainError> {
        let mut model = Model::default();
        model.set_vocabulary(&self.corpus.tokenizer);
        for before in ORDER.into_iter().take_while(|before| *before != stage) {
            let recipe = self.plan.recipe(before, false);
            self.stage(before, &recipe, &mut model)?.finish(&mut model, false)?;
        }
        Ok(model)
    }

    /// Completes the GPT's measures against overfitting with what they need of the corpus.
    fn complete(
        &self,
        measures: &mut Regularization,
        source: &Arc<WithCodes>,
        is_new: bool,
    ) -> Result<(), TrainError> {
        // A trained GPT keeps its attention and its embeddings.
        measures.diagonal &= is_new;
        measures.codebook_start &= is_new;
        measures.space = self.corpus.tokenizer.space_id();
        if measures.needs_alignments() {
            measures.alignments = Some(self.alignments(&|record| source.codes(record as usize).len())?);
        }
        Ok(())
    }

    /// The tokens that the DVAE's codes have to predict; `None` if they do not.
    fn token_targets(&self, sizes: &Sizes) -> Result<Option<TokenTargets>, TrainError> {
        let weight = self.plan.training.code_token_weight.unwrap_or(0.0);
        if weight <= 0.0 {
            return Ok(None);
        }
        let source = &*self.corpus.source;
        let mel = position(source, DVAE_MEL);
        let alignments =
            self.alignments(&|record| sizes.dvae.codes_of(source.rows(record as usize, mel) as usize))?;
        Ok(Some(TokenTargets { weight, vocabulary: self.corpus.tokenizer.vocabulary_size(), alignments }))
    }

    /// Aligns text and codes of the training clips; `codes_of` returns the number of codes of a record.
    fn alignments(&self, codes_of: &(dyn Fn(u32) -> usize + Sync)) -> Result<Arc<Alignments>, TrainError> {
        self.progress.start("alignment of text and codes", 1);
        let Corpus { source, train, tokenizer, .. } = self.corpus;
        let mut bad = BadRecords::new("alignment", self.feeding.failures.rate, train.len());
        let aligned = Alignments::of(&**source, train, tokenizer, codes_of, &mut bad, &self.stop);
        self.progress.finish();
        let aligned = Arc::new(aligned?);
        bad.message("the alignment of text and codes").iter().for_each(|line| self.progress.say(line));
        Ok(aligned)
    }

    /// The device for what is computed once from all records: audio codes, and the GPT's states over them.
    fn data_machine(&self) -> ComputeDevice {
        match &self.corpus.data_side {
            Some(side) => ComputeDevice::choose(Some(side.device)).unwrap_or(self.machine),
            None => self.machine,
        }
    }

    fn with_codes(&self, model: &Model) -> Result<Arc<WithCodes>, TrainError> {
        let (source, disk) = (&self.corpus.source, disk_from_env());
        let job = JobControl { progress: self.progress, stop: &self.stop };
        let file = CodesFile { disk: &*disk, path: &self.codes };
        let failures = self.feeding.failures;
        let make = || codes_of(&**source, model, self.data_machine(), failures, file, job);
        let codes = match self.ranks {
            None => make()?,
            Some(ranks) => {
                ranks.broadcast(make, |all| codes::encode(all), |bytes| codes::decode(bytes, source.len()))?
            }
        };
        Ok(Arc::new(WithCodes::new(source.clone(), codes)))
    }
}

/// Computes the GPT's states on rank 0 and sends them in pieces to all others, each of which writes them to a temporary file of
/// its own.
fn broadcast_latents(
    ranks: &Ranks,
    make: impl FnOnce() -> Result<LatentFile, TrainError>,
    folder: &Path,
    records: usize,
) -> Result<LatentFile, TrainError> {
    if ranks.is_lead() {
        let made = make()?;
        made.send(|piece| Ok(ranks.broadcast_bytes(Some(piece)).map(drop)?))?;
        return Ok(made);
    }
    let received =
        LatentFile::receive(folder, records, || Ok(ranks.broadcast_bytes(None)?.unwrap_or_default()))?;
    received.ok_or_else(|| {
        let error =
            std::io::Error::new(std::io::ErrorKind::InvalidData, "the states of rank 0 cannot be decoded");
        RankError::Socket(error).into()
    })
}
