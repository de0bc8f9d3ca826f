"""The server half of a round: messages to the silos, aggregation of their replies. It calls the server's hooks.

The silo half is in answers.py, local.py and measuring.py. Engines move messages between the two and call no hook;
parts define hooks and call none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.attachments import Sends
from fairsilo.core.messages import MODEL, Message, Number, Reply
from fairsilo.core.screening import finite, steadier
from fairsilo.core.server import Server, Updates, base_weights, named
from fairsilo.core.task import Measure
from fairsilo.errors import StoppedError


def prepare(server: Server) -> None:
    for hook in server.method.hooks("prepare"):
        hook(server)


def conclude(server: Server) -> None:
    """Call the `conclude` hooks, once, on the model of the last round before it is evaluated."""
    with streams.ambient(server.seed, server.round, "conclude"):
        for hook in server.method.hooks("conclude"):
            hook(server)
    if not finite(server.vector):
        raise StoppedError(
            f"{server.method.name} made the global model not finite after the last round; {steadier(server.training)}"
        )


def open_round(server: Server, participants: Iterable[str], asks: dict[str, Number]) -> dict[str, Message]:
    """The message to each participant: the model and what parts add."""
    messages, silos = {}, list(participants)
    for assemble in server.method.hooks("assemble"):
        silos = assemble(server, silos)
    for name in silos:
        message = _with_model(server, server.vector, dict(asks))
        for broadcast in server.method.hooks("broadcast"):
            message = broadcast(server, name, message)
        messages[name] = message
    return messages


def open_evaluation(
    server: Server, silos: Iterable[str], unseen: Iterable[str], asks: dict[str, Number] | None = None
) -> dict[str, Message]:
    """The model that each silo measures: the global one, unless a part answers per silo."""
    return _answering(server, asks or {}, silos, unseen)


def open_personalisation(server: Server, silos: Iterable[str], asks: dict[str, Number]) -> dict[str, Message]:
    """The model from which each silo makes its own."""
    return _answering(server, asks, silos)


def open_adaptation(server: Server, unseen: Iterable[str], asks: dict[str, Number] | None = None) -> dict[str, Message]:
    """The model that unseen silos adapt, with what the `equip` hooks add."""
    messages = _answering(server, asks or {}, (), unseen)
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
    """The message with the model that is evaluated at each silo: the global one, unless `model_for` gives another."""
    network: dict[str, Number] = {"network": "server"} if server.own_model is not None else {}
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
    """Loss and metric of a model at the silos; they keep nothing of it."""
    question = _with_model(server, vector, {"split": split})
    answers = server.ask("probe", dict.fromkeys(silos, question))
    return {
        name: Measure(float(found["loss"]), float(found["metric"]), int(found["samples"]))
        for name, found in ((name, answer.numbers) for name, answer in answers.items())
    }


def close_round(server: Server, replies: Iterator[Reply], quorum: int) -> list[str]:
    """Update the global model from the replies; returns the silos that counted. Below the quorum it stays as it is."""
    close = _close_by_running_sum
    if server.method.individual_updates:
        close = _close_by_matrix
    elif server.method.hooks("unmask"):
        close = _close_by_masked_sum
    counted, vector = close(server, replies, quorum)
    if vector is None:
        return counted
    if not finite(vector):
        raise StoppedError(
            f"round {server.round} stopped: {server.method.name} made the global model not finite; "
            f"{steadier(server.training)}"
        )
    server.vector = vector
    return counted


def _close_by_matrix(server: Server, replies: Iterator[Reply], quorum: int) -> tuple[list[str], Tensor | None]:
    """The silos that counted and the next global model, from the matrix of all updates."""
    updates = gather(server, replies)
    silos = list(updates.silos)
    if len(updates) < quorum:
        return silos, None
    with streams.ambient(server.seed, server.round, "server"):
        return silos, _aggregate(server, updates)


def _aggregate(server: Server, updates: Updates) -> Tensor:
    """The next global model from the updates."""
    method = server.method
    for collect in method.hooks("collect"):
        updates = collect(server, updates)
    weights = base_weights(updates.samples, method.weighting(server.training.weighting))
    for weigh in method.hooks("weights"):
        weights = weigh(server, updates, weights)
    server.weights = named(updates.silos, weights)
    totals = Totals(method.declared)
    for message, delta, weight in zip(updates.messages, updates.deltas, weights.tolist(), strict=True):
        totals.add(message, delta, weight)
    direction = _stepped(server, combine(server, updates, weights), totals.close())
    vector = server.vector.clone()
    vector[: len(direction)] += direction
    if server.own_model is None:
        floats = server.layout.floats
        vector[floats:] += updates.deltas[:, floats:].max(0).values
    return vector


def _stepped(server: Server, direction: Tensor, received: dict[str, Tensor]) -> Tensor:
    """The direction after the `step` hooks, which find the declared means and sums in `server.received`."""
    server.received = received
    for step in server.method.hooks("step"):
        direction = step(server, direction)
    server.received = {}
    return direction


class Totals:
    """Means and sums over the silos of the attachments that are declared so, one reply at a time."""

    def __init__(self, declared: Iterable[Sends]) -> None:
        self.uses = {one.name: one.per for one in declared if one.exchange == "train" and one.per != "silo"}
        self.sums: dict[str, Tensor] = {}
        self.mass = 0.0

    def add(self, message: Message, change: Tensor, weight: float) -> None:
        """Add one silo's reply; `change` is that of the model, which `message` need not hold."""
        self.mass += weight
        for name, use in self.uses.items():
            found = change if name == MODEL else message.tensors.get(name)
            if found is None and name in message.numbers:
                found = torch.tensor(float(message.numbers[name]), dtype=torch.float64)
            if found is not None:  # what is optional may be missing
                term = found if use == "sum" else found * weight
                self.sums[name] = self.sums[name] + term if name in self.sums else term.clone()

    def close(self) -> dict[str, Tensor]:
        return {name: total / self.mass if self.uses[name] == "mean" else total for name, total in self.sums.items()}


