#!/usr/bin/env bash
# Measures real training steps of every stage on clips with LJSpeech's lengths, with and without a cache: clips per second, GPU busy
# share, time spent waiting for batches. Peer: a PyTorch loop on the same files (torch_loop.py), in turn.
#
#   bench/training/run.sh [OUT_DIR [OPTION...]]
#
# Writes JSON lines to OUT_DIR (default: a new folder below target/published). Options, PYTHON, MYXTTS_BUILT and WORK as for
# bench/published/run.sh, which it runs with --only training,sizes,ways,stages.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/published/$(date +%Y%m%d_%H%M%S)}
exec bench/published/run.sh "$out" --only training,sizes,ways,stages "${@:2}"
