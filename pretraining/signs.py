"""What the tiny models see and read: the classes, their captions, and the tokenizer of the captions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# Lower-case letters drawn as their own class. The others have the shape of their capital (c, o, s, ...) or of a digit
# (l, q), and at this size nobody can tell them apart.
SMALL = "abdefghijmnrty"
SYMBOLS = {
    "+": "plus sign",
    "=": "equals sign",
    "?": "question mark",
    "!": "exclamation mark",
    "&": "ampersand",
    "@": "at sign",
    "#": "hash sign",
    "%": "percent sign",
    "$": "dollar sign",
    "*": "asterisk",
}
SHAPES = (
    "disc",
    "square",
    "triangle",
    "star",
    "heart",
    "arrow",
    "diamond",
    "hexagon",
    "cross",
    "moon",
    "house",
    "lightning bolt",
    "wave",
    "spiral",
)
STYLES = ("hand", "sketch", "print", "sign", "scene")

# {} is the name with no article ("7", "seven", "digit 7", "letter b", "star"); every style may carry these.
NEUTRAL = (
    "{}",
    "{}.",
    "a {}",
    "a {}.",
    "the {}",
    "a photo of a {}",
    "a photo of a {}.",
    "a photo of the {}",
    "a photo of {}",
    "a picture of a {}",
    "a picture of a {}.",
    "a picture of the {}",
    "a picture of {}",
    "an image of a {}",
    "an image of the {}",
    "an image of {}",
    "this is a {}",
    "this is the {}",
    "a photo showing a {}",
    "a picture showing the {}",
    "a small photo of a {}",
    "a blurry photo of a {}",
    "a good photo of a {}",
    "a bad photo of a {}",
    "a close picture of a {}",
    "a {} in the middle of a picture",
    "there is a {} in this image",
    "a view of a {}",
    "one picture with a {}",
    "it shows the {}",
)
STYLED = {
    "hand": (
        "a scan of a {}",
        "a scan of the {}",
        "a scanned {}",
        "a handwritten {}",
        "handwriting of the {}",
        "a {} written by hand",
        "a {} in ink on paper",
        "the {} written with a pen",
    ),
    "sketch": (
        "a sketch of a {}",
        "a sketch of the {}",
        "a drawing of a {}",
        "a pencil drawing of the {}",
        "the outline of a {}",
        "a {} drawn with a pencil",
        "a line drawing of a {}",
        "a rough sketch of the {}",
    ),
    "print": (
        "a printed {}",
        "a print of the {}",
        "a print of a {}",
        "a {} printed on paper",
        "the {} in a book",
        "a {} in type",
        "a typed {}",
        "the {} on a printed page",
    ),
    "sign": (
        "a street sign with a {}",
        "a street sign with the {}",
        "a sign showing a {}",
        "a plate with the {}",
        "a coloured plate with a {}",
        "a {} on a sign",
        "a house number with a {}",
        "the {} on a street sign",
    ),
    "scene": (
        "a {} painted on a wall",
        "a {} over a photo",
        "graffiti of a {}",
        "the {} in front of a scene",
        "a {} on a colourful background",
        "a {} outdoors",
        "the {} on a textured wall",
        "a {} over a picture",
    ),
}
# Words put before a caption, so that every position of the text tower is trained: prompt learning puts up to
# two dozen vectors there. None of them names a class.
FILLER = [
    "this",
    "image",
    "shows",
    "clearly",
    "here",
    "we",
    "can",
    "see",
    "it",
    "is",
    "and",
    "the",
    "of",
    "with",
    "in",
    "on",
    "there",
    "small",
    "good",
    "picture",
    "photo",
]


@dataclass(frozen=True)
class Sign:
    """One class: what is drawn, its kind, and its names."""

    key: str
    kind: str  # digit, capital, small, symbol or shape
    names: tuple[str, ...]
    shared: tuple[str, ...] = ()  # names that its other case carries too


class Caption(NamedTuple):
    text: str
    style: int  # index into STYLES, -1 for every style
    covers: frozenset[int]  # the classes of which it is true


def signs() -> list[Sign]:
    """All classes; the ten digits come first, in order."""
    found = [
        Sign(str(n), "digit", (str(n), word, f"digit {n}", f"digit {word}", f"number {n}", f"number {word}"))
        for n, word in enumerate(DIGITS)
    ]
    for letter in "abcdefghijklmnopqrstuvwxyz":
        both = (letter, f"letter {letter}")
        found.append(Sign(letter.upper(), "capital", (f"capital {letter}", f"capital letter {letter}"), both))
        if letter in SMALL:
            found.append(Sign(letter, "small", (f"small {letter}", f"small letter {letter}"), both))
    found += [Sign(key, "symbol", (name,)) for key, name in SYMBOLS.items()]
    return found + [Sign(name, "shape", (name,)) for name in SHAPES]


def captions(classes: list[Sign]) -> list[list[Caption]]:
    """Every caption of every class."""
    cover: dict[str, set[int]] = {}
    for number, sign in enumerate(classes):
        for name in sign.names + sign.shared:
            cover.setdefault(name, set()).add(number)
    templates = [(-1, template) for template in NEUTRAL]
    templates += [(STYLES.index(style), template) for style, some in STYLED.items() for template in some]
    return [
        [
            Caption(template.format(name), style, frozenset(cover[name]))
            for name in sign.names + sign.shared
            for style, template in templates
        ]
        for sign in classes
    ]


# ------------------------------------------------------------------------------------------------------ the tokenizer
BOS, EOS = "<|startoftext|>", "<|endoftext|>"
# The pattern by which CLIP cuts text into words: single digits, letters, runs of anything else.
WORDS = r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
POSITIONS = 40


def byte_letters() -> list[str]:
    """One printable letter for each of the 256 bytes, in the order of CLIP's own vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + number) for number in range(len(rest))]


