"""Writes and reads the files of a golden folder."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file


def write_json(path, value, indent=1):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def write_tensors(path, tensors):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, path)


def read_tensors(path):
    return load_file(path)


def write_array(path, tensor):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, tensor.detach().contiguous().numpy())  # C order, not Fortran order


def read_array(path):
    return torch.from_numpy(np.load(path))


def caught(modules, call):
    """Runs `call` and returns its result and the last output of each named module."""
    seen = {}
    handles = [
        module.register_forward_hook(lambda _m, _i, out, name=name: seen.__setitem__(name, out))
        for name, module in modules.items()
    ]
    try:
        result = call()
    finally:
        for handle in handles:
            handle.remove()
    return result, {name: (out[0] if isinstance(out, tuple) else out) for name, out in seen.items()}
