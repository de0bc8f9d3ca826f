"""Numbers stay as they were: every method finds what was recorded before the core was changed."""

from __future__ import annotations

import json

import pytest

import records

KEPT = json.loads(records.FILE.read_text())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", records.NAMES)
def test_numbers_are_those_that_were_recorded(how: str) -> None:
    kept = KEPT["methods"][how]
    machine = kept.get("machine", KEPT["machine"])
    if how in records.ON_BACKBONES and machine != records.machine():
        pytest.skip(f"float32 numbers of a random backbone, recorded on {machine}")
    found = records.record(how)
    if how in records.NOISY and machine != records.machine():
        found, kept = records.first_round(found), records.first_round(kept)
    assert not records.differences(found, kept, 1e-6)


def test_a_difference_is_found() -> None:
    kept = KEPT["methods"]["fedavg"]
    changed = {**kept, "norms": [value * (1 + 1e-5) for value in kept["norms"]]}
    assert records.differences(changed, kept, 1e-6)
    assert records.differences({**kept, "losses": kept["losses"][:-1]}, kept, 1e-6)
