//! The sweep of `myxtts tune`: what is measured, how often, and what is chosen of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use myxtts_run::config::Tuned;
use myxtts_run::plan::{Plan, Recipe, Stage, TUNABLE, Tuning};
use myxtts_run::progress::Progress;
use myxtts_train::bench::course::Course;
use myxtts_train::bench::{Amount, measure};
use myxtts_train::pipeline::{Corpus, Ground};
use myxtts_train::session::AHEAD;
use myxtts_train::stages::Stage as Trained;
use myxtts_train::tune::facts::Facts;
use myxtts_train::tune::sweep::{self, Cell, NEAR, Part, Row};
use myxtts_train::tune::{race, rules, with_forecast};
use myxtts_train::{Machine, Model};

use super::{Planned, Report, Setting};
use crate::failure::UsageError;
use crate::progress::Terminal;
use crate::settings::Settings;

/// Everything a sweep runs on.
pub struct Sweeper<'a> {
    pub plan: Plan,
    pub corpus: &'a Corpus,
    pub machine: Machine,
    pub home: &'a Path,
    pub facts: Facts,
    pub asked: (Stage, u64),
    pub model: Model,
    pub progress: &'a Terminal,
}

/// Clips of a lap at least, and steps that come before the first lap.
const LAP: usize = 32;
const WARM: u64 = 2;
/// A race goes on for this long, or for [`LEAST_ROUNDS`] where laps are longer; an exhaustive one for all its rounds.
const RACE: Duration = Duration::from_secs(60);
const LEAST_ROUNDS: u64 = 5;
/// Rounds for every step that was asked for. Laps of 0.35 s on two cores of a shared machine varied by 10 %: 60 of them tell
/// ways apart that differ by 3 %. The best of all combinations is also the luckiest, and what a choice is checked by has to
/// be surer than the choice.
const ROUNDS: u64 = 2;
const ROUNDS_OF_ALL: u64 = 4;

