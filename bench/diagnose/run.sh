#!/usr/bin/env bash
# Plants every fault of `myxtts diagnose --plant` into the real pipeline and records which cause `diagnose` names, one JSON line
# per fault and seed. There is no peer: the planted fault is the expected answer. Prints the score of every seed and of all.
#
#   bench/diagnose/run.sh DEVICE [SEEDS [FILE [ARGUMENT...]]]
#
# DEVICE is cpu, cuda or cuda:N; SEEDS is the number of seeds (default: 1), from 1 on, or from FROM. Writes to FILE (default:
# bench/results/diagnose_DEVICE_DATE.jsonl). Further arguments are passed to `diagnose` (default on a GPU: --preset small
# --batch-size 16 --num-batches 200; on a CPU: --preset tiny --batch-size 4 --num-batches 60; always --set data.vocab_size=120).
#
# CORPUS names a corpus; without it, 800 clips with LJSpeech's lengths are generated (PYTHON names an interpreter with numpy,
# default: python3), or 400 of the demo corpus where there is no numpy. PLANTS lists the faults to plant (default: all).
# MYXTTS_BUILT names a folder with a `myxtts` that was built elsewhere; without it, one is built here.
#
# Two idle CPU cores take about 4 minutes for a seed, an H200 about 3. Nothing else may run meanwhile: other programs are a fault.
set -euo pipefail
cd "$(dirname "$0")/../.."
usage="usage: bench/diagnose/run.sh DEVICE [SEEDS [FILE [ARGUMENT...]]]"
device=${1:?$usage}
seeds=${2:-1}
[[ $seeds =~ ^[1-9][0-9]*$ ]] || { echo "SEEDS is $seeds, which is not a number; $usage" >&2 && exit 2; }
out=${3:-bench/results/diagnose_${device/:/}_$(date +%Y%m%d).jsonl}
shift $(($# < 3 ? $# : 3))
if [ $# -eq 0 ]; then
    case $device in
        cpu) set -- --preset tiny --batch-size 4 --num-batches 60 --set data.vocab_size=120 ;;
        *) set -- --preset small --batch-size 16 --num-batches 200 --set data.vocab_size=120 ;;
    esac
fi
plants=${PLANTS:-"healthy slow-disk slow-decode slow-worker tiny-buffer upload-lock pageable-upload shape-churn periodic-stall cpu-hog slow-step noisy-step"}
[ -n "${MYXTTS_BUILT:-}" ] || cargo build --quiet --release -p myxtts
myxtts=${MYXTTS_BUILT:-target/release}/myxtts
python=${PYTHON:-python3}
corpus=${CORPUS:-}
if [ -z "$corpus" ]; then
    corpus=$(mktemp -d)
    trap 'rm -rf "$corpus"' EXIT
    if "$python" -c "import numpy" 2>/dev/null; then
        "$python" bench/training/clips.py "$corpus" 800
    else
        "$myxtts" demo-corpus "$corpus" --utterances 400 >/dev/null
    fi
fi
: >"$out"
first=${FROM:-1}
for ((seed = first; seed < first + seeds; seed++)); do
    for plant in $plants; do
        "$myxtts" diagnose "$corpus" --device "$device" "$@" --set training.seed="$seed" --plant "$plant" --json \
            2>>"$out.log" >"$out.one" ||
            { echo "diagnose --plant $plant failed:" && tail -3 "$out.log" && exit 1; } >&2
        "$python" bench/diagnose/table.py "$out" "$seed" <"$out.one"
    done
done
rm -f "$out.log" "$out.one"
"$python" bench/diagnose/table.py --sum "$out"
