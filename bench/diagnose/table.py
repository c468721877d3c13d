"""Compares the planted fault with the cause that `myxtts diagnose` named.

usage: table.py FILE < REPORT    prints one row for a report and appends the report to FILE as one line
       table.py --sum FILE       prints how many reports of a file name the planted fault"""

import json
import sys

if sys.argv[1] == "--sum":
    rows = [json.loads(line) for line in open(sys.argv[2])]
    print(f"{sum(row['found'] for row in rows)} of {len(rows)} faults named")
    sys.exit()
row = json.load(sys.stdin)
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(row, separators=(",", ":")) + "\n")
first, step = row["findings"][0], row["seconds"]["step"]["p50"] * 1e3
verdict = "found" if row["found"] else "MISSED"
print(
    f"{row['planted']:<16}{row['culprit']:<18}{verdict:<7}step {step:8.2f} ms  busy {row['busy'] * 100:5.1f} %  "
    f"{first['evidence']}",
    flush=True,
)
