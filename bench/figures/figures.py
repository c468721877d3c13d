"""Computes every published benchmark figure from the raw files in bench/results, and draws the chart of README.md.

    python3 bench/figures/figures.py                                       # prints all tables as Markdown
    python3 bench/figures/figures.py --write README.md docs/src/benchmarks.md    # fills the marked parts of the pages
    python3 bench/figures/figures.py --svg docs/src/images/training.svg          # draws the chart
    python3 bench/figures/figures.py --check README.md docs/src/benchmarks.md docs/src/images/training.svg    # fails if one is out of date

A marked part of a page starts with `<!-- figures:NAME -->` and ends with `<!-- /figures -->`. The statistic is the same
everywhere: the median over the kept runs, with the range over all of them and their number. Needs Python 3.9, no packages.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
GIB = 2**30


# --- statistics -------------------------------------------------------------------------------------------------------


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


class Sample:
    """The kept runs of one measurement. A run is one value, or a triple of its minimum, median and maximum."""

    def __init__(self, runs, unit=""):
        triples = [run if isinstance(run, (list, tuple)) else (run, run, run) for run in runs]
        assert triples, "no runs"
        self.n, self.unit = len(triples), unit
        self.median = statistics.median(middle for _, middle, _ in triples)
        self.low, self.high = min(t[0] for t in triples), max(t[2] for t in triples)

    def text(self, show=number, n=True):
        unit = f" {self.unit}" if self.unit else ""
        low, high = show(self.low), show(self.high)
        spread = f" ({low} to {high})" if low != high else ""
        return f"{show(self.median)}{unit}{spread}" + (f", n = {self.n}" if n else "")


def percent(value):
    return f"{value * 100:.1f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


# --- raw files --------------------------------------------------------------------------------------------------------


def text(name):
    return (RESULTS / name).read_text()


def lines(name):
    """Parses the JSON lines of a file. Other lines, and JSON lines that were cut when stored, are skipped."""
    return [json.loads(line) for line in text(name).splitlines() if line.startswith("{") and line.endswith("}")]


TRAINING = {
    "A": "training_h200_20261115.jsonl",
    "B": "training_h200_20261115_c.jsonl",
    "C": "training_h200_20261116.jsonl",
    "D": "training_h200_20261116_b.jsonl",
    "E": "training_h200_20261116_c.txt",
    "F": "decoder_profile_h200_20261116.txt",
    "G": "training_v2_h200_20261118.jsonl",
    "P": "training_h200_peer.txt",
}


def training_rows(stage, preset, batch, way):
    """Returns (file letter, row) of every kept run with these settings."""
    found = []
    for letter in "ABCDG":
        for report in lines(TRAINING[letter]):
            for row in report["rows"]:
                settings = (report["stage"], report["preset"], round(row["mean_shape"][0]), row["way"])
                if settings == (stage, preset, batch, way):
                    found.append((letter, row))
    if (stage, preset, batch, way) == ("gpt", "v2", 32, "resident"):
        for line in text(TRAINING["E"]).splitlines():
            if line.startswith("{"):
                fields = ("samples_per_second", "busy", "on_device", "wait_share")
                row = {field: re.search(rf'"{field}":([\d.e-]+)', line) for field in fields}
                found.append(("E", {field: float(value[1]) for field, value in row.items()}))
    return found


def on_gpu(row):
    """Returns the share of the time in which a step was on the GPU: device time over wall time of all timed steps."""
    if row.get("on_device") is not None:
        return row["on_device"]
    return sum(step[5] for step in row["raw"]) / sum(step[3] for step in row["raw"])


def clips(rows, unit="clips/s"):
    return Sample([row["samples_per_second"] for _, row in rows], unit)


def kernel_share(rows):
    """Busy share of the runs that have `on_device`. Older runs divided the times of two passes and are left out."""
    runs = [row["busy"] for _, row in rows if row.get("on_device") is not None]
    return Sample(runs) if runs else None


def files(rows):
    return ", ".join(sorted({letter for letter, _ in rows}))


def peer_runs(layers, width, batch, precision):
    """Returns (samples/s, share of the time a step was on the GPU) of every kept line of the PyTorch loop."""
    pattern = rf"torch loop {layers}x{width} b{batch} workers \d+ {precision}: ([\d.]+) samples/s.*busy (\d+) %"
    return [(float(m[1]), int(m[2]) / 100) for m in re.finditer(pattern, text(TRAINING["P"]))]


SIZES = [
    # name, stage, preset, batch, peer's layers, width, precision
    ("GPT of XTTS-v2's size (30 x 1024), batch 32", "v2", 32, (30, 1024, 32, "bf16")),
    ("GPT `normal` (12 x 512), batch 64", "normal", 64, (12, 512, 64, "bf16")),
    ("GPT `small` (8 x 256), batch 64", "small", 64, (8, 256, 64, "bf16")),
    ("GPT `small`, batch 16", "small", 16, (8, 256, 16, "bf16")),
    ("GPT `tiny` (4 x 128), batch 64", "tiny", 64, (4, 128, 64, "bf16")),
]


def share(sample):
    if sample is None:
        return "not measured"
    return sample.text(percent)


def training():
    rows = []
    for name, preset, batch, peer in SIZES:
        ours = training_rows("gpt", preset, batch, "resident")
        theirs = peer_runs(*peer)
        fast, slow = clips(ours), Sample([rate for rate, _ in theirs], "clips/s")
        rows.append([
            name, fast.text(), share(kernel_share(ours)), Sample([on_gpu(row) for _, row in ours]).text(percent, n=False),
            slow.text(), Sample([busy for _, busy in theirs]).text(lambda v: f"{v * 100:.0f}", n=False),
            f"{fast.median / slow.median:.1f}x", files(ours) + ", P",
        ])
    name, ours = "the same, without a cache", training_rows("gpt", "v2", 32, "no cache")
    slow = Sample([rate for rate, _ in peer_runs(30, 1024, 32, "bf16")], "clips/s")
    like = [
        name, clips(ours).text(), "not measured", Sample([on_gpu(row) for _, row in ours]).text(percent, n=False),
        slow.text(), rows[0][5], f"{clips(ours).median / slow.median:.1f}x", files(ours) + ", P",
    ]
    fp32 = Sample([rate for rate, _ in peer_runs(30, 1024, 8, "fp32")], "clips/s")
    fast = clips(training_rows("gpt", "v2", 32, "resident"))
    busy = Sample([busy for _, busy in peer_runs(30, 1024, 8, "fp32")]).text(lambda v: f"{v * 100:.0f}", n=False)
    default = [
        "as in the first row; the peer with batch 8 in fp32", rows[0][1], rows[0][2], rows[0][3],
        fp32.text(), busy, f"{fast.median / fp32.median:.1f}x", rows[0][7],
    ]
    head = ["", "MyXTTS", "busy share, %", "step on the GPU, %", "PyTorch loop", "step on the GPU, %", "ratio", "files"]
    return table(head, [rows[0], like, default] + rows[1:])


def other_stages():
    rows = []
    for name, stage, preset, batch in [
        ("DVAE `small`, 64 windows of 1.49 s", "dvae", "small", 64),
        ("DVAE `v2`, 128 windows of 1.49 s", "dvae", "v2", 128),
    ]:
        ours = training_rows(stage, preset, batch, "buffered 12")
        rows.append([name, clips(ours, "windows/s").text(), share(kernel_share(ours)), files(ours)])
    after = text(TRAINING["F"]).split("after:")[1]
    rate, busy, step = re.search(r"buffered 12\s+([\d.]+)\s+([\d.]+) %\s+([\d.]+)", after).groups()
    rows.append([
        f"decoder `small` with discriminators, 32 windows of 0.74 s ({step} ms a step)",
        f"{number(float(rate))} windows/s, n = 1", f"{busy}, n = 1", "F",
    ])
    ours = training_rows("decoder", "v2", 16, "buffered 12")
    rows.append([
        "decoder `v2` with discriminators, 16 windows of 0.74 s", clips(ours, "windows/s").text(), share(kernel_share(ours)), files(ours),
    ])
    return table(["", "MyXTTS", "busy share, %", "files"], rows)


WAYS = [
    ("per sample", "per sample: one thread decodes and computes each clip when its step is due"),
    ("blocking", "blocking: read from the cache when the step is due"),
    ("prefetch", "prefetch: made ahead, copied when due, one step at a time"),
    ("kernel by kernel", "buffered, steps launched kernel by kernel instead of as a captured graph"),
    ("no cache", "buffered, no cache: every clip decoded for every batch"),
    ("buffered 12", "buffered, 12 slots"),
    ("buffered 50", "buffered, 50 slots"),
    ("buffered 100", "buffered, 100 slots"),
    ("resident", "resident: conditioning mels stored on the GPU (the default)"),
    ("data GPU", "data GPU: conditioning computed by a second pipeline, here on the same GPU"),
]


def ways():
    rows = []
    for way, name in WAYS:
        # Files B and C contain all ways of feeding, A and D only some.
        runs = [(letter, row) for letter, row in training_rows("gpt", "small", 16, way) if letter in "BC" and len(row["raw"]) >= 300]
        last = [row for letter, row in runs if letter == "C"][0]
        rows.append([
            name, clips(runs, "").text(), Sample([on_gpu(row) for _, row in runs]).text(percent, n=False),
            Sample([row["wait_share"] for _, row in runs]).text(percent, n=False),
            f"{last['step_ms']:.1f}, {last['step_p99_ms']:.1f}", f"{last['variation_at_equal_shape'] * 100:.1f}",
            Sample([row["cores"] for _, row in runs]).text(lambda v: f"{v:.1f}", n=False),
        ])
    head = ["way of feeding", "clips/s", "step on the GPU, %", "waiting for batches, %", "batch: p50, p99, ms", "varies at equal shape, %", "cores"]
    return table(head, rows)


ENGINE = {"a": "engine_20261115.json", "b": "engine_h200_20261115.jsonl", "c": "engine_h200_20261115_b.jsonl", "d": "gpt_step_h200_20261116.jsonl"}


def engine_rows():
    first = json.loads(text(ENGINE["a"]))
    rows = [("a", row) for row in first["ours"] + first["peers"]]
    rows += [("a", row) for row in first["vocoder_peers_in_a_run_with_ours_at_20.5_ms_on_two_streams"]]
    return rows + [(letter, row) for letter in "bcd" for row in lines(ENGINE[letter])]


# The planned memory identifies runs on one stream without recomputed activations.
ONE_STREAM = {1024: {14449601024, 14451135612}, 512: {2229077248}, 256: {703677696}}


def gpt_steps(width, peer=None):
    runs = []
    for letter, row in engine_rows():
        if row.get("width") != width:
            continue
        if peer is None and "peer" not in row and row["planned_bytes"] in ONE_STREAM[width]:
            runs.append((letter, row))
        if peer is not None and row.get("peer", "").endswith(f" {peer}"):
            runs.append((letter, row))
    return runs


def vocoder(name, streams):
    planned = {1: 2452793088, 2: 2836886784}[streams]
    return [run["median_ms"] for _, row in engine_rows() if row.get("planned_bytes") == planned for run in row.get("runs", []) if run["name"] == name]


def vocoder_peer(batch, precision, key):
    return [row[key] for _, row in engine_rows() if row.get("batch") == batch and row.get("peer", "").endswith(f" {precision}") and key in row]


def engine():
    rows = []
    names = {1024: "GPT 30 x 1024 (XTTS-v2's size)", 512: "GPT 12 x 512", 256: "GPT 8 x 256"}
    for width, name in names.items():
        ours = gpt_steps(width)
        step = Sample([row["median_ms"] for _, row in ours], "ms")
        peers, ratios, used = [], [], {letter for letter, _ in ours}
        for mode, label in [("compile", "compiled"), ("graph", "CUDA graph"), ("eager", "eager")]:
            runs = gpt_steps(width, mode)
            if runs:
                theirs = Sample([row["median_ms"] for _, row in runs], "ms")
                peers.append(f"{label} {theirs.text()}")
                ratios.append(theirs.median / step.median)
                used |= {letter for letter, _ in runs}
        rows.append([f"{name}, 16 x 512 tokens", step.text(), "; ".join(peers), f"{min(ratios):.2f}x to {max(ratios):.2f}x", ", ".join(sorted(used))])
    both = Sample(vocoder("forward + backward", 1), "ms")
    half = Sample(vocoder_peer(16, "bf16", "forward_backward_ms"), "ms")
    full = Sample(vocoder_peer(16, "f32", "forward_backward_ms"), "ms")
    rows.append([
        "HiFi-GAN vocoder, 16 x 32 latents, forward and backward", f"{both.text()}; on two streams {Sample(vocoder('forward + backward', 2), 'ms').text()}",
        f"bf16 {half.text()}; f32 {full.text()}", f"{half.median / both.median:.2f}x to {full.median / both.median:.2f}x", "a, b",
    ])
    one = Sample(vocoder("forward, batch 1", 1) + vocoder("forward, batch 1", 2), "ms")
    full = Sample(vocoder_peer(1, "f32", "forward_ms"), "ms")
    half = Sample(vocoder_peer(1, "bf16", "forward_ms"), "ms")
    rows.append([
        "the same, forward only, batch 1", one.text(), f"f32 {full.text()}; bf16 {half.text()}",
        f"{full.median / one.median:.2f}x to {half.median / one.median:.2f}x", "a, b",
    ])
    attention = json.loads(text(ENGINE["a"]))["attention_ms_for_30_layers"]
    ours, flash, cudnn = (attention[k] for k in ("ours forward + backward (defaults)", "torch SDPA flash forward + backward", "torch SDPA cuDNN forward + backward"))
    rows.append(["attention alone, 30 layers, forward and backward", f"{ours} ms, n = 1", f"flash {flash} ms; cuDNN {cudnn} ms; n = 1", f"{cudnn / ours:.2f}x to {flash / ours:.2f}x", "a"])
    recomputed = [row for _, row in engine_rows() if row.get("planned_bytes") == 12636383744]
    peak = lambda mode: f"{gpt_steps(1024, mode)[0][1]['peak_bytes'] / GIB:.1f}"
    rows.append([
        "memory of the first row",
        f"{14449601024 / GIB:.1f} GiB planned ({15022751744 / GIB:.1f} by the driver's count), or {12636383744 / GIB:.1f} with all blocks recomputed, at {Sample([r['median_ms'] for r in recomputed], 'ms').text()}",
        f"peak allocated: compiled {peak('compile')}, eager {peak('eager')}, CUDA graph {peak('graph')} GiB", "", "a, b",
    ])
    return table(["one training step", "MyXTTS", "PyTorch 2.11", "ratio", "files"], rows)


def speak_runs():
    """Returns the runs of the example `speed` with the unguided model, each as a list of its lines."""
    runs, current = [], None
    for name in ("speak_h200_20261116.jsonl", "speak_h200_20261116_b.jsonl"):
        for row in lines(name):
            if row.get("run", "plain") not in ("plain", "plain_first", "plain_again"):
                continue
            if row.get("measured") == "ready":
                current = []
                runs.append(current)
            if current is not None and "measured" in row:
                current.append(row)
    return runs


def speaking():
    runs = speak_runs()
    pick = lambda kind, test=lambda row: True: [row for run in runs for row in run if row["measured"] == kind and test(row)]
    first = Sample([[ms * 1e3 for ms in row["first_sound_s"]] for row in pick("streamed", lambda row: row["silence_cut"])], "ms")
    utterance = Sample([row["real_time_factor"] for row in pick("utterance")])
    book = Sample([row["real_time_factor"] for row in pick("book")])
    guided = [row for row in lines("speak_h200_20261116.jsonl") if row.get("run") == "guided"]
    guided = Sample([row["real_time_factor"] for row in guided if row["measured"] == "book"])
    # Without the first run of the first file, which compiled kernels.
    starts = Sample([row["ready_s"] for row in pick("ready")[1:]], "s")
    rows = [
        ["text of 100 characters to the first audible sample; voice stored, model open", first.text(), "", "s, t"],
        ["one utterance of 6.5 s, seconds per second of speech", utterance.text(), "", "s, t"],
        ["a book, 64 texts at once, seconds per second of speech", book.text(), "", "s, t"],
        ["the same with guidance (twice the rows)", guided.text(), "", "s"],
        ["second start of the process, until one utterance was spoken", starts.text(), "", "s, t"],
    ]
    codes = lines("decode_h200_20261116_d.jsonl")
    rate = lambda batch: Sample([row["codes_per_s"] for row in codes if "peer" not in row and row["batch"] == batch], "codes/s")
    theirs = lambda batch: [row["codes_per_s"] for row in codes if "peer" in row and row["batch"] == batch]
    single, many = theirs(1), theirs(64)
    rows.append(["codes per second, 1 text, without vocoder", rate(1).text(), f"f32 {number(single[0])}, bf16 {number(single[1])}, n = 1 each", "u"])
    rows.append(["8 texts at once", rate(8).text(), "", "u"])
    rows.append(["64 texts at once", rate(64).text(), f"f32 {number(many[0])}, n = 1", "u"])
    memory = [row for row in lines("speak_h200_20261116.jsonl") if row.get("measured") == "memory"][0]
    early, late = memory["early"], memory["late"]
    growth = f"{late['device_bytes'] - early['device_bytes']:+d} bytes on the GPU, {late['host_kib'] - early['host_kib']:+d} KiB resident, n = 1"
    rows.append(["memory growth from utterance 101 to 1,000", growth, "", "s"])
    return table(["speaking, XTTS-v2's size, random weights", "MyXTTS", "Hugging Face GPT-2", "files"], rows)


def on_cpu():
    batches = json.loads(text("batches.json"))
    ours = Sample([round_["ours"]["batches_per_s"] for round_ in batches["rounds"]], "batches/s")
    theirs = Sample([round_["peer"]["batches_per_s"]["shard"] for round_ in batches["rounds"]], "batches/s")
    first = Sample([seconds * 1e3 for seconds in batches["million"]["open"]["raw_s"][0]], "ms")
    prepare = json.loads(text("2026-11-15-prepare.json"))
    one, two = (Sample(prepare["seconds"][k], "s") for k in ("1", "2"))
    steps = json.loads(text("engine_cpu_20261115_143233.json"))["rounds"]
    mine, torch = (Sample([round_[side]["median_ms"] for round_ in steps], "ms") for side in ("myxtts", "torch"))
    audio = prepare["hours"] * 3600
    rows = [
        ["batches of 32 mels of 10 s, checksummed and collated", ours.text(), f"DataLoader with 2 workers, its fastest storage: {theirs.text()}", f"{ours.median / theirs.median:.1f}x", "`bench/batches/run.sh 4`", "`batches.json`"],
        ["first batch of an index of 1,000,000 utterances", f"{first.text()}; {batches['summary']['memory_of_a_million_mb']:.0f} MB besides the mapped files", "", "", "`bench/batches/run.sh 4`", "`batches.json`"],
        [f"`prepare`, {prepare['utterances']:,} utterances, {prepare['hours']:.2f} h of speech", f"one worker {one.text()}; two {two.text()}: {audio / two.median:,.0f} times real time", "", f"two against one: {one.median / two.median:.2f}x", "`bench/prepare/run.sh`", "`2026-11-15-prepare.json`"],
        ["training step of a GPT 6 x 256, 8 x 200 tokens, f32", mine.text(), f"PyTorch {torch.text()}", f"{torch.median / mine.median:.2f}x", "`bench/engine/cpu.py --rounds 9 --steps 8`", "`engine_cpu_20261115_143233.json`"],
    ]
    return table(["two cores of an AMD EPYC, 2026-11-15", "MyXTTS", "peer", "ratio", "command", "file"], rows)


def front_end():
    best = json.loads(text("front_end_20261115_104138.json"))["best_of_rounds"]
    names = {"wav_to_mel": "WAV to log-mel", "wav44_to_mel": "44.1 kHz WAV, resampled and trimmed, to log-mel", "read_wav": "reading WAV", "resample_44_22": "resampling 44.1 to 22.05 kHz"}
    rows = []
    for key, name in names.items():
        times = dict(best[key]["ms_per_10s"])
        ours = times.pop("myxtts")
        rows.append([name, f"{ours:.2f} ms", "; ".join(f"{peer} {ms:.2f} ms" for peer, ms in times.items()), "; ".join(f"{ms / ours:.1f}x" for ms in times.values())])
    return table(["per 10 s of speech, one core, best of 12 rounds", "MyXTTS", "peer", "ratio"], rows)


def tuning():
    rows = []
    for name, label in [
        ("tuning_h200_20261116.json", "H200, GPT `small`"), ("tuning_cpu_20261116_a.json", "two cores, GPT `tiny`"), ("tuning_cpu_20261116_b.json", "two cores, GPT `tiny`"),
        ("tuning_cpu_20261116_c.json", "two cores, GPT `tiny`"), ("tuning_cpu_20261116_d.json", "two cores, GPT `tiny`"),
    ]:
        run = json.loads(text(name))
        rows.append([label, str(run["chosen"]["batch"]), f"{run['seconds']['tune']} s", f"{run['ratio'] * 100:.1f} %", str(len(run["exhaustive"]["rows"])), f"`{name}`"])
    return table(["", "batch chosen", "time taken", "of the fastest", "combinations", "file"], rows)


def readme():
    ours, theirs = training_rows("gpt", "v2", 32, "resident"), peer_runs(30, 1024, 32, "bf16")
    fast, slow = clips(ours), Sample([rate for rate, _ in theirs], "clips/s")
    step, compiled = (Sample([row["median_ms"] for _, row in gpt_steps(1024, mode)], "ms") for mode in (None, "compile"))
    runs = [row for run in speak_runs() for row in run if row["measured"] == "streamed" and row["silence_cut"]]
    first = Sample([[ms * 1e3 for ms in row["first_sound_s"]] for row in runs], "ms")
    codes = lines("decode_h200_20261116_d.jsonl")
    many = Sample([row["codes_per_s"] for row in codes if "peer" not in row and row["batch"] == 64], "codes/s")
    peer = [row["codes_per_s"] for row in codes if "peer" in row and row["batch"] == 64][0]
    raw = lambda *names: ", ".join(f"[{at}](bench/results/{name})" for at, name in enumerate(names, 1))
    rows = [
        ["training, batch 32, from a cache", fast.text(), slow.text(), "Nov 15 to 18", "`bench/training/run.sh`", raw(*(TRAINING[letter] for letter in "BCDEGP"))],
        ["GPU busy (kernels run) in training", kernel_share(ours).text(lambda v: percent(v) + " %"), "", "Nov 16 and 18", "`bench/training/run.sh`", raw(*(TRAINING[letter] for letter in "DEG"))],
        ["one step, 16 x 512 tokens, bf16", step.text(), f"compiled: {compiled.text()}", "Nov 15 and 16", "`bench/engine/gpu.sh`", raw(*ENGINE.values())],
        ["text to first audible sound", first.text(), "", "Nov 16", "`bench/speak/run.sh`", raw("speak_h200_20261116.jsonl", "speak_h200_20261116_b.jsonl")],
        ["64 texts at once, without vocoder", many.text(), f"Hugging Face, f32: {number(peer)}, n = 1", "Nov 16", "`bench/decode/run.sh`", raw("decode_h200_20261116_d.jsonl")],
    ]
    return table(["XTTS-v2's size, one H200, 2026", "MyXTTS: median (range)", "PyTorch, same machine", "date", "command", "raw"], rows)


def legend(letters):
    return "\n".join(f"- {letter}: `bench/results/{name}`" for letter, name in letters.items())


TABLES = {
    "readme": readme, "training": training, "training-files": lambda: legend(TRAINING), "stages": other_stages, "ways": ways, "engine": engine,
    "engine-files": lambda: legend(ENGINE), "speaking": speaking, "cpu": on_cpu, "front-end": front_end, "tuning": tuning,
}


# --- chart ------------------------------------------------------------------------------------------------------------

STYLE = """
  .t { font: 13px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #24292f; }
  .h { font-weight: 600; font-size: 14px; }
  .s { fill: #57606a; font-size: 12px; }
  .a { fill: #0a7d5a; } .b { fill: #9aa4af; } .line { stroke: #d0d7de; }
  @media (prefers-color-scheme: dark) {
    .t { fill: #e6edf3; } .s { fill: #9198a1; } .a { fill: #2fbf8f; } .b { fill: #6e7781; } .line { stroke: #30363d; }
  }
"""


def chart():
    """Draws clips per second and the share of the time a step is on the GPU, for MyXTTS and the PyTorch loop, by GPT size."""
    sizes = [size for size in SIZES if size[0] != "GPT `small`, batch 16"]
    width, top, group, left, bar, second, share_bar = 860, 74, 70, 190, 300, 640, 150
    height = top + group * len(sizes) + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        'aria-label="Training speed and GPU use of MyXTTS and of a PyTorch loop">',
        f"<style>{STYLE}</style>",
        f'<text class="t h" x="{left}" y="22">Clips per second in training</text>',
        f'<text class="t s" x="{left}" y="42">each size to its own scale</text>',
        f'<text class="t h" x="{second}" y="22">Time a step is on the GPU</text>',
        f'<text class="t s" x="{second}" y="42">measured by device events</text>',
        f'<line class="line" x1="0" y1="56.5" x2="{width}" y2="56.5"/>',
    ]
    for at, (name, preset, batch, peer) in enumerate(sizes):
        ours, theirs = training_rows("gpt", preset, batch, "resident"), peer_runs(*peer)
        fast, slow = clips(ours).median, statistics.median(rate for rate, _ in theirs)
        high, low = statistics.median(on_gpu(row) for _, row in ours), statistics.median(busy for _, busy in theirs)
        y = top + at * group
        label = {"v2": "XTTS-v2's size", "normal": "normal", "small": "small", "tiny": "tiny"}[preset]
        out += [
            f'<text class="t h" x="0" y="{y + 17}">{label}</text>',
            f'<text class="t s" x="0" y="{y + 36}">{peer[0]} x {peer[1]}, batch {batch}</text>',
            f'<rect class="a" x="{left}" y="{y}" width="{bar}" height="20" rx="3"/>',
            f'<text class="t" x="{left + bar + 8}" y="{y + 15}">{number(fast)}  ({fast / slow:.1f}x)</text>',
            f'<rect class="b" x="{left}" y="{y + 24}" width="{max(2, bar * slow / fast):.1f}" height="20" rx="3"/>',
            f'<text class="t" x="{left + bar * slow / fast + 8:.1f}" y="{y + 39}">{number(slow)}</text>',
            f'<rect class="a" x="{second}" y="{y}" width="{share_bar * high:.1f}" height="20" rx="3"/>',
            f'<text class="t" x="{second + share_bar * high + 8:.1f}" y="{y + 15}">{high * 100:.1f} %</text>',
            f'<rect class="b" x="{second}" y="{y + 24}" width="{share_bar * low:.1f}" height="20" rx="3"/>',
            f'<text class="t" x="{second + share_bar * low + 8:.1f}" y="{y + 39}">{low * 100:.0f} %</text>',
        ]
    y = height - 22
    out += [
        f'<rect class="a" x="0" y="{y}" width="12" height="12" rx="2"/><text class="t s" x="18" y="{y + 10}">MyXTTS, from its cache</text>',
        f'<rect class="b" x="{left}" y="{y}" width="12" height="12" rx="2"/>'
        f'<text class="t s" x="{left + 18}" y="{y + 10}">PyTorch loop like Coqui\'s trainer, bf16, from WAV files; one H200, November 2026</text>',
        "</svg>",
    ]
    return "\n".join(out) + "\n"


# --- pages ------------------------------------------------------------------------------------------------------------

PART = re.compile(r"(<!-- figures:([a-z-]+) -->\n)(.*?)(\n<!-- /figures -->)", re.S)


def filled(page):
    return PART.sub(lambda part: part[1] + "\n" + TABLES[part[2]]() + "\n" + part[4], page)


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
    if not (args.write or args.check or args.svg):
        for name, make in TABLES.items():
            print(f"## {name}\n\n{make()}\n")


if __name__ == "__main__":
    main()
