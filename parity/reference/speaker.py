"""`speaker/`: the speaker encoder at its full size. Its 8 million weights come from a rule, not from a file."""

import math
from pathlib import Path

import numpy as np
import torch
from TTS.encoder.models.resnet import ResNetSpeakerEncoder
from TTS.tts.layers.xtts.hifigan_decoder import HifiDecoder

from .folder import caught, read_array, read_json, write_array, write_json

PREFIX = "hifigan_decoder.speaker_encoder."
SHOWN = (
    "conv1.weight", "conv1.bias", "bn1.weight", "bn1.running_mean", "bn1.running_var", "layer2.0.downsample.0.weight",
    "layer4.2.se.fc.2.weight", "attention.3.weight", "fc.weight", "fc.bias",
)


def rule(key, shape, seed):
    """The tensor that `key` gets: FNV-1a of the key, splitmix64 per element, spread by its role and fan-in."""
    state = 0xCBF29CE484222325
    for byte in key.encode():
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    count = math.prod(shape)
    with np.errstate(over="ignore"):
        z = np.uint64(state ^ seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    u = (z >> np.uint64(40)).astype(np.float64) / 2**23 - 1
    if key.endswith("running_mean"):
        value = 0.1 * u
    elif key.endswith("running_var"):
        value = 1 + 0.5 * np.abs(u)
    elif key.endswith(".bias"):
        value = 0.1 * u
    elif len(shape) == 1:
        value = 1 + 0.1 * u
    else:
        value = u * math.sqrt(6 / math.prod(shape[1:]))
    return torch.from_numpy(value.astype(np.float32).reshape(shape))


def fill(encoder, seed, prefix=PREFIX):
    state = encoder.state_dict()
    for name, tensor in state.items():
        if tensor.is_floating_point() and not name.startswith("torch_spec"):
            tensor.copy_(rule(prefix + name, tuple(tensor.shape), seed))
    encoder.load_state_dict(state)
    return encoder.eval()


def build(seed, **sizes):
    config = HifiDecoder().speaker_encoder_audio_config
    encoder = ResNetSpeakerEncoder(
        **{"input_dim": 64, "proj_dim": 512, **sizes}, log_input=True, use_torch_spec=True, audio_config=config
    )
    return fill(encoder, seed)


def glimpse(x):
    x, flat = x.double(), x.flatten()
    return {
        "shape": list(x.shape),
        "mean": x.mean().item(),
        "std": x.std().item(),
        "abs_sum": x.abs().sum().item(),
        "first": flat[:8].tolist(),
        "last": flat[-4:].tolist(),
    }


@torch.no_grad()
def compute(encoder, wav16k):
    """The embedding of a clip, with a glimpse of every stage."""
    stages = {name: getattr(encoder, name) for name in ("bn1", "layer1", "layer2", "layer3", "layer4", "attention")}
    pooled = []
    handle = encoder.fc.register_forward_pre_hook(lambda _m, inputs: pooled.append(inputs[0].clone()))
    embedding, inside = caught({**stages, "fc": encoder.fc}, lambda: encoder(wav16k[None].clone(), l2_norm=True))
    handle.remove()
    inside = {**{name: inside[name] for name in stages}, "pooled": pooled[0], "fc": inside["fc"]}
    return embedding[0], {name: glimpse(x) for name, x in inside.items()}


def describe(encoder, seed):
    state = {PREFIX + name: tensor for name, tensor in encoder.state_dict().items()}
    tensors = {name: [list(t.shape), str(t.dtype).removeprefix("torch.")] for name, t in state.items()}
    shown = {}
    for name in SHOWN:
        tensor = state[PREFIX + name]
        shown[PREFIX + name] = {
            "shape": list(tensor.shape),
            "first": tensor.flatten()[:4].tolist(),
            "sum": tensor.double().sum().item(),
        }
    return tensors, {"seed": seed, "tensors": shown}


def write(out, seed, clips):
    """clips: {name: wav16k}; of the first one also its first second alone."""
    out = Path(out) / "speaker"
    encoder = build(seed)
    tensors, shown = describe(encoder, seed)
    write_json(out / "tensors.json", tensors)
    write_json(out / "fill_check.json", shown)
    activations, embeddings = {}, []
    for number, (clip, wav) in enumerate(clips.items()):
        embedding, activations[clip] = compute(encoder, wav)
        write_array(out / f"{clip}.embedding.npy", embedding)
        embeddings.append(embedding)
        if number == 0:
            assert len(wav) > 16000, "the first clip must be longer than a second"
            write_array(out / f"{clip}.first_second.embedding.npy", compute(encoder, wav[:16000])[0])
    write_json(out / "activations.json", activations)
    cosine = torch.dot(embeddings[0], embeddings[1]).item()
    return {
        "cosine_between_clips": cosine,
        "tensors": len(tensors),
        "parameters": sum(p.numel() for p in encoder.parameters()),
    }


def check(root, compare):
    mel, root = Path(root) / "mel", Path(root) / "speaker"
    said = read_json(root / "fill_check.json")
    encoder = build(said["seed"])
    tensors, shown = describe(encoder, said["seed"])
    compare.equal("speaker/tensors.json", tensors, read_json(root / "tensors.json"))
    for name, entry in said["tensors"].items():
        compare.equal(f"speaker/fill/{name}/first", shown["tensors"][name]["first"], entry["first"])
        compare.number(f"speaker/fill/{name}/sum", shown["tensors"][name]["sum"], entry["sum"])
    for clip, expected in read_json(root / "activations.json").items():
        wav = read_array(mel / clip / "wav16k.npy")
        embedding, activations = compute(encoder, wav)
        compare.tensor(f"speaker/{clip}", embedding, read_array(root / f"{clip}.embedding.npy"))
        for stage, glimpsed in expected.items():
            for key, value in glimpsed.items():
                found = torch.tensor(activations[stage][key], dtype=torch.float64)
                compare.tensor(f"speaker/{clip}/{stage}/{key}", found, torch.tensor(value, dtype=torch.float64))
        short = root / f"{clip}.first_second.embedding.npy"
        if short.exists():
            compare.tensor(f"speaker/{clip}/first_second", compute(encoder, wav[:16000])[0], read_array(short))
