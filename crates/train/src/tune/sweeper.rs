//! The sweep of `myxtts tune`: measures real steps of a stage with different settings, and chooses among them.

use super::facts::Facts;
use super::sweep::{self, Cell, NEAR, Part, Row};
use super::{race, rules, with_forecast};
use crate::bench::timed_stage::TimedStage;
use crate::bench::{BenchSettings, measure};
use crate::compute_device::ComputeDevice;
use crate::model::Model;
use crate::preferences::is_set_by_user;
use crate::run_error::RunError;
use crate::session::steps_ahead;
use crate::stage_context::StageContext;
use crate::stages::{self, Stage};
use crate::training_data::Corpus;
use myxtts_run::config::Tuned;
use myxtts_run::plan::{Plan, Recipe, StageKind, TUNABLE, Tuning};
use myxtts_run::progress::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Minimum number of clips in a timed segment.
const SEGMENT_CLIPS: usize = 32;
/// Number of steps before the first segment.
const WARM_STEPS: u64 = 2;
/// A race on the CPU ends after this time, or after [`MIN_ROUNDS`] if segments are longer; an exhaustive one runs all its
/// rounds.
const RACE_TIME: Duration = Duration::from_secs(60);
const MIN_ROUNDS: u64 = 5;
/// Number of rounds for every requested step. Segments of 0.35 s on two cores of a shared machine varied by 10 %: 60 of them tell
/// settings apart that differ by 3 %. The best of all combinations is partly best by chance, so an exhaustive
/// sweep, which checks a choice, has more rounds.
const ROUNDS: u64 = 2;
const EXHAUSTIVE_ROUNDS: u64 = 4;
/// Rows of a step of the stages whose batch size cannot be set, roughly.
const OTHER_STAGE_ROWS: usize = 16;

/// The inputs of a sweep.
pub struct Sweeper<'a> {
    /// Settings; other values are tried only of those that the user did not set.
    pub plan: Plan,
    /// The corpus whose batches are measured.
    pub corpus: &'a Corpus,
    /// The device that is measured.
    pub machine: ComputeDevice,
    /// Folder for audio codes.
    pub home: &'a Path,
    /// Cores and memory of the machine.
    pub facts: Facts,
    /// The stage whose steps are timed.
    pub stage: StageKind,
    /// `--steps`: how much is measured for each candidate.
    pub steps: u64,
    /// An untrained model for the stage.
    pub model: Model,
    /// Receives the progress of the sweep.
    pub progress: &'a dyn Progress,
}

/// The result of a sweep. Its serialised form is the output of `myxtts tune --json`.
#[derive(Serialize)]
pub struct SweepReport {
    /// The device that was measured.
    pub device: String,
    /// Name of the stage.
    pub stage: &'static str,
    /// `model.preset`.
    pub preset: String,
    /// Number of training clips.
    pub clips: usize,
    /// Cores and memory of the machine.
    pub facts: Facts,
    /// Whether every combination was measured.
    pub exhaustive: bool,
    /// How the choice is made, in words.
    pub rule: String,
    /// The chosen combination.
    pub chosen: Cell,
    /// `training.gradient_accumulation_steps`.
    pub accumulate: usize,
    /// The chosen settings.
    pub settings: Vec<ChosenSetting>,
    /// Settings that the user set: no other values were tried.
    pub left_alone: Vec<&'static str>,
    /// Batch sizes that are planned not to fit, with the bytes they would take.
    pub too_large: Vec<PlannedBatch>,
    /// Every measurement.
    pub rows: Vec<Row>,
}

/// A batch size, and the memory it is planned to take. Serialised as an array of the two.
#[derive(Clone, Copy, Serialize)]
#[serde(into = "(usize, u64)")]
pub struct PlannedBatch {
    /// `data.batch_size`.
    pub batch_size: usize,
    /// Device memory, in bytes.
    pub bytes: u64,
}

impl From<PlannedBatch> for (usize, u64) {
    fn from(planned: PlannedBatch) -> Self {
        (planned.batch_size, planned.bytes)
    }
}

/// A setting with its chosen value.
#[derive(Serialize)]
pub struct ChosenSetting {
    /// Path of the setting.
    pub setting: &'static str,
    /// The chosen value.
    pub value: usize,
    /// Why this value.
    pub reason: String,
}

