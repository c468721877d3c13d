"""Synthesised clips: voiced segments of gliding harmonics with random formants, hiss and digital silence."""

import numpy as np

RATE = 22050


def speech_like(source, seconds):
    """Samples as 16-bit integers. `source` is a numpy generator."""
    total = int(seconds * RATE)
    out = np.zeros(total)
    at = int(0.05 * RATE)
    while at < total - int(0.05 * RATE):
        length = min(int(source.uniform(0.08, 0.22) * RATE), total - at)
        kind = source.choice(["voiced", "voiced", "hiss", "silence"])
        t = np.arange(length) / RATE
        envelope = np.sin(np.pi * (np.arange(length) + 0.5) / length) ** 0.5
        if kind == "voiced":
            pitch = source.uniform(95, 240) * (1 + source.uniform(-0.2, 0.2) * t / t[-1])
            phase = 2 * np.pi * np.cumsum(pitch) / RATE
            formants = source.uniform([300, 900, 2200], [800, 1900, 3200])
            sound = np.zeros(length)
            for harmonic in range(1, 40):
                frequency = pitch * harmonic
                gain = sum(np.exp(-(((frequency - f) / (80 + 0.06 * f)) ** 2)) for f in formants) + 0.02 / harmonic
                sound += np.where(frequency < RATE / 2.2, gain, 0) * np.sin(harmonic * phase)
            out[at : at + length] = 0.25 * envelope * sound
        elif kind == "hiss":
            noise = source.standard_normal(length)
            out[at : at + length] = 0.04 * envelope * (noise - np.concatenate([[0], noise[:-1]]) * 0.7)
        at += length
    # A recording's noise floor, then digital silence: exercises the front-ends' lower bounds.
    sounding = int(0.93 * total)
    out[:sounding] += 2e-4 * source.standard_normal(sounding)
    out[sounding:] = 0
    out *= 0.6 / np.abs(out).max()
    return np.round(out * 32767).astype(np.int16)
