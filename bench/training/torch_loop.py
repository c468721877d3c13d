"""Peer of `myxtts bench --stage gpt`: a fine-tuning loop in PyTorch that works like Coqui's trainer.

usage: torch_loop.py FOLDER [--batch 32] [--workers 8] [--steps 60] [--warm 10] [--precision bf16|fp32]
                     [--layers 30 --width 1024 --heads 16] [--json FILE] [--device cuda|cpu]

FOLDER is what bench/training/clips.py writes (metadata.csv and wavs/), so both sides read the same files. In every step:

1. DataLoader workers open the WAV files: each clip twice, once as the target and once for a random conditioning crop of
   3 to 6 s. Clips of a batch are chosen at random and padded to the longest of them.
2. The batch is copied to the GPU (pageable memory, no overlap).
3. The GPU computes both mel spectrograms and, with a frozen encoder and codebook of the DVAE's size, the audio codes.
4. A GPT-2 of `transformers` takes conditioning, text and codes; cross entropy of both heads; backward; AdamW.
5. The host waits until the step has finished.

Nothing is cached between steps, batches are not sorted by length, and the step is not compiled, as is usual for such a loop.
Weights are random; they do not change how long a step takes. The first ten steps (--warm) are not timed.

Prints one line: samples per second, step time (median, 99th percentile, standard deviation over mean), the share of the time
from the beginning to the end of each step on the GPU by device events, the share spent waiting for batches, and peak memory.
`--json FILE` appends the same with every timed step; `--json -` prints it instead. Needs torch, transformers and numpy."""

import argparse
import json
import os
import random
import statistics
import time
import wave

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
import transformers
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2Model

RATE = 22_050
SHORTEST_CROP, LONGEST_CROP = 3 * RATE, 6 * RATE
TEXT_TOKENS, AUDIO_TOKENS, CODES = 6_681, 1_026, 1_024
LONGEST_TEXT, LONGEST_AUDIO, LATENTS = 404, 608, 32
MELS, HIGHEST = 80, 8_000


class Clips(Dataset):
    """Endless random clips: token ids, waveform, and a padded conditioning crop of the same recording."""

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "metadata.csv"), encoding="utf-8") as file:
            self.rows = [line.rstrip("\n").split("|") for line in file if line.strip()]

    def __len__(self):
        return 1 << 30

    def samples(self, name):
        with wave.open(os.path.join(self.folder, "wavs", f"{name}.wav")) as file:
            data = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        return torch.from_numpy(data.astype(np.float32) / 32_768)

    def __getitem__(self, _):
        name, *_, spoken = random.choice(self.rows)
        target, reference = self.samples(name), self.samples(name)
        length = random.randint(SHORTEST_CROP, LONGEST_CROP)
        if length > len(reference):
            length = len(reference) // 2
        start = random.randint(0, len(reference) - length)
        crop = F.pad(reference[start : start + length], (0, LONGEST_CROP - length))
        # A byte is about a token; its value does not matter here.
        ids = torch.tensor([3 + byte % 250 for byte in spoken.encode()[:200]])
        return ids, target, crop


def collate(items):
    ids, targets, crops = zip(*items)
    pad = lambda rows: nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    return pad(ids), pad(targets), torch.stack(crops), sum(map(len, targets)) / RATE


class Codes(nn.Module):
    """Mel to audio codes, with the cost of XTTS's DVAE: two strided convolutions, three residual blocks, nearest vector."""

    def __init__(self):
        super().__init__()
        layers = [nn.Conv1d(80, 512, 3, 2, 1), nn.ReLU(), nn.Conv1d(512, 1024, 3, 2, 1), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Conv1d(1024, 1024, 3, padding=1), nn.ReLU(), nn.Conv1d(1024, 1024, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv1d(1024, 1024, 1)]
        self.encoder = nn.Sequential(*layers, nn.Conv1d(1024, 512, 1))
        self.register_buffer("book", torch.randn(CODES, 512))

    @torch.no_grad()
    def forward(self, mel):
        found = self.encoder(mel).transpose(1, 2)
        distance = found.square().sum(-1, keepdim=True) - 2 * found @ self.book.t() + self.book.square().sum(-1)
        return distance.argmin(-1)[:, : LONGEST_AUDIO - 8]


class NoPositions(nn.Module):
    """Replaces GPT-2's position embeddings by zeros: XTTS adds its own."""

    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, positions):
        return torch.zeros(*positions.shape, self.width, device=positions.device)


class Gpt(nn.Module):
    """Conditioning latents, text and codes through one GPT-2, with a head for text and one for codes."""

    def __init__(self, layers, width, heads):
        super().__init__()
        config = GPT2Config(vocab_size=256, n_positions=1_082, n_embd=width, n_layer=layers, n_head=heads, use_cache=False)
        self.body = GPT2Model(config)
        del self.body.wte
        self.body.wpe = NoPositions(width)
        self.text, self.text_at = nn.Embedding(TEXT_TOKENS, width), nn.Embedding(LONGEST_TEXT, width)
        self.audio, self.audio_at = nn.Embedding(AUDIO_TOKENS, width), nn.Embedding(LONGEST_AUDIO, width)
        self.norm = nn.LayerNorm(width)
        self.text_head, self.audio_head = nn.Linear(width, TEXT_TOKENS), nn.Linear(width, AUDIO_TOKENS)
        self.mel_in = nn.Linear(80, width)
        self.latents = nn.Parameter(torch.randn(LATENTS, width) * 0.02)
        self.pool = nn.MultiheadAttention(width, min(8, heads), batch_first=True)

    def forward(self, ids, codes, mel):
        frames = self.mel_in(mel.transpose(1, 2))
        conditioning = self.pool(self.latents.expand(len(ids), -1, -1), frames, frames, need_weights=False)[0]
        at = lambda rows: torch.arange(rows.shape[1], device=rows.device)
        text, audio = self.text(ids) + self.text_at(at(ids)), self.audio(codes) + self.audio_at(at(codes))
        states = self.norm(self.body(inputs_embeds=torch.cat([conditioning, text, audio], 1)).last_hidden_state)
        split = LATENTS + ids.shape[1]
        entropy = lambda head, rows, right: F.cross_entropy(head(rows[:, :-1]).float().transpose(1, 2), right[:, 1:])
        of_text, of_codes = states[:, LATENTS:split], states[:, split:]
        return 0.01 * entropy(self.text_head, of_text, ids) + entropy(self.audio_head, of_codes, codes)


