//! Measures how fast one core computes log-mels from audio: the Rust side of `bench/front_end/`.
//!
//! `front_end_rate FOLDER` takes folders `wav22`, `wav44`, `flac` and `mp3` inside it, each with the same
//! clips in the same order. It waits for lines `TASK NUMBER` on standard input, does the task once for
//! that file, and answers with the nanoseconds it took: a driver can take turns between this and others.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use myxtts_data::audio::{Clip, Resampler, decode, trim_silence};
use myxtts_data::mel::{FrontEnd, MelExtractor};

fn main() {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("usage: front_end_rate FOLDER"));
    let [wav22, wav44, flac, mp3] = ["wav22", "wav44", "flac", "mp3"].map(|name| list(&folder.join(name)));
    let clips22: Vec<Clip> = wav22.iter().map(|path| load(path)).collect();
    let clips44: Vec<Clip> = wav44.iter().map(|path| load(path)).collect();
    let mut dvae = MelExtractor::new(FrontEnd::Dvae);
    let mut conditioning = MelExtractor::new(FrontEnd::Conditioning);
    let mut speaker = MelExtractor::new(FrontEnd::Speaker);
    let mut halve = Resampler::new(44_100, 22_050);
    let mut to_speaker = Resampler::new(22_050, 16_000);
    let mut mel = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("standard input is text");
        let (task, number) = line.split_once(' ').expect("a line is a task and a number");
        let n: usize = number.parse().expect("files are numbered from 0");
        let start = Instant::now();
        match task {
            "wav_to_mel" => {
                black_box(dvae.compute(&load(&wav22[n]).samples, &mut mel));
            }
            "wav44_to_mel" => {
                let sound = halve.resample(&load(&wav44[n]).samples);
                let kept = trim_silence(&sound, 22_050, 60.0, 0.0);
                black_box(dvae.compute(&sound[kept], &mut mel));
            }
            "read_wav" => drop(black_box(load(&wav22[n]))),
            "read_flac" => drop(black_box(load(&flac[n]))),
            "read_mp3" => drop(black_box(load(&mp3[n]))),
            "mel" => {
                black_box(dvae.compute(&clips22[n].samples, &mut mel));
            }
            "mel_conditioning" => {
                black_box(conditioning.compute(&clips22[n].samples, &mut mel));
            }
            "mel_speaker" => {
                black_box(speaker.compute(&clips22[n].samples, &mut mel));
            }
            "resample_44_22" => drop(black_box(halve.resample(&clips44[n].samples))),
            "resample_22_16" => drop(black_box(to_speaker.resample(&clips22[n].samples))),
            "trim" => {
                black_box(trim_silence(&clips22[n].samples, 22_050, 60.0, 0.0));
            }
            // Not a time but the mean of the mel, so that the driver can check that all compute the same.
            "mean" => {
                dvae.compute(&clips22[n].samples, &mut mel);
                let sum: f64 = mel.iter().map(|&value| f64::from(value)).sum();
                println!("{}", sum / mel.len() as f64);
                continue;
            }
            _ => panic!("no such task: {task}"),
        }
        println!("{}", start.elapsed().as_nanos());
        std::io::stdout().flush().expect("the driver reads the answer");
    }
}

fn load(path: &Path) -> Clip {
    decode(path).unwrap_or_else(|error| panic!("{error}")).clip
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a listed file").path()).collect();
    files.sort();
    files
}
