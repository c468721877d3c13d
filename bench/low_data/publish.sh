#!/usr/bin/env bash
# Trains a voice, makes the compact model to publish, and speaks unseen texts with both, so that a recogniser can compare them.
#
#   bench/low_data/publish.sh NAME REFERENCE LIST OUT_DIR CORPUS...
#
# REFERENCE is a recording of the voice that the model gets as NAME. LIST has lines id|text of texts that no CORPUS contains.
# SOURCE and LICENCE (both required) say where the recordings come from, and go into the model. MYXTTS names the binary (default:
# myxtts on the PATH), PRESET the size (small), SEED the seed (1), BITS the bits per weight (7), LIMIT the size in MB above which the
# model is refused (16). ARGS has further arguments of `train`. A finished training in OUT_DIR is used again.
# Writes OUT_DIR/train.log, OUT_DIR/spoken/{trained,compact}/ID.wav, and OUT_DIR/models/NAME: the model with a model card, README.md.
set -euo pipefail
[ $# -ge 5 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
name=$1 reference=$(realpath "$2") list=$(realpath "$3") out=$4; shift 4
: "${SOURCE:?says where the recordings come from}" "${LICENCE:?is the licence of the weights}"
myxtts=${MYXTTS:-myxtts} preset=${PRESET:-small} seed=${SEED:-1} bits=${BITS:-7} limit=${LIMIT:-16}
mkdir -p "$out/models"; out=$(realpath "$out")
run=$out/runs/$name model=$out/models/$name
train=(train "$@" --name "$name" --preset "$preset" --seed "$seed")
if [ ! -e "$out/trained" ]; then
  [ ! -e "$run" ] || train=(train --resume "$name")
  # shellcheck disable=SC2086  # ARGS is a list of arguments
  "$myxtts" "${train[@]}" --set training.runs_dir="$out/runs" --set training.sample_every=0 ${ARGS:-} 2>&1 | tee -a "$out/train.log"
  touch "$out/trained"
fi
"$myxtts" compact "$run" -o "$model" --bits "$bits" --voice "$name=$reference" --source "$SOURCE" --licence "$LICENCE" --force |
  tee "$out/compact.txt"
size=$(du -sb "$model" | cut -f1)
if [ "$size" -gt $((limit * 1000000)) ]; then
  echo "$model has $size bytes, more than $limit MB: lower BITS, or train with fewer audio codes (ARGS='--set model.audio_codes=4096')" >&2
  exit 1
fi
"$myxtts" evaluate "$run/model" --texts "$list" --voice "$reference" -o "$out/spoken/trained"
"$myxtts" evaluate "$model" --texts "$list" --voice "$name" -o "$out/spoken/compact"
cat > "$model/README.md" << CARD
# $name

| | |
|---|---|
| data | $SOURCE |
| licence | $LICENCE |
| command | \`myxtts ${train[*]##*/} ${ARGS:-}\`, then \`myxtts compact --bits $bits\` |
| size | $size bytes |

\`myxtts speak "Hello there." --model $name\`

Word error rate, speaker similarity and quality: to be filled in from the scores of \`spoken/compact\`.
CARD
echo "$model: $size bytes; score $out/spoken/trained and $out/spoken/compact, and complete $model/README.md"
