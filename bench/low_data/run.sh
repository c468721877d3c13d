#!/usr/bin/env bash
# Measures which settings keep a GPT from memorising a small corpus: none of them, each alone, and all, from one DVAE. The run with
# none of them is the baseline.
#
#   bench/low_data/run.sh CORPUS OUT_DIR [SEED ...]
#
# MYXTTS names the binary (default: myxtts on the PATH), STEPS the GPT's steps (2000), CODES the size of the codebook (256).
# Writes OUT_DIR/SEED-NAME.log for every run, and OUT_DIR/table.md: validation loss, accuracy and text gain.
set -euo pipefail
corpus=$(realpath "$1"); out=$2; shift 2
seeds=("${@:-1}"); steps=${STEPS:-2000}; codes=${CODES:-256}; myxtts=${MYXTTS:-myxtts}
mkdir -p "$out"; out=$(realpath "$out"); runs=$out/runs
common=(--preset small --batch-size 64 --set training.runs_dir="$runs" --set model.audio_codes="$codes"
  --set data.auto_tune_performance=false --set training.sample_every=0)
gpt() { # SEED NAME masking recombination alignment diagonal
  "$myxtts" train "$corpus" --name "$1-$2" --stage gpt --from "$runs/$1-dvae/model" "${common[@]}" --set training.seed="$1" \
    --gpt-steps "$steps" --set training.learning_rate=5e-4 --set training.ema_decay=0.999 --set training.dropout=0.2 \
    --set training.validate_every=250 --set training.early_stop_patience=1000 \
    --set training.code_masking="$3" --set training.recombination="$4" \
    --set training.alignment_weight="$5" --set training.diagonal_start="$6" \
    --set training.acoustic_weight=0 --set training.text_dropout=0 --set training.codebook_start=false > "$out/$1-$2.log" 2>&1
}
for seed in "${seeds[@]}"; do
  "$myxtts" train "$corpus" --name "$seed-dvae" --stage dvae "${common[@]}" --set training.seed="$seed" --dvae-steps 4000 \
    --set training.code_token_weight=0 > "$out/$seed-dvae.log" 2>&1
  gpt "$seed" none 0 0 0 false
  gpt "$seed" masking 0.3 0 0 false
  gpt "$seed" recombination 0 0.7 0 false
  gpt "$seed" alignment 0 0 0.3 false
  gpt "$seed" diagonal 0 0 0 true
  gpt "$seed" all 0.3 0.7 0.3 true
done
{
  echo "| seed, settings | best validation loss (step) | last: loss | accuracy | text gain |"
  echo "|---|---|---|---|---|"
  for log in "$out"/*.log; do
    name=$(basename "$log" .log)
    [[ $name == *-dvae ]] && continue
    sed -n 's/^validation after step \([0-9]*\) of `gpt`: codes \([0-9.]*\),.*accuracy \([0-9.]*\),.* text_gain \([-0-9.]*\).*/\1 \2 \3 \4/p' "$log" |
      awk -v name="$name" 'NR == 1 || $2 < best { best = $2; at = $1 } { loss = $2; accuracy = $3; gain = $4 }
        END { printf "| %s | %s (%s) | %s | %s | %s |\n", name, best, at, loss, accuracy, gain }'
  done
} | tee "$out/table.md"
