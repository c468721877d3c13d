"""The tables of docs/src/benchmarks.md and README.md. Each function returns Markdown; figures.py puts it into the pages."""

import json
import statistics

from raw import MANIFEST, Sample, kept, letters, marked, number, percent, reports, reports_of, text, values, whole_percent

GIB = 2**30


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


# --- training ---------------------------------------------------------------------------------------------------------

SIZES = [
    # name, preset, batch, peer's layers, width, batch, precision
    ("GPT of XTTS-v2's size (30 x 1024), batch 32", "v2", 32, (30, 1024, 32, "bf16")),
    ("GPT `normal` (12 x 512), batch 64", "normal", 64, (12, 512, 64, "bf16")),
    ("GPT `small` (8 x 256), batch 64", "small", 64, (8, 256, 64, "bf16")),
    ("GPT `small`, batch 16", "small", 16, (8, 256, 16, "bf16")),
    ("GPT `tiny` (4 x 128), batch 64", "tiny", 64, (4, 128, 64, "bf16")),
]


def bench_rows(stage, preset, batch, way):
    """Returns (letter, row) of every run of `myxtts bench` with these settings."""
    outdated = MANIFEST["outdated"].get(f"{stage} {preset}", [])
    found = []
    for report in reports("training"):
        if (report.data.get("stage"), report.data.get("preset")) != (stage, preset) or report.letter in outdated:
            continue
        found += [(report.letter, row) for row in report.data["rows"] if row["way"] == way and round(row["mean_shape"][0]) == batch]
    return found


def loop_runs(layers, width, batch, precision):
    """Returns (letter, report) of every run of the PyTorch loop."""
    fields, wanted = ("layers", "width", "batch", "precision"), (layers, width, batch, precision)
    loops = [report for report in reports("training") if "training loop" in report.data.get("peer", "")]
    return [(report.letter, report.data) for report in loops if tuple(report.data[field] for field in fields) == wanted]


def on_gpu(row):
    """Returns the share of the time in which a step was on the GPU: device time over wall time of all timed steps."""
    if row.get("on_device") is not None:
        return row["on_device"]
    return sum(step[5] for step in row["raw"]) / sum(step[3] for step in row["raw"])


def rate(runs, unit="clips/s"):
    return Sample(values(runs, lambda row: row["samples_per_second"]), unit)


def busy(runs, show=percent):
    """Busy share of the runs that have `on_device`. Older runs divided the times of two passes and are left out."""
    shares = [row["busy"] for _, row in runs if row.get("on_device") is not None and row.get("busy") is not None]
    return Sample(shares).text(show) if shares else "not measured"


def share_on_gpu(runs, show=percent):
    return Sample(values(runs, on_gpu)).text(show, n=False)


def sides(preset, batch, way, peer):
    """The kept runs of MyXTTS and of the loop, in one row of the table."""
    return kept(bench_rows("gpt", preset, batch, way), loop_runs(*peer))


def training_row(name, ours, theirs, with_busy=True):
    fast, slow = rate(ours), rate(theirs)
    return [
        name, fast.text(), busy(ours) if with_busy else "not measured", share_on_gpu(ours), slow.text(), share_on_gpu(theirs, whole_percent),
        f"{fast.median / slow.median:.1f}x", letters(ours, theirs),
    ]


def training():
    rows = [training_row(name, *sides(preset, batch, "resident", peer)) for name, preset, batch, peer in SIZES]
    like = training_row("the same, without a cache", *sides("v2", 32, "no cache", SIZES[0][3]), with_busy=False)
    fp32 = training_row("as in the first row; the peer with batch 8 in fp32", *sides("v2", 32, "resident", (30, 1024, 8, "fp32")))
    head = ["", "MyXTTS", "busy share, %", "step on the GPU, %", "PyTorch loop", "step on the GPU, %", "ratio", "files"]
    return table(head, [rows[0], like, fp32] + rows[1:])


