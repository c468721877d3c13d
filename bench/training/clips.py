"""Clips with the lengths of LJSpeech, for timing only: what is said does not change how long a step takes.

usage: clips.py FOLDER [COUNT]

Writes FOLDER/wavs/*.wav (22,050 Hz, 1.1 to 10.1 s, about 6.6 on average) and FOLDER/metadata.csv, whose texts are random
letters, 14 for a second, so that every letter is about a token. Needs numpy."""

import os
import sys
import wave

import numpy as np

RATE = 22_050
folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 800
os.makedirs(f"{folder}/wavs", exist_ok=True)
draws = np.random.default_rng(7)
lines = []
for number in range(count):
    seconds = float(np.clip(draws.normal(6.6, 2.2), 1.1, 10.1))
    time = np.arange(int(seconds * RATE)) / RATE
    pitch = draws.uniform(90, 250)
    sound = sum(np.sin(2 * np.pi * pitch * k * time + draws.uniform(0, 6)) / k for k in range(1, 8))
    sound *= 0.6 + 0.4 * np.sin(2 * np.pi * 4 * time)
    data = (sound / np.abs(sound).max() * 0.6 * 32767).astype("<i2")
    with wave.open(f"{folder}/wavs/clip{number:05}.wav", "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(data.tobytes())
    letters = "".join(draws.choice(list("abcdefghijklmnopqrstuvwxyz      "), max(2, int(14 * seconds)))).strip()
    lines.append(f"clip{number:05}|{letters or 'a'}|{letters or 'a'}")
with open(f"{folder}/metadata.csv", "w") as file:
    file.write("\n".join(lines) + "\n")