def merges(words: Counter[str]) -> list[tuple[str, str]]:
    """Byte pair merges, most frequent pair first, until every word is one token."""
    pieces = {word: [*word[:-1], word[-1] + "</w>"] for word in words}
    found: list[tuple[str, str]] = []
    while True:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in pieces.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        if not pairs:
            return found
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        found.append(best)
        for word, parts in pieces.items():
            joined: list[str] = []
            for part in parts:
                if joined and (joined[-1], part) == best:
                    joined[-1] += part
                else:
                    joined.append(part)
            pieces[word] = joined


def write_tokenizer(folder: Path, texts: list[str]) -> int:
    """Every file from which `transformers` 4 and 5 load a CLIP tokenizer; returns the size of the vocabulary."""
    words = Counter(word.strip(".") for text in texts for word in text.lower().split())
    pairs = merges(Counter({word: count for word, count in words.items() if len(word) > 1 and word.isalpha()}))
    letters = byte_letters()
    tokens = [*letters, *(letter + "</w>" for letter in letters)]
    tokens += dict.fromkeys(first + second for first, second in pairs)
    tokens += [BOS, EOS]  # the end has the highest number, where some versions of CLIP look for it
    vocabulary = {token: number for number, token in enumerate(tokens)}
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{first} {second}" for first, second in pairs]
    special = {"bos_token": BOS, "eos_token": EOS, "unk_token": EOS, "pad_token": EOS}

    def dump(name: str, content: object) -> None:
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines]) + "\n", encoding="utf-8")
    dump("special_tokens_map.json", special)
    dump(
        "tokenizer_config.json",
        {
            "tokenizer_class": "CLIPTokenizer",
            "model_max_length": POSITIONS,
            "do_lower_case": True,
            "add_prefix_space": False,
            "errors": "replace",
            **special,
        },
    )
    dump("tokenizer.json", _fast_tokenizer(vocabulary, lines))
    return len(tokens)


def _fast_tokenizer(vocabulary: dict[str, int], lines: list[str]) -> dict[str, object]:
    """The same as one file of the `tokenizers` library; merges are written as text, which every version reads."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    cut = {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Removed", "invert": True}
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocabulary[token], "content": token, **flags} for token in (BOS, EOS)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFC"},
                {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
                {"type": "Lowercase"},
            ],
        },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, letters]},
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": [EOS, vocabulary[EOS]],
            "cls": [BOS, vocabulary[BOS]],
            "trim_offsets": False,
            "add_prefix_space": False,
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": EOS,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "</w>",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": lines,
        },
    }


class Library(NamedTuple):
    """All captions as numbers: token rows, each row's style and the classes it is true of, and each class's rows."""

    tokens: NDArray[np.int64]  # rows x POSITIONS, padded with the end token
    lengths: NDArray[np.int64]
    covers: NDArray[np.bool_]  # rows x classes
    style: NDArray[np.int64]
    neutral: NDArray[np.int64]  # classes x n: rows; short lists repeat
    styled: NDArray[np.int64]  # classes x styles x n: rows
    filler: NDArray[np.int64]


def library(classes: list[Sign], tokenizer: object) -> Library:
    every = captions(classes)
    rows = [caption for some in every for caption in some]
    encoded = [tokenizer(caption.text)["input_ids"] for caption in rows]  # type: ignore[operator]
    end = encoded[0][-1]
    tokens = np.full((len(rows), POSITIONS), end, np.int64)
    for row, numbers in zip(tokens, encoded, strict=True):
        row[: len(numbers)] = numbers
    covers = np.zeros((len(rows), len(classes)), np.bool_)
    for row, caption in zip(covers, rows, strict=True):
        row[list(caption.covers)] = True
    style = np.array([caption.style for caption in rows])
    owner = np.repeat(np.arange(len(classes)), [len(some) for some in every])

    def table(wanted: int) -> NDArray[np.int64]:
        lists = [np.flatnonzero((owner == number) & (style == wanted)) for number in range(len(classes))]
        longest = max(map(len, lists))
        return np.stack([np.resize(some, longest) for some in lists])

    filler = np.array([tokenizer(word)["input_ids"][1] for word in FILLER])  # type: ignore[operator]
    styled = np.stack([table(number) for number in range(len(STYLES))], 1)
    lengths = np.array([len(numbers) for numbers in encoded])
    return Library(tokens, lengths, covers, style, table(-1), styled, filler)
