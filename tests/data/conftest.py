"""Small images and one build of the embedded data set, shared by the tests of the readers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import MakeFolder, picture

from fairsilo.data.dataset import Dataset


@pytest.fixture(scope="session")
def federation() -> Dataset:
    """The embedded data set, built once."""
    from fairsilo.data.glyphs import glyphs

    return glyphs()


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """Writes domain/class/image files; every image is one grey level, so that a test can tell them apart."""

    def make(
        domains: tuple[str, ...] = ("north", "south"), classes: tuple[str, ...] = ("cat", "dog"), each: int = 2
    ) -> Path:
        root = tmp_path / "images"
        for place, domain in enumerate(domains):
            for label, name in enumerate(classes):
                (root / domain / name).mkdir(parents=True)
                for number in range(each):
                    level = 100 * place + 10 * label + number
                    picture(level).save(root / domain / name / f"{number}.png")
        return root

    return make
