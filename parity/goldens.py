#!/usr/bin/env python3
"""Writes a golden folder: inputs, weights and outputs of the real XTTS code (`coqui-tts`) at small sizes.

    python parity/goldens.py --out DIR [--seed 12] [--preset small]

All weights, texts, codes, mels and clips are generated at random here. DIR must not exist yet.
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
    args = options.parse_args()
    if args.out.exists():
        options.error(f"{args.out} already exists")
    out = args.out.with_name(args.out.name + ".partial")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    torch.set_num_threads(1)  # same order of summation
    torch.manual_seed(args.seed)

    draw, sizes = Draw(args.seed), PRESETS[args.preset]
    clips, mel_stats = mel.write(out, draw, sizes)
    model, config, inputs, losses = gpt.write(out, draw, sizes)
    summaries = {"gpt": losses}
    summary = decode.write(out, draw, sizes, model, config, inputs)
    summaries["decode"] = [{k: v for k, v in run.items() if k != "codes"} for run in summary["runs"]]
    scalars = dvae.write(out, draw, sizes)
    summaries["dvae"] = {k: v for k, v in scalars.items() if k != "train_pass_grad_l2_norms"}
    wave = hifigan.write(out, draw, sizes)
    summaries["hifigan"] = {k: wave[k] for k in ("output_samples", "wave_std", "wave_saturated_fraction")}
    summaries["speaker"] = speaker.write(out, args.seed, clips)
    summaries["checkpoint"] = checkpoint.write(out, draw, sizes, args.seed, mel_stats)
    readme.write(out, args.seed, args.preset, summaries)
    out.rename(args.out)
    for part, said in summaries.items():
        print(part, said)


if __name__ == "__main__":
    main()
