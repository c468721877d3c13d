#!/usr/bin/env bash
# Batches per second, ours and torch's DataLoader, in turns on the same data.
#
#   bench/batches/run.sh [ROUNDS]
#
# PYTHON names an interpreter with torch and numpy (default: .venv/bin/python). Writes
# bench/results/batches.json: every round as measured, with date, machine, versions and command.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5}
python=${PYTHON:-.venv/bin/python}
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT

cargo build --quiet --profile dist -p myxtts-data --example batch_rate
rate=target/dist/examples/batch_rate

"$rate" --data "$data" --npy --seconds 1 >"$data/whole.json"
for round in $(seq "$rounds"); do
    "$rate" --data "$data" --only-collate --seconds 3 >"$data/ours.$round.json"
    "$python" bench/batches/peer.py "$data" --seconds 3 >"$data/peer.$round.json"
done

"$python" - "$data" "$rounds" "bench/batches/run.sh $*" <<'PY'
import datetime, json, os, pathlib, platform, statistics, subprocess, sys

data, rounds, command = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].strip()
read = lambda name: json.loads((data / name).read_text())
whole = read("whole.json")
ours = [read(f"ours.{i}.json")["collate"] for i in range(1, rounds + 1)]
peer = [read(f"peer.{i}.json") for i in range(1, rounds + 1)]
cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
median = lambda values: statistics.median(values)
ways = {way: median([p["batches_per_s"][way] for p in peer]) for way in peer[0]["batches_per_s"]}
mine = median([o["batches_per_s"] for o in ours])
result = {
    "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    "command": command,
    "machine": {"cpu": cpu, "cores": os.cpu_count(), "system": platform.release(), "load": os.getloadavg()},
    "versions": {
        "rustc": subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip(),
        "torch": peer[0]["torch"],
        "numpy": peer[0]["numpy"],
        "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip(),
    },
    "summary": {
        "collated_batches_per_s": mine,
        "peer_batches_per_s": ways,
        "times_best_peer": mine / max(ways.values()),
        "resolved_batches_per_s": whole["resolve"]["batches_per_s"],
        "first_batch_of_a_million_s": whole["open"]["first_of_process_s"],
        "memory_of_a_million_mb": whole["open"]["memory_growth_mb"],
        "step_1000000_over_step_0": whole["open"]["ratio"],
    },
    "rounds": [{"ours": o, "peer": p} for o, p in zip(ours, peer)],
    "resolve": whole["resolve"],
    "open": whole["open"],
}
out = pathlib.Path("bench/results/batches.json")
out.parent.mkdir(parents=True, exist_ok=True)
out.write_text(json.dumps(result, indent=1) + "\n")
print(json.dumps(result["summary"], indent=1))
PY
