"""`gpt/` and `gpt_grads/`: one training pass of the GPT with its conditioning, every intermediate and every gradient."""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from TTS.tts.layers.xtts.gpt import GPT

from .folder import caught, read_json, read_tensors, write_json, write_tensors

WEIGHT_TEXT, WEIGHT_MEL = 0.01, 1.0
# Arguments of `GPT(...)`; config.json contains more.
ARGUMENTS = (
    "layers", "model_dim", "heads", "max_text_tokens", "max_mel_tokens", "max_prompt_tokens", "number_text_tokens",
    "start_text_token", "stop_text_token", "num_audio_tokens", "start_audio_token", "stop_audio_token",
    "use_perceiver_resampler", "code_stride_len",
)


def build(config):
    model = GPT(**{name: config[name] for name in ARGUMENTS})
    for module in model.modules():
        if isinstance(module, (nn.Dropout, nn.Dropout1d)):
            module.p = 0.0
    return model.train()


def std_of(name, shape):
    """Standard deviations at which an untrained stack neither vanishes nor saturates."""
    if name.endswith("embedding.weight"):
        return 1.0
    if "pos_embedding" in name:
        return 0.4
    if name.endswith("latents"):
        return 0.5
    if name.startswith("gpt.h"):  # Conv1D: (in, out)
        return 1.2 / shape[0] ** 0.5
    fan_in = int(torch.tensor(shape[1:]).prod()) if len(shape) > 1 else 1
    if "head" in name:
        return 2.0 / fan_in**0.5
    return (1.2 if "qkv" in name or "to_" in name and "to_out" not in name else 0.7) / fan_in**0.5


def describe(model, config):
    perceiver = model.conditioning_perceiver
    return {
        **{name: config[name] for name in ARGUMENTS},
        "head_dim": config["model_dim"] // config["heads"],
        "text_pos_rows": model.text_pos_embedding.emb.weight.shape[0],
        "mel_pos_rows": model.mel_pos_embedding.emb.weight.shape[0],
        "cond_encoder": {
            "blocks": len(model.conditioning_encoder.attn),
            "heads": config["heads"],
            "groups": model.conditioning_encoder.attn[0].norm.num_groups,
        },
        "perceiver": {
            "latents": perceiver.latents.shape[0],
            "depth": len(perceiver.layers),
            "heads": perceiver.layers[0][0].heads,
            "dim_head": perceiver.layers[0][0].to_q.weight.shape[0] // perceiver.layers[0][0].heads,
            "ff_inner": perceiver.layers[0][1][2].weight.shape[1],
        },
        "max_generated_codes": model.max_gen_mel_tokens,
        "dropout": 0.0,
    }


def draw_inputs(draw, config, sizes):
    """A batch of ragged rows; the second clip is a whole number of strides long, an edge case."""
    stride = config["code_stride_len"]
    codes, texts = torch.tensor(sizes["codes"]), torch.tensor(sizes["texts"])
    rows = len(codes)
    short = torch.tensor([0 if row == 1 else 1 for row in range(rows)]) * draw.integers("short", [rows], 1, stride)
    text = draw.integers("text", [rows, int(texts.max())], 1, config["number_text_tokens"])
    text[text == config["start_text_token"]] = 1
    for row, length in enumerate(texts):
        text[row, length:] = 0
    return {
        "text_inputs": text,
        "text_lengths": texts,
        "audio_codes": draw.integers("codes", [rows, int(codes.max())], 0, config["start_audio_token"]),
        "code_lengths": codes,
        "wav_lengths": codes * stride - short,
        "cond_mels": draw.normal("cond_mels", [rows, 1, 80, sizes["frames"]], 1.5, -2.0),
    }


def derive(inputs, config, latents):
    """Reimplements what the forward pass builds from its inputs: rows, targets, attention mask."""
    rows, longest = len(inputs["text_lengths"]), int(inputs["text_lengths"].max())
    most = int(inputs["code_lengths"].max())
    text_in = torch.full([rows, longest + 2], config["stop_text_token"])
    mel_in = torch.full([rows, most + 5], config["stop_audio_token"])
    text_targets, mel_targets = torch.full_like(text_in, -1), torch.full_like(mel_in, -1)
    key_mask = torch.zeros([rows, latents + longest + 2 + most + 5], dtype=torch.int64)
    key_mask[:, :latents] = 1
    for row in range(rows):
        length, count = int(inputs["text_lengths"][row]), int(inputs["code_lengths"][row])
        text, codes = inputs["text_inputs"][row, :length], inputs["audio_codes"][row, :count]
        text_in[row, 0], mel_in[row, 0] = config["start_text_token"], config["start_audio_token"]
        text_in[row, 1 : length + 1], mel_in[row, 1 : count + 1] = text, codes
        text_targets[row, :length], text_targets[row, length] = text, config["stop_text_token"]
        mel_targets[row, :count], mel_targets[row, count : count + 4] = codes, config["stop_audio_token"]
        key_mask[row, latents : latents + length + 1] = 1
        start = latents + longest + 2
        key_mask[row, start : start + count + 4] = 1
    return dict(text_in=text_in, text_targets=text_targets, mel_in=mel_in, mel_targets=mel_targets, key_mask=key_mask)


