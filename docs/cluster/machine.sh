#!/bin/sh
# Starts all ranks of one machine, one for each of its GPUs: begins the run, or resumes it.
#   MACHINE=0 MACHINES=4 GPUS=8 MASTER_ADDR=node1 docs/cluster/machine.sh CORPUS NAME [arguments of `myxtts train`]
# The same on every machine, with MACHINE from 0 on; MASTER_ADDR is machine 0. MYXTTS_RENDEZVOUS_TOKEN has to be the same on all.
# Optional: RUNS (folder of the runs, default: runs), MYXTTS (path of the binary), MASTER_PORT (29500).
set -eu
corpus=$1 name=$2
shift 2
set -- train "$corpus" --name "$name" --or-resume "$@"
[ -z "${RUNS:-}" ] || set -- "$@" --runs-dir "$RUNS"
exec "${MYXTTS:-myxtts}" launch --gpus "$GPUS" --machines "$MACHINES" --machine "$MACHINE" \
    --rendezvous "$MASTER_ADDR:${MASTER_PORT:-29500}" -- "$@"
