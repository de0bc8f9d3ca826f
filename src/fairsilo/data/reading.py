"""What every reader of files shares: decoding one image, equal sizes, at least two domains, classes in order."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.samples import Storage
from fairsilo.data.dataset import Dataset
from fairsilo.data.dicom import is_dicom, pixels_of
from fairsilo.errors import FairsiloError, nearest

Pixels = NDArray[np.uint8]  # height x width x 3
Source = Path | bytes | Pixels  # an image file, its content, or pixels (height x width, or height x width x 3)
LARGEST = 4096  # pixels a side; more is a mistake in a uint8 tensor held in memory
ROOM = 8 * 2**30  # bytes of images that are read into memory
FITS = ("squeeze", "crop", "pad")  # how an image that is not square becomes square
BITS = (8, 12, 16)  # of grey values that are stored in 16
# What Pillow's decoders raise on damaged files, besides OSError.
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error)


@dataclass(frozen=True)
class Pictures:
    """Images that are decoded when they are asked for, all of one size."""

    # each with the name that an error calls it, and the height and width that its mask has
    sources: tuple[tuple[Source, str, tuple[int, int] | None], ...]
    size: int
    fit: str

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.size, self.size)

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8

    @property
    def place(self) -> tuple[object, ...]:
        return (id(self.sources), self.size, self.fit)

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, indices: Tensor) -> Tensor:
        with size_limit():
            chosen = (self.sources[index] for index in indices.tolist())
            found = [decode(source, name, self.size, self.fit, shape) for source, name, shape in chosen]
        return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2).contiguous()

    def share_memory(self) -> None:
        """Nothing to do: every process decodes for itself."""


class Stack:
    """Images collected in order, all of one size whether resized or not.

    Args:
        size: Height and width to resize to; None leaves images as they are.
        fit: How an image that is not square becomes square: its sides are squeezed, its longer side is cropped around
            the centre, or its shorter side is padded with black.
        later: Decode images when they are asked for instead of now; needs a size.
        room: Bytes of images that may be held in memory.
    """

    def __init__(self, size: int | None, fit: str = "squeeze", later: bool = False, room: int = ROOM) -> None:
        if size is not None and not 1 <= size <= LARGEST:
            raise FairsiloError(f"Image size is {size}, but must lie between 1 and {LARGEST} pixels.")
        if fit not in FITS:
            raise FairsiloError(f"Images cannot be fitted by {fit!r}, but by {', '.join(FITS)}.")
        self.size, self.fit, self.room = size, fit, room
        self.later = later and size is not None
        self.first: tuple[str, tuple[int, ...]] | None = None
        self.images: list[Pixels] = []
        self.sources: list[tuple[Source, str, tuple[int, int] | None]] = []
        self.held = 0

    def add(self, source: Source, name: str, shape: tuple[int, int] | None = None) -> None:
        """Decode one image; `name` is what an error calls it, `shape` the height and width that its mask has."""
        if self.later:
            self.sources.append((source, name, shape))
            return
        pixels = decode(source, name, self.size, self.fit, shape)
        if self.first is None:
            self.first = (name, pixels.shape)
        elif pixels.shape != self.first[1]:
            raise FairsiloError(
                f"Images must have one size, but {self.first[0]} is {_dimensions(self.first[1])} and {name} "
                f"is {_dimensions(pixels.shape)} pixels; size=32 would resize all of them to 32 x 32."
            )
        self.held += pixels.nbytes
        if self.held > self.room:
            raise FairsiloError(
                f"Images up to {name} take more than {self.room / 2**30:.3g} GiB of memory; give a smaller size, or "
                "convert them once with `fairsilo datasets prepare`."
            )
        self.images.append(pixels)

    def mask(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A mask (height x width, class numbers) in the size of its image."""
        if self.size is None or values.shape == (self.size, self.size):
            return values
        return np.asarray(fitted(Image.fromarray(values), self.size, self.fit, Image.Resampling.NEAREST))

    def take(self) -> Tensor | Storage:
        """What was added since the last call, as N x 3 x height x width; the size stays binding."""
        if self.later:
            assert self.size is not None
            sources, self.sources = tuple(self.sources), []
            return Pictures(sources, self.size, self.fit)
        batch = torch.from_numpy(np.stack(self.images)).permute(0, 3, 1, 2).contiguous()
        self.images = []
        return batch


def decode(
    source: Source, name: str, size: int | None, fit: str = "squeeze", shape: tuple[int, int] | None = None
) -> Pixels:
    """One image as RGB bytes, resized to a square if a size is given."""
    try:
        with _opened(source) as image:
            colour = _as_rgb(_upright(image))
            if shape is not None and colour.size != (shape[1], shape[0]):
                raise FairsiloError(
                    f"{name} is {colour.size[0]} x {colour.size[1]} pixels, but its mask is {_dimensions(shape)}; "
                    "image and mask must have one size."
                )
            if size is not None and colour.size != (size, size):
                colour = fitted(colour, size, fit, Image.Resampling.BILINEAR)
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


def fitted(image: Image.Image, size: int, fit: str, resampling: Image.Resampling) -> Image.Image:
    """A square of `size` pixels a side: squeezed, cropped around the centre, or padded with black (0 in a mask)."""
    if fit == "crop":
        return ImageOps.fit(image, (size, size), resampling)
    if fit == "pad":
        return ImageOps.pad(image, (size, size), resampling, color=0)
    return image.resize((size, size), resampling)


def _opened(source: Source) -> Image.Image:
    if isinstance(source, np.ndarray):
        return Image.fromarray(source)
    if isinstance(source, Path) and is_dicom(source):
        return Image.fromarray(pixels_of(source))
    return Image.open(BytesIO(source) if isinstance(source, bytes) else source)


def _upright(image: Image.Image) -> Image.Image:
    """Turned as the camera says that it was held (EXIF)."""
    return ImageOps.exif_transpose(image) if image.getexif().get(0x0112, 1) != 1 else image


def _as_rgb(image: Image.Image) -> Image.Image:
    """Grey is replicated, 16 bits become 8, transparency becomes white."""
    if image.mode == "RGB":
        image.load()
        return image
    if image.mode.startswith("I"):
        return Image.fromarray(eight_bits(np.asarray(image))).convert("RGB")
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers, not 8 or 16 bits")
    if "A" in image.getbands() or "transparency" in image.info:
        colour = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", colour.size, "white"), colour).convert("RGB")
    return image.convert("RGB")


def eight_bits(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Grey values of up to 16 bits on the scale from 0 to 255, by the fewest bits (8, 12, 16) that hold the largest.

    Scanners store 12 bits in 16; cut down from 16 they would be near black.
    """
    whole = values.astype(np.int64).clip(0)
    top = int(whole.max(initial=0))
    most = next((2**bits - 1 for bits in BITS if top < 2**bits), top)
    return ((whole * 255 + most // 2) // most).astype(np.uint8)


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


def check_domains(names: Collection[str], where: object, least: int = 2) -> None:
    """One domain is held out, so that at least one other must be left to train; a silo's own data have one."""
    if len(names) < least:
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
    return replace(dataset, domains=kept)


def draw(dataset: Dataset, count: int, seed: int) -> list[str]:
    """The names of so many domains, drawn at random; all of them where there are just as many."""
    names = sorted(dataset.domains)
    if not 1 <= count <= len(names):
        raise FairsiloError(f"data.domains asks for {count} domains, but {dataset.name} has {len(names)}.")
    order = torch.randperm(len(names), generator=streams.generator(seed, "domains"))
    return [names[index] for index in order[:count].tolist()]


def _dimensions(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]}"
