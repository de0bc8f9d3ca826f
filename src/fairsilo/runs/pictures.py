"""The pictures that a run keeps for its report, as they are read: examples of predicted masks, synthetic images."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

if TYPE_CHECKING:
    from torch import Tensor

EXAMPLES = "examples.safetensors"
SHEET = "synthetic.png"


@dataclass(frozen=True)
class Example:
    """One test image (C x H x W, uint8), its mask and the predicted one (H x W), and the Dice of the two."""

    place: str  # best, median or worst of the silo's test images
    dice: float
    image: Tensor
    truth: Tensor
    said: Tensor


@dataclass(frozen=True)
class Examples:
    """Those of one silo, by the model that the run's results are about: `global`, `adapted` or `personal`."""

    silo: str
    unseen: bool
    model: str
    images: tuple[Example, ...]


def read_examples(folder: Path) -> tuple[list[Examples], int]:
    """What `runs/examples.py` kept, and of how many silos nothing was; nothing where there is no such file."""
    if not (folder / EXAMPLES).exists():
        return [], 0
    from fairsilo.core.files import read_tree  # torch is imported where there are examples

    tree = read_tree(folder / EXAMPLES)
    silos = [Examples(**{**one, "images": tuple(Example(**each) for each in one["images"])}) for one in tree["silos"]]
    return silos, int(tree["left_out"])


class Sheet(NamedTuple):
    """The picture as a PNG, and whose images its rows are."""

    picture: bytes
    silos: tuple[str, ...]


def read_sheet(folder: Path) -> Sheet | None:
    """The run's sheet, where it has one."""
    path = folder / SHEET
    if not path.is_file():
        return None
    with Image.open(path) as image:
        silos = json.loads(image.info.get("silos", "[]"))
    return Sheet(path.read_bytes(), tuple(map(str, silos)))
