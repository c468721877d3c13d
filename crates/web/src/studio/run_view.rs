//! A run as the page shows it, read incrementally from its folder.

use myxtts_monitor::{AttachedRun, RunSample};
use myxtts_run::events::{Event, EventReader};
use myxtts_run::folder::{FolderError, RunFolder};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Maximum points kept per curve; beyond that every second one is dropped.
const MAX_POINTS: usize = 4000;
/// Points per curve in a response.
const SHOWN_POINTS: usize = 600;
/// Maximum samples, validations and messages kept per run; the oldest are dropped.
const MAX_ENTRIES: usize = 600;
/// Maximum runs cached between requests.
const MAX_VIEWS: usize = 64;

/// Cached runs.
#[derive(Default)]
pub struct RunViews(HashMap<String, RunView>);

impl RunViews {
    /// Returns an updated run.
    pub fn get(&mut self, runs: &Path, name: &str) -> Result<&mut RunView, FolderError> {
        let folder = RunFolder::view(runs, name)?;
        if self.0.len() >= MAX_VIEWS && !self.0.contains_key(name) {
            self.0.clear();
        }
        let view = match self.0.remove(name) {
            // A new run of the same name is read from its start.
            Some(view) if view.created == created(folder.path()) => view,
            _ => RunView::new(&folder, AttachedRun::open(runs, name)?),
        };
        let view = self.0.entry(name.to_owned()).or_insert(view);
        view.update();
        Ok(view)
    }
}

/// Creation time of a run folder, as far as the disk knows.
fn created(path: &Path) -> Option<std::time::SystemTime> {
    std::fs::metadata(path.join("request.json")).or_else(|_| std::fs::metadata(path)).ok()?.modified().ok()
}

/// State of one run.
pub struct RunView {
    path: PathBuf,
    created: Option<std::time::SystemTime>,
    events: EventReader,
    attached: AttachedRun,
    /// Latest values and process id.
    pub now: RunSample,
    /// Increases with every change.
    pub revision: u64,
    first: Option<f64>,
    stages: Vec<StageView>,
    samples: Vec<Json>,
    messages: Vec<Json>,
    strategy: Option<Json>,
}

/// State of one stage.
struct StageView {
    name: String,
    steps: Option<u64>,
    described: Json,
    ended: Option<String>,
    chosen: Option<u64>,
    points: Vec<Point>,
    validations: Vec<Json>,
}

struct Point {
    step: u64,
    time: f64,
    values: Vec<(String, f64)>,
}

impl RunView {
    fn new(folder: &RunFolder, attached: AttachedRun) -> RunView {
        RunView {
            path: folder.path().to_owned(),
            created: created(folder.path()),
            events: folder.events(),
            attached,
            now: RunSample::default(),
            revision: 0,
            first: None,
            stages: Vec::new(),
            samples: Vec::new(),
            messages: Vec::new(),
            strategy: None,
        }
    }

    fn update(&mut self) {
        let mut new = Vec::new();
        // A read error is retried on the next request; `now` contains the reason.
        let _ = self.events.read_with(|event| new.push(event));
        for event in &new {
            self.apply(event);
        }
        let now = self.attached.read();
        if now.pid != self.now.pid || now.ended != self.now.ended {
            self.revision += 1;
        }
        self.now = now;
    }

    fn stage(&mut self, name: &str) -> &mut StageView {
        let at = self.stages.iter().position(|stage| stage.name == name).unwrap_or_else(|| {
            self.stages.push(StageView::new(name));
            self.stages.len() - 1
        });
        &mut self.stages[at]
    }

