"""Fixtures shared by all tests, and which laws run; torch runs at one thread, as silos do."""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

import sampling
import tiny
from fairsilo.data.federation import Federation
from fairsilo.engine.processes import Pool

torch.set_num_threads(1)


def pytest_configure() -> None:
    """What is read once in a process, so that it must not begin in the middle of a test.

    A console made while COLUMNS is set keeps that width; Triton asks when it is imported whether its interpreter runs
    kernels.
    """
    os.environ.pop("COLUMNS", None)
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    importlib.import_module("fairsilo.cli.output")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rest",
        action="store_true",
        help="run what `make test` leaves out: laws on the other entries of the catalogue, and tests marked slow",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the sample, or the rest of it, unless something is asked for by name."""
    by_name = config.option.keyword or config.option.markexpr or any("::" in one for one in config.args)
    if by_name:
        return
    places: Counter[str] = Counter()  # which case of a test comes next
    wanted = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        here = _in_sample(item, places[test]) != config.option.rest
        wanted.append(here and not item.get_closest_marker("deploy"))
        places[test] += 1
    config.hook.pytest_deselected(items=[item for item, here in zip(items, wanted, strict=True) if not here])
    items[:] = [item for item, here in zip(items, wanted, strict=True) if here]
    if config.option.rest:  # minutes first: what is left at the end is short, and no process waits for another
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _in_sample(item: pytest.Item, place: int) -> bool:
    if item.get_closest_marker("slow"):
        return False
    if one_in := item.get_closest_marker("one_in"):
        return place % int(one_in.args[0]) == 0
    law = getattr(item, "originalname", "")
    if law not in sampling.LAWS:
        return True
    given = item.callspec.params  # type: ignore[attr-defined]
    return sampling.chosen(law, given["how"] if "how" in given else given["name"])


@pytest.fixture(scope="session")
def people() -> Federation:
    return tiny.federation()


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Two workers for the whole session: starting them is what costs."""
    workers = Pool(2)
    yield workers
    workers.close()


@pytest.fixture
def plain_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Without oneDNN, whose set-up of each layer takes longer than a tiny network's arithmetic.

    Workers have it, and other kernels round otherwise: a test that compares with them keeps it.
    """
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = before and "pool" in request.fixturenames
    yield
    torch.backends.mkldnn.enabled = before