def older_loop(names=True):
    """What is said of the loop's figures while some of them are from an earlier script."""
    used = [sides(preset, batch, "resident", peer)[1] for _, preset, batch, peer in SIZES] + [sides("v2", 32, "no cache", SIZES[0][3])[1]]
    earlier = sorted({letter for one in used for letter, report in one if report.get("printed")})
    if not earlier:
        return ""
    return (f"The loop's figures{' of file ' + ' and '.join(earlier) if names else ''} are from an earlier loop with the same method; "
            "`bench/training/torch_loop.py` itself was not used for them.")


def other_stages():
    rows = []
    for name, stage, preset, batch in [
        ("DVAE `small`, 64 windows of 1.49 s", "dvae", "small", 64),
        ("DVAE `v2`, 128 windows of 1.49 s", "dvae", "v2", 128),
        ("decoder `small` with discriminators, 32 windows of 0.74 s", "decoder", "small", 32),
        ("decoder `v2` with discriminators, 16 windows of 0.74 s", "decoder", "v2", 16),
    ]:
        (ours,) = kept(bench_rows(stage, preset, batch, "buffered 12"))
        rows.append([name, rate(ours, "windows/s").text(), busy(ours), letters(ours)])
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
    # Files with all ways of feeding, so that the rows are of the same calls.
    runs = {way: [pair for pair in bench_rows("gpt", "small", 16, way) if len(pair[1]["raw"]) >= 300] for way, _ in WAYS}
    complete = set.intersection(*({letter for letter, _ in pairs} for pairs in runs.values()))
    of_files = kept(*([pair for pair in pairs if pair[0] in complete] for pairs in runs.values()))
    rows = []
    for (_, name), pairs in zip(WAYS, of_files):
        each = lambda of, show: Sample(values(pairs, of)).text(show, n=False)
        field = lambda name, show, scale=1: each(lambda row: row[name] * scale, show)
        tenths = lambda value: f"{value:.1f}"
        rows.append([
            name, rate(pairs, "").text(), share_on_gpu(pairs), field("wait_share", percent),
            f"{field('step_ms', tenths)}; {field('step_p99_ms', tenths)}", field("variation_at_equal_shape", percent), field("cores", tenths),
        ])
    files = f"files {letters(*of_files)}"
    head = ["way of feeding", "clips/s", "step on the GPU, %", "waiting for batches, %", "batch: p50; p99, ms", "varies at equal shape, %", "cores"]
    return f"GPT `small`, batch 16, {files}:\n\n" + table(head, rows)


# --- one step ---------------------------------------------------------------------------------------------------------

# Files without names of rows: the planned memory tells runs on one stream without recomputed activations from others.
PLANNED = {
    "gpt-1024": {14449601024, 14451135612}, "gpt-512": {2229077248}, "gpt-256": {703677696}, "gpt-1024-recompute-all": {12636383744},
    "vocoder": {2452793088}, "vocoder-two-streams": {2836886784},
}


def ours(row):
    """Returns (letter, report) of MyXTTS's runs of a row."""
    of_row = lambda report: report.row == row if report.row else report.data.get("planned_bytes") in PLANNED[row]
    return [(report.letter, report.data) for report in reports("engine") if "peer" not in report.data and of_row(report)]


def torch_runs(test, ending):
    found = [report for report in reports("engine") if report.data.get("peer", "").endswith(f" {ending}") and test(report.data)]
    return [(report.letter, report.data) for report in found]


def median_ms(runs):
    return Sample(values(runs, lambda row: row["median_ms"]), "ms")


MODES = [("compile", "compiled"), ("graph", "CUDA graph"), ("eager", "eager")]


def gpt_step(width):
    """Kept runs of MyXTTS, and of each of PyTorch's modes that was measured."""
    peers = {mode: torch_runs(lambda row: row.get("width") == width, mode) for mode, _ in MODES}
    peers = {mode: runs for mode, runs in peers.items() if runs}
    mine, *theirs = kept(ours(f"gpt-{width}"), *peers.values())
    return mine, dict(zip(peers, theirs))


