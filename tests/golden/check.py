"""Run golden cases against the project: `check.py FILE...`.

Builds inputs and calls the project's own parts and functions by the case's keys; no formula of a method is repeated
here. One line per case, a last line `N passed, N failed, N skipped`; exit 1 on a failure or when all were skipped.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedag_rules
import fedgcr_rules
import task_rules
from fairsilo.config import TrainSettings
from fairsilo.core.local import follow
from fairsilo.core.messages import MODEL, Message, Number, Reply
from fairsilo.core.method import Method
from fairsilo.core.optimizers import make_optimizer
from fairsilo.core.output import Output
from fairsilo.core.round import close_round
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.screening import screened
from fairsilo.core.server import Server
from fairsilo.core.silo import Batch, Memory, Silo
from fairsilo.core.task import Ending, Measure
from fairsilo.core.vault import Simulated
from fairsilo.core.vectors import BUFFER, COUNTER, PARAMETER, FlatModel, Layout, Slot, gram
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.events import Event
from fairsilo.engine.loop import Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.methods import received_loss, simplex
from fairsilo.methods.alignment import coral, deep_coral, mmd
from fairsilo.methods.contrasts import contrast, prototype_contrast, prototype_distance
from fairsilo.methods.gap_rules import adjust, equalise, gap, step_at
from fairsilo.methods.geometry import cosines
from fairsilo.methods.heads import shifted
from fairsilo.methods.loss_weights import climb, tilted
from fairsilo.methods.mixing import mixing_terms
from fairsilo.methods.spectra import amplitude, window, with_low_amplitude
from fairsilo.methods.steps import path_length
from fairsilo.methods.text import method
from fairsilo.models.backbones import similarities
from fairsilo.models.clip_networks import attention
from fairsilo.tasks.classify import Classify

Case = dict[str, Any]
Pairs = Iterator[tuple[str, Any, Any]]  # what, got, expected


def number(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


# ------------------------------------------------------------ silos with quadratic losses
class Point(nn.Module):
    """A model that is one vector; its prediction is that vector."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(start.clone())

    def forward(self, inputs: Tensor) -> Output:
        return Output(self.w)


