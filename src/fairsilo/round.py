"""One round, both halves: the ONLY place where hooks are called.

At the server `open_round` and `close_round`; at a silo one function per kind of exchange. Engines move messages
between the two and know no hook; parts write hooks and call none.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from fairsilo import streams
from fairsilo.errors import StoppedError
from fairsilo.messages import MODEL, Message, Number, Reply
from fairsilo.models.networks import Output
from fairsilo.optimizers import kept_optimizer
from fairsilo.part import Part
from fairsilo.screening import finite
from fairsilo.server import Server, Updates, base_weights, named
from fairsilo.silo import Batch, Silo
from fairsilo.tasks import Measure

SAVED = "saved"  # the scratch entry with the silo's own models, to be saved as its last or best one

# ---------------------------------------------------------------------------------------------------- at the silo


def train_silo(silo: Silo) -> Message:
    """Local training from the received model; returns the change of it and what the parts attach."""
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
    _refuse_diverged(silo, update)
    _personal_results(silo, update)
    return update


def _refuse_diverged(silo: Silo, update: Message) -> None:
    """Nothing that is not finite is sent or remembered: a step that diverged fails, and leaves no trace."""
    kept = (value for entries in silo.memory.values() for value in entries.values() if isinstance(value, Tensor))
    if not all(finite(tensor) for tensor in (*update.tensors.values(), *kept) if tensor.is_floating_point()):
        raise FloatingPointError("local training diverged: the model is no longer finite")


def _personal_results(silo: Silo, update: Message) -> None:
    """Measure the silo's own model at home; hand it over for saving, where asked, as the last one and as the best."""
    asked = silo.message.numbers
    if not asked.get("evaluate") and not asked.get("save"):
        return
    vector = silo.model.read()
    for personal in silo.method.hooks("personal"):
        vector = personal(silo, vector)
    if not finite(vector):
        raise FloatingPointError("the silo's own model is no longer finite")
    saved = silo.scratch[SAVED] = {"last": vector} if asked.get("save") else {}
    if asked.get("evaluate"):
        silo.model.load(vector)
        for split in ("validation", "test"):
            if len(silo.data.split(split)):
                found = measure(silo, split)
                write_measure(update, f"personal.{split}", found)
                if split == "validation" and asked.get("best") and _is_best(silo, found):
                    saved["best"] = vector


def _is_best(silo: Silo, found: Measure) -> bool:
    """Whether the silo's own model never was better on its validation data; remembered by the silo."""
    kept = silo.memory.setdefault("silo", {})
    best = kept.get("best")
    if best and (best["metric"], -best["loss"]) >= (found.metric, -found.loss):
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
    silo.load(silo.message.tensors[MODEL])
    split = silo.data.test
    order = torch.randperm(len(split), generator=silo.stream("adapt"))  # files often come sorted by class

    def batches(size: int) -> Iterator[Tensor]:
        # of even sizes: a last batch of one sample has no statistics
        for indices in order.tensor_split(math.ceil(len(order) / size)):
            yield _seen(silo, silo.batch(split, indices), False)

    with silo.model.keeping_frozen():
        predictions = torch.cat(list(silo.method.hooks("adapt")[0](silo, batches)))
    tally = silo.task.tally(predictions.detach(), split.targets[order].to(silo.device))
    answer = Message()
    write_measure(answer, "adapted.test", silo.task.measure(tally))
    return answer


def _seen(silo: Silo, batch: Batch, training: bool) -> Tensor:
    """What the network sees of a batch."""
    inputs = batch.inputs
    for change in silo.method.hooks("inputs"):
        inputs = change(silo, inputs, batch, training)
    return inputs


def evaluate_silo(silo: Silo) -> Message:
    """Measure the model sent, on the validation and test splits that the silo has."""
    silo.load(silo.message.tensors[MODEL])
    answer = Message()
    for split in ("validation", "test"):
        if len(silo.data.split(split)):
            write_measure(answer, f"global.{split}", measure(silo, split))
    return answer


def probe_silo(silo: Silo) -> Message:
    """Measure a candidate model on one split; nothing is kept."""
    silo.load(silo.message.tensors[MODEL])
    found = measure(silo, str(silo.message.numbers["split"]))
    return Message({}, {"loss": found.loss, "metric": found.metric, "samples": found.samples})


def share_silo(silo: Silo) -> Message:
    """Let the one part that asked answer, from the silo's data or with what it is given to keep."""
    wanted = silo.message.numbers["part"]
    part = next(part for part in silo.method.parts if part.name == wanted)
    return part.share(silo, silo.message)


EXCHANGE = {
    "train": train_silo,
    "evaluate": evaluate_silo,
    "probe": probe_silo,
    "share": share_silo,
    "personalise": personalise_silo,
    "adapt": adapt_silo,
}


def objective(silo: Silo, batch: Batch, terms: bool = True) -> Tensor:
    """The task's loss on a batch, with the terms that parts add (unless `terms` is off)."""
    inputs = _seen(silo, batch, terms)
    output = silo.forward(inputs)
    loss = task_loss(silo, output, batch)
    if terms:
        batch = dataclasses.replace(batch, inputs=inputs)  # a term sees what the network saw
        for term in silo.method.hooks("loss"):
            loss = term(silo, loss, output, batch)
    return loss


