#!/usr/bin/env bash
# Measures how fast a model of XTTS-v2's size (random weights) speaks on one GPU: time to open, to the first audio, one utterance, a
# book with all slots busy, memory over 1,000 utterances; with and without text guidance; then codes per second. Peer for the codes:
# Hugging Face's GPT-2 (bench/decode/torch_decode.py).
#
#   bench/speak/run.sh [OUT_DIR [OPTION...]]
#
# Writes JSON lines to OUT_DIR (default: a new folder below target/published). Options, PYTHON, MYXTTS_BUILT and WORK as for
# bench/published/run.sh, which it runs with --only speak,decode.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/published/$(date +%Y%m%d_%H%M%S)}
exec bench/published/run.sh "$out" --only speak,decode "${@:2}"
