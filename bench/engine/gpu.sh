#!/usr/bin/env bash
# Measures training steps of a GPT and of the HiFi-GAN vocoder on one GPU. Peer: the same networks in PyTorch (torch_gpt.py,
# torch_hifigan.py), in turn; then attention alone, compared with PyTorch's (attention.py).
#
#   bench/engine/gpu.sh [OUT_DIR [OPTION...]]
#
# Writes JSON lines to OUT_DIR (default: a new folder below target/published). Options, PYTHON, MYXTTS_BUILT and WORK as for
# bench/published/run.sh, which it runs with --only engine.
# `attention.py crates/tensor/src/kernels` alone also checks the attention kernels against a float64 reference.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/published/$(date +%Y%m%d_%H%M%S)}
exec bench/published/run.sh "$out" --only engine "${@:2}"
