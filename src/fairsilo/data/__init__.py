"""Data sets: embedded, public and of other packages by name, and images from folders, indexes and packed files.

Nothing heavy is imported here; a reader is imported when it is called for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairsilo.data import datasets, embedded
from fairsilo.data.embedded import DATASETS
from fairsilo.errors import FairsiloError, nearest
from fairsilo.plugins import called, found_by, is_reference, registered

# what leaves a silo where images in its style are made with one
TOKEN = "a textual-inversion token of its style, made from some of its images (ten a class in the paper)"

if TYPE_CHECKING:
    from fairsilo.data.dataset import Dataset

GROUP = "fairsilo.datasets"
INDEX_SUFFIXES = (".csv", ".json", ".gz")


def has_name(name: str) -> bool:
    """Whether a data set is known by this name: embedded, public, or offered by an installed package."""
    return name in DATASETS or is_public(name) or name in registered(GROUP)


def is_public(name: str) -> bool:
    """Whether it is a public data set, which is looked for under `data.root`."""
    return name in datasets.names()


def refuse_unknown(name: str) -> None:
    """Refuse the name of a data set that does not exist."""
    if not has_name(name) and not is_reference(name):
        raise FairsiloError(f"unknown data set {name!r}{nearest(name, all_datasets())}")


def domains_of(name: str) -> tuple[str, ...]:
    """The domains of a data set that comes along, or of a public one, as far as they are known without its files."""
    return embedded.DOMAINS.get(name) or (tuple(datasets.about(name).domains) if is_public(name) else ())


def all_datasets() -> dict[str, str]:
    """Name -> what it shows: the embedded data sets, public ones, and those that installed packages offer."""
    others = {name: f"of the package {point.module}" for name, point in registered(GROUP).items()}
    return DATASETS | {name: datasets.about(name).shows for name in datasets.names()} | others


def names_code(name: str) -> bool:
    """Whether loading this data set imports code that the name itself points to."""
    return not has_name(name) and is_reference(name)


def load(
    name: str | None = None,
    folder: str | None = None,
    index: str | None = None,
    packed: str | None = None,
    size: int | None = None,
    seed: int = 0,
    domains: Sequence[str] | None = None,
    fit: str = "squeeze",
    root: str | None = None,
    least: int = 2,
) -> Dataset:
    """The data set of exactly one source, resized if a size is given, with all or only the named domains.

    Args:
        name: An embedded data set, a public one that is found under the root, one that an installed package offers
            (entry points of the group `fairsilo.datasets`), or `package:function`. The function is called with the size
            (None: as the images are) and the seed, and returns a `fairsilo.data.dataset.Dataset`.
        folder: Images as FOLDER/domain/class/*.png, or with masks as FOLDER/domain/images and FOLDER/domain/masks; or
            an index.
        index: A CSV or JSON file of images, a JSON object of role -> text, or a CSV file of numbers.
        packed: A folder with one .npz per domain.
        size: Height and width in pixels.
        seed: Of what is rendered.
        domains: The domains to use, or how many of them are drawn by the seed (`["31"]`); by default all.
        fit: How images that are not square become square where a size is given: squeeze, crop or pad.
        root: The folder where public data sets are; by default what the environment variable FAIRSILO_DATA says.
        least: How many domains an index or a table must have: two where one is held out, one where it is a silo's own.
    """
    sources = {"name": name, "folder": folder, "index": index, "packed": packed}
    given = {key: value for key, value in sources.items() if value is not None}
    if len(given) != 1:
        listed = ", ".join(f"{key}={value!r}" for key, value in given.items()) or "none"
        raise FairsiloError(f"Data need exactly one of name, folder, index and packed, but given: {listed}.")
    (kind, value), *_ = given.items()
    if kind == "folder" and Path(value).suffix.lower() in INDEX_SUFFIXES and not Path(value).is_dir():
        kind = "index"
    if kind == "packed":
        from fairsilo.data.packed import read_packed

        drawn = domains is not None and is_number(domains)
        dataset = read_packed(Path(value), size, None if drawn else domains, fit)
        return _chosen(dataset, domains, seed) if drawn else dataset
    dataset = _named(value, size, seed, fit, root) if kind == "name" else _read(kind, Path(value), size, fit, least)
    return _chosen(dataset, domains, seed)


def is_number(domains: Sequence[str]) -> bool:
    """Whether a choice of domains says how many are drawn, instead of which."""
    return len(domains) == 1 and domains[0].isdecimal()


def _chosen(dataset: Dataset, domains: Sequence[str] | None, seed: int) -> Dataset:
    """The data set with some of its domains, by name or drawn."""
    if domains is None:
        return dataset
    from fairsilo.data.reading import draw, restrict

    drawn = is_number(domains) and domains[0] not in dataset.domains
    return restrict(dataset, draw(dataset, int(domains[0]), seed) if drawn else domains)


def _named(name: str, size: int | None, seed: int, fit: str, root: str | None) -> Dataset:
    if name in DATASETS:
        from fairsilo.data.glyphs import glyphs

        return glyphs(seed) if size is None else glyphs(seed, size)
    if is_public(name):
        from fairsilo.data.reading import Stack

        return datasets.read(name, root, Stack(size, fit))
    refuse_unknown(name)
    return _foreign(name, size, seed)


def _foreign(name: str, size: int | None, seed: int) -> Dataset:
    """What the function of another package returns."""
    from fairsilo.data.dataset import Dataset

    made = called(found_by(GROUP, name, "data set"), (size, seed), f"data set {name!r}", "(size, seed)")
    if not isinstance(made, Dataset):
        raise FairsiloError(
            f"data set {name!r} gave a {type(made).__name__}; it must return a fairsilo.data.dataset.Dataset"
        )
    return made


def _read(kind: str, path: Path, size: int | None, fit: str, least: int) -> Dataset:
    """Images with labels; or, by what the path looks like, images with masks, texts by role or rows of numbers."""
    from fairsilo.data.folder import read_folder, read_index
    from fairsilo.data.layouts import has_masks, mask_folders
    from fairsilo.data.plays import has_roles, own_texts
    from fairsilo.data.reading import Stack, check_domains
    from fairsilo.data.table import is_table, read_table

    if kind == "index" and is_table(path):
        return read_table(path, least)
    if kind == "index":
        return own_texts(path) if has_roles(path) else read_index(path, size, fit, least)
    if not has_masks(path):
        return read_folder(path, size, fit)
    masked = mask_folders(path, Stack(size, fit))
    check_domains(masked.domains, f"Data folder {path}")
    return masked
