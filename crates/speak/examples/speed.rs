//! Measures how fast a model speaks: time to first audio, one utterance, a book with all slots busy, and the memory of many
//! utterances. Prints one line of JSON for each measurement, with times in seconds. A model with random weights does not stop by
//! itself, so every time is printed with its codes and seconds of audio.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use myxtts_model::weights::ModelFolder;
use myxtts_speak::{AudibleStart, Decoding, SpeakOptions, Synthesizer, Voice, Waveform};
use myxtts_tensor::Device;
use myxtts_tensor::cuda::cupti::{KernelTimes, by_name};
use myxtts_tensor::random::Stream;
use serde_json::{Value, json};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const USAGE: &str = "\
usage: speed MODEL [options]
  --cpu                 on the CPU
  --at-once 64          slots of the book
  --book 256            texts of the book
  --codes 140           most codes of an utterance: 6.5 s of audio, about 100 characters
  --repeat 10           utterances of each kind
  --utterances 0        short utterances to measure memory over
  --kernels             the kernels of a book by CUPTI
  --language en";

/// A text of 100 characters.
const SENTENCE: &str =
    "She opened the old wooden door, and the warm smell of bread came out of the little shop on a bad day";

struct Options {
    model: String,
    device: Device,
    slots: usize,
    book: usize,
    codes: usize,
    repeat: usize,
    utterances: usize,
    kernels: bool,
    language: String,
}

