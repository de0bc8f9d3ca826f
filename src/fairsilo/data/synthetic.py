"""Synthetic images: labelled pictures in the style of each silo's domain that come from no silo's data (FedAG).

Rendered for the embedded roster, read from a folder, made by a diffusion model, or real ones that the server has.
Rendered ones share nothing with `glyphs` but the styles' names: figures come from strokes of `fairsilo.data.drawing`,
from Pillow's own font and from Computer Modern's old-style numerals, and every background is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.files import read_tree, write_tree
from fairsilo.core.roster import Member, Roster
from fairsilo.core.samples import Split, joined
from fairsilo.data import TOKEN
from fairsilo.data.diffusion import Generator, drawn, load, package, prompt
from fairsilo.data.drawing import STYLES, Easel, Pixels, as_bytes
from fairsilo.data.glyphs import CLASSES, DOMAINS
from fairsilo.data.newcomer import read_newcomer
from fairsilo.errors import FairsiloError, nearest

KINDS = ("glyphs", "folder:PATH", "diffusion:MODEL", "server")
WORDS = ".words"  # the file that keeps what silos learned; no silo's name begins so
Shared: TypeAlias = MutableMapping[tuple[object, ...], Tensor]
Words: TypeAlias = Callable[[], dict[str, Tensor]]


def make_synthetic(
    kind: str,
    roster: Roster,
    share: float,
    bad: float,
    seed: int,
    folder: Path | None = None,
    shared: Shared | None = None,
    words: Words | None = None,
) -> dict[str, Split]:
    """For each silo that trains `share` times as many images as it trains on, of all classes alike.

    `kind` is `glyphs`, `folder:PATH` (PATH/domain/class/image), or `diffusion:MODEL` with options (`Generator`). `bad`
    is the share of unfit images among those rendered for glyphs. What a diffusion model made is kept in `folder`, and
    in `shared` for other runs of this process: it takes long, and another machine may draw other images. `words` asks
    the silos for the words that they learn for their styles, where the generator wants them.
    """
    name, source = _source(kind)
    if name == "glyphs":
        return _rendered(roster, share, bad, seed)
    if name == "folder":
        return _from_folder(Path(source), roster, share, seed)
    return _diffused(source, roster, share, seed, folder, {} if shared is None else shared, words)


def check_synthetic(kind: str, roster: Roster, share: float, bad: float, seed: int) -> None:
    """Refuse what `make_synthetic` would, short of asking a diffusion model for images."""
    name, source = _source(kind)
    if name != "diffusion":
        make_synthetic(kind, roster, share, bad, seed)
        return
    generator = Generator.of(source)
    _token_files(generator, roster)
    package()
    if generator.learn and not generator.is_here:
        raise FairsiloError(
            f"data.synthetic: silos learn words of a model that is a folder on their machines, or tiny, not "
            f"{generator.model!r}"
        )


def too_few(roster: Roster, share: float, made: dict[str, Split]) -> str:
    """A sentence where a folder has fewer images than asked for, else nothing."""
    silos = [silo for silo in roster.silos if silo.name in made]
    wanted = {silo.name: len(_labels(silo, len(roster.classes), share)) for silo in silos}
    short = [f"{name} {len(split)} of {wanted[name]}" for name, split in made.items() if len(split) < wanted[name]]
    return f"fewer synthetic images than data.synthetic_share asks for: {', '.join(short)}" if short else ""


def leaving(kind: str) -> tuple[str, ...]:
    """What leaves a silo so that images in its style can be made, in words."""
    name, _, source = kind.partition(":")
    if name != "diffusion":
        return ()
    generator = Generator.of(source)
    return (TOKEN,) if generator.tokens or generator.learn else ()


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
    """Images of each silo's domain."""
    if not path.is_dir():
        raise FairsiloError(f"the synthetic folder {path} does not exist; give PATH/domain/class/image")
    found = read_newcomer(str(path), roster.classes, max(roster.shape[-2:]))
    made = {}
    for silo in roster.silos:
        if silo.domain not in found:
            raise FairsiloError(
                f"the synthetic folder {path} has no domain {silo.domain!r}{nearest(silo.domain, found)}"
            )
        domain = found[silo.domain]
        pools = [(domain.targets == number).nonzero().flatten() for number in range(len(roster.classes))]
        for pool, name in zip(pools, roster.classes, strict=True):
            if not len(pool):
                raise FairsiloError(
                    f"the synthetic folder {path} has no image of the class {name!r} in the domain {silo.domain!r}"
                )
        indices = _some_of(pools, silo, roster, share, seed)
        made[silo.name] = Split(like(domain.samples.take(indices)[0], roster), domain.targets[indices])
    return made


def _some_of(pools: Sequence[Tensor], silo: Member, roster: Roster, share: float, seed: int) -> Tensor:
    """As many indices of each class as a silo gets, drawn from those of the class."""
    wanted = _labels(silo, len(roster.classes), share).bincount(minlength=len(roster.classes)).tolist()
    drawn = [
        pool[torch.randperm(len(pool), generator=streams.generator(seed, "synthetic", silo.name, name))[:count]]
        for pool, name, count in zip(pools, roster.classes, wanted, strict=True)
    ]
    return torch.cat(drawn)


