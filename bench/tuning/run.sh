#!/usr/bin/env bash
# Measures how far the choice of `myxtts tune` is from the fastest setting. Baseline: `tune --exhaustive`, which measures every
# combination.
#
#   bench/tuning/run.sh FILE [ARGUMENT OF myxtts tune ...]
#
# On a CPU:  bench/tuning/run.sh bench/results/tuning_cpu_DATE.json --device cpu
# On a GPU:  bench/tuning/run.sh bench/results/tuning_gpu_DATE.json CORPUS --preset small
#
# PYTHON names an interpreter (default: python3). MYXTTS_BUILT names a folder with a `myxtts` that was built elsewhere;
# without it, one is built here.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
shift
[ -n "${MYXTTS_BUILT:-}" ] || cargo build --quiet --release -p myxtts
myxtts=${MYXTTS_BUILT:-target/release}/myxtts
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
started=$SECONDS
"$myxtts" tune "$@" --json >"$kept/tune.json"
short=$((SECONDS - started))
started=$SECONDS
"$myxtts" tune "$@" --exhaustive --json >"$kept/exhaustive.json"
"${PYTHON:-python3}" bench/tuning/compare.py "$kept/tune.json" "$kept/exhaustive.json" "$out" "$short" "$((SECONDS - started))"
