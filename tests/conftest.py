"""Fixtures shared by all tests; torch runs at one thread, as silos do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import tiny
from fairsilo.data.federation import Federation
from fairsilo.engine.processes import Pool

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def people() -> Federation:
    return tiny.federation()


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Two workers for the whole session: starting them is what costs."""
    workers = Pool(2)
    yield workers
    workers.close()
