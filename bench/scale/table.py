"""Estimates training on several GPUs at XTTS-v2's size: the tables of docs/src/scale.md, computed from measurements and assumptions.

    python3 bench/scale/table.py                                 # prints the tables as Markdown
    python3 bench/scale/table.py --set nic_gbit=100 --set nics=1 --gpus 8,16,32
    python3 bench/scale/table.py --check docs/src/scale.md       # fails if the page does not contain these tables

Measurements are read from bench/results. Everything else is an assumption with a default in `Inputs`, which --set overrides.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import re
import statistics
import sys

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
TRAINING = "training_h200_20261116.jsonl"
PREPARE = "2026-11-19-prepare.json"
BATCHES = "batches.json"
ENGINE = "gpt_step_h200_20261116.jsonl"


@dataclasses.dataclass
class Inputs:
    """Assumptions. Rates are bytes per second in one direction."""

    # The GPU: measured on an H200, estimated for an H100 (same compute, less memory bandwidth).
    memory_bound: float = 0.31  # share of a step on the H200 that is bound by memory bandwidth
    h200_memory: float = 4.8e12
    gpu_memory: float = 3.35e12
    memory_efficiency: float = 0.8
    forward_share: float = 1 / 3  # share of a step without its update; the rest is the backward pass
    update_bytes: float = 30.0  # AdamW, per parameter: four f32 read, three f32 and one bf16 written
    # One machine.
    gpus_per_machine: int = 8
    nvlink: float = 450e9
    nvlink_efficiency: float = 0.8
    # Between machines.
    nics: int = 8
    nic_gbit: float = 400.0
    nic_efficiency: float = 0.85
    # NCCL: latency of a hop (its own tuning table, protocol Simple), rate of a tree over that of a ring, share of the SMs it occupies.
    nvlink_hop: float = 3.4e-6
    network_hop: float = 14e-6
    tree_efficiency: float = 0.9
    sm_share: float = 0.12
    bucket_bytes: float = 25 * 2**20  # crates/train/src/replica_slice.rs
    # bf16 sums: f32 read and bf16 written, and back, per parameter.
    cast_bytes: float = 12.0
    # The corpus.
    corpus_hours: float = 10_000.0
    cores_per_machine: int = 96
    wav_bytes_per_second: float = 44_100.0
    codes_per_second: float = 22_050 / 1024


@dataclasses.dataclass
class Stage:
    """A stage at XTTS-v2's size, measured on one H200."""

    name: str
    rows: float
    step: float  # mean seconds
    parameters: float
    variation: float
    cores: float
    codes: float


def measured(stage, way):
    for line in (RESULTS / TRAINING).read_text().splitlines():
        report = json.loads(line)
        if (report["stage"], report["preset"]) != (stage, "v2"):
            continue
        for row in report["rows"]:
            if row["way"] == way:
                millions = re.search(r"([\d.]+) M trained", report["described"][0])
                return Stage(
                    stage,
                    row["mean_shape"][0],
                    row["mean_shape"][0] / row["samples_per_second"],
                    float(millions[1]) * 1e6,
                    row["variation_at_equal_shape"],
                    row["cores"],
                    row["mean_shape"][2],
                )
    sys.exit(f"{TRAINING} has no measurement of stage {stage}, way of feeding {way!r}")


def engine_step(gpt):
    """Returns the stage with the step of the engine's benchmark: the same network, 16 sequences of 512 positions."""
    rows = [json.loads(line) for line in (RESULTS / ENGINE).read_text().splitlines()]
    same = lambda row: (row["layers"], row["width"], row["batch"], row["time"]) == (30, 1024, 16, 512)
    rows = [row for row in rows if "peer" not in row and same(row)]
    seconds = statistics.median(row["median_ms"] for row in rows) / 1e3
    return dataclasses.replace(gpt, rows=16.0, step=seconds)


def machines(i, gpus):
    return max(1, math.ceil(gpus / i.gpus_per_machine))


