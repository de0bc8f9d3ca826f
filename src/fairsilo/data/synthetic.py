"""Synthetic images: labelled pictures in the style of each silo's domain that come from no silo's data (FedAG).

Rendered for the embedded roster, read from a folder, or made by a diffusion model. Rendered ones share nothing with
`glyphs` but the styles' names: figures come from strokes drawn here, from Pillow's own font and from Computer Modern's
old-style numerals, and every background is another one.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.files import read_tree, write_tree
from fairsilo.core.roster import Member, Roster
from fairsilo.core.samples import Split
from fairsilo.data import TOKEN
from fairsilo.data.glyphs import CLASSES, DOMAINS
from fairsilo.data.newcomer import read_newcomer
from fairsilo.errors import FairsiloError, nearest

KINDS = ("glyphs", "folder:PATH", "diffusion:MODEL")
PHOTOGRAPHED = ("photo", "real", "product", "scan", "print", "street")  # domains that are photographs, not drawings
BATCH = 8  # images a call of the diffusion model
Pixels = NDArray[np.float64]  # height x width, or height x width x 3, between 0 and 1


def make_synthetic(
    kind: str,
    roster: Roster,
    share: float,
    bad: float,
    seed: int,
    folder: Path | None = None,
    shared: MutableMapping[tuple[object, ...], Tensor] | None = None,
) -> dict[str, Split]:
    """For each silo that trains `share` times as many images as it trains on, of all classes alike.

    `kind` is `glyphs`, `folder:PATH` (PATH/domain/class/image), `diffusion:MODEL` or `diffusion:MODEL;tokens=FOLDER`
    (FOLDER/domain.safetensors: a textual inversion of each domain's style). `bad` is the share of unfit images among
    those rendered for glyphs. What a diffusion model made is kept in `folder`, and in `shared` for other runs of this
    process: it takes long, and another machine may draw other images.
    """
    name, source = _source(kind)
    if name == "glyphs":
        return _rendered(roster, share, bad, seed)
    if name == "folder":
        return _from_folder(Path(source), roster, share, seed)
    return _diffused(source, roster, share, seed, folder, {} if shared is None else shared)


def check_synthetic(kind: str, roster: Roster, share: float, bad: float, seed: int) -> None:
    """Refuse what `make_synthetic` would, short of asking a diffusion model for images."""
    name, source = _source(kind)
    if name != "diffusion":
        make_synthetic(kind, roster, share, bad, seed)
        return
    _token_files(source, roster)
    _diffusers()


def too_few(roster: Roster, share: float, made: dict[str, Split]) -> str:
    """A sentence where a folder has fewer images than asked for, else nothing."""
    wanted = {silo.name: len(_labels(silo, len(roster.classes), share)) for silo in roster.silos}
    short = [f"{name} {len(split)} of {wanted[name]}" for name, split in made.items() if len(split) < wanted[name]]
    return f"fewer synthetic images than data.synthetic_share asks for: {', '.join(short)}" if short else ""


def leaving(kind: str) -> tuple[str, ...]:
    """What leaves a silo so that images in its style can be made, in words."""
    name, _, source = kind.partition(":")
    return (TOKEN,) if name == "diffusion" and _options(source)[1] else ()


def _source(kind: str) -> tuple[str, str]:
    """The generator and where it gets its images from; a sentence where there is no such generator."""
    name, _, source = kind.partition(":")
    fitting = {"glyphs": not source, "folder": bool(source), "diffusion": bool(source.partition(";")[0])}
    if not fitting.get(name):
        raise FairsiloError(f"data.synthetic is {kind!r}; it must be one of {', '.join(KINDS)}")
    return name, source


def bad_ones(silo: str, count: int, bad: float, seed: int) -> Tensor:
    """Which of a silo's rendered images are unfit on purpose: wrongly labelled, drowned in noise, or blank."""
    order = torch.randperm(count, generator=streams.generator(seed, "synthetic", silo, "bad"))
    return torch.zeros(count, dtype=torch.bool).index_fill(0, order[: round(bad * count)], True)


def _labels(silo: Member, classes: int, share: float) -> Tensor:
    """One of each class at least, and no class more than one ahead of another."""
    return torch.arange(max(classes, round(share * silo.train))) % classes


def like(images: Tensor, roster: Roster) -> Tensor:
    """Images (uint8, RGB) in the size and with the channels of the federation's."""
    channels, height, width = roster.shape
    if images.shape[-2:] != (height, width):
        small = F.interpolate(images.float(), (height, width), mode="bilinear", antialias=True)
        images = small.round().clamp(0, 255).to(torch.uint8)
    return images if channels == 3 else images.float().mean(1, keepdim=True).round().to(torch.uint8)


# ----------------------------------------------------------------------------------------------------------- a folder
def _from_folder(path: Path, roster: Roster, share: float, seed: int) -> dict[str, Split]:
    if not path.is_dir():
        raise FairsiloError(f"the synthetic folder {path} does not exist; give PATH/domain/class/image")
    found = read_newcomer(str(path), roster.classes, max(roster.shape[-2:]))
    made = {}
    for silo in roster.silos:
        if silo.domain not in found:
            raise FairsiloError(
                f"the synthetic folder {path} has no domain {silo.domain!r}{nearest(silo.domain, found)}"
            )
        domain, wanted = found[silo.domain], _labels(silo, len(roster.classes), share)
        chosen = []
        for number, name in enumerate(roster.classes):
            pool = (domain.targets == number).nonzero().flatten()
            if not len(pool):
                raise FairsiloError(
                    f"the synthetic folder {path} has no image of the class {name!r} in the domain {silo.domain!r}"
                )
            stream = streams.generator(seed, "synthetic", silo.name, name)
            chosen.append(pool[torch.randperm(len(pool), generator=stream)[: int((wanted == number).sum())]])
        indices = torch.cat(chosen)
        made[silo.name] = Split(like(domain.inputs[indices], roster), domain.targets[indices])
    return made


# -------------------------------------------------------------------------------------------------- a diffusion model
def prompt(domain: str, name: str, token: str | None = None) -> str:
    """The paper's two templates: a style put into words, or learned as a token by textual inversion."""
    if token is not None:
        return f"a {name} in {token} style"
    medium = "photograph" if any(word in domain.lower() for word in PHOTOGRAPHED) else "drawing"
    return f"a {medium} of {name} in {domain.replace('_', ' ').replace('-', ' ')} style"


def _diffused(
    source: str,
    roster: Roster,
    share: float,
    seed: int,
    folder: Path | None,
    shared: MutableMapping[tuple[object, ...], Tensor],
) -> dict[str, Split]:
    """Silo by silo; the folder comes first, since silos may have scored what it holds."""
    shape = roster.shape
    learned = _options(source)[1]
    pipeline = None  # loaded where a silo's images are not there yet
    made = {}
    for silo in roster.silos:
        labels = _labels(silo, len(roster.classes), share)
        key = ("synthetic", source, seed, silo.name, silo.domain, roster.classes, len(labels), shape)
        file = folder / f"{quote(silo.name, safe=' ')}.safetensors" if folder else None
        images = _read_kept(file, labels, shape) if file and file.is_file() else shared.get(key)
        if images is None:
            pipeline = _pipeline(source, roster) if pipeline is None else pipeline
            names = [roster.classes[label] for label in labels.tolist()]
            prompts = [prompt(silo.domain, name, _token(silo.domain) if learned else None) for name in names]
            images = torch.cat([like(image, roster) for image in _drawn(pipeline, prompts, seed, silo.name)])
        if file and not file.is_file():
            _keep(file, images, labels)
        shared[key] = images
        made[silo.name] = Split(images, labels)
    return made


def _drawn(pipeline: Any, prompts: list[str], seed: int, silo: str) -> Iterator[Tensor]:
    """An image for each prompt, of the model's own size."""
    for start in range(0, len(prompts), BATCH):
        some = prompts[start : start + BATCH]
        numbers = range(start, start + len(some))  # a stream for each image, so that batches do not matter
        draws = [streams.generator(seed, "synthetic", silo, number) for number in numbers]
        for image in pipeline(prompt=some, generator=draws).images:
            yield torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)[None]


