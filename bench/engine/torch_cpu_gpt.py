#!/usr/bin/env python3
"""Peer of the example `gpt_step` on the CPU: forward, backward and AdamW of the same network in PyTorch, in f32.

usage: torch_cpu_gpt.py [--layers 6] [--width 256] ... [--threads 2] [--compile] [--profile]

Prints one line of JSON: the time of every step, their median, and the loss of the first and the last step.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Pre-norm transformer block: causal self-attention, then a feed-forward layer with GELU."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time_steps, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, time_steps, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time_steps, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(o.vocabulary, o.width), nn.Embedding(o.time, o.width)
        self.blocks = nn.ModuleList(Block(o.width, o.heads) for _ in range(o.layers))
        self.norm, self.head = nn.LayerNorm(o.width), nn.Linear(o.width, o.vocabulary)
        self.register_buffer("indices", torch.arange(o.time))
        # The initialisation of `gpt_step`: small normal weights, zero biases.
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(self.indices)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in [("layers", 6), ("width", 256), ("heads", 4), ("vocabulary", 1026), ("batch", 8),
                        ("time", 200), ("steps", 10), ("warm", 2), ("threads", 2)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--compile", action="store_true", help="use torch.compile (needs a C++ compiler)")
    parser.add_argument("--profile", action="store_true", help="print the time by operation to stderr")
    o = parser.parse_args()

    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    model = Gpt(o)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)
    run = torch.compile(model) if o.compile else model
    ids = torch.randint(0, o.vocabulary, (o.batch, o.time))
    targets = torch.randint(0, o.vocabulary, (o.batch, o.time))

    def step():
        loss = run(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    first = step()
    for _ in range(o.warm):
        step()
    times = []
    for _ in range(o.steps):
        start = time.perf_counter()
        last = step()
        times.append((time.perf_counter() - start) * 1e3)
    if o.profile:
        with torch.profiler.profile() as profile:
            step()
        table = profile.key_averages(group_by_input_shape=True).table(sort_by="self_cpu_time_total", row_limit=30)
        print(table, file=sys.stderr)
    median = statistics.median(times)
    print(json.dumps({
        "torch": torch.__version__, "threads": torch.get_num_threads(), "compiled": o.compile,
        "parameters": sum(p.numel() for p in model.parameters()),
        "median_ms": round(median, 3), "best_ms": round(min(times), 3),
        "samples_per_second": round(o.batch / median * 1e3, 3),
        "times_ms": [round(t, 3) for t in times], "first_loss": first, "last_loss": last,
    }))


if __name__ == "__main__":
    main()
