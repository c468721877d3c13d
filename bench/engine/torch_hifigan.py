"""Peer of the example `hifigan_step`: XTTS's HiFi-GAN generator in PyTorch, forward alone and forward with backward, in f32 and
with bf16 autocast, with cuDNN's algorithm search on. Prints one JSON line per precision.

usage: torch_hifigan.py [BATCH] [LATENT_FRAMES] [--steps 20] [--warm 5] [--device cuda|cpu]

On a CPU times are wall times: it tests this script."""

import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F

CHANNELS = (512, 256, 128, 64, 32)
UPSAMPLING = ((8, 16), (8, 16), (2, 4), (2, 4))


class Residual(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        self.dilated = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, padding=dilation * (kernel - 1) // 2, dilation=dilation)
            for dilation in (1, 3, 5))
        self.plain = nn.ModuleList(nn.Conv1d(channels, channels, kernel, padding=kernel // 2) for _ in range(3))

    def forward(self, x):
        for dilated, plain in zip(self.dilated, self.plain):
            x = x + plain(F.leaky_relu(dilated(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.condition = nn.Conv1d(1024, 512, 7, padding=3), nn.Conv1d(512, 512, 1)
        pairs = list(zip(CHANNELS, CHANNELS[1:]))
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(a, b, kernel, rate, (kernel - rate) // 2)
            for (a, b), (rate, kernel) in zip(pairs, UPSAMPLING))
        self.conditions = nn.ModuleList(nn.Conv1d(512, b, 1) for _, b in pairs)
        self.residuals = nn.ModuleList(nn.ModuleList(Residual(b, k) for k in (3, 7, 11)) for _, b in pairs)
        self.last = nn.Conv1d(CHANNELS[-1], 1, 7, padding=3, bias=False)

    def forward(self, x, speaker):
        x = self.first(x) + self.condition(speaker)
        for up, condition, residuals in zip(self.ups, self.conditions, self.residuals):
            x = up(F.leaky_relu(x, 0.1)) + condition(speaker)
            x = sum(residual(x) for residual in residuals) / 3
        return torch.tanh(self.last(F.leaky_relu(x)))


def measure(step, a):
    """Milliseconds per call."""
    for _ in range(a.warm):
        step()
    if a.device == "cpu":
        start = time.perf_counter()
        for _ in range(a.steps):
            step()
        return (time.perf_counter() - start) * 1e3 / a.steps
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(a.steps):
        step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / a.steps


parser = argparse.ArgumentParser()
parser.add_argument("batch", type=int, nargs="?", default=16)
parser.add_argument("frames", type=int, nargs="?", default=32)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--warm", type=int, default=5)
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
a = parser.parse_args()
torch.backends.cudnn.benchmark = True
model = Generator().to(a.device)
latents = torch.randn(a.batch, 1024, int(a.frames * 4 * 24000 / 22050), device=a.device)
speaker = torch.randn(a.batch, 512, 1, device=a.device)
for precision in ("f32", "bf16"):
    def forward():
        with torch.autocast(a.device, torch.bfloat16, enabled=precision == "bf16"):
            return model(latents, speaker)

    def both():
        forward().float().pow(2).mean().backward()
        model.zero_grad(set_to_none=True)

    with torch.no_grad():
        alone = measure(forward, a)
    print(json.dumps({
        "peer": f"torch {torch.__version__} {precision}", "batch": a.batch, "frames": a.frames,
        "forward_ms": round(alone, 3), "forward_backward_ms": round(measure(both, a), 3),
    }), flush=True)
