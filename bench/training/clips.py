"""Generates clips with LJSpeech's lengths, for timing only: their content does not change how long a step takes.

usage: clips.py FOLDER [COUNT]

Writes FOLDER/wavs/*.wav (22,050 Hz, 1.1 to 10.1 s, about 6.6 on average) and FOLDER/metadata.csv, whose texts are random
letters, 14 per second, so that a letter is about a token. Needs numpy."""

import os
import sys
import wave

import numpy as np

RATE = 22_050
folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 800
os.makedirs(f"{folder}/wavs", exist_ok=True)
rng = np.random.default_rng(7)
lines = []
for number in range(count):
    seconds = float(np.clip(rng.normal(6.6, 2.2), 1.1, 10.1))
    time = np.arange(int(seconds * RATE)) / RATE
    pitch = rng.uniform(90, 250)
    audio = sum(np.sin(2 * np.pi * pitch * k * time + rng.uniform(0, 6)) / k for k in range(1, 8))
    audio *= 0.6 + 0.4 * np.sin(2 * np.pi * 4 * time)
    data = (audio / np.abs(audio).max() * 0.6 * 32767).astype("<i2")
    with wave.open(f"{folder}/wavs/clip{number:05}.wav", "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(data.tobytes())
    letters = "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz      "), max(2, int(14 * seconds)))).strip()
    lines.append(f"clip{number:05}|{letters or 'a'}|{letters or 'a'}")
with open(f"{folder}/metadata.csv", "w") as file:
    file.write("\n".join(lines) + "\n")
