#!/usr/bin/env python3
"""Speaks one sentence in every format and opens each file with ffmpeg and with soundfile (libsndfile).

    bench/speak/encoders.py MYXTTS [MODEL [VOICE]]

MYXTTS is the program. Without MODEL, the golden checkpoint of crates/model/testdata is imported. Every file is compared with
the 32-bit float WAV of the same seed: lossless formats by their largest difference, lossy ones by their length and their
correlation. Needs ffmpeg, ffprobe, numpy and soundfile. Exits with 1 if a file cannot be opened or differs.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import soundfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = "hello world, this is a voice."
# Extension, format, largest difference of a sample (None: lossy).
FORMATS = [
    ("wav", "wav", 1.01 / 32768),
    ("wav", "wav24", 1.01 / 2**23),
    ("wav", "wav-float", 0.0),
    ("flac", "flac", 1.01 / 32768),
    ("mp3", "mp3", None),
    ("opus", "opus", None),
]
LEAST_CORRELATION = 0.8


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, **options)
    if done.returncode != 0:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stderr.decode(errors='replace')}")
    return done.stdout


def imported(program, folder):
    source = folder / "checkpoint"
    source.mkdir()
    golden = ROOT / "crates/model/testdata/goldens/checkpoint"
    for name in ("model.pth", "config.json"):
        (source / name).write_bytes((golden / name).read_bytes())
    run(sys.executable, ROOT / "parity/letters.py", 280, "--out", source / "vocab.json")
    run(program, "import", source / "model.pth", "-o", folder / "model")
    return folder / "model"


def with_ffmpeg(path):
    shown = run("ffprobe", "-v", "error", "-show_entries", "stream=codec_name,sample_fmt,sample_rate,channels",
                "-of", "json", path)
    stream = json.loads(shown)["streams"][0]
    samples = run("ffmpeg", "-v", "error", "-i", path, "-f", "f32le", "-ac", "1", "-ar", "24000", "-")
    return f"{stream['codec_name']}, {stream['sample_rate']} Hz", numpy.frombuffer(samples, "<f4")


def with_soundfile(path):
    info = soundfile.info(path)
    samples, rate = soundfile.read(path, dtype="float32")
    return f"{info.format} {info.subtype}, {rate} Hz", samples


def best_correlation(one, other):
    """The largest correlation over shifts of up to 0.1 s, and that shift in samples."""
    length = min(len(one), len(other))
    best = (0.0, 0)
    for shift in range(-2400, 2401):
        a, b = one[max(0, shift):length], other[max(0, -shift):length]
        count = min(len(a), len(b))
        if count > length // 2:
            norm = float(numpy.linalg.norm(a[:count]) * numpy.linalg.norm(b[:count])) or 1.0
            best = max(best, (float(a[:count] @ b[:count]) / norm, shift))
    return best


def main():
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    program = pathlib.Path(sys.argv[1]).resolve()
    version = run("ffmpeg", "-version").decode().split()[2]
    print(f"{run(program, '--version').decode().strip()}; ffmpeg {version}; soundfile {soundfile.__version__} "
          f"({soundfile.__libsndfile_version__})")
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else imported(program, folder)
        voice = sys.argv[3] if len(sys.argv) > 3 else str(ROOT / "testdata/audio/sweep.flac")
        speak = [program, "speak", TEXT, "--model", model, "--voice", voice, "--device", "cpu", "--language", "en",
                 "--cleaner", "coqui", "--greedy", "--retries", "0", "--repetition-penalty", "1"]
        for streamed in (False, True):
            reference = None
            formats = sorted(FORMATS, key=lambda one: one[1] != "wav-float")
            for extension, name, tolerance in formats:
                path = folder / f"{name}{'-stream' if streamed else ''}.{extension}"
                run(*speak, "-o", path, "--format", name, *(["--stream"] if streamed else []))
                for tool, opened in (("ffmpeg", with_ffmpeg), ("soundfile", with_soundfile)):
                    found, samples = opened(path)
                    if reference is None:
                        reference = samples
                        loudest = float(numpy.abs(samples).max())
                        print(f"reference: {len(samples)} samples, loudest {loudest:.3f}, streamed: {streamed}")
                    if tolerance is None:
                        correlation, shift = best_correlation(reference, samples)
                        apart = abs(len(samples) - len(reference)) / 24000
                        good = correlation >= LEAST_CORRELATION and apart <= 0.1
                        what = f"correlation {correlation:.4f} at a shift of {shift}, {apart:.3f} s longer or shorter"
                    else:
                        same = len(samples) == len(reference)
                        apart = float(numpy.abs(samples - reference).max()) if same else float("inf")
                        good = same and apart <= tolerance
                        what = f"largest difference {apart:.2e}"
                    failures += not good
                    print(f"{'ok  ' if good else 'FAIL'} {name:<9} {'streamed' if streamed else 'whole':<8} {tool:<9} "
                          f"{found:<28} {len(samples):>6} samples, {what}")
    print(f"{failures} failures")
    sys.exit(1 if failures else 0)


main()