fn options() -> Outcome<Options> {
    let mut words = std::env::args().skip(1);
    let model = words.next().ok_or(USAGE)?;
    let mut o = Options {
        model,
        device: Device::Cuda(0),
        slots: 64,
        book: 256,
        codes: 140,
        repeat: 10,
        utterances: 0,
        kernels: false,
        language: "en".to_owned(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--cpu" => o.device = Device::Cpu,
            "--at-once" => o.slots = value()?.parse()?,
            "--book" => o.book = value()?.parse()?,
            "--codes" => o.codes = value()?.parse()?,
            "--repeat" => o.repeat = value()?.parse()?,
            "--utterances" => o.utterances = value()?.parse()?,
            "--kernels" => o.kernels = true,
            "--language" => o.language = value()?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(o)
}

fn main() -> Outcome {
    let o = options()?;
    let start = Instant::now();
    let folder = ModelFolder::open(Path::new(&o.model))?;
    let mut one = Synthesizer::open_for(&folder, o.device, Decoding::Fast { slots: 1 })?;
    let opened = start.elapsed().as_secs_f64();
    one.prepare_streaming()?;
    let prepared = start.elapsed().as_secs_f64();
    let voice = random_voice(&one);
    let mut speech = SpeakOptions::from(one.default_sampling());
    speech.retries = 0;
    speech.sampling.max_codes = o.codes;
    let first = one.speak_streamed(SENTENCE, &o.language, &voice, &speech, &mut |_| true)?;
    let ready = start.elapsed().as_secs_f64();
    show(
        "ready",
        json!({ "open_s": opened, "windows_s": prepared - opened, "ready_s": ready, "codes": first.codes }),
    );
    streamed(&o, &mut one, &voice, &speech)?;
    agree(&o, &mut one, &folder, &voice, &speech)?;
    whole(&o, &mut one, &voice, &speech)?;
    memory(&o, &mut one, &voice, &speech)?;
    drop(one);
    book(&o, &folder, &voice, &speech)
}

fn show(what: &str, figures: Value) {
    let mut line = json!({ "measured": what });
    if let (Some(line), Value::Object(figures)) = (line.as_object_mut(), figures) {
        line.extend(figures);
    }
    println!("{line}");
}

/// A random voice.
fn random_voice(synthesizer: &Synthesizer) -> Voice {
    let (width, speaker) = synthesizer.voice_sizes();
    let mut stream = Stream::new(7);
    let conditioning = stream.normals(synthesizer.latents() * width);
    let mut vector = stream.normals(speaker);
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-6);
    vector.iter_mut().for_each(|x| *x /= length);
    Voice { conditioning, speaker: (speaker > 0).then_some(vector) }
}

/// Minimum, median and maximum.
fn range(mut numbers: Vec<f64>) -> Value {
    numbers.sort_by(f64::total_cmp);
    match numbers[..] {
        [] => Value::Null,
        _ => json!([numbers[0], numbers[numbers.len() / 2], numbers[numbers.len() - 1]]),
    }
}

fn sound_s(spoken: &Waveform) -> f64 {
    spoken.samples.len() as f64 / f64::from(spoken.rate)
}

/// Streaming: times to the first samples, to the first audible ones, and to the last.
fn streamed(o: &Options, synthesizer: &mut Synthesizer, voice: &Voice, speech: &SpeakOptions) -> Outcome {
    for audible_start in [None, Some(AudibleStart::default())] {
        let (mut first, mut factor, mut late, mut codes) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for seed in 0..o.repeat as u64 {
            let mut speech = SpeakOptions { audible_start, ..speech.clone() };
            speech.sampling.seed = seed;
            let start = Instant::now();
            let (mut began, mut given, mut latest) = (None, 0usize, f64::NEG_INFINITY);
            let spoken =
                synthesizer.speak_streamed(SENTENCE, &o.language, voice, &speech, &mut |samples| {
                    let now = start.elapsed().as_secs_f64();
                    let since = *began.get_or_insert(now);
                    // Delay of a chunk after the end of the audio before it, if playback had started with the first chunk.
                    latest = latest.max(now - since - given as f64 / 24_000.0);
                    given += samples.len();
                    true
                })?;
            first.extend(began);
            factor.push(start.elapsed().as_secs_f64() / sound_s(&spoken).max(1e-9));
            late.push(latest);
            codes += spoken.codes;
        }
        show(
            "streamed",
            json!({
                "silence_cut": audible_start.is_some(), "characters": SENTENCE.chars().count(),
                "first_sound_s": range(first), "real_time_factor": range(factor), "latest_piece_s": range(late),
                "codes_each": codes / o.repeat.max(1),
            }),
        );
    }
    Ok(())
}

/// Largest difference of streamed and batched audio from that of the text spoken alone.
fn agree(
    o: &Options,
    one: &mut Synthesizer,
    folder: &ModelFolder,
    voice: &Voice,
    speech: &SpeakOptions,
) -> Outcome {
    const TEXTS: [&str; 4] = [SENTENCE, "Yes.", "A little longer than that, but not by much.", SENTENCE];
    let texts: Vec<(&str, u64)> = TEXTS.iter().zip(5..).map(|(text, seed)| (*text, seed)).collect();
    let apart = |a: &[f32], b: &[f32]| match a.len() == b.len() {
        true => a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max),
        false => f64::INFINITY,
    };
    let mut many = Synthesizer::open_for(folder, o.device, Decoding::Fast { slots: 3 })?;
    let spoken = many.speak_many(&texts, &o.language, voice, speech)?;
    let (mut streamed, mut together, mut most) = (0.0f64, 0.0f64, 0.0f64);
    for ((text, seed), spoken) in texts.iter().zip(spoken) {
        let mut speech = speech.clone();
        speech.sampling.seed = *seed;
        let alone = one.speak_with(text, &o.language, voice, &speech)?;
        let mut pieces = Vec::new();
        one.speak_streamed(text, &o.language, voice, &speech, &mut |samples| {
            pieces.extend_from_slice(samples);
            true
        })?;
        streamed = streamed.max(apart(&alone.samples, &pieces));
        together = together.max(apart(&alone.samples, &spoken?.samples));
        most = alone.samples.iter().fold(most, |most, sample| most.max(f64::from(sample.abs())));
    }
    show("agree", json!({ "loudest": most, "streamed_apart": streamed, "together_apart": together }));
    Ok(())
}

