#!/usr/bin/env bash
# Measures every figure of docs/src/benchmarks.md that needs a GPU: MyXTTS and its peers in turn, five runs of each. Every run is written
# as soon as it has ended; a second call with the same OUT_DIR measures only what is missing, so that a machine may be cut off.
#
#   bench/published/run.sh OUT_DIR [--budget SECONDS] [--only PART,...] [--runs N]
#   bench/published/run.sh OUT_DIR --summary        how many runs of each row there are
#   bench/published/run.sh OUT_DIR --cpu            tiny networks on a CPU, about two minutes: tests these scripts, not the speed
#   bench/published/run.sh --build FOLDER           builds the programs and copies them to FOLDER, for a machine without cargo
#
# PARTS, in this order: training engine decode speak sizes ways stages diagnose ranks (plan.py has their rows). OUT_DIR gets one file of
# JSON lines per part, at most seven, and log.txt. To publish them, copy them to bench/results and name them in bench/results/published.json.
#
# PYTHON names an interpreter with torch, torchaudio, transformers and numpy (default: python3). MYXTTS_BUILT names the folder of --build;
# without it, everything is built here. WORK names a folder for generated clips and models, 6 GB (default: /tmp/myxtts-published); a second
# call reuses it. COMMIT names the commit where this is no Git checkout.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n '2,18s/^# \{0,1\}//p' bench/published/run.sh >&2; exit 2; }
examples=(gpt_step hifigan_step decode opening speed random_model)
build() {
    cargo build --quiet --profile dist -p myxtts
    cargo build --quiet --profile dist -p myxtts-tensor -p myxtts-model -p myxtts-speak -p myxtts-web "${examples[@]/#/--example=}"
}
if [ "$1" = --build ]; then
    folder=${2:?usage: bench/published/run.sh --build FOLDER}
    build
    mkdir -p "$folder"
    cp target/dist/myxtts "${examples[@]/#/target/dist/examples/}" "$folder"
    du -sh "$folder"
    exit
fi
if [ -z "${MYXTTS_BUILT:-}" ] && [[ " $* " != *" --summary "* ]]; then
    build
    export MYXTTS_BUILT=target/dist
fi
exec "${PYTHON:-python3}" -u bench/published/measure.py "$@"
