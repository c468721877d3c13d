"""Runs the rows of bench/ranks/run.sh.

Rows, in this order; groups for --only are in brackets:
  note           [always]   machine, driver, NCCL, command
  corpus         [always]   a synthetic corpus, its cache, and the first run on the device, which compiles the kernels
  *-1, *-0       [as needed] one process with the whole batch; models that other rows start from. A second call with the same OUT_DIR
                            reuses them
  gpt-2, dvae-2, decoder-2 [equal] two ranks beside it: losses of every step, weights of the ranks
  gpt-4          [equal]    the same with four ranks
  *-2-slow       [equal]    the rows of two ranks with a learning rate of 1e-6, which keeps Adam from turning rounding into whole steps
  *-slices-N     [equal]    the same N ranks beside one process on the same device that computes every batch as N slices
  nccl           [equal]    which network NCCL chose between the ranks, from its own log
  resume         [resume]   two ranks, one process, two ranks: SIGTERM to rank 1 and SIGUSR1 save first
  timing-*       [timing]   ms per step: one process; two ranks; two ranks with --reduce-bf16; two processes without sums
  data-gpu-*     [datagpu]  ms per step with --data-gpu 0 --model-gpu 0 beside the default, for every stage
  fault-*        [faults]   rank 1 killed, rank 0 killed, rank 2 of 3 killed, rank 1 stopped (SIGSTOP), connections to rank 0 cut, or
                            silent; then a restart

Limits: losses within 1e-5 of one process (absolute below 1, relative above), weights of all ranks the same bits, losses of ranks
noticed within 30 s, exit code 75. Rows *-slices-N compare the same shapes, and sums of the same numbers: every loss and every weight
must be the same bits where the order of addition is the same, which is for sums over TCP (in the order of ranks, as in one process)
and for any sum of two. NCCL may add four in another order: gpt-slices-4 is reported and not judged on a GPU. Everything is computed in f32 for the rows that compare, and in the default precision (bf16 on
GPUs) for the others. Stdlib only.
"""

import argparse
import array
import json
import math
import os
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

NEAR = 1e-5
NOTICED = 30.0

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("--cpu", action="store_true")
parser.add_argument("--only", default="equal,resume,timing,datagpu,faults")
args = parser.parse_args()
groups = set(args.only.split(","))
unknown = groups - {"equal", "resume", "timing", "datagpu", "faults"}
if unknown:
    parser.error(f"unknown groups: {', '.join(sorted(unknown))}")

program = str(Path(os.environ["MYXTTS"]).resolve())
out = args.out.resolve()
logs, runs, corpus = out / "logs", out / "runs", out / "corpus"
for folder in (logs, runs):
    folder.mkdir(parents=True, exist_ok=True)
results = open(out / "results.jsonl", "a", buffering=1)
began = time.monotonic()
budget = float(os.environ.get("BUDGET", "3600" if args.cpu else "285"))
device = "cpu" if args.cpu else "cuda:0"
preset = "tiny" if args.cpu else "small"
timing_preset = os.environ.get("TIMING_PRESET", preset)
fault_preset = os.environ.get("FAULT_PRESET", "tiny")
STEPS = {"dvae": 6, "gpt": 8, "decoder": 3} if args.cpu else {"dvae": 50, "gpt": 50, "decoder": 50}
TIMED, WARM = (8, 4) if args.cpu else (100, 50)
ROWS = 12 if args.cpu else 16  # Clips per batch, for all ranks together: divisible by 4, and by 3 for the faults.
FAULT_ROWS = 12
# Seconds for a row.
LONG = 400 if args.cpu else 90
lock = threading.Lock()
failed = []


def say(line):
    print(f"[{time.monotonic() - began:6.1f} s] {line}", flush=True)


def record(row, verdict, summary, **figures):
    """One finished row: printed, and kept even if this program is ended later."""
    with lock:
        line = {"row": row, "verdict": verdict, "summary": summary, "at_s": round(time.monotonic() - began, 2), **figures}
        results.write(json.dumps(line) + "\n")
        results.flush()
        os.fsync(results.fileno())
        if verdict == "FAIL":
            failed.append(row)
        say(f"{verdict:4} {row}: {summary}")