def vocoder_times(runs, name):
    return [(letter, run["median_ms"]) for letter, row in runs for run in row["runs"] if run["name"] == name]


def in_ms(pairs):
    return Sample(values(pairs), "ms")


def engine():
    rows = []
    for width, name in {1024: "GPT 30 x 1024 (XTTS-v2's size)", 512: "GPT 12 x 512", 256: "GPT 8 x 256"}.items():
        mine, peers = gpt_step(width)
        step = median_ms(mine)
        theirs = {label: median_ms(peers[mode]) for mode, label in MODES if mode in peers}
        ratios = [sample.median / step.median for sample in theirs.values()]
        shown = "; ".join(f"{label} {sample.text()}" for label, sample in theirs.items())
        used = letters(mine, *peers.values())
        rows.append([f"{name}, 16 x 512 tokens", step.text(), shown, f"{min(ratios):.2f}x to {max(ratios):.2f}x", used])
    of_vocoder = lambda batch, key, ending: [
        (letter, row[key]) for letter, row in torch_runs(lambda row: row.get("batch") == batch and key in row, ending)
    ]
    pairs = kept(
        vocoder_times(ours("vocoder"), "forward + backward"), vocoder_times(ours("vocoder-two-streams"), "forward + backward"),
        of_vocoder(16, "forward_backward_ms", "bf16"), of_vocoder(16, "forward_backward_ms", "f32"),
    )
    both, two, half, full = map(in_ms, pairs)
    rows.append([
        "HiFi-GAN vocoder, 16 x 32 latents, forward and backward", f"{both.text()}; on two streams {two.text()}",
        f"bf16 {half.text()}; f32 {full.text()}", f"{half.median / both.median:.2f}x to {full.median / both.median:.2f}x", letters(*pairs),
    ])
    alone = vocoder_times(ours("vocoder"), "forward, batch 1") + vocoder_times(ours("vocoder-two-streams"), "forward, batch 1")
    pairs = kept(alone, of_vocoder(1, "forward_ms", "f32"), of_vocoder(1, "forward_ms", "bf16"))
    one, full, half = map(in_ms, pairs)
    rows.append([
        "the same, forward only, batch 1", one.text(), f"f32 {full.text()}; bf16 {half.text()}",
        f"{full.median / one.median:.2f}x to {half.median / one.median:.2f}x", letters(*pairs),
    ])
    attention = [(report.letter, report.data["attention_us"]) for report in reports("engine") if "attention_us" in report.data]
    pairs = kept(*([(letter, us[who] * 30 / 1e3) for letter, us in attention if who in us] for who in ("ours", "flash", "cuDNN")))
    mine, flash, cudnn = map(in_ms, pairs)
    ratios = sorted(peer.median / mine.median for peer in (flash, cudnn))
    rows.append([
        "attention alone, 30 layers, forward and backward", mine.text(), f"flash {flash.text()}; cuDNN {cudnn.text()}",
        f"{ratios[0]:.2f}x to {ratios[1]:.2f}x", letters(*pairs),
    ])
    mine, peers = gpt_step(1024)
    (recomputed,) = kept(ours("gpt-1024-recompute-all"))
    memory = lambda pairs, key: Sample([row[key] / GIB for _, row in pairs if row.get(key) is not None])
    peaks = "; ".join(f"{label} {memory(peers[mode], 'peak_bytes').text()}" for mode, label in MODES if mode in peers)
    rows.append([
        "memory of the first row, GiB",
        f"{memory(mine, 'planned_bytes').text()}, planned ({memory(mine, 'used_bytes').text(n=False)} by the driver's count); with all blocks "
        f"recomputed {memory(recomputed, 'planned_bytes').text()}, at {median_ms(recomputed).text()}",
        f"peak allocated: {peaks}", "", letters(mine, recomputed, *peers.values()),
    ])
    return table(["one training step", "MyXTTS", "PyTorch 2.11", "ratio", "files"], rows)