def combine(server: Server, updates: Updates, weights: Tensor) -> Tensor:
    """The direction from the method's `combine` hook, or the weighted mean where no part has one."""
    owner = server.method.hooks("combine")
    direction: Tensor = owner[0](server, updates, weights) if owner else updates.mean(weights)
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


def _close_by_running_sum(server: Server, replies: Iterator[Reply], quorum: int) -> tuple[list[str], Tensor | None]:
    """The silos that counted and the next global model by the weighted mean, without keeping the updates.

    Memory does not depend on the number of silos.
    """
    floats = server.layout.floats
    by_samples = server.method.weighting(server.training.weighting) == "samples"
    total: Tensor | None = None
    totals = Totals(server.method.declared)
    shares: dict[str, float] = {}
    for reply in replies:
        if not isinstance(reply.answer, Message):
            continue
        delta = reply.answer.tensors[MODEL]
        share = float(reply.answer.numbers["samples"]) if by_samples else 1.0
        totals.add(reply.answer, delta, share)
        if total is None:
            total = delta
            total[:floats] *= share
        else:
            total[:floats].add_(delta[:floats], alpha=share)
            torch.maximum(total[floats:], delta[floats:], out=total[floats:])
        shares[reply.silo] = share
        del reply, delta
    if total is None or len(shares) < quorum:
        return list(shares), None
    mass = sum(shares.values())
    total[:floats] /= mass
    server.weights = {name: share / mass for name, share in shares.items()}
    with streams.ambient(server.seed, server.round, "server"):
        total[:floats] = _stepped(server, total[:floats], totals.close())
    return list(shares), total.add_(server.vector)


def _close_by_masked_sum(server: Server, replies: Iterator[Reply], quorum: int) -> tuple[list[str], Tensor | None]:
    """The silos that counted and the next global model, from sums of what says nothing by itself."""
    floats = server.layout.floats
    uses = Totals(server.method.declared).uses
    sums: dict[str, Tensor] = {}
    counters = torch.zeros_like(server.vector[floats:])  # in the clear: how many steps were taken
    silos: list[str] = []
    for reply in replies:
        if isinstance(reply.answer, Message):
            silos.append(reply.silo)
            masked = reply.answer.tensors
            counters = torch.maximum(counters, masked[MODEL][floats:].to(counters))
            for name in {MODEL, *uses}:
                sums[name] = sums[name] + masked[name] if name in sums else masked[name]
        del reply
    if len(silos) < quorum:
        return silos, None
    received = server.method.hooks("unmask")[0](server, silos, sums)
    direction = received.pop(MODEL)[:floats].to(server.vector)
    received = {name: total.to(server.vector) for name, total in received.items()}
    if MODEL in uses:  # where all silos count alike, the sum is that of the mean
        received[MODEL] = direction * (len(silos) if uses[MODEL] == "sum" else 1)
    with streams.ambient(server.seed, server.round, "server"):
        direction = _stepped(server, direction, received)
    return silos, server.vector + torch.cat([direction, counters])