class RowFailed(Exception):
    pass


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


# Processes


class Process:
    """One process of a run, below `timeout`, which ends it if this program cannot."""

    every = []

    def __init__(self, label, arguments, limit, env):
        self.label, self.log = label, logs / f"{label}.log"
        with lock:
            log = open(self.log, "ab")
            command = ["timeout", "-k", "5", str(int(limit)), program, *arguments]
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=out)
            log.close()
            Process.every.append(self)
        self.ended_at = None
        self.limit = limit

    def id(self):
        """The process id of the program itself."""
        for _ in range(500):
            children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children")
            found = children.read_text().split() if children.exists() else []
            if found:
                return int(found[0])
            if self.child.poll() is not None:
                break
            time.sleep(0.01)
        raise RowFailed(f"{self.label} has ended: {self.last_words()}")

    def send(self, number):
        os.kill(self.id(), number)

    def poll(self):
        code = self.child.poll()
        if code is not None and self.ended_at is None:
            self.ended_at = time.monotonic()
        return code

    def wait(self, limit):
        """The exit code; `None` if it is still running after `limit` seconds."""
        end = time.monotonic() + limit
        while self.poll() is None:
            if time.monotonic() > end:
                return None
            time.sleep(0.01)
        return self.child.returncode

    def kill(self):
        if self.poll() is None:
            try:
                os.kill(self.id(), signal.SIGKILL)
            except (RowFailed, ProcessLookupError):
                pass
            self.wait(5)
        if self.poll() is None:
            self.child.kill()

    def text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def last_words(self):
        lines = [line for line in self.text().splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error")]
        return (errors or lines or [""])[-1][:400]


def stop_all(number, _):
    for process in Process.every:
        process.kill()
    sys.exit(128 + number)


signal.signal(signal.SIGTERM, stop_all)
signal.signal(signal.SIGINT, stop_all)


def environment(rank=None, label="", f32=False, debug=False):
    env = {key: value for key, value in os.environ.items() if key not in (
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "MYXTTS_RENDEZVOUS_TOKEN")}
    # Kernels and chosen algorithms of this run alone, shared by its processes.
    env.setdefault("MYXTTS_CACHE", str(out / "kernels"))
    if f32:
        env["MYXTTS_PRECISION"] = "f32"
    if args.cpu:
        env.setdefault("RAYON_NUM_THREADS", "1")
    elif rank is not None:
        env["NCCL_HOSTID"] = f"{label}-{rank}"
        env["NCCL_SOCKET_IFNAME"] = "lo"
        env.setdefault("NCCL_IB_DISABLE", "1")
        # All ranks are on one machine, whatever its GPUs report about others.
        env.setdefault("NCCL_MNNVL_ENABLE", "0")
        if debug:
            env["NCCL_DEBUG"] = "INFO"
            env["NCCL_DEBUG_FILE"] = str(logs / f"{label}-{rank}.nccl.%p")
    return env


def sets(**settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


COMMON = dict(
    data__num_workers=1 if args.cpu else 2, data__buckets=2, training__validate_every=0, training__sample_every=0,
    training__checkpoint_every=0, data__val_fraction=0.1, training__runs_dir=runs,
)


def stage_arguments(name, stage, steps, size, rows, source=None, more=(), **settings):
    """`train` of one stage."""
    all_steps = {f"training__{one}_steps": steps if one == stage else 0 for one in STEPS}
    sizes = dict(data__batch_size=rows, data__dvae_batch_size=rows, data__decoder_batch_size=rows)
    words = ["train", str(corpus), "--name", name, "--preset", size, "--stage", stage]
    words += ["--from", str(source)] if source else []
    return words + sets(**{**COMMON, **all_steps, **sizes, **settings}) + list(more)


class Run:
    """A run of one process or of several ranks."""

    def __init__(self, name, arguments, world=1, limit=90, f32=False, debug=False, proxied=False, named=None, more=()):
        self.name, self.world, self.folder = name, world, runs / (named or name)
        if "--resume" not in arguments:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.before = len(self.events())
        self.started = time.monotonic()
        self.proxy = None
        # GPUs that the CPU simulates are chosen by --multi-gpu.
        chosen = "--model-gpu" in arguments or (args.cpu and "--simulate-gpus" in arguments)
        with_device = list(arguments) if chosen else [*arguments, "--device", device]
        if world == 1:
            self.ranks = [Process(name, [*with_device, *more], limit, environment(f32=f32))]
            return
        port = free_port()
        self.proxy = Proxy(port) if proxied else None
        self.ranks = []
        for rank in range(world):
            own = self.proxy.port if self.proxy and rank == 1 else port
            place = ["--rank", str(rank), "--world-size", str(world), "--rendezvous", f"127.0.0.1:{own}"]
            env = environment(rank, name, f32, debug)
            self.ranks.append(Process(f"{name}.rank{rank}", [*with_device, *place, *more], limit, env))

    def events(self, kind=None):
        file = self.folder / "events.jsonl"
        if not file.exists():
            return []
        lines = []
        for line in file.read_text(errors="replace").splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                pass  # The last line is being written.
        return [line for line in lines if kind in (None, line.get("kind"))]

    def new_events(self, kind):
        return [event for event in self.events()[self.before:] if event.get("kind") == kind]

    def until(self, what, found, limit):
        end = time.monotonic() + limit
        while True:
            value = found()
            if value:
                return value
            for process in self.ranks:
                if process.poll() is not None:
                    raise RowFailed(f"{process.label} ended with {process.child.returncode} before {what}: {process.last_words()}")
            if time.monotonic() > end:
                raise RowFailed(f"{what} did not come within {limit:.0f} s: {self.ranks[0].last_words()}")
            time.sleep(0.02)

    def finish(self, limit, code=0):
        """Waits until all processes have ended with `code`."""
        end = time.monotonic() + limit
        for process in self.ranks:
            found = process.wait(max(0.1, end - time.monotonic()))
            if found is None:
                raise RowFailed(f"{process.label} did not end within {limit:.0f} s: {process.last_words()}")
            if found != code:
                raise RowFailed(f"{process.label} ended with {found} instead of {code}: {process.last_words()}")
        return time.monotonic() - self.started

    def end(self):
        for process in self.ranks:
            process.kill()
        if self.proxy:
            self.proxy.cut()

    def losses(self):
        """Loss by step; of a step that appears twice after a resume, the last."""
        return {event["step"]: event["loss"] for event in self.events("step")}

    def hashes(self):
        """The first digits of the hash of the trained weights, by rank."""
        found = {}
        for rank, process in enumerate(self.ranks):
            own = re.findall(r"ends with weights ([0-9a-f]{16})" if rank else r"ranks are the same bits \(([0-9a-f]{16})\)", process.text())
            found[rank] = own[-1] if own else None
        return found

    def per_step_ms(self, after):
        """Mean time of the steps from step `after` on, from the times of their reports, and the share spent waiting for sums."""
        steps = [event for event in self.new_events("step") if event["step"] >= after]
        if len(steps) < 2:
            raise RowFailed(f"only {len(steps)} steps after step {after}: {self.ranks[0].last_words()}")
        each = 1e3 * (steps[-1]["time"] - steps[0]["time"]) / (steps[-1]["step"] - steps[0]["step"])
        gaps = sorted(1e3 * (b["time"] - a["time"]) for a, b in zip(steps, steps[1:]))
        return each, gaps, steps[-1].get("communication"), steps[-1].get("busy")


class Proxy:
    """Forwards connections of a rank to rank 0, until it is cut or falls silent."""

    def __init__(self, target):
        self.target, self.sockets, self.silent, self.over = target, [], False, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.over:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target), 2)
                far.settimeout(None)
            except OSError:
                near.close()  # Rank 0 does not listen yet; the rank tries again.
                continue
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets += [near, far]
            for source, to in ((near, far), (far, near)):
                threading.Thread(target=self.forward, args=(source, to), daemon=True).start()

    def forward(self, source, to):
        try:
            while data := source.recv(1 << 16):
                while self.silent and not self.over:
                    time.sleep(0.05)
                to.sendall(data)
        except OSError:
            pass
        for one in (source, to):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.over = True
        self.listener.close()
        for one in list(self.sockets):
            try:
                one.shutdown(socket.SHUT_RDWR)
                one.close()
            except OSError:
                pass


