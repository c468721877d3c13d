"""Keeps a PyTorch script open between runs, so that importing PyTorch does not take most of a machine's time.

usage: peer.py SCRIPT

Reads one JSON list of arguments per line from stdin, runs SCRIPT with them as if it had just been started, and prints one JSON line: the
output and the error, if there was one. Each run creates its networks, loaders and warm-up anew. Modules stay imported, and so do compiled
kernels. What a script changes in PyTorch's own settings it must set in every run, since it stays for the next one of the same script."""

import contextlib
import gc
import io
import json
import os
import runpy
import sys
import traceback

import torch


def run(script, arguments):
    sys.argv = [script, *arguments]
    printed, error = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                error = f"exit code {end.code}"
        except BaseException:
            error = traceback.format_exc()[-3000:]
    return {"output": printed.getvalue(), "error": error}


def clean():
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def main():
    script = sys.argv[1]
    # What libraries print to the standard output goes to the error output, since only answers may be read from there.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answer = run(script, json.loads(line))
        clean()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
