"""Writes the README of a golden folder: purpose, origin and content of each file."""

import importlib.metadata
import json
import platform
from pathlib import Path

import numpy as np
from safetensors import safe_open

PACKAGES = (
    "coqui-tts", "coqui-tts-trainer", "torch", "torchaudio", "transformers", "tokenizers", "safetensors", "numpy",
    "soundfile",
)

TEXT = """# Goldens: what the real XTTS code computes (seed {seed}, preset {preset})

Made by `parity/goldens.py --seed {seed} --preset {preset}` with {versions}; Python {python}; CPU, float32, one thread.
Checked by `parity/check.py`, which computes everything again from the weights and inputs here.

Licence: nothing here was taken from anywhere. Weights, texts, codes and mels are random numbers, the clips are synthesised
(`parity/reference/clip.py`); they are under the licence of this project. No released model and no recording is involved.

Tests read every size from these files, so a folder of the same form with other sizes runs unchanged: set `MYXTTS_GOLDENS`.

Agreement to ask for, given that these numbers are float32 themselves: log-mels and speaker features 5e-4, logits 1e-4,
reconstruction and waveform 1e-4 (all absolute), losses 1e-5 of their value, gradients 1e-4 of each tensor's L2 norm, codes
and token ids exactly, speaker embeddings by a cosine above 0.9999.

## mel/
One folder per clip (names in `meta.json`): 22,050 Hz 16-bit WAV; `cond_mel_raw`, `dvae_mel_raw` are ln(max(mel, 1e-5)) with
FFTs of 2048 and 1024 points, hop 256, a centred Hann window of 1024, 80 HTK bands to 8 kHz with Slaney's area norm; without
`_raw` divided by `mel_stats` per band. `wav16k` is what torchaudio's resampler gives; `speaker_features_raw` is
ln(mel + 1e-6) of its pre-emphasised (0.97) 16 kHz wave, FFT 512, Hamming 400, hop 160, 64 HTK bands; `speaker_features`
the same after an instance norm over time. The last 7 % of each clip are digital silence.

## gpt/, gpt_grads/
Train mode with every dropout at 0, `cond_idxs` and `cond_lens` None. Names as in a release. `audio_codes` beyond a row's end
are random on purpose. The second clip is a whole number of code strides long. `derived` has the rows, targets and the key
mask that the forward builds from `inputs`; they were written out separately and found equal. `outputs` has every stage.
`grads`: of 0.01 text loss + 1.0 mel loss, for every parameter.
This run: {gpt}

## decode/
Eval mode, conditioning from the first row of `cond_mels`; two texts, each greedy and with the best choice after a repetition
penalty of 5 (the seen set starts as {{1, START}}). n codes, n raw logits (before the penalty), n latents; a final STOP is a
code like any other. Texts were drawn until no choice was close, see the margins.
This run: {decode}

## dvae/
`io`: mels of a length divisible by 4 and of one that is not, what the encoder gives, codes, what comes back. `scalars`: the
losses. `after_train_pass`: codebook after one training pass (decay 0.99), three gradients; norms of all in `scalars`.
This run: {dvae}

## hifigan/
`latents` stretched by 4, then by 24000/22050, then made a wave under `speaker_embedding`; the stages between.
This run: {hifigan}

## speaker/
Full size; weights by rule from the seed in `fill_check.json` and each tensor's full name (`parity/reference/speaker.py`,
`rule`); `torch_spec.*` keep their own values, `num_batches_tracked` is 0. Input: `mel/<clip>/wav16k.npy`.
This run: {speaker}

## checkpoint/
A tiny complete model, once as a release (`model.pth`), once as a trainer's file with optimizer state and a pickled config
object, and a fragment beside a config object under its old module path. `expected.safetensors` is what an importer must
find. `config.json` holds `Infinity`, as Python writes it. Sizes of the vocoder and the speaker encoder follow from shapes.
This run: {checkpoint}

## Files
| file | bytes | content |
|---|---|---|
{files}
"""


def content(path):
    if path.suffix == ".npy":
        array = np.load(path, mmap_mode="r")
        return f"{array.dtype} {list(array.shape)}"
    if path.suffix != ".safetensors":
        return ""
    with safe_open(path, "np") as file:
        names = list(file.keys())
        if len(names) > 20:
            return f"{len(names)} tensors"
        tensors = {name: file.get_tensor(name) for name in names}
    return "; ".join(f"`{name}` {t.dtype} {list(t.shape)}" for name, t in tensors.items())


def write(out, seed, preset, told):
    out = Path(out)
    paths = sorted(p for p in out.rglob("*") if p.is_file() and p.name != "README.md")
    files = "\n".join(f"| `{p.relative_to(out)}` | {p.stat().st_size} | {content(p)} |" for p in paths)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    text = TEXT.format(
        seed=seed, preset=preset, versions=versions, python=platform.python_version(), files=files,
        **{part: json.dumps(said) for part, said in told.items()},
    )
    (out / "README.md").write_text(text, encoding="utf-8")
