#!/usr/bin/env bash
# Measures training steps of a GPT and of the HiFi-GAN vocoder on one GPU. Peer: the same networks in PyTorch (torch_gpt.py,
# torch_hifigan.py), in the same run; then attention alone, compared with PyTorch's (attention.py).
#
#   bench/engine/gpu.sh [FILE]
#
# PYTHON names an interpreter with torch for CUDA (default: python3). Writes one JSON line per measurement to FILE
# (default: bench/results/engine_DATE.jsonl). MYXTTS_BUILT names a folder with the examples `gpt_step` and
# `hifigan_step` if they were built elsewhere; without it, they are built here.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-bench/results/engine_$(date +%Y%m%d).jsonl}
python=${PYTHON:-python3}
built=${MYXTTS_BUILT:-target/release/examples}
[ -n "${MYXTTS_BUILT:-}" ] || cargo build --quiet --release -p myxtts-tensor --examples

gpt() { "$built/gpt_step" --json --busy "$@"; }
middle="--layers 12 --width 512 --heads 8 --vocabulary 1026"
small="--layers 8 --width 256 --heads 4 --vocabulary 1026"
{
    for streams in "" "--two-streams"; do
        gpt --warm 150 --steps 100 $streams
        gpt --warm 600 --steps 200 $middle $streams
        gpt --warm 1500 --steps 300 $small $streams
        "$built/hifigan_step" --json $streams
    done
    gpt --warm 100 --recompute all
    "$python" bench/engine/torch_gpt.py 30 1024 16 7000
    "$python" bench/engine/torch_gpt.py 12 512 8 1026
    "$python" bench/engine/torch_gpt.py 8 256 4 1026 --modes eager,graph
    "$python" bench/engine/torch_hifigan.py 16 32
    "$python" bench/engine/torch_hifigan.py 1 32
} | tee "$out"
# Attention alone: prints a table, not JSON.
"$python" bench/engine/attention.py crates/tensor/src/kernels
