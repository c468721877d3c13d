#!/usr/bin/env bash
# Trains a voice, makes the compact model to publish, and speaks unseen texts with both, so that a recogniser can compare them.
#
#   bench/low_data/publish.sh NAME REFERENCE LIST OUT_DIR CORPUS...
#
# REFERENCE is a recording of the voice that the model gets as NAME. LIST has lines id|text of texts that no CORPUS contains.
# SOURCE and LICENCE (both required) say where the recordings come from, and go into the model. MYXTTS names the binary (default:
# myxtts on the PATH), PRESET the size (small), SEED the seed (1), BITS the bits per weight (7), LIMIT the size in MB above which the
# model is refused (16). ARGS has further arguments of `train`, TAKES those of `evaluate`, each separated by spaces.
# BUDGET is the time in seconds after which the script stops (default: none): training saves and ends with exit code 75, and the same
# call continues. Finished parts in OUT_DIR are used again.
# Writes OUT_DIR/train.log, OUT_DIR/spoken/{trained,compact}/ID.wav, and OUT_DIR/models/NAME: the model with a model card, README.md.
set -euo pipefail
[ $# -ge 5 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
name=$1 reference=$(realpath "$2") list=$(realpath "$3") out=$4; shift 4
: "${SOURCE:?says where the recordings come from}" "${LICENCE:?is the licence of the weights}"
[[ $name =~ ^[A-Za-z0-9._-]+$ ]] || { echo "NAME is '$name': use letters, digits, '.', '_' and '-', since it names folders" >&2; exit 2; }
myxtts=${MYXTTS:-myxtts} preset=${PRESET:-small} seed=${SEED:-1} bits=${BITS:-7} limit=${LIMIT:-16} budget=${BUDGET:-0}
mkdir -p "$out/models" "$out/finished"; out=$(realpath "$out")
run=$out/runs/$name model=$out/models/$name
read -ra more <<< "${ARGS:-}"
read -ra takes <<< "${TAKES:-}"

# limited COMMAND...: runs it until the budget ends. SIGTERM makes `train` save; SIGKILL follows after 30 s.
limited() {
  local left=0 code=0
  if [ "$budget" -gt 0 ]; then
    left=$((budget - SECONDS - 30))
    [ "$left" -ge 5 ] || { echo "no time left of $budget s: the same call continues" >&2; return 75; }
  fi
  timeout --kill-after=30 "$left" "$@" || code=$?
  case $code in
    124 | 137 | 143) echo "stopped after $SECONDS s: the same call continues" >&2; return 75 ;;
    *) return "$code" ;;
  esac
}

if [ ! -e "$out/finished/train" ]; then
  train=(train "$@" --name "$name" --preset "$preset" --seed "$seed" --set training.sample_every=0 "${more[@]}")
  # A run that was stopped before its plan was written starts again.
  if [ -e "$run/plan.json" ]; then train=(train --resume "$name"); else rm -rf "$run"; fi
  limited "$myxtts" "${train[@]}" --set training.runs_dir="$out/runs" 2>&1 | tee -a "$out/train.log"
  touch "$out/finished/train"
fi
if [ ! -e "$out/finished/compact" ]; then
  limited "$myxtts" compact "$run" -o "$model" --bits "$bits" --voice "$name=$reference" --source "$SOURCE" --licence "$LICENCE" --force |
    tee "$out/compact.txt"
  touch "$out/finished/compact"
fi
rm -f "$model/README.md"
size=$(du -sb --apparent-size "$model" | cut -f1)
if [ "$size" -gt $((limit * 1000000)) ]; then
  echo "$model has $size bytes, more than $limit MB: lower BITS, or train with fewer audio codes (ARGS='--set model.audio_codes=4096')" >&2
  rm "$out/finished/compact"
  exit 1
fi
speak() { # FOLDER MODEL VOICE
  [ -e "$out/finished/spoken-$1" ] && return
  limited "$myxtts" evaluate "$2" --texts "$list" --voice "$3" -o "$out/spoken/$1" ${takes[@]+"${takes[@]}"}
  touch "$out/finished/spoken-$1"
}
speak trained "$run/model" "$reference"
speak compact "$model" "$name"

# The command for the card: names of corpora without their folders, quoted where needed.
words=(train)
for word in "$@"; do words+=("$(basename "$word")"); done
words+=(--name "$name" --preset "$preset" --seed "$seed" ${more[@]+"${more[@]}"})
printf -v command '%q ' "${words[@]}"
cell() { printf '%s' "$1" | tr '\n' ' ' | sed 's/|/\\|/g'; } # text in a cell of a table
cat > "$model/README.md" << CARD
# $name

| | |
|---|---|
| data | $(cell "$SOURCE") |
| licence | $(cell "$LICENCE") |
| command | \`$(cell "myxtts ${command% }")\`, then \`myxtts compact --bits $bits\` |
| size | $size bytes without this file |

\`myxtts speak "Hello there." --model $name\`

Word error rate, speaker similarity and quality: to be filled in from the scores of \`spoken/compact\`.
CARD
# What is published must not name folders of this machine.
places=(-e "$out" -e "$(dirname "$reference")/")
[ "${#HOME}" -lt 3 ] || places+=(-e "$HOME/")
if grep -rlF "${places[@]}" "$model" >&2; then
  echo "the files above contain a path of this machine: remove it before publishing" >&2
  exit 1
fi
echo "$model: $size bytes; score $out/spoken/trained and $out/spoken/compact, and complete $model/README.md"
