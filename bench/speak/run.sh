#!/usr/bin/env bash
# Measures how fast a model of XTTS-v2's size (random weights) speaks on one GPU: time to open, to the first audio, one utterance, a
# book with all slots busy, memory over 1,000 utterances; with and without text guidance; then codes per second. Peer for the codes:
# Hugging Face's GPT-2 (bench/decode/torch_decode.py).
#
#   bench/speak/run.sh [FILE]
#
# PYTHON names an interpreter with torch and transformers (default: python3). Writes one JSON line per measurement to FILE
# (default: bench/results/speak_DATE.jsonl). MYXTTS_BUILT names a folder with the examples `opening`, `speed` and `decode` if they
# were built elsewhere.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-bench/results/speak_$(date +%Y%m%d).jsonl}
python=${PYTHON:-python3}
built=${MYXTTS_BUILT:-target/release/examples}
if [ -z "${MYXTTS_BUILT:-}" ]; then
    cargo build --quiet --release -p myxtts-speak --examples
    cargo build --quiet --release -p myxtts-model --example decode
fi
models=$(mktemp -d)
trap 'rm -rf "$models"' EXIT
"$built/opening" make "$models/plain"
"$built/opening" make-guided "$models/guided"
{
    # The first start compiles kernels and chooses algorithms; the second loads both from the disk cache.
    "$built/speed" "$models/plain"
    "$built/speed" "$models/plain" --book 0
    "$built/speed" "$models/guided"
    "$built/speed" "$models/plain" --codes 20 --repeat 1 --book 0 --utterances 1000
    "$built/decode" --batches 1,8,64
    "$built/decode" --batches 1,8,64
    "$python" bench/decode/torch_decode.py
} | tee "$out"
