"""Windows of a text: what is shown, what follows, and what the eighty characters are."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest
import torch

from fairsilo.core.samples import Split, Windows
from fairsilo.data.dataset import TEST, TRAIN
from fairsilo.data.text import LENGTH, UNKNOWN, VOCABULARY, codes_of, one_line, text_domain, windows_domain
from fairsilo.errors import FairsiloError

SHARED = Path(__file__).parents[3] / "shared" / "data" / "shakespeare"


def read(codes: torch.Tensor) -> str:
    return "".join(VOCABULARY[code] for code in codes.tolist())


def test_the_vocabulary_has_eighty_characters_each_once() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 80
    assert read(codes_of(VOCABULARY)) == VOCABULARY


def test_a_character_outside_counts_as_a_space() -> None:
    assert read(codes_of("a\u00e9\U0001f600b")) == "a  b"
    assert VOCABULARY[UNKNOWN] == " "


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data/shakespeare")
def test_the_plays_need_no_other_character() -> None:
    roles = json.loads(gzip.decompress((SHARED / "roles.json.gz").read_bytes()))
    assert set("".join(roles.values())) <= set(VOCABULARY)


def test_line_ends_and_runs_of_spaces_become_one_space() -> None:
    assert one_line("To be,\n  or  not\nto be ") == "To be, or not to be"


def test_every_position_is_a_sample_and_the_next_character_its_target() -> None:
    text = "".join(VOCABULARY[2 + i % 70] for i in range(LENGTH + 3))
    domain = text_domain("ham", text)
    assert domain is not None
    assert len(domain) == 3
    inputs, targets = domain.samples.take([2, 0])
    assert inputs.dtype == targets.dtype == torch.int64
    assert read(inputs[0]) == text[2 : 2 + LENGTH]
    assert read(inputs[1]) == text[:LENGTH]
    assert read(targets) == text[LENGTH + 2] + text[LENGTH]


def test_a_text_of_eighty_characters_has_no_sample() -> None:
    assert text_domain("short", "x" * LENGTH) is None
    assert text_domain("just", "x" * (LENGTH + 1)) is not None


def test_windows_that_go_on_share_their_characters() -> None:
    text = "".join(VOCABULARY[2 + i % 70] for i in range(LENGTH + 2))
    shown = [text[:LENGTH], text[1 : LENGTH + 1], "z" * LENGTH, text[2 : LENGTH + 2]]
    domain = windows_domain("ham", shown, "abcd", [TRAIN, TRAIN, TEST, TRAIN])
    inputs, targets = domain.samples.take(range(4))
    assert [read(row) for row in inputs] == shown
    assert read(targets) == "abcd"
    assert domain.split.tolist() == [TRAIN, TRAIN, TEST, TRAIN]
    assert isinstance(domain.inputs, Windows)
    assert len(domain.inputs.codes) == 3 * LENGTH + 1


def test_windows_travel_to_another_process_and_stay_inside_the_text() -> None:
    windows = Windows(torch.arange(10, dtype=torch.uint8), torch.tensor([0, 5]), 4)
    windows.share_memory()
    again = pickle.loads(pickle.dumps(Split(windows, torch.tensor([4, 9]))))  # noqa: S301 - what this test wrote
    assert again.take([1])[0].tolist() == [[5, 6, 7, 8]]
    assert again.shape == (4,)
    Windows(torch.arange(10), torch.tensor([6]), 4)
    for start in (7, -1):
        with pytest.raises(FairsiloError, match="the text has 10 characters"):
            Windows(torch.arange(10), torch.tensor([start]), 4)
