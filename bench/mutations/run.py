#!/usr/bin/env python3
"""Plants one fault at a time into the sources and checks which tests fail.

    bench/mutations/run.py [--tree FOLDER] [--out FILE] [WORD ...]
    bench/mutations/run.py --check

The faults are in faults.toml; WORDs select those with one of the words in their names. Every fault is planted into FOLDER, a
checkout without changes (default: a clone of HEAD in target/mutations/tree, with its own target folder). The tests listed
for it are built and run there, and the fault is removed. Before that, the same tests must pass without a fault. Writes a
table to FILE (default: bench/results/mutations_DATE.md). Exits with 1 if a fault is not caught.

--check builds nothing: it verifies that every fault applies to the current sources, in which its text must occur exactly once,
and that the sources contain tests with the listed names. Needs Python 3.11.
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
# Seconds. Tests that take longer count as failed: a fault may make them hang.
LIMIT = 900
BUILD_LIMIT = 7200


def git(tree, *arguments):
    return subprocess.run(["git", "-C", tree, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def clone():
    """Returns a clone of the last commit, created or updated."""
    tree = ROOT / "target" / "mutations" / "tree"
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(tree))
    git(tree, "fetch", "--quiet", "origin")
    git(tree, "checkout", "--quiet", "--detach", git(ROOT, "rev-parse", "HEAD"))
    return tree


def cargo(tree, arguments, limit):
    """Returns exit code and output of `cargo test`; the code is None if it took longer than `limit` seconds."""
    command = ["cargo", "test", "--locked", *arguments]
    environment = {**os.environ, "CARGO_TERM_COLOR": "never"}
    # In its own process group, so that the processes cargo started can be killed with it.
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
    """Splits the value of `test` into options of cargo and test filters."""
    words = test.split()
    options = []
    while words and (words[0].startswith("-") or (options and options[-1] in ("-p", "--test"))):
        options.append(words.pop(0))
    return options, words


def tested(tree, test):
    """Builds and runs tests. Returns the failed ones, their seconds, and an error if they could not be run at all."""
    options, filters = split(test)
    code, output = cargo(tree, [*options, "--no-run"], BUILD_LIMIT)
    if code != 0:
        return [], 0.0, "does not build:\n" + output[-2000:]
    began = time.monotonic()
    # All of them: the result lists every test that catches a fault.
    code, output = cargo(tree, [*options, "--no-fail-fast", "--", *filters], LIMIT)
    seconds = time.monotonic() - began
    if code is None:
        return [f"not finished within {LIMIT} s"], seconds, None
    failed = re.findall(r"^test (\S+) \.\.\. FAILED$", output, re.MULTILINE)
    if code != 0 and not failed:
        # If the test process was killed or aborted, its output names no failed test.
        failed = ["the test process died: " + output.strip().splitlines()[-1]]
    ran = sum(int(n) for n in re.findall(r"^running (\d+) tests?$", output, re.MULTILINE))
    return failed, seconds, None if ran else f"`{test}` selects no test"


def problem(tree, fault):
    """Returns why a fault cannot be planted, or None."""
    path = tree / fault["file"]
    if not path.is_file():
        return f"there is no {fault['file']}"
    if fault["find"] == fault["replace"]:
        return "`find` and `replace` are equal"
    count = path.read_text().count(fault["find"])
    return None if count == 1 else f"`{fault['find']}` occurs {count} times in {fault['file']}, expected once"


def plant(tree, fault):
    """Returns the path of the file, its text, and its text with the fault."""
    path = tree / fault["file"]
    text = path.read_text()
    return path, text, text.replace(fault["find"], fault["replace"])


def test_names(root):
    """Returns the paths of all tests below a source folder, such as `module::test`, read from the sources."""
    names = []
    for path in sorted(root.rglob("*.rs")):
        modules = [part for part in path.relative_to(root).with_suffix("").parts if part not in ("mod", "main", "lib")]
        text = path.read_text()
        for found in re.finditer(r"#\[test\]\s*(?:(?:#\[.*\]|//.*)\s*)*fn\s+(\w+)", text):
            names.append("::".join([*modules, found[1]]))
            names.append("::".join([*modules, "tests", found[1]]))
    return names


def unknown_tests(tree, test):
    """Returns the filters that match no test of the sources; all of them if the options select no sources."""
    options, filters = split(test)
    package = options[options.index("-p") + 1] if "-p" in options else "*"
    package = "cli" if package == "myxtts" else package.removeprefix("myxtts-")
    below = f"tests/{options[options.index('--test') + 1]}" if "--test" in options else "src"
    names = [name for root in tree.glob(f"crates/{package}/{below}") for name in test_names(root)]
    if not filters:
        return [] if names else [test]
    return [part for part in filters if not any(part in name for name in names)]


def check(tree, faults):
    """Returns what is wrong with the table of faults, one line each."""
    wrong = []
    for fault in faults:
        found = problem(tree, fault)
        if found:
            wrong.append(f"{fault['name']}: {found}")
        wrong += [f"{fault['name']}: no test matches `{part}` in `{fault['test']}`" for part in unknown_tests(tree, fault["test"])]
    names = [fault["name"] for fault in faults]
    return wrong + [f"{name}: the name occurs {names.count(name)} times" for name in sorted(set(names)) if names.count(name) > 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="verify that all faults apply to these sources; build nothing")
    parser.add_argument("--tree", type=pathlib.Path, metavar="FOLDER", help="checkout into which faults are planted")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="where to write the table")
    parser.add_argument("words", nargs="*", metavar="WORD", help="select faults with one of the words in their names")
    given = parser.parse_args()
    faults = tomllib.loads((HERE / "faults.toml").read_text())["fault"]
    faults = [f for f in faults if not given.words or any(word in f["name"] for word in given.words)]
    if given.check:
        wrong = check(given.tree.resolve() if given.tree else ROOT, faults)
        print("\n".join(wrong) or f"all {len(faults)} faults apply")
        return 1 if wrong else 0
    tree = given.tree.resolve() if given.tree else clone()
    if git(tree, "status", "--porcelain", "--untracked-files=no"):
        sys.exit(f"{tree} has changes: faults are planted only into a clean checkout")
    wrong = check(tree, faults)
    if wrong:
        sys.exit("\n".join([*wrong, "correct bench/mutations/faults.toml"]))
    planted = [plant(tree, fault) for fault in faults]
    tests = list(dict.fromkeys(fault["test"] for fault in faults))
    for test in tests:
        failed, seconds, wrong = tested(tree, test)
        if failed or wrong:
            sys.exit(f"without a fault, `{test}` already fails: {wrong or ', '.join(failed)}")
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
        "`bench/mutations/run.py`. Seconds: of the tests alone, and with their build.",
        "",
        "| fault | file | caught by | s | s with build |",
        "|---|---|---|---|---|",
    ]
    out.write_text("\n".join(head + rows) + "\n")
    print(f"{len(rows) - missed} of {len(rows)} caught: {out}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
