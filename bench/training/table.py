"""Prints a table of the JSON lines that `myxtts bench --json` writes, read from stdin: one row per way of feeding."""

import json
import sys


def share(part):
    return "-" if part is None else f"{part * 100:.1f} %"


for line in sys.stdin:
    report = json.loads(line)
    for row in report["rows"]:
        print(
            f"{report['preset']:<7} {report['stage']:<8} {row['way']:<17} {row['samples_per_second']:>9.1f} clips/s"
            f" {row['step_ms']:>8.2f} ms  varies {share(row['variation_at_equal_shape']):>7}"
            f"  waits {share(row['wait_share']):>6}  busy {share(row['busy']):>7}"
            f"  profiled {share(row['busy_watched']):>7}  cores {row['cores']:.2f}"
        )
