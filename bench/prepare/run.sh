#!/usr/bin/env bash
# Measures `myxtts prepare` with one worker and with two, on the same corpus, in alternating runs. There is no peer: one worker is
# the baseline.
#
#   bench/prepare/run.sh CORPUS [ROUNDS]
#
# Writes bench/results/DATE-prepare.json.
set -euo pipefail
corpus=${1:?usage: bench/prepare/run.sh CORPUS [ROUNDS]; "myxtts demo-corpus DIR --utterances 3000" makes a corpus}
rounds=${2:-5}
cd "$(dirname "$0")/../.."
cargo build --profile dist -p myxtts --locked
myxtts=target/dist/myxtts
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The vocabulary is trained once and not timed: it is not part of the parallel work.
"$myxtts" prepare "$corpus" --cache-dir "$work/warm" >/dev/null 2>&1
python3 - "$corpus" "$rounds" "$myxtts" "$work" <<'PY'
import datetime, json, os, platform, shutil, statistics, subprocess, sys, time
corpus, rounds, myxtts, work = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
vocabulary = os.path.join(work, "warm", "tokenizer.json")

def once(workers):
    cache = os.path.join(work, "cache")
    shutil.rmtree(cache, ignore_errors=True)
    command = [myxtts, "prepare", corpus, "--cache-dir", cache, "--num-workers", str(workers),
               "--tokenizer", vocabulary, "--json"]
    begin = time.perf_counter()
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return time.perf_counter() - begin, json.loads(out)["training"]

seconds = {1: [], 2: []}
for _ in range(rounds):
    for workers in seconds:
        took, report = once(workers)
        seconds[workers].append(took)
median = {workers: statistics.median(times) for workers, times in seconds.items()}
cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
result = {
    "what": "myxtts prepare, one worker and two", "date": datetime.date.today().isoformat(),
    "cpu": cpu, "cores": os.cpu_count(), "command": "bench/prepare/run.sh CORPUS",
    "utterances": report["utterances"], "hours": report["seconds"] / 3600,
    "seconds": seconds, "median_seconds": median,
    "speed_up": median[1] / median[2],
    "real_time_factor_two_workers": report["seconds"] / median[2],
}
os.makedirs("bench/results", exist_ok=True)
name = f"bench/results/{result['date']}-prepare.json"
json.dump(result, open(name, "w"), indent=1)
print(json.dumps(result, indent=1))
PY
