"""What was planted and what was named.

usage: table.py FILE < REPORT    prints a row for a report, and adds the report to FILE as one line
       table.py --sum FILE       how many of a file's reports were right"""

import json
import sys

if sys.argv[1] == "--sum":
    rows = [json.loads(line) for line in open(sys.argv[2])]
    print(f"{sum(row['found'] for row in rows)} of {len(rows)} named right")
    sys.exit()
row = json.load(sys.stdin)
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(row, separators=(",", ":")) + "\n")
first, step = row["findings"][0], row["seconds"]["step"]["p50"] * 1e3
right = "right" if row["found"] else "WRONG"
print(
    f"{row['planted']:<16}{row['culprit']:<18}{right:<7}step {step:8.2f} ms  busy {row['busy'] * 100:5.1f} %  "
    f"{first['evidence']}",
    flush=True,
)
