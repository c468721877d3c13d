#!/usr/bin/env bash
# A voice from little speech with the settings that training chooses, spoken and passed through its parts.
#   bench/low_data/voice.sh CORPUS LIST REFERENCE OUT_DIR [SEED ...]
# LIST has lines id|text (held-out texts; recordings beside it or in wavs/), REFERENCE is a recording of the voice.
# MYXTTS is the binary (default: myxtts on the PATH). Writes for every seed OUT_DIR/SEED.log and .time, OUT_DIR/SEED/spoken/ID.wav and
# OUT_DIR/SEED/parts/{original,dvae,decoder}/ID.wav, to be scored by a recogniser.
set -euo pipefail
corpus=$(realpath "$1"); list=$(realpath "$2"); reference=$(realpath "$3"); out=$4; shift 4
seeds=("${@:-1234}"); myxtts=${MYXTTS:-myxtts}
mkdir -p "$out"; out=$(realpath "$out")
for seed in "${seeds[@]}"; do
  began=$(date +%s)
  "$myxtts" train "$corpus" --name "$seed" --preset small --seed "$seed" --set training.runs_dir="$out/runs" \
    --set training.sample_every=0 > "$out/$seed.log" 2>&1
  echo "$(($(date +%s) - began)) s" > "$out/$seed.time"
  "$myxtts" evaluate "$out/runs/$seed/model" --texts "$list" --voice "$reference" -o "$out/$seed/spoken" >> "$out/$seed.log" 2>&1
  "$myxtts" resynthesize "$out/runs/$seed/model" "$list" -o "$out/$seed/parts" >> "$out/$seed.log" 2>&1
  grep -a "held out, after\|keeps the weights" "$out/$seed.log"
done
