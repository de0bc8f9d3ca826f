"""The models of a finished run as files for other programs: written, read back, compared with `Trained.predict`, and
only then put in place, with a model card beside them."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import torch
from torch import Tensor

from fairsilo import __version__
from fairsilo.core.disk import sync
from fairsilo.core.messages import MODEL
from fairsilo.core.roster import Roster
from fairsilo.core.silo import Silo
from fairsilo.errors import FairsiloError, told_of
from fairsilo.runs.export_formats import BATCH, INPUT, Asked, Format, Place, Source, format_of, said
from fairsilo.runs.exported import DESCRIPTIONS, plan_described, read_description, taken_apart
from fairsilo.runs.model_card import Facts, card, network_of, shortened

if TYPE_CHECKING:
    from fairsilo.runs.trained import Trained

SIZES = (1, 3, 8)  # of the batches that an export is checked with
TOLERANCE = 1e-4  # of probabilities; of numbers as a share of the largest one, or of the unit they were trained in
LOG_TOLERANCE = 1e-3  # of the logarithms of probabilities: they tell of small ones, where all others are near 1
ROUNDING = 0.05  # how far a run's own arithmetic (bfloat16, a GPU) may be from float32 on a CPU
CARD = "README.md"
SEAL = "<!-- written by fairsilo export, sha256 "  # the last line of a card, by which an edited one is known
BELOW = ("global", "silos")
LEAST = 1e-20  # probabilities below it are compared as they are


@dataclass(frozen=True)
class Exported:
    """What an export wrote.

    Attributes:
        folder: Where it is.
        files: The file of each model: `global`, and silos by name.
        difference: The largest difference between what a file and the run answered to the same samples.
        left_out: Silos that have no model, and `global` where the method has none.
    """

    folder: Path
    files: dict[str, Path]
    difference: float
    left_out: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        files = {name: str(path) for name, path in self.files.items()}
        return {**vars(self), "folder": str(self.folder), "files": files, "left_out": list(self.left_out)}


def export(
    trained: Trained,
    to: str,
    out: str | Path | None = None,
    silo: str | None = None,
    all_silos: bool = False,
    which: str = "best",
    force: bool = False,
) -> Exported:
    """Write models of a run; `Trained.export` says what each argument is.

    With `force` an earlier export is replaced even where somebody edited its card or put files beside it.
    """
    form = format_of(to)
    form.check()
    if silo is not None and all_silos:
        raise FairsiloError("--silo names one model and --all-silos means all; leave one of them out")
    if which not in ("best", "last"):
        raise FairsiloError(f"--which is {which!r}; it must be best or last")
    names, left_out = _wanted(trained, silo, all_silos, which)
    folder = Path(out) if out is not None else trained.folder / "exported" / to
    _refuse_others(folder, force)
    with replacing_folder(folder) as beside:
        places = [_place(form, name, beside, len(names)) for name in names]
        homes = {place.folder: [one for one in places if one.folder == place.folder] for place in places}
        for home, inside in homes.items():
            _describe(trained, form, home, inside, which)
        found = [_written(trained, form, place, which) for place in places]  # one by one: models may be large
        differences = Differences(max(one.file for one in found), max(one.rounding for one in found))
        facts = Facts(form.name, which, left_out, differences.file, differences.rounding, TOLERANCE, SIZES)
        for home, inside in ({beside: places} | homes).items():
            text = card(trained, facts, {place.name: str(place.path.relative_to(home)) for place in inside})
            (home / CARD).write_text(sealed(text), encoding="utf-8", newline="\n")
    files = {place.name: folder / place.path.relative_to(beside) for place in places}
    return Exported(folder, files, differences.file, left_out)


def _wanted(trained: Trained, silo: str | None, every: bool, which: str) -> tuple[list[str | None], tuple[str, ...]]:
    """Which models (None: the global one), and which are left out since there are none."""
    if silo is not None:
        trained.kept(silo, which)
        return [silo], ()
    has_global = bool(trained.server.layout.size)
    if not every:
        if not has_global:
            raise FairsiloError(f"{trained.plan.method.name} has no global model; export with --silo or --all-silos")
        return [None], ()
    there = [name for name in trained.silos if trained.run_folder.model_path(("personal", "last", name)).exists()]
    found: list[str | None] = [*([None] if has_global else []), *there]
    if not found:
        raise FairsiloError(f"{trained.folder} holds no model")
    return found, (*(() if has_global else ("global",)), *(name for name in trained.silos if name not in there))


# ----------------------------------------------------------------------------------------------------- what is written
def _place(form: Format, silo: str | None, beside: Path, count: int) -> Place:
    """Where a model is written: in the Hugging Face layout a folder each, as the name of its file is fixed."""
    named = quote(silo or "", safe=" ")
    named = named if named.strip(".") else named.replace(".", "%2E")  # `..` would be another folder
    below = Path("global") if silo is None else Path("silos") / named
    if form.name == "hf":
        return Place(silo, beside / below if count > 1 else beside, f"model.{form.suffix}")
    return Place(silo, beside, f"{below}.{form.suffix}")


def _written(trained: Trained, form: Format, place: Place, which: str) -> Differences:
    """Write a model from a network of its own, and check the file."""
    plain = trained.on_cpu()
    held = plain.holding(place.silo, which)
    if not form.stands_alone:
        _refuse_inputs(held, form)
    samples = probes(trained.roster, len(trained.classes), 3)
    module = taken_apart(held)
    with torch.no_grad():
        module(samples)  # what is computed once and kept, such as means of channels, must not be kept of a trace
    facts = {"fairsilo": __version__, "task": trained.roster.task, "classes": json.dumps(trained.classes)}
    source = Source(place, module, samples, answers_of(trained), facts, plain.plan)
    place.path.parent.mkdir(parents=True, exist_ok=True)
    form.write(source)
    return _checked(trained, form, source, which)


def _refuse_inputs(held: Silo, form: Format) -> None:
    """Weights alone are not the whole model where a part changes samples by tensors that the server sent beside it."""
    extra = sorted(set(held.message.tensors) - {MODEL})
    owners = [part.name for part in held.method.owners("inputs")]
    if owners and extra:
        raise FairsiloError(
            f"{owners[0]} changes what the network sees by {extra[0]}, which is no weight of it; "
            f"--to {form.name} would lose that, --to pt2 keeps it"
        )


def answers_of(trained: Trained) -> str:
    """What the output is called."""
    return "probabilities" if trained.plan.task.classes else "numbers"


def _describe(trained: Trained, form: Format, folder: Path, inside: Sequence[Place], which: str) -> None:
    """`model.json` beside the files, or in the Hugging Face layout a `config.json` in the folder of each model."""
    about = {"fairsilo": description(trained, form, inside, which)}
    layout = form.name == "hf"
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(_config(trained, about) if layout else about, indent=2)
    (folder / ("config.json" if layout else "model.json")).write_text(content + "\n", encoding="utf-8")


def description(trained: Trained, form: Format, places: Sequence[Place], which: str) -> dict[str, Any]:
    """All that a program must know to use the files."""
    return {
        "version": __version__,
        "format": form.name,
        "method": shortened(trained.facts["method"]),
        "model": network_of(trained),
        "task": trained.roster.task,
        "classes": list(trained.classes),
        "input": {"name": INPUT, "shape": [BATCH, *trained.shape], "dtype": trained.roster.dtype},
        "output": {"name": answers_of(trained)},
        "models": {place.name: _model(trained, place, which) for place in places},
        **({} if form.stands_alone else plan_described(trained.on_cpu().plan)),
    }


def _model(trained: Trained, place: Place, which: str) -> dict[str, Any]:
    own = trained.server.own_model if place.silo is None else None
    mean, deviation = (own or trained.model).pixels.normalisation or ([0.5], [0.5])
    pixels = {"divided_by": 255, "mean": list(mean), "std": list(deviation), "inside_the_model": True}
    return {
        "file": place.file,
        "network": "silo" if own is None else "server",
        "which": None if place.silo is None else trained.kept(place.silo, which),
        "normalisation": pixels if trained.roster.dtype == "uint8" else None,
    }


def _config(trained: Trained, about: dict[str, Any]) -> dict[str, Any]:
    """What the Hugging Face Hub reads of a config.json, with the description inside."""
    labels = dict(enumerate(trained.classes))
    sizes = dict(zip(("num_channels", "image_height", "image_width"), trained.shape, strict=False))
    return {
        "model_type": "fairsilo",
        "architectures": ["Answering"],
        "torch_dtype": "float32",
        **({"num_labels": len(labels), "id2label": labels} if labels else {}),
        **({"label2id": {name: number for number, name in labels.items()}} if labels else {}),
        **(sizes if len(trained.shape) == 3 else {}),
        **about,
    }


# ----------------------------------------------------------------------------------------------------------- the check
@dataclass(frozen=True)
class Differences:
    """The largest ones of a model: of its file to float32 on a CPU, and of that to the run's own arithmetic."""

    file: float
    rounding: float


