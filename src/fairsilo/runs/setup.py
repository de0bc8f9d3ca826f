"""What a run is made of: data, method, model and engine, put together from its settings and checked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from fairsilo.config import INVERSE, DataSettings, EngineSettings, EvaluateSettings, Experiment
from fairsilo.core.arithmetic import Arithmetic, fast
from fairsilo.core.disclosure import MINIMUM
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.core.roster import Roster
from fairsilo.core.samples import Split, joined
from fairsilo.core.vectors import tensors_of
from fairsilo.data import is_public, load
from fairsilo.data.dataset import Dataset
from fairsilo.data.datasets import about
from fairsilo.data.federation import Federation, federate
from fairsilo.data.newcomer import read_newcomer, relabelled
from fairsilo.data.synthetic import Words, check_synthetic, leaving, like, make_synthetic, public_images
from fairsilo.engine.base import Engine
from fairsilo.engine.blueprint import Blueprint, ModelMaker
from fairsilo.engine.features import Shelf
from fairsilo.engine.styles import ask_words
from fairsilo.errors import FairsiloError, nearest
from fairsilo.methods import catalogue
from fairsilo.methods.text import method as method_of
from fairsilo.methods.text import text_of
from fairsilo.models import described
from fairsilo.protocols import class_weights
from fairsilo.runs.engines import engine_kind
from fairsilo.tasks.options import Options
from fairsilo.tasks.registry import task_of


@dataclass(frozen=True)
class Objects:
    """What was given as a Python object: the configuration cannot name it, so a resumed run must be given it again."""

    federation: Federation | None = None
    model: ModelMaker | None = None
    methods: Mapping[str, Method] = field(default_factory=dict)  # by the text that stands for it in the configuration

    def method(self, text: str) -> Method:
        return self.methods[text] if text in self.methods else method_of(text)

    def kinds(self, text: str) -> list[str]:
        """The kinds of objects that a run with this method has."""
        given = {"federation": self.federation is not None, "model": self.model is not None}
        return [kind for kind, is_given in {**given, "method": text in self.methods}.items() if is_given]


def as_method(given: Method | Part) -> Method:
    return Method((given,), given.name) if isinstance(given, Part) else given


def named_method(given: str | Method | Part) -> tuple[str, dict[str, Method]]:
    """The text that stands for a method in a configuration; and, where no text can, the method under that name."""
    if isinstance(given, str):
        return given, {}
    made = as_method(given)
    text = text_of(made)
    return (text, {}) if text is not None else (made.name, {made.name: made})


def dataset_of(data: DataSettings) -> Dataset:
    dataset = load(
        name=data.name,
        folder=data.folder,
        packed=data.packed,
        size=data.size,
        seed=data.seed,
        domains=data.domains,
        fit=data.fit,
        root=data.root,
    )
    return dataset if data.named_classes is None else relabelled(dataset, data.named_classes)


def federation_of(experiment: Experiment, dataset: Dataset | None = None) -> Federation:
    """The silos of an experiment, of its data set or of one that was read before."""
    data = experiment.data
    dataset = dataset or dataset_of(data)
    return federate(
        dataset,
        held_out=data.held_out,
        silos_per_domain=data.counts,
        share=data.shares,
        dif=data.dif,
        order=[name for name in data.domains or () if name in dataset.domains] or None,
        validation=data.validation,
        test=data.test,
        seed=data.seed,
        split=data.split,
    )


def synthetic_of(
    experiment: Experiment,
    roster: Roster,
    folder: Path | None = None,
    shelf: Shelf | None = None,
    words: Words | None = None,
) -> dict[str, Split]:
    """Silo -> labelled images in its style, from the generator that the settings name.

    What takes long to make is kept in the run's folder, and on the shelf for the other runs of this process. `words`
    is called where silos must learn the words for their styles first.
    """
    data = experiment.data
    if data.synthetic is None:
        return {}
    if data.synthetic == "server":
        return public_images(server_images(experiment, roster), roster, data.synthetic_share, data.seed)
    shared = None if shelf is None else shelf.found
    settings = (data.synthetic_share, data.synthetic_bad, data.seed)
    place = folder and folder / "synthetic"
    return make_synthetic(data.synthetic, roster, *settings, place, shared, words)


def words_of(experiment: Experiment, roster: Roster, engine: Engine) -> dict[str, Tensor]:
    """Silo -> the word that it learns for its style, on an engine that has the silos' images."""
    source = (experiment.data.synthetic or "").partition(":")[2]
    return ask_words(engine, source, roster, experiment.data.seed)


