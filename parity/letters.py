#!/usr/bin/env python3
"""Writes a vocabulary of single letters with exactly SIZE ids, for models without a vocabulary.

    python parity/letters.py SIZE --out vocab.json

The real code takes the size of its text table from `vocab.json`, so a golden checkpoint only loads with a matching one.
"""

import argparse
import json
from pathlib import Path

LETTERS = "!'(),-./:;?abcdefghijklmnopqrstuvwxyz"


def vocabulary(size):
    tokens = ["[STOP]", "[UNK]", "[SPACE]", *LETTERS, "[en]", "[START]"]
    if size < len(tokens):
        raise SystemExit(f"{size} ids requested, but the letters alone need {len(tokens)}")
    tokens += [f"[unused{number}]" for number in range(size - len(tokens))]
    added = [
        dict(id=i, special=True, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False)
        for i, t in enumerate(tokens)
        if t.startswith("[")
    ]
    bpe = dict(
        type="BPE", dropout=None, unk_token="[UNK]", continuing_subword_prefix=None, end_of_word_suffix=None,
        fuse_unk=False, vocab={token: i for i, token in enumerate(tokens)}, merges=[],
    )
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
        pre_tokenizer={"type": "Whitespace"}, post_processor=None, decoder=None, model=bpe,
    )


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("size", type=int)
    options.add_argument("--out", required=True, type=Path)
    args = options.parse_args()
    args.out.write_text(json.dumps(vocabulary(args.size), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