def probes(roster: Roster, classes: int, count: int) -> Tensor:
    """Random samples of a run's kind: from even grey to full noise, so that not all answers are extreme."""
    stream, dtype = torch.Generator().manual_seed(count), getattr(torch, roster.dtype)
    shape = (count, *roster.shape)
    if not dtype.is_floating_point and dtype != torch.uint8:
        return torch.randint(0, max(classes, 2), shape, generator=stream).to(dtype)
    each = (count, *([1] * len(roster.shape)))
    level, contrast = torch.rand(each, generator=stream), torch.rand(each, generator=stream)
    noise = (level + contrast * (torch.rand(shape, generator=stream) - 0.5)).clamp(0, 1)
    return (255 * noise).to(dtype) if dtype == torch.uint8 else noise.to(dtype)


def _checked(trained: Trained, form: Format, source: Source, which: str) -> Differences:
    """How far the written file is from `Trained.predict`.

    Raises:
        FairsiloError: Further than the tolerance, or it cannot be asked.
    """
    silo, name = source.place.silo, source.place.name
    own, plain = trained, trained.on_cpu()
    unit = 1.0 if trained.plan.task.classes else trained.experiment.task.scale
    asked: Asked | None = None
    file = rounding = worst = 0.0
    for size in SIZES:
        samples = probes(trained.roster, len(trained.classes), size)
        expected = plain.predict(samples, silo, which)
        try:
            asked = asked or form.read(source)
            with torch.no_grad():
                found = asked(samples)
        except FairsiloError:
            raise
        except Exception as problem:
            raise FairsiloError(
                f"the {form.name} file of {name} cannot be used on {size} samples ({said(problem)}); "
                "nothing was written"
            ) from problem
        gap, allowed = difference(found, expected, unit)
        if gap > allowed:
            raise FairsiloError(
                f"the {form.name} file of {name} answers otherwise than the run on {size} samples: the largest "
                f"difference is {gap:.2g}, and {allowed:.2g} is allowed; nothing was written"
            )
        file = max(file, gap)
        apart = largest(expected, own.predict(samples, silo, which))
        rounding, worst = max(rounding, apart), max(worst, apart / allowed * TOLERANCE)
    if worst > (ROUNDING if own.rounds_otherwise else TOLERANCE):
        raise FairsiloError(
            f"{name} answers otherwise in float32 on a CPU than as the run computes: the largest difference is "
            f"{rounding:.2g}; nothing was written"
        )
    return Differences(file, rounding)