def all_reduce(i, size, gpus):
    """Returns the seconds to sum `size` bytes over all GPUs: the faster of a ring and a tree, as NCCL chooses."""
    if gpus == 1:
        return 0.0
    nodes = machines(i, gpus)
    rate = i.nvlink * i.nvlink_efficiency
    if nodes > 1:
        rate = min(rate, i.nics * i.nic_gbit / 8 * 1e9 * i.nic_efficiency)
    between = nodes if nodes > 1 else 0
    hops = 2 * (gpus - 1 - between) * i.nvlink_hop + 2 * between * i.network_hop
    ring = hops + 2 * (gpus - 1) / gpus * size / rate
    inside = min(gpus, i.gpus_per_machine) - 1
    depth = 2 * (inside * i.nvlink_hop + math.ceil(math.log2(nodes)) * i.network_hop)
    tree = depth + 2 * size / (rate * i.tree_efficiency)
    return min(ring, tree)


def on_this_gpu(i, seconds):
    return seconds * (1 - i.memory_bound) + seconds * i.memory_bound * i.h200_memory / i.gpu_memory


@dataclasses.dataclass
class Step:
    compute: float
    communication: float
    exposed: float
    total: float
    clips: float
    efficiency: float


def step(i, stage, gpus, element):
    """Estimates a step of `gpus` replicas, each with the measured batch. `element`: bytes per summed gradient value."""
    compute = on_this_gpu(i, stage.step)
    alone = stage.rows / compute
    if gpus == 1:
        return Step(compute, 0.0, 0.0, compute, alone, 1.0)
    update = stage.parameters * i.update_bytes / (i.gpu_memory * i.memory_efficiency)
    update = min(update, compute / 2)
    backward = (compute - update) * (1 - i.forward_share)
    gradients = stage.parameters * 4
    count = max(1, math.ceil(gradients / i.bucket_bytes))
    bucket = stage.parameters * element / count
    each = all_reduce(i, bucket, gpus)
    # A bucket is sent when its part of the backward pass is done and the bucket before it has been summed.
    finished = 0.0
    for number in range(1, count + 1):
        finished = max(finished, backward * number / count) + each
    communication = each * count
    exposed = finished - backward
    if element == 2:
        compute += stage.parameters * i.cast_bytes / (i.gpu_memory * i.memory_efficiency)
    # Sums occupy SMs that the backward pass could use.
    compute += min(communication, backward) * i.sm_share
    # All wait for the slowest: the expected maximum of `gpus` normal samples (Blom's approximation).
    slowest = statistics.NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25)) * stage.variation
    total = (compute + exposed) * (1 + slowest)
    clips = stage.rows * gpus / total
    return Step(compute, communication, exposed, total, clips, clips / (alone * gpus))


def ms(seconds):
    return f"{seconds * 1e3:.1f}" if seconds < 10 else f"{seconds * 1e3:,.0f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def stage_table(i, stage, counts):
    rows = []
    for gpus in [1, *counts]:
        for element, name in [(4, "f32"), (2, "bf16")] if gpus > 1 else [(4, "-")]:
            s = step(i, stage, gpus, element)
            size = "-" if gpus == 1 else f"{stage.parameters * element / 1e9:.2f} GB"
            rows.append(
                [
                    f"{gpus:,}",
                    name,
                    size,
                    ms(s.compute),
                    ms(s.communication),
                    ms(s.exposed),
                    ms(s.total),
                    f"{s.clips:,.0f}",
                    f"{s.efficiency * 100:.0f} %",
                ]
            )
    head = ["GPUs", "sums in", "bytes per step", "compute, ms", "all-reduce, ms", "exposed, ms", "step, ms"]
    return table(head + ["rows/s", "efficiency"], rows)


