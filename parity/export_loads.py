"""Checks that torch loads the output of `myxtts export`, and that it equals what was imported.

    python parity/export_loads.py EXPORTED_DIR [EXPECTED.safetensors]

Needs torch. Every file is loaded with weights_only=True, so that only tensors and plain containers are accepted. With a file of
expected tensors (release names, `dvae.*`, `speakers.N.*`) all of them are compared bit for bit.
"""

import json
import struct
import sys
from pathlib import Path

import torch

DTYPES = {"F32": torch.float32, "I64": torch.int64}


def read_safetensors(path):
    """Reads all tensors with a minimal reader, independent of the one under test."""
    blob = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        raw = bytearray(blob[8 + length + start : 8 + length + end])
        dtype = DTYPES[entry["dtype"]]
        flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def load(folder):
    """All tensors of an export under the names that the goldens use."""
    # Mapped, so that addresses show the alignment in the file.
    get = lambda name: torch.load(folder / name, map_location="cpu", weights_only=True, mmap=True)
    found = dict(get("model.pth")["model"])
    if (folder / "mel_stats.pth").exists():
        assert torch.equal(get("mel_stats.pth"), found["mel_stats"]), "mel_stats.pth differs from the model's"
    if (folder / "dvae.pth").exists():
        found.update({f"dvae.{name}": tensor for name, tensor in get("dvae.pth").items()})
    if (folder / "speakers_xtts.pth").exists():
        for number, (name, voice) in enumerate(get("speakers_xtts.pth").items()):
            print(f"voice {number}: {name}")
            found.update({f"speakers.{number}.{key}": tensor for key, tensor in voice.items()})
    return found


def main():
    folder = Path(sys.argv[1])
    found = load(folder)
    for name, tensor in found.items():
        assert tensor.is_contiguous() and tensor.data_ptr() % 64 == 0, f"{name} is not aligned"
    json.loads((folder / "config.json").read_text())
    print(f"{len(found)} tensors loaded, torch {torch.__version__}")
    if len(sys.argv) > 2:
        expected = read_safetensors(sys.argv[2])
        # An export has only the parts that its model had.
        for prefix in ("dvae.", "speakers."):
            if not any(name.startswith(prefix) for name in found):
                expected = {name: tensor for name, tensor in expected.items() if not name.startswith(prefix)}
        assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
        for name, tensor in expected.items():
            same = found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
            assert same, f"{name} has different values"
        print("all of them are bit-identical to the expected ones")


if __name__ == "__main__":
    main()