def difference(found: Tensor, expected: Tensor, unit: float = 1.0) -> tuple[float, float]:
    """The largest difference of answers, and how large it may be; infinite where they cannot be compared.

    Of probabilities their logarithms are compared too: where a model is certain, it is only there that a wrong weight
    shows.
    """
    gap, allowed = largest(found, expected), TOLERANCE * max(expected.abs().max().item(), unit)
    if expected.dim() > 1 and gap < float("inf"):
        known = (found > LEAST) & (expected > LEAST)
        logs = [one[known].double().log() for one in (found, expected)]
        if len(logs[0]) and ((logs[0] - logs[1]).abs() > LOG_TOLERANCE * (1 + logs[1].abs().max())).any():
            return max(gap, 2 * allowed), allowed
    return gap, allowed


def largest(found: Tensor, expected: Tensor) -> float:
    """The largest difference; infinite where shapes or types differ, or one of them is no number."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    gap = (found.double() - expected.double()).abs().max().item()
    return float("inf") if math.isnan(gap) else float(gap)


# ------------------------------------------------------------------------------------------------------------- folders
def _refuse_others(folder: Path, force: bool = False) -> None:
    """An earlier export may be replaced; anything else of the user's may not.

    `force` gives up what lies beside an export, and no folder without one: that is more likely a wrong name.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FairsiloError(f"{folder} is a file; name a folder with --out")
    if folder.resolve() in Path.cwd().parents:
        raise FairsiloError(f"{folder} holds the folder that you are in; name another folder with --out")
    if not any(folder.iterdir()):
        return
    homes = _homes(folder)
    if not homes:
        raise FairsiloError(f"{folder} holds other things than an earlier export; name another folder with --out")
    other = _other(folder, homes)
    if other and not force:
        raise FairsiloError(
            f"{folder} holds an earlier export, and {other}; --force deletes all of it, or name another folder "
            "with --out"
        )


