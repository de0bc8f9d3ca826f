"""A network with all that `Trained.predict` does around it, as one module; and such a module read back from a file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairsilo.core.files import read_tensors
from fairsilo.core.measuring import output_of
from fairsilo.core.messages import Message, Request
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.silo import Batch, Memory, Silo, inputs_for
from fairsilo.core.vectors import FlatModel, tensors_of
from fairsilo.engine.blueprint import Blueprint, ModelMaker
from fairsilo.errors import FairsiloError, nearest
from fairsilo.methods.pieces import references
from fairsilo.methods.text import method as method_of
from fairsilo.methods.text import text_of
from fairsilo.models import described
from fairsilo.models.networks import Staged
from fairsilo.runs.opened import refuse_code
from fairsilo.runs.setup import as_method
from fairsilo.tasks import registry as tasks

DESCRIPTIONS = ("model.json", "config.json")  # the second in a folder of the Hugging Face layout


class Answering(nn.Module):
    """Samples as the run's data were in; probabilities, masks or numbers as `Trained.predict` gives them out.

    The rules are those of `predict`: what a network wants its images to be, what the parts of the method change of
    them at evaluation, and what the task makes of the network's output.
    """

    def __init__(self, held: Silo) -> None:
        super().__init__()
        held.model.eval()
        self.network = held.model.module
        self.held = held

    def forward(self, samples: Tensor) -> Tensor:
        count = samples.shape[0]  # not len(), which would fix the size of a batch while an export traces this
        nothing, order = torch.zeros(count, dtype=torch.long), torch.arange(count)
        batch = Batch(inputs_for(self.held.model, samples), nothing, order)
        return self.held.task.predicted(output_of(self.held, batch).prediction)


def taken_apart(held: Silo) -> Answering:
    """The module of a silo whose network nobody else uses, in the form that can be traced and written.

    Its tensors get storages of their own, since a file would repeat the whole vector with each of them. A frozen first
    stage no longer runs in blocks of a fixed size, which a batch of any size cannot be traced through; blocks only
    keep the last digits from depending on the batch.
    """
    module, layout = held.model.module, held.model.layout
    tensors, changed = tensors_of(module), {slot.name for slot in layout.slots}
    for name in changed:
        tensors[name].grad = None
        tensors[name].data = tensors[name].detach().clone()
    for one in module.modules():
        if isinstance(one, Staged):
            one.stem_in_blocks = one.stem  # type: ignore[method-assign]
    return Answering(held)


# ---------------------------------------------------------------------------------------------------- plans as text
def plan_described(plan: Blueprint) -> dict[str, Any]:
    """A plan for a description: its text, and what has no name elsewhere and must be given again (`missing`)."""
    missing = []
    if not isinstance(plan.model, str):
        missing, plan = ["model"], dataclasses.replace(plan, model="small-cnn")
    if text_of(plan.method) is None:
        missing, plan = [*missing, "method"], dataclasses.replace(plan, method=method_of("fedavg"))
    return {"plan": json.loads(plan.as_text()), "missing": missing}


def code_in(about: dict[str, Any]) -> list[str]:
    """What the plan of a description would import, as `package:name`."""
    model, method, task = (about["plan"][key] for key in ("model", "method", "task"))
    code = [model] if described.names_code(model) else []
    return [*code, *references(method), *([task[0]] if tasks.names_code(task[0]) else [])]


def _plan(path: Path, about: dict[str, Any], given: dict[str, Any], trust: bool) -> Blueprint:
    for kind in about["missing"]:
        if given[kind] is None:
            raise FairsiloError(f"{path} comes from a run with a {kind} of its own; give it: {kind}=...")
    refuse_code(path, code_in(about), trust)
    plan = Blueprint.from_text(json.dumps(about["plan"]))
    return dataclasses.replace(plan, **{kind: given[kind] for kind in about["missing"]})


# ------------------------------------------------------------------------------------------------------ reading back
def read_exported(
    folder: str | Path,
    name: str | None = None,
    *,
    model: ModelMaker | None = None,
    method: Method | Part | None = None,
    trust: bool = False,
) -> Answering:
    """A model that `fairsilo export --to safetensors` or `--to hf` wrote, ready to be called with samples.

    Args:
        folder: The folder with `model.json` or `config.json`.
        name: Which of its models: `global`, or a silo. May be left out where there is one, or a global one.
        model: The function that makes the network, where the run was given one.
        method: The method, where the run was given one that has no name elsewhere.
        trust: Import the code that the description names as `package:name`.

    Returns:
        A module in evaluation mode: samples (N x shape, of the type that the description names) in, what
        `Trained.predict` gives out.

    Raises:
        FairsiloError: There is no such model, or it needs what is not given.
    """
    folder = Path(folder)
    about = read_description(folder)
    models: dict[str, dict[str, Any]] = about["models"]
    chosen = name or ("global" if "global" in models or len(models) > 1 else next(iter(models)))
    if chosen not in models:
        raise FairsiloError(f"{folder} has no model {chosen!r}{nearest(chosen, models)}")
    if "plan" not in about:
        raise FairsiloError(f"{folder} holds {about['format']} files, which need no fairsilo: its README.md says how")
    plan = _plan(folder, about, {"model": model, "method": None if method is None else as_method(method)}, trust)
    return rebuilt(plan, folder / models[chosen]["file"], models[chosen]["network"])


def read_description(folder: Path) -> dict[str, Any]:
    """What stands beside the files of an export.

    Raises:
        FairsiloError: The folder holds no export.
    """
    for file in DESCRIPTIONS:
        if (folder / file).is_file():
            try:
                found = json.loads((folder / file).read_text(encoding="utf-8"))
            except ValueError as problem:
                raise FairsiloError(f"{folder / file} is damaged: {problem}") from problem
            about = found.get("fairsilo") if isinstance(found, dict) else None
            if isinstance(about, dict) and "models" in about:
                return about
    raise FairsiloError(f"{folder} holds no model that `fairsilo export` wrote")


def rebuilt(plan: Blueprint, path: Path, network: str) -> Answering:
    """A network of a plan with the tensors of a file."""
    flat = plan.server_flat() if network == "server" else plan.flat()
    assert flat is not None
    try:
        flat.module.load_state_dict(read_tensors(path)[0])
    except RuntimeError as problem:  # torch's own list of tensors that are missing or of another shape
        raise FairsiloError(f"{path} does not fit its network: {' '.join(str(problem).split())[:300]}") from problem
    return answering(plan, flat).requires_grad_(False)


def answering(plan: Blueprint, model: FlatModel) -> Answering:
    """The module of a model that no server sent anything with."""
    empty = Split(torch.empty(0), torch.empty(0))
    request = Request("evaluate", plan.training.rounds, Message())
    return Answering(plan.silo(model, SiloData("samples", "samples", empty, empty, empty), request, Memory()))
