"""`decode/`: codes generated one by one with the key/value cache, greedily without and with the repetition penalty."""

from pathlib import Path

import torch

from . import gpt
from .folder import read_json, read_tensors, write_json, write_tensors

PENALTY = 5.0
MODES = {"greedy": 1.0, "penalised": PENALTY}


@torch.no_grad()
def speak(model, cond_latents, ids, penalty):
    """Returns codes [n], raw logits [n, A] and latents [n, dim] of one run."""
    model.eval()
    if not hasattr(model, "gpt_inference"):
        model.init_gpt_for_inference(kv_cache=True)
    model.gpt_inference.eval()
    codes, said = model.generate(
        cond_latents, ids[None], do_sample=False, num_beams=1, repetition_penalty=penalty,
        return_dict_in_generate=True, output_logits=True, output_hidden_states=True,
    )
    logits = torch.cat(said.logits)
    states = model.final_norm(torch.cat([step[-1][:, -1] for step in said.hidden_states]))
    # The reference computes the vocoder input like this: everything again in one pass.
    latents = model(
        ids[None], torch.tensor([len(ids)]), codes.clone(), torch.tensor([codes.shape[1] * model.code_stride_len]),
        cond_latents=cond_latents, return_latent=True,
    )[0]
    assert latents.shape == states.shape and torch.allclose(latents, states, atol=2e-5), "second pass differs"
    return codes[0], logits, latents


def margin(codes, logits, penalty, start, stop):
    """The smallest margin, over all steps, between the best choice and the second best."""
    seen, smallest = {1, start}, float("inf")
    for code, row in zip(codes.tolist(), logits.clone()):
        for token in seen if penalty != 1.0 else ():
            row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
        best = row.topk(2)
        assert best.indices[0] == code, "the penalty as implemented here does not explain the choice"
        smallest = min(smallest, (best.values[0] - best.values[1]).item())
        seen.add(code)
    return smallest


def run(model, config, cond_latents, text):
    """Runs all modes on one text; returns tensors and summary entries."""
    tensors, lines = {}, []
    for mode, penalty in MODES.items():
        codes, logits, latents = speak(model, cond_latents, text, penalty)
        tensors |= {f"{mode}.codes": codes, f"{mode}.logits": logits, f"{mode}.latents": latents}
        lines.append(
            {
                "mode": mode,
                "codes": codes.tolist(),
                "count": len(codes),
                "ends_with_stop": codes[-1].item() == config["stop_audio_token"],
                "distinct": len(set(codes.tolist())),
                "smallest_top2_margin": margin(
                    codes, logits, penalty, config["start_audio_token"], config["stop_audio_token"]
                ),
            }
        )
    return tensors, lines


@torch.no_grad()
def latents_of(model, mels):
    return model.eval().get_style_emb(mels).transpose(1, 2)


def is_informative(lines):
    """Whether a text's runs can reveal a fault: no near ties, no run stuck on one code, a STOP in the penalised one."""
    greedy, penalised = lines
    return (
        min(line["smallest_top2_margin"] for line in lines) > 1e-2
        and greedy["distinct"] >= 6
        and penalised["ends_with_stop"]
        and penalised["count"] >= 8
    )


def write(out, draw, sizes, model, config, inputs):
    out = Path(out) / "decode"
    cond_latents = latents_of(model, inputs["cond_mels"][:1])
    tensors, runs = {"cond_latents": cond_latents}, []
    for number, length in enumerate(sizes["decode_texts"]):
        for attempt in range(50):
            ids = draw.integers(f"decode {number} {attempt}", [length], 1, config["number_text_tokens"])
            found, lines = run(model, config, cond_latents, ids)
            if is_informative(lines):
                break
        else:
            raise SystemExit("none of 50 texts gives informative runs: use another seed")
        tensors |= {f"text{number}.ids": ids, **{f"text{number}.{name}": t for name, t in found.items()}}
        runs += [{"text": number, **line} for line in lines]
    write_tensors(out / "decode.safetensors", tensors)
    summary = {"repetition_penalty": PENALTY, "max_codes": config["max_generated_codes"], "runs": runs}
    write_json(out / "summary.json", summary)
    return summary


def check(root, compare):
    root = Path(root)
    model, config, inputs = gpt.load(root)
    said = read_tensors(root / "decode/decode.safetensors")
    summary = read_json(root / "decode/summary.json")
    compare.number("decode/repetition_penalty", PENALTY, summary["repetition_penalty"])
    compare.number("decode/max_codes", config["max_generated_codes"], summary["max_codes"])
    found = {"cond_latents": latents_of(model, inputs["cond_mels"][:1])}
    for number in sorted({line["text"] for line in summary["runs"]}):
        ids = said[f"text{number}.ids"]
        tensors, lines = run(model, config, said["cond_latents"], ids)
        found |= {f"text{number}.ids": ids, **{f"text{number}.{name}": t for name, t in tensors.items()}}
        for line, expected in zip(lines, [line for line in summary["runs"] if line["text"] == number]):
            for key, value in line.items():
                name = f"decode/text{number}/{line['mode']}/{key}"
                if key == "smallest_top2_margin":  # a difference of logits: has their rounding error
                    compare.tensor(name, torch.tensor([value, 10.0]), torch.tensor([expected[key], 10.0]))
                else:
                    compare.equal(name, value, expected[key])
    compare.tensors("decode", found, said)
