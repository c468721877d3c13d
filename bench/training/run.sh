#!/usr/bin/env bash
# The real steps of every stage, on clips with LJSpeech's lengths, from a prepared cache: how many clips a second, how
# busy the GPU, how long batches were waited for. One JSON line for each.
#
#   bench/training/run.sh [FILE]
#
# PYTHON names an interpreter with numpy (default: python3). Writes to FILE (default: bench/results/training_DATE.jsonl).
# CLIPS names a folder that bench/training/clips.py has made, so that bench/training/torch_loop.py can be run on the same files.
# MYXTTS_BUILT names a folder with a myxtts that was built elsewhere; without it one is built here.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-bench/results/training_$(date +%Y%m%d).jsonl}
[ -n "${MYXTTS_BUILT:-}" ] || cargo build --quiet --release -p myxtts
myxtts=${MYXTTS_BUILT:-target/release}/myxtts
clips=${CLIPS:-}
if [ -z "$clips" ]; then
    clips=$(mktemp -d)
    trap 'rm -rf "$clips"' EXIT
    "${PYTHON:-python3}" bench/training/clips.py "$clips" 800
fi
bench() { "$myxtts" bench "$clips" --json --set data.vocab_size=120 "$@" 2>/dev/null; }
{
    # How training runs on a GPU: conditioning lies there, batches are made ahead.
    bench --preset v2 --set data.batch_size=32 --steps 120 --only resident
    for preset in tiny small normal; do
        bench --preset $preset --set data.batch_size=64 --steps 200 --only resident
    done
    # Every way of feeding, on a step so short that each of them shows.
    bench --preset small --set data.batch_size=16 --steps 300 --svg "${out%.jsonl}.svg"
    # Without a cache: clips decoded and computed for every batch.
    bench --preset normal --set data.batch_size=64 --steps 100 --only "no cache"
    bench --preset v2 --set data.batch_size=32 --steps 60 --only "no cache"
    for preset in small v2; do
        for stage in dvae decoder; do
            bench --preset $preset --stage $stage --steps 60 --only "buffered 12"
        done
    done
} | tee "$out" | "${PYTHON:-python3}" bench/training/table.py
