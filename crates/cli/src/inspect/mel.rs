//! `myxtts inspect mel`: the mel spectrogram of an audio file, as an array and as an image.

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use myxtts_data::mel::{FrontEnd, MelExtractor, divide_by_stats, instance_normalize, picture};
use myxtts_data::{audio, npy};
use myxtts_run::exit::Exit;
use myxtts_run::output_path::OutputPath;
use myxtts_run::regular_file;
use serde_json::json;

use crate::output::{print, print_json};

#[derive(clap::Args)]
pub struct Args {
    /// Audio file (WAV, FLAC, MP3, OGG, M4A)
    file: PathBuf,
    /// Mel front-end of XTTS
    #[arg(long, value_enum, default_value = "dvae")]
    front_end: Choice,
    /// Write the array to a .npy file: [channels, frames], float32
    #[arg(short, long, value_name = "OUT.npy")]
    output: Option<PathBuf>,
    /// Write an image to a .png file
    #[arg(long, value_name = "OUT.png")]
    png: Option<PathBuf>,
    /// Divide each channel by a value of this file (80 values, float32 .npy), as XTTS does with its mel_stats
    #[arg(long, value_name = "STATS.npy")]
    mel_stats: Option<PathBuf>,
    /// Normalise each channel over time, as the speaker encoder does with its input
    #[arg(long)]
    instance_norm: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Choice {
    Conditioning,
    Dvae,
    Speaker,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let front_end = match args.front_end {
        Choice::Conditioning => FrontEnd::Conditioning,
        Choice::Dvae => FrontEnd::Dvae,
        Choice::Speaker => FrontEnd::Speaker,
    };
    let decoded = audio::decode(&args.file)?;
    let samples = resampled(&decoded.clip, front_end);
    let mut mel = Vec::new();
    let frames = MelExtractor::new(front_end).compute(&samples, &mut mel);
    let channels = front_end.channels();
    if let Some(path) = &args.mel_stats {
        divide(&mut mel, channels, path)?;
    }
    if args.instance_norm {
        instance_normalize(&mut mel, channels);
    }

    if let Some(path) = &args.output {
        let output = OutputPath::check("-o", path)?
            .reject_inputs("-o", [(args.file.as_path(), "the audio file that is read")])?;
        output
            .write(&npy::write_f32(&[channels, frames], &transposed(&mel, channels)))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if let Some(path) = &args.png {
        let output = OutputPath::check("--png", path)?
            .reject_inputs("--png", [(args.file.as_path(), "the audio file that is read")])?;
        output
            .write(&picture::mel_png(frames, channels, &mel))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let (least, most) = mel.iter().fold((f32::MAX, f32::MIN), |(a, b), &v| (a.min(v), b.max(v)));
    let mean = mel.iter().map(|&v| f64::from(v)).sum::<f64>() / mel.len().max(1) as f64;
    let seconds = decoded.clip.samples.len() as f64 / f64::from(decoded.clip.sample_rate);
    if args.json {
        let summary = json!({
            "file": args.file, "seconds": seconds, "source_sample_rate": decoded.clip.sample_rate,
            "sample_rate": front_end.sample_rate(), "hop": front_end.hop(),
            "channels": channels, "frames": frames, "min": least, "max": most, "mean": mean,
        });
        print_json(&summary)?;
    } else {
        print(&format!(
            "{}: {seconds:.2} s at {} Hz\n{channels} channels x {frames} frames at {} Hz, hop {}\n\
             min {least:.3}, mean {mean:.3}, max {most:.3}\n",
            args.file.display(),
            decoded.clip.sample_rate,
            front_end.sample_rate(),
            front_end.hop()
        ))?;
    }
    Ok(Exit::Done)
}

/// The clip at the sample rate of the front-end. XTTS resamples everything to 22,050 Hz first, also for the speaker encoder.
fn resampled(clip: &audio::Clip, front_end: FrontEnd) -> Vec<f32> {
    let mut samples = clip.samples.clone();
    let mut rate = clip.sample_rate;
    for to in [myxtts_data::features::INPUT_SAMPLE_RATE, front_end.sample_rate()] {
        if rate != to {
            samples = audio::Resampler::new(rate, to).resample(&samples);
            rate = to;
        }
    }
    samples
}

fn divide(mel: &mut [f32], channels: usize, path: &std::path::Path) -> anyhow::Result<()> {
    let bytes = regular_file::read(path).with_context(|| format!("reading {}", path.display()))?;
    let (_, stats) = npy::read_f32(&bytes).with_context(|| format!("reading {}", path.display()))?;
    anyhow::ensure!(
        stats.len() == channels,
        "{} holds {} values, this front-end has {channels} channels",
        path.display(),
        stats.len()
    );
    divide_by_stats(mel, &stats);
    Ok(())
}

/// Transposes [frames, channels] to [channels, frames], the layout of the Python code of XTTS.
fn transposed(mel: &[f32], channels: usize) -> Vec<f32> {
    (0..channels).flat_map(|channel| mel.iter().skip(channel).step_by(channels).copied()).collect()
}
