"""The conversion of a public data set into mapped files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fairsilo.data import datasets
from fairsilo.data.prepared import Progress, prepared_folder, verify, write_prepared
from fairsilo.data.reading import Stack
from fairsilo.errors import FairsiloError


def prepare(
    name: str, source: str | None, root: str | None, size: int | None, fit: str, progress: Progress | None = None
) -> Path:
    """Convert a data set once into memory-mapped files under the root, and verify them.

    Args:
        name: A public data set.
        source: The folder that has it, in any of its forms, or `hub:OWNER/NAME`; by default where it is found.
        root: Where it is written to (ROOT/prepared/...), and looked for.
        size: Height and width in pixels; by default as the images are, which then must have one size.
        fit: How images that are not square become square.
        progress: Called with domain, samples done and samples in all.

    Raises:
        FairsiloError: Nothing is found, or a sample cannot be read; nothing is then left behind.
    """
    where = datasets.root_of(root)
    if where is None:
        raise FairsiloError(
            f"say where the prepared data are to lie: --root FOLDER, or the environment variable {datasets.VARIABLE}"
        )
    stack = Stack(size, fit, later=True)
    if source is not None and source.startswith("hub:"):
        from fairsilo.data.hub import read_hub

        dataset = replace(read_hub(source.removeprefix("hub:"), stack), name=name)
    else:
        place = Path(source).expanduser() if source is not None else where
        found = datasets.located(name, place)
        if found is None:
            raise FairsiloError(datasets.missing(name, place))
        dataset = datasets.read_from(name, *found, stack)
    folder = prepared_folder(where, name, size, fit)
    write_prepared(dataset, folder, progress)
    verify(folder)
    return folder
