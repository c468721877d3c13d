"""Measures the rows of plan.py; run.sh describes it.

One line per run: part, row, side, number of the run, date, machine, commit, command, seconds, and the reports that the program printed."""

import argparse
import collections
import ctypes
import fcntl
import json
import os
import pathlib
import platform
import select
import shlex
import signal
import statistics
import subprocess
import sys
import time

import plan

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPARE = 3.0  # seconds before the end of the budget at which a run is stopped
ENDED_IN_VAIN = 2  # failures of a row after which this call leaves it out


class RunFailed(Exception):
    pass


def end_with_parent():
    """In a child: receive SIGKILL when this program ends in any way, so that nothing of it disturbs the next call."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def start(command, log, **more):
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, preexec_fn=end_with_parent, **more
    )


def stop(child):
    if child.poll() is None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    child.wait()


def json_lines(text):
    """The lines that are JSON objects, or the one object that takes several lines."""
    try:
        if text.startswith("{"):
            return [json.loads(text)]
    except ValueError:
        pass
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


class PeerScript:
    """A PyTorch script in peer.py, open until its part is finished."""

    def __init__(self, script, log):
        self.child = start([os.environ.get("PYTHON", sys.executable), "-u", "bench/published/peer.py", script], log, stdin=subprocess.PIPE)

    def ask(self, arguments, seconds):
        self.child.stdin.write(json.dumps(arguments) + "\n")
        self.child.stdin.flush()
        answer, end = b"", time.monotonic() + seconds
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self.child.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise RunFailed(f"no answer within {seconds:.0f} s")
            piece = os.read(self.child.stdout.fileno(), 1 << 20)
            if not piece:
                raise RunFailed(f"it ended with {self.child.wait()}")
            answer += piece
        answer = json.loads(answer)
        if answer["error"]:
            raise RunFailed(answer["error"])
        return answer["output"]


class Measuring:
    def __init__(self, a):
        self.a, self.out = a, a.out
        self.began = time.monotonic()
        self.deadline = self.began + a.budget - SPARE
        self.work = pathlib.Path(os.environ.get("WORK", "/tmp/myxtts-published")) / ("cpu" if a.cpu else "gpu")
        self.built = pathlib.Path(os.environ.get("MYXTTS_BUILT", "target/dist")).resolve()
        self.peers, self.failures, self.took = {}, collections.Counter(), {}
        self.log = open(self.out / "log.txt", "a", buffering=1)
        # Opened once more: what the children inherit as their error output must not keep the lock.
        self.lock = open(self.out / "log.txt", "a")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"another program measures into {self.out}")
        self.machine = machine()
        self.commit = os.environ.get("COMMIT") or printed(["git", "rev-parse", "--short", "HEAD"]) or "unknown"
        self.version = printed([str(self.program("myxtts")), "--version"])

    def left(self):
        return self.deadline - time.monotonic()

    def say(self, text):
        line = f"[{time.monotonic() - self.began:5.0f} s of {self.a.budget:.0f}] {text}"
        print(line, flush=True)
        self.log.write(line + "\n")

    def program(self, name):
        for folder in (self.built, self.built / "examples"):
            if (folder / name).is_file():
                return folder / name
        sys.exit(f"{self.built} has no program {name}: build it with `bench/published/run.sh --build FOLDER` and set MYXTTS_BUILT=FOLDER")

    def prepare(self, parts):
        """Makes what the parts need and an earlier call has not made: clips, and models with random weights."""
        python = os.environ.get("PYTHON", sys.executable)
        clips, models = self.work / "clips", self.work / "models"
        if parts & {"training", "sizes", "ways", "stages", "diagnose"}:
            self.make(clips, [python, "bench/training/clips.py", str(clips), "24" if self.a.cpu else "800"])
        if "speak" in parts:
            for name, word in (("plain", "make"), ("guided", "make-guided")):
                if self.a.cpu and name == "plain":
                    self.make(models / name, [str(self.program("random_model")), str(models / name), "tiny"])
                elif not self.a.cpu:
                    self.make(models / name, [str(self.program("opening")), word, str(models / name)])
                    # The first start compiles kernels and chooses algorithms; those that are measured find both in the disk cache.
                    self.once(f"{name}-started", [str(self.program("speed")), str(models / name), "--repeat", "1", "--book", "64"])

    def make(self, folder, command):
        if not folder.with_name(folder.name + ".done").exists():
            subprocess.run(["rm", "-rf", str(folder)], check=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
        self.once(folder.name, command, folder.parent)

    def once(self, name, command, folder=None):
        """Runs a command that only has to succeed once on this machine."""
        done = (folder or self.work) / f"{name}.done"
        if done.exists():
            return
        began = time.monotonic()
        child = subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=self.log, start_new_session=True, preexec_fn=end_with_parent)
        try:
            code = child.wait(max(1.0, self.left()))
        except subprocess.TimeoutExpired:
            code = "no answer in time"
        finally:
            stop(child)
        if code:
            raise RunFailed(f"{shlex.join(command)} ended with {code}; see log.txt")
        done.touch()
        self.say(f"{name}: ready in {time.monotonic() - began:.1f} s")

    def filled(self, row, run):
        places = {"clips": self.work / "clips", "models": self.work / "models", "work": self.work, "run": run}
        return [word.format(**places) for word in row.arguments]

    def run(self, row, run):
        """Reports of one run."""
        arguments, seconds = self.filled(row, run), self.left()
        if row.program.endswith(".py"):
            if row.program not in self.peers:
                self.peers[row.program] = PeerScript(row.program, self.log)
            try:
                return json_lines(self.peers[row.program].ask(arguments, seconds))
            except (RunFailed, OSError) as error:
                stop(self.peers.pop(row.program).child)
                raise RunFailed(str(error)) from error
        of_ranks = row.program == "bench/ranks/run.sh"
        if of_ranks:
            subprocess.run(["rm", "-rf", arguments[0]], check=True)
            os.environ.update(BUDGET=str(int(max(1, seconds - 10))), MYXTTS=str(self.program("myxtts")))
        command = [row.program] if row.program.endswith(".sh") else [str(self.program(row.program))]
        child = start(command + arguments, self.log)
        try:
            output, _ = child.communicate(timeout=max(1.0, seconds))
        except subprocess.TimeoutExpired:
            raise RunFailed(f"stopped after {seconds:.0f} s") from None
        finally:
            stop(child)
        if of_ranks:
            # Its exit code is the number of rows that were outside its limits, which is a result.
            self.log.write(output)
            results = pathlib.Path(arguments[0]) / "results.jsonl"
            return json_lines(results.read_text()) if results.exists() else []
        if child.returncode:
            raise RunFailed(f"it ended with {child.returncode}")
        return json_lines(output)

    def measure(self, row, run):
        began = time.monotonic()
        try:
            reports = self.run(row, run)
            errors = [report for report in reports if "error" in report]
            reports = [report for report in reports if "error" not in report]
            if not reports:
                raise RunFailed(f"no report; {errors[:1]}")
        except RunFailed as error:
            self.failures[row.key] += 1
            self.say(f"FAILED {row.part} {row.key} run {run}: {str(error)[-1500:]}")
            return
        took = time.monotonic() - began
        self.took[row.key] = took
        shown = [word.format(clips="CLIPS", models="MODELS", work="WORK", run=run) for word in row.arguments]
        line = {
            "part": row.part, "row": row.name, "side": row.side, "run": run, "date": time.strftime("%Y-%m-%d"), "machine": self.machine,
            "commit": self.commit, "myxtts": self.version, "command": shlex.join([row.program, *shown]), "seconds": round(took, 2),
            **({"quick": True} if self.a.cpu else {}), **({"errors": errors} if errors else {}), "reports": reports,
        }
        text = json.dumps(line, separators=(",", ":"))
        for folder, name in ((self.work, "WORK"), (self.built, "BUILT"), (ROOT, "REPOSITORY")):
            text = text.replace(str(folder), name)
        with open(self.out / f"{plan.FILES[row.part]}.jsonl", "a", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        failed = f"; {len(errors)} modes FAILED: {errors[0]}" if errors else ""
        self.say(f"{row.part} {row.key} run {run} of {self.a.runs}: {'; '.join(filter(None, map(headline, reports)))} ({took:.1f} s){failed}")

    def part(self, part, rows, held):
        skipped = set()
        for run in range(1, self.a.runs + 1):
            for row in rows:
                if (row.key, run) in held or self.failures[row.key] >= ENDED_IN_VAIN:
                    continue
                if self.left() < 1.1 * self.took.get(row.key, row.seconds):
                    if row.key not in skipped:
                        self.say(f"{part} {row.key}: no time left for run {run}")
                    skipped.add(row.key)
                    continue
                self.measure(row, run)
        for peer in self.peers.values():
            stop(peer.child)
        self.peers.clear()


def printed(command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def machine():
    gpu = printed(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines()
    return f"{gpu[0].replace(', ', ', driver ') if gpu else 'no GPU'}, {os.cpu_count()} cores, Python {platform.python_version()}"


def headline(report):
    """A few words of a report for the progress line."""
    if "rows" in report:
        return ", ".join(f"{row['way']} {row['samples_per_second']:.1f}/s" for row in report["rows"])
    if "planted" in report:
        return f"named {report['culprit']}{'' if report['found'] else ', which is wrong'}"
    if "samples_per_second" in report and "peer" in report:
        return f"{report['samples_per_second']:.1f}/s"
    if "codes_per_s" in report and "batch" in report:
        return f"{report.get('type', '')} b{report['batch']} {report['codes_per_s']:.0f} codes/s".strip()
    if "forward_backward_ms" in report:
        return f"{report['peer'].split()[-1]} {report['forward_backward_ms']:.2f} ms"
    if "median_ms" in report:
        return f"{report.get('peer', '').split(' ')[-1]} {report['median_ms']:.2f} ms".strip()
    if "runs" in report:
        return ", ".join(f"{run['name']} {run['median_ms']:.2f} ms" for run in report["runs"])
    if "attention_us" in report:
        return ", ".join(f"{name} {us:.0f} us" for name, us in list(report["attention_us"].items())[-4:])
    if report.get("measured") == "ready":
        return f"ready in {report['ready_s']:.2f} s"
    if "verdict" in report:
        return f"{report['verdict']} {report['row']}"
    return ""


def kept_lines(out):
    """All lines of earlier calls. A last line that was cut off is removed, so that the next one begins a line of its own."""
    found = []
    for file in sorted(set(plan.FILES.values())):
        path = out / f"{file}.jsonl"
        if not path.exists():
            continue
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            path.write_bytes(whole)
        found += json_lines(whole.decode())
    return found


def summary(out, rows, runs):
    lines = kept_lines(out)
    count = collections.Counter(f"{line['row']}/{line['side']}" for line in lines)
    took = collections.defaultdict(list)
    for line in lines:
        took[f"{line['row']}/{line['side']}"].append(line["seconds"])
    print(f"\n{'part':<10}{'row':<34}{'n':>3}   seconds per run")
    for row in rows:
        each = f"{statistics.median(took[row.key]):8.1f}" if took[row.key] else f"{'':8}"
        print(f"{row.part:<10}{row.key:<34}{count[row.key]:>3}   {each}{'' if count[row.key] >= runs else '   TOO FEW'}")
    files = sorted(out.iterdir())
    print(f"{sum(count[row.key] >= runs for row in rows)} of {len(rows)} rows have {runs} runs or more; {len(files)} files:", end=" ")
    print(", ".join(f"{file.name} {file.stat().st_size / 1e6:.2f} MB" for file in files))
    return all(count[row.key] >= runs for row in rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--budget", type=float, default=570.0)
    parser.add_argument("--only", default=",".join(plan.FILES))
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--summary", action="store_true")
    a = parser.parse_args()
    a.runs = a.runs or (2 if a.cpu else 5)
    parts = a.only.split(",")
    if unknown := set(parts) - set(plan.FILES):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; parts are {' '.join(plan.FILES)}")
    a.out.mkdir(parents=True, exist_ok=True)
    rows = [row for row in (plan.on_cpu() if a.cpu else plan.on_gpu()) if row.part in parts]
    if a.summary:
        sys.exit(0 if summary(a.out, rows, a.runs) else 1)
    lines = kept_lines(a.out)
    if any(line.get("quick", False) != a.cpu for line in lines):
        sys.exit(f"{a.out} has runs {'of a GPU' if a.cpu else 'with --cpu'}: use another folder")
    held = {(f"{line['row']}/{line['side']}", line["run"]) for line in lines}
    # Ended from outside: the children end with this program, and what was measured is on disk.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    measuring = Measuring(a)
    measuring.say(f"{measuring.machine}; {measuring.version}, commit {measuring.commit}; {len(held)} runs are here already")
    for part in plan.FILES:
        of_part = [row for row in rows if row.part == part and any((row.key, run) not in held for run in range(1, a.runs + 1))]
        if of_part:
            try:
                measuring.prepare({part})
            except RunFailed as error:
                measuring.say(f"FAILED to prepare {part}: {error}")
                continue
            measuring.part(part, of_part, held)
    sys.exit(0 if summary(a.out, rows, a.runs) else 1)


if __name__ == "__main__":
    main()
