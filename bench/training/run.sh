#!/usr/bin/env bash
# Measures real training steps of every stage on clips with LJSpeech's lengths, with and without a cache: clips per second, GPU busy
# share, time spent waiting for batches. One JSON line per `myxtts bench`. Peer: a PyTorch loop on the same files
# (torch_loop.py, run separately with the same CLIPS).
#
#   bench/training/run.sh [FILE]
#
# PYTHON names an interpreter with numpy (default: python3). Writes to FILE (default: bench/results/training_DATE.jsonl).
# CLIPS names a folder written by bench/training/clips.py. MYXTTS_BUILT names a folder with a `myxtts` that was built elsewhere;
# without it, one is built here.
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
    # The default on a GPU: conditioning features are stored there, and batches are built ahead.
    bench --preset v2 --set data.batch_size=32 --steps 120 --only resident
    for preset in tiny small normal; do
        bench --preset $preset --set data.batch_size=64 --steps 200 --only resident
    done
    # Every way of feeding, with a step so short that differences show.
    bench --preset small --set data.batch_size=16 --steps 300 --svg "${out%.jsonl}.svg"
    # Without a cache: clips are decoded and features computed for every batch.
    bench --preset normal --set data.batch_size=64 --steps 100 --only "no cache"
    bench --preset v2 --set data.batch_size=32 --steps 60 --only "no cache"
    for preset in small v2; do
        for stage in dvae decoder; do
            bench --preset $preset --stage $stage --steps 60 --only "buffered 12"
        done
    done
} | tee "$out" | "${PYTHON:-python3}" bench/training/table.py
