"""Images so plain that a test can tell them apart by one pixel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

MakeFolder = Callable[..., Path]


def picture(level: int, width: int = 8, height: int = 8) -> Image.Image:
    """A grey image of one level."""
    return Image.fromarray(np.full((height, width), level, np.uint8))