# --- speaking ---------------------------------------------------------------------------------------------------------


def speak_runs(row):
    """Returns (letter, lines) of the runs of the example `speed`: row `plain`, `guided` or `memory`."""
    named = {"plain": ("plain", "plain_first", "plain_again"), "guided": ("guided",), "memory": ("memory",)}[row]
    runs, current = [], None
    for report in reports("speaking"):
        line = report.data
        if "measured" not in line or (report.row != row if report.row else line.get("run", "plain") not in named):
            continue
        # Every run begins with this line, except for one stored without it.
        if line["measured"] == "ready" or current is None or current[0] != report.letter:
            current = (report.letter, [])
            runs.append(current)
        current[1].append(line)
    return runs


def each_run(runs, kind, of, test=lambda line: True):
    """Returns (letter, values of the lines of this kind) of the runs that have such lines."""
    found = []
    for letter, lines in runs:
        several = [value for line in lines if line["measured"] == kind and test(line) for value in of(line)]
        found += [(letter, several)] if several else []
    return found


def first_sound():
    of = lambda line: [seconds * 1e3 for seconds in line["first_sound_s"]]
    return kept(each_run(speak_runs("plain"), "streamed", of, lambda line: line["silence_cut"]))[0]


def decoded(batch, kind=None):
    """Codes per second of MyXTTS, or of Hugging Face's GPT-2 with numbers of this kind."""
    lines = [report for report in reports("speaking") if "codes_per_s" in report.data and "measured" not in report.data]
    of_batch = [report for report in lines if report.data["batch"] == batch and not report.data.get("late_launch")]
    mine = [report for report in of_batch if report.data.get("type", "").removeprefix("torch.") == (kind or "")]
    return [(report.letter, report.data["codes_per_s"]) for report in mine]


def decode_row(batch):
    """Kept runs of MyXTTS and of the peer, by its type."""
    peers = {kind: decoded(batch, kind) for kind in ("float32", "bfloat16")}
    peers = {kind: runs for kind, runs in peers.items() if runs}
    mine, *theirs = kept(decoded(batch), *peers.values())
    return mine, {kind.replace("float32", "f32").replace("bfloat16", "bf16").replace("bf32", "f32"): runs for kind, runs in zip(peers, theirs)}


def growth(lines):
    (memory,) = [line for line in lines if line["measured"] == "memory"]
    return tuple(memory["late"][key] - memory["early"][key] for key in ("device_bytes", "host_kib"))


def speaking():
    plain = speak_runs("plain")
    factor = lambda line: line["real_time_factor"] if isinstance(line["real_time_factor"], list) else [line["real_time_factor"]]
    row = lambda name, pairs, unit="": [name, Sample(values(pairs), unit).text(), "", letters(pairs)]
    # The first run of a file without names of rows compiled kernels; bench/published/run.sh starts the program once before its runs.
    ready = each_run(plain, "ready", lambda line: [line["ready_s"]])
    starts = kept(ready[1:] if not any(report.row == "plain" for report in reports("speaking")) else ready)[0]
    rows = [
        row("text of 100 characters to the first audible sample; voice stored, model open", first_sound(), "ms"),
        row("one utterance of 6.5 s, seconds per second of speech", kept(each_run(plain, "utterance", factor))[0]),
        row("a book, 64 texts at once, seconds per second of speech", kept(each_run(plain, "book", factor))[0]),
        row("the same with guidance (twice the rows)", kept(each_run(speak_runs("guided"), "book", factor))[0]),
        row("second start of the process, until one utterance was spoken", starts, "s"),
    ]
    for batch, name in ((1, "codes per second, 1 text, without vocoder"), (8, "8 texts at once"), (64, "64 texts at once")):
        mine, peers = decode_row(batch)
        theirs = "; ".join(f"{kind} {Sample(values(runs)).text()}" for kind, runs in peers.items())
        rows.append([name, Sample(values(mine), "codes/s").text(), theirs, letters(mine, *peers.values())])
    (memory,) = kept([(letter, growth(lines)) for letter, lines in speak_runs("memory")])
    of_bytes, of_kib = (Sample([pair[side] for pair in values(memory)]) for side in (0, 1))
    signed = lambda value: f"{value:+.0f}"
    rows.append([
        "memory growth from utterance 101 to 1,000",
        f"{of_bytes.text(signed, n=False)} bytes on the GPU, {of_kib.text(signed, n=False)} KiB resident, {marked(of_bytes.n)}", "", letters(memory),
    ])
    return table(["speaking, XTTS-v2's size, random weights", "MyXTTS", "Hugging Face GPT-2", "files"], rows)