def _homes(folder: Path) -> list[Path]:
    """The folders with descriptions: the export's own or, in the Hugging Face layout, one for each model."""
    places = (folder, *(one for below in BELOW for one in (folder / below, *folder.glob(f"{below}/*"))))
    return [place for place in places if place.is_dir() and _described(place)]


def _other(folder: Path, homes: Sequence[Path]) -> str | None:
    """What no export wrote into a folder, or not so; None where all is as it was written."""
    cards = {home / CARD for home in (folder, *homes)}
    files = {home / name for home in homes for name in DESCRIPTIONS} | cards
    for home in homes:
        models = [home / str(one.get("file")) for one in read_description(home)["models"].values()]
        files |= {path for model in models for path in (model, model.with_name(f"{model.name}.data"))}
    folders = {parent for path in files for parent in path.parents}
    for path in sorted(folder.rglob("*")):
        if path not in (folders if path.is_dir() and not path.is_symlink() else files):
            return f"{path.relative_to(folder)} is no part of it"
        if path in cards and not is_sealed(path.read_text(encoding="utf-8", errors="replace")):
            return f"{path.relative_to(folder)} was edited since"
    return None


def sealed(text: str) -> str:
    """A card with its own checksum as a last line, which Markdown does not show."""
    return f"{text}\n{SEAL}{hashlib.sha256(text.encode()).hexdigest()} -->\n"


def is_sealed(text: str) -> bool:
    """Whether a card is as it was written."""
    return text == sealed(text.rpartition(f"\n{SEAL}")[0])


def _described(folder: Path) -> bool:
    try:
        models = read_description(folder)["models"]
    except FairsiloError:
        return False
    return isinstance(models, dict) and all(isinstance(one, dict) for one in models.values())


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Fill a folder beside; it takes the place of `folder` when it is complete and synced, and leaves nothing else."""
    named, folder = folder, folder.resolve()
    beside, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{what}") for what in ("part", "old"))
    shutil.rmtree(beside, ignore_errors=True)
    try:
        with told_of(named, beside):
            beside.mkdir(parents=True)
            yield beside
        for path in (*beside.rglob("*"), beside):
            sync(path)
        if folder == Path.cwd():
            _exchange(folder, beside, old)
        else:
            if folder.exists():
                folder.replace(old)
            beside.replace(folder)
        sync(folder.parent)
    except BaseException:
        if old.exists() and not folder.exists():
            old.replace(folder)
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _exchange(folder: Path, beside: Path, old: Path) -> None:
    """What is inside takes the place of what was: a shell would be left in a folder that is itself replaced."""
    moved: list[tuple[Path, Path]] = []
    old.mkdir()
    try:
        for source, target in ((folder, old), (beside, folder)):
            for path in list(source.iterdir()):
                path.replace(target / path.name)
                moved.append((path, target / path.name))
        sync(folder)
    except BaseException:
        for before, after in reversed(moved):
            after.replace(before)
        raise
