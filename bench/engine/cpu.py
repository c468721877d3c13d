#!/usr/bin/env python3
"""Measures a training step of a small GPT on the CPU. Peer: the same network in PyTorch, on the same cores, in alternating runs.

    bench/engine/cpu.py [--rounds 7] [--steps 8] [--threads 2] [sizes]

Builds the example `gpt_step`, then runs it and `torch_cpu_gpt.py` in every round; the order is reversed in every second
round. Other programs on the machine slow down both, and PyTorch more: its threads spin while they wait for a thread that
has no core. So each run first waits for an idle machine and records the share of the CPU that other programs used meanwhile;
the summary uses the quiet rounds. Writes all runs to `bench/results/`.

PYTHON names an interpreter with torch; without it, a virtual environment is created in the temporary folder.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = [("layers", 6), ("width", 256), ("heads", 4), ("vocabulary", 1026), ("batch", 8), ("time", 200)]
QUIET = 0.05  # a round is quiet if other programs used less than this share of the CPU


def torch_python():
    if "PYTHON" in os.environ:
        return os.environ["PYTHON"]
    folder = Path(tempfile.gettempdir()) / "myxtts-bench-torch"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0:
        # The Linux wheel does not load without its CUDA packages, which take several GB.
        subprocess.run([python, "-m", "pip", "install", "--quiet", "numpy", "torch"], check=True)
    return str(python)


def busy_seconds():
    """Busy CPU seconds of all cores since the machine started, stolen time included."""
    values = [int(v) for v in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _wait, irq, soft, steal = values
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_for_quiet(seconds):
    """Waits until other programs have been quiet for 1.5 s, at most `seconds`."""
    end = time.monotonic() + seconds
    calm = 0
    while calm < 3 and time.monotonic() < end:
        busy = busy_seconds()
        time.sleep(0.5)
        calm = calm + 1 if busy_seconds() - busy < QUIET * 0.5 * os.cpu_count() else 0


def run(command, environment, patience):
    wait_for_quiet(patience)
    start, busy, own = time.perf_counter(), busy_seconds(), own_seconds()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stderr}")
    seconds = time.perf_counter() - start
    own = own_seconds() - own
    others = max(0.0, busy_seconds() - busy - own) / (seconds * os.cpu_count())
    result = json.loads(done.stdout.splitlines()[-1])
    return {**result, "others": round(others, 4), "cpu_seconds": round(own, 3), "seconds": round(seconds, 3)}


def output(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in [*SIZES, ("rounds", 7), ("steps", 8), ("warm", 2), ("threads", 2)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--patience", type=float, default=60.0, help="maximum seconds to wait for a quiet machine before each run")
    parser.add_argument("--profile", default="release", help="the cargo profile")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    o = parser.parse_args()

    subprocess.run(["cargo", "build", "--profile", o.profile, "-p", "myxtts-tensor", "--example", "gpt_step"],
                   cwd=ROOT, check=True)
    python = torch_python()
    sizes = [word for name, _ in SIZES for word in (f"--{name}", str(getattr(o, name)))]
    counts = ["--steps", str(o.steps), "--warm", str(o.warm)]
    program = ROOT / "target" / o.profile / "examples" / "gpt_step"
    peer = ROOT / "bench" / "engine" / "torch_cpu_gpt.py"
    threads = str(o.threads)
    ours = [str(program), "--device", "cpu", "--json", *sizes, *counts]
    torch = [python, str(peer), "--threads", threads, *sizes, *counts]
    environment = {**os.environ, "RAYON_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}

    rounds = []
    for number in range(o.rounds):
        turn = [("myxtts", ours), ("torch", torch)]
        if number % 2:
            turn.reverse()
        row = {side: run(command, environment, o.patience) for side, command in turn}
        row["times_torch"] = round(row["torch"]["median_ms"] / row["myxtts"]["median_ms"], 4)
        rounds.append(row)
        print(f"round {number + 1}: myxtts {row['myxtts']['median_ms']:.1f} ms, torch {row['torch']['median_ms']:.1f} ms, "
              f"{row['times_torch']:.2f}x; CPU used by other programs: {row['myxtts']['others']:.0%} and {row['torch']['others']:.0%}",
              flush=True)

    quiet = [r for r in rounds if max(r["myxtts"]["others"], r["torch"]["others"]) < QUIET]
    kept = quiet or rounds
    median = {side: statistics.median(r[side]["median_ms"] for r in kept) for side in ("myxtts", "torch")}
    fastest = {side: min(r[side]["median_ms"] for r in rounds) for side in ("myxtts", "torch")}
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    now = datetime.now(timezone.utc)
    result = {
        "what": "a training step of a small GPT on the CPU in f32: forward, backward, AdamW",
        "date": now.isoformat(timespec="seconds"),
        "command": " ".join(["bench/engine/cpu.py", *sys.argv[1:]]),
        "machine": {"cpu": cpu, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
                    "load": os.getloadavg()},
        "versions": {"rustc": output("rustc", "--version"), "torch": rounds[0]["torch"]["torch"],
                     "python": platform.python_version(), "commit": output("git", "rev-parse", "--short", "HEAD"),
                     "cargo_profile": o.profile},
        "sizes": {name: getattr(o, name) for name, _ in SIZES}, "threads": o.threads,
        "summary": {
            "rounds": len(rounds), "quiet_rounds": len(quiet),
            "myxtts_ms": round(median["myxtts"], 2), "torch_ms": round(median["torch"], 2),
            "times_torch": round(statistics.median(r["times_torch"] for r in kept), 3),
            "times_torch_fastest_round_of_each": round(fastest["torch"] / fastest["myxtts"], 3),
        },
        "rounds": rounds,
    }
    o.results.mkdir(parents=True, exist_ok=True)
    path = o.results / f"engine_cpu_{now:%Y%m%d_%H%M%S}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"], indent=1))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
