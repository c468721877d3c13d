#!/usr/bin/env bash
# Load on `myxtts serve` with random weights, on this machine's loopback: Poisson arrivals at 1, 10 and 20 requests per second, then
# streams at once.
#
#   bench/serve/run.sh [v2|tiny] [FILE]
#
# Writes one JSON line per setting to FILE (default: bench/results/serve_PRESET_DATE.jsonl). MYXTTS_BUILT names a folder with
# `myxtts` and `random_model` that were built elsewhere; DEVICE, RATES, STREAMS, SLOTS and SECONDS_EACH change what is measured.
set -euo pipefail
cd "$(dirname "$0")/../.."
preset=${1:-v2}
out=${2:-bench/results/serve_${preset}_$(date +%Y%m%d).jsonl}
rates=${RATES:-1 10 20}
streams=${STREAMS:-64 128 256}
seconds=${SECONDS_EACH:-30}
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
"$maker" "$work/model" "$preset"
"$binary" serve --model "$work/model" --port 0 --device "${DEVICE:-auto}" --queue 512 ${SLOTS:+--slots "$SLOTS"} >"$work/log" 2>&1 &
server=$!
until grep -q '^ready' "$work/log"; do
    kill -0 "$server" || { cat "$work/log"; exit 1; }
    sleep 0.2
done
url=$(sed -n 's|.*at \(http://[^ ]*\).*|\1|p' "$work/log" | head -1)
head -1 "$work/log" >&2
arguments=()
for rate in $rates; do arguments+=(--rate "$rate"); done
for count in $streams; do arguments+=(--streams "$count"); done
python3 bench/serve/load.py --url "$url" --seconds "$seconds" "${arguments[@]}" --memory-of "$server" | tee "$out"
