#!/usr/bin/env bash
# Measures batches per second on the CPU. Peer: PyTorch's DataLoader (peer.py), on the same data in alternating rounds.
#
#   bench/batches/run.sh [ROUNDS]
#
# PYTHON names an interpreter with torch and numpy (default: .venv/bin/python). Writes bench/results/batches.json: the
# measurements of every round, with date, machine, versions and command.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5}
python=${PYTHON:-.venv/bin/python}
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT

cargo build --quiet --profile dist -p myxtts-data --example batch_rate --example large_store
built=target/dist/examples

# The same records in three forms: one memory-mapped file, .npy files (both for the peer), and a cache.
"$built/batch_rate" --data "$data" --npy --only-collate --seconds 1 >"$data/warm.json"
"$built/batch_rate" --make-cache "$data/cache" >/dev/null
"$built/large_store" "$data/million" 1000000 --arrays >/dev/null
"$built/batch_rate" --cache "$data/million" --seconds 2 >"$data/million.json"
for round in $(seq "$rounds"); do
    "$built/batch_rate" --cache "$data/cache" --only-collate --seconds 3 >"$data/ours.$round.json"
    "$built/batch_rate" --data "$data" --only-collate --seconds 3 >"$data/bare.$round.json"
    "$python" bench/batches/peer.py "$data" --seconds 3 >"$data/peer.$round.json"
done

"$python" - "$data" "$rounds" "bench/batches/run.sh $*" <<'PY'
import datetime, json, os, pathlib, platform, statistics, subprocess, sys

data, rounds, command = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].strip()
read = lambda name: json.loads((data / name).read_text())
million = read("million.json")
ours = [read(f"ours.{i}.json")["collate"] for i in range(1, rounds + 1)]
bare = [read(f"bare.{i}.json")["collate"] for i in range(1, rounds + 1)]
peer = [read(f"peer.{i}.json") for i in range(1, rounds + 1)]
cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
median = lambda values: statistics.median(values)
ways = {way: median([p["batches_per_s"][way] for p in peer]) for way in peer[0]["batches_per_s"]}
mine = median([o["batches_per_s"] for o in ours])
result = {
    "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    "command": command,
    "machine": {"cpu": cpu, "cores": os.cpu_count(), "system": platform.system(), "load": os.getloadavg()},
    "versions": {
        "rustc": subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip(),
        "torch": peer[0]["torch"],
        "numpy": peer[0]["numpy"],
        "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip(),
    },
    "summary": {
        "collated_batches_per_s": mine,
        "from_a_bare_mapped_file": median([b["batches_per_s"] for b in bare]),
        "peer_batches_per_s": ways,
        "times_best_peer": mine / max(ways.values()),
        "resolved_batches_per_s": million["resolve"]["batches_per_s"],
        "first_batch_of_a_million_s": million["open"]["step_0_s"],
        "memory_of_a_million_mb": million["open"]["memory_growth_mb"],
        "step_1000000_over_step_0": million["open"]["ratio"],
    },
    "rounds": [{"ours": o, "bare": b, "peer": p} for o, b, p in zip(ours, bare, peer)],
    "million": million,
}
out = pathlib.Path("bench/results/batches.json")
out.parent.mkdir(parents=True, exist_ok=True)
out.write_text(json.dumps(result, indent=1) + "\n")
print(json.dumps(result["summary"], indent=1))
PY
