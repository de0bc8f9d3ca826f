"""Synthetic images: labelled pictures in the style of each silo's domain that come from no silo's data (FedAG).

Rendered for the embedded roster, read from a folder, or made by a diffusion model. Rendered ones share nothing with
`glyphs` but the styles' names: figures come from strokes of `fairsilo.data.drawing`, from Pillow's own font and from
Computer Modern's old-style numerals, and every background is another one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.files import read_tree, write_tree
from fairsilo.core.roster import Member, Roster
from fairsilo.core.samples import Split
from fairsilo.data import TOKEN
from fairsilo.data.drawing import STYLES, Easel, Pixels, as_bytes
from fairsilo.data.glyphs import CLASSES, DOMAINS
from fairsilo.data.newcomer import read_newcomer
from fairsilo.errors import FairsiloError, nearest

KINDS = ("glyphs", "folder:PATH", "diffusion:MODEL")
PHOTOGRAPHED = ("photo", "real", "product", "scan", "print", "street")  # domains that are photographs, not drawings
BATCH = 8  # images a call of the diffusion model


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
    silos = [silo for silo in roster.silos if silo.name in made]
    wanted = {silo.name: len(_labels(silo, len(roster.classes), share)) for silo in silos}
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
        made[silo.name] = Split(like(domain.samples.take(indices)[0], roster), domain.targets[indices])
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
            images.append(like(as_bytes(image)[None], roster))
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
