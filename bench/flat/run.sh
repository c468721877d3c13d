#!/usr/bin/env bash
# Checks that long runs do not leak: STEPS tiny steps of every stage (default: 100,000) on the CPU, each stage in its own process.
# There is no peer.
#
#   bench/flat/run.sh [STEPS]
#
# Writes bench/results/flat_cpu_DATE.jsonl: a hundred measurements per stage of the process's memory, open files and threads,
# the time of a step, the size of the log and the number of checkpoints. Fails if memory, open files or threads grow.
set -euo pipefail
cd "$(dirname "$0")/../.."
steps=${1:-100000}
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
date=$(date -u +%Y%m%d)
to=bench/results/flat_cpu_$date.jsonl
MYXTTS_STEPS=$steps MYXTTS_FLAT_OUT=$out cargo test -p myxtts-train --test train --locked flat:: -- --nocapture
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
{
  printf '{"date":"%s","cpu":"%s","cores":%s,"commit":"%s","steps":%s,"command":"bench/flat/run.sh %s"}\n' \
    "$date" "$cpu" "$(nproc)" "$(git rev-parse --short HEAD)" "$steps" "$steps"
  for stage in dvae gpt decoder; do sed "s/^{/{\"stage\":\"$stage\",/" "$out/$stage.jsonl"; done
} > "$to"
echo "$to"
