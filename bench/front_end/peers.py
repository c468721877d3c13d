#!/usr/bin/env python3
"""Measures audio files to log-mels on one core: MyXTTS, soundfile + soxr + librosa, and torchaudio.

In every round, each task is done file by file, by all programs in turn. The time of all files is given per 10 s of audio: the median
over the rounds, and every round. A round begins when other programs use less than 5 % of the cores, for which --wait seconds in all
are waited; the JSON has their share before each round. Called by run.sh, which builds and installs what is needed.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

for name in ("OMP", "MKL", "OPENBLAS", "NUMBA", "VECLIB_MAXIMUM"):
    os.environ[f"{name}_NUM_THREADS"] = "1"

import librosa
import numpy as np
import soundfile
import soxr
import torch
import torchaudio

RATE, N_FFT, HOP, MELS, HIGHEST = 22050, 1024, 256, 80, 8000
SECONDS = 10.0  # results are given per this length of audio


def make_corpus(source: Path, work: Path, count: int) -> None:
    """Writes the same clips as 22.05 and 44.1 kHz WAV, FLAC and MP3, each ten seconds long."""
    files = sorted(source.rglob("*.wav"))
    if not files:
        sys.exit(f"{source}: no .wav files")
    kinds = {"wav22": ".wav", "wav44": ".wav", "flac": ".flac", "mp3": ".mp3"}
    for kind in kinds:
        (work / kind).mkdir(parents=True, exist_ok=True)
        for old in (work / kind).iterdir():
            old.unlink()
    made, audio = 0, np.zeros(0, np.float32)
    for file in files:
        samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
        audio = np.concatenate([audio, soxr.resample(samples.mean(1), rate, RATE)])
        if len(audio) < SECONDS * RATE:
            continue
        clip, audio = audio[: int(SECONDS * RATE)], np.zeros(0, np.float32)
        name = f"{made:03}"
        soundfile.write(work / "wav22" / f"{name}.wav", clip, RATE, subtype="PCM_16")
        wide = soxr.resample(clip, RATE, 2 * RATE)
        soundfile.write(work / "wav44" / f"{name}.wav", wide, 2 * RATE, subtype="PCM_16")
        soundfile.write(work / "flac" / f"{name}.flac", clip, RATE, subtype="PCM_16")
        soundfile.write(work / "mp3" / f"{name}.mp3", clip, RATE)
        made += 1
        if made == count:
            return
    if made == 0:
        sys.exit(f"{source}: less than {SECONDS} s of audio")


class Ours:
    def __init__(self, program: str, work: Path):
        self.process = subprocess.Popen([program, str(work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, task: str, number: int) -> float:
        self.process.stdin.write(f"{task} {number}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("front_end_rate exited before it answered")
        return float(answer)


class Peers:
    """The peers as a careful user writes them: single precision, plans and filters created once."""

    def __init__(self, work: Path):
        torch.set_num_threads(1)
        self.files = {kind: sorted((work / kind).iterdir()) for kind in ("wav22", "wav44", "flac", "mp3")}
        self.clips22 = [self.read("wav22", n) for n in range(len(self.files["wav22"]))]
        self.clips44 = [self.read("wav44", n) for n in range(len(self.files["wav44"]))]
        self.torch_mel = torchaudio.transforms.MelSpectrogram(
            sample_rate=RATE, n_fft=N_FFT, win_length=N_FFT, hop_length=HOP, f_min=0, f_max=HIGHEST,
            n_mels=MELS, power=2, norm="slaney", mel_scale="htk",
        )

    def read(self, kind, n):
        return soundfile.read(self.files[kind][n], dtype="float32")[0]

    def librosa_mel(self, audio):
        mel = librosa.feature.melspectrogram(
            y=audio, sr=RATE, n_fft=N_FFT, hop_length=HOP, win_length=N_FFT, n_mels=MELS, fmin=0, fmax=HIGHEST,
            htk=True, norm="slaney", power=2, center=True, pad_mode="reflect",
        )
        return np.log(np.maximum(mel, 1e-5))

    def torchaudio_mel(self, audio):
        with torch.inference_mode():
            return torch.log(torch.clamp(self.torch_mel(torch.from_numpy(audio)), min=1e-5))

    def tasks(self):
        """Maps each task to its peers, and each peer to a function of the clip's index."""
        return {
            "wav_to_mel": {
                "soundfile + librosa": lambda n: self.librosa_mel(self.read("wav22", n)),
                "soundfile + torchaudio": lambda n: self.torchaudio_mel(self.read("wav22", n)),
            },
            "wav44_to_mel": {
                "soundfile + soxr + librosa": lambda n: self.librosa_mel(
                    librosa.effects.trim(soxr.resample(self.read("wav44", n), 2 * RATE, RATE), top_db=60)[0]
                ),
            },
            "read_wav": {"soundfile": lambda n: self.read("wav22", n)},
            "read_flac": {"soundfile": lambda n: self.read("flac", n)},
            "read_mp3": {"soundfile": lambda n: self.read("mp3", n)},
            "mel": {
                "librosa": lambda n: self.librosa_mel(self.clips22[n]),
                "torchaudio": lambda n: self.torchaudio_mel(self.clips22[n]),
            },
            "mel_conditioning": {},
            "mel_speaker": {},
            "resample_44_22": {
                "soxr": lambda n: soxr.resample(self.clips44[n], 2 * RATE, RATE),
                "torchaudio": lambda n: torchaudio.functional.resample(
                    torch.from_numpy(self.clips44[n]), 2 * RATE, RATE
                ),
            },
            "resample_22_16": {
                "soxr": lambda n: soxr.resample(self.clips22[n], RATE, 16000),
                "torchaudio": lambda n: torchaudio.functional.resample(
                    torch.from_numpy(self.clips22[n]), RATE, 16000
                ),
            },
            "trim": {"librosa": lambda n: librosa.effects.trim(self.clips22[n], top_db=60)},
        }