impl Sweeper<'_> {
    pub fn sweep(&mut self, exhaustive: bool) -> anyhow::Result<Report> {
        let left_alone: Vec<&'static str> = TUNABLE
            .into_iter()
            .filter(|path| self.plan.value(path).is_some_and(|value| Settings::is_users(&value.origin)))
            .collect();
        let free = |path: &str| !left_alone.contains(&path);
        let rule = self.rule(&left_alone)?;
        let gpt = self.asked.0 == Stage::Gpt;
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
            // In the same rounds as the others: a machine is not equally fast at all times.
            let again = if cells.is_empty() { Vec::new() } else { [vec![at], cells].concat() };
            let more = self.measure(Part::Threads, again, false)?;
            let workers = sweep::smallest_near_best(more.iter().map(|row| (row.cell.workers, row.rate)));
            chosen = Cell { workers: workers.unwrap_or(rule.workers), ..at };
            rows.extend(more);
        }

        let first = rules::first_rows(&self.facts);
        let accumulate = match gpt && free("training.gradient_accumulation_steps") && free("data.batch_size")
        {
            true => sweep::accumulate(first, chosen.batch),
            false => self.plan.training.gradient_accumulation_steps,
        };
        let settings = self.settings(&rows, (chosen, accumulate), first, &free)?;
        for row in &mut rows {
            row.figures.raw.clear();
        }
        Ok(Report {
            device: self.machine.device.to_string(),
            stage: myxtts_train::stages::name(self.asked.0),
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

    /// What the rules would have, with everything open that the user did not set.
    fn rule(&self, left_alone: &[&str]) -> anyhow::Result<Cell> {
        let chosen = self.rules(left_alone)?;
        let of = |path: &str, otherwise: usize| {
            let tuned = chosen.iter().find(|tuned| tuned.path == path);
            tuned.and_then(|tuned| tuned.value.parse().ok()).unwrap_or(otherwise)
        };
        let data = &self.plan.data;
        Ok(Cell {
            batch: of("data.batch_size", data.batch_size),
            workers: of("data.num_workers", data.num_workers),
            prefetch: of("data.prefetch_buffer_size", data.prefetch_buffer_size),
        })
    }

    fn rules(&self, left_alone: &[&str]) -> anyhow::Result<Vec<Tuned>> {
        let mut plan = self.plan.clone();
        // What a command prefers, as the demonstration does, may be tried in other values here.
        let open = TUNABLE.into_iter().filter(|path| !left_alone.contains(path)).map(str::to_owned).collect();
        plan.tuning = Some(Tuning { open, changed: Vec::new() });
        if self.asked.0 != Stage::Gpt {
            return Ok(rules::choose(&self.facts, &plan, None)?);
        }
        Ok(with_forecast(&plan, self.corpus, &[self.machine], &self.model, false, |memory| {
            rules::choose(&self.facts, &plan, Some(memory))
        })?)
    }

    /// Batches that are planned to fit, and those that are not.
    fn fitting(&self, batches: Vec<usize>) -> anyhow::Result<(Vec<usize>, Vec<Planned>)> {
        let budget = rules::budget(&self.facts, self.plan.training.memory_limit).unwrap_or(u64::MAX);
        let planned: Vec<Planned> =
            with_forecast(&self.plan, self.corpus, &[self.machine], &self.model, false, |memory| {
                batches.into_iter().map(|batch| Ok((batch, memory.planned(batch, 1)?))).collect()
            })?;
        let (fit, large): (Vec<_>, Vec<_>) = planned.into_iter().partition(|(_, bytes)| *bytes <= budget);
        if fit.is_empty() {
            return Err(UsageError(format!(
                "no batch is planned to fit {:.1} GB: set data.batch_size, or data.max_seconds to leave out long clips",
                budget as f64 / 1e9
            ))
            .into());
        }
        Ok((fit.into_iter().map(|(batch, _)| batch).collect(), large))
    }

    /// Measures every cell: on a GPU one after the other, on a processor in turns.
    fn measure(&mut self, part: Part, cells: Vec<Cell>, exhaustive: bool) -> anyhow::Result<Vec<Row>> {
        if self.facts.gpu.is_none() {
            return self.race(part, cells, exhaustive);
        }
        let mut rows = Vec::new();
        self.progress.start("tuning", cells.len() as u64);
        for cell in cells {
            let (mut stage, recipe) = self.stage(cell)?;
            // As many clips for every batch size, so that each meets about the same lengths.
            let (least, clips) = (self.asked.1.clamp(2, 6), self.asked.1 * 64);
            let steps = (clips / self.rows(cell) as u64).max(least);
            let amount = Amount { steps, warm: least, ahead: AHEAD, watched: (steps / 3).min(20) };
            let figures = measure(&mut *stage, &recipe, self.plan.training.seed, amount)?;
            rows.push(Row { part, cell, rate: figures.samples_per_second, figures });
            self.progress.advance(1);
        }
        self.progress.finish();
        sweep::even(&mut rows);
        Ok(rows)
    }

    /// All cells at once, as many as memory holds, and each in its turn.
    fn race(&mut self, part: Part, cells: Vec<Cell>, exhaustive: bool) -> anyhow::Result<Vec<Row>> {
        let budget = rules::budget(&self.facts, None).unwrap_or(u64::MAX);
        let bytes = self.bytes(&cells, budget)?;
        let heats = race::heats(&cells, |cell| bytes[&cell.batch], budget);
        let clips = cells.iter().map(|&cell| self.rows(cell)).fold(LAP, usize::max);
        let mut rows: Vec<Row> = Vec::new();
        for heat in heats {
            let mut courses = Vec::new();
            for &cell in &heat {
                let (stage, recipe) = self.stage(cell)?;
                courses.push(Course::new(stage, recipe, self.plan.training.seed, WARM)?);
            }
            let mut rounds = Vec::new();
            let each = if exhaustive { ROUNDS_OF_ALL } else { ROUNDS };
            let (started, most) = (Instant::now(), each * self.asked.1);
            self.progress.start("tuning", most * heat.len() as u64);
            while (rounds.len() as u64) < most
                && (exhaustive || (rounds.len() as u64) < LEAST_ROUNDS || started.elapsed() < RACE)
            {
                let mut laps = vec![Vec::new(); heat.len()];
                let mut turns: Vec<usize> = (0..heat.len()).collect();
                // To and fro: a machine that grows slower through a round does so to each of them in turn.
                if rounds.len() % 2 == 1 {
                    turns.reverse();
                }
                for at in turns {
                    let steps = (clips as f64 / self.rows(heat[at]) as f64).round().max(1.0) as u64;
                    laps[at] = courses[at].lap(steps)?;
                    self.progress.advance(1);
                }
                rounds.push(laps);
            }
            self.progress.finish();
            let rates = race::rates(&rounds);
            // A race after the first begins with the same cell as that, and is put on the same machine by it.
            let scale = rows.first().map_or(1.0, |first| first.rate / rates[0]);
            let known = usize::from(!rows.is_empty());
            for ((cell, course), rate) in heat.iter().zip(&courses).zip(&rates).skip(known) {
                rows.push(Row { part, cell: *cell, rate: rate * scale, figures: course.figures() });
            }
        }
        Ok(rows)
    }

    /// What each batch is planned to take. Of a stage whose batches are not ours to choose, two race at a time.
    fn bytes(&self, cells: &[Cell], budget: u64) -> anyhow::Result<BTreeMap<usize, u64>> {
        let batches = cells.iter().map(|cell| cell.batch);
        if self.asked.0 != Stage::Gpt {
            return Ok(batches.map(|batch| (batch, budget / 2)).collect());
        }
        Ok(with_forecast(&self.plan, self.corpus, &[self.machine], &self.model, false, |memory| {
            batches.map(|batch| Ok((batch, memory.planned(batch, 1)?))).collect()
        })?)
    }

    /// Rows of a step; those of the other stages are about so many.
    fn rows(&self, cell: Cell) -> usize {
        if self.asked.0 == Stage::Gpt { cell.batch } else { 16 }
    }

    fn stage(&mut self, cell: Cell) -> anyhow::Result<(Box<dyn Trained>, Recipe)> {
        let mut plan = self.plan.clone();
        (plan.data.batch_size, plan.data.num_workers) = (cell.batch, cell.workers);
        plan.data.prefetch_buffer_size = cell.prefetch;
        let ground = Ground::of(&plan, self.corpus, self.machine, self.home, self.progress);
        let recipe = plan.recipe(self.asked.0, false);
        Ok((ground.stage(self.asked.0, &recipe, &mut self.model)?, recipe))
    }

    /// What was chosen as settings with their reasons, the user's left out.
    fn settings(
        &self,
        rows: &[Row],
        (chosen, accumulate): (Cell, usize),
        first: usize,
        free: &dyn Fn(&str) -> bool,
    ) -> anyhow::Result<Vec<Setting>> {
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
        let gpt = self.asked.0 == Stage::Gpt;
        let mut settings = Vec::new();
        for (setting, value, reason, said) in [
            ("data.batch_size", chosen.batch, near(Part::Batches, "smallest"), gpt),
            (
                "training.gradient_accumulation_steps",
                accumulate,
                format!("{} clips in a step; {first} are thought of first here", accumulate * chosen.batch),
                gpt && free("data.batch_size"),
            ),
            ("data.num_workers", chosen.workers, near(Part::Threads, "fewest"), true),
            ("data.prefetch_buffer_size", chosen.prefetch, "as the rules have it".to_owned(), gpt),
        ] {
            if free(setting) && said {
                settings.push(Setting { setting, value, reason });
            }
        }
        if let Some(buffer) =
            self.rules(&left_alone)?.into_iter().find(|tuned| tuned.path == "data.buffer_size")
        {
            let value = buffer.value.parse().unwrap_or(self.plan.data.buffer_size);
            settings.push(Setting { setting: "data.buffer_size", value, reason: buffer.reason });
        }
        Ok(settings)
    }
}

/// Of all combinations within reach of the fastest, the one with the smallest batch, fewest threads and shortest buffer.
fn fastest_small(rows: &[Row]) -> Option<Cell> {
    let best = rows.iter().map(|row| row.rate).fold(0.0, f64::max);
    let near = rows.iter().filter(|row| row.rate >= (1.0 - NEAR) * best);
    near.map(|row| row.cell).min_by_key(|cell| (cell.batch, cell.workers, cell.prefetch))
}
