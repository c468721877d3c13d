"""Random numbers that depend only on a seed and a name: adding or removing a tensor does not change the others."""

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
        """Integers in [low, high)."""
        return torch.from_numpy(self.source(name).integers(low, high, tuple(shape)))

    def fill(self, module, std_of, prefix=""):
        """Fills every float tensor of a module with random values, none of them constant.

        Scales of norms are around 1, biases around 0; `std_of(name, shape)` is the standard deviation of everything else.
        Tensors for which it returns None keep their values: windows, filter banks.
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
