#!/bin/bash
# Prepares a corpus on many machines under Slurm, then merges what they made.
#   docs/cluster/prepare.sh 16 CORPUS [arguments of `myxtts prepare`]
set -eu
machines=$1
shift
myxtts=${MYXTTS:-myxtts}
prepare() {
    sbatch --parsable --job-name=myxtts-prepare --ntasks=1 --requeue --open-mode=append "$@"
}
words=$(printf '%q ' "$@")
# A task that is killed and requeued continues where it was.
array=$(prepare --array="1-$machines" --cpus-per-task=16 --wrap="$myxtts prepare $words --shard auto")
merge=$(prepare --dependency="afterok:$array" --kill-on-invalid-dep=yes --cpus-per-task=4 \
    --wrap="$myxtts prepare $words --merge")
echo "shards: job $array, merge: job $merge"
