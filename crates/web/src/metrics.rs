//! Counters in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the time-to-first-audio histogram, in seconds.
const BOUNDS: [f64; 12] = [0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// Phase of a round of the speaker thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Split texts into pieces and assign slots.
    Begin,
    /// Queue codes.
    Advance,
    /// Decode audio.
    Sound,
    /// Wait for codes and collect them.
    Collect,
}

impl Work {
    const ALL: [(Work, &str); 4] = [
        (Work::Begin, "begin"),
        (Work::Advance, "advance"),
        (Work::Sound, "sound"),
        (Work::Collect, "collect"),
    ];
}

/// State of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelState {
    /// Its name in the API.
    pub name: String,
    /// Whether it is open, or being opened.
    pub is_open: bool,
    /// Memory when open, in bytes.
    pub bytes: u64,
}

/// Counters since the start of the server.
#[derive(Default)]
pub struct Metrics {
    /// By route and status.
    answers: Mutex<BTreeMap<(&'static str, u16), u64>>,
    audio_microseconds: AtomicU64,
    first_audio_buckets: [AtomicU64; BOUNDS.len() + 1],
    first_audio_microseconds: AtomicU64,
    ended: AtomicU64,
    cancelled: AtomicU64,
    in_flight: AtomicU64,
    rounds: AtomicU64,
    work_microseconds: [AtomicU64; Work::ALL.len()],
}

impl Metrics {
    /// Counts a response.
    pub fn answered(&self, route: &'static str, status: u16) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.entry((route, status)).or_default() += 1;
    }

    /// Records the time from the arrival of a request to its first samples.
    pub fn first_audio(&self, after: Duration) {
        let bucket = BOUNDS.iter().position(|bound| after.as_secs_f64() <= *bound).unwrap_or(BOUNDS.len());
        self.first_audio_buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.first_audio_microseconds.fetch_add(after.as_micros() as u64, Ordering::Relaxed);
    }

    /// Adds seconds of generated audio.
    pub fn add_audio(&self, seconds: f64) {
        self.audio_microseconds.fetch_add((seconds * 1e6).round() as u64, Ordering::Relaxed);
    }

    /// Counts the end of an utterance; `is_cancelled` if its client had disconnected.
    pub fn ended(&self, is_cancelled: bool) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.cancelled.fetch_add(u64::from(is_cancelled), Ordering::Relaxed);
    }

    /// Counts a request that waits or is spoken.
    pub fn request_started(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a request from those that wait or are spoken.
    pub fn request_ended(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of requests that wait or are spoken.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Number of utterances that ended because their clients disconnected.
    pub fn cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Adds time spent in a phase of the speaker thread.
    pub fn worked(&self, work: Work, time: Duration) {
        self.work_microseconds[work as usize].fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Counts a round of the speaker thread.
    pub fn round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// All metrics in Prometheus' text format.
    pub fn text(&self, queue_length: usize, is_ready: bool, models: &[ModelState]) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, rows: &[(String, f64)]| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in rows {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rows = |min_status: u16| -> Vec<(String, f64)> {
            let row = |(&(route, status), &count): (&(&str, u16), &u64)| {
                (format!("{{route=\"{route}\",status=\"{status}\"}}"), count as f64)
            };
            answers.iter().filter(|((_, status), _)| *status >= min_status).map(row).collect()
        };
        let alone = |value: f64| [(String::new(), value)];
        family("myxtts_requests_total", "counter", "Requests answered.", &rows(0));
        family("myxtts_errors_total", "counter", "Requests answered with an error.", &rows(400));
        family("myxtts_queue_length", "gauge", "Requests waiting in the queue.", &alone(queue_length as f64));
        let speaking = (load(&self.in_flight) - queue_length as f64).max(0.0);
        family("myxtts_speaking", "gauge", "Requests being spoken.", &alone(speaking));
        family("myxtts_ready", "gauge", "1 once the model is warm.", &alone(f64::from(u8::from(is_ready))));
        family("myxtts_utterances_total", "counter", "Utterances that ended.", &alone(load(&self.ended)));
        let cancelled = alone(load(&self.cancelled));
        family("myxtts_cancelled_total", "counter", "Utterances whose client disconnected.", &cancelled);
        let seconds = load(&self.audio_microseconds) / 1e6;
        family("myxtts_sound_seconds_total", "counter", "Seconds of audio generated.", &alone(seconds));
        let rows = |value: &dyn Fn(&ModelState) -> f64| -> Vec<(String, f64)> {
            models.iter().map(|model| (format!("{{model={:?}}}", model.name), value(model))).collect()
        };
        let is_open = rows(&|model| f64::from(u8::from(model.is_open)));
        family("myxtts_model_open", "gauge", "1 while the model is in memory.", &is_open);
        let bytes = rows(&|model| if model.is_open { model.bytes as f64 } else { 0.0 });
        family("myxtts_model_bytes", "gauge", "Memory used by the model in bytes.", &bytes);
        family(
            "myxtts_rounds_total",
            "counter",
            "Rounds in which all texts advanced.",
            &alone(load(&self.rounds)),
        );
        let row = |(work, name): (Work, &str)| {
            (format!("{{work=\"{name}\"}}"), load(&self.work_microseconds[work as usize]) / 1e6)
        };
        let rows = Work::ALL.map(row);
        family(
            "myxtts_work_seconds_total",
            "counter",
            "Time spent by the speaker thread, by kind of work.",
            &rows,
        );
        let name = "myxtts_first_sound_seconds";
        let _ =
            writeln!(text, "# HELP {name} Time from a request to its first audio.\n# TYPE {name} histogram");
        let mut sum = 0;
        for (bucket, count) in self.first_audio_buckets.iter().enumerate() {
            sum += count.load(Ordering::Relaxed);
            let bound = BOUNDS.get(bucket).map_or("+Inf".to_owned(), f64::to_string);
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {sum}");
        }
        let total = load(&self.first_audio_microseconds) / 1e6;
        let _ = writeln!(text, "{name}_sum {total}\n{name}_count {sum}");
        text
    }
}
