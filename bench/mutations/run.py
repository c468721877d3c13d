#!/usr/bin/env python3
"""Plants one fault at a time and looks which tests catch it.

    bench/mutations/run.py [--tree FOLDER] [--out FILE] [WORDS ...]

The faults are in faults.toml; WORDS takes those whose name has one of them in it. Every fault is planted in FOLDER, a checkout
without changes (default: a clone in target/mutations/tree, with a target folder of its own), where the tests named for it are
built and run, and is taken out again. First the same tests must pass without a fault. Writes a table to FILE (default:
bench/results/mutations_DATE.md). Exits 1 where a fault is not caught.
"""

import argparse
import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# A test that hangs is caught too.
LIMIT = 900
BUILD_LIMIT = 7200


def git(tree, *arguments):
    return subprocess.run(["git", "-C", tree, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def scratch():
    """A clone of the last commit."""
    tree = ROOT / "target" / "mutations" / "tree"
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(tree))
    git(tree, "fetch", "--quiet", "origin")
    git(tree, "checkout", "--quiet", "--detach", git(ROOT, "rev-parse", "HEAD"))
    return tree


def cargo(tree, arguments, limit):
    """Exit code and output of `cargo test`; none and what there was where it took too long."""
    command = ["cargo", "test", "--locked", *arguments]
    environment = {**os.environ, "CARGO_TERM_COLOR": "never"}
    # In a group of its own: what cargo started must not outlive it.
    child = subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    )
    try:
        output, _ = child.communicate(timeout=limit)
        return child.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return None, child.communicate()[0]


def split(test):
    """What cargo is given, and the filters behind `--`."""
    words = test.split()
    options = []
    while words and (words[0].startswith("-") or (options and options[-1] in ("-p", "--test"))):
        options.append(words.pop(0))
    return options, words


def tested(tree, test):
    """Which tests failed, the seconds they took, and what is wrong with the fault itself."""
    options, filters = split(test)
    code, output = cargo(tree, [*options, "--no-run"], BUILD_LIMIT)
    if code != 0:
        return [], 0.0, "does not build:\n" + output[-2000:]
    began = time.monotonic()
    # All of them: which tests see a fault is part of the result.
    code, output = cargo(tree, [*options, "--no-fail-fast", "--", *filters], LIMIT)
    seconds = time.monotonic() - began
    if code is None:
        return [f"no end within {LIMIT} s"], seconds, None
    failed = re.findall(r"^test (\S+) \.\.\. FAILED$", output, re.MULTILINE)
    if code != 0 and not failed:
        # A process that was killed or aborted names no test.
        failed = ["the test process ended: " + output.strip().splitlines()[-1]]
    ran = sum(int(n) for n in re.findall(r"^running (\d+) tests?$", output, re.MULTILINE))
    return failed, seconds, None if ran else "names no test that runs"


def plant(tree, fault):
    """The file's text before, and with the fault."""
    path = tree / fault["file"]
    text = path.read_text()
    count = text.count(fault["find"])
    if count != 1:
        sys.exit(f"{fault['name']}: `{fault['find']}` stands {count} times in {fault['file']}; put the table right")
    return path, text, text.replace(fault["find"], fault["replace"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    faults = tomllib.loads((HERE / "faults.toml").read_text())["fault"]
    faults = [f for f in faults if not given.words or any(word in f["name"] for word in given.words)]
    tree = given.tree.resolve() if given.tree else scratch()
    if git(tree, "status", "--porcelain", "--untracked-files=no"):
        sys.exit(f"{tree} has changes: faults are planted into a clean checkout")
    planted = [plant(tree, fault) for fault in faults]
    tests = list(dict.fromkeys(fault["test"] for fault in faults))
    for test in tests:
        failed, seconds, wrong = tested(tree, test)
        if failed or wrong:
            sys.exit(f"without a fault `{test}` fails already: {wrong or ', '.join(failed)}")
        print(f"without a fault: {test}: passes in {seconds:.0f} s", flush=True)
    rows, missed = [], 0
    for fault, (path, text, faulty) in zip(faults, planted):
        began = time.monotonic()
        try:
            path.write_text(faulty)
            failed, seconds, wrong = tested(tree, fault["test"])
        finally:
            path.write_text(text)
        if wrong:
            sys.exit(f"{fault['name']}: {wrong}")
        missed += not failed
        caught = ", ".join(f"`{name}`" for name in failed[:3]) or "**not caught**"
        if len(failed) > 3:
            caught += f" and {len(failed) - 3} more"
        rows.append(f"| {fault['name']} | `{fault['file']}` | {caught} | {seconds:.0f} | {time.monotonic() - began:.0f} |")
        print(rows[-1], flush=True)
    date = datetime.datetime.now(datetime.timezone.utc)
    out = given.out or ROOT / "bench" / "results" / f"mutations_{date:%Y%m%d}.md"
    head = [
        f"# Planted faults: {len(rows) - missed} of {len(rows)} caught",
        "",
        f"{date:%Y-%m-%d}, commit {git(tree, 'rev-parse', '--short', 'HEAD')}, {os.cpu_count()} cores, debug build, "
        "`bench/mutations/run.py`. Seconds: of the tests, and with their build.",
        "",
        "| fault | file | caught by | s | s in all |",
        "|---|---|---|---|---|",
    ]
    out.write_text("\n".join(head + rows) + "\n")
    print(f"{len(rows) - missed} of {len(rows)} caught: {out}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
