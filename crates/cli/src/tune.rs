//! `myxtts tune`: a short sweep on the real steps of a stage, and the settings that come of it.

use std::path::{Path, PathBuf};

use myxtts_run::config::{Key, Section, Tuned};
use myxtts_run::exit::Exit;
use myxtts_run::plan::{Plan, Stage, TUNABLE, Tuning};
use myxtts_run::progress::Progress;
use myxtts_train::bench::{Amount, Figures, measure};
use myxtts_train::pipeline::{Corpus, Ground};
use myxtts_train::session::AHEAD;
use myxtts_train::tune::facts::Facts;
use myxtts_train::tune::sweep::{self, Cell, NEAR, Part, Row};
use myxtts_train::tune::{rules, with_forecast};
use myxtts_train::{Machine, Model};
use serde::Serialize;

use crate::corpus;
use crate::failure::UsageError;
use crate::output::{print, print_json};
use crate::progress::Terminal;
use crate::settings::Settings;
use crate::train::{device, open_corpus, prefer_demo, read, stage};

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folder or metadata file; the built-in demo corpus where none is named
    corpus: Option<PathBuf>,
    /// The stage to run; only the GPT's batches have a size that can be set
    #[arg(long, value_name = "STAGE", value_parser = stage, default_value = "gpt")]
    stage: Stage,
    /// How much is measured each time: as many clips as so many steps of 16 have, of 64 on a GPU
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    steps: u64,
    /// Where to run: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Measure every combination of batch size, threads and buffers, to check the choice by
    #[arg(long)]
    exhaustive: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Write what was chosen as a file for `--config`
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Serialize)]
struct Report {
    device: String,
    stage: &'static str,
    preset: String,
    clips: usize,
    facts: Facts,
    exhaustive: bool,
    /// How the choice is made.
    rule: String,
    chosen: Cell,
    accumulate: usize,
    settings: Vec<Setting>,
    /// Settings the user made: they were not tried in other values.
    left_alone: Vec<&'static str>,
    /// Batches that are planned not to fit, with the bytes they would take.
    too_large: Vec<Planned>,
    rows: Vec<Row>,
}

/// A batch and the bytes it is planned to take.
type Planned = (usize, u64);

#[derive(Serialize)]
struct Setting {
    setting: &'static str,
    value: usize,
    reason: String,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if let Some(path) = args.write.as_ref().filter(|path| path.exists()) {
        // Now, and not after two minutes of measuring.
        return Err(UsageError(format!("{} is there already: name another file", path.display())).into());
    }
    let machine = Machine::choose(device(&args.device)?)?;
    let mut settings = args.settings.clone();
    settings.set_path("CORPUS", "data.train_data", args.corpus.as_deref())?;
    prefer_demo(&mut settings, machine)?;
    let plan = settings.resolve()?;
    let progress = Terminal::new();
    let corpus = open_corpus(&plan, None, None, &progress)?;
    let home = corpus::cache_of(&read(&plan, &progress)?, &plan.data);
    let facts = Facts::of(&[machine])?;
    let model = Ground::of(&plan, &corpus, machine, &home, &progress).untrained(args.stage)?;
    let asked = (args.stage, args.steps);
    let mut sweeper =
        Sweeper { plan, corpus: &corpus, machine, home: &home, facts, asked, model, progress: &progress };
    let report = sweeper.sweep(args.exhaustive)?;
    if let Some(path) = &args.write {
        myxtts_run::durable::write(path, yaml(&report).as_bytes())?;
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&text(&report, args.write.as_deref()))?;
    }
    Ok(Exit::Done)
}

/// Everything a sweep runs on.
struct Sweeper<'a> {
    plan: Plan,
    corpus: &'a Corpus,
    machine: Machine,
    home: &'a Path,
    facts: Facts,
    asked: (Stage, u64),
    model: Model,
    progress: &'a Terminal,
}

/// On the H200's machine the same steps on two of its cores took 41 ms in one round and 61 in the next.
const ROUNDS: u64 = 5;