def data_table(i, cached, computed, counts):
    prepare = json.loads((RESULTS / PREPARE).read_text())
    real_time = prepare["hours"] * 3600 / statistics.median(prepare["seconds"]["1"])
    batches = json.loads((RESULTS / BATCHES).read_text())
    record = batches["rounds"][0]["ours"]["data_mb"] * 1e6 / batches["rounds"][0]["ours"]["records"]
    per_core = batches["summary"]["collated_batches_per_s"] * 32 * record / batches["machine"]["cores"]
    seconds = cached.codes / i.codes_per_second
    mel = seconds * 22_050 / 256 * 80 * 4
    decoding = (computed.cores - cached.cores) * computed.step / computed.rows
    rows = []
    for gpus in counts:
        s = step(i, cached, gpus, 4)
        nodes = machines(i, gpus)
        clips = i.corpus_hours * 3600 / seconds
        rate = s.clips * mel
        rows.append(
            [
                f"{gpus:,} in {nodes}",
                f"{cached.cores * min(gpus, i.gpus_per_machine):.0f}",
                f"{rate / nodes / per_core:.2f}",
                f"{s.clips * decoding / nodes:.0f}",
                f"{rate / nodes / 1e9:.2f}; {rate / 1e9:.1f}",
                f"{s.clips * seconds * i.wav_bytes_per_second / 1e9:.1f}",
                f"{clips / s.clips / 60:.1f}",
                f"{i.corpus_hours * 3600 / (real_time * i.cores_per_machine * nodes) / 60:.1f}",
            ]
        )
    head = [
        "GPUs in machines",
        "cores per machine that launch steps",
        "cores that read the cache",
        "cores that decode instead",
        "cache reads, GB/s: per machine; all",
        "WAV reads instead, all, GB/s",
        f"an epoch of {i.corpus_hours:,.0f} h, min",
        "its `prepare`, min",
    ]
    return table(head, rows)


def bucket_table(i, stage, counts):
    rows = []
    for mib in [5, 25, 50, 100, 200]:
        own = dataclasses.replace(i, bucket_bytes=mib * 2**20)
        cells = [step(own, stage, gpus, 4) for gpus in counts]
        rows.append([f"{mib} MiB"] + [f"{ms(s.communication)}; {ms(s.exposed)}" for s in cells])
    return table(["bucket"] + [f"{gpus:,} GPUs: all-reduce; exposed, ms" for gpus in counts], rows)


def network_table(i, stage, gpus):
    rows = []
    for name, nics, gbit in [
        ("8 x 400 Gbit/s", 8, 400),
        ("4 x 200 Gbit/s", 4, 200),
        ("1 x 200 Gbit/s", 1, 200),
        ("1 x 100 Gbit/s", 1, 100),
        ("1 x 25 Gbit/s", 1, 25),
        ("1 x 10 Gbit/s", 1, 10),
    ]:
        own = dataclasses.replace(i, nics=nics, nic_gbit=float(gbit))
        row = [name]
        for element in (4, 2):
            s = step(own, stage, gpus, element)
            row += [ms(s.communication), ms(s.total), f"{s.efficiency * 100:.0f} %"]
        rows.append(row)
    head = ["network of a machine", "f32: all-reduce, ms", "step, ms", "efficiency", "bf16: all-reduce, ms", "step, ms", "efficiency"]
    return table(head, rows)


def tables(i, counts):
    gpt, computed = measured("gpt", "resident"), measured("gpt", "no cache")
    dvae, decoder = measured("dvae", "buffered 12"), measured("decoder", "buffered 12")
    slow = max(counts[0] * 2, 16)
    return {
        "gpt": stage_table(i, gpt, counts),
        "engine": stage_table(i, engine_step(gpt), counts),
        "dvae": stage_table(i, dvae, counts),
        "decoder": stage_table(i, decoder, counts),
        "buckets": bucket_table(i, gpt, counts),
        "networks": network_table(i, gpt, slow),
        "data": data_table(i, gpt, computed, counts),
    }


def inputs(settings):
    i = Inputs()
    for setting in settings:
        name, _, value = setting.partition("=")
        kinds = {field.name: field.type for field in dataclasses.fields(Inputs)}
        if name not in kinds or not value:
            sys.exit(f"--set {setting}: expected NAME=VALUE with NAME one of {', '.join(kinds)}")
        setattr(i, name, int(value) if kinds[name] is int else float(value))
    return i


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override an assumption; repeatable")
    parser.add_argument("--gpus", default="8,64,512", help="numbers of GPUs, separated by commas")
    parser.add_argument("--check", metavar="PAGE", help="fail if the page does not contain these tables")
    args = parser.parse_args()
    made = tables(inputs(args.set), [int(n) for n in args.gpus.split(",")])
    if args.check:
        page = pathlib.Path(args.check).read_text()
        stale = [name for name, text in made.items() if text not in page]
        if stale:
            sys.exit(f"{args.check} is out of date; replace these tables: {', '.join(stale)}")
        return
    for name, text in made.items():
        print(f"## {name}\n\n{text}\n")


if __name__ == "__main__":
    main()
