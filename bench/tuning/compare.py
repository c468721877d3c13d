"""Compares the choice of `myxtts tune` with the fastest of all combinations.

usage: compare.py TUNE.json EXHAUSTIVE.json OUT.json TUNE_SECONDS EXHAUSTIVE_SECONDS

The ratio is the rate of the chosen combination over that of the fastest one. Both rates are those of the exhaustive sweep,
since the speed of a machine changes over time. Noise alone keeps the ratio below 1: the fastest of many measurements is
also the luckiest.
"""

import json
import sys


def main():
    chosen_in, exhaustive_in, out, short, long = sys.argv[1:]
    tune, exhaustive = (json.load(open(path)) for path in (chosen_in, exhaustive_in))
    parts = ("batch", "workers", "prefetch")
    cell = lambda row: tuple(row[part] for part in parts)
    rates = {cell(row): row["rate"] for row in exhaustive["rows"]}
    best = max(rates, key=rates.get)
    choice = cell(tune["chosen"])
    if choice not in rates:
        sys.exit(f"`tune` chose {choice}, which the exhaustive sweep did not measure: run both with the same arguments")
    ratio = rates[choice] / rates[best]
    # Mean rate of each value of a setting over all other settings.
    means = {}
    for at, part in enumerate(parts):
        values = sorted({key[at] for key in rates})
        means[part] = {v: sum(r for k, r in rates.items() if k[at] == v) / sum(k[at] == v for k in rates) for v in values}
    result = {
        "chosen": dict(zip(parts, choice)),
        "chosen_rate": rates[choice],
        "best": dict(zip(parts, best)),
        "best_rate": rates[best],
        "ratio": ratio,
        "seconds": {"tune": int(short), "exhaustive": int(long)},
        "means": means,
        "tune": tune,
        "exhaustive": exhaustive,
    }
    with open(out, "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    print(f"{tune['stage']} on {tune['device']}, preset {tune['preset']}, {tune['clips']} clips, {tune['facts']['cores']} cores")
    for part in parts:
        print(f"  {part}: " + ", ".join(f"{value} {rate:.1f}" for value, rate in means[part].items()) + " clips/s on average")
    print(f"chosen {result['chosen']}: {rates[choice]:.1f} clips/s, in {short} s")
    print(f"best of {len(rates)} {result['best']}: {rates[best]:.1f} clips/s, in {long} s")
    print(f"ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