    fn apply(&mut self, event: &Event) {
        self.revision += 1;
        self.first.get_or_insert(event.time);
        let text = |name: &str| event.fields.get(name).and_then(Json::as_str);
        let count = |name: &str| event.fields.get(name).and_then(Json::as_u64);
        let stage = text("stage").unwrap_or_default().to_owned();
        let mut fields = event.fields.clone();
        fields.insert("time".to_owned(), event.time.into());
        match event.kind.as_str() {
            "stage" => {
                let (steps, described) = (count("steps"), event.fields.get("described").cloned());
                let view = self.stage(&stage);
                (view.steps, view.ended, view.chosen) = (steps, None, None);
                view.described = described.unwrap_or(Json::Null);
            }
            "step" => self.stage(&stage).step(event),
            "validation" => {
                let view = self.stage(&stage);
                let step = count("step").unwrap_or(0);
                // A resumed run logs steps again: the last line is valid.
                view.validations.retain(|old| old["step"].as_u64().unwrap_or(0) < step);
                push(&mut view.validations, fields);
            }
            "stage_end" => {
                let (ended, chosen) = (text("ended").map(str::to_owned), count("chosen_step"));
                let view = self.stage(&stage);
                (view.ended, view.chosen) = (ended, chosen);
            }
            "sample" => {
                self.samples.retain(|old| old["file"] != fields["file"]);
                fields.insert(
                    "sentence".to_owned(),
                    sentence_of(text("file").unwrap_or_default(), &stage).into(),
                );
                push(&mut self.samples, fields);
            }
            "strategy" => self.strategy = Some(Json::Object(fields)),
            "advice" | "note" | "fault" | "bad_step" | "exploded_gradient" | "spike" | "settings" => {
                fields.insert("kind".to_owned(), event.kind.as_str().into());
                push(&mut self.messages, fields);
            }
            _ => {}
        }
    }

    /// State of the run: `running`, `finished`, or `stopped`, which includes killed.
    pub fn state(&self) -> &'static str {
        let has_model = self.path.join("model/manifest.json").is_file();
        let is_over = self.stages.last().is_some_and(|stage| stage.ended.is_some());
        match self.now.pid {
            Some(_) => "running",
            None if has_model && is_over => "finished",
            None => "stopped",
        }
    }

    /// JSON for the list of runs.
    pub fn summary(&self, name: &str) -> Json {
        let last = self.stages.last();
        let loss = last.and_then(|stage| stage.points.last()).and_then(|point| point.value("loss"));
        let stages: Map<String, Json> = self
            .stages
            .iter()
            .map(|stage| {
                let scores = stage.validations.iter().filter_map(|one| one["score"].as_f64());
                (stage.name.clone(), json!({ "score": scores.reduce(f64::min), "steps": stage.done() }))
            })
            .collect();
        json!({ "name": name, "state": self.state(), "stage": last.map(|stage| &stage.name),
                "step": last.map(StageView::done), "steps": last.and_then(|stage| stage.steps),
                "loss": loss, "began": self.first, "told": self.now.last_event, "stages": stages })
    }

    /// JSON for the page of one run.
    pub fn details(&self, name: &str) -> Json {
        let mut json = self.summary(name);
        json["revision"] = self.revision.into();
        json["now"] = json!({ "clips_per_second": self.now.clips_per_second, "steps_per_second": self.rate(),
                              "busy": self.now.on_device, "wait": self.now.wait, "unreadable": self.now.unreadable });
        json["parts"] = self.stages.iter().map(StageView::json).collect();
        json["samples"] = self.samples.clone().into();
        json["messages"] = self.messages.clone().into();
        json["strategy"] = self.strategy.clone().unwrap_or(Json::Null);
        json
    }

    /// Steps per second over the last points.
    fn rate(&self) -> Option<f64> {
        let points = &self.stages.last()?.points;
        let (first, last) = (points.get(points.len().saturating_sub(6))?, points.last()?);
        let seconds = last.time - first.time;
        (last.step > first.step && seconds > 0.0).then(|| (last.step - first.step) as f64 / seconds)
    }
}

fn push(list: &mut Vec<Json>, entry: Map<String, Json>) {
    if list.len() >= MAX_ENTRIES {
        list.remove(0);
    }
    list.push(Json::Object(entry));
}

/// Sentence id of a sample: `en_mina_00055` for `gpt-000060-en_mina_00055.wav`; samples of a finished model are named by the
/// sentence alone.
fn sentence_of(file: &str, stage: &str) -> String {
    let name = file.strip_suffix(".wav").unwrap_or(file);
    let rest = name
        .strip_prefix(stage)
        .and_then(|rest| rest.strip_prefix('-'))
        .and_then(|rest| rest.split_once('-'));
    match rest {
        Some((step, sentence)) if step.bytes().all(|b| b.is_ascii_digit()) => sentence.to_owned(),
        _ => name.to_owned(),
    }
}

