"""Reads the raw files that bench/results/published.json lists, and the statistics of all published figures.

The manifest names the files of each table by a letter. Files that bench/published/run.sh wrote are added there, and nothing else has to
change: figures.py finds the runs of its rows by their settings. Letters under "outdated" do not count for the row that they stand beside,
because a later version of the program made them meaningless."""

import functools
import json
import pathlib
import re
import statistics
from dataclasses import dataclass

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
MANIFEST = json.loads((RESULTS / "published.json").read_text())
ENOUGH = 5  # runs; below it a figure is preliminary
DATES = re.compile(r"(20\d\d)(\d\d)(\d\d)")


def number(value):
    """Three to four significant digits, thousands separated."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    if value >= 0.1:
        return f"{value:.2f}"
    return f"{value:.4f}"


def percent(value):
    return f"{value * 100:.1f}"


def whole_percent(value):
    return f"{value * 100:.0f}"


def marked(n):
    """The number of runs as every page shows it."""
    return f"n = {n}" + ("" if n >= ENOUGH else ", preliminary")


class Sample:
    """The kept runs of one measurement. A run is one value, or several of which it is the median."""

    def __init__(self, runs, unit=""):
        runs = [sorted(run) if isinstance(run, (list, tuple)) else [run] for run in runs]
        assert runs, "no runs"
        self.n, self.unit = len(runs), unit
        self.median = statistics.median(map(statistics.median, runs))
        self.low, self.high = min(run[0] for run in runs), max(run[-1] for run in runs)

    def text(self, show=number, n=True):
        unit = f" {self.unit}" if self.unit else ""
        low, high = show(self.low), show(self.high)
        spread = f" ({low} to {high})" if low != high else ""
        return f"{show(self.median)}{unit}{spread}" + (f", {marked(self.n)}" if n else "")


@dataclass(frozen=True)
class Report:
    """One report of a program. `row` and `run` are known for files of bench/published/run.sh only."""

    letter: str
    date: str
    row: str
    run: int
    data: dict


def text(name):
    return (RESULTS / name).read_text()


# Of a line of `myxtts bench` that was cut when it was stored.
TEXTS, NUMBERS = ("stage", "preset"), ("samples_per_second", "busy", "on_device", "wait_share")
PEER = re.compile(r"torch loop (\d+)x(\d+) b(\d+) workers \d+ (\w+): ([\d.]+) samples/s.*busy (\d+) %")


def cut(line):
    field = lambda name, of: re.search(rf'"{name}":{of}', line)
    row = {name: float(field(name, r"([\d.e-]+)")[1]) for name in NUMBERS}
    row["way"], row["mean_shape"] = field("way", r'"([^"]+)"')[1], [float(field("mean_shape", r"\[([\d.]+)")[1])]
    return {**{name: field(name, r'"([^"]+)"')[1] for name in TEXTS}, "rows": [row]}


def peer(match):
    layers, width, batch, precision, rate, busy = match.groups()
    return {
        "peer": "torch training loop", "layers": int(layers), "width": int(width), "batch": int(batch), "precision": precision,
        "samples_per_second": float(rate), "on_device": int(busy) / 100, "printed": True,
    }


def reports_of(letter, name):
    date = DATES.search(name)
    date = "-".join(date.groups()) if date else ""
    if name.endswith(".json"):
        first = json.loads(text(name))
        parts = first["ours"] + first["peers"] + first["vocoder_peers_in_a_run_with_ours_at_20.5_ms_on_two_streams"]
        attention = {
            "attention_us": {who: first["attention_ms_for_30_layers"][key] * 1e3 / 30 for who, key in (
                ("ours", "ours forward + backward (defaults)"), ("flash", "torch SDPA flash forward + backward"),
                ("cuDNN", "torch SDPA cuDNN forward + backward"),
            )}
        }
        return [Report(letter, date, "", 0, data) for data in [*parts, attention]]
    found = []
    for line in text(name).splitlines():
        if match := PEER.match(line):
            found.append(Report(letter, date, "", 0, peer(match)))
        elif line.startswith("{") and not line.endswith("}"):
            found.append(Report(letter, date, "", 0, cut(line)))
        elif line.startswith("{"):
            data = json.loads(line)
            if "reports" not in data:
                found.append(Report(letter, date, "", 0, data))
                continue
            if data.get("quick"):
                raise SystemExit(f"{name} was made with --cpu, to test the scripts: it cannot be published")
            found += [Report(letter, data["date"], data["row"], data["run"], one) for one in data["reports"]]
    return found


def decoder_profile(letter, name):
    """The step of the decoder `small` in a file of `bench --profile`, after the change that it shows."""
    after = text(name).split("after:")[1]
    rate, busy, step = map(float, re.search(r"buffered 12\s+([\d.]+)\s+([\d.]+) %\s+([\d.]+)", after).groups())
    row = {"way": "buffered 12", "samples_per_second": rate, "busy": busy / 100, "on_device": busy / 100, "step_ms": step, "mean_shape": [32.0]}
    return [Report(letter, "-".join(DATES.search(name).groups()), "", 0, {"stage": "decoder", "preset": "small", "rows": [row]})]


@functools.cache
def reports(table):
    """All reports of a table, in the order of the manifest."""
    found = []
    for letter, name in MANIFEST[table].items():
        found += decoder_profile(letter, name) if name.startswith("decoder_profile") else reports_of(letter, name)
    return found


def kept(*samples):
    """The runs that count, for each of the lists of (letter, value): those of the newest file in which every list has enough of them, so
    that all sides were measured in one call; where there is no such file, all runs."""
    letters = [letter for letter, _ in samples[0]]
    full = [letter for letter in dict.fromkeys(letters) if all(sum(at == letter for at, _ in one) >= ENOUGH for one in samples)]
    if not full:
        return samples
    return tuple([pair for pair in one if pair[0] == full[-1]] for one in samples)


def letters(*samples):
    return ", ".join(sorted({letter for one in samples for letter, _ in one}))


def values(sample, of=lambda value: value):
    return [of(value) for _, value in sample]