@dataclass(frozen=True)
class Quadratic:
    """The cases' objective: 0.5 sum H (w - b)^2 (+ 0.1 (w.q)^3), with H, b (and q) in the targets."""

    classes: int = 1
    name: str = "classify"
    output: Ending = dataclasses.field(default_factory=lambda: Ending(1))
    metrics: tuple[str, ...] = ()
    per_class: tuple[str, ...] = ()
    per_pair: tuple[str, ...] = ()

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        bowl = 0.5 * (targets[0, 0] * (prediction - targets[0, 1]).square()).sum()
        return bowl if len(targets[0]) == 2 else bowl + 0.1 * (prediction @ targets[0, 2]) ** 3

    def tally(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return self.loss(prediction, targets).reshape(1)

    def measure(self, tally: Tensor) -> Measure:
        return Measure(float(tally[0]), 0.0, 1)


def quadratic_run(
    how: Method,
    start: Any,
    curvatures: Any,
    optima: Any,
    training: TrainSettings,
    memory: dict[str, Memory] | None = None,
    cubic: Any = None,
) -> Iterator[Loop]:
    """A whole federation of quadratics; yields the loop after each round."""
    silos = []
    for index, (curvature, optimum) in enumerate(zip(curvatures, optima, strict=True)):
        rows = [number(curvature), number(optimum), *([number(cubic)] if cubic else [])]
        split = Split(torch.zeros(1, 1), torch.stack(rows)[None])
        silos.append(SiloData(f"s{index}", "d", split, split, split))
    federation = Federation("quadratics", ("w",), tuple(silos))
    task: Any = Quadratic()
    plan = Blueprint(how, lambda *_: Point(number(start)), task, 1, training, seed=0)
    engine = Sequential(plan, federation, strict=True)
    engine.memory = memory or {}
    states: list[tuple[Tensor, Memory, dict[str, Memory]]] = []

    def listen(event: Event) -> None:
        if event.kind == "round":
            states.append((loop.server.vector, loop.server.memory.copy(), dict(engine.memory)))

    loop = Loop(plan, federation.roster, engine, listener=listen)
    loop.run()
    for vector, server_memory, silo_memory in states:
        loop.server.vector, loop.server.memory, engine.memory = vector, server_memory, silo_memory
        yield loop


def memories(loop: Loop) -> dict[str, Memory]:
    assert isinstance(loop.engine, Sequential)
    return loop.engine.memory


def plain_sgd(lr: float, steps: int, total: int = 1) -> TrainSettings:
    return TrainSettings(rounds=total, epochs=steps, batch_size=1, lr=lr, momentum=0.0, weight_decay=0.0)


# ------------------------------------------------------------ rounds with given local models
class Rounds:
    """A server that is fed ready-made updates: round.close_round with the case's local models."""

    def __init__(self, how: Method, layout: Layout, start: Tensor, count: int, training: TrainSettings) -> None:
        self.names = tuple(f"s{index}" for index in range(count))
        self.answers: list[dict[str, float]] = []  # losses for the probes to come
        self.server = Server(
            method=how,
            vector=start,
            layout=layout,
            silo_layout=layout,
            names=self.names,
            training=training,
            rounds=training.rounds,
            seed=0,
            exchange=self._exchange,
        )

    def _exchange(self, kind: str, messages: dict[str, Message]) -> Iterator[Reply]:
        losses = self.answers.pop(0)
        for name in messages:
            yield Reply(name, Message({}, {"loss": losses[name], "metric": 0.0, "samples": 1}))

    def close(
        self,
        deltas: Iterable[Tensor],
        numbers: Sequence[Mapping[str, float]] | None = None,
        who: Iterable[str] | None = None,
        samples: Sequence[int] | None = None,
    ) -> Server:
        """One round with these updates, in the order of `who` (everybody, where it is not given)."""
        self.server.round += 1
        self.server.facts = {}
        replies = []
        for i, (name, delta) in enumerate(zip(who or self.names, deltas, strict=True)):
            told: dict[str, Number] = {
                "samples": samples[i] if samples else 1,
                "loss": 0.0,
                **(numbers[i] if numbers else {}),
            }
            replies.append(Reply(name, Message({MODEL: delta.clone()}, told)))
        replies.sort(key=lambda reply: reply.silo)  # as every engine gives them
        close_round(
            self.server, screened("train", dict.fromkeys(self.names, Message()), replies, self.server), quorum=1
        )
        return self.server

    def weights(self) -> list[float]:
        return [self.server.weights[name] for name in self.names]

    def remembered(self, part: str, entry: str) -> list[Any]:
        kept = self.server.memory[part][entry]
        return [kept[name] for name in self.names]

    def frequency(self) -> Tensor:
        """How often each parameter was raised, from the counts that FPHL keeps."""
        pairs = zip(*(self.remembered("consistency-mask", key) for key in ("raised", "rounds")), strict=True)
        return torch.stack([raised / rounds for raised, rounds in pairs])


def flat_layout(size: int) -> Layout:
    return Layout([Slot("w", (size,), PARAMETER)], torch.float64)


def flatten(arrays: Any) -> Tensor:
    """A list of arrays, or a flat list, as one vector."""
    return torch.cat([number(array).reshape(-1) for array in arrays])


# ------------------------------------------------------------------------------------------------------------ the rules
def scaffold_option2(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    how = method("scaffold", server_lr=given["lr_global"])
    training = plain_sgd(given["lr_local"], given["local_steps"], given["rounds"])
    for index, loop in enumerate(quadratic_run(how, given["W0"], given["H"], given["b"], training)):
        yield f"global {index}", loop.server.vector, expected["global_per_round"][index]
        yield f"c {index}", loop.server.memory["control-variates"]["control"], expected["c_per_round"][index]
        own = [memory["control-variates"]["control"] for _, memory in sorted(memories(loop).items())]
        yield f"c_i {index}", torch.stack(own), expected["ci_per_round"][index]


def fedprox_local(case: Case) -> Pairs:
    given = case["inputs"]
    for steps in range(1, given["steps"] + 1):
        how = method("fedprox", mu=given["mu"])
        run = quadratic_run(how, given["w_global"], [given["H"]], [given["b"]], plain_sgd(given["lr"], steps))
        yield f"w after {steps}", next(run).server.vector, case["outputs"]["w_trace"][steps - 1]


def ditto_local(case: Case) -> Pairs:
    given = case["inputs"]
    for steps in range(1, given["steps"] + 1):
        memory = {"s0": Memory({"personal-model": {"model": number(given["v0"])}})}
        how = method("ditto", lam=given["lambda"])
        training = plain_sgd(given["lr"], steps)
        loop = next(quadratic_run(how, given["w_global"], [given["H"]], [given["b"]], training, memory))
        got = memories(loop)["s0"]["personal-model"]["model"]
        yield f"v after {steps}", got, case["outputs"]["v_trace"][steps - 1]


def q_fedavg(case: Case) -> Pairs:
    given = case["inputs"]
    start = flatten(given["global"])
    training = TrainSettings(lr=given["lr"])
    run = Rounds(method("q-ffl", q=given["q"]), flat_layout(len(start)), start, len(given["locals"]), training)
    losses = [{"received.loss": loss} for loss in given["losses"]]
    server = run.close([flatten(local) - start for local in given["locals"]], losses)
    yield "new global", server.vector, flatten(case["outputs"]["new_global"])


def ga_weight_adjust(case: Case) -> Pairs:
    given = case["inputs"]
    found = gap(number(given["before"]), number(given["after"]), "loss" if given["metric"] == "loss" else "accuracy")
    got = adjust(number(given["weights"]), found, given["step_size"], denominator=given["denominator"])
    expected = case["outputs"].get("recommended_weights", case["outputs"]["weights"])
    yield "weights", got, expected


def ga_schedule(case: Case) -> Pairs:
    """By the functions, and where the divisor is the number of silos through whole rounds: the gap of a round is
    reported, and its weights used, in the next one."""
    given, expected = case["inputs"], case["outputs"]["weights_per_round"]
    count, weights = len(given["weights0"]), number(given["weights0"])
    metric = "loss" if given["metric"] == "loss" else "accuracy"
    for index, (own, received) in enumerate(zip(given["before"], given["after"], strict=True)):
        step = step_at(given["d"], "released", index, given["R"])
        yield f"step {index}", step, case["outputs"]["step_per_round"][index]
        weights = adjust(weights, gap(number(own), number(received), metric), step, denominator=given["denominator"])
        yield f"weights {index}", weights, expected[index]
    if given["denominator"] != count:
        return
    how = method("ga", step_size=given["d"], metric=metric, warmup=0)
    run = Rounds(how, flat_layout(1), number([0.0]), count, TrainSettings(rounds=given["R"]))
    after = [given["before"][0], *given["after"]]  # nothing was aggregated before the first round
    before = [*given["before"], given["before"][-1]]
    for index, (received, own) in enumerate(zip(after, before, strict=True)):
        numbers = [
            {"gap.received": r, "gap.own": o, "gap.received_metric": r, "gap.own_metric": o}
            for r, o in zip(received, own, strict=True)
        ]
        run.close([number([0.0])] * count, numbers)
        if index:
            yield f"weights of round {index - 1}", run.weights(), expected[index - 1]


def faa(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    weights, perturbed = number(given["weights"]), number(given["weights_perturbed"])
    gaps, moved = number(given["gap"]), number(given["gap_perturbed"])
    found = equalise(weights, gaps, perturbed, moved, given["flat"], given["limit"])
    yield "weights", found.weights, expected["weights"]
    yield "status", found.status, expected["status"]
    yield "slopes", found.slopes, expected["K_used"]
    if expected["G_star"] is not None:
        yield "equal gap", found.gap, expected["G_star"]
        yield "before clipping", found.unclipped, expected["weights_eq10"]
    for step in (0.2, 0.3):  # where the perturbation is GA's, the whole round must give the same
        if torch.allclose(adjust(weights, gaps, step), perturbed, rtol=0, atol=1e-14):
            yield f"weights of a round, step {step}", _faa_round(given, step), expected["weights"]


def _faa_round(given: Case, step: float) -> list[float]:
    count = len(given["weights"])
    how = method("faa", step_size=step, schedule="constant", warmup=0, flat=given["flat"], limit=given["limit"])
    run = Rounds(how, flat_layout(1), number([0.0]), count, TrainSettings(rounds=1))
    run.server.memory["fairness-aware"] = {"weights": dict(zip(run.names, given["weights"], strict=True))}
    run.answers = [dict(zip(run.names, given[key], strict=True)) for key in ("gap", "gap_perturbed")]
    no_loss = {"gap.received": 0.0, "gap.own": 0.0, "gap.received_metric": 0.0, "gap.own_metric": 0.0}
    run.close([number([0.0])] * count, [no_loss] * count)
    return run.weights()


def fedheal_released(case: Case) -> Pairs:
    given = case["inputs"]
    layout = _state_layout(given["global0"], given["parameter_names"])
    floats = layout.floats
    start = layout.pack({name: number(value) for name, value in given["global0"].items()})
    how = method("fedheal", tau=given["tau"], beta=given["beta"], mask_buffers=True)
    run = Rounds(how, layout, start, len(given["deltas"][0]), TrainSettings(rounds=len(given["deltas"])))
    for index, (deltas, expected) in enumerate(zip(given["deltas"], case["outputs"]["rounds"], strict=False)):
        before, kept = run.server.vector, run.weights() if index else []
        pack = [layout.pack({name: number(value) for name, value in delta.items()}) for delta in deltas]
        server = run.close(pack)
        if "error" in expected:  # all distances are 0: the model and the weights of the round before stay
            yield f"global {index}", server.vector[:floats], before[:floats]
            yield f"weights {index}", run.weights(), kept
            return
        yield f"weights {index}", run.weights(), expected["weights"]
        yield f"distances {index}", server.facts["distances"], expected["distances"]
        yield f"sums {index}", run.remembered("distance-weights", "weights"), expected["unnormalised_weights"]
        yield f"momenta {index}", run.remembered("distance-weights", "momenta"), expected["delta_weights"]
        mask = torch.stack([_floats(layout, state) for state in expected["masks"]])
        yield f"masks {index}", server.facts["mask"].double(), mask
        history = torch.stack([_floats(layout, state) for state in expected["increase_history"]])
        yield f"history {index}", run.frequency(), history
        # counters: the released code truncates a masked mean of them, ours take the maximum
        yield f"global {index}", server.vector[:floats], _floats(layout, expected["new_global"])


def fedheal_paper(case: Case) -> Pairs:
    given = case["inputs"]
    layout = flat_layout(len(given["W0"]))
    how = method("fedheal", tau=given["tau"], beta=given["beta"], variant="paper")
    run = Rounds(how, layout, number(given["W0"]), len(given["p0"]), TrainSettings(rounds=len(given["deltas"])))
    run.server.memory["distance-weights"] = {"weights": dict(zip(run.names, given["p0"], strict=True))}
    for index, (deltas, expected) in enumerate(zip(given["deltas"], case["outputs"]["rounds"], strict=True)):
        server = run.close([number(delta) for delta in deltas])
        yield f"l {index}", run.frequency(), expected["l"]
        yield f"important {index}", server.facts["mask"].double(), expected["important"]
        yield f"distance {index}", server.facts["distances"], expected["distance"]
        yield f"delta p {index}", run.remembered("distance-weights", "momenta"), expected["delta_p"]
        yield f"p {index}", run.weights(), expected["p"]
        yield f"global {index}", server.vector, expected["new_global"]


def _state_layout(state: Case, parameters: list[str]) -> Layout:
    slots = []
    for name, value in state.items():
        role = PARAMETER if name in parameters else COUNTER if isinstance(value, int) else BUFFER
        slots.append(Slot(name, tuple(number(value).shape), role))
    return Layout(slots, torch.float64)


def _floats(layout: Layout, state: Case) -> Tensor:
    return layout.pack({name: number(value) for name, value in state.items()})[: layout.floats]


def fedmix_loss(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    scaled = ((1 - given["lambda"]) * number(given["x"])).requires_grad_(True)
    prediction = F.linear(scaled, number(given["W"]))
    loss = F.cross_entropy(prediction, torch.tensor(given["y"]))
    blended = Classify(prediction.shape[1]).loss(prediction, number(given["y_mean"]))
    terms = mixing_terms(loss, blended, scaled, number(given["x_mean"]), given["lambda"])
    for key, term in zip(("l1", "l2", "l3"), terms, strict=True):
        yield key, term.detach(), expected[key]
    yield "total", sum(term.detach() for term in terms), expected["total"]


def simplex_projection(case: Case) -> Pairs:
    got = simplex.project(number(case["inputs"]["y"]))
    yield "x", got, case["outputs"]["x"]
    yield "x_easyfl", got, case["outputs"]["x_easyfl"]


def losses_of(values: Iterable[float]) -> list[dict[str, float]]:
    return [{received_loss.KEY: value} for value in values]


def afl_lambda_ascent(case: Case) -> Pairs:
    given = case["inputs"]
    count = len(given["lambda0"])
    run = Rounds(method("afl", step_size=given["lr_lambda"]), flat_layout(1), number([0.0]), count, TrainSettings())
    run.server.memory["minimax-weights"] = {"lambda": dict(zip(run.names, given["lambda0"], strict=True))}
    for index, losses in enumerate(given["losses"]):
        run.close([number([0.0])] * count, losses_of(losses))
        yield f"lambda {index}", run.remembered("minimax-weights", "lambda"), case["outputs"]["lambda_per_round"][index]


def fedgcr_afl(case: Case) -> Pairs:
    given = case["inputs"]
    yield "weights", climb(number(given["p"]), number(given["losses"]), given["step"]), case["outputs"]["weights"]


def marsfl_afl(case: Case) -> Pairs:
    given = case["inputs"]
    count = len(given["losses"])
    how = method("afl", step_size=given["gamma"], carry=False, floor=given["floor"])
    run = Rounds(how, flat_layout(1), number([0.0]), count, TrainSettings())
    run.close([number([0.0])] * count, losses_of(given["losses"]))
    yield "weights", run.weights(), case["outputs"]["weights"]


def term_official(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    start = flatten(given["global0"])
    count = len(given["losses_per_round"][0])
    run = Rounds(method("term", t=given["t"], official=True), flat_layout(len(start)), start, count, TrainSettings())
    for index, (models, losses) in enumerate(zip(given["locals_per_round"], given["losses_per_round"], strict=True)):
        server = run.close([flatten(model) - run.server.vector for model in models], losses_of(losses))
        yield f"global {index}", server.vector, flatten(expected["global_per_round"][index])
        scaled = number(run.weights()) * count  # the case lists the scales of the models, before their plain mean
        yield f"scales {index}", scaled, expected["weights_per_round"][index]


def fedgcr_term(case: Case) -> Pairs:
    given = case["inputs"]
    yield "weights", tilted(number(given["p"]), number(given["losses"]), given["alpha"]), case["outputs"]["weights"]


def fedfv(case: Case) -> Pairs:
    given = case["inputs"]
    start = number(given["W0"])
    how = method("fedfv", alpha=given["alpha"], tau=given["tau"])
    run = Rounds(how, flat_layout(len(start)), start, given["num_clients"], TrainSettings())
    for index, step in enumerate(given["rounds"]):
        who = [run.names[client] for client in step["selected"]]
        deltas = [number(local) - run.server.vector for local in step["locals"]]
        server = run.close(deltas, losses_of(step["losses"]), who)
        yield f"global {index}", server.vector, case["outputs"]["global_per_round"][index]


def fednova(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    start, lengths = number(given["global"]), [path_length(steps, given["momentum"]) for steps in given["tau"]]
    yield "a", lengths, expected["a"]
    run = Rounds(method("fednova"), flat_layout(len(start)), start, len(lengths), TrainSettings())
    told = [{"normalized-averaging.length": length} for length in lengths]
    server = run.close([number(local) - start for local in given["locals"]], told, samples=given["n"])
    yield "new global", server.vector, expected["new_global"]


def feddyn(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    training = plain_sgd(given["lr_local"], given["local_steps"], given["rounds"])
    how = method("feddyn", alpha=given["alpha"])
    for index, loop in enumerate(quadratic_run(how, given["W0"], given["H"], given["b"], training)):
        yield f"global {index}", loop.server.vector, expected["global_per_round"][index]
        yield f"h {index}", loop.server.memory["dynamic-regularizer"]["correction"], expected["h_per_round"][index]


def grace_server(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    layout = _state_layout(given["global"], given["parameter_names"])
    start = layout.pack({name: number(value) for name, value in given["global"].items()})
    how = method("grace-server", server_lr=given["server_lr"], include_diagonal=False)  # as released
    run = Rounds(how, layout, start, len(given["p"]), TrainSettings())
    deltas = [layout.pack({key: number(value) for key, value in local.items()}) - start for local in given["locals"]]
    server = run.close(deltas, samples=[round(share * 10**15) for share in given["p"]])
    if "error" in expected:
        yield "weights", run.weights(), expected["recommended_weights"]
        return
    yield "cosines", cosines(gram(torch.stack(deltas)[:, : layout.shared])), expected["cosine_matrix"]
    yield "weights", run.weights(), expected["weights"]
    yield "new global", server.vector[: layout.floats], _floats(layout, expected["new_global"])


def moon_contrastive(case: Case) -> Pairs:
    given = case["inputs"]
    now, received, previous = (number(given[key]) for key in ("z", "z_global", "z_prev"))
    yield "loss", contrast(now, received, previous, given["tau"]), case["outputs"]["loss_mean"]


def fedproc_fedproto(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    features, labels, means = (
        number(given["features"]),
        torch.tensor(given["labels"]),
        number(given["global_prototypes"]),
    )
    known = torch.ones(len(means), dtype=torch.bool)
    yield "contrast", prototype_contrast(features, labels, means, known, 1.0), expected["fedproc_infonce_mean"]
    yield "distance", prototype_distance(features, labels, means, known), expected["fedproto_mse"]


def sam_step(case: Case) -> Pairs:
    given = case["inputs"]
    for steps in range(1, given["steps"] + 1):
        how, training = method("fedsam", rho=given["rho"]), plain_sgd(given["lr"], steps)
        run = quadratic_run(how, given["w0"], [given["H"]], [given["b"]], training, cubic=given["q"])
        got = next(run).server.vector
        for key in ("sam", "wp"):
            yield f"{key} after {steps}", got, case["outputs"][key][steps - 1]


def elcfs_interpolation(case: Case) -> Pairs:
    given = case["inputs"]
    own, other = number(given["local"]), number(given["target"])
    rows, columns = window(own.shape[-2], own.shape[-1], given["L"])
    low = amplitude(other)[..., rows, columns]
    yield "image", with_low_amplitude(own, low, given["L"], given["ratio_of_own_amplitude"]), case["outputs"]["image"]


def harmofl_amp_norm_first_batch(case: Case) -> Pairs:
    images = number(case["inputs"]["x"])
    mean = amplitude(images).mean(0)
    yield "amplitude", torch.fft.ifftshift(mean, dim=(-2, -1)), case["outputs"]["running_amp"]
    rows, columns = window(images.shape[-2], images.shape[-1], 0.0)
    yield "images", with_low_amplitude(images, mean[..., rows, columns], 0.0), case["outputs"]["x"]


class Tanh(nn.Module):
    """The model of the meta-step cases: h = tanh(x Wf^T + bf), logits = h Wc^T + bc."""

    def __init__(self, tensors: Case) -> None:
        super().__init__()
        self.Wf, self.bf = nn.Parameter(number(tensors["Wf"])), nn.Parameter(number(tensors["bf"]))
        self.Wc, self.bc = nn.Parameter(number(tensors["Wc"])), nn.Parameter(number(tensors["bc"]))

    def forward(self, inputs: Tensor) -> Output:
        features = torch.tanh(F.linear(inputs, self.Wf, self.bf))
        return Output(F.linear(features, self.Wc, self.bc), features)


def meta_step(case: Case) -> Pairs:
    """One local step of the method's own loop; the two batches of the case are the halves of one."""
    given = case["inputs"]
    for align, base in itertools.product(("coral", "deep-coral"), ("start", "prime")):
        expected = case["outputs"]["domainbed_coral" if align == "coral" else "deep_coral"]
        key = "next_from_prime" if base == "prime" else "next_from_start_first_order"
        how = method("grace-client", align=align, align_weight=given["lambda"], meta_base=base, inner="sgd")
        silo = _meta_silo(given, how)
        silo.load(silo.model.layout.pack({name: number(value) for name, value in given["w_global"].items()}))
        silo.model.load(silo.model.layout.pack({name: number(value) for name, value in given["w"].items()}))
        how.hooks("train")[0](silo)
        for name, tensor in silo.model.layout.views(silo.model.read()).items():
            yield f"{align} {base} {name}", tensor, expected[key][name]


def _meta_silo(given: Case, how: Method) -> Silo:
    inputs = torch.cat([number(given["x_train"]), number(given["x_test"])])
    targets = torch.tensor([*given["y_train"], *given["y_test"]])
    training = dataclasses.replace(plain_sgd(given["lr"], 1), batch_size=len(targets))
    silo = lone_silo(how, Tanh(given["w"]), Split(inputs, targets), training, Classify(int(targets.max()) + 1))
    # the stream shuffles the batch: lay the samples so that its halves come out as the case has them
    order = torch.argsort(next(silo.batches()).indices)
    silo.data = dataclasses.replace(silo.data, train=Split(inputs[order], targets[order]))
    return silo


def lone_silo(how: Method, module: nn.Module, split: Split, training: TrainSettings, task: Any) -> Silo:
    """A silo outside any run, for a hook to be called on."""
    model = FlatModel(module, Layout.of(module))
    silo = Silo(
        data=SiloData("s", "d", split, split, split),
        model=model,
        method=how,
        task=task,
        training=training,
        memory=Memory(),
        message=Message(),
        round=1,
        rounds=1,
        seed=0,
        untrained=model.read,
        vault=Simulated(0, "s"),
    )
    silo.load(model.read())
    return silo


def pfedme_local(case: Case) -> Pairs:
    """After each number of batches, as runs of their own: theta and w start anew with every round."""
    given = case["inputs"]
    how = method("pfedme", lam=given["lambda"], inner_steps=given["K"], inner_lr=given["lr_personal"], mu=given["mu"])
    split = Split(torch.zeros(1, 1), torch.stack([number(given["H"]), number(given["b"])])[None])
    for steps in range(1, given["outer_steps"] + 1):
        silo = lone_silo(how, Point(number(given["w_global"])), split, plain_sgd(given["lr"], steps), Quadratic())
        how.hooks("train")[0](silo)
        expected = case["outputs"]["trace"][steps - 1]
        yield f"theta after {steps}", how.hooks("personal")[0](silo, silo.model.read()), expected["theta"]
        yield f"w after {steps}", silo.model.read(), expected["w_local"]


def balanced_softmax_loss(case: Case) -> Pairs:
    given = case["inputs"]
    labels, counts = torch.tensor(given["labels"]), torch.tensor(given["class_counts"])
    yield "loss", F.cross_entropy(shifted(number(given["logits"]), counts), labels), case["outputs"]["loss"]


class ConvNorm(nn.Module):
    """The network of Tent's cases: 1x1 convolution, BatchNorm, mean over space, linear."""

    def __init__(self, state: Case) -> None:
        super().__init__()
        outside, inside = len(state["conv.weight"]), len(state["conv.weight"][0])
        self.conv, self.bn = nn.Conv2d(inside, outside, 1), nn.BatchNorm2d(outside)
        self.fc = nn.Linear(outside, len(state["fc.bias"]))
        self.double()
        self.load_state_dict({key: torch.as_tensor(value, dtype=torch.float64) for key, value in state.items()})

    def forward(self, inputs: Tensor) -> Output:
        hidden: Tensor = torch.relu(self.bn(self.conv(inputs))).mean((2, 3))
        return Output(self.fc(hidden), hidden)


class Adapter(nn.Module):
    """FedCLIP's adapter on given image features; the text feature of every sample of the case is a class of its own."""

    def __init__(self, weights: Case, scale: float) -> None:
        super().__init__()
        shape = number(weights["0.weight"])
        self.adapter = attention(shape.shape[1], shape.shape[0]).double()
        self.adapter.load_state_dict({key: number(value) for key, value in weights.items()})
        self.scale, self.texts = torch.tensor(scale, dtype=torch.float64), torch.empty(0)

    def forward(self, inputs: Tensor) -> Output:
        features = self.adapter(inputs) * inputs
        return Output(similarities(features, F.normalize(self.texts, dim=1), self.scale), features)


def fedclip_local(case: Case) -> Pairs:
    """Steps of the method's own loss and the local optimiser over the case's batches."""
    given = case["inputs"]
    training = TrainSettings(optimizer="adam", lr=given["lr"], weight_decay=0.2, adam_beta2=0.98, adam_eps=1e-6)
    module = Adapter(given["adapter0"], given["logit_scale"])
    silo = lone_silo(method("fedclip"), module, Split(torch.zeros(1), torch.zeros(1)), training, Classify(1))
    optimizer = make_optimizer(silo)
    for images, texts in zip(given["image_features"], given["text_features_per_sample"], strict=True):
        module.texts = number(texts)
        labels = torch.arange(len(texts))
        follow(silo, optimizer, [Batch(number(images), labels, labels)])
    for name, tensor in silo.model.layout.views(silo.model.read()).items():
        yield name, tensor, case["outputs"]["adapter"][name.removeprefix("adapter.")]


def tent(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    how = method("tent", adapt_lr=given["lr"])
    images = [number(batch) for batch in given["batches"]]
    silo = lone_silo(
        how, ConvNorm(given["state0"]), Split(images[0], torch.zeros(len(images[0]))), TrainSettings(), Classify(3)
    )
    found = list(how.hooks("adapt")[0](silo, lambda _: iter(images)))
    for index, logits in enumerate(expected["logits_per_batch_before_update"]):
        yield f"logits {index}", found[index], logits
    after = silo.model.layout.views(silo.model.read())
    yield "scale", after["bn.weight"], expected["bn_weight"]
    yield "shift", after["bn.bias"], expected["bn_bias"]


def feature_alignment(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    if len(given["x"]) < 2:
        loss, one_sample = torch.tensor(1.0), Batch(torch.zeros(1), torch.zeros(1), torch.zeros(1))
        silo: Any = None  # the term is skipped before it looks at the silo
        yield "skipped", method("only-da").parts[0].loss(silo, loss, Output(loss, number(given["x"])), one_sample), 1.0
        return
    one, other = number(given["x"]).requires_grad_(True), number(given["y"])
    for key, value in (("domainbed_coral", coral(one, other)), ("mmd_gaussian", mmd(one, other))):
        yield key, value.detach(), expected[key]
        yield f"{key} gradient", torch.autograd.grad(value, one)[0], expected[f"{key}_grad_x"]
    yield "deep coral", deep_coral(one, other).detach(), expected["deep_coral_paper"]


RULES: dict[str, Callable[[Case], Pairs]] = {
    rule.__name__: rule
    for rule in (
        scaffold_option2,
        fedprox_local,
        ditto_local,
        q_fedavg,
        ga_weight_adjust,
        ga_schedule,
        faa,
        fedheal_released,
        fedheal_paper,
        fedmix_loss,
        simplex_projection,
        afl_lambda_ascent,
        fedgcr_afl,
        marsfl_afl,
        term_official,
        fedgcr_term,
        fedfv,
        fednova,
        feddyn,
        grace_server,
        moon_contrastive,
        fedproc_fedproto,
        sam_step,
        elcfs_interpolation,
        harmofl_amp_norm_first_batch,
        meta_step,
        feature_alignment,
        pfedme_local,
        fedclip_local,
        tent,
    )
}
RULES |= fedgcr_rules.RULES | fedag_rules.RULES
RULES |= task_rules.RULES
RULES["balanced_softmax"] = balanced_softmax_loss


# ------------------------------------------------------------------------------------------------------------ comparing
def parsed(value: Any) -> Any:
    """JSON as the golden files write it: non-finite numbers are texts."""
    if isinstance(value, list):
        return [parsed(item) for item in value]
    if isinstance(value, dict):
        return {key: parsed(item) for key, item in value.items()}
    return float(value) if value in ("nan", "inf", "-inf") else value


def differs(got: Any, expected: Any, tolerance: dict[str, float]) -> str:
    """Empty where the two agree within the tolerance, else what is wrong."""
    if isinstance(expected, str):
        return "" if got == expected else f"{got!r} instead of {expected!r}"
    one, other = torch.as_tensor(got, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64)
    if one.shape != other.shape:
        return f"shape {tuple(one.shape)} instead of {tuple(other.shape)}"
    away = (one - other).abs() - tolerance["atol"] - tolerance["rtol"] * other.abs()
    return "" if bool((away <= 0).all()) else f"off by {float((one - other).abs().max()):.3g}"


def check(case: Case) -> tuple[str, str]:
    """('passed' | 'failed' | 'skipped', why)."""
    rule = RULES.get(case["rule"])
    if rule is None:
        return "skipped", "rule not implemented"
    compared = 0
    try:
        for what, got, expected in rule(parsed(case)):
            compared += 1
            wrong = differs(got, expected, case["tolerance"])
            if wrong:
                return "failed", f"{what}: {wrong}"
    except Exception as problem:  # noqa: BLE001 - a case that breaks is a failure, not the end of the run
        return "failed", f"{type(problem).__name__}: {problem}"
    return ("passed", f"{compared} values") if compared else ("failed", "nothing was compared")


def main(files: list[str]) -> int:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for file in files:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
        for case in content["cases"]:
            case.setdefault("tolerance", content["tolerance"])
            verdict, why = check(case)
            counts[verdict] += 1
            print(f"{verdict:8s}{content['method']}/{case['name']} [{case['rule']}] {why}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
