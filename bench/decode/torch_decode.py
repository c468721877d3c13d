"""Peer of the example `decode`: a network of the same size decoded greedily by Hugging Face's GPT-2 with its key-value cache.

usage: torch_decode.py

Prints one JSON line per number type and batch size. Needs a GPU, torch and transformers."""
import json
import os
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import GPT2Config, GPT2Model


@torch.no_grad()
def decode(dtype, batch, prompt=94, codes=300):
    config = GPT2Config(vocab_size=1026, n_positions=1012, n_embd=1024, n_layer=30, n_head=16, use_cache=True)
    model = GPT2Model(config).cuda().to(dtype).eval()
    head = torch.nn.Linear(1024, 1026).cuda().to(dtype)
    for _ in range(2):
        out = model(inputs_embeds=torch.randn(batch, prompt, 1024, device="cuda", dtype=dtype))
        torch.cuda.synchronize()
        start = time.time()
        for _ in range(codes):
            code = head(out.last_hidden_state[:, -1]).argmax(-1, keepdim=True)
            out = model(input_ids=code, past_key_values=out.past_key_values)
        torch.cuda.synchronize()
        seconds = time.time() - start
    print(json.dumps({"peer": "transformers", "torch": torch.__version__, "device": torch.cuda.get_device_name(),
                      "type": str(dtype), "batch": batch, "codes": codes,
                      "codes_per_s": batch * codes / seconds}), flush=True)


for dtype in (torch.float32, torch.bfloat16):
    for batch in (1, 64):
        decode(dtype, batch)
