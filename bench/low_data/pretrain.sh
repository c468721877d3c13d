#!/usr/bin/env bash
# Measures pretraining on synthetic speech: a GPT trained on synthetic and real speech and then on the real speech alone, beside one
# trained on the real speech for as many steps, and beside the pretrained one itself. All have the DVAE of the real speech, and hold out
# the same texts of it.
#
#   bench/low_data/pretrain.sh OUT_DIR CORPUS...
#
# MYXTTS names the binary (default: myxtts on the PATH), SEED the seed (1), UTTERANCES and SPEAKERS the synthetic speech (12000, 300),
# PRETRAIN and STEPS the GPT's steps on both and on the real speech (4000, 2000), PRESET the size (small), DEVICE the device (auto), CLEANER
# how texts are read (phonemes, which are not chosen for this much English text). MORE has further arguments of every `train`, separated
# by spaces. With LIST (lines id|text of texts that no CORPUS contains) and REFERENCE (a recording of the voice), every model also speaks
# the list, by its DVAE. Finished parts are used again.
# Writes OUT_DIR/NAME.log for dvae, pretrained, tuned and scratch, OUT_DIR/spoken/NAME/ID.wav, and OUT_DIR/table.md.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$1; shift
real=(); for corpus in "$@"; do real+=("$(realpath "$corpus")"); done
myxtts=${MYXTTS:-myxtts} seed=${SEED:-1} pretrain=${PRETRAIN:-4000} steps=${STEPS:-2000}
read -ra more <<< "${MORE:-}"
mkdir -p "$out"; out=$(realpath "$out")

train() { # NAME ARGUMENTS...
  local name=$1; shift
  [ -e "$out/$name.done" ] && return
  rm -rf "${out:?}/runs/$name"
  "$myxtts" train "$@" --name "$name" --preset "${PRESET:-small}" --seed "$seed" --device "${DEVICE:-auto}" --runs-dir "$out/runs" \
    --cleaner "${CLEANER:-phonemes}" --set training.sample_every=0 --set training.early_stop_patience=1000 ${more[@]+"${more[@]}"} > "$out/$name.log" 2>&1 ||
    { tail -3 "$out/$name.log" >&2; exit 1; }
  touch "$out/$name.done"
}
# Synthetic speech makes it more than 20 hours, for which these would not be chosen.
little=(--set training.diagonal_start=true --set training.codebook_start=true)
for setting in code_masking=0.45 recombination=0.7 alignment_weight=0.3 acoustic_weight=10 text_dropout=0.1 dropout=0.3; do
  little+=(--set "training.$setting")
done
if [ ! -e "$out/synthetic.done" ]; then
  "$myxtts" synthesize-corpus "$out/synthetic" --utterances "${UTTERANCES:-12000}" --speakers "${SPEAKERS:-300}" --seed "$seed" --force
  touch "$out/synthetic.done"
fi
train dvae "${real[@]}" --stage dvae
# With eight speakers and more, half of the fraction is held out by text: twice the fraction holds out the same texts of the real speech.
train pretrained "${real[@]}" "$out/synthetic" --stage gpt --from "$out/runs/dvae/model" --gpt-steps "$pretrain" \
  --val-fraction 0.1 "${little[@]}"
train tuned "${real[@]}" --stage gpt --from "$out/runs/pretrained/model" --gpt-steps "$steps"
train scratch "${real[@]}" --stage gpt --from "$out/runs/dvae/model" --gpt-steps $((pretrain + steps))

python3 - "$out" "${#real[@]}" << 'CHECK'
import json, sys
from pathlib import Path
out, several = Path(sys.argv[1]), int(sys.argv[2]) > 1
held = {name: set(json.loads((out / "runs" / name / "held-out.json").read_text())["clips"]) for name in ("pretrained", "tuned", "scratch")}
# In a run on one corpus, ids have no label.
tuned = {one if several else one.split(":", 1)[-1] for one in held["tuned"]}
before = {one if several else one.split(":", 1)[-1] for one in held["pretrained"]}
if missing := tuned - before:
    sys.exit(f"{len(missing)} clips that validate `tuned` were trained on before: {sorted(missing)[:3]}")
CHECK
if [ -n "${LIST:-}" ]; then
  for name in scratch pretrained tuned; do
    "$myxtts" evaluate "$out/runs/$name/model" --texts "$LIST" --voice "$REFERENCE" -o "$out/spoken/$name" --device "${DEVICE:-auto}"
  done
fi
{
  echo "| GPT | best validation loss (step) | best accuracy (step) | text gain there |"
  echo "|---|---|---|---|"
  for name in scratch pretrained tuned; do
    sed -n 's/^validation after step \([0-9]*\) of `gpt`: codes \([0-9.]*\),.*accuracy \([0-9.]*\),.* text_gain \([-0-9.]*\).*/\1 \2 \3 \4/p' "$out/$name.log" |
      awk -v name="$name" 'NR == 1 || $2 < best { best = $2; at = $1 } NR == 1 || $3 > most { most = $3; then = $1; gain = $4 }
        END { if (NR) printf "| %s | %s (%s) | %s (%s) | %s |\n", name, best, at, most, then, gain }'
  done
} | tee "$out/table.md"