def compute(model, inputs, config):
    """Runs forward and backward. Returns derived, outputs, scalars, and gradients by release name."""
    model.zero_grad()
    watched = {
        "cond_encoder_out": model.conditioning_encoder,
        "cond_latents": model.conditioning_perceiver,
        "gpt_input": model.gpt.drop,
        "final_norm_out": model.final_norm,
        "text_logits": model.text_head,
        "mel_logits": model.mel_head,
        **{f"gpt_block_{i}_out": block for i, block in enumerate(model.gpt.h)},
    }
    # The forward pass overwrites codes after a row's end, so it gets a copy.
    (loss_text, loss_mel, _), outputs = caught(
        watched,
        lambda: model(
            inputs["text_inputs"], inputs["text_lengths"], inputs["audio_codes"].clone(), inputs["wav_lengths"],
            cond_mels=inputs["cond_mels"], cond_idxs=None, cond_lens=None,
        ),
    )
    loss = WEIGHT_TEXT * loss_text + WEIGHT_MEL * loss_mel
    loss.backward()
    gradients = {f"gpt.{name}": p.grad.clone() for name, p in model.named_parameters()}
    derived = derive(inputs, config, outputs["cond_latents"].shape[1])
    prove(model, derived, outputs, loss_text, loss_mel)
    scalars = {
        "loss_text": loss_text.item(),
        "loss_mel": loss_mel.item(),
        "loss_total": loss.item(),
        "grad_l2_norm": sum((g.double() ** 2).sum() for g in gradients.values()).sqrt().item(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "weight_text": WEIGHT_TEXT,
        "weight_mel": WEIGHT_MEL,
    }
    return derived, {name: out.detach() for name, out in outputs.items()}, scalars, gradients


@torch.no_grad()
def prove(model, derived, outputs, loss_text, loss_mel):
    """Checks that the rows of `derive` are those the forward pass used."""
    embedded = torch.cat(
        [
            outputs["cond_latents"],
            model.text_embedding(derived["text_in"]) + model.text_pos_embedding(derived["text_in"]),
            model.mel_embedding(derived["mel_in"]) + model.mel_pos_embedding(derived["mel_in"]),
        ],
        dim=1,
    )
    assert torch.equal(embedded, outputs["gpt_input"]), "rebuilt rows differ from those of the forward"
    again = model.gpt(inputs_embeds=embedded, attention_mask=derived["key_mask"].bool()).last_hidden_state
    again = model.final_norm(again[:, outputs["cond_latents"].shape[1] :])
    assert torch.equal(again, outputs["final_norm_out"]), "rebuilt key mask differs from that of the forward"
    for loss, kind in ((loss_text, "text"), (loss_mel, "mel")):
        logits, targets = outputs[f"{kind}_logits"], derived[f"{kind}_targets"]
        rebuilt = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        assert torch.allclose(rebuilt, loss, rtol=1e-6), f"rebuilt {kind} targets differ: {rebuilt} {loss}"


def write(out, draw, sizes):
    """Writes both folders. Returns the model, its config and the inputs."""
    out = Path(out)
    model = build(sizes["gpt"])
    draw.fill(model, std_of, "gpt.")
    config = describe(model, sizes["gpt"])
    inputs = draw_inputs(draw, config, sizes["gpt_batch"])
    derived, outputs, scalars, gradients = compute(model, inputs, config)
    write_json(out / "gpt/config.json", config)
    write_json(out / "gpt/scalars.json", scalars)
    write_tensors(out / "gpt/weights.safetensors", {f"gpt.{n}": t for n, t in model.state_dict().items()})
    write_tensors(out / "gpt/inputs.safetensors", inputs)
    write_tensors(out / "gpt/derived.safetensors", derived)
    write_tensors(out / "gpt/outputs.safetensors", outputs)
    write_tensors(out / "gpt_grads/grads.safetensors", gradients)
    return model, config, inputs, scalars


def load(root):
    root = Path(root)
    config = read_json(root / "gpt/config.json")
    model = build(config)
    weights = read_tensors(root / "gpt/weights.safetensors")
    model.load_state_dict({name.removeprefix("gpt."): tensor for name, tensor in weights.items()})
    return model, config, read_tensors(root / "gpt/inputs.safetensors")


def check(root, compare):
    root = Path(root)
    model, config, inputs = load(root)
    compare.equal("gpt/config", describe(model, config), config)
    derived, outputs, scalars, gradients = compute(model, inputs, config)
    compare.tensors("gpt/derived", derived, read_tensors(root / "gpt/derived.safetensors"))
    compare.tensors("gpt/outputs", outputs, read_tensors(root / "gpt/outputs.safetensors"))
    compare.tensors("gpt_grads", gradients, read_tensors(root / "gpt_grads/grads.safetensors"))
    for name, said in read_json(root / "gpt/scalars.json").items():
        compare.number(f"gpt/scalars/{name}", scalars[name], said)
