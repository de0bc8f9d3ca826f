"""Test images with their masks and what a model makes of them, kept with a run for its report.

Only a simulation has the silos' data at hand, so only its runs have examples; `evaluate.examples=false` keeps none.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.answers import adapted_predictions
from fairsilo.core.disk import replacing
from fairsilo.core.files import write_tree
from fairsilo.core.measuring import output_of
from fairsilo.core.messages import MODEL, Request
from fairsilo.core.round import open_adaptation, open_evaluation
from fairsilo.core.samples import SiloData
from fairsilo.core.silo import Memory
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError
from fairsilo.runs.pictures import EXAMPLES
from fairsilo.runs.trained import Trained

SILOS = 16  # whose examples are kept; unseen ones come first
SIDE = 160  # larger images are reduced to this: enough to see an outline, and a run folder stays small


def write_examples(trained: Trained, federation: Federation) -> None:
    """Keep the best, the median and the worst test image of each silo by Dice, by the models of the last round."""
    found = []
    unseen = set(federation.unseen_names)
    for data in [*federation.unseen, *federation.silos][:SILOS]:
        model = "global" if trained.facts.get("about") != "personal" else "personal"
        if data.name in unseen:
            model = "adapted" if trained.plan.method.owners("adapt") else "global"
        try:
            said = answers(trained, data, model) if len(data.test) else None
        except FairsiloError:  # no such model: nothing is shared, or the silo was not there at the end
            continue
        if said is not None and (shown := _chosen(data, said)):
            found.append({"silo": data.name, "unseen": data.name in unseen, "model": model, "images": shown})
    with replacing(trained.folder / EXAMPLES) as beside:
        write_tree(beside, {"silos": found, "left_out": max(0, len(unseen) + len(federation.silos) - SILOS)})


@torch.no_grad()
def answers(trained: Trained, data: SiloData, model: str) -> Tensor:
    """The class of every pixel of a silo's test images (N x H x W), as its last evaluation had it."""
    server, plan = trained.server, trained.plan
    if model != "personal" and not server.layout.size:
        raise FairsiloError(f"{plan.method.name} has no global model")
    if model == "adapted":
        request = Request("adapt", server.round, open_adaptation(server, [data.name])[data.name])
        silo = plan.silo(trained.model, data, request, Memory())
        with streams.ambient(plan.seed, server.round, data.name, "adapt"), torch.enable_grad():
            predictions, order = adapted_predictions(silo)
        said = predictions.argmax(1).cpu()
        return said[order.argsort()]
    at_home = data.name in trained.silos
    message = open_evaluation(server, [data.name] if at_home else [], [] if at_home else [data.name])[data.name]
    memory = trained.memories.get(data.name) or Memory()
    silo = plan.silo(trained.model, data, Request("evaluate", server.round, message), memory)
    if model == "personal":
        silo.model.load(trained.personal(data.name, "last"))
    else:
        silo.load(message.tensors[MODEL])
    silo.model.eval()
    batches = silo.evaluation_batches(data.test)
    return torch.cat([output_of(silo, batch).prediction.argmax(1).cpu() for batch in batches])


def dices(said: Tensor, true: Tensor) -> Tensor:
    """Of each image the mean over the structures that it shows or is said to show; NaN where there are none."""
    found = []
    for number in range(1, 1 + int(max(said.max(), true.max()))):
        one, other = ((masks == number).flatten(1) for masks in (said, true))
        found.append(2 * (one & other).sum(1) / (one.sum(1) + other.sum(1)))  # 0 / 0 is NaN: counts nowhere
    return torch.stack(found).nanmean(0) if found else torch.full((len(said),), torch.nan)


def _chosen(data: SiloData, said: Tensor) -> list[dict[str, Any]]:
    score = dices(said, data.test.targets.cpu().long())
    ranked = [one for one in score.argsort(stable=True).tolist() if not score[one].isnan()]
    if not ranked:
        return []
    places = {"best": ranked[-1], "worst": ranked[0]} if len(ranked) > 1 else {"best": ranked[0]}
    if len(ranked) > 2:
        places = {"best": ranked[-1], "median": ranked[len(ranked) // 2], "worst": ranked[0]}
    found = []
    for place, one in places.items():
        inputs, targets = data.test.take(torch.tensor([one], device=data.test.targets.device))
        masks = torch.stack([targets[0].cpu().long(), said[one].long()])
        image, masks = _reduced(_visible(inputs[0].cpu()), masks)
        truth, answer = masks.short()
        found.append(
            {"place": place, "dice": float(score[one]), "image": image, "truth": truth, "said": answer.contiguous()}
        )
    return found


def _visible(image: Tensor) -> Tensor:
    """Bytes as they are, other numbers between their ends; red, green and blue, or one channel."""
    values = image.float()
    if image.dtype != torch.uint8:
        low, high = values.aminmax()
        values = 255 * (values - low) / (high - low).clamp(min=1e-9)
    return values if len(values) == 3 else values.mean(0, keepdim=True)


def _reduced(image: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    longest = max(image.shape[1:])
    if longest > SIDE:
        size = [max(1, round(SIDE * length / longest)) for length in image.shape[1:]]
        image = F.interpolate(image[None], size, mode="area")[0]
        masks = F.interpolate(masks[None].float(), size, mode="nearest-exact")[0]
    return image.round().to(torch.uint8), masks
