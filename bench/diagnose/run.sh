#!/usr/bin/env bash
# Plants every fault of `myxtts diagnose --plant` into the real pipeline and records which cause `diagnose` names, one JSON line
# per fault. There is no peer: the planted fault is the expected answer.
#
#   bench/diagnose/run.sh DEVICE [FILE [ARGUMENT...]]
#
# DEVICE is cpu, cuda or cuda:N. Writes to FILE (default: bench/results/diagnose_DEVICE_DATE.jsonl). Further arguments are passed to
# `diagnose` (default: --preset small --batch-size 16 --num-batches 200 --set data.vocab_size=120).
#
# CORPUS names a corpus; without it, 800 clips with LJSpeech's lengths are generated (PYTHON names an interpreter with numpy,
# default: python3). PLANTS lists the faults to plant (default: all). MYXTTS_BUILT names a folder with a `myxtts` that was
# built elsewhere; without it, one is built here.
set -euo pipefail
cd "$(dirname "$0")/../.."
device=${1:?usage: bench/diagnose/run.sh DEVICE [FILE [ARGUMENT...]]}
out=${2:-bench/results/diagnose_${device/:/}_$(date +%Y%m%d).jsonl}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- --preset small --batch-size 16 --num-batches 200 --set data.vocab_size=120
plants=${PLANTS:-"healthy slow-disk slow-decode slow-worker tiny-buffer upload-lock pageable-upload shape-churn periodic-stall cpu-hog slow-step noisy-step"}
[ -n "${MYXTTS_BUILT:-}" ] || cargo build --quiet --release -p myxtts
myxtts=${MYXTTS_BUILT:-target/release}/myxtts
python=${PYTHON:-python3}
corpus=${CORPUS:-}
if [ -z "$corpus" ]; then
    corpus=$(mktemp -d)
    trap 'rm -rf "$corpus"' EXIT
    "$python" bench/training/clips.py "$corpus" 800
fi
: >"$out"
for plant in $plants; do
    "$myxtts" diagnose "$corpus" --device "$device" "$@" --plant "$plant" --json 2>>"$out.log" >"$out.one" ||
        { echo "diagnose --plant $plant failed:" && tail -3 "$out.log" && exit 1; } >&2
    "$python" bench/diagnose/table.py "$out" <"$out.one"
done
rm -f "$out.log" "$out.one"
"$python" bench/diagnose/table.py --sum "$out"
