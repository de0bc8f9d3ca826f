"""The server halves at their edges: nobody moves, two pull apart, one alone, a silo that was away."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fairsilo.config import TrainSettings
from fairsilo.core.messages import MODEL, Message, Number, Reply
from fairsilo.core.round import close_round
from fairsilo.core.server import Server
from fairsilo.core.vectors import BUFFER, PARAMETER, Layout, Slot
from fairsilo.errors import FairsiloError
from fairsilo.methods.text import method

LAYOUT = Layout([Slot("w", (3,), PARAMETER), Slot("v", (1,), PARAMETER), Slot("mean", (2,), BUFFER)], torch.float64)
RULES = (
    "fedavg",
    "q-ffl",
    "q-ffl(form=normalised)",
    "afl",
    "afl(carry=false)",
    "term",
    "term(official=true)",
    "fedfv",
    "fedfv(tau=2)",
)
RULES += (
    "grace-server",
    "grace-server(granularity=tensors)",
    "grace-server(granularity=depth)",
    "fednova",
    "fphl",
    "fael",
    "fedheal",
    "fedheal(variant=paper)",
    "ga(warmup=0)",
)
RULES += ("fedavgm", "fedadam", "fedyogi", "feddyn", "fednova | afl", "fedavgm | fedheal")


class Given:
    """A server whose silos send what the test says."""

    def __init__(self, how: str, **training: Any) -> None:
        self.server = Server(
            method=method(how),
            vector=torch.arange(6, dtype=torch.float64),
            layout=LAYOUT,
            silo_layout=LAYOUT,
            names=("a", "b", "c"),
            training=TrainSettings(rounds=9, lr=0.1, **training),
            rounds=9,
            seed=0,
            exchange=lambda *_: iter(()),
        )

    def close(self, losses: dict[str, float] | None = None, **changes: list[float]) -> torch.Tensor:
        """One round; returns how far the model moved."""
        self.server.round += 1
        before = self.server.vector
        replies = []
        for name, change in sorted(changes.items()):
            numbers: dict[str, Number] = {"samples": 5, "loss": 1.0, "normalized-averaging.length": 4.0}
            numbers["received.loss"] = (losses or {}).get(name, 1.0)
            numbers |= {f"gap.{key}": 1.0 for key in ("received", "own", "received_metric", "own_metric")}
            delta = torch.tensor([*change, 0.0, 0.0], dtype=torch.float64)
            replies.append(Reply(name, Message({MODEL: delta}, numbers)))
        close_round(self.server, iter(replies), quorum=1)
        return self.server.vector - before


@pytest.mark.parametrize("how", RULES)
def test_where_nobody_moves_the_model_stays(how: str) -> None:
    given = Given(how)
    for _ in range(3):
        assert torch.equal(given.close(a=[0.0] * 4, b=[0.0] * 4, c=[0.0] * 4), torch.zeros(6, dtype=torch.float64))


def test_q_ffl_says_when_it_hardly_moves() -> None:
    """Coefficients sum to F/eta * 3 / (3 (||D||^2/eta^2 + F/eta)) = 10 / 910 with eta = 0.1 and ||D|| = 3."""
    far, near = Given("q-ffl"), Given("q-ffl")
    far.close(a=[3.0, 0.0, 0.0, 0.0], b=[0.0, 3.0, 0.0, 0.0], c=[0.0, 0.0, 3.0, 0.0])
    assert [note.partition(":")[0] for note in far.server.notes] == ["q-FFL moves by 1.1% of the mean change"]
    near.close(a=[0.1, 0.0, 0.0, 0.0], b=[0.0, 0.1, 0.0, 0.0], c=[0.0, 0.0, 0.1, 0.0])
    assert not near.server.notes
    warming = Given("q-ffl", lr_warmup=1)
    for said in (0, 1):  # in a warm-up changes are short, and tell nothing about the rounds to come
        reach = 3.0 if said else 0.001
        warming.close(a=[reach, 0.0, 0.0, 0.0], b=[0.0, reach, 0.0, 0.0], c=[0.0, 0.0, reach, 0.0])
        assert len(warming.server.notes) == said


def test_q_ffls_step_by_hand_with_its_own_constant() -> None:
    """q = 2, L = 4, F = (1, 2), ||D||^2 = (1, 4): h = 2 F ||L D||^2 + L F^2 = (36, 272), so D counts 4 (1, 4) / 308."""
    moved = Given("q-ffl(q=2, lipschitz=4)").close({"a": 1.0, "b": 2.0}, a=[1.0, 0, 0, 0], b=[0, 2.0, 0, 0])
    assert moved[:2].tolist() == pytest.approx([4 / 308, 2 * 16 / 308])
    default, same = Given("q-ffl"), Given("q-ffl(lipschitz=10)")  # the rate is 0.1
    one, other = (given.close({"a": 1.0, "b": 2.0}, a=[1.0, 0, 0, 0], b=[0, 2.0, 0, 0]) for given in (default, same))
    torch.testing.assert_close(one, other)


def test_q_ffl_normalised_by_hand() -> None:
    """F^q = (1, 4, 16) sums to 21; with q = 0 it is the plain mean; lengths of changes do not count."""
    changes = {"a": [3.0, 0.0, 0.0, 0.0], "b": [0.0, 3.0, 0.0, 0.0], "c": [0.0, 0.0, 300.0, 0.0]}
    losses = {"a": 1.0, "b": 2.0, "c": 4.0}
    given = Given("q-ffl(form=normalised, q=2)")
    moved = given.close(losses, **changes)
    assert moved[:3].tolist() == pytest.approx([3 / 21, 12 / 21, 4800 / 21])
    assert sum(given.server.weights.values()) == pytest.approx(1)
    assert not given.server.notes
    plain = Given("q-ffl(form=normalised, q=0)").close(losses, **changes)
    assert plain[:3].tolist() == pytest.approx([1, 1, 100])
    with pytest.raises(FairsiloError, match="has no effect with form=normalised"):
        method("q-ffl(form=normalised, lipschitz=2)")


@pytest.mark.parametrize("how", RULES)
def test_opposite_updates_give_a_finite_step(how: str) -> None:
    given = Given(how)
    for _ in range(3):
        moved = given.close({"a": 2.0, "b": 0.5}, a=[1.0, -2.0, 0.5, 1.0], b=[-1.0, 2.0, -0.5, -1.0])
        assert torch.isfinite(moved).all()


@pytest.mark.parametrize("how", RULES)
def test_one_zero_update_among_others(how: str) -> None:
    given = Given(how)
    for _ in range(3):
        moved = given.close(a=[1.0, 1.0, 1.0, 1.0], b=[0.0] * 4, c=[1.0, 2.0, 1.0, 2.0])
        assert torch.isfinite(moved).all()
        assert (moved[:4] >= 0).all()


@pytest.mark.parametrize("how", RULES)
def test_a_silo_absent_for_some_rounds_comes_back(how: str) -> None:
    given = Given(how)
    given.close(a=[1.0] * 4, b=[1.0] * 4, c=[1.0] * 4)
    for _ in range(2):
        given.close(a=[0.5] * 4, b=[0.7] * 4)
    moved = given.close(a=[1.0] * 4, b=[1.0] * 4, c=[2.0] * 4)
    assert torch.isfinite(moved).all()
    assert set(given.server.weights) == {"a", "b", "c"}


def test_fedfv_removes_the_conflict_and_keeps_the_length() -> None:
    """Two updates at an angle of 135 degrees; without silos that keep their direction each loses its opposing part."""
    moved = Given("fedfv(alpha=0, tau=0)").close({"a": 1.0, "b": 2.0}, a=[1.0, 0.0, 0.0, 0.0], b=[-1.0, 1.0, 0.0, 0.0])
    expected = torch.tensor([0.25, 0.75], dtype=torch.float64)  # a becomes (.5, .5), b becomes (0, 1)
    length = torch.tensor([0.0, 0.5], dtype=torch.float64).norm()  # of the plain mean
    torch.testing.assert_close(moved[:2], expected / expected.norm() * length)


def test_grace_favours_the_majority() -> None:
    given = Given("grace-server")
    given.close(a=[1.0, 0.0, 0.0, 0.0], b=[1.0, 0.1, 0.0, 0.0], c=[0.0, 1.0, 0.0, 0.0])
    assert given.server.weights["a"] > given.server.weights["c"]


def test_graces_weights_by_hand_with_and_without_the_diagonal() -> None:
    """Cosines: a and b 0.6, a and c 0, b and c -0.8; sums with the diagonal 1.6, 0.8, 0.2, without 0.6, -0.2, -0.8."""
    changes = {"a": [2.0, 0.0, 0.0, 0.0], "b": [3.0, 4.0, 0.0, 0.0], "c": [0.0, -0.5, 0.0, 0.0]}
    paper, released = Given("grace-server"), Given("grace-server(include_diagonal=false)")
    for given in (paper, released):
        given.close(**changes)
    assert list(paper.server.weights.values()) == pytest.approx([1.6 / 2.6, 0.8 / 2.6, 0.2 / 2.6])
    shifted = [0.3 + 0.4 + 1e-3, -0.1 + 0.4 + 1e-3, 1e-3]  # mean cosines to the two others, above the lowest
    assert list(released.server.weights.values()) == pytest.approx([s / sum(shifted) for s in shifted])


def test_graces_cosines_by_tensor_and_by_depth() -> None:
    """Two tensors, w and v. In w the cosines are 1 (a, b), 0 and 0; in v -1 (a, b), 1 (a, c) and -1 (b, c)."""
    changes = {"a": [1.0, 0.0, 0.0, 5.0], "b": [2.0, 0.0, 0.0, -1.0], "c": [0.0, 3.0, 0.0, 7.0]}
    tensors, depth = Given("grace-server(granularity=tensors)"), Given("grace-server(granularity=depth)")
    for given in (tensors, depth):
        given.close(**changes)
    # by tensor: (1 - 1)/2 = 0, (0 + 1)/2 = 0.5, (0 - 1)/2 = -0.5, so sums are 1.5, 0.5, 1.0
    assert list(tensors.server.weights.values()) == pytest.approx([0.5, 0.5 / 3, 1 / 3])
    # by depth the first of two tensors has all the weight: sums are 2, 2, 1
    assert list(depth.server.weights.values()) == pytest.approx([0.4, 0.4, 0.2])


def test_adam_and_yogi_differ_once_the_update_shrinks() -> None:
    adam, yogi = Given("fedadam(server_lr=1)"), Given("fedyogi(server_lr=1)")
    for given in (adam, yogi):
        given.close(a=[1.0] * 4)
    first, second = (given.close(a=[0.01] * 4) for given in (adam, yogi))
    assert not torch.allclose(first, second)


def test_adams_first_step_by_hand() -> None:
    moved = Given("fedadam(server_lr=0.1, beta1=0.9, beta2=0.99, tau=0.001)").close(a=[2.0] * 4)
    second = 0.99 * 1e-6 + 0.01 * 4.0
    assert float(moved[0]) == pytest.approx(0.1 * 0.2 / (second**0.5 + 1e-3))


LOCAL = (
    "fedavg",
    "fedprox",
    "scaffold",
    "moon",
    "feddyn",
    "fedproc",
    "fedproto",
    "fedmix",
    "fedsam",
    "harmofl",
    "elcfs",
)


@pytest.mark.parametrize("local", LOCAL)
def test_every_local_part_goes_with_every_aggregation(local: str) -> None:
    for aggregation in ("afl", "q-ffl", "fedheal", "ga", "faa", "term", "grace-server", "fednova", "fedavgm"):
        composed = method(f"{local} | {aggregation}")
        assert len(composed.parts) == len(method(local).parts) + len(method(aggregation).parts)
