"""`checkpoint/`: one tiny, complete model in every published layout."""

import contextlib
from collections import OrderedDict
from pathlib import Path

import torch
from TTS.tts.configs.xtts_config import XttsArgs, XttsAudioConfig, XttsConfig
from TTS.tts.layers.tortoise.arch_utils import TorchMelSpectrogram
from TTS.tts.layers.xtts.hifigan_decoder import HifiDecoder
from TTS.tts.layers.xtts.trainer.gpt_trainer import GPTArgs, GPTTrainerConfig

from . import dvae, gpt, hifigan, speaker
from .folder import read_json, read_tensors, write_json, write_tensors

SPEAKERS = ("Ana Florence", "Zoë Šimek")
STEP, EPOCH = 1234, 5
ADAMW = {"betas": [0.9, 0.96], "eps": 1e-08, "weight_decay": 0.01}
MILESTONES = {"milestones": [900000, 2700000, 5400000], "gamma": 0.5, "last_epoch": -1}


def model_args(sizes):
    """Sizes under the names of the config."""
    names = dict(
        gpt_max_audio_tokens="max_mel_tokens", gpt_max_text_tokens="max_text_tokens",
        gpt_max_prompt_tokens="max_prompt_tokens", gpt_layers="layers", gpt_n_model_channels="model_dim",
        gpt_n_heads="heads", gpt_number_text_tokens="number_text_tokens", gpt_num_audio_tokens="num_audio_tokens",
        gpt_start_audio_token="start_audio_token", gpt_stop_audio_token="stop_audio_token",
        gpt_code_stride_len="code_stride_len", gpt_use_perceiver_resampler="use_perceiver_resampler",
    )
    args = {theirs: sizes["gpt"][ours] for theirs, ours in names.items()}
    return {
        **args, "decoder_input_dim": sizes["gpt"]["model_dim"], "d_vector_dim": sizes["d_vector_dim"],
    }


def release(sizes, draw, seed):
    """The parts of a release as modules. The vocoder and the speaker encoder have sizes that no config can express."""
    model = gpt.build(sizes["gpt"])
    draw.fill(model, gpt.std_of, "checkpoint gpt.")
    decoder = HifiDecoder(
        decoder_input_dim=sizes["gpt"]["model_dim"],
        upsample_initial_channel_decoder=sizes["vocoder_channels"],
        d_vector_dim=sizes["d_vector_dim"],
    )
    decoder.speaker_encoder = speaker.build(
        seed, num_filters=sizes["speaker_filters"], proj_dim=sizes["d_vector_dim"]
    )
    hifigan.fill(decoder.waveform_decoder, draw, "checkpoint hifigan.")
    vae = dvae.build(sizes["dvae"])
    draw.fill(vae, dvae.std_of, "checkpoint dvae.")
    dvae.give_codebook(vae, draw, "checkpoint")
    return model, decoder, vae


def optimizer_of(model, draw):
    """AdamW configured like the trainer's, after two steps on random gradients. The weights are restored."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-06, **{**ADAMW, "betas": tuple(ADAMW["betas"])})
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, **MILESTONES)
    for step in range(2):
        for name, parameter in model.named_parameters():
            parameter.grad = draw.normal(f"grad {step} {name}", parameter.shape, 0.2)
        optimizer.step()
        scheduler.step()
    model.load_state_dict(before)
    return optimizer.state_dict(), scheduler.state_dict()


@contextlib.contextmanager
def old_module_path():
    """Pickles the two classes under the module path they had when the released files were written."""
    now = XttsArgs.__module__
    try:
        XttsArgs.__module__ = XttsAudioConfig.__module__ = "TTS.tts.models.xtts"
        yield
    finally:
        XttsArgs.__module__ = XttsAudioConfig.__module__ = now


def spectrogram_buffers():
    """Constants that a trainer's file contains and an importer must drop; of a smaller transform than the real one."""
    small = dict(hop_length=16, win_length=64, n_mel_channels=8, mel_norm_file=None)
    made = {
        "torch_mel_spectrogram_style_encoder": TorchMelSpectrogram(filter_length=128, **small),
        "torch_mel_spectrogram_dvae": TorchMelSpectrogram(filter_length=64, **small),
    }
    return OrderedDict((f"{n}.{k}", t) for n, module in made.items() for k, t in module.state_dict().items())