def sends_of(experiment: Experiment, method: Method) -> tuple[str, ...]:
    """What silos give away besides the model, in words: for the method, results by group, images in their style."""
    groups, synthetic = experiment.evaluate.groups, experiment.data.synthetic
    results = f"sums of its test results by {groups}, of groups with at least {MINIMUM} samples"
    return (*method.sends, *([results] if groups else ()), *(leaving(synthetic) if synthetic else ()))


def server_data_of(experiment: Experiment, roster: Roster, synthetic: dict[str, Split] | None = None) -> Split | None:
    """All images given to the server, whatever their domain (if they have one), with the federation's class numbers.

    Where no folder is given, the synthetic images of all silos.
    """
    if experiment.data.server is None:
        if not synthetic:
            return None
        return joined(synthetic[name] for name in sorted(synthetic))
    domains = server_images(experiment, roster).values()
    found = Split(torch.cat([one.inputs for one in domains]), torch.cat([one.targets for one in domains]))
    for number, name in enumerate(roster.classes):
        if not (found.targets == number).any():
            raise FairsiloError(f"data.server={experiment.data.server} has no image of the federation's class {name!r}")
    return found


def server_images(experiment: Experiment, roster: Roster) -> dict[str, Split]:
    """Domain -> the images of it that were given to the server, in the federation's size."""
    path = experiment.data.server
    if path is None:
        raise FairsiloError("data.synthetic=server takes the server's own images; say where they are: data.server=PATH")
    if not Path(path).exists():  # read_newcomer would take a name such as glyphs for the embedded federation
        raise FairsiloError(
            f"data.server={path} does not exist; give PATH/class/image, PATH/domain/class/image or packed files"
        )
    domains = read_newcomer(path, roster.classes, max(roster.shape[-2:]), experiment.data.fit)
    return {name: Split(like(domain.samples.inputs, roster), domain.targets) for name, domain in domains.items()}


def check(experiment: Experiment, roster: Roster, objects: Objects | None = None) -> None:
    """Refuse what cannot run before anything is written."""
    check_data(experiment, roster)
    check_methods(experiment, roster, objects)


def check_methods(experiment: Experiment, roster: Roster, objects: Objects | None = None) -> None:
    """The method, and the baseline where there is one, with this model and these silos."""
    data = experiment.data
    made = data.synthetic is not None
    for name in filter(None, (experiment.method, experiment.baseline)):
        model = model_of(experiment.model, name, roster)
        plan = plan_of(dataclasses.replace(experiment, method=name, model=model), roster, objects)
        plan.check(roster, data.server is not None or made, made)


def check_data(experiment: Experiment, roster: Roster) -> None:
    """The engine, and what is given or made besides the silos' data: the same for every method."""
    engine_kind(experiment, len(roster.silos) + len(roster.unseen))
    data = experiment.data
    server_data_of(experiment, roster)
    if data.synthetic == "server":
        synthetic_of(experiment, roster)
    elif data.synthetic is not None:
        check_synthetic(data.synthetic, roster, data.synthetic_share, data.synthetic_bad, data.seed)


def resolved(experiment: Experiment, roster: Roster, given: bool = False) -> Experiment:
    """`auto` replaced by what it came to, and the data's own name where they were given as an object: what is saved."""
    held_out = "+".join(dict.fromkeys(member.domain for member in roster.unseen)) or "-"
    model = model_of(experiment.model, experiment.method, roster)
    data = dataclasses.replace(experiment.data, held_out=held_out)
    if given:
        data = dataclasses.replace(data, name=roster.name, folder=None, packed=None)
    engine = engine_of(experiment.engine)
    evaluate = evaluate_of(experiment, roster)
    return dataclasses.replace(experiment, model=model, data=data, evaluate=evaluate, engine=engine)


