"""What a part may need of model, data, task and other parts, and what it may do to others: one table each.

A part names its needs and its effects; the predicates and sentences behind the names are here only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import Sizes
from fairsilo.core.vectors import BUFFER, Layout

PART = "part:"  # before the name of another part that must be in the method too


@dataclass(frozen=True)
class Facts:
    """What a method must fit: the model, the training, the data."""

    layout: Layout
    training: TrainSettings
    task: str
    without_validation: tuple[str, ...] = ()
    features: bool = True
    trained_features: bool = True
    server_data: bool = False
    staged: bool = False
    synthetic: bool = False
    sizes: Sizes = field(default_factory=dict)  # by name, of what silos send: classes, features, ...
    trained_alignment: bool = True  # what alignment compares depends on something that is trained
    blends: bool = True  # the task says what stands for several targets at once
    separable: bool = True  # the loss of a batch is the mean of its samples' losses
    continuous: bool = True  # inputs are no codes, such as characters


@dataclass(frozen=True)
class Need:
    """A requirement of a part: its predicate, the sentence where it is not met, and the words on the method's page."""

    met: Callable[[Facts], bool]
    refusal: str = ""  # {part}, {task} and {silo} are filled in
    words: str = ""  # on the method's page; empty where the page need not say it


def _always(_: Facts) -> bool:
    return True


def _for_tasks(*tasks: str) -> Need:
    return Need(lambda facts: facts.task in tasks, f"{{part}} is for the tasks {', '.join(tasks)}, not for {{task}}")


NEEDS = {
    "classification": _for_tasks("classify"),
    "one-class": _for_tasks("classify", "next-character"),  # for each sample
    "class-predictions": _for_tasks("classify", "segment", "next-character"),
    "image-task": _for_tasks("classify", "segment"),
    "validation": Need(
        lambda facts: not facts.without_validation,
        "{part} measures models on validation data, and {silo!r} has none; set data.validation above 0",
        "validation samples at every silo (`data.validation` above 0)",
    ),
    "features": Need(
        lambda facts: facts.features,
        "{part} compares features, and the network returns none; let it return "
        "fairsilo.core.output.Output(prediction, features)",
        "a network that returns features beside its prediction",
    ),
    "trained-features": Need(
        lambda facts: not facts.features or facts.trained_features,
        "{part} moves the network's features, which are frozen in this model: it would do nothing",
        "a network whose features are trained, not frozen",
    ),
    "trained-alignment": Need(
        lambda facts: not facts.features or facts.trained_alignment,
        "{part} compares the features of two models, which are frozen in this one and so the same: it would do nothing",
    ),
    "raw-images": Need(
        _always,
        words="the images themselves (features of a frozen backbone are not kept)",
    ),
    "server-data": Need(
        lambda facts: facts.server_data,
        "{part} trains on data of the server's own; give a folder of images: data.server=PATH",
        "data at the server (`data.server=PATH`, or the images of `data.synthetic`)",
    ),
    "input-gradients": Need(
        lambda facts: not facts.staged,
        "{part} needs gradients of the inputs, and the first stage of the network is frozen",
    ),
    "continuous-inputs": Need(
        lambda facts: facts.continuous,
        "{part} needs gradients of the inputs, and those of the task {task} are codes, which have none",
    ),
    "blended-targets": Need(
        lambda facts: facts.blends,
        "{part} averages targets, and the task {task} does not say how; give it the method `blended` "
        "(fairsilo.core.task.Blending)",
    ),
    "no-batch-norm": Need(
        lambda facts: not any(slot.role == BUFFER or slot.group == "batch-norm" for slot in facts.layout.slots),
        "{part} cannot blur what batch normalisation counts, and this network has it; take one without, such as "
        "model='small-cnn(norm=group)'",
        "a network without batch normalisation, such as `small-cnn(norm=group)`",
    ),
    "separable-loss": Need(
        lambda facts: facts.separable,
        "{part} bounds what each sample does to a step, and with task.class_weights the samples of a batch share "
        "their loss; leave them out, or take task.loss=focal",
    ),
    "synthetic-images": Need(
        lambda facts: facts.synthetic,
        "{part} needs synthetic images; choose a generator: data.synthetic=glyphs, folder:PATH or diffusion:MODEL",
        "synthetic images (`data.synthetic=glyphs`, `folder:PATH` or `diffusion:MODEL`)",
    ),
    "even-steps": Need(_always),  # of the local loop: see CLASHES
    "shared-tensors": Need(
        lambda facts: facts.layout.shared > 0,
        "{part} works on the trainable tensors that silos share, and here none is shared: it would do nothing",
    ),
}

# what a part does that other code must know
DOES = {
    "decides-weights": "its `weights` replaces what came before",
    "ignores-weights": "its `combine` does not use the weights",
    "uneven-steps": "its local loop takes steps that do not move every tensor alike",
    "normalises-images": "networks see other images than silos hold, also at evaluation",
    "pools-data": "all training data are in one place: a baseline, not a federation",
    "trains-nothing": "its local loop measures, and takes no step",
    "private-updates": "what silos send of their training is differentially private",
    "masks-updates": "the server can read sums over the silos, and no silo's own update",
    "made-steps": "its steps look at values, or read samples of their own: none can be recorded and replayed",
    "adapts-once": "its `adapt` is long: asked after the last round only",
}


@dataclass(frozen=True)
class Clash:
    """A need of one part that an effect of another part rules out."""

    needs: tuple[str, ...]
    does: str
    refusal: str  # {part} has the need, {other} the effect


CLASHES = (
    Clash(
        ("even-steps",),
        "uneven-steps",
        "{part!r} counts local steps that move every tensor alike, and those of {other!r} do not",
    ),
    Clash(
        ("server-data", "synthetic-images", "input-gradients"),
        "normalises-images",
        "networks of {other!r} see images that were normalised at a silo, and {part!r} would give them images as they "
        "are; leave one of them out",
    ),
)


def check_names(owner: str, needs: Iterable[str], does: Iterable[str]) -> None:
    """Raise TypeError where a part names a need or an effect that no table knows."""
    unknown = [name for name in needs if name not in NEEDS and not name.startswith(PART)]
    unknown += [name for name in does if name not in DOES]
    if unknown:
        raise TypeError(f"{owner} names {unknown[0]!r}, which is neither in NEEDS nor in DOES (fairsilo/core/needs.py)")


def parts_in(needs: Iterable[str]) -> list[str]:
    """The other parts among the needs, by name."""
    return sorted(name.removeprefix(PART) for name in needs if name.startswith(PART))


def refusal(part: str, needs: Iterable[str], facts: Facts) -> str | None:
    """The sentence for the first need that is not met; None where all are."""
    for name, need in NEEDS.items():
        if name in needs and not need.met(facts):
            silo = next(iter(facts.without_validation), "")
            return need.refusal.format(part=part, task=facts.task, silo=silo)
    return None