# --- CPU and tuning ---------------------------------------------------------------------------------------------------


def cpu_file(name):
    return json.loads(text(MANIFEST["cpu"][name]))


def on_cpu():
    batches, prepare, steps = cpu_file("batches"), cpu_file("prepare"), cpu_file("engine")["rounds"]
    mine = Sample([turn["ours"]["batches_per_s"] for turn in batches["rounds"]], "batches/s")
    theirs = Sample([turn["peer"]["batches_per_s"]["shard"] for turn in batches["rounds"]], "batches/s")
    first = Sample([seconds * 1e3 for seconds in batches["million"]["open"]["raw_s"][0]], "ms")
    one, two = (Sample(prepare["seconds"][workers], "s") for workers in ("1", "2"))
    step, torch = (Sample([turn[side]["median_ms"] for turn in steps], "ms") for side in ("myxtts", "torch"))
    audio = prepare["hours"] * 3600
    file = lambda name: f"`{MANIFEST['cpu'][name]}`"
    rows = [
        ["batches of 32 mels of 10 s, checksummed and collated", mine.text(), f"DataLoader with 2 workers, its fastest storage: {theirs.text()}", f"{mine.median / theirs.median:.1f}x", "`bench/batches/run.sh`", file("batches")],
        ["first batch of an index of 1,000,000 utterances", f"{first.text()}; {batches['summary']['memory_of_a_million_mb']:.0f} MB besides the mapped files", "", "", "`bench/batches/run.sh`", file("batches")],
        [f"`prepare`, {prepare['utterances']:,} utterances, {prepare['hours']:.2f} h of speech", f"one worker {one.text()}; two {two.text()}: {audio / two.median:,.0f} times real time", "", f"two against one: {one.median / two.median:.2f}x", "`bench/prepare/run.sh`", file("prepare")],
        ["training step of a GPT 6 x 256, 8 x 200 tokens, f32", step.text(), f"PyTorch {torch.text()}", f"{torch.median / step.median:.2f}x", "`bench/engine/cpu.py --rounds 9 --steps 8`", file("engine")],
    ]
    dates = sorted({file["date"][:10] for file in (batches, prepare, cpu_file("engine"))})
    return table([f"two cores of an AMD EPYC, {' to '.join(dates)}", "MyXTTS", "peer", "ratio", "command", "file"], rows)


FRONT_END = {
    "wav_to_mel": "WAV to log-mel", "wav44_to_mel": "44.1 kHz WAV, resampled and trimmed, to log-mel", "read_wav": "reading WAV",
    "read_flac": "reading FLAC", "read_mp3": "reading MP3", "trim": "trimming silence", "resample_22_16": "resampling 22.05 to 16 kHz",
    "resample_44_22": "resampling 44.1 to 22.05 kHz",
}


