"""The sample of laws that `make test` runs leaves out no entry of the catalogue and no law."""

from __future__ import annotations

from collections import Counter
from typing import Any

import sampling
import test_laws
import tiny


def entries_of(law: str) -> list[str]:
    """What a law is parametrised with."""
    marks: list[Any] = getattr(test_laws, law).pytestmark
    (values,) = (mark.args[1] for mark in marks if mark.args[0] == "how")
    return list(values)


def test_every_entry_comes_at_least_once_and_every_law_on_several() -> None:
    taken = {law: [how for how in entries_of(law) if sampling.chosen(law, how)] for law in sampling.LAWS}
    seen = Counter(how for entries in taken.values() for how in entries)
    assert set(seen) == set(tiny.ALL)
    assert min(len(entries) for entries in taken.values()) >= 8
    on_backbones = {law: len(set(entries) & set(tiny.ON_BACKBONES)) for law, entries in taken.items()}
    del on_backbones["test_the_model_its_results_are_about_improves"]  # random backbones teach little
    assert min(on_backbones.values()) >= 2


def test_every_law_over_the_catalogue_is_sampled() -> None:
    over_all = {
        name
        for name, law in vars(test_laws).items()
        if name.startswith("test_")
        and any(mark.name == "parametrize" and mark.args[0] == "how" for mark in getattr(law, "pytestmark", ()))
        and len(entries_of(name)) > len(tiny.ALL) // 2
    }
    assert over_all == set(sampling.LAWS)
