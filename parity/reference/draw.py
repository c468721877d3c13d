"""Random numbers that depend on a seed and a name only: a tensor more or less moves no other."""

import zlib

import numpy as np
import torch


class Draw:
    def __init__(self, seed):
        self.seed = seed

    def source(self, name):
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def normal(self, name, shape, std=1.0, mean=0.0):
        numbers = self.source(name).standard_normal(tuple(shape)) * std + mean
        return torch.from_numpy(np.asarray(numbers, dtype=np.float32))

    def uniform(self, name, shape, low, high):
        numbers = self.source(name).uniform(low, high, tuple(shape))
        return torch.from_numpy(np.asarray(numbers, dtype=np.float32))

    def integers(self, name, shape, low, high):
        """From low up to, not including, high."""
        return torch.from_numpy(self.source(name).integers(low, high, tuple(shape)))

    def fill(self, module, std_of, prefix=""):
        """Gives every float tensor of a module random values, none of them constant.

        Factors of norms lie around 1, biases around 0; `std_of(name, shape)` is the spread of everything else. Tensors
        for which it says None keep what they have: windows, filter banks.
        """
        state = module.state_dict()
        for name, tensor in state.items():
            if not tensor.is_floating_point():
                continue
            std = std_of(name, tuple(tensor.shape))
            if std is None:
                continue
            if is_norm(name, tensor):
                value = self.normal(prefix + name, tensor.shape, 0.1, 1.0)
            elif name.endswith("bias"):
                value = self.normal(prefix + name, tensor.shape, 0.05)
            else:
                value = self.normal(prefix + name, tensor.shape, std)
            tensor.copy_(value)
        module.load_state_dict(state)


def is_norm(name, tensor):
    return tensor.dim() == 1 and name.endswith(("weight", "gamma"))
