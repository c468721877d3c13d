#!/bin/sh
# Starts all ranks of one machine, one for each of its GPUs, with torchrun's variables.
#   MACHINE=0 MACHINES=4 GPUS=8 MASTER_ADDR=node1 docs/cluster/machine.sh CORPUS NAME [arguments of `myxtts train`]
# MYXTTS_RENDEZVOUS_TOKEN has to be the same on all machines. Ends with the code of the first rank that failed.
set -u
corpus=$1 name=$2
shift 2
myxtts=${MYXTTS:-myxtts}
runs=${RUNS:-runs}
if [ -f "$runs/$name/plan.json" ]; then
    set -- train --resume "$name" "$@"
else
    set -- train "$corpus" --name "$name" "$@"
fi

export MASTER_ADDR MASTER_PORT="${MASTER_PORT:-29500}"
export WORLD_SIZE=$((MACHINES * GPUS)) LOCAL_WORLD_SIZE=$GPUS
pids=
local_rank=0
while [ "$local_rank" -lt "$GPUS" ]; do
    RANK=$((MACHINE * GPUS + local_rank)) LOCAL_RANK=$local_rank "$myxtts" "$@" &
    pids="$pids $!"
    local_rank=$((local_rank + 1))
done

# Ranks save before they end.
# shellcheck disable=SC2086
trap 'kill -TERM $pids 2>/dev/null' TERM INT
code=0
for pid in $pids; do
    ended=0
    wait "$pid" || ended=$?
    # A signal ends the wait, not the rank.
    while [ "$ended" -gt 128 ] && kill -0 "$pid" 2>/dev/null; do
        ended=0
        wait "$pid" || ended=$?
    done
    [ "$code" -eq 0 ] && code=$ended
done
exit "$code"
