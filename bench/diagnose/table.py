"""Compares the planted fault with the cause that `myxtts diagnose` named.

usage: table.py FILE SEED < REPORT    prints one row for a report and appends the report to FILE as one line
       table.py --sum FILE            prints how many planted faults were named, by seed, by fault and in total

A fault is named first if it is the most expensive finding, and anywhere if it is one of them."""

import json
import sys
from collections import defaultdict

CAUSES = {
    "healthy": "healthy",
    "slow-disk": "disk",
    "slow-decode": "decode",
    "slow-worker": "slow_worker",
    "tiny-buffer": "tiny_buffer",
    "upload-lock": "upload_lock",
    "pageable-upload": "pageable_uploads",
    "shape-churn": "shape_churn",
    "periodic-stall": "periodic_stall",
    "cpu-hog": "processor",
    "slow-step": "slow_step",
    "noisy-step": "noisy_step",
}


def anywhere(row):
    return CAUSES[row["planted"]] in [finding["culprit"] for finding in row["findings"]]


def score(rows):
    return f"{sum(row['found'] for row in rows)} of {len(rows)} named first, {sum(map(anywhere, rows))} anywhere"


def grouped(rows, key):
    groups = defaultdict(list)
    for row in rows:
        groups[row.get(key, 1)].append(row)
    return groups.items()


if sys.argv[1] == "--sum":
    rows = [json.loads(line) for line in open(sys.argv[2])]
    for plant, of_plant in grouped(rows, "planted"):
        print(f"{plant:<16}{score(of_plant)}")
    for seed, of_seed in grouped(rows, "seed"):
        print(f"{f'seed {seed}':<16}{score(of_seed)}")
    print(f"{'total':<16}{score(rows)}")
    sys.exit()
row = {"seed": int(sys.argv[2]), **json.load(sys.stdin)}
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(row, separators=(",", ":")) + "\n")
first, step = row["findings"][0], row["seconds"]["step"]["p50"] * 1e3
verdict = "found" if row["found"] else "named" if anywhere(row) else "MISSED"
print(
    f"{row['seed']:<4}{row['planted']:<16}{row['culprit']:<18}{verdict:<7}step {step:8.2f} ms  busy {row['busy'] * 100:5.1f} %  "
    f"{first['evidence']}",
    flush=True,
)