# Rows


def row(name, limit, work):
    """Runs one row; whatever happens, the next one runs."""
    if time.monotonic() - began + min(limit, 20) > budget:
        record(name, "SKIP", f"not run: the time of {budget:.0f} s is used up")
        return
    try:
        work(limit)
    except RowFailed as error:
        record(name, "FAIL", str(error))
    except Exception as error:  # A fault of this program must not hide the other rows.
        record(name, "FAIL", f"{type(error).__name__}: {error}")


def together(*rows):
    """Runs rows that do not disturb each other at the same time; one after another without a GPU."""
    if args.cpu:
        for one in rows:
            row(*one)
        return
    threads = [threading.Thread(target=row, args=one) for one in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def of_program(*arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, env=environment())
    return (done.stdout + done.stderr).strip()


def note(_):
    try:
        gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                             capture_output=True, text=True, timeout=20).stdout.strip()
    except OSError:
        gpu = ""
    devices = of_program("devices")
    about_nccl = lambda: next((line.strip() for line in devices.splitlines() if "nccl" in line.lower()), "no line about NCCL")
    if "not found" in about_nccl() and "MYXTTS_CUDA_PATH" not in os.environ:
        # The packages of the Python that runs this, if it has NCCL.
        for folder in map(Path, sys.path):
            if (folder / "nvidia" / "nccl" / "lib").is_dir():
                os.environ["MYXTTS_CUDA_PATH"] = str(folder)
                devices = of_program("devices")
                break
    nccl = about_nccl()
    record("note", "INFO", f"{gpu or platform.processor()}; {nccl}", date=time.strftime("%Y-%m-%d %H:%M:%S"), gpu=gpu, cores=os.cpu_count(),
           program=of_program("--version"), devices=devices, python=platform.python_version(), only=sorted(groups), cpu=args.cpu)


