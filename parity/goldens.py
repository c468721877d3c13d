#!/usr/bin/env python3
"""Writes a golden folder: inputs, weights and outputs of the real XTTS code (`coqui-tts`) at small sizes.

    python parity/goldens.py --out DIR [--seed 12] [--preset small]

All weights, texts, codes, mels and clips are random numbers made here. DIR must not exist yet.
"""

import argparse
import shutil
from pathlib import Path

import torch

from reference import checkpoint, decode, dvae, gpt, hifigan, mel, readme, speaker
from reference.draw import Draw
from sizes import PRESETS


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", required=True, type=Path)
    options.add_argument("--seed", type=int, default=12)
    options.add_argument("--preset", choices=PRESETS, default="small")
    asked = options.parse_args()
    if asked.out.exists():
        options.error(f"{asked.out} is there already")
    out = asked.out.with_name(asked.out.name + ".partial")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    torch.set_num_threads(1)  # the same sums in the same order
    torch.manual_seed(asked.seed)

    draw, sizes = Draw(asked.seed), PRESETS[asked.preset]
    clips, mel_stats = mel.write(out, draw, sizes)
    model, config, inputs, losses = gpt.write(out, draw, sizes)
    told = {"gpt": losses}
    summary = decode.write(out, draw, sizes, model, config, inputs)
    told["decode"] = [{k: v for k, v in run.items() if k != "codes"} for run in summary["runs"]]
    scalars = dvae.write(out, draw, sizes)
    told["dvae"] = {k: v for k, v in scalars.items() if k != "train_pass_grad_l2_norms"}
    wave = hifigan.write(out, draw, sizes)
    told["hifigan"] = {k: wave[k] for k in ("output_samples", "wave_std", "wave_saturated_fraction")}
    told["speaker"] = speaker.write(out, asked.seed, clips)
    told["checkpoint"] = checkpoint.write(out, draw, sizes, asked.seed, mel_stats)
    readme.write(out, asked.seed, asked.preset, told)
    out.rename(asked.out)
    for part, said in told.items():
        print(part, said)


if __name__ == "__main__":
    main()