def task_loss(silo: Silo, output: Output, batch: Batch) -> Tensor:
    """What is trained before any part adds a term: the task's loss, or the criterion in its place."""
    criterion = silo.method.hooks("criterion")
    found: Tensor = criterion[0](silo, output, batch) if criterion else silo.task.loss(output.prediction, batch.targets)
    return found


def gradient(silo: Silo, batch: Batch, terms: bool = True, corrections: bool = True) -> Tensor:
    """Leave the gradient of the objective in silo.model.gradients; returns the detached loss.

    Without `terms` it is the bare task's loss; without `corrections` the gradient stays as the loss gives it.
    """
    silo.model.gradients.zero_()
    loss = objective(silo, batch, terms)
    loss.backward()  # type: ignore[no-untyped-call]
    if corrections:
        correct(silo)
    return loss.detach()


def correct(silo: Silo) -> None:
    """What parts change in the gradient of a step, then the bound of its norm."""
    for change in silo.method.hooks("gradients"):
        change(silo)
    clip(silo)


def clip(silo: Silo) -> None:
    """Bound the norm of the gradient, where the settings ask for it."""
    if silo.training.clip is not None:
        torch.nn.utils.clip_grad_norm_([silo.parameters], silo.training.clip)


def descend(silo: Silo, step: Callable[[Silo, Batch], Tensor] = gradient) -> Tensor:
    """The local loop: per batch a gradient (of the objective, or as `step` computes it) and an optimiser step.

    Returns the mean loss over the steps.
    """
    with kept_optimizer(silo) as optimizer:
        return follow(silo, optimizer, silo.batches(), step)


class Steps(Protocol):
    """What takes a step along the gradient: an optimiser, or several in turn."""

    def step(self) -> Any: ...


def follow(
    silo: Silo,
    optimizer: Steps,
    batches: Iterable[Batch],
    step: Callable[[Silo, Batch], Tensor] = gradient,
) -> Tensor:
    """Steps of an optimiser over batches; returns the mean loss."""
    silo.model.train()
    total = torch.zeros((), dtype=torch.float64, device=silo.device)
    before = silo.steps
    for batch in batches:
        total += step(silo, batch)
        optimizer.step()
        silo.steps += 1
    return total / max(silo.steps - before, 1)


@torch.no_grad()
def measure(silo: Silo, split: str) -> Measure:
    """Loss and metric of the model held, on a split of this silo, in evaluation mode."""
    silo.model.eval()
    total: Tensor | None = None
    for batch in silo.evaluation_batches(silo.data.split(split)):
        tally = silo.task.tally(predicted(silo, batch), batch.targets)
        total = tally if total is None else total + tally
    if total is None:
        raise ValueError(f"silo {silo.name!r} has no {split} samples to measure a model on")
    return silo.task.measure(total)


def output_of(silo: Silo, batch: Batch) -> Output:
    """What the model held makes of a batch, as at evaluation."""
    return silo.forward(_seen(silo, batch, False))


def predicted(silo: Silo, batch: Batch) -> Tensor:
    return output_of(silo, batch).prediction


def read_measure(message: Message, key: str) -> Measure:
    loss, metric, samples = (message.numbers[f"{key}.{what}"] for what in ("loss", "metric", "samples"))
    return Measure(float(loss), float(metric), int(samples))


def write_measure(message: Message, key: str, found: Measure) -> None:
    message.numbers |= {
        f"{key}.loss": found.loss,
        f"{key}.metric": found.metric,
        f"{key}.samples": found.samples,
    }


# -------------------------------------------------------------------------------------------------- at the server


def prepare(server: Server) -> None:
    for hook in server.method.hooks("prepare"):
        hook(server)


def conclude(server: Server) -> None:
    for hook in server.method.hooks("conclude"):
        hook(server)


def open_round(server: Server, participants: Iterable[str], asks: dict[str, Number]) -> dict[str, Message]:
    """The message to each participant: the model and what parts add."""
    messages = {}
    for name in participants:
        message = _with_model(server, server.vector, dict(asks))
        for broadcast in server.method.hooks("broadcast"):
            message = broadcast(server, name, message)
        messages[name] = message
    return messages


def open_evaluation(server: Server, silos: Iterable[str], unseen: Iterable[str]) -> dict[str, Message]:
    """The model that each silo measures: the global one, unless a part answers per silo."""
    return _answering(server, {}, silos, unseen)


def open_personalisation(server: Server, silos: Iterable[str], asks: dict[str, Number]) -> dict[str, Message]:
    """The model that each silo makes its own from."""
    return _answering(server, asks, silos)


def open_adaptation(server: Server, unseen: Iterable[str]) -> dict[str, Message]:
    """The model that unseen silos adapt, and what parts give them for it."""
    messages = _answering(server, {}, (), unseen)
    extra = Message()
    for equip in server.method.hooks("equip"):
        extra = equip(server, extra)
    for message in messages.values():
        message.tensors |= extra.tensors
        message.numbers |= extra.numbers
    return messages