class DeviceTimer:
    """Measures seconds between two points of the device's work; wall time on a CPU."""

    def __init__(self, device):
        self.gpu = device == "cuda"

    def mark(self):
        if not self.gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self):
        if self.gpu:
            torch.cuda.synchronize()

    def between(self, first, last):
        return first.elapsed_time(last) / 1e3 if self.gpu else last - first


def filters(fft):
    """Triangles on the mel scale (HTK), each with the area of Slaney's, as torchaudio's MelSpectrogram has them: [fft / 2 + 1, MELS]."""
    mel = lambda hertz: 2_595 * np.log10(1 + hertz / 700)
    corners = 700 * (10 ** (np.linspace(0, mel(HIGHEST), MELS + 2) / 2_595) - 1)
    at = np.linspace(0, RATE // 2, fft // 2 + 1)[:, None]
    rising = (at - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - at) / (corners[2:] - corners[1:-1])
    rows = np.maximum(0, np.minimum(rising, falling)) * 2 / (corners[2:] - corners[:-2])
    return torch.from_numpy(rows.astype(np.float32))


def log_mel(device, fft, window):
    """Samples [batch, time] to mels [batch, MELS, frames]."""
    bank, hann = filters(fft).to(device), torch.hann_window(window, device=device)

    def compute(samples):
        spectrum = torch.stft(samples, fft, 256, window, hann, center=True, pad_mode="reflect", return_complex=True)
        mel = spectrum.abs().square().transpose(1, 2) @ bank
        return mel.transpose(1, 2).clamp(min=1e-5).log()

    return compute


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warm", type=int, default=10)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    a = parser.parse_args()
    if a.steps <= a.warm + 1:
        parser.error(f"--steps must be more than {a.warm + 1}: the first {a.warm} are not timed")

    # Matrix products in full f32 outside autocast, as in the trainer.
    torch.backends.cuda.matmul.allow_tf32 = False
    target_mel, reference_mel = log_mel(a.device, 1_024, 1_024), log_mel(a.device, 2_048, 1_024)
    dvae, gpt = Codes().to(a.device), Gpt(a.layers, a.width, a.heads).to(a.device)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=5e-6, betas=(0.9, 0.96), weight_decay=0.01)
    context = "fork" if a.workers else None  # a worker of another kind could not import what peer.py runs
    batches = iter(DataLoader(Clips(a.folder), a.batch, num_workers=a.workers, collate_fn=collate, multiprocessing_context=context))
    timer, timed = DeviceTimer(a.device), []
    for step in range(a.steps):
        begin = time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter() - begin
        ids, target, crop = (part.to(a.device) for part in batch[:3])
        first = timer.mark()
        with torch.no_grad():
            codes, reference = dvae(target_mel(target)), reference_mel(crop)
        with torch.autocast(a.device, torch.bfloat16, enabled=a.precision == "bf16"):
            loss = gpt(ids, codes, reference)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        last = timer.mark()
        timer.wait()
        seconds = time.perf_counter() - begin
        if step >= a.warm:
            timed.append({"seconds": seconds, "waited": waited, "on_device": timer.between(first, last), "audio": batch[3]})

    total = lambda name: sum(one[name] for one in timed)
    wall, steps = total("seconds"), [one["seconds"] for one in timed]
    report = {
        "peer": f"torch {torch.__version__} training loop", "transformers": transformers.__version__, "date": time.strftime("%Y-%m-%d"), "layers": a.layers, "width": a.width,
        "batch": a.batch, "workers": a.workers, "precision": a.precision, "samples_per_second": a.batch * len(timed) / wall,
        "audio_per_second": total("audio") / wall, "step_ms": statistics.median(steps) * 1e3,
        "step_p99_ms": float(np.percentile(steps, 99)) * 1e3, "variation": statistics.pstdev(steps) / statistics.mean(steps),
        "on_device": total("on_device") / wall, "wait_share": total("waited") / wall,
        "peak_bytes": torch.cuda.max_memory_allocated() if a.device == "cuda" else None,
    }
    if a.json == "-":
        print(json.dumps({**report, "raw": timed}))
        return
    if a.json:
        with open(a.json, "a", encoding="utf-8") as file:
            file.write(json.dumps({**report, "raw": timed}) + "\n")
    memory = "" if report["peak_bytes"] is None else f", memory {report['peak_bytes'] / 2**30:.1f} GiB"
    print(
        f"torch loop {a.layers}x{a.width} b{a.batch} workers {a.workers} {a.precision}: {report['samples_per_second']:.1f} samples/s, "
        f"{report['audio_per_second']:.0f} s of audio/s, step median {report['step_ms']:.1f} ms, p99 {report['step_p99_ms']:.1f}, "
        f"variation {report['variation'] * 100:.0f} %, busy {report['on_device'] * 100:.0f} %, wait {report['wait_share'] * 100:.1f} %{memory}"
    )


if __name__ == "__main__":
    main()