impl Point {
    fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(one, _)| one == name).map(|(_, value)| *value)
    }
}

impl StageView {
    fn new(name: &str) -> StageView {
        StageView {
            name: name.to_owned(),
            steps: None,
            described: Json::Null,
            ended: None,
            chosen: None,
            points: Vec::new(),
            validations: Vec::new(),
        }
    }

    fn done(&self) -> u64 {
        self.points.last().map_or(0, |point| point.step)
    }

    fn step(&mut self, event: &Event) {
        let Some(step) = event.fields.get("step").and_then(Json::as_u64) else { return };
        while self.points.last().is_some_and(|last| last.step >= step) {
            self.points.pop();
        }
        let mut values = Vec::new();
        for name in ["loss", "gradient", "rate", "clips_per_second", "busy", "wait"] {
            values
                .extend(event.fields.get(name).and_then(Json::as_f64).map(|value| (name.to_owned(), value)));
        }
        if let Some(Json::Object(numbers)) = event.fields.get("numbers") {
            values.extend(
                numbers.iter().filter_map(|(name, value)| Some((format!("numbers.{name}"), value.as_f64()?))),
            );
        }
        if self.points.len() >= MAX_POINTS {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        self.points.push(Point { step, time: event.time, values });
    }

    fn json(&self) -> Json {
        let every = self.points.len().div_ceil(SHOWN_POINTS).max(1);
        let last = self.points.len().saturating_sub(1);
        let shown: Vec<&Point> = self
            .points
            .iter()
            .enumerate()
            .filter(|(i, _)| i % every == 0 || *i == last)
            .map(|(_, point)| point)
            .collect();
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in shown.iter().flat_map(|point| &point.values) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let curves: Map<String, Json> = names
            .into_iter()
            .map(|name| (name.to_owned(), shown.iter().map(|point| json!(point.value(name))).collect()))
            .collect();
        json!({ "stage": self.name, "steps": self.steps, "done": self.done(), "ended": self.ended, "chosen": self.chosen,
                "described": self.described,
                "step": shown.iter().map(|point| point.step).collect::<Vec<_>>(),
                "time": shown.iter().map(|point| point.time).collect::<Vec<_>>(),
                "curves": curves, "validations": self.validations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, fields: Json) -> Event {
        let Json::Object(fields) = fields else { panic!("an object") };
        Event { time: 1.0, kind: kind.to_owned(), fields }
    }

    fn step(step: u64, loss: f64) -> Event {
        event("step", json!({ "stage": "gpt", "step": step, "loss": loss, "numbers": { "text": 1.5 } }))
    }

    #[test]
    fn steps_logged_again_replace_the_earlier_ones() {
        let mut stage = StageView::new("gpt");
        for (at, loss) in [(1, 9.0), (10, 8.0), (20, 7.0), (10, 6.0), (20, 5.0)] {
            stage.step(&step(at, loss));
        }
        let json = stage.json();
        assert_eq!(json["step"], json!([1, 10, 20]));
        assert_eq!(json["curves"]["loss"], json!([9.0, 6.0, 5.0]));
        assert_eq!(json["curves"]["numbers.text"], json!([1.5, 1.5, 1.5]));
    }

    #[test]
    fn a_long_run_uses_bounded_memory() {
        let mut stage = StageView::new("gpt");
        for at in 0..50_000 {
            stage.step(&step(at * 10, 1.0));
        }
        assert!(stage.points.len() <= MAX_POINTS);
        let shown = stage.json()["step"].as_array().unwrap().clone();
        assert!(shown.len() <= SHOWN_POINTS + 1, "{}", shown.len());
        assert_eq!(shown.last().unwrap(), 499_990, "the newest point is always shown");
    }

    #[test]
    fn samples_name_their_sentence() {
        assert_eq!(sentence_of("gpt-000060-en_mina-00055.wav", "gpt"), "en_mina-00055");
        assert_eq!(sentence_of("en_mina_00055.wav", "model"), "en_mina_00055");
        assert_eq!(sentence_of("dvae-x-1.wav", "dvae"), "dvae-x-1");
    }
}
