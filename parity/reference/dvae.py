"""`dvae/`: codes and reconstruction, and one training pass with its codebook update."""

from pathlib import Path

import torch
from TTS.tts.layers.xtts.dvae import DiscreteVAE

from .folder import read_json, read_tensors, write_json, write_tensors

ARGUMENTS = (
    "channels", "positional_dims", "num_layers", "stride", "kernel_size", "num_resnet_blocks", "use_transposed_convs",
    "hidden_dim", "num_tokens", "codebook_dim",
)
KEPT_GRADIENTS = ("encoder.0.0.weight", "encoder.5.weight", "decoder.6.weight")


def build(config):
    return DiscreteVAE(normalization=None, **{name: config[name] for name in ARGUMENTS})


def std_of(name, shape):
    if name.startswith(("codebook", "discrete_loss")):
        return None
    fan_in = int(torch.tensor(shape[1:]).prod()) if len(shape) > 1 else 1
    return 0.9 / fan_in**0.5


@torch.no_grad()
def give_codebook(model, draw, name):
    """A codebook like one after training: close to the encoder outputs, with consistent sums and counts.

    A fresh one (counts of zero) divides by almost zero in its first training pass.
    """
    count, book = model.num_tokens, model.codebook
    mels = draw.normal(f"{name} codebook mels", [4, 80, 4 * count], 1.2, -1.0)
    seen = model.encoder(mels).transpose(1, 2).flatten(0, 1)
    rows = seen[torch.from_numpy(draw.source(f"{name} rows").permutation(len(seen))[:count].copy())]
    book.embed.copy_((rows + draw.normal(f"{name} shift", rows.shape, 0.3) * seen.std()).T)
    book.cluster_size.copy_(draw.uniform(f"{name} counts", [count], 0.5, 4.5))
    book.embed_avg.copy_(book.embed * book.cluster_size)


def margin(model, *encoded):
    """The smallest margin between the nearest codebook entry and the second nearest, in squared distance."""
    vectors = torch.cat([e.transpose(1, 2).flatten(0, 1) for e in encoded]).double()
    gaps = torch.cdist(vectors, model.codebook.embed.T.double()).square().topk(2, largest=False).values
    return (gaps[:, 1] - gaps[:, 0]).min().item()


def compute(model, mel, mel_odd):
    """Eval pass, then a training pass. The latter updates the codebook of `model`."""
    model.eval()
    with torch.no_grad():
        encoded, encoded_odd = model.encoder(mel), model.encoder(mel_odd)
        codes, codes_odd = model.get_codebook_indices(mel), model.get_codebook_indices(mel_odd)
        recon_loss, commitment, recon = model(mel)
        decoded_odd = model.decode(codes_odd)[0]
        gap = margin(model, encoded, encoded_odd)
    io = dict(
        mel=mel, mel_odd=mel_odd, encoder_out=encoded, encoder_out_odd=encoded_odd, codes=codes, codes_odd=codes_odd,
        recon=recon, decoded_from_codes_odd=decoded_odd,
    )
    model.train()
    model.zero_grad()
    train_recon, train_commitment, _ = model(mel)
    (train_recon.mean() + train_commitment).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    book = model.codebook
    after = {f"codebook.{name}": getattr(book, name) for name in ("embed", "cluster_size", "embed_avg")}
    after |= {f"grad.{name}": gradients[name] for name in KEPT_GRADIENTS}
    scalars = {
        "recon_loss_mean": recon_loss.mean().item(),
        "commitment_loss": commitment.item(),
        "codes_shape": list(codes.shape),
        "codes_odd_shape": list(codes_odd.shape),
        "distinct_codes": codes.unique().numel(),
        "smallest_sq_distance_margin": gap,
        "train_pass_grad_l2_norms": {name: g.double().norm().item() for name, g in gradients.items()},
    }
    return io, after, scalars


def write(out, draw, sizes):
    out = Path(out) / "dvae"
    model = build(sizes["dvae"])
    draw.fill(model, std_of, "dvae.")
    give_codebook(model, draw, "dvae")
    config = {**sizes["dvae"], "ema_decay": model.codebook.decay, "ema_eps": model.codebook.eps}
    write_json(out / "config.json", config)
    write_tensors(out / "weights.safetensors", model.state_dict())
    io, after, scalars = compute(
        model,
        draw.normal("dvae mel", [2, 80, config["frames"]], 1.2, -1.0),
        draw.normal("dvae mel odd", [1, 80, config["odd_frames"]], 1.2, -1.0),
    )
    assert scalars["smallest_sq_distance_margin"] > 1e-3, "two codebook entries nearly tie: use another seed"
    write_tensors(out / "io.safetensors", io)
    write_tensors(out / "after_train_pass.safetensors", after)
    write_json(out / "scalars.json", scalars)
    return scalars


def check(root, compare):
    root = Path(root) / "dvae"
    model = build(read_json(root / "config.json"))
    model.load_state_dict(read_tensors(root / "weights.safetensors"))
    said = read_tensors(root / "io.safetensors")
    io, after, scalars = compute(model, said["mel"], said["mel_odd"])
    compare.tensors("dvae/io", io, said)
    compare.tensors("dvae/after_train_pass", after, read_tensors(root / "after_train_pass.safetensors"))
    for name, value in read_json(root / "scalars.json").items():
        if isinstance(value, dict):
            for key, norm in value.items():
                compare.number(f"dvae/scalars/{name}/{key}", scalars[name][key], norm)
        elif isinstance(value, list):
            compare.equal(f"dvae/scalars/{name}", scalars[name], value)
        elif name == "smallest_sq_distance_margin":  # a difference of distances: has their rounding error
            compare.tensor(f"dvae/scalars/{name}", torch.tensor([scalars[name], 10.0]), torch.tensor([value, 10.0]))
        else:
            compare.number(f"dvae/scalars/{name}", scalars[name], value)
