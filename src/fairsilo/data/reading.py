"""What every reader of files shares: decoding one image, equal sizes, at least two domains, classes in order."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from fairsilo.data.dataset import Dataset
from fairsilo.errors import FairsiloError, nearest

Pixels = NDArray[np.uint8]  # height x width x 3
LARGEST = 4096  # pixels a side; more is a mistake in a uint8 tensor held in memory
# What Pillow's decoders raise on damaged files, besides OSError.
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error)


class Stack:
    """Images collected in order, all of one size whether resized or not."""

    def __init__(self, size: int | None) -> None:
        if size is not None and not 1 <= size <= LARGEST:
            raise FairsiloError(f"Image size is {size}, but must lie between 1 and {LARGEST} pixels.")
        self.size = size
        self.first: tuple[str, tuple[int, ...]] | None = None
        self.images: list[Pixels] = []

    def add(self, source: Path | bytes, name: str) -> None:
        """Decode one image; `name` is what an error calls it."""
        pixels = decode(source, name, self.size)
        if self.first is None:
            self.first = (name, pixels.shape)
        elif pixels.shape != self.first[1]:
            raise FairsiloError(
                f"Images must have one size, but {self.first[0]} is {_dimensions(self.first[1])} and {name} "
                f"is {_dimensions(pixels.shape)} pixels; size=32 would resize all of them to 32 x 32."
            )
        self.images.append(pixels)

    def take(self) -> Tensor:
        """What was added since the last call, as N x 3 x height x width; the size stays binding."""
        batch = torch.from_numpy(np.stack(self.images)).permute(0, 3, 1, 2).contiguous()
        self.images = []
        return batch


def decode(source: Path | bytes, name: str, size: int | None) -> Pixels:
    """One image as RGB bytes, resized to a square if a size is given."""
    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source) as image:
            colour = _as_rgb(image)
            if size is not None and colour.size != (size, size):
                colour = colour.resize((size, size), Image.Resampling.BILINEAR)
            return np.asarray(colour)
    except UnidentifiedImageError:
        raise FairsiloError(
            f"{name} is not an image that can be read; replace it by a PNG or JPEG, or remove it."
        ) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise FairsiloError(
            f"{name} has more pixels than Pillow's safety limit of {Image.MAX_IMAGE_PIXELS}; "
            "replace it by a smaller image."
        ) from None
    except _DAMAGE as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise FairsiloError(
            f"{name} is damaged or truncated ({reason}); replace it by an intact image or remove it."
        ) from None


def _as_rgb(image: Image.Image) -> Image.Image:
    """Grey is replicated, 16 bits become 8, transparency becomes white."""
    if image.mode == "RGB":
        image.load()
        return image
    if image.mode.startswith("I"):
        # Pillow's own conversion would clip every value above 255 instead of scaling.
        values = np.asarray(image).astype(np.int64)
        return Image.fromarray((values.clip(0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers, not 8 or 16 bits")
    if "A" in image.getbands() or "transparency" in image.info:
        colour = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", colour.size, "white"), colour).convert("RGB")
    return image.convert("RGB")


@contextmanager
def size_limit() -> Iterator[None]:
    """Inside the block Pillow's warning about huge images is an error, as it is for still larger ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def natural(names: Iterable[str]) -> list[str]:
    """Sorted names; as numbers when all of them are, so that 2 comes before 10."""
    names = list(names)
    if all(name.isdecimal() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def check_domains(names: Collection[str], where: object) -> None:
    """One domain is held out, so that at least one other must be left to train."""
    if len(names) < 2:
        found = f"only the domain {next(iter(names))!r}" if names else "no domain"
        raise FairsiloError(
            f"{where} has {found}, but at least 2 domains are needed, since one is held out to test on."
        )


def all_classes(found: dict[str, set[str]]) -> list[str]:
    """The classes of all domains in order; a domain may lack some, as hospitals do."""
    return natural(set().union(*found.values()))


def check_known(wanted: Iterable[str], known: Collection[str], where: object) -> None:
    """Every wanted domain must be there."""
    for name in wanted:
        if name not in known:
            hint = nearest(name, known).removesuffix("?")
            raise FairsiloError(f"Domain {name!r} is not in {where}{hint}.")


def restrict(dataset: Dataset, domains: Collection[str]) -> Dataset:
    """The data set with only the named domains, in its own order."""
    check_known(domains, dataset.domains, f"the data set {dataset.name!r}")
    kept = {name: domain for name, domain in dataset.domains.items() if name in domains}
    check_domains(kept, f"The selection from the data set {dataset.name!r}")
    return Dataset(dataset.name, dataset.classes, kept, dataset.about, dataset.task, dataset.source)


def _dimensions(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]}"
