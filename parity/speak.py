#!/usr/bin/env python3
"""Loads an exported folder with the real `Xtts` class and speaks one sentence, without sampling.

    python parity/speak.py MODEL_DIR --text "..." --voice ref.wav --wav out.wav [--dump out.safetensors]
                           [--against ours.wav] [--language en] [--repetition-penalty 5]

MODEL_DIR contains `model.pth`, `config.json` and `vocab.json`. Loading is strict: missing or unexpected tensors and
different shapes are errors. `--dump` stores text ids, conditioning, speaker vector, codes, latents and the waveform.
`--against` compares with a waveform of MyXTTS and exits with 1 if they differ by more than `--tolerance`.
"""

import argparse
import sys
from pathlib import Path

import soundfile
import torch
import torchaudio
from safetensors.torch import save_file
from TTS.encoder.models.resnet import ResNetSpeakerEncoder
from TTS.tts.configs.xtts_config import XttsConfig
from TTS.tts.layers.xtts.hifigan_decoder import HifiDecoder
from TTS.tts.models import xtts

STOCK = {"channels": 512, "filters": [32, 64, 128, 256], "projection": 512}


def sizes_of(state):
    """Sizes that no config can express: widths of the vocoder and the speaker encoder, from the tensors' shapes."""
    rows = lambda name: state[f"hifigan_decoder.{name}.weight"].shape[0]
    return {
        "channels": rows("waveform_decoder.conv_pre"),
        "filters": [rows(f"speaker_encoder.layer{number}.0.conv1") for number in range(1, 5)],
        "projection": rows("speaker_encoder.fc"),
    }


def override_sizes(sizes):
    """Makes `Xtts` build its decoder with these sizes. Those of the release are hard-coded."""

    def build(**arguments):
        decoder = HifiDecoder(**arguments, upsample_initial_channel_decoder=sizes["channels"])
        decoder.speaker_encoder = ResNetSpeakerEncoder(
            input_dim=64, proj_dim=sizes["projection"], num_filters=sizes["filters"], log_input=True,
            use_torch_spec=True, audio_config=decoder.speaker_encoder_audio_config,
        )
        return decoder

    xtts.HifiDecoder = build


def read_wav(path, **_):
    """Replaces `torchaudio.load`, which needs FFmpeg's libraries even for a WAV."""
    samples, rate = soundfile.read(str(path), dtype="float32", always_2d=True)
    return torch.from_numpy(samples.T.copy()), rate


def load(folder, vocab):
    config = XttsConfig()
    config.load_json(str(folder / "config.json"))
    state = torch.load(folder / "model.pth", map_location="cpu", weights_only=True)["model"]
    state = {name.removeprefix("xtts."): tensor for name, tensor in state.items()}
    sizes = sizes_of(state)
    if sizes != STOCK:
        print(f"decoder sizes without a setting in the real code, taken from the tensors: {sizes}")
        override_sizes(sizes)
    model = xtts.Xtts(config)
    model.load_checkpoint(config, checkpoint_dir=str(folder), vocab_path=vocab, eval=True, strict=True)
    loaded = {name: t for name, t in model.state_dict().items() if name in state}
    assert all(torch.equal(t, state[name]) for name, t in loaded.items()), "a tensor changed during loading"
    print(f"loaded {len(state)} tensors, {len(loaded)} of them bit-identical in the model")
    return model, config


def speak(model, config, args):
    """Does the same as `Xtts.synthesize` and also returns the codes."""
    cond_latents, speaker = model.get_conditioning_latents(
        audio_path=str(args.voice),
        max_ref_length=config.max_ref_len,
        gpt_cond_len=config.gpt_cond_len,
        gpt_cond_chunk_len=config.gpt_cond_chunk_len,
        sound_norm_refs=config.sound_norm_refs,
    )
    penalty = config.repetition_penalty if args.repetition_penalty is None else args.repetition_penalty
    if args.ids:
        ids = [int(word) for word in args.ids.replace(",", " ").split()]
        model.tokenizer.encode = lambda *_, **__: ids
    caught, generate = {}, model.gpt.generate

    def catch(cond_latents, text_inputs, **settings):
        caught["text_ids"] = text_inputs[0].long()
        caught["codes"] = generate(cond_latents, text_inputs, **settings)[0]
        return caught["codes"][None]

    model.gpt.generate = catch
    said = model.inference(
        args.text, args.language, cond_latents, speaker, do_sample=False, num_beams=1, temperature=1.0, top_k=50,
        top_p=1.0, repetition_penalty=float(penalty),
    )
    return {
        **caught,
        "cond_latents": cond_latents,
        "speaker_embedding": speaker,
        "latents": torch.from_numpy(said["gpt_latents"])[0],
        "waveform": torch.from_numpy(said["wav"]),
    }


def compare(wave, path, tolerance):
    ours, rate = soundfile.read(path, dtype="float32")
    ours = torch.from_numpy(ours)
    if rate != 24000 or ours.shape != wave.shape:
        print(f"{path}: {len(ours)} samples at {rate} Hz, the real code gives {len(wave)} at 24000")
        return False
    furthest = (ours - wave).abs().max().item()
    print(f"{path}: {len(ours)} samples, largest difference {furthest:.2e}, standard deviation {wave.std():.3f}")
    return furthest <= tolerance


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("model_dir", type=Path)
    options.add_argument("--text", default="")
    options.add_argument("--ids", help="token ids instead of a text, for languages the real code rejects")
    options.add_argument("--voice", type=Path, required=True, help="reference recording of the voice")
    options.add_argument("--wav", type=Path, required=True, help="output: float samples at 24 kHz")
    options.add_argument("--dump", type=Path, help="output: all intermediate results, as safetensors")
    options.add_argument("--language", default="en")
    options.add_argument("--vocab", help="default: MODEL_DIR/vocab.json")
    options.add_argument("--repetition-penalty", type=float, help="default: the value in config.json; 1 disables it")
    options.add_argument("--against", type=Path, help="waveform of MyXTTS to compare with")
    options.add_argument("--tolerance", type=float, default=1e-4)
    args = options.parse_args()
    if not args.text and not args.ids:
        options.error("give --text or --ids")
    torch.set_num_threads(1)
    torchaudio.load = read_wav

    model, config = load(args.model_dir, args.vocab)
    said = speak(model, config, args)
    soundfile.write(args.wav, said["waveform"].numpy(), 24000, subtype="FLOAT")
    if args.dump:
        save_file({name: tensor.detach().contiguous() for name, tensor in said.items()}, args.dump)
    print(f"{len(said['text_ids'])} text ids, {len(said['codes'])} codes, {len(said['waveform']) / 24000:.2f} s")
    if args.against and not compare(said["waveform"], args.against, args.tolerance):
        sys.exit(1)


if __name__ == "__main__":
    main()
