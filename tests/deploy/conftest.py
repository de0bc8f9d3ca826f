"""One real federation for all tests of deployment: making its certificates and starting it costs most of a minute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from system import System


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    pytest.importorskip("nvflare", reason="needs the package nvflare: pip install 'fairsilo[flare]'")
    made = System(tmp_path_factory.mktemp("deployed"))
    made.tend()
    try:
        yield made
    finally:
        made.down()
