"""Peer of the example `batch_rate`: the same mels through PyTorch's DataLoader, two workers, padded batches of 32.

usage: peer.py FOLDER [--seconds 3]

Prints one JSON object with the batches per second of three common ways to store the data:
  files   one .npy file per record, `np.load`
  mmap    the same files, `np.load(mmap_mode="r")`
  shard   one large file, `np.memmap`, sliced by offsets
None of them verifies checksums; `batch_rate` does.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch


class Mels(torch.utils.data.Dataset):
    def __init__(self, folder, way):
        self.folder, self.way = folder, way
        self.frames = json.loads((folder / "mels.json").read_text())["frames"]
        self.offsets = np.concatenate([[0], np.cumsum(np.array(self.frames) * 80)])
        self.shard = None

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        if self.way == "shard":
            if self.shard is None:
                self.shard = np.memmap(self.folder / "mels.bin", dtype="<f4", mode="r")
            return self.shard[self.offsets[i] : self.offsets[i + 1]].reshape(-1, 80)
        mode = "r" if self.way == "mmap" else None
        return np.load(self.folder / "npy" / f"{i:06}.npy", mmap_mode=mode)


def pad(records):
    lengths = torch.tensor([len(record) for record in records])
    batch = torch.full((len(records), int(lengths.max()), 80), float(np.log(1e-5)))
    for row, record in zip(batch.numpy(), records):
        row[: len(record)] = record
    return batch, lengths


def rate(folder, way, seconds):
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Mels(folder, way), batch_size=32, shuffle=True, drop_last=True, num_workers=2, collate_fn=pad,
        persistent_workers=True,
    )
    for _ in loader:  # one epoch, so that all files are in the page cache
        pass
    batches, began = 0, time.perf_counter()
    while True:
        for _ in loader:
            batches += 1
            if time.perf_counter() - began >= seconds:
                return batches / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    rates = {way: rate(args.folder, way, args.seconds) for way in ("files", "mmap", "shard")}
    print(json.dumps({"batches_per_s": rates, "torch": torch.__version__, "numpy": np.__version__}))


if __name__ == "__main__":
    main()
