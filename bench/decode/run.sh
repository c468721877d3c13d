#!/usr/bin/env bash
# Measures audio codes per second of a GPT of XTTS-v2's size with random weights on one GPU. Peer: Hugging Face's GPT-2
# (torch_decode.py), in turn. The example `decode` has options for other batches, the time of each kernel, and late launches.
#
#   bench/decode/run.sh [OUT_DIR [OPTION...]]
#
# Writes JSON lines to OUT_DIR (default: a new folder below target/published). Options, PYTHON, MYXTTS_BUILT and WORK as for
# bench/published/run.sh, which it runs with --only decode.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/published/$(date +%Y%m%d_%H%M%S)}
exec bench/published/run.sh "$out" --only decode "${@:2}"