def write(out, draw, sizes, seed, mel_stats):
    out = Path(out) / "checkpoint"
    out.mkdir(parents=True, exist_ok=True)
    sizes = sizes["checkpoint"]
    model, decoder, vae = release(sizes, draw, seed)

    released = OrderedDict(mel_stats=mel_stats)
    released.update((f"gpt.{n}", t) for n, t in model.state_dict().items())
    released.update((f"hifigan_decoder.{n}", t) for n, t in decoder.state_dict().items())
    torch.save({"model": released}, out / "model.pth")

    extra = spectrogram_buffers()
    trained = OrderedDict((f"xtts.{n}", t) for n, t in released.items())
    trained.update((f"dvae.{n}", t) for n, t in vae.state_dict().items())
    trained.update(extra)
    args = model_args(sizes)
    trainer_config = GPTTrainerConfig(
        run_name="GPT_XTTS_tiny", project_name="XTTS_trainer", optimizer="AdamW", optimizer_params=dict(ADAMW),
        lr_scheduler="MultiStepLR", lr_scheduler_params=dict(MILESTONES),
        model_args=GPTArgs(**args, mel_norm_file="mel_stats.pth"),
    )
    optimizer, scheduler = optimizer_of(model, draw)
    trainer_checkpoint = {
        "config": trainer_config,
        "model": trained,
        "optimizer": [optimizer],
        "scheduler": [scheduler],
        "scaler": None,
        "step": STEP,
        "epoch": EPOCH,
        "date": "January 01, 2024",
        "model_loss": {"train_loss": 3.25, "eval_loss": 3.5},
    }
    torch.save(trainer_checkpoint, out / "trainer_checkpoint.pth")

    # Values of the released v2; the defaults of the class belong to another model.
    speaking = dict(temperature=0.75, repetition_penalty=5.0, gpt_cond_len=30, max_ref_len=30)
    config = XttsConfig(model_args=XttsArgs(**args), **speaking)
    config.save_json(out / "config.json")
    few = OrderedDict((n, released[n]) for n in ("mel_stats", "gpt.final_norm.weight", "gpt.final_norm.bias"))
    with old_module_path():
        torch.save({"config": config, "model": few}, out / "config_object.pth")

    voices = {}
    for name in SPEAKERS:
        vector = draw.normal(f"voice vector {name}", [1, sizes["d_vector_dim"], 1])
        voices[name] = {
            "gpt_cond_latent": draw.normal(f"voice latent {name}", [1, 32, sizes["gpt"]["model_dim"]]),
            "speaker_embedding": vector / vector.norm(),
        }
    torch.save(voices, out / "speakers_xtts.pth")

    expected = {**released, **{f"dvae.{n}": t for n, t in vae.state_dict().items()}}
    for number, voice in enumerate(voices.values()):
        expected |= {f"speakers.{number}.{key}": tensor for key, tensor in voice.items()}
    write_tensors(out / "expected.safetensors", expected)
    keys = {
        "release": list(released),
        "trainer": list(trained),
        "trainer_extra_to_drop": list(extra),
        "speakers": list(voices),
        "step": STEP,
        "epoch": EPOCH,
        "optimizer_param_order": [name for name, _ in model.named_parameters()],
    }
    write_json(out / "keys.json", keys)
    return {
        "release_tensors": len(released),
        "trainer_tensors": len(trained),
        "spk": sizes["speaker_filters"],
        "params": sum(t.numel() for t in released.values()),
    }


def check(root, compare):
    """Checks every layout with torch itself. Pickles are executed: only for trusted files."""
    root = Path(root) / "checkpoint"
    said, keys = read_tensors(root / "expected.safetensors"), read_json(root / "keys.json")
    part = lambda start: {n: t for n, t in said.items() if n.startswith(start)}
    released = {n: t for n, t in said.items() if not n.startswith(("dvae.", "speakers."))}

    def exactly(name, found, expected):
        compare.equal(f"checkpoint/{name}", sorted(found), sorted(expected))
        for key in found.keys() & expected.keys():
            compare.equal(f"checkpoint/{name}/{key}", torch.equal(found[key], expected[key]), True)

    model = torch.load(root / "model.pth", weights_only=True)["model"]
    compare.equal("checkpoint/release keys", list(model), keys["release"])
    exactly("model.pth", model, released)
    trainer = torch.load(root / "trainer_checkpoint.pth", weights_only=False)
    compare.equal("checkpoint/trainer keys", list(trainer["model"]), keys["trainer"])
    kept = {n.removeprefix("xtts."): t for n, t in trainer["model"].items() if n not in keys["trainer_extra_to_drop"]}
    exactly("trainer_checkpoint.pth", kept, {**released, **part("dvae.")})
    compare.equal("checkpoint/step", [trainer["step"], trainer["epoch"]], [keys["step"], keys["epoch"]])
    state = trainer["optimizer"][0]["state"]
    shapes = [list(state[i]["exp_avg"].shape) for i in range(len(state))]
    expected = [list(said[f"gpt.{name}"].shape) for name in keys["optimizer_param_order"]]
    compare.equal("checkpoint/moments", shapes, expected)
    few = torch.load(root / "config_object.pth", weights_only=False)["model"]
    exactly("config_object.pth", few, {name: said[name] for name in few})
    voices = torch.load(root / "speakers_xtts.pth", weights_only=True)
    compare.equal("checkpoint/speakers", list(voices), keys["speakers"])
    numbered = {f"speakers.{i}.{k}": t for i, v in enumerate(voices.values()) for k, t in v.items()}
    exactly("speakers_xtts.pth", numbered, part("speakers."))
