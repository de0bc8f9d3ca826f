"""DICOM files as pictures (extra `medical`): scaled by their window or their bits, with patient, sex and scanner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairsilo.data.about import needs_package
from fairsilo.errors import FairsiloError

SUFFIX = ".dcm"
# attribute -> the keyword of its element
COLUMNS = {"sex": "PatientSex", "scanner": "ManufacturerModelName"}


def is_dicom(file: Path) -> bool:
    """Whether a file is read as DICOM: by its name; or, where that ends in no word, as in exports, by its beginning."""
    if file.suffix.lower() == SUFFIX or file.suffix[1:].isalpha():
        return file.suffix.lower() == SUFFIX
    with file.open("rb") as content:
        return content.read(132)[128:] == b"DICM"


def pixels_of(file: Path) -> NDArray[np.uint8]:
    """One image: height x width, or height x width x 3.

    Grey values go through the rescaling and the first window that the file names; without a window, from the least to
    the largest value that its stored bits can have. MONOCHROME1 is turned round, so that more is brighter.

    Raises:
        FairsiloError: It is no DICOM image, or one of several frames, or compressed in a way that needs more packages.
    """
    header = _read(file, pixels=True)
    try:
        values = np.asarray(header.pixel_array)
    except Exception as problem:  # by compression, pydicom may need packages of its own, and damage raises anything
        raise FairsiloError(f"{file} has no pixels that can be read ({problem})") from problem
    kind = str(header.get("PhotometricInterpretation", "MONOCHROME2"))
    if values.ndim == 3 and values.shape[2] == 3 and values.dtype == np.uint8 and kind == "RGB":
        return values
    if values.ndim != 2 or not kind.startswith("MONOCHROME"):
        raise FairsiloError(f"{file} is {kind} of shape {values.shape}; only single grey or RGB images are read")
    bits, signed = int(header.get("BitsStored", 8)), bool(header.get("PixelRepresentation", 0))
    slope, intercept = float(header.get("RescaleSlope", 1)), float(header.get("RescaleIntercept", 0))
    least = -(2 ** (bits - 1)) if signed else 0
    low, high = (slope * end + intercept for end in (least, least + 2**bits - 1))
    centre, width = _first(header, "WindowCenter"), _first(header, "WindowWidth")
    if centre is not None and width:
        low, high = centre - width / 2, centre + width / 2
    grey = ((slope * values + intercept - low) / (high - low)).clip(0, 1)
    if kind == "MONOCHROME1":
        grey = 1 - grey
    return np.asarray((grey * 255).round(), np.uint8)


def facts_of(files: Sequence[Path]) -> tuple[list[str], dict[str, list[str]]]:
    """The patient of each file, and what else the headers say of them: sex and scanner, as far as any does."""
    headers = [header_of(file) for file in files]
    patients = [patient_in(one) or str(file) for one, file in zip(headers, files, strict=True)]
    columns = {name: [str(one.get(key, "") or "unknown") for one in headers] for name, key in COLUMNS.items()}
    return patients, {name: values for name, values in columns.items() if set(values) != {"unknown"}}


def header_of(file: Path) -> Any:
    """All but the pixels."""
    return _read(file, pixels=False)


def patient_in(header: Any) -> str:
    """Who an image is of; where names were taken out, the study that it is part of."""
    return str(header.get("PatientID", "") or header.get("StudyInstanceUID", "") or "")


def _read(file: Path, pixels: bool) -> Any:
    needs_package("pydicom", "medical", f"reading {file}")
    import pydicom

    try:
        return pydicom.dcmread(file, stop_before_pixels=not pixels)
    except Exception as problem:  # a file that is none raises anything
        raise FairsiloError(f"{file} is no DICOM file ({problem})") from problem


def _first(header: Any, key: str) -> float | None:
    value = header.get(key)
    if value is None or value == "":
        return None
    return float(value[0] if isinstance(value, list | tuple) or hasattr(value, "append") else value)