def _answering(
    server: Server, numbers: dict[str, Number], silos: Iterable[str], unseen: Iterable[str] = ()
) -> dict[str, Message]:
    """To each silo the model that answers there: the global one, unless a part has another."""
    network: dict[str, Number] = {"network": "server"} if server.module is not None else {}
    messages = {}
    for name, known in [*((name, name) for name in silos), *((name, None) for name in unseen)]:
        vector = server.vector
        for model_for in server.method.hooks("model_for"):
            vector = model_for(server, known, vector)
        messages[name] = _with_model(server, vector, network | numbers)
    return messages


def _with_model(server: Server, vector: Tensor, numbers: dict[str, Number]) -> Message:
    message = Message({MODEL: vector}, numbers)
    for accompany in server.method.hooks("accompany"):
        message = accompany(server, message)
    return message


def probe(server: Server, vector: Tensor, silos: Iterable[str], split: str = "validation") -> dict[str, Measure]:
    """Loss and metric of a model at the silos, which learn nothing from it."""
    question = _with_model(server, vector, {"split": split})
    answers = server.ask("probe", dict.fromkeys(silos, question))
    return {
        name: Measure(float(found["loss"]), float(found["metric"]), int(found["samples"]))
        for name, found in ((name, answer.numbers) for name, answer in answers.items())
        if math.isfinite(float(found["loss"]))
    }


def close_round(server: Server, replies: Iterator[Reply], quorum: int) -> list[str]:
    """Move the global model by what came back; returns who counted. Below the quorum nothing moves."""
    method = server.method
    if not method.individual_updates:
        return _close_by_running_sum(server, replies, quorum)
    updates = gather(server, replies)
    if len(updates) < quorum:
        return list(updates.silos)
    with streams.ambient(server.seed, server.round, "server"):
        vector = _aggregate(server, updates)
    if not finite(vector):
        raise StoppedError(f"round {server.round} stopped: {method.name} made the global model not finite")
    server.vector = vector
    return list(updates.silos)


def _aggregate(server: Server, updates: Updates) -> Tensor:
    """The next global model from the updates."""
    method = server.method
    for collect in method.hooks("collect"):
        updates = collect(server, updates)
    weights = base_weights(updates.samples, method.weighting(server.training.weighting))
    for weigh in method.hooks("weights"):
        weights = weigh(server, updates, weights)
    server.weights = named(updates.silos, weights)
    direction = combine(server, updates, weights)
    for step in method.hooks("step"):
        direction = step(server, updates, direction)
    vector = server.vector.clone()
    vector[: len(direction)] += direction
    if server.module is None:
        floats = server.layout.floats
        vector[floats:] += updates.deltas[:, floats:].max(0).values
    return vector


def combine(server: Server, updates: Updates, weights: Tensor) -> Tensor:
    """The direction of the method's one owner of `combine`, or the weighted mean."""
    owner = server.method.hooks("combine")
    direction: Tensor = owner[0](server, updates, weights) if owner else Part().combine(server, updates, weights)
    return direction


def candidate(server: Server, updates: Updates, weights: Tensor) -> Tensor:
    """The model these weights would give, without the server's step and without side effects: for probes."""
    vector = server.vector.clone()
    vector[: server.layout.floats] += combine(server, updates, weights)
    vector[server.layout.floats :] += updates.deltas[:, server.layout.floats :].max(0).values
    return vector


def gather(server: Server, replies: Iterator[Reply]) -> Updates:
    """All usable updates as the rows of one matrix, in name order."""
    rows, silos, messages = [], [], []
    for reply in replies:
        if isinstance(reply.answer, Message):
            message = reply.answer.copy()
            rows.append(message.tensors.pop(MODEL))
            silos.append(reply.silo)
            messages.append(message)
    layout = server.silo_layout
    deltas = torch.stack(rows) if rows else server.vector.new_empty(0, layout.size)
    samples = torch.tensor([int(m.numbers["samples"]) for m in messages], dtype=torch.float64)
    return Updates(tuple(silos), deltas, samples, messages, layout)


def _close_by_running_sum(server: Server, replies: Iterator[Reply], quorum: int) -> list[str]:
    """The weighted mean without keeping the updates: memory does not depend on the number of silos."""
    floats = server.layout.floats
    by_samples = server.method.weighting(server.training.weighting) == "samples"
    total: Tensor | None = None
    shares: dict[str, float] = {}
    for reply in replies:
        if not isinstance(reply.answer, Message):
            continue
        delta = reply.answer.tensors[MODEL]
        share = float(reply.answer.numbers["samples"]) if by_samples else 1.0
        if total is None:
            total = delta
            total[:floats] *= share
        else:
            total[:floats].add_(delta[:floats], alpha=share)
            torch.maximum(total[floats:], delta[floats:], out=total[floats:])
        shares[reply.silo] = share
        del reply, delta
    if total is None or len(shares) < quorum:
        return list(shares)
    mass = sum(shares.values())
    total[:floats] /= mass
    server.weights = {name: share / mass for name, share in shares.items()}
    server.vector = total.add_(server.vector)
    return list(shares)
