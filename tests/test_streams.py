"""Random streams: fixed by what they are for, and leaving the global state alone."""

from __future__ import annotations

import traceback

import pytest
import torch

from fairsilo.core import streams


def draws(seed: int, *purpose: object) -> list[float]:
    return torch.rand(4, generator=streams.generator(seed, *purpose)).tolist()


def test_the_same_key_gives_the_same_draws() -> None:
    assert draws(3, 1, "a", "order", 0) == draws(3, 1, "a", "order", 0)


@pytest.mark.parametrize(
    "other", [(4, 1, "a", "order"), (3, 2, "a", "order"), (3, 1, "b", "order"), (3, 1, "a", "augment"), (3, 1, "a")]
)
def test_another_seed_round_silo_or_purpose_gives_other_draws(other: tuple[int, object]) -> None:
    assert draws(*other) != draws(3, 1, "a", "order")


def test_words_of_a_purpose_do_not_run_together() -> None:
    assert streams.key(1, "ab", "c") != streams.key(1, "a", "bc")
    assert streams.key(11, "a") != streams.key(1, "1", "a")
    assert streams.key(1, 1) != streams.key(11)


def test_keys_are_the_same_on_every_machine() -> None:
    # the first eight bytes of sha256("0"), less the lowest bit
    assert streams.key(0) == 0x5FECEB66FFC86F38 >> 1


def test_keys_fit_a_generator() -> None:
    assert all(0 <= streams.key(seed, "x") < 2**63 for seed in range(200))


def test_drawing_from_a_stream_leaves_the_global_one_alone() -> None:
    before = torch.random.get_rng_state()
    draws(0, "anything")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_ambient_sets_the_global_stream_by_the_key_alone() -> None:
    found = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        with streams.ambient(7, "dropout"):
            found.append(torch.rand(3).tolist())
    assert found[0] == found[1]
    with streams.ambient(7, "other"):
        assert torch.rand(3).tolist() != found[0]


def test_seeding_leaves_no_note_for_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own seeding keeps the stack as text for each of them, which takes a millisecond or more."""
    noted = []
    monkeypatch.setattr(traceback, "format_stack", lambda *_: noted.append("note") or [])
    with streams.ambient(7, "dropout"):
        one = torch.rand(3)
    assert noted == [] or torch.cuda.is_available()
    torch.manual_seed(streams.key(7, "dropout"))
    assert torch.equal(torch.rand(3), one)
    assert noted or torch.cuda.is_initialized()


def test_ambient_restores_the_global_stream() -> None:
    torch.manual_seed(5)
    expected = torch.rand(6)
    torch.manual_seed(5)
    first = torch.rand(3)
    with streams.ambient(0, "inside"):
        torch.rand(100)
    assert torch.equal(torch.cat([first, torch.rand(3)]), expected)


def test_ambient_restores_the_global_stream_after_an_exception() -> None:
    before = torch.random.get_rng_state()
    with pytest.raises(ZeroDivisionError), streams.ambient(0, "inside"):
        torch.rand(1 // 0)
    assert torch.equal(torch.random.get_rng_state(), before)