# ------------------------------------------------------------------------------------------ what the server has itself
def public_images(source: Mapping[str, Split], roster: Roster, share: float, seed: int) -> dict[str, Split]:
    """Real images of the server, by domain, in the place of synthetic ones.

    A silo gets those of its own domain. A class that its domain does not have there is drawn from all domains but the
    held-out ones, of which no model may see anything.
    """
    held_out = {silo.domain for silo in roster.unseen}
    domains = {name: split for name, split in source.items() if name not in held_out}
    if not domains:
        raise FairsiloError("data.synthetic=server: all images of the server are of domains that are held out")
    whole, places = joined(domains.values()), {}
    begun = 0
    for name, split in domains.items():
        places[name] = torch.arange(begun, begun + len(split))
        begun += len(split)
    made = {}
    for silo in roster.silos:
        pools = []
        for number, name in enumerate(roster.classes):
            every = (whole.targets == number).nonzero().flatten()
            if not len(every):
                raise FairsiloError(
                    f"data.synthetic=server: the server has no image of the class {name!r} to learn from"
                )
            own = places.get(silo.domain, torch.arange(0))
            mine = own[whole.targets[own] == number]
            pools.append(mine if len(mine) else every)
        indices = _some_of(pools, silo, roster, share, seed)
        made[silo.name] = Split(*whole.take(indices))
    return made


# -------------------------------------------------------------------------------------------------- a diffusion model
def _diffused(
    source: str, roster: Roster, share: float, seed: int, folder: Path | None, shared: Shared, words: Words | None
) -> dict[str, Split]:
    """Silo by silo; the folder comes first, since silos may have scored what it holds."""
    shape, generator = roster.shape, Generator.of(source)
    said: dict[str, str] = {}  # silo -> the word for its style
    pipeline = None  # loaded where a silo's images are not there yet
    made = {}
    for silo in roster.silos:
        labels = _labels(silo, len(roster.classes), share)
        key = ("synthetic", source, seed, silo.name, silo.domain, roster.classes, len(labels), shape)
        file = folder / f"{quote(silo.name, safe=' ')}.safetensors" if folder else None
        images = _read_kept(file, labels, shape) if file and file.is_file() else shared.get(key)
        if images is None:
            if pipeline is None:
                said, known = _words(generator, roster, (source, seed), folder, shared, words)
                pipeline = load(generator, known)
            names = [roster.classes[label] for label in labels.tolist()]
            prompts = [prompt(silo.domain, name, said.get(silo.name)) for name in names]
            found = drawn(pipeline, generator, prompts, seed, "synthetic", silo.name)
            images = torch.cat([like(image, roster) for image in found])
        if file and not file.is_file():
            _keep(file, {"images": images, "labels": labels})
        shared[key] = images
        made[silo.name] = Split(images, labels)
    return made


def _words(
    generator: Generator,
    roster: Roster,
    drawn_by: tuple[str, int],
    folder: Path | None,
    shared: Shared,
    words: Words | None,
) -> tuple[dict[str, str], dict[str, Path | Tensor]]:
    """Silo -> the word for its style, and word -> what it stands for; none where styles are put into words.

    Runs that want other numbers of images share what was learned.
    """
    if generator.tokens:
        files = _token_files(generator, roster)
        return {silo.name: f"<{silo.domain}>" for silo in roster.silos}, {f"<{one}>": files[one] for one in files}
    if not generator.learn:
        return {}, {}
    kept = folder / WORDS if folder else None
    keys = {one.name: ("word", *drawn_by, one.name, one.domain, roster.classes, one.train) for one in roster.silos}
    if kept and kept.is_file():
        learned: dict[str, Tensor] = read_tree(kept)
    elif all(key in shared for key in keys.values()):
        learned = {silo: shared[key] for silo, key in keys.items()}
    elif words is None:
        raise FairsiloError("silos learn the words for their styles in a run, and this is none")
    else:
        learned = words()
    if kept and not kept.is_file():
        _keep(kept, learned)
    shared.update({keys[silo]: word for silo, word in learned.items() if silo in keys})
    names = {silo: f"<style-{number}>" for number, silo in enumerate(sorted(learned))}
    return names, {names[silo]: word for silo, word in learned.items()}


def _keep(file: Path, content: dict[str, Tensor]) -> None:
    """Whole or not at all, as every file of a run folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.part")
    write_tree(beside, content)
    beside.replace(file)


def _read_kept(file: Path, labels: Tensor, shape: tuple[int, ...]) -> Tensor:
    found = read_tree(file)
    images: Tensor = found["images"]
    if not torch.equal(found["labels"], labels) or tuple(images.shape[1:]) != shape:
        raise FairsiloError(f"{file} holds synthetic images for other data than the run's config.yaml gives")
    return images


def _token_files(generator: Generator, roster: Roster) -> dict[str, Path]:
    """Domain -> the file that textual inversion left for its style."""
    folder, found = generator.tokens, {}
    for domain in sorted({silo.domain for silo in roster.silos}) if folder else ():
        assert folder is not None
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
