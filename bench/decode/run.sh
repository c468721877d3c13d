#!/usr/bin/env bash
# Measures audio codes per second of a GPT of XTTS-v2's size with random weights on one GPU. Peer: Hugging Face's GPT-2
# (torch_decode.py), in the same run.
#
#   bench/decode/run.sh [FILE]
#
# PYTHON names an interpreter with torch and transformers (default: python3). Writes one JSON line per measurement to FILE
# (default: bench/results/decode_DATE.jsonl). MYXTTS_BUILT names a folder with the example `decode` if it
# was built elsewhere.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-bench/results/decode_$(date +%Y%m%d).jsonl}
python=${PYTHON:-python3}
built=${MYXTTS_BUILT:-target/release/examples}
[ -n "${MYXTTS_BUILT:-}" ] || cargo build --quiet --release -p myxtts-model --example decode
{
    "$built/decode" --batches 1,2,4,8,16,32,64 --kernels
    "$built/decode" --batches 1,64 --late-launch
    "$python" bench/decode/torch_decode.py
} | tee "$out"
