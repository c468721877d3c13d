"""Peer of the example `gpt_step` on a GPU: the same network in PyTorch, bf16 autocast with fused AdamW, as an eager loop,
compiled, and captured as a CUDA graph. Prints one JSON line per mode.

usage: torch_gpt.py LAYERS WIDTH HEADS VOCABULARY [BATCH TIME] [--modes eager,compile,graph,f32] [--steps 40] [--warm 15]
                    [--device cuda|cpu]

On a CPU times are wall times and there is no mode `graph`: it tests this script."""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, length):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())


def measure(step, steps, warm, on_gpu):
    for _ in range(warm):
        step()
    if not on_gpu:
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            step()
            times.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(times), sum(times) / steps, statistics.pstdev(times) / statistics.mean(times)
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    begin = time.perf_counter()
    for mark in marks[:-1]:
        mark.record()
        step()
    marks[-1].record()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - begin) * 1e3 / steps
    times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    return statistics.median(times), wall, statistics.pstdev(times) / statistics.mean(times)


def run(mode, a):
    torch.manual_seed(0)
    on_gpu = a.device == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    half = mode != "f32"
    torch.backends.cuda.matmul.allow_tf32 = half
    model = Gpt(a.layers, a.width, a.heads, a.vocabulary, a.time).to(a.device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True, capturable=mode == "graph")
    ids, targets = (torch.randint(0, a.vocabulary, (a.batch, a.time), device=a.device) for _ in range(2))
    forward = torch.compile(model) if mode == "compile" else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(a.device, torch.bfloat16, enabled=half, cache_enabled=mode != "graph"):
            loss = forward(ids, targets)
        loss.backward()
        optimizer.step()

    if mode == "graph":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(4):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            step()
        median, wall, variation = measure(graph.replay, a.steps, a.warm, on_gpu)
    else:
        median, wall, variation = measure(step, a.steps, a.warm, on_gpu)
    print(json.dumps({
        "peer": f"torch {torch.__version__} {mode}", "layers": a.layers, "width": a.width, "batch": a.batch,
        "time": a.time, "median_ms": round(median, 3), "wall_ms": round(wall, 3),
        "variation": round(variation, 5), "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
    }), flush=True)


parser = argparse.ArgumentParser()
for name in ("layers", "width", "heads", "vocabulary"):
    parser.add_argument(name, type=int)
parser.add_argument("batch", type=int, nargs="?", default=16)
parser.add_argument("time", type=int, nargs="?", default=512)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--warm", type=int, default=15)
parser.add_argument("--modes", default="eager,compile,graph")
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
arguments = parser.parse_args()
for one in arguments.modes.split(","):
    try:
        run(one, arguments)
    except Exception as error:  # a mode that fails must not hide the others
        print(json.dumps({"peer": f"torch {torch.__version__} {one}", "error": repr(error)[:300]}), flush=True)
