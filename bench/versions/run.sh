#!/usr/bin/env bash
# Compares the training speed of two builds of this program: each stage of the preset `tiny` on a CPU (or of another preset on a GPU),
# the builds in turn. Shows whether a change made training slower.
#
#   bench/versions/run.sh OLD NEW [FILE [ROUNDS]]
#
# OLD and NEW are `myxtts` binaries. Writes one JSON line per build, stage and round to FILE (default:
# bench/results/versions_DATE.jsonl); ROUNDS is 5 unless given. DEVICE is cpu unless set, PRESET tiny, BATCH 4, STEPS 40. CORPUS names
# a corpus; without it, 200 clips of the demo corpus are made. Prints clips per second: medians, ranges, and the ratio NEW / OLD of every round.
# Each build makes its own cache. Nothing else should run meanwhile.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
out=${3:-$(dirname "$0")/../results/versions_$(date +%Y%m%d).jsonl} rounds=${4:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
corpus=${CORPUS:-}
if [ -z "$corpus" ]; then
  corpus=$work/corpus
  "$old" demo-corpus "$corpus" --utterances 200 > /dev/null
fi
: > "$out"
for ((round = 1; round <= rounds; round++)); do
  for stage in gpt dvae decoder; do
    # The build that comes first changes from round to round.
    order=(old new); ((round % 2)) || order=(new old)
    for build in "${order[@]}"; do
      "${!build}" bench "$corpus" --json --stage "$stage" --device "${DEVICE:-cpu}" --preset "${PRESET:-tiny}" --only buffered \
        --set data.batch_size="${BATCH:-4}" --set data.vocab_size=120 --set data.cache_dir="$work/cache-$build" \
        --warm 10 --steps "${STEPS:-40}" 2> "$work/log" > "$work/report" || { cat "$work/log" >&2; exit 1; }
      python3 - "$build" "$stage" "$round" "$work/report" >> "$out" << 'PY'
import json, os, sys
build, stage, number, report = sys.argv[1:]
row = json.load(open(report))["rows"][0]
print(json.dumps({"build": build, "stage": stage, "round": int(number), "way": row["way"], "load": os.getloadavg()[0],
                  "samples_per_second": row["samples_per_second"], "mean_shape": row["mean_shape"]}))
PY
    done
  done
  echo "round $round of $rounds" >&2
done
python3 - "$out" << 'PY'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
for stage in ("gpt", "dvae", "decoder"):
    speed = {build: [line["samples_per_second"] for line in lines if (line["build"], line["stage"]) == (build, stage)]
             for build in ("old", "new")}
    ratios = [new / old for old, new in zip(speed["old"], speed["new"])]
    text = [f"{build} {statistics.median(s):.2f} ({min(s):.2f} to {max(s):.2f})" for build, s in speed.items()]
    print(f"{stage}: {', '.join(text)} clips/s, n = {len(ratios)}; "
          f"new / old {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
PY
