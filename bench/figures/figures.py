"""Computes every published benchmark figure from the raw files in bench/results, and draws the chart of README.md.

    python3 bench/figures/figures.py                                       # prints all tables as Markdown
    python3 bench/figures/figures.py --write README.md README.fa.md docs/src/benchmarks.md    # fills the marked parts of the pages
    python3 bench/figures/figures.py --svg docs/src/images/training.svg          # draws the chart
    python3 bench/figures/figures.py --check README.md docs/src/benchmarks.md docs/src/images/training.svg    # fails if one is out of date

bench/results/published.json names the raw files (raw.py). A marked part of a page starts with `<!-- figures:NAME -->` and ends with
`<!-- /figures -->`. The statistic is the same everywhere: the median over the kept runs, with the range over all of them and their number;
fewer than five are called preliminary, and --check fails for a page that says `n = 2` without it. Needs Python 3.9, no packages.
"""

import argparse
import pathlib
import re
import sys

import readme
import tables
from chart import chart
from raw import ENOUGH

TABLES = {
    "readme": readme.readme, "readme-note": readme.readme_note, "readme-fa": readme.readme_fa, "readme-fa-note": readme.readme_fa_note,
    "training": tables.training, "training-peer": tables.older_loop, "training-files": lambda: tables.legend("training"),
    "stages": tables.other_stages, "ways": tables.ways, "engine": tables.engine, "engine-files": lambda: tables.legend("engine"),
    "speaking": tables.speaking, "speaking-files": lambda: tables.legend("speaking"), "cpu": tables.on_cpu, "front-end": tables.front_end,
    "versions": tables.versions, "tuning": tables.tuning, "diagnose": tables.diagnose,
}
PART = re.compile(r"(<!-- figures:([a-z-]+) -->\n)(.*?)(\n<!-- /figures -->)", re.S)
FEW = re.compile(r"\bn = ([0-9]+)(?!\d)(,? preliminary)?")


def filled(page):
    return PART.sub(lambda part: part[1] + "\n" + TABLES[part[2]]() + "\n" + part[4], page)


def unmarked(page):
    """Numbers of runs below five that a page gives without calling them preliminary, with their lines."""
    found = []
    for at, line in enumerate(page.splitlines(), 1):
        found += [f"line {at}: {few[0]}" for few in FEW.finditer(line) if int(few[1]) < ENOUGH and few[2] != ", preliminary"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", nargs="+", default=[], metavar="PAGE")
    parser.add_argument("--check", nargs="+", default=[], metavar="PAGE")
    parser.add_argument("--svg", metavar="FILE")
    args = parser.parse_args()
    if args.svg:
        pathlib.Path(args.svg).write_text(chart())
    for name in args.write:
        path = pathlib.Path(name)
        path.write_text(filled(path.read_text()))
    current = lambda name, stored: chart() if name.endswith(".svg") else filled(stored)
    stored = {name: pathlib.Path(name).read_text() for name in args.check}
    stale = [name for name, page in stored.items() if current(name, page) != page]
    if stale:
        sys.exit(f"out of date with bench/results: {', '.join(stale)}; use --write for pages, --svg for the chart")
    few = [f"{name}, {place}" for name, page in stored.items() if name.endswith(".md") and "/fa/" not in name for place in unmarked(page)]
    if few:
        sys.exit("write `n = 2, preliminary` wherever there are fewer than five runs:\n" + "\n".join(few))
    if not (args.write or args.check or args.svg):
        for name, make in TABLES.items():
            print(f"## {name}\n\n{make()}\n")


if __name__ == "__main__":
    main()
