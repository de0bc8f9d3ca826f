"""Texts as windows of characters: what comes next after eighty of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fairsilo.core.samples import Windows
from fairsilo.data.dataset import UNDECIDED, Domain

LENGTH = 80  # characters that are shown
# LEAF's eighty: newline, space, then in ASCII's order what the plays are printed with
VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
UNKNOWN = VOCABULARY.index(" ")  # a character that is none of them counts as a space

_CODES = np.full(0x110000, UNKNOWN, np.uint8)
_CODES[[ord(one) for one in VOCABULARY]] = np.arange(len(VOCABULARY))


def codes_of(text: str) -> torch.Tensor:
    """The text as numbers of the vocabulary (uint8), one per character."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return torch.from_numpy(_CODES[points])


def one_line(text: str) -> str:
    """As LEAF prepares the plays: line ends become spaces, and runs of spaces one."""
    return " ".join(piece for piece in text.replace("\n", " ").split(" ") if piece)


def text_domain(name: str, text: str) -> Domain | None:
    """Every eighty characters in a row and the one after them; None where the text is too short for one."""
    codes = codes_of(one_line(text))
    count = len(codes) - LENGTH
    if count < 1:
        return None
    return _domain(name, codes, torch.arange(count), codes[LENGTH:], [UNDECIDED] * count)


def windows_domain(name: str, shown: Sequence[str], following: Sequence[str], split: Sequence[int]) -> Domain:
    """Windows that somebody cut already, each of eighty characters; where one goes on from the last, they overlap."""
    pieces: list[str] = []
    starts: list[int] = []
    end, last = 0, ""
    for text in shown:
        overlap = LENGTH - 1 if last and text[:-1] == last[1:] else 0
        pieces.append(text[overlap:])
        starts.append(end - overlap)
        end, last = end + LENGTH - overlap, text
    codes = codes_of("".join(pieces))
    return _domain(name, codes, torch.tensor(starts), codes_of("".join(following)), split)


def _domain(
    name: str, codes: torch.Tensor, starts: torch.Tensor, following: torch.Tensor, split: Sequence[int]
) -> Domain:
    windows = Windows(codes, starts, LENGTH)
    return Domain(name, windows, following.long(), torch.tensor(split, dtype=torch.int8))
