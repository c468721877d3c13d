#!/usr/bin/env bash
# Trains a voice on a small corpus with the settings that `train` chooses, then speaks unseen texts and resynthesises their
# recordings. There is no peer: the audio is scored by a recogniser, next to the recordings themselves.
#
#   bench/low_data/voice.sh LIST REFERENCE OUT_DIR CORPUS...
#
# LIST has lines id|text of texts that no CORPUS contains (recordings next to it or in wavs/). REFERENCE is a recording of the
# voice. MYXTTS names the binary (default: myxtts on the PATH), SEEDS the seeds ("1 2 3"), ARGS further arguments of `train`. Writes for
# every seed OUT_DIR/SEED.log and .time, OUT_DIR/SEED/spoken/ID.wav and OUT_DIR/SEED/parts/{original,dvae,decoder}/ID.wav.
set -euo pipefail
[ $# -ge 4 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
list=$(realpath "$1"); reference=$(realpath "$2"); out=$3; shift 3
corpora=(); for corpus in "$@"; do corpora+=("$(realpath "$corpus")"); done
myxtts=${MYXTTS:-myxtts}
read -ra seeds <<< "${SEEDS:-1 2 3}"
read -ra more <<< "${ARGS:-}"
mkdir -p "$out"; out=$(realpath "$out")
for seed in "${seeds[@]}"; do
  began=$(date +%s)
  "$myxtts" train "${corpora[@]}" --name "$seed" --preset small --seed "$seed" --set training.runs_dir="$out/runs" \
    --set training.sample_every=0 ${more[@]+"${more[@]}"} > "$out/$seed.log" 2>&1
  echo "$(($(date +%s) - began)) s" > "$out/$seed.time"
  "$myxtts" evaluate "$out/runs/$seed/model" --texts "$list" --voice "$reference" -o "$out/$seed/spoken" >> "$out/$seed.log" 2>&1
  "$myxtts" resynthesize "$out/runs/$seed/model" "$list" -o "$out/$seed/parts" >> "$out/$seed.log" 2>&1
  grep -a "validation after\|keeps the weights" "$out/$seed.log"
done
