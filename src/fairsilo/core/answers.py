"""The silo half of a round: one function per kind of exchange. local.py trains, measuring.py measures."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from fairsilo.core.groups import Grouped, asked_of
from fairsilo.core.local import descend
from fairsilo.core.measuring import measure, report, seen, write_measure
from fairsilo.core.messages import MODEL, Message
from fairsilo.core.screening import finite
from fairsilo.core.silo import Silo
from fairsilo.core.task import Measure

SAVED = "saved"  # the scratch entry with the silo's own models, to be saved as its last or best one


def train_silo(silo: Silo) -> Message:
    """Train locally from the received model.

    Returns:
        The change of the model (`model`, the wire layout), the number of samples, the mean loss, and what parts attach.
    """
    method = silo.method
    silo.load(silo.message.tensors[MODEL])
    for begin in method.hooks("begin"):
        begin(silo)
    loop = method.hooks("train")
    loss = descend(silo) if not loop else loop[0](silo)
    update = Message({}, {"samples": len(silo.data.train), "loss": float(loss)})
    for finish in method.hooks("finish"):
        finish(silo, update)
    silo.keep_own()
    update.tensors[MODEL] = silo.change()
    _refuse_unsound(silo, update)
    _personal_results(silo, update)
    outgoing = method.hooks("outgoing")
    for step in outgoing:
        step(silo, update)
    if outgoing:
        _refuse_unsound(silo, update)
    return update


def _refuse_unsound(silo: Silo, update: Message) -> None:
    """Raise where the update or the memory holds a NaN or an infinity: neither is then sent or kept.

    Raises:
        FloatingPointError: The model, or what the silo keeps of training, is no longer finite.
        ValueError: The model is, but not what a part attaches.
    """
    change = [tensor for name, tensor in update.tensors.items() if name == MODEL]
    kept = (value for entries in silo.memory.values() for value in entries.values() if isinstance(value, Tensor))
    if not all(finite(tensor) for tensor in (*change, *kept) if tensor.is_floating_point()):
        raise FloatingPointError("local training diverged: its model has a NaN or an infinity")
    for name, tensor in update.tensors.items():
        if tensor.is_floating_point() and not finite(tensor):
            raise ValueError(f"{name} has a NaN or an infinity, which is not sent")


def _personal_results(silo: Silo, update: Message) -> None:
    """Measure the silo's own model on its data; where asked, hand it over to be saved as the last and the best one."""
    asked = silo.message.numbers
    if not asked.get("evaluate") and not asked.get("save"):
        return
    vector = silo.model.read()
    for personal in silo.method.hooks("personal"):
        vector = personal(silo, vector)
    if not finite(vector):
        raise FloatingPointError("local training diverged: its own model has a NaN or an infinity")
    saved = silo.scratch[SAVED] = {"last": vector} if asked.get("save") else {}
    if asked.get("evaluate"):
        silo.model.load(vector)
        found = report(silo, update, "personal").get("validation")
        if found is not None and asked.get("best") and _is_best(silo, found):
            saved["best"] = vector


def _is_best(silo: Silo, found: Measure) -> bool:
    """Whether this is the silo's best own model so far by its validation data; the silo remembers the best result."""
    kept = silo.memory.setdefault("silo", {})
    best = kept.get("best")
    rank = silo.task.reported.rank
    if best and (rank(best["metric"]), -best["loss"]) >= (rank(found.metric), -found.loss):
        return False
    kept["best"] = {"metric": found.metric, "loss": found.loss, "round": silo.round}
    return True


def personalise_silo(silo: Silo) -> Message:
    """Make the silo's own model from the new global one, and measure it."""
    silo.load(silo.message.tensors[MODEL])
    for personalise in silo.method.hooks("personalise"):
        personalise(silo)
    answer = Message()
    _personal_results(silo, answer)
    return answer


def adapt_silo(silo: Silo) -> Message:
    """Adapt the model sent to the test inputs of this silo, without labels, and score what it predicts."""
    predictions, order = adapted_predictions(silo)
    targets = silo.data.test.targets[order].to(silo.device)
    tally = silo.task.tally(predictions, targets)
    groups = Grouped.of(silo.data.test, asked_of(silo.message))
    groups.add(silo.task, predictions, targets, order)
    answer = Message()
    write_measure(answer, "adapted.test", silo.task.measure(tally))
    groups.write(answer, "adapted.test", len(tally))
    return answer


def adapted_predictions(silo: Silo) -> tuple[Tensor, Tensor]:
    """What the adapted model predicts of the test inputs, and the order in which it was given them."""
    silo.load(silo.message.tensors[MODEL])
    split = silo.data.test
    order = torch.randperm(len(split), generator=silo.stream("adapt"))  # files are often sorted by class

    def batches(size: int) -> Iterator[Tensor]:
        # of even sizes: BatchNorm has no statistics for a last batch of one sample
        for indices in order.tensor_split(math.ceil(len(order) / size)):
            yield seen(silo, silo.batch(split, indices), False)

    with silo.model.keeping_frozen():
        predictions = torch.cat(list(silo.method.hooks("adapt")[0](silo, batches)))
    return predictions.detach(), order


def evaluate_silo(silo: Silo) -> Message:
    """Measure the model sent, on the validation and test splits that the silo has."""
    silo.load(silo.message.tensors[MODEL])
    answer = Message()
    report(silo, answer, "global")
    return answer


def probe_silo(silo: Silo) -> Message:
    """Measure a candidate model on one split; nothing is kept. Who could ask at will could find out a gradient."""
    if not any(one.exchange == "probe" for one in silo.method.declared):
        raise ValueError(f"{silo.method.name} probes no models, and was asked to")
    silo.load(silo.message.tensors[MODEL])
    found = measure(silo, str(silo.message.numbers["split"]))
    return Message({}, {"loss": found.loss, "metric": found.metric, "samples": found.samples})


def share_silo(silo: Silo) -> Message:
    """Let the part that asked answer, from the silo's data or its memory."""
    wanted = silo.message.numbers["part"]
    part = next(part for part in silo.method.parts if part.name == wanted)
    answer: Message = part.share(silo, silo.message)
    return answer


EXCHANGE = {
    "train": train_silo,
    "evaluate": evaluate_silo,
    "probe": probe_silo,
    "share": share_silo,
    "personalise": personalise_silo,
    "adapt": adapt_silo,
}
