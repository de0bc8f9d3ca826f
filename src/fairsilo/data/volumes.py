"""Volumes as slices: NIfTI with masks by site and patient (extra `medical`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairsilo.data.about import found_folders, needs_package
from fairsilo.data.dataset import UNDECIDED, Dataset, Domain
from fairsilo.data.folder import visible
from fairsilo.data.reading import Stack
from fairsilo.errors import FairsiloError

QUANTILE = 0.99  # brighter than this share of a volume's voxels is white
ENDINGS = (".nii.gz", ".nii")


def prostate(folder: Path, stack: Stack, domains: Sequence[str]) -> Dataset:
    """SITE/Case00.nii.gz with SITE/Case00_segmentation.nii.gz; a site is a domain, a patient a group."""
    needs_package("nibabel", "medical", f"reading NIfTI files in {folder}")
    made = {name: _site(name, path, stack) for name, path in found_folders(folder, domains).items()}
    return Dataset(folder.name, ("background", "prostate"), made, task="segment")


def _site(name: str, folder: Path, stack: Stack) -> Domain:
    files = {_stem(file).lower(): file for file in visible(folder) if file.name.lower().endswith(ENDINGS)}
    masks: list[NDArray[np.uint8]] = []
    patients: list[int] = []
    cases = [stem for stem in files if not stem.endswith("_segmentation")]
    for number, stem in enumerate(cases):
        image = files[stem]
        if f"{stem}_segmentation" not in files:
            raise FairsiloError(f"volume {image} has no mask {_stem(image)}_segmentation.nii.gz beside it")
        outline = files[f"{stem}_segmentation"]
        for place, pixels, mask in slices(image, outline):
            stack.add(pixels, f"slice {place} of {image}", (mask.shape[0], mask.shape[1]))
            masks.append(stack.mask(mask))
            patients.append(number)
    if not masks:
        raise FairsiloError(f"{folder} has no NIfTI volume with a slice that its mask marks")
    if any(mask.shape != masks[0].shape for mask in masks):
        raise FairsiloError(f"the slices in {folder} differ in size; size=128 would resize all of them")
    undecided = torch.full((len(masks),), UNDECIDED, dtype=torch.int8)
    return Domain(name, stack.take(), torch.from_numpy(np.stack(masks)), undecided, torch.tensor(patients))


def slices(image: Path, outline: Path) -> list[tuple[int, NDArray[np.uint8], NDArray[np.uint8]]]:
    """The slices that the mask marks: number, pixels (the slice before, it, and the one after) and mask.

    Intensities above the volume's 99 % quantile are white; the first slice is its own predecessor, and so at the end.
    """
    volume, marked = _volume(image), _volume(outline)
    if volume.shape != marked.shape:
        ours, theirs = ("x".join(map(str, one.shape)) for one in (volume, marked))
        raise FairsiloError(f"volume {image} is {ours} and its mask {outline} is {theirs}; they must have one shape")
    low, high = float(volume.min()), float(np.quantile(volume, QUANTILE))
    scaled = ((volume - low) / max(high - low, 1e-12)).clip(0, 1) * 255
    grey = scaled.round().astype(np.uint8)
    last = volume.shape[2] - 1
    found = []
    for place in range(last + 1):
        mask = (marked[:, :, place] > 0).astype(np.uint8)
        if mask.any():
            around = [max(place - 1, 0), place, min(place + 1, last)]
            # rows of a picture run along the volume's second axis
            found.append((place, np.ascontiguousarray(grey[:, :, around].transpose(1, 0, 2)), mask.T.copy()))
    return found


def _volume(file: Path) -> NDArray[np.float64]:
    import nibabel

    try:
        loaded: Any = nibabel.load(file)
        values = np.asarray(loaded.dataobj, np.float64)
    except Exception as problem:  # a damaged file raises anything
        raise FairsiloError(f"{file} is no intact NIfTI volume ({type(problem).__name__}: {problem})") from problem
    if values.ndim == 4 and values.shape[3] == 1:
        values = values[..., 0]
    if values.ndim != 3 or not np.isfinite(values).all():
        raise FairsiloError(f"{file} must be a volume of three dimensions with finite values, not {values.shape}")
    return values


def _stem(file: Path) -> str:
    return next(file.name[: -len(ending)] for ending in ENDINGS if file.name.lower().endswith(ending))
