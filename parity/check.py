#!/usr/bin/env python3
"""Recomputes everything in a golden folder with the real XTTS code and compares.

    python parity/check.py FOLDER [--tolerance 2e-6] [--part gpt ...]

Weights and inputs are those of the folder; outputs, losses, gradients and codes must be reproduced. A folder from another
author therefore tests whether the calls in `reference/` are right, and a folder created here whether it is intact.
Exits with 1 if anything differs.
"""

import argparse
import sys

import torch

from reference import checkpoint, decode, dvae, gpt, hifigan, mel, speaker

# The logarithm of a nearly silent bin amplifies the rounding of the Fourier transform, which differs between CPUs.
FRONT_END_TOLERANCE = 2e-4
PARTS = dict(mel=mel, gpt=gpt, decode=decode, dvae=dvae, hifigan=hifigan, speaker=speaker, checkpoint=checkpoint)


class Compare:
    """Compares floats within `tolerance` of the tensor's largest value, everything else exactly."""

    def __init__(self, tolerance):
        self.tolerance, self.worst, self.count, self.wrong = tolerance, (0.0, "nothing"), 0, []

    def tensor(self, name, found, said):
        self.count += 1
        if found.shape != said.shape or found.dtype != said.dtype:
            self.wrong.append(f"{name}: {list(found.shape)} {found.dtype}, the file has {list(said.shape)} {said.dtype}")
        elif not found.is_floating_point():
            if not torch.equal(found, said):
                self.wrong.append(f"{name}: differs")
        elif said.numel():
            found, said = found.detach().double(), said.double()
            distance = ((found - said).abs().max() / said.abs().max().clamp(min=1e-12)).item()
            self.worst = max(self.worst, (distance, name))
            if not distance <= self.tolerance:
                self.wrong.append(f"{name}: {distance:.2e} off, relative to its largest value")

    def tensors(self, name, found, said):
        for key in sorted(found.keys() ^ said.keys()):
            self.wrong.append(f"{name}/{key}: {'not in the file' if key in found else 'not computed by the reference'}")
        for key in sorted(found.keys() & said.keys()):
            self.tensor(f"{name}/{key}", found[key], said[key])

    def number(self, name, found, said):
        self.tensor(name, torch.tensor(float(found), dtype=torch.float64), torch.tensor(float(said), dtype=torch.float64))

    def equal(self, name, found, said):
        self.count += 1
        if found != said:
            self.wrong.append(f"{name}: {str(found)[:100]}, the file has {str(said)[:100]}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder")
    options.add_argument("--tolerance", type=float, default=2e-6)
    options.add_argument("--part", action="append", choices=PARTS)
    args = options.parse_args()
    torch.set_num_threads(1)  # same order of summation
    wrong = 0
    for name in args.part or PARTS:
        compare = Compare(max(args.tolerance, FRONT_END_TOLERANCE if name in ("mel", "speaker") else 0.0))
        PARTS[name].check(args.folder, compare)
        worst, where = compare.worst
        print(f"{name}: {compare.count} compared, {len(compare.wrong)} wrong; largest difference {worst:.1e} at {where}")
        for line in compare.wrong[:20]:
            print(f"  {line}")
        wrong += len(compare.wrong)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
