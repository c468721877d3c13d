#!/usr/bin/env bash
# Measures audio files to log-mels on one core. Peers: soundfile + soxr + librosa, and torchaudio (peers.py).
#
#   bench/front_end/run.sh FOLDER_OF_WAVS [ROUNDS] [CORE]
#
# Builds the example `front_end_rate` and installs the peers from PyPI into .venv (PYTHON names an interpreter that
# has them already). Writes bench/results/front_end_DATE_TIME.json.
set -euo pipefail
source=$(realpath "${1:?usage: $0 FOLDER_OF_WAVS [ROUNDS] [CORE]}")
rounds=${2:-20}
core=${3:-0}
cd "$(dirname "$0")/../.."

cargo build --profile dist -p myxtts-data --example front_end_rate
python=${PYTHON:-.venv/bin/python}
if [ ! -x "$python" ]; then python3 -m venv .venv; fi
# The Linux wheel of torch does not load without its CUDA packages, which take several GB.
"$python" -c 'import librosa, soundfile, soxr, torchaudio' 2>/dev/null ||
    "$python" -m pip install --quiet librosa soundfile soxr torch==2.11.0 torchaudio==2.11.0

taskset -c "$core" "$python" bench/front_end/peers.py "$source" --rounds "$rounds" \
    --program target/dist/examples/front_end_rate --work target/bench/front_end --results bench/results
