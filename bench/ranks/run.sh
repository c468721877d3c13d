#!/usr/bin/env bash
# Shows that training with several ranks (processes) works through NCCL, on one GPU that all ranks share: each rank has its own
# NCCL_HOSTID, so NCCL takes every rank for a machine of its own and connects them over sockets of the loopback interface.
#
#   bench/ranks/run.sh OUT_DIR              on a GPU, about 6 minutes
#   bench/ranks/run.sh OUT_DIR --cpu        without a GPU: preset tiny, few steps, sums over TCP; tests this script
#   bench/ranks/run.sh OUT_DIR --only faults,timing
#
# Prints PASS, FAIL or INFO per row with its figures; OUT_DIR/results.jsonl has the raw figures of every row as soon as it is
# finished, OUT_DIR/logs what every process printed. The exit code is the number of failed rows. check.py describes the rows.
# MYXTTS names the program (default: target/dist/myxtts). MYXTTS_CUDA_PATH names a folder with the CUDA libraries and NCCL where
# they are not found by themselves: site-packages of a Python with PyTorch will do. BUDGET is the time in seconds after which no
# further row is started (default: 285; 3600 with --cpu). TIMING_PRESET and FAULT_PRESET change the sizes of the models (small; tiny).
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n '2,14s/^# \{0,1\}//p' bench/ranks/run.sh >&2; exit 2; }
export MYXTTS=${MYXTTS:-target/dist/myxtts}
[ -x "$MYXTTS" ] || { echo "there is no program $MYXTTS: set MYXTTS" >&2; exit 2; }
exec "${PYTHON:-python3}" -u bench/ranks/check.py "$@"