def front_end():
    file = cpu_file("front end")
    rows = []
    for key, name in FRONT_END.items():
        rounds = dict(file["ms_per_10s_of_each_round"][key])
        mine = Sample(rounds.pop("myxtts"), "ms")
        theirs = {peer: Sample(times, "ms") for peer, times in rounds.items()}
        shown = "; ".join(f"{peer} {sample.text()}" for peer, sample in theirs.items())
        rows.append([name, mine.text(), shown, "; ".join(f"{sample.median / mine.median:.2f}x" for sample in theirs.values())])
    others = statistics.median(file["others_busy_before_each_round"]) * 100
    about = (f"One core of an {file['cpu']}, {file['date'][:10]}, `{file['command']}`, `{MANIFEST['cpu']['front end']}`. A run is a round over {file['clips']} "
             f"clips of 10 s; before the rounds other programs used {others:.0f} % of the {file['cores']} cores (median).\n\n")
    return about + table(["per 10 s of speech, one core", "MyXTTS", "peer", "ratio"], rows)


def versions():
    """Two builds of this program, in turn."""
    rows = []
    for name, (old, new) in MANIFEST["versions"].items():
        lines = [json.loads(line) for line in text(name).splitlines()]
        for stage in dict.fromkeys(line["stage"] for line in lines):
            speed = {build: [line["samples_per_second"] for line in lines if (line["build"], line["stage"]) == (build, stage)] for build in ("old", "new")}
            ratio = Sample([after / before for before, after in zip(speed["old"], speed["new"])])
            sides = [Sample(speed[build], "clips/s").text() for build in ("old", "new")]
            rows.append([f"{old} -> {new}", stage.upper() if stage != "decoder" else stage, *sides, ratio.text(show=lambda x: f"{x:.2f}", n=False), f"`{name}`"])
    return table(["builds", "stage", "older", "newer", "ratio of each round", "file"], rows)


def tuning():
    rows = []
    for label in dict.fromkeys(MANIFEST["tuning"].values()):
        names = [name for name, of in MANIFEST["tuning"].items() if of == label]
        runs = [json.loads(text(name)) for name in names]
        each = lambda of: ", ".join(dict.fromkeys(str(of(run)) for run in runs))
        took = Sample([run["seconds"]["tune"] for run in runs], "s").text(show=lambda x: f"{x:.0f}", n=False)
        share = Sample([run["ratio"] for run in runs], "%").text(show=percent)
        rows.append([label, each(lambda run: run["chosen"]["batch"]), took, share, each(lambda run: len(run["exhaustive"]["rows"])),
                     ", ".join(f"`{name}`" for name in names)])
    return table(["", "batch chosen", "time taken", "of the fastest", "combinations", "files"], rows)


# What `diagnose` calls each planted fault.
CAUSES = {
    "healthy": "healthy", "slow-disk": "disk", "slow-decode": "decode", "slow-worker": "slow_worker", "tiny-buffer": "tiny_buffer",
    "upload-lock": "upload_lock", "pageable-upload": "pageable_uploads", "shape-churn": "shape_churn", "periodic-stall": "periodic_stall",
    "cpu-hog": "processor", "slow-step": "slow_step", "noisy-step": "noisy_step",
}


def diagnose():
    """One row per file; a run is one seed under which all faults were planted."""
    rows = []
    for name, machine in MANIFEST["diagnose"].items():
        found = [report.data for report in reports_of("", name) if "planted" in report.data]
        # An older version wrote only whether the fault was named, `first` and anywhere.
        first = lambda row: row["found"] if "found" in row else row["first"]
        culprits = lambda row: [finding["culprit"] for finding in row["findings"]]
        anywhere = sum(row["named"] if "named" in row else CAUSES[row["planted"]] in culprits(row) for row in found)
        missed = [f"`{row['planted']}` (called {culprits(row)[0].replace('_', ' ')})" for row in found if not first(row)]
        shown = ", ".join(dict.fromkeys(missed)) if len(missed) <= 6 else ""
        seeds = len(found) // len({row["planted"] for row in found})
        rows.append([machine, f"{len(found) - len(missed)} of {len(found)}", str(anywhere), shown, marked(seeds), f"`{name}`"])
    return table(["machine", "named first", "anywhere in the report", "not named first", "seeds", "raw file"], rows)


def legend(group):
    return "\n".join(f"- {letter}: `bench/results/{name}`" for letter, name in MANIFEST[group].items())
