"""`hifigan/`: from latents and a speaker vector to a waveform, including both interpolations."""

from pathlib import Path

import torch
from torch.nn import functional as F
from TTS.tts.layers.xtts.hifigan_decoder import HifiDecoder

from .folder import caught, read_json, read_tensors, write_json, write_tensors

PREFIX = "hifigan_decoder.waveform_decoder."


def build(config):
    return HifiDecoder(
        input_sample_rate=config["input_sample_rate"],
        output_sample_rate=config["output_sample_rate"],
        output_hop_length=config["output_hop_length"],
        ar_mel_length_compression=config["ar_mel_length_compression"],
        decoder_input_dim=config["decoder_input_dim"],
        upsample_initial_channel_decoder=config["upsample_initial_channel_decoder"],
        upsample_rates_decoder=config["upsample_rates"],
        upsample_kernel_sizes_decoder=config["upsample_kernel_sizes"],
        resblock_kernel_sizes_decoder=config["resblock_kernel_sizes"],
        resblock_dilation_sizes_decoder=config["resblock_dilations"],
        d_vector_dim=config["d_vector_dim"],
    ).eval()


def fill(generator, draw, prefix):
    """Directions scaled by fan-in, magnitudes (original0) such that the waveform neither vanishes nor saturates."""
    state = generator.state_dict()
    for name, tensor in state.items():
        if name.endswith("original0"):
            value = draw.normal(prefix + name, tensor.shape, 0.15, 1.5 if name.startswith("ups") else 0.8)
        elif name.endswith("bias"):
            value = draw.normal(prefix + name, tensor.shape, 0.1)
        else:
            fan_in = tensor[0].numel()
            value = draw.normal(prefix + name, tensor.shape, (1.2 if "conv_post" in name else 0.9) / fan_in**0.5)
        tensor.copy_(value)
    generator.load_state_dict(state)


@torch.no_grad()
def compute(decoder, latents, speaker):
    """latents [1, T, C], speaker [1, D, 1]."""
    generator = decoder.waveform_decoder
    ratio = decoder.ar_mel_length_compression / decoder.output_hop_length
    first = F.interpolate(latents.transpose(1, 2), scale_factor=[ratio], mode="linear")
    rate = decoder.output_sample_rate / decoder.input_sample_rate
    second = F.interpolate(first, scale_factor=[rate], mode="linear")
    unstretched = generator(first, g=speaker)
    # The hooks record intermediates of the whole decoder, which does its own interpolation.
    watched = {"conv_pre_out": generator.conv_pre, "up0_out": generator.ups[0], "up1_out": generator.ups[1]}
    whole, inside = caught(watched, lambda: decoder(latents, g=speaker))
    assert torch.equal(whole.flatten(), generator(second, g=speaker).flatten()), "interpolations differ from the decoder's"
    return {
        "latents": latents,
        "speaker_embedding": speaker,
        "z_after_x4": first,
        "z_after_sr_interp": second,
        # For a batch of one the decoder drops the first dimension before conv_pre; the first addition restores it.
        "conv_pre_out": inside["conv_pre_out"].reshape(generator.conv_pre.out_channels, -1),
        "up0_out": inside["up0_out"],
        "up1_out": inside["up1_out"],
        "waveform": whole.flatten(),
        "waveform_from_z_after_x4": unstretched.flatten(),
    }


def describe(sizes, waveform):
    return {
        **sizes,
        "output_samples": waveform.numel(),
        "wave_std": waveform.std().item(),
        "wave_saturated_fraction": (waveform.abs() > 0.99).float().mean().item(),
    }


def write(out, draw, sizes):
    out = Path(out) / "hifigan"
    sizes = sizes["hifigan"]
    decoder = build(sizes)
    fill(decoder.waveform_decoder, draw, PREFIX)
    latents = draw.normal("hifigan latents", [1, sizes["frames"], sizes["decoder_input_dim"]])
    speaker = draw.normal("hifigan speaker", [1, sizes["d_vector_dim"], 1], 0.35)
    io = compute(decoder, latents, speaker)
    config = describe(sizes, io["waveform"])
    assert config["wave_std"] > 0.02 and config["wave_saturated_fraction"] < 0.01, f"the waveform is too quiet or saturated: {config}"
    state = {PREFIX + name: tensor for name, tensor in decoder.waveform_decoder.state_dict().items()}
    write_tensors(out / "weights.safetensors", state)
    write_tensors(out / "io.safetensors", io)
    write_json(out / "config.json", config)
    return config


def check(root, compare):
    root = Path(root) / "hifigan"
    config = read_json(root / "config.json")
    decoder = build(config)
    state = {name.removeprefix(PREFIX): t for name, t in read_tensors(root / "weights.safetensors").items()}
    decoder.waveform_decoder.load_state_dict(state)
    said = read_tensors(root / "io.safetensors")
    io = compute(decoder, said["latents"], said["speaker_embedding"])
    compare.tensors("hifigan/io", io, said)
    for name, value in describe({}, io["waveform"]).items():
        compare.number(f"hifigan/config/{name}", value, config[name])
