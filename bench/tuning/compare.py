"""How far the choice of `myxtts tune` is behind the fastest of every combination.

compare.py TUNE.json EXHAUSTIVE.json OUT.json SECONDS SECONDS

Both rates are of the exhaustive sweep: a machine is not equally fast at all times, and the short sweep ran at another.
The ratio is that of the chosen combination to the fastest one. Noise alone keeps it below 1: the fastest of many
measurements is also the luckiest.
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
        sys.exit(f"{choice} was chosen and is not in the exhaustive sweep: were both run with the same arguments?")
    ratio = rates[choice] / rates[best]
    # What the choice costs, setting by setting: the mean over everything else.
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
