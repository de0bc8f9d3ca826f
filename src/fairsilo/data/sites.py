"""Segmentation by site, in the folders of the collections: lung fields and retinal vessels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairsilo.data.about import found_folders
from fairsilo.data.dataset import Dataset, Domain
from fairsilo.data.folder import visible
from fairsilo.data.layouts import outlined, pairs_in
from fairsilo.data.reading import Stack
from fairsilo.errors import FairsiloError

Pairs = list[tuple[Path, list[Path]]]


def lungs(folder: Path, stack: Stack, domains: Sequence[str]) -> Dataset:
    """Montgomery has a mask for each lung, Shenzhen one for both; JSRT as images and masks of equal names."""
    found: dict[str, Pairs] = {}
    montgomery, shenzhen = folder / "MontgomerySet", folder / "ChinaSet_AllFiles"
    if montgomery.is_dir():
        masks = [montgomery / "ManualMask" / side for side in ("leftMask", "rightMask")]
        found["montgomery"] = [
            (file, [_beside(file, mask / file.name) for mask in masks])
            for file in _with(montgomery / "CXR_png", ".png")
        ]
    if shenzhen.is_dir():
        # some X-rays have no mask in the release
        masks_of = {file.stem.removesuffix("_mask"): file for file in _with(shenzhen / "mask", ".png")}
        images = _with(shenzhen / "CXR_png", ".png")
        found["shenzhen"] = [(file, [masks_of[file.stem]]) for file in images if file.stem in masks_of]
    for name in domains:
        if name not in found and (folder / name / "images").is_dir():
            found[name] = pairs_in(folder / name / "images", folder / name / "masks")
    return _dataset(folder, {name: found[name] for name in domains if name in found}, stack, "lung")


def vessels(folder: Path, stack: Stack) -> Dataset:
    """The first expert's outlines of each collection; both eyes of one person stay in one split (CHASE-DB1)."""
    found: dict[str, Pairs] = {}
    groups: dict[str, list[str]] = {}
    places = found_folders(folder, ("drive|DRIVE", "stare|STARE", "chasedb1|CHASE_DB1|CHASEDB1"))
    if "drive" in places:
        found["drive"] = [
            (file, [_beside(file, part / "1st_manual" / f"{file.stem.split('_')[0]}_manual1.gif")])
            for part in (places["drive"] / "training", places["drive"] / "test")
            if (part / "1st_manual").is_dir()
            for file in _with(part / "images", ".tif")
        ]
    if "stare" in places:
        outlines = {file.name.split(".")[0]: file for file in sorted(places["stare"].rglob("*.ah.ppm"))}
        images = [file for file in sorted(places["stare"].rglob("im*.ppm")) if file.name.count(".") == 1]
        found["stare"] = [(file, [outlines[file.stem]]) for file in images if file.stem in outlines]
    if "chasedb1" in places:
        images = _with(places["chasedb1"], ".jpg")
        found["chasedb1"] = [(file, [_beside(file, file.with_name(f"{file.stem}_1stHO.png"))]) for file in images]
        groups["chasedb1"] = [file.stem[:-1] for file in images]
    return _dataset(folder, found, stack, "vessel", groups)


def _dataset(
    folder: Path, found: dict[str, Pairs], stack: Stack, inside: str, groups: dict[str, list[str]] | None = None
) -> Dataset:
    made: dict[str, Domain] = {}
    for name, pairs in found.items():
        made[name] = outlined(name, pairs, stack, group=(groups or {}).get(name))
    return Dataset(folder.name, ("background", inside), made, task="segment")


def _with(folder: Path, suffix: str) -> list[Path]:
    if not folder.is_dir():
        raise FairsiloError(f"{folder} does not exist; the collection is not complete")
    return [file for file in visible(folder) if file.suffix.lower() == suffix]


def _beside(image: Path, mask: Path) -> Path:
    if not mask.is_file():
        raise FairsiloError(f"image {image} has no mask {mask}")
    return mask