def engine_of(engine: EngineSettings) -> EngineSettings:
    """The settings of the engine, with the device that `auto` comes to on this machine, and what `fast` stands for."""
    if engine.device == "auto":
        engine = dataclasses.replace(engine, device="cuda" if torch.cuda.is_available() else "cpu")
    if engine.preset != "fast":
        return engine
    chosen = dataclasses.asdict(dataclasses.replace(fast(engine.device), deterministic=engine.deterministic))
    for name, default in dataclasses.asdict(Arithmetic()).items():
        if getattr(engine, name) not in (default, chosen[name]):
            raise FairsiloError(f"engine.preset=fast sets engine.{name}={chosen[name]}; leave one of them out")
    return dataclasses.replace(engine, preset="exact", **chosen)  # what it stands for here, and stays for this run


def model_of(chosen: str, method: str, roster: Roster) -> str:
    """The network of a method where `auto` is chosen: what it is built around, else what suits the task and samples."""
    if chosen != "auto":
        return chosen
    return catalogue.model_for(method) or described.suited(roster.task, roster.shape)


def evaluate_of(experiment: Experiment, roster: Roster) -> EvaluateSettings:
    """The settings of the evaluation, with the metric that `auto` comes to: of a public data set the papers' own."""
    if experiment.evaluate.metric != "auto":
        return experiment.evaluate
    name, task = experiment.data.name or "", task_of(roster.task, len(roster.classes))
    papers = about(name) if is_public(name) else None
    reported = papers.metric if papers and papers.task == roster.task else ""
    return dataclasses.replace(experiment.evaluate, metric=reported or task.reported.name)


# ------------------------------------------------------------------------------------------------------------ the plan
def plan_of(experiment: Experiment, roster: Roster, objects: Objects | None = None) -> Blueprint:
    """What every silo must know, from the settings and from what the silos' samples look like."""
    objects = objects or Objects()
    return Blueprint(
        method=objects.method(experiment.method),
        model=objects.model or experiment.model,
        task=task_of(roster.task, len(roster.classes), experiment.evaluate.metric, options_of(experiment, roster)),
        classes=roster.classes,
        silos=roster.names,
        channels=roster.shape[0] if roster.shape else 1,
        training=experiment.train,
        seed=experiment.seed,
        augment=experiment.data.augment,
        evaluation_batch=experiment.evaluate.batch,
        device=experiment.engine.device,
        arithmetic=Arithmetic.of(experiment.engine),
        threads=experiment.engine.threads,
    )


def options_of(experiment: Experiment, roster: Roster) -> Options:
    """How the task's loss is computed, with the weights of classes that the settings or the silos' counts give."""
    chosen = experiment.task
    return Options(
        loss="" if chosen.loss == "auto" else chosen.loss,
        weights=_class_weights(chosen.class_weights, roster),
        gamma=chosen.gamma,
        smoothing=chosen.smoothing,
        offset=chosen.offset,
        scale=chosen.scale,
    )


def _class_weights(given: str | None, roster: Roster) -> tuple[float, ...]:
    if given is None:
        return ()
    if not roster.classes:
        raise FairsiloError(f"task.class_weights={given} is for data with classes, which {roster.name} have not")
    if given != INVERSE:
        named = class_weights(given)
        for name in named:
            if name not in roster.classes:
                raise FairsiloError(
                    f"task.class_weights names {name!r}, which is no class{nearest(name, roster.classes)}"
                )
        return tuple(named.get(name, 1.0) for name in roster.classes)
    counted = [member.trained for member in roster.silos]
    if not all(counted):
        raise FairsiloError("task.class_weights=inverse needs the silos' counts of each class, and this task has none")
    totals = [sum(column) for column in zip(*counted, strict=True)]
    shares = [1 / total if total else 0.0 for total in totals]
    mean = sum(shares) / sum(total > 0 for total in totals)
    return tuple(share / mean for share in shares)


def sizes_of(plan: Blueprint, module: nn.Module) -> dict[str, int]:
    """Bytes of what is sent of the model, and of the whole of it."""
    whole = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(module).values())
    layout = plan.layout.wire
    return {"bytes_sent": layout.size * layout.dtype.itemsize, "bytes_model": whole}


def fingerprint(plan: Blueprint, roster: Roster) -> str:
    """What a checkpoint only fits: the silos with their sizes, the classes, the model's tensors."""
    silos = [(one.name, one.train, one.validation, one.test) for one in roster.silos]
    facts = json.dumps([silos, roster.unseen_names, roster.classes, plan.layout.describe()])
    return hashlib.sha256(facts.encode()).hexdigest()[:16]