def make_corpus(limit):
    if not corpus.exists():
        of_program("demo-corpus", str(corpus), "--utterances", "32" if args.cpu else "120")
    prepared = of_program("prepare", str(corpus))
    # Compiles the kernels once, before ranks that start at the same time would all do it.
    first = Run("first", stage_arguments("first", "dvae", 2, preset, ROWS), limit=limit)
    try:
        seconds = first.finish(limit)
    finally:
        first.end()
    record("corpus", "INFO", f"made, prepared, and two steps of {preset} in {seconds:.1f} s", prepared=prepared[-500:], seconds=seconds)


def floats(path):
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    values = array.array("f")
    values.frombytes(data[start:start + (len(data) - start) // 4 * 4])
    return values


def compare(name, one, several, part, extra=None):
    """Losses and weights of ranks beside those of one process."""
    a, b = one.losses(), several.losses()
    steps = sorted(set(a) & set(b))
    if not steps or len(a) != len(b):
        raise RowFailed(f"{len(a)} losses of one process, {len(b)} of the ranks")
    apart = [abs(a[step] - b[step]) for step in steps]
    relative = [difference / max(1.0, abs(a[step])) for difference, step in zip(apart, steps)]
    worst = max(range(len(steps)), key=lambda i: relative[i] if math.isfinite(relative[i]) else math.inf)
    hashes = several.hashes() if several.world > 1 else {}
    equal = several.world == 1 or (None not in hashes.values() and len(set(hashes.values())) == 1)
    weights = None
    files = [run.folder / "model" / f"{part}.safetensors" for run in (one, several)]
    if all(file.exists() for file in files):
        x, y = (floats(file) for file in files)
        weights = max(map(abs, map(float.__sub__, x, y)), default=0.0) if len(x) == len(y) else None
    good = relative[worst] <= NEAR and equal
    record(name, "PASS" if good else "FAIL",
           f"{len(steps)} steps, losses within {max(apart):.1e} (relative {relative[worst]:.1e}, step {steps[worst]}; loss "
           f"{a[steps[0]]:.4f} to {a[steps[-1]]:.4f}), weights within {weights if weights is None else format(weights, '.1e')}; "
           f"ranks {'the same bits' if equal else 'DIFFER'} {sorted(set(map(str, hashes.values())))}",
           losses_one=a, losses_ranks=b, max_apart=max(apart), max_relative=relative[worst], weights_apart=weights,
           hashes=hashes, ranks_events=several.events("ranks"), **(extra or {}))
    return good


# Few codes: with thousands, rounding sends a row of the DVAE to the next nearest code within 20 steps, and from there two runs
# of one seed learn different codebooks.
EQUAL = dict(training__learning_rate=1e-4, training__dropout=0.1, model__audio_codes=32)
SLOW = 1e-6


def arguments_of(name, stage, source=None, **more):
    settings = dict(EQUAL)
    if name.endswith("-slow"):
        settings["training__learning_rate"] = SLOW
    if stage == "decoder":
        # The discriminators join after half of the steps.
        settings["training__discriminator_start"] = 0.5
    return stage_arguments(name, stage, STEPS[stage], preset, ROWS, source, **settings, **more)


class Finished:
    """A run of an earlier call."""

    world = 1

    def __init__(self, name):
        self.name, self.folder = name, runs / name

    events, losses = Run.events, Run.losses


making = {name: threading.Lock() for name in (
    "dvae-1", "gpt-1", "decoder-0", "decoder-1", "dvae-1-slow", "gpt-1-slow", "decoder-1-slow", "fault-0", "timing-0")}
sources = {}
# Finished runs of several ranks, by row.
several_runs = {}


def made(name, limit=None):
    """A run of one process that other rows compare with or start from, made when it is first needed."""
    limit = limit or LONG
    with making[name]:
        if name in sources:
            return sources[name]
        if (runs / name / "model").exists():
            sources[name] = Finished(name)
            return sources[name]
        f32 = True
        if name == "decoder-0":
            # A model with all parts: its speaker encoder is known, so the stage decoder does not train it. One that is trained
            # has batch norms, which see the rows of their own rank.
            words = stage_arguments(name, "decoder", 1, preset, ROWS, model("gpt-1"), **EQUAL)
        elif name == "fault-0":
            words, f32 = stage_arguments(name, "dvae", 2, fault_preset, FAULT_ROWS), False
        elif name == "timing-0":
            words, f32 = stage_arguments(name, "dvae", 2, timing_preset, ROWS), False
        else:
            stage = name.split("-")[0]
            words = arguments_of(name, stage, source_of(stage))
        run = Run(name, words, limit=limit, f32=f32)
        try:
            seconds = run.finish(limit)
        finally:
            run.end()
        losses = run.losses()
        record(name, "INFO", f"one process: {len(losses)} steps, last loss {losses[max(losses)]:.4f}, {seconds:.1f} s with start and end", losses=losses)
        sources[name] = run
        return run


def model(name):
    return made(name).folder / "model"


def source_of(stage):
    """The model that a run of a stage starts from."""
    return {"dvae": lambda: None, "gpt": lambda: model("dvae-1"), "decoder": lambda: model("decoder-0")}[stage]()


def equal(stage, world, debug=False, rate=""):
    name = f"{stage}-{world}{rate}"

    def work(limit):
        one = made(f"{stage}-1{rate}", limit)
        run = Run(name, arguments_of(name, stage, source_of(stage)), world, limit, f32=True, debug=debug)
        try:
            seconds = run.finish(limit)
        finally:
            run.end()
        several_runs[name] = run
        compare(name, one, run, stage, dict(seconds=seconds))
        if debug:
            network(name)

    return name, LONG, work


def slices(stage, world):
    """The ranks of an earlier row beside one process that computes their slices and adds their gradients in the order of ranks."""
    name = f"{stage}-slices-{world}"

    def work(limit):
        several = several_runs.get(f"{stage}-{world}")
        if several is None:
            raise RowFailed(f"row {stage}-{world} has not finished")
        words = arguments_of(name, stage, source_of(stage))
        one = Run(name, [*words, "--multi-gpu", "--simulate-gpus", str(world)], limit=limit, f32=True)
        try:
            seconds = one.finish(limit)
        finally:
            one.end()
        a, b = one.losses(), several.losses()
        if not a or sorted(a) != sorted(b):
            raise RowFailed(f"{len(a)} losses of one process, {len(b)} of the ranks")
        differ = [step for step in sorted(a) if a[step] != b[step]]
        x, y = ((run.folder / "model" / f"{stage}.safetensors").read_bytes() for run in (one, several))
        relative = max(abs(a[step] - b[step]) / max(1.0, abs(a[step])) for step in a)
        judged = args.cpu or world == 2
        verdict = "INFO" if not judged else "PASS" if not differ and x == y else "FAIL"
        record(name, verdict,
               f"{len(a)} steps of {world} ranks and of {world} slices in one process: "
               + (f"losses differ from step {differ[0]} on, by at most {relative:.1e} (relative)" if differ else "the same losses, bit for bit")
               + f"; weights {'the same bits' if x == y else 'DIFFER'}",
               losses_slices=a, losses_ranks=b, first_difference=differ[0] if differ else None, max_relative=relative, same_weights=x == y,
               seconds=seconds)

    return name, LONG, work


def network(name):
    text = "\n".join(file.read_text(errors="replace") for file in logs.glob(f"{name}-*.nccl.*"))
    links = sorted(set(re.findall(r"via (\S+)", text)))
    version = (re.findall(r"NCCL version (\S+)", text) or ["unknown"])[0]
    ranks = len(set(re.findall(r"comm 0x\w+ rank (\d+) nranks", text)))
    verdict = "PASS" if any(link.startswith("NET/Socket") for link in links) else "FAIL"
    record("nccl", "INFO" if args.cpu else verdict, f"NCCL {version}, {ranks} ranks, links: {', '.join(links) or 'none logged'}",
           links=links, version=version)


def resume(limit):
    """Two ranks, one process, two ranks, as one run."""
    name, total = "resume", STEPS["gpt"]
    one = made("gpt-1", limit)
    arguments = arguments_of(name, "gpt", source_of("gpt"))
    parts = [(2, total // 3, signal.SIGTERM, 1), (1, 2 * total // 3, signal.SIGUSR1, 0), (2, None, None, None)]
    pieces = []
    for i, (world, until, number, receiver) in enumerate(parts):
        words = arguments if i == 0 else ["train", "--resume", name, *sets(training__runs_dir=runs)]
        run = Run(f"resume-part{i + 1}", words, world, limit, f32=True, named=name)
        try:
            if until is None:
                run.finish(limit)
            else:
                run.until(f"step {until}", lambda: any(event["step"] >= until for event in run.new_events("step")), limit)
                run.ranks[receiver].send(number)
                run.finish(30, 143)
        finally:
            run.end()
        saved = [event["step"] for event in run.new_events("checkpoint")]
        stage = run.new_events("stage")
        pieces.append({"world": world, "from": stage[0]["from"] if stage else None, "saved": saved, "hashes": run.hashes() if world > 1 else None})
        if i and pieces[i]["from"] != pieces[i - 1]["saved"][-1]:
            raise RowFailed(f"part {i + 1} continued from {pieces[i]['from']}, and part {i} had saved {pieces[i - 1]['saved']}")
    compare("resume", one, run, "gpt", dict(parts=pieces))
    say(f"     resume: {' -> '.join(str(piece['world']) + ' from step ' + str(piece['from']) for piece in pieces)}")


def timed(name, world, rows, more=(), count=1):
    """ms per step. With `count` runs at the same time, the first is measured."""

    def work(limit):
        start = model("dvae-1" if timing_preset == preset else "timing-0")
        several = []
        try:
            for i in range(count):
                own = f"{name}.{i}" if i else name
                words = stage_arguments(own, "gpt", TIMED, timing_preset, rows, start, **{"data__buckets": 1})
                several.append(Run(own, words, world, limit, more=more))
            for run in several:
                run.finish(limit)
        finally:
            for run in several:
                run.end()
        each, gaps, share, busy = several[0].per_step_ms(WARM)
        events = several[0].events("ranks")
        waited = ""
        if events:
            event = events[-1]
            per_step = 1e3 * (event.get("communication_seconds") or 0) / max(1, event["steps"])
            waited = f"; waited for sums {per_step:.2f} ms per step over the whole stage, {100 * (share or 0):.1f} % of the time at the end"
        record(name, "INFO", f"{each:.2f} ms per step of {rows} clips (steps {WARM} to {TIMED}, p50 {gaps[len(gaps) // 2]:.1f}){waited}",
               ms_per_step=each, gaps_ms=gaps, communication=share, busy=busy, ranks_events=events, rows=rows, world=world)

    return name, LONG, work


def data_gpu(stage, ways):
    """The default feed and the data GPU, on the same GPU."""

    def work(limit):
        source = source_of(stage)
        found = {}
        steps, warm = (TIMED, WARM) if stage != "decoder" or args.cpu else (60, 30)
        for way, more in ways.items():
            name = f"data-gpu-{stage}-{way}"
            words = stage_arguments(name, stage, steps, preset, ROWS, source, more, **{"data__buckets": 1})
            run = Run(name, words, limit=limit)
            try:
                run.finish(limit)
            finally:
                run.end()
            found[way] = run.per_step_ms(warm)[0]
        slower = found["data"] / found["default"] - 1
        record(f"data-gpu-{stage}", "INFO", f"{found['data']:.2f} ms per step with the data GPU, {found['default']:.2f} without ({100 * slower:+.1f} %)",
               ms_per_step=found)

    return f"data-gpu-{stage}", LONG, work


# Seconds without a heartbeat, as by default on GPUs.
RANK_TIMEOUT = 4 if args.cpu else 15


def fault(name, world, act, survivors, lost, proxied=False, revive=None):
    """A run whose rank is lost: who notices, when, and with which exit code; then a restart."""

    def work(limit):
        run_name = f"fault-{name}"
        words = stage_arguments(run_name, "gpt", 1_000_000, fault_preset, FAULT_ROWS, model("fault-0"), training__checkpoint_every=5 if args.cpu else 50)
        run = Run(run_name, words, world, limit, proxied=proxied, more=["--rank-timeout", str(RANK_TIMEOUT)])
        figures = {}
        problems = []
        try:
            run.until("a checkpoint", lambda: run.new_events("checkpoint"), 60 if not args.cpu else 200)
            time.sleep(1)
            act(run)
            at = time.monotonic()
            for rank in survivors:
                process = run.ranks[rank]
                code = process.wait(NOTICED + 15 - (time.monotonic() - at))
                seconds = None if code is None else process.ended_at - at
                words_of = process.last_words()
                named = any(f"rank {who} of {world}" in words_of and "is lost" in words_of for who in lost[rank])
                forced = "did not end within" in process.text()
                figures[rank] = dict(code=code, seconds=seconds, named=named, forced=forced, error=words_of)
                if code != 75 or seconds is None or seconds > NOTICED or not named:
                    problems.append(f"rank {rank}: exit code {code}, {'still running' if seconds is None else f'{seconds:.1f} s'}, {words_of}")
            if revive is not None:
                # A process that comes back must not go on alone.
                run.ranks[revive].send(signal.SIGCONT)
                code = run.ranks[revive].wait(NOTICED)
                figures["revived"] = dict(code=code, error=run.ranks[revive].last_words())
                if code != 75:
                    problems.append(f"the stopped rank {revive} ended with {code} after it came back")
        finally:
            run.end()
        saved = run.new_events("checkpoint")[-1]["step"]
        # The restart reads every checksum of the checkpoint.
        again = Run(f"{run_name}-again", ["train", "--resume", run_name, *sets(training__runs_dir=runs)], world, limit, named=run_name)
        try:
            again.until("a step after the restart", lambda: [event for event in again.new_events("step") if event["step"] > saved], 45 if not args.cpu else 200)
            again.ranks[0].send(signal.SIGTERM)
            again.finish(30, 143)
            resumed = again.new_events("stage")[0]["from"]
            if resumed != saved:
                problems.append(f"the restart continued from step {resumed}, and the last checkpoint was of step {saved}")
            figures["resumed_from"] = resumed
        finally:
            again.end()
        shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)
        slowest = max((one["seconds"] for one in figures.values() if isinstance(one, dict) and one.get("seconds")), default=None)
        record(f"fault-{name}", "FAIL" if problems else "PASS",
               "; ".join(problems) or f"noticed, named and ended with 75 after {slowest:.1f} s"
               f"{' (by force)' if any(isinstance(one, dict) and one.get('forced') for one in figures.values()) else ''}; "
               f"restart continued from checkpoint {saved}", figures=figures, rank_timeout=RANK_TIMEOUT, slowest=slowest)

    return f"fault-{name}", 110 if not args.cpu else 500, work


def kill(rank, number=signal.SIGKILL):
    return lambda run: run.ranks[rank].send(number)


def cut(run):
    run.proxy.cut()


def silence(run):
    run.proxy.silent = True


def probes(limit):
    """After a failure of two ranks: does NCCL work with blocking calls, or without captured steps?"""
    for name, variables, settings in [
        ("probe-blocking", {"MYXTTS_NCCL_BLOCKING": "1"}, {}),
        ("probe-eager", {}, {"training__enable_graph_mode": "false"}),
        ("probe-blocking-eager", {"MYXTTS_NCCL_BLOCKING": "1"}, {"training__enable_graph_mode": "false"}),
    ]:
        os.environ.update(variables)
        try:
            run = Run(name, arguments_of(name, "gpt", source_of("gpt"), **settings), 2, limit, f32=True, debug=True)
            try:
                seconds = run.finish(limit)
                record(name, "INFO", f"works, {seconds:.1f} s", losses=run.losses())
            finally:
                run.end()
        except RowFailed as error:
            record(name, "INFO", f"does not work: {error}")
        finally:
            for variable in variables:
                os.environ.pop(variable, None)


row("note", 30, note)
row("corpus", LONG, make_corpus)
if "equal" in groups:
    # Two ranks of the gpt first, alone: if they fail, the probes say more than the other rows.
    row(*equal("gpt", 2, debug=not args.cpu))
    if "gpt-2" not in several_runs:
        row("probes", 40, probes)
    together(equal("dvae", 2), equal("gpt", 4), equal("decoder", 2), *([("resume", LONG, resume)] if "resume" in groups else []))
    together(*(equal(stage, 2, rate="-slow") for stage in STEPS))
    together(*(slices(stage, world) for stage, world in [("gpt", 2), ("dvae", 2), ("decoder", 2), ("gpt", 4)]))
elif "resume" in groups:
    row("resume", LONG, resume)
if "timing" in groups:
    row(*timed("timing-1", 1, ROWS * 2))
    row(*timed("timing-2", 2, ROWS * 2))
    row(*timed("timing-2-bf16", 2, ROWS * 2, ["--reduce-bf16"]))
    row(*timed("timing-no-sums", 1, ROWS, count=2))
if "faults" in groups:
    row("fault-0", LONG, lambda limit: made("fault-0", limit))
    together(
        fault("killed", 2, kill(1), [0], {0: [1]}),
        fault("killed-rank-0", 2, kill(0), [1], {1: [0]}),
        fault("killed-of-3", 3, kill(2), [0, 1], {0: [2], 1: [2]}),
        fault("stopped", 2, kill(1, signal.SIGSTOP), [0], {0: [1]}, revive=1),
        fault("cut", 2, cut, [0, 1], {0: [1], 1: [0]}, proxied=True),
        fault("silent", 2, silence, [0, 1], {0: [1], 1: [0]}, proxied=True),
    )
if "datagpu" in groups and not args.cpu:
    ways = {"default": [], "data": ["--data-gpu", "0", "--model-gpu", "0"]}
    for stage in STEPS:
        row(*data_gpu(stage, ways))
say(f"{len(failed)} rows failed{': ' + ', '.join(failed) if failed else ''}")
sys.exit(min(len(failed), 100))
