"""`mel/`: the front-ends of the conditioning, of the DVAE and of the speaker encoder."""

from pathlib import Path

import soundfile
import torch
import torchaudio
from TTS.encoder.models.resnet import ResNetSpeakerEncoder
from TTS.tts.layers.tortoise.arch_utils import TorchMelSpectrogram
from TTS.tts.layers.xtts.dvae import dvae_wav_to_mel
from TTS.tts.layers.xtts.hifigan_decoder import HifiDecoder
from TTS.tts.models.xtts import wav_to_mel_cloning

from .clip import RATE, speech_like
from .folder import read_array, read_json, write_array, write_json

ARRAYS = (
    "cond_mel", "cond_mel_raw", "dvae_mel", "dvae_mel_raw", "speaker_features", "speaker_features_raw", "wav16k",
)


@torch.no_grad()
def compute(wav, stats):
    """All arrays of one clip. wav [samples] f32, stats [80]."""
    wav = wav[None]
    cond_raw = TorchMelSpectrogram(filter_length=2048, hop_length=256, win_length=1024, mel_norm_file=None)(wav)
    dvae_raw = TorchMelSpectrogram(mel_norm_file=None)(wav)
    # The two functions that training and inference call; the raw ones only lack the division.
    cond = wav_to_mel_cloning(wav, mel_norms=stats, n_fft=2048, hop_length=256, win_length=1024)
    dvae = dvae_wav_to_mel(wav, mel_norms=stats)
    wav16k = torchaudio.functional.resample(wav, RATE, 16000)
    encoder = ResNetSpeakerEncoder(
        log_input=True, use_torch_spec=True, audio_config=HifiDecoder().speaker_encoder_audio_config
    )
    raw = (encoder.torch_spec(wav16k) + 1e-6).log()
    features = encoder.instancenorm(raw)
    found = dict(
        cond_mel=cond, cond_mel_raw=cond_raw, dvae_mel=dvae, dvae_mel_raw=dvae_raw,
        speaker_features=features, speaker_features_raw=raw, wav16k=wav16k,
    )
    return {name: value[0] for name, value in found.items()}


def read_wav(path):
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == RATE, f"{path}: {rate} Hz"
    return torch.from_numpy(samples.astype("float32") / 32768)


def write(out, draw, sizes):
    """Writes the clips and their features. Returns {clip: wav16k}."""
    out = Path(out) / "mel"
    out.mkdir(parents=True, exist_ok=True)
    stats = draw.uniform("mel_stats", [80], 0.5, 3.0)
    write_array(out / "mel_stats.npy", stats)
    meta, resampled = {}, {}
    for clip, seconds in sizes["clips"].items():
        path = out / clip / f"{clip}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, speech_like(draw.source(f"clip {clip}"), seconds), RATE, subtype="PCM_16")
        wav = read_wav(path)
        arrays = compute(wav, stats)
        for name, value in arrays.items():
            write_array(out / clip / f"{name}.npy", value)
        resampled[clip] = arrays["wav16k"]
        meta[clip] = {
            "samples": wav.numel(),
            "samples_16k": arrays["wav16k"].numel(),
            "cond_mel": list(arrays["cond_mel"].shape),
            "dvae_mel": list(arrays["dvae_mel"].shape),
            "speaker": list(arrays["speaker_features"].shape),
            "cond_mel_mean": arrays["cond_mel_raw"].mean().item(),
            "dvae_mel_mean": arrays["dvae_mel_raw"].mean().item(),
        }
    write_json(out / "meta.json", meta)
    return resampled, stats


def check(root, compare):
    root = Path(root) / "mel"
    stats = read_array(root / "mel_stats.npy")
    for clip, said in read_json(root / "meta.json").items():
        arrays = compute(read_wav(root / clip / f"{clip}.wav"), stats)
        for name in ARRAYS:
            compare.tensor(f"mel/{clip}/{name}", arrays[name], read_array(root / clip / f"{name}.npy"))
        for which in ("cond", "dvae"):
            compare.number(f"mel/{clip}/{which}_mel_mean", arrays[f"{which}_mel_raw"].mean(), said[f"{which}_mel_mean"])
