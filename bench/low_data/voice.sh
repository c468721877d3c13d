#!/usr/bin/env bash
# Trains a voice on a small corpus with the settings that `train` chooses, then speaks unseen texts and resynthesises their
# recordings. There is no peer: the audio is scored by a recogniser, next to the recordings themselves.
#
#   bench/low_data/voice.sh CORPUS LIST REFERENCE OUT_DIR [SEED ...]
#
# LIST has lines id|text of texts that CORPUS does not contain (recordings next to it or in wavs/). REFERENCE is a recording of the
# voice. MYXTTS names the binary (default: myxtts on the PATH). Writes for every seed OUT_DIR/SEED.log and .time,
# OUT_DIR/SEED/spoken/ID.wav and OUT_DIR/SEED/parts/{original,dvae,decoder}/ID.wav.
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
  grep -a "validation after\|keeps the weights" "$out/$seed.log"
done