impl Sweeper<'_> {
    /// Measures the candidates and chooses among them; every combination if `exhaustive` is set.
    pub fn sweep(&mut self, exhaustive: bool) -> Result<SweepReport, RunError> {
        let left_alone: Vec<&'static str> =
            TUNABLE.into_iter().filter(|path| is_set_by_user(&self.plan, path)).collect();
        let free = |path: &str| !left_alone.contains(&path);
        let rule = self.rule(&left_alone)?;
        let gpt = self.stage == StageKind::Gpt;
        let (batches, too_large) = match gpt && free("data.batch_size") {
            true => self.fitting(sweep::batches(&self.facts, self.corpus.train.len()))?,
            false => (vec![self.plan.data.batch_size], Vec::new()),
        };
        let threads = match free("data.num_workers") {
            true => sweep::workers(&self.facts),
            false => vec![self.plan.data.num_workers],
        };
        let depths = match exhaustive && free("data.prefetch_buffer_size") {
            true => sweep::depths(&self.facts, rule.prefetch),
            false => vec![rule.prefetch],
        };

        let (mut rows, chosen);
        if exhaustive {
            let cells = batches.iter().flat_map(|&batch| {
                let depths = &depths;
                threads.iter().flat_map(move |&workers| {
                    depths.iter().map(move |&prefetch| Cell { batch, workers, prefetch })
                })
            });
            rows = self.measure(Part::Grid, cells.collect(), true)?;
            chosen = fastest_small(&rows).unwrap_or(rule);
        } else {
            rows = self.measure(
                Part::Batches,
                batches.iter().map(|&batch| Cell { batch, ..rule }).collect(),
                false,
            )?;
            let batch = sweep::smallest_near_best(rows.iter().map(|row| (row.cell.batch, row.rate)));
            let at = Cell { batch: batch.unwrap_or(rule.batch), ..rule };
            let others = threads.iter().filter(|&&workers| workers != rule.workers);
            let cells: Vec<Cell> = others.map(|&workers| Cell { workers, ..at }).collect();
            // In the same rounds as the others, since the speed of a machine varies.
            let again = if cells.is_empty() { Vec::new() } else { [vec![at], cells].concat() };
            let more = self.measure(Part::Threads, again, false)?;
            let workers = sweep::smallest_near_best(more.iter().map(|row| (row.cell.workers, row.rate)));
            chosen = Cell { workers: workers.unwrap_or(rule.workers), ..at };
            rows.extend(more);
        }

        let initial = rules::first_rows(&self.facts);
        let accumulate = match gpt && free("training.gradient_accumulation_steps") && free("data.batch_size")
        {
            true => sweep::accumulate(initial, chosen.batch),
            false => self.plan.training.gradient_accumulation_steps,
        };
        let settings = self.settings(&rows, (chosen, accumulate), initial, &free)?;
        for row in &mut rows {
            row.figures.raw.clear();
        }
        Ok(SweepReport {
            device: self.machine.device.to_string(),
            stage: stages::name(self.stage),
            preset: format!("{:?}", self.plan.model.preset).to_lowercase(),
            clips: self.corpus.train.len(),
            facts: self.facts.clone(),
            exhaustive,
            rule: format!(
                "the smallest batch, then the fewest threads, within {:.0} % of the fastest",
                NEAR * 100.0
            ),
            chosen,
            accumulate,
            settings,
            left_alone,
            too_large,
            rows,
        })
    }

    /// The combination that the rules choose without measuring, for all settings that the user did not make.
    fn rule(&self, left_alone: &[&str]) -> Result<Cell, RunError> {
        let chosen = self.rules(left_alone)?;
        let value = |path: &str, otherwise: usize| {
            let tuned = chosen.iter().find(|tuned| tuned.path == path);
            tuned.and_then(|tuned| tuned.value.parse().ok()).unwrap_or(otherwise)
        };
        let data = &self.plan.data;
        Ok(Cell {
            batch: value("data.batch_size", data.batch_size),
            workers: value("data.num_workers", data.num_workers),
            prefetch: value("data.prefetch_buffer_size", data.prefetch_buffer_size),
        })
    }

    fn rules(&self, left_alone: &[&str]) -> Result<Vec<Tuned>, RunError> {
        let mut plan = self.plan.clone();
        // Values that training prefers, such as those of the demo, may be tried with others here.
        let pending =
            TUNABLE.into_iter().filter(|path| !left_alone.contains(path)).map(str::to_owned).collect();
        plan.tuning = Some(Tuning { pending, changed: Vec::new() });
        if self.stage != StageKind::Gpt {
            return Ok(rules::choose(&self.facts, &plan, None)?);
        }
        Ok(with_forecast(&plan, self.corpus, &[self.machine], &self.model, false, |memory| {
            rules::choose(&self.facts, &plan, Some(memory))
        })?)
    }

    /// Batch sizes that are planned to fit the memory, and those that are not.
    fn fitting(&self, batches: Vec<usize>) -> Result<(Vec<usize>, Vec<PlannedBatch>), RunError> {
        let budget = rules::budget(&self.facts, self.plan.training.memory_limit).unwrap_or(u64::MAX);
        let planned: Vec<PlannedBatch> =
            with_forecast(&self.plan, self.corpus, &[self.machine], &self.model, false, |memory| {
                batches
                    .into_iter()
                    .map(|batch_size| Ok(PlannedBatch { batch_size, bytes: memory.planned(batch_size, 1)? }))
                    .collect()
            })?;
        let (fit, large): (Vec<_>, Vec<_>) = planned.into_iter().partition(|planned| planned.bytes <= budget);
        if fit.is_empty() {
            return Err(RunError::NoBatchFits { bytes: budget });
        }
        Ok((fit.into_iter().map(|planned| planned.batch_size).collect(), large))
    }

    /// Measures every cell: on a GPU one after the other, on the CPU in turns.
    fn measure(&mut self, part: Part, cells: Vec<Cell>, exhaustive: bool) -> Result<Vec<Row>, RunError> {
        if self.facts.gpu.is_none() {
            return self.race(part, cells, exhaustive);
        }
        let mut rows = Vec::new();
        self.progress.start("tuning", cells.len() as u64);
        for cell in cells {
            let (mut stage, recipe) = self.stage(cell)?;
            // The same number of clips for every batch size, so that each gets about the same lengths.
            let (least, clips) = (self.steps.clamp(2, 6), self.steps * 64);
            let steps = (clips / self.rows(cell) as u64).max(least);
            let ahead = steps_ahead(&self.plan, true);
            let amount = BenchSettings { steps, warm: least, ahead, profiled: (steps / 3).min(20) };
            let figures = measure(&mut *stage, &recipe, self.plan.training.seed, amount)?;
            rows.push(Row { part, cell, rate: figures.samples_per_second, figures });
            self.progress.advance(1);
        }
        self.progress.finish();
        sweep::even(&mut rows);
        Ok(rows)
    }

    /// Opens as many cells at once as memory holds, and times each in its turn.
    fn race(&mut self, part: Part, cells: Vec<Cell>, exhaustive: bool) -> Result<Vec<Row>, RunError> {
        let budget = rules::budget(&self.facts, None).unwrap_or(u64::MAX);
        let bytes = self.bytes(&cells, budget)?;
        let groups = race::memory_groups(&cells, |cell| bytes[&cell.batch], budget);
        let clips = cells.iter().map(|&cell| self.rows(cell)).fold(SEGMENT_CLIPS, usize::max);
        let mut rows: Vec<Row> = Vec::new();
        for group in groups {
            let mut timed = Vec::new();
            for &cell in &group {
                let (stage, recipe) = self.stage(cell)?;
                timed.push(TimedStage::new(stage, recipe, self.plan.training.seed, WARM_STEPS)?);
            }
            let mut rounds = Vec::new();
            let each = if exhaustive { EXHAUSTIVE_ROUNDS } else { ROUNDS };
            let (started, most) = (Instant::now(), each * self.steps);
            self.progress.start("tuning", most * group.len() as u64);
            while (rounds.len() as u64) < most
                && (exhaustive || (rounds.len() as u64) < MIN_ROUNDS || started.elapsed() < RACE_TIME)
            {
                let mut segments = vec![Vec::new(); group.len()];
                let mut turns: Vec<usize> = (0..group.len()).collect();
                // Forwards and backwards: a machine that grows slower during a round slows each of them in turn.
                if rounds.len() % 2 == 1 {
                    turns.reverse();
                }
                for at in turns {
                    let steps = (clips as f64 / self.rows(group[at]) as f64).round().max(1.0) as u64;
                    segments[at] = timed[at].segment(steps)?;
                    self.progress.advance(1);
                }
                rounds.push(segments);
            }
            self.progress.finish();
            let rates = race::rates(&rounds);
            // A later race begins with the same cell as the first, which puts its rates on the same scale.
            let scale = rows.first().map_or(1.0, |first| first.rate / rates[0]);
            let known = usize::from(!rows.is_empty());
            for ((cell, timed), rate) in group.iter().zip(&timed).zip(&rates).skip(known) {
                rows.push(Row { part, cell: *cell, rate: rate * scale, figures: timed.figures() });
            }
        }
        Ok(rows)
    }

    /// The bytes that each batch size is planned to take. Of a stage whose batch size cannot be set, two race at a time.
    fn bytes(&self, cells: &[Cell], budget: u64) -> Result<BTreeMap<usize, u64>, RunError> {
        let batches = cells.iter().map(|cell| cell.batch);
        if self.stage != StageKind::Gpt {
            return Ok(batches.map(|batch| (batch, budget / 2)).collect());
        }
        Ok(with_forecast(&self.plan, self.corpus, &[self.machine], &self.model, false, |memory| {
            batches.map(|batch| Ok((batch, memory.planned(batch, 1)?))).collect()
        })?)
    }

    /// Rows of a step.
    fn rows(&self, cell: Cell) -> usize {
        if self.stage == StageKind::Gpt { cell.batch } else { OTHER_STAGE_ROWS }
    }

    fn stage(&mut self, cell: Cell) -> Result<(Box<dyn Stage>, Recipe), RunError> {
        let mut plan = self.plan.clone();
        (plan.data.batch_size, plan.data.num_workers) = (cell.batch, cell.workers);
        plan.data.prefetch_buffer_size = cell.prefetch;
        let context = StageContext::of(&plan, self.corpus, self.machine, self.home, self.progress);
        let recipe = plan.recipe(self.stage, false);
        Ok((context.stage(self.stage, &recipe, &mut self.model)?, recipe))
    }

    /// The choice as settings with their reasons, without those that the user made.
    fn settings(
        &self,
        rows: &[Row],
        (chosen, accumulate): (Cell, usize),
        initial: usize,
        free: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<ChosenSetting>, RunError> {
        let left_alone: Vec<&str> = TUNABLE.into_iter().filter(|path| !free(path)).collect();
        let near = |part: Part, how: &str| {
            let tried = rows.iter().filter(|row| row.part == part || row.part == Part::Grid);
            match tried.map(|row| row.rate).reduce(f64::max) {
                Some(best) => {
                    let share = NEAR * 100.0;
                    format!("the {how} within {share:.0} % of the fastest measured, {best:.1} clips/s")
                }
                None => "there was no other to try".to_owned(),
            }
        };
        let gpt = self.stage == StageKind::Gpt;
        let mut settings = Vec::new();
        for (setting, value, reason, is_listed) in [
            ("data.batch_size", chosen.batch, near(Part::Batches, "smallest"), gpt),
            (
                "training.gradient_accumulation_steps",
                accumulate,
                format!("{} clips in a step; initial guess: {initial}", accumulate * chosen.batch),
                gpt && free("data.batch_size"),
            ),
            ("data.num_workers", chosen.workers, near(Part::Threads, "fewest"), true),
            ("data.prefetch_buffer_size", chosen.prefetch, "chosen by rule, not measured".to_owned(), gpt),
        ] {
            if free(setting) && is_listed {
                settings.push(ChosenSetting { setting, value, reason });
            }
        }
        if let Some(buffer) =
            self.rules(&left_alone)?.into_iter().find(|tuned| tuned.path == "data.buffer_size")
        {
            let value = buffer.value.parse().unwrap_or(self.plan.data.buffer_size);
            settings.push(ChosenSetting { setting: "data.buffer_size", value, reason: buffer.reason });
        }
        Ok(settings)
    }
}

/// Of all combinations near the fastest, the one with the smallest batch, fewest threads and shortest buffer.
fn fastest_small(rows: &[Row]) -> Option<Cell> {
    let best = rows.iter().map(|row| row.rate).fold(0.0, f64::max);
    let near = rows.iter().filter(|row| row.rate >= (1.0 - NEAR) * best);
    near.map(|row| row.cell).min_by_key(|cell| (cell.batch, cell.workers, cell.prefetch))
}