impl Sweeper<'_> {
    fn sweep(&mut self, exhaustive: bool) -> anyhow::Result<Report> {
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
            rows = self.measure(Part::Grid, cells.collect())?;
            chosen = fastest_small(&rows).unwrap_or(rule);
        } else {
            rows =
                self.measure(Part::Batches, batches.iter().map(|&batch| Cell { batch, ..rule }).collect())?;
            let batch = sweep::smallest_near_best(rows.iter().map(|row| (row.cell.batch, row.rate)));
            let at = Cell { batch: batch.unwrap_or(rule.batch), ..rule };
            let others = threads.iter().filter(|&&workers| workers != rule.workers);
            let cells: Vec<Cell> = others.map(|&workers| Cell { workers, ..at }).collect();
            // In the same rounds as the others: a machine is not equally fast at all times.
            let again = if cells.is_empty() { Vec::new() } else { [vec![at], cells].concat() };
            let more = self.measure(Part::Threads, again)?;
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

    /// Measures every cell, on a processor in several rounds of which the best counts: there others compute as well, and
    /// clocks rise and fall.
    fn measure(&mut self, part: Part, cells: Vec<Cell>) -> anyhow::Result<Vec<Row>> {
        let rounds: u64 = if self.facts.gpu.is_some() { 1 } else { ROUNDS };
        let mut rows: Vec<Row> = Vec::new();
        self.progress.start("tuning", rounds * cells.len() as u64);
        for _ in 0..rounds {
            for &cell in &cells {
                let figures = self.figures(cell, rounds)?;
                let rate = figures.samples_per_second;
                match rows.iter_mut().find(|row| row.cell == cell) {
                    Some(row) if row.figures.samples_per_second >= rate => {}
                    Some(row) => row.figures = figures,
                    None => rows.push(Row { part, cell, rate, figures }),
                }
                self.progress.advance(1);
            }
        }
        self.progress.finish();
        sweep::even(&mut rows, &self.facts);
        Ok(rows)
    }

    fn figures(&mut self, cell: Cell, rounds: u64) -> anyhow::Result<Figures> {
        let (kind, steps) = self.asked;
        let mut plan = self.plan.clone();
        (plan.data.batch_size, plan.data.num_workers) = (cell.batch, cell.workers);
        plan.data.prefetch_buffer_size = cell.prefetch;
        let ground = Ground::of(&plan, self.corpus, self.machine, self.home, self.progress);
        let recipe = plan.recipe(kind, false);
        let mut stage = ground.stage(kind, &recipe, &mut self.model)?;
        // As many clips for every batch size, so that each meets about the same lengths.
        let clips = steps * if self.facts.gpu.is_some() { 64 } else { 16 };
        let rows = if kind == Stage::Gpt { cell.batch as u64 } else { 16 };
        let least = steps.clamp(2, if self.facts.gpu.is_some() { 6 } else { 3 });
        let steps = (clips / rounds / rows).max(least);
        let warm = if self.facts.gpu.is_some() { least } else { 2 };
        let amount = Amount { steps, warm, ahead: AHEAD, watched: (steps / 3).min(20) };
        Ok(measure(&mut *stage, &recipe, plan.training.seed, amount)?)
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

/// A file for `--config`.
fn yaml(report: &Report) -> String {
    let mut text = format!(
        "# Measured by `myxtts tune`: {} on {}, preset {}, {} clips. {}.\n",
        report.stage, report.device, report.preset, report.clips, report.rule
    );
    if !report.left_alone.is_empty() {
        text.push_str(&format!("# Set by you, and left to you: {}.\n", report.left_alone.join(", ")));
    }
    for section in Section::ALL {
        let own = |setting: &&Setting| Key::find(setting.setting).is_some_and(|key| key.section() == section);
        let mut settings = report.settings.iter().filter(own).peekable();
        if settings.peek().is_some() {
            text.push_str(&format!("{}:\n", section.name()));
        }
        for Setting { setting, value, reason } in settings {
            let name = setting.rsplit('.').next().unwrap_or(setting);
            text.push_str(&format!("  # {reason}\n  {name}: {value}\n"));
        }
    }
    text
}

fn text(report: &Report, written: Option<&Path>) -> String {
    let mut text = format!(
        "{} on {}: {}, {} clips, {} cores\n{:>6} {:>8} {:>9} {:>9} {:>9} {:>10} {:>7} {:>7}\n",
        report.stage,
        report.device,
        report.preset,
        report.clips,
        report.facts.cores,
        "batch",
        "threads",
        "buffers",
        "clips/s",
        "step ms",
        "planned",
        "waits",
        "busy"
    );
    for Row { cell, rate, figures, .. } in &report.rows {
        let mark = if *cell == report.chosen { "  <" } else { "" };
        let share = |share: f64| format!("{:.1} %", share * 100.0);
        text.push_str(&format!(
            "{:>6} {:>8} {:>9} {rate:>9.1} {:>9.2} {:>10} {:>7} {:>7}{mark}\n",
            cell.batch,
            cell.workers,
            cell.prefetch,
            figures.step_ms,
            crate::output::size(figures.planned_bytes),
            share(figures.wait_share),
            figures.busy.map_or_else(|| "-".to_owned(), share),
        ));
    }
    for (batch, bytes) in &report.too_large {
        text.push_str(&format!(
            "{batch:>6} is planned to take {} and does not fit\n",
            crate::output::size(*bytes)
        ));
    }
    text.push_str(&format!("chosen: {}\n", report.rule));
    for Setting { setting, value, reason } in &report.settings {
        text.push_str(&format!("  {setting} = {value}  ({reason})\n"));
    }
    if !report.left_alone.is_empty() {
        text.push_str(&format!("set by you, and left alone: {}\n", report.left_alone.join(", ")));
    }
    match written {
        Some(path) => text.push_str(&format!("next:   myxtts train CORPUS --config {}\n", path.display())),
        None => {
            text.push_str("next:   the same with --write FILE, then `myxtts train CORPUS --config FILE`\n")
        }
    }
    text
}
