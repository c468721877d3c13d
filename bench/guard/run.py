#!/usr/bin/env python3
"""Measures the share of a training step that the check of gradients takes on the CPU. There is no peer.

    bench/guard/run.py [--rounds 9]

The check cannot be switched off, so there are no steps without it to compare with. Instead the engine times every operation of a
step (`gpt_step --profile`), and this takes the share of the operation `guard`: the norm of all gradients, the verdict on it and
on the loss, and the factor of clipping. Clipping needs the norm as well, so that the share is an upper bound. Every round runs all
sizes, each in a process of its own. Writes all runs to `bench/results/guard_cpu_DATE.json`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# GPTs of the presets `tiny`, `small` and `normal`: layers, width, heads, vocabulary; clips of a batch and positions of each.
SIZES = {
    "tiny": (4, 128, 4, 256, 16, 200),
    "small": (8, 256, 4, 512, 16, 200),
    "normal": (12, 512, 8, 1024, 4, 200),
}


def output(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def profile(program, sizes):
    """Milliseconds of the guard and of all operations of one step."""
    names = ["--layers", "--width", "--heads", "--vocabulary", "--batch", "--time"]
    words = [word for name, size in zip(names, sizes) for word in (name, str(size))]
    command = [program, "--device", "cpu", "--steps", "2", "--warm", "1", "--profile", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} failed:\n{done.stderr}")
    guard = total = None
    for line in done.stdout.splitlines():
        if line.startswith("guard "):
            guard = float(line.split()[-2])
        if line.endswith(" ms total"):
            total = float(line.split()[0])
    if guard is None or total is None:
        sys.exit(f"{program} --profile printed no guard or no total:\n{done.stdout}")
    return guard, total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--profile", default="release", help="the cargo profile")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    o = parser.parse_args()
    if o.rounds < 1:
        sys.exit(f"--rounds {o.rounds}: give at least 1")

    build = ["cargo", "build", "--locked", "--profile", o.profile, "-p", "myxtts-tensor", "--example", "gpt_step"]
    subprocess.run(build, cwd=ROOT, check=True)
    program = ROOT / "target" / ("debug" if o.profile == "dev" else o.profile) / "examples" / "gpt_step"
    rounds = []
    for number in range(o.rounds):
        row = {}
        for name, sizes in SIZES.items():
            guard, total = profile(program, sizes)
            row[name] = {"guard_ms": guard, "step_ms": total, "share": round(guard / total, 6)}
        rounds.append(row)
        print(f"round {number + 1}: " + ", ".join(f"{name} {row[name]['share']:.2%}" for name in SIZES), flush=True)

    shares = {name: [row[name]["share"] for row in rounds] for name in SIZES}
    summary = {
        name: {"median": statistics.median(all), "least": min(all), "most": max(all), "n": len(all)}
        for name, all in shares.items()
    }
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    now = datetime.now(timezone.utc)
    result = {
        "what": "share of the operation `guard` in the operations of a GPT's training step on the CPU in f32",
        "date": now.isoformat(timespec="seconds"),
        "command": " ".join(["bench/guard/run.py", *sys.argv[1:]]),
        "machine": {"cpu": cpu, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
                    "load": os.getloadavg()},
        "versions": {"rustc": output("rustc", "--version"), "python": platform.python_version(),
                     "commit": output("git", "rev-parse", "--short", "HEAD"), "cargo_profile": o.profile},
        "sizes": {name: dict(zip(["layers", "width", "heads", "vocabulary", "batch", "time"], sizes))
                  for name, sizes in SIZES.items()},
        "summary": summary,
        "rounds": rounds,
    }
    path = o.results / f"guard_cpu_{now:%Y%m%d}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(summary, indent=1))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
