#!/usr/bin/env bash
# Measures `myxtts serve` under load, with a model of random weights, over loopback. Texts have about 100 characters and are spoken in
# 140 codes (6.5 s) each, since random weights do not predict where a text ends. There is no peer.
#
#   bench/serve/run.sh [v2|tiny] [FILE]
#
# Writes one JSON line per measurement to FILE (default: bench/results/serve_PRESET_DATE.jsonl):
#   note             machine, versions and command
#   server: first    start to ready with an empty kernel cache
#   server: again    start to ready with the kernels of the first start; this server then gets Poisson arrivals, listeners in real
#                    time, concurrent requests, arrivals of which 35 % disconnect early, and the same in all formats
#   server: slotsN   a server with N slots (WIDE_SLOTS, default 256; 0 for none) with N listeners and N concurrent requests
# MYXTTS_BUILT names a folder with `myxtts` and `random_model` that were built elsewhere. DEVICE, RATES, LISTENERS, STREAMS,
# LEAVING and MIXED (requests per second; 0 for none), SLOTS, WIDE_SLOTS, CODES, LEAVE_WITHIN and SECONDS_EACH change what is
# measured.
set -euo pipefail
cd "$(dirname "$0")/../.."
preset=${1:-v2}
out=${2:-bench/results/serve_${preset}_$(date +%Y%m%d).jsonl}
rates=${RATES:-1 10 20}
listeners=${LISTENERS:-64 128 256}
streams=${STREAMS:-64 256}
leaving=${LEAVING:-20}
mixed=${MIXED:-10}
wide=${WIDE_SLOTS:-256}
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
server=
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
"$maker" "$work/model" "$preset" "$codes" >&2
# An empty kernel cache: kernels that earlier programs compiled on this machine are not used.
export MYXTTS_CACHE=$work/cache

line() {
    python3 -c 'import json, sys; print(json.dumps(dict((key, json.loads(value)) for key, value in zip(sys.argv[1::2], sys.argv[2::2]))))' "$@"
}
text() { python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$1"; }

# start NAME [OPTION...]: starts a server, waits until it is ready and prints how long that took.
start() {
    local name=$1 began ready
    shift
    began=$(date +%s.%N)
    "$binary" serve --model "$work/model" --port 0 --device "${DEVICE:-auto}" --queue 512 "$@" >"$work/log" 2>&1 &
    server=$!
    until grep -q '^ready' "$work/log"; do
        kill -0 "$server" || { cat "$work/log" >&2; exit 1; }
        sleep 0.05
    done
    ready=$(date +%s.%N)
    url=$(sed -n 's|.*at \(http://[^ ]*\).*|\1|p' "$work/log" | head -1)
    line server "$(text "$name")" options "$(text "$*")" preset "$(text "$preset")" codes_each "$codes" \
        start_to_ready_s "$(python3 -c "print(round($ready - $began, 2))")" | tee -a "$out"
}
stop() {
    kill "$server"
    wait "$server" || true
    server=
}

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1 || true)
line note "$(text "${gpu:-no GPU}, $(nproc) cores, $(date +%Y-%m-%d), $("$binary" --version)")" command "$(text "bench/serve/run.sh $preset")" >"$out"
# Measurements continue after one that failed; the exit code says whether any failed.
failed=0
load() { python3 bench/serve/load.py --url "$url" --server-pid "$server" --seconds "$seconds" "$@" | tee -a "$out" || failed=1; }
slots=${SLOTS:+--slots $SLOTS}
start first $slots
stop
start again $slots
for rate in $rates; do load --rate "$rate"; done
for count in $listeners; do load --listeners "$count"; done
for count in $streams; do load --streams "$count"; done
[ "$leaving" = 0 ] || load --rate "$leaving" --cancel 0.35 --leave-within "${LEAVE_WITHIN:-0.1}"
[ "$mixed" = 0 ] || load --rate "$mixed" --mixed --cancel 0.35 --leave-within "${LEAVE_WITHIN:-0.1}"
stop
if [ "$wide" != 0 ]; then
    start "slots$wide" --slots "$wide"
    load --listeners "$wide"
    load --streams "$wide"
    stop
fi
exit $failed