/// One utterance at a time, with its waveform.
fn whole(o: &Options, synthesizer: &mut Synthesizer, voice: &Voice, speech: &SpeakOptions) -> Outcome {
    let (mut factor, mut codes, mut seconds) = (Vec::new(), 0, 0.0);
    for seed in 0..o.repeat as u64 {
        let mut speech = speech.clone();
        speech.sampling.seed = seed;
        let start = Instant::now();
        let spoken = synthesizer.speak_with(SENTENCE, &o.language, voice, &speech)?;
        factor.push(start.elapsed().as_secs_f64() / sound_s(&spoken).max(1e-9));
        codes += spoken.codes;
        seconds += sound_s(&spoken);
    }
    let each = o.repeat.max(1);
    show(
        "utterance",
        json!({ "real_time_factor": range(factor), "codes_each": codes / each, "sound_s_each": seconds / each as f64 }),
    );
    Ok(())
}

/// Memory of the process and of the device over many short texts.
fn memory(o: &Options, synthesizer: &mut Synthesizer, voice: &Voice, speech: &SpeakOptions) -> Outcome {
    let (mut first, mut last) = (Value::Null, Value::Null);
    for number in 0..o.utterances {
        let mut speech = speech.clone();
        speech.sampling.seed = number as u64;
        let words = SENTENCE.split(' ').cycle().skip(number % 7).take(3 + number % 5);
        synthesizer.speak_with(&words.collect::<Vec<_>>().join(" "), &o.language, voice, &speech)?;
        if number == o.utterances / 10 || number + 1 == o.utterances {
            last = json!({ "after": number + 1, "host_kib": resident_kib(), "device_bytes": synthesizer.device_bytes() });
            if first.is_null() {
                first = last.clone();
            }
        }
    }
    if o.utterances > 0 {
        show("memory", json!({ "utterances": o.utterances, "early": first, "late": last }));
    }
    Ok(())
}

fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Many texts, with all slots busy.
fn book(o: &Options, folder: &ModelFolder, voice: &Voice, speech: &SpeakOptions) -> Outcome {
    if o.book == 0 {
        return Ok(());
    }
    let mut many = Synthesizer::open_for(folder, o.device, Decoding::Fast { slots: o.slots })?;
    let texts: Vec<(&str, u64)> = (0..o.book as u64).map(|seed| (SENTENCE, seed)).collect();
    // Captures every program once.
    many.speak_many(&texts[..o.book.min(2 * o.slots)], &o.language, voice, speech)?;
    many.speak_many(&texts[..o.book.min(o.slots)], &o.language, voice, speech)?;
    for _ in 0..o.repeat.min(3) {
        let start = Instant::now();
        let spoken = many.speak_many(&texts, &o.language, voice, speech)?;
        let took = start.elapsed().as_secs_f64();
        let spoken: Vec<Waveform> = spoken.into_iter().collect::<Result<_, _>>()?;
        let seconds: f64 = spoken.iter().map(sound_s).sum();
        let codes: usize = spoken.iter().map(|one| one.codes).sum();
        show(
            "book",
            json!({
                "at_once": many.slots(), "texts": o.book, "codes": codes, "sound_s": seconds, "took_s": took,
                "real_time_factor": took / seconds.max(1e-9), "codes_per_s": codes as f64 / took,
            }),
        );
    }
    if o.kernels {
        let times = KernelTimes::start()?;
        many.speak_many(&texts[..o.book.min(o.slots)], &o.language, voice, speech)?;
        let records = times.stop()?.records;
        let mut table: Vec<_> = by_name(&records).into_iter().collect();
        table.sort_by_key(|(_, _, ns)| std::cmp::Reverse(*ns));
        let table: Vec<Value> = table
            .into_iter()
            .take(24)
            .map(|(name, count, ns)| json!([name.to_string(), count, ns as f64 / 1e6]))
            .collect();
        show("kernels", json!({ "kernel_count_ms": table }));
    }
    Ok(())
}