def timed(function, n):
    start = time.perf_counter_ns()
    function(n)
    return time.perf_counter_ns() - start


def others_busy(seconds=1.0):
    """The share of all cores that is used while this program sleeps; 0 where it is not known."""

    def ticks():
        numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]

    try:
        before = ticks()
        time.sleep(seconds)
        after = ticks()
    except (OSError, ValueError):
        return 0.0
    return 1 - (after[1] - before[1]) / max(1, after[0] - before[0])


QUIET = 0.05


def wait_until_quiet(left):
    """Waits at most `left` seconds until the machine is quiet. Returns the share of the others, and what is left of the time."""
    while True:
        start = time.monotonic()
        busy = others_busy()
        if busy < QUIET or left <= 0:
            return round(busy, 3), left
        time.sleep(4)
        left -= time.monotonic() - start


def cpu_name():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="folder with recordings of speech")
    parser.add_argument("--program", required=True, help="the built example front_end_rate")
    parser.add_argument("--work", type=Path, required=True, help="folder for the converted clips")
    parser.add_argument("--results", type=Path, required=True, help="folder for the JSON")
    parser.add_argument("--clips", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--wait", type=float, default=600.0, help="seconds to wait for other programs to end, in all rounds together")
    arguments = parser.parse_args()

    make_corpus(arguments.source, arguments.work, arguments.clips)
    ours, peers = Ours(arguments.program, arguments.work), Peers(arguments.work)
    numbers = range(len(peers.clips22))
    for n in numbers:
        means = [ours.ask("mean", n), float(peers.librosa_mel(peers.clips22[n]).mean()),
                 float(peers.torchaudio_mel(peers.clips22[n]).mean())]
        if max(means) - min(means) > 1e-3:
            sys.exit(f"clip {n}: the programs compute different mels, with means {means}")

    tasks = peers.tasks()
    best = {task: {who: [math.inf] * len(numbers) for who in ["myxtts", *others]} for task, others in tasks.items()}
    # Nanoseconds of all clips together, one entry per round.
    sums = {task: {who: [0.0] * arguments.rounds for who in row} for task, row in best.items()}
    left, busy = arguments.wait, []
    for round_number in range(arguments.rounds):
        others, left = wait_until_quiet(left)
        busy.append(others)
        for task, others in tasks.items():
            row, total = best[task], sums[task]
            for n in numbers:
                times = {"myxtts": ours.ask(task, n)}
                times.update((who, timed(function, n)) for who, function in others.items())
                for who, time_taken in times.items():
                    row[who][n] = min(row[who][n], time_taken)
                    total[who][round_number] += time_taken
        print(f"\rround {round_number + 1} of {arguments.rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)

    seconds = sum(len(clip) for clip in peers.clips22) / RATE
    per_10s = lambda nanoseconds: round(nanoseconds / 1e6 / seconds * SECONDS, 4)
    best = {task: {who: per_10s(sum(times)) for who, times in row.items()} for task, row in best.items()}
    rounds = {task: {who: [per_10s(total) for total in totals] for who, totals in row.items()} for task, row in sums.items()}
    for task, row in rounds.items():
        middle = {who: statistics.median(times) for who, times in row.items()}
        ratios = ", ".join(f"{value / middle['myxtts']:.2f}x {who}" for who, value in middle.items() if who != "myxtts")
        print(f"{task:17} {middle['myxtts']:7.3f} ms per 10 s ({min(row['myxtts']):.3f} to {max(row['myxtts']):.3f})   {ratios}")

    now = datetime.now(timezone.utc)
    result = {
        "date": now.isoformat(timespec="seconds"),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "cores_used": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {
            "python": platform.python_version(), "numpy": np.__version__, "librosa": librosa.__version__,
            "soundfile": soundfile.__version__, "libsndfile": soundfile.__libsndfile_version__,
            "soxr": soxr.__version__, "torch": torch.__version__, "torchaudio": torchaudio.__version__,
        },
        "command": " ".join(["bench/front_end/run.sh", arguments.source.name, str(arguments.rounds)]),
        "clips": len(numbers), "seconds": round(seconds, 2), "rounds": arguments.rounds,
        "others_busy_before_each_round": busy,
        "best_of_rounds": best,
        "ms_per_10s_of_each_round": rounds,
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    path = arguments.results / f"front_end_{now:%Y%m%d_%H%M%S}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
