"""Peer of the example `decode`: a network of the same size decoded greedily by Hugging Face's GPT-2 with its key-value cache.

usage: torch_decode.py [--batches 1,64] [--codes 300] [--layers 30 --width 1024 --heads 16] [--device cuda|cpu]

Prints one JSON line per number type and batch size. Every measurement is done twice, and the second is printed. Needs torch and
transformers."""
import argparse
import json
import os
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from transformers import GPT2Config, GPT2Model


@torch.no_grad()
def decode(a, dtype, batch, prompt=94):
    wait = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    config = GPT2Config(vocab_size=1026, n_positions=1012, n_embd=a.width, n_layer=a.layers, n_head=a.heads, use_cache=True)
    model = GPT2Model(config).to(a.device, dtype).eval()
    head = torch.nn.Linear(a.width, 1026).to(a.device, dtype)
    for _ in range(2):
        out = model(inputs_embeds=torch.randn(batch, prompt, a.width, device=a.device, dtype=dtype))
        wait()
        start = time.perf_counter()
        for _ in range(a.codes):
            code = head(out.last_hidden_state[:, -1]).argmax(-1, keepdim=True)
            out = model(input_ids=code, past_key_values=out.past_key_values)
        wait()
        seconds = time.perf_counter() - start
    print(json.dumps({"peer": "transformers", "torch": torch.__version__, "transformers": transformers.__version__,
                      "device": torch.cuda.get_device_name() if a.device == "cuda" else "cpu", "type": str(dtype), "batch": batch,
                      "codes": a.codes, "codes_per_s": batch * a.codes / seconds}), flush=True)


parser = argparse.ArgumentParser()
parser.add_argument("--batches", default="1,64")
parser.add_argument("--codes", type=int, default=300)
parser.add_argument("--layers", type=int, default=30)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--heads", type=int, default=16)
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
arguments = parser.parse_args()
for number in (torch.float32, torch.bfloat16):
    for size in map(int, arguments.batches.split(",")):
        decode(arguments, number, size)
