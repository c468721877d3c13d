#!/usr/bin/env bash
# Measures every part of the settings for little speech alone: the GPT is trained with all of them, then with one left out or changed,
# each from the same DVAE. The row `all` is the baseline.
#
#   bench/low_data/ablation.sh OUT_DIR CORPUS...
#
# MYXTTS names the binary (default: myxtts on the PATH), SEEDS the seeds ("1"), STEPS the GPT's steps (3000), PRESET the size (small),
# DEVICE the device (auto), JOBS how many trainings run at the same time (1), ROWS a regular expression of the rows to run (default: all).
# MORE has further arguments of every `train`, separated by spaces. Finished rows are used again.
# Writes OUT_DIR/SEED-ROW.log for every run, and OUT_DIR/table.md: validation loss, accuracy and text gain.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$1; shift
corpora=(); for corpus in "$@"; do corpora+=("$(realpath "$corpus")"); done
myxtts=${MYXTTS:-myxtts} steps=${STEPS:-3000} jobs=${JOBS:-1} rows=${ROWS:-.}
read -ra seeds <<< "${SEEDS:-1}"
read -ra more <<< "${MORE:-}"
mkdir -p "$out"; out=$(realpath "$out")

train() { # SEED ROW ARGUMENTS...
  local name=$1-$2 seed=$1; shift 2
  [ -e "$out/$name.done" ] && return
  rm -rf "$out/runs/$name"
  "$myxtts" train "${corpora[@]}" --name "$name" --preset "${PRESET:-small}" --seed "$seed" --device "${DEVICE:-auto}" \
    --runs-dir "$out/runs" --set training.sample_every=0 --set training.early_stop_patience=1000 \
    ${more[@]+"${more[@]}"} "$@" > "$out/$name.log" 2>&1 && touch "$out/$name.done" || echo "failed: $out/$name.log" >&2
}
gpt() { # SEED ROW SETTING...
  local seed=$1 row=$2 sets=(); shift 2
  [[ $row =~ $rows ]] || return 0
  for setting in "$@"; do sets+=(--set "$setting"); done
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  train "$seed" "$row" --stage gpt --from "$out/runs/$seed-dvae/model" --gpt-steps "$steps" ${sets[@]+"${sets[@]}"} &
}
for seed in "${seeds[@]}"; do
  # From nothing, so that codes, their token weight and the cleaner are chosen as for a whole run.
  train "$seed" dvae --stage dvae
  gpt "$seed" all
  gpt "$seed" no-code_masking training.code_masking=0
  gpt "$seed" no-recombination training.recombination=0
  gpt "$seed" no-alignment training.alignment_weight=0
  gpt "$seed" no-acoustic training.acoustic_weight=0
  gpt "$seed" no-text_dropout training.text_dropout=0
  gpt "$seed" no-diagonal_start training.diagonal_start=false
  gpt "$seed" no-codebook_start training.codebook_start=false
  gpt "$seed" dropout-0.1 training.dropout=0.1
  gpt "$seed" code_masking-0.3 training.code_masking=0.3
  gpt "$seed" recombination-0.4 training.recombination=0.4
  gpt "$seed" weight_decay-0 training.weight_decay=0
  gpt "$seed" weight_decay-0.1 training.weight_decay=0.1
  gpt "$seed" none training.code_masking=0 training.recombination=0 training.alignment_weight=0 training.acoustic_weight=0 \
    training.text_dropout=0 training.diagonal_start=false training.codebook_start=false training.dropout=0.1
  wait
done
{
  echo "| seed, row | best validation loss (step) | best accuracy (step) | last: loss | accuracy | text gain |"
  echo "|---|---|---|---|---|---|"
  for log in "$out"/*.log; do
    name=$(basename "$log" .log)
    [[ $name == *-dvae ]] && continue
    sed -n 's/^validation after step \([0-9]*\) of `gpt`: codes \([0-9.]*\),.*accuracy \([0-9.]*\),.* text_gain \([-0-9.]*\).*/\1 \2 \3 \4/p' "$log" |
      awk -v name="$name" 'NR == 1 || $2 < best { best = $2; at = $1 } NR == 1 || $3 > most { most = $3; then = $1 }
        { loss = $2; accuracy = $3; gain = $4 }
        END { if (NR) printf "| %s | %s (%s) | %s (%s) | %s | %s | %s |\n", name, best, at, most, then, loss, accuracy, gain
              else printf "| %s | no validation: see the log | | | | |\n", name }'
  done
} | tee "$out/table.md"
