#!/bin/bash
# Trains on machines that are reached by ssh and share a folder: the working folder, with the corpus, the runs and this script.
# Run it in that folder: each machine calls docs/cluster/machine.sh there.
#   docs/cluster/ssh.sh "node1 node2 node3 node4" 8 CORPUS NAME [arguments of `myxtts train`]
# The first machine has rank 0. Where the run ends with code 75 it is started again from its last checkpoint.
# Optional: RUNS (folder of the runs, default: runs), MYXTTS (path of the binary), MASTER_PORT (29500), SSH (ssh), PAUSE (10 s).
set -u
read -r -a machines <<<"$1"
gpus=$2
shift 2
here=$(pwd)
ssh=${SSH:-ssh}
words=$(printf '%q ' "$@")

start() {
    local token machine=0 pids=() code=0 pid
    token=$(head -c 24 /dev/urandom | base64)
    for host in "${machines[@]}"; do
        # The token goes by standard input: arguments can be read by every user of a machine.
        $ssh "$host" "read -r MYXTTS_RENDEZVOUS_TOKEN; export MYXTTS_RENDEZVOUS_TOKEN; cd $(printf %q "$here") && \
            MACHINE=$machine MACHINES=${#machines[@]} GPUS=$gpus MASTER_ADDR=${machines[0]} \
            MASTER_PORT=${MASTER_PORT:-29500} RUNS=$(printf %q "${RUNS:-}") MYXTTS=$(printf %q "${MYXTTS:-myxtts}") \
            exec sh docs/cluster/machine.sh $words" <<<"$token" &
        pids+=($!)
        machine=$((machine + 1))
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || { ended=$?; [ "$code" -eq 0 ] && code=$ended; }
    done
    return "$code"
}

for attempt in 1 2 3 4 5; do
    start "$@"
    code=$?
    [ "$code" -eq 75 ] || exit "$code"
    echo "attempt $attempt: a rank was lost; the run resumes from its last checkpoint in ${PAUSE:-10} s" >&2
    sleep "${PAUSE:-10}"
done
exit "$code"
