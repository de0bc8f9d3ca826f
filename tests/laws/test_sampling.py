"""The sample of laws that `make test` runs leaves out no entry of the catalogue and no law."""

from __future__ import annotations

from collections import Counter
from typing import Any

import sampling
import test_attachments
import test_laws
import test_no_ops
import test_other_tasks
import test_recording
import tiny

LAWS: dict[str, Any] = {
    **vars(test_laws),
    **vars(test_attachments),
    **vars(test_no_ops),
    **vars(test_other_tasks),
    **vars(test_recording),
}


def entries_of(law: str) -> list[str]:
    """The methods that a test is parametrised with; none where it is about no method."""
    marks = [mark for mark in getattr(LAWS[law], "pytestmark", ()) if mark.name == "parametrize"]
    given = [how for mark in marks if mark.args[0] in ("how", "name") for how in mark.args[1]]
    alone = [how if isinstance(how, str) else how.values[0] for how in given]  # some are marked slow
    of_tasks = [how for mark in marks if mark.args[0] == ("task", "how") for _, how in mark.args[1]]
    return list(dict.fromkeys([*alone, *of_tasks]))


def test_every_entry_comes_at_least_once_and_every_law_on_several() -> None:
    taken = {law: [how for how in entries_of(law) if sampling.chosen(law, how)] for law in sampling.LAWS}
    seen = Counter(how for entries in taken.values() for how in entries)
    assert set(seen) == set(tiny.ALL)
    few = {law: len(entries) for law, entries in taken.items() if len(entries) < 6}
    assert not few, "a new entry moves the others; a smaller number for these laws in tests/sampling.py takes more"
    on_backbones = {law: len(set(entries) & set(tiny.ON_BACKBONES)) for law, entries in taken.items()}
    for law in sampling.LAWS:  # random backbones teach little, and are for images
        if "improves" in law or "every_task" in law:
            del on_backbones[law]
    assert min(on_backbones.values()) >= 2


def test_every_law_over_the_catalogue_is_sampled() -> None:
    tests = {name for name in LAWS if name.startswith("test_") and callable(LAWS[name])}
    over_many = {name for name in tests if len(entries_of(name)) > len(tiny.ALL) // 3}
    assert over_many == set(sampling.LAWS)