def _keep(file: Path, images: Tensor, labels: Tensor) -> None:
    """Whole or not at all, as every file of a run folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.part")
    write_tree(beside, {"images": images, "labels": labels})
    beside.replace(file)


def _read_kept(file: Path, labels: Tensor, shape: tuple[int, ...]) -> Tensor:
    found = read_tree(file)
    images: Tensor = found["images"]
    if not torch.equal(found["labels"], labels) or tuple(images.shape[1:]) != shape:
        raise FairsiloError(f"{file} holds synthetic images for other data than the run's config.yaml gives")
    return images


def _pipeline(source: str, roster: Roster) -> Any:
    files, diffusers, model = _token_files(source, roster), _diffusers(), _options(source)[0]
    try:
        pipeline = diffusers.DiffusionPipeline.from_pretrained(model, use_safetensors=True)
    except (OSError, ValueError) as problem:
        reason = " ".join(str(problem).split())[:200]
        raise FairsiloError(f"the diffusion model {model} cannot be loaded: {reason}") from problem
    pipeline.set_progress_bar_config(disable=True)
    pipeline = pipeline.to("cuda") if torch.cuda.is_available() else pipeline
    for domain, file in files.items():
        pipeline.load_textual_inversion(str(file), token=_token(domain), use_safetensors=True)
    return pipeline


def _token(domain: str) -> str:
    """The word that stands for a learned style."""
    return f"<{domain}>"


def _diffusers() -> Any:
    try:
        return importlib.import_module("diffusers")  # heavy, and needed for this alone
    except ImportError as problem:
        raise FairsiloError(
            "data.synthetic=diffusion:MODEL needs the package diffusers; install it with pip install 'fairsilo[synth]'"
        ) from problem


def _options(source: str) -> tuple[str, Path | None]:
    """The model, and the folder of textual inversions where one is given."""
    model, _, option = source.partition(";")
    if option and not option.startswith("tokens="):
        raise FairsiloError(
            f"data.synthetic has the option {option!r}; after diffusion:MODEL only ;tokens=FOLDER may follow"
        )
    return model, Path(option.removeprefix("tokens=")) if option else None


def _token_files(source: str, roster: Roster) -> dict[str, Path]:
    """Domain -> the file that textual inversion left for its style; none where styles are put into words."""
    folder = _options(source)[1]
    if folder is None:
        return {}
    found = {}
    for domain in sorted({silo.domain for silo in roster.silos}):
        file = folder / f"{domain}.safetensors"
        if not file.is_file():
            raise FairsiloError(f"{folder} has no textual inversion of the domain {domain!r}: {file.name}")
        found[domain] = file
    return found


# ------------------------------------------------------------------------------------------------------ drawn figures
# Strokes of each figure in a box one wide and one high; corners are where one stroke ends and another begins.
STROKES: dict[str, tuple[tuple[tuple[float, float], ...], ...]] = {
    "0": (((0.5, 0), (0.2, 0.08), (0.1, 0.5), (0.2, 0.92), (0.5, 1), (0.8, 0.92), (0.9, 0.5), (0.8, 0.08), (0.5, 0)),),
    "1": (((0.28, 0.22), (0.55, 0)), ((0.55, 0), (0.55, 1))),
    "2": (((0.15, 0.28), (0.2, 0), (0.6, -0.05), (0.92, 0.15), (0.8, 0.5), (0.14, 1)), ((0.14, 1), (0.9, 1))),
    "3": (
        ((0.15, 0.1), (0.45, -0.05), (0.9, 0.02), (0.85, 0.42), (0.42, 0.47)),
        ((0.42, 0.47), (0.95, 0.5), (0.98, 0.95), (0.5, 1.05), (0.12, 0.86)),
    ),
    "4": (((0.62, 0), (0.08, 0.68)), ((0.08, 0.68), (0.94, 0.68)), ((0.66, 0.28), (0.66, 1))),
    "5": (
        ((0.84, 0), (0.26, 0)),
        ((0.26, 0), (0.2, 0.46)),
        ((0.2, 0.46), (0.5, 0.32), (0.95, 0.42), (0.95, 0.92), (0.5, 1.06), (0.12, 0.86)),
    ),
    "6": (
        ((0.78, 0.02), (0.4, 0.12), (0.08, 0.6), (0.16, 0.98), (0.55, 1.04)),
        ((0.55, 1.04), (0.94, 0.9), (0.88, 0.5), (0.5, 0.42), (0.2, 0.58), (0.13, 0.72)),
    ),
    "7": (((0.1, 0), (0.88, 0)), ((0.88, 0), (0.55, 0.45), (0.4, 1))),
    "8": (
        ((0.5, 0.47), (0.1, 0.38), (0.15, 0), (0.5, -0.03), (0.85, 0), (0.9, 0.38), (0.5, 0.47)),
        ((0.5, 0.47), (0.05, 0.56), (0.05, 0.98), (0.5, 1.04), (0.95, 0.98), (0.95, 0.56), (0.5, 0.47)),
    ),
    "9": (
        ((0.22, 0.98), (0.6, 0.88), (0.92, 0.4), (0.84, 0.02), (0.45, -0.04)),
        ((0.45, -0.04), (0.06, 0.1), (0.12, 0.5), (0.5, 0.58), (0.8, 0.42), (0.87, 0.28)),
    ),
}


class Easel:
    """Random numbers and canvas of one image."""

    def __init__(self, side: int, *purpose: object) -> None:
        self.random = np.random.default_rng(streams.key(*purpose))  # type: ignore[arg-type]
        self.side = side

    def between(self, low: float, high: float) -> float:
        return float(self.random.uniform(low, high))

    def colour(self, low: float, high: float) -> Pixels:
        return self.random.uniform(low, high, 3)

    def grain(self, *shape: int) -> Pixels:
        return self.random.standard_normal((self.side, self.side, *shape))

    def ramp(self) -> Pixels:
        """From 0 to 1 across the canvas, in a random direction."""
        angle = self.between(0, 2 * np.pi)
        steps = np.linspace(-0.5, 0.5, self.side)
        along: Pixels = np.cos(angle) * steps[None, :] + np.sin(angle) * steps[:, None]
        return 0.5 + along / 2**0.5

    def blurred(self, image: Pixels, radius: float) -> Pixels:
        """Out of focus, by a radius in hundredths of the canvas."""
        picture = Image.fromarray(_grey(image)).filter(ImageFilter.GaussianBlur(radius * self.side / 100))
        return np.asarray(picture, np.float64) / 255

    def by_hand(self, digit: str, pen: tuple[float, float], shift: float = 0.0) -> Pixels:
        """Strokes of an unsteady hand, ink between 0 and 1; the pen's width is a share of the canvas."""
        turn, slant, height = self.between(-0.2, 0.2), self.between(-0.15, 0.3), self.between(0.6, 0.78)
        size = np.array([height * self.between(0.55, 0.8), height])
        middle = np.array([0.5 + shift, 0.5]) + self.random.uniform(-0.06, 0.06, 2)
        turned = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        width = self.between(*pen) * self.side
        picture = Image.new("L", (self.side, self.side), 0)
        draw = ImageDraw.Draw(picture)
        for stroke in STROKES[digit]:
            points = np.array(stroke) - 0.5 + self.random.normal(0, 0.02, (len(stroke), 2))
            points[:, 0] -= slant * points[:, 1]
            path = (_smooth(points) * size) @ turned.T + middle
            for x, y in _dense(path * self.side):
                draw.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=255)
        return np.asarray(picture, np.float64) / 255

    def in_type(self, digit: str, faces: tuple[str, ...], shift: float = 0.0) -> Pixels:
        """A figure in type, in a random weight."""
        face = _face(str(self.random.choice(faces)), round(self.side * self.between(0.7, 0.9)))
        weight = int(self.random.integers(4)) * max(1, self.side // 96)
        box = face.getbbox(digit, stroke_width=weight)
        drift = self.random.uniform(-0.06, 0.06, 2) + np.array([shift, 0.0])
        corner = np.array([self.side - box[0] - box[2], self.side - box[1] - box[3]]) / 2 + drift * self.side
        picture = Image.new("L", (self.side, self.side), 0)
        ImageDraw.Draw(picture).text((corner[0], corner[1]), digit, 255, font=face, stroke_width=weight)
        return np.asarray(picture.rotate(self.between(-5, 5), Image.Resampling.BILINEAR), np.float64) / 255


@cache
def _face(name: str, size: int) -> ImageFont.FreeTypeFont:
    if name == "pillow":
        face = ImageFont.load_default(size)
        if not isinstance(face, ImageFont.FreeTypeFont):
            raise FairsiloError("data.synthetic=glyphs draws type, and this Pillow was built without FreeType")
        return face
    import matplotlib

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"), size)


def _smooth(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Corners cut three times over; the ends stay."""
    for _ in range(3 if len(points) > 2 else 0):
        ahead = points[1:] - points[:-1]
        cut = np.stack([points[:-1] + ahead / 4, points[:-1] + 3 * ahead / 4], 1).reshape(-1, 2)
        points = np.concatenate([points[:1], cut, points[-1:]])
    return points


def _dense(path: NDArray[np.float64]) -> Iterator[tuple[float, float]]:
    """A point of the pen's way at every pixel or so."""
    for first, second in itertools.pairwise(path):
        for along in np.linspace(0, 1, 2 + int(np.abs(second - first).max())):
            x, y = first + along * (second - first)
            yield float(x), float(y)


def _grey(image: Pixels) -> NDArray[np.uint8]:
    return (image.clip(0, 1) * 255).round().astype(np.uint8)


def _bytes(image: Pixels) -> Tensor:
    return torch.from_numpy(_grey(image)).permute(2, 0, 1).contiguous()


def _over(background: Pixels, colour: Pixels | float, ink: Pixels) -> Pixels:
    return background + (colour - background) * ink[..., None]


# --------------------------------------------------------------------------------------------------------- the styles
# Each draws one image of a digit, or the background alone where the digit is None.
def _scan(easel: Easel, digit: str | None) -> Pixels:
    """Dark pen on office paper that darkens to one side, sometimes ruled."""
    paper = easel.between(0.88, 1) - 0.12 * easel.ramp() + 0.02 * easel.grain()
    gap = easel.side // easel.random.integers(3, 6)
    if easel.random.random() < 0.3:
        paper[easel.random.integers(gap) :: gap] -= 0.12
    ink = easel.by_hand(digit, (0.07, 0.15)) if digit else np.zeros_like(paper)
    return _over(np.repeat(paper[..., None], 3, 2), easel.between(0.02, 0.3), ink)


def _photo(easel: Easel, digit: str | None) -> Pixels:
    """Pen over an imagined scene: soft coloured shapes in front of a sky or a wall."""
    scene = easel.colour(0.1, 0.9) + (easel.colour(0.1, 0.9) - easel.colour(0.1, 0.9)) * easel.ramp()[..., None]
    for _ in range(easel.random.integers(4, 9)):
        ramp, level = easel.ramp(), easel.between(0.35, 0.65)
        edge = ((ramp - level) * easel.between(4, 30)).clip(0, 1)
        scene = _over(scene, easel.colour(0, 1), 0.6 * edge * (easel.ramp() > easel.between(0.2, 0.7)))
    scene = (scene + 0.05 * easel.grain(3)).clip(0, 1)
    bright = float(scene.mean()) > 0.5
    pen = easel.colour(0, 0.2) if bright else easel.colour(0.85, 1)
    ink = easel.by_hand(digit, (0.07, 0.14)) if digit else np.zeros((easel.side, easel.side), np.float64)
    return _over(scene * 0.75 + 0.25 * bright, pen, ink)


def _print(easel: Easel, digit: str | None) -> Pixels:
    """Type on tinted paper under a screen of lines, sometimes reversed."""
    paper = np.array([1, 0.96, 0.87], np.float64) * easel.between(0.85, 1)
    lines = np.arange(easel.side) // max(1, easel.side // 32) % 2
    ground = np.broadcast_to(paper, (easel.side, easel.side, 3)) - easel.between(0, 0.12) * lines[:, None, None]
    pigment = np.broadcast_to(easel.colour(0, 0.3), ground.shape)
    if easel.random.random() < 0.25:
        ground, pigment = pigment, ground
    ink = easel.in_type(digit, ("pillow", "cmmi10")) if digit else np.zeros((easel.side, easel.side), np.float64)
    return _over(ground, pigment, ink)


def _sketch(easel: Easel, digit: str | None) -> Pixels:
    """The outline of a hand-drawn figure in pencil on rough paper."""
    paper = easel.between(0.86, 1) + 0.04 * easel.grain()
    pencil = np.zeros_like(paper)
    if digit:
        shape = Image.fromarray(_grey(easel.by_hand(digit, (0.11, 0.18))))
        width = 2 * max(1, easel.side // 64) + 1
        grown, shrunk = shape.filter(ImageFilter.MaxFilter(width)), shape.filter(ImageFilter.MinFilter(width))
        pencil = (np.asarray(grown, np.float64) - np.asarray(shrunk, np.float64)) / 255
    pencil = pencil * (easel.between(0.6, 0.95) + 0.15 * easel.grain()).clip(0, 1)
    return _over(np.repeat(paper[..., None], 3, 2), easel.between(0.1, 0.4), pencil)


def _street(easel: Easel, digit: str | None) -> Pixels:
    """A painted or mounted number on a framed plate, with others beside it, in slanting light."""
    plate = easel.colour(0.05, 0.95)
    bright = float(plate.mean()) > 0.5
    figure = easel.colour(0, 0.25) if bright else easel.colour(0.8, 1)
    ground = np.broadcast_to(plate, (easel.side, easel.side, 3))
    frame = np.zeros((easel.side, easel.side), np.float64)
    edge = round(easel.side * easel.between(0, 0.06))
    frame[:edge], frame[easel.side - edge :] = 1, 1
    ground = _over(ground, figure, 0.5 * frame)
    ink = np.zeros_like(frame)
    for shift in (-0.75, 0.75, 0.0) if digit else ():
        shown = digit if shift == 0 else str(easel.random.integers(10))
        if shift == 0 or easel.random.random() < 0.6:
            painted = easel.random.random() < 0.3
            assert shown is not None
            mark = easel.by_hand(shown, (0.09, 0.13), shift) if painted else easel.in_type(shown, ("pillow",), shift)
            ink = np.maximum(ink, mark)
    light = easel.between(0.6, 0.9) + 0.35 * easel.ramp()
    ink = easel.blurred(ink, easel.between(0, 2))
    return _over(ground, figure, ink) * light[..., None] + easel.between(0.05, 0.2) * easel.grain(3)


STYLES: dict[str, Callable[[Easel, str | None], Pixels]] = {
    "scan": _scan,
    "photo": _photo,
    "print": _print,
    "sketch": _sketch,
    "street": _street,
}


def _rendered(roster: Roster, share: float, bad: float, seed: int) -> dict[str, Split]:
    for silo in roster.silos:
        if tuple(roster.classes) != CLASSES or silo.domain not in STYLES:
            raise FairsiloError(
                f"data.synthetic=glyphs draws the digits of the embedded federation in its domains "
                f"({', '.join(DOMAINS)}), and {roster.name} has other classes or the domain {silo.domain!r}"
            )
    side = 2 * max(48, *roster.shape[-2:])  # drawn larger and averaged down, for smooth edges
    made = {}
    for silo in roster.silos:
        labels = _labels(silo, len(CLASSES), share)
        unfit = bad_ones(silo.name, len(labels), bad, seed)
        images = []
        for number, (label, wrong) in enumerate(zip(labels.tolist(), unfit.tolist(), strict=True)):
            easel = Easel(side, seed, "synthetic", silo.name, number)
            image = _unfit(easel, silo.domain, label) if wrong else STYLES[silo.domain](easel, CLASSES[label])
            images.append(like(_bytes(image)[None], roster))
        made[silo.name] = Split(torch.cat(images), labels)
    return made


def _unfit(easel: Easel, domain: str, label: int) -> Pixels:
    """What generators get wrong: another class than asked for, noise instead of a picture, or nothing in it."""
    flaw = easel.random.integers(3)
    if flaw == 0:
        return STYLES[domain](easel, CLASSES[(label + easel.random.integers(1, len(CLASSES))) % len(CLASSES)])
    if flaw == 1:
        return 0.15 * STYLES[domain](easel, CLASSES[label]) + 0.4 + 0.8 * easel.grain(3)
    return STYLES[domain](easel, None)
