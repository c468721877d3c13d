#!/usr/bin/env bash
# Load on `myxtts serve` with random weights, on this machine's loopback: Poisson arrivals at 1, 10 and 20 requests per second,
# listeners in real time, requests at once, and arrivals of whom a third leave. Texts have about 100 characters and are said in
# 140 codes (6.5 s) each: random weights do not know where a text ends.
#
#   bench/serve/run.sh [v2|tiny] [FILE]
#
# Writes one JSON line per setting to FILE (default: bench/results/serve_PRESET_DATE.jsonl). MYXTTS_BUILT names a folder with
# `myxtts` and `random_model` that were built elsewhere; DEVICE, RATES, LISTENERS, STREAMS, MIXED (requests per second), SLOTS,
# CODES and SECONDS_EACH change what is measured.
set -euo pipefail
cd "$(dirname "$0")/../.."
preset=${1:-v2}
out=${2:-bench/results/serve_${preset}_$(date +%Y%m%d).jsonl}
rates=${RATES:-1 10 20}
listeners=${LISTENERS:-64 128 256}
streams=${STREAMS:-64 128 256}
mixed=${MIXED:-10}
seconds=${SECONDS_EACH:-30}
codes=${CODES:-140}
if [ -n "${MYXTTS_BUILT:-}" ]; then
    binary=$MYXTTS_BUILT/myxtts
    maker=$MYXTTS_BUILT/random_model
else
    cargo build --quiet --release -p myxtts -p myxtts-web --bin myxtts --example random_model
    binary=target/release/myxtts
    maker=target/release/examples/random_model
fi
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
server=
began=$(date +%s.%N)
"$maker" "$work/model" "$preset" "$codes" >&2
made=$(date +%s.%N)
"$binary" serve --model "$work/model" --port 0 --device "${DEVICE:-auto}" --queue 512 ${SLOTS:+--slots "$SLOTS"} >"$work/log" 2>&1 &
server=$!
until grep -q '^ready' "$work/log"; do
    kill -0 "$server" || { cat "$work/log"; exit 1; }
    sleep 0.05
done
ready=$(date +%s.%N)
url=$(sed -n 's|.*at \(http://[^ ]*\).*|\1|p' "$work/log" | head -1)
head -1 "$work/log" >&2
python3 - "$preset" "$codes" "$began" "$made" "$ready" >"$out" <<'END'
import json, sys
preset, codes, began, made, ready = sys.argv[1:]
print(json.dumps({"preset": preset, "codes_each": int(codes), "make_model_s": round(float(made) - float(began), 1),
                  "start_to_ready_s": round(float(ready) - float(made), 2)}))
END
# Settings after one that failed are measured all the same; the exit says whether any did.
failed=0
load() { python3 bench/serve/load.py --url "$url" --server-pid "$server" --seconds "$seconds" "$@" | tee -a "$out" || failed=1; }
for rate in $rates; do load --rate "$rate"; done
for count in $listeners; do load --listeners "$count"; done
for count in $streams; do load --streams "$count"; done
[ "$mixed" = 0 ] || load --rate "$mixed" --mixed --cancel 0.35 --leave-within "${LEAVE_WITHIN:-0.1}"
exit $failed
