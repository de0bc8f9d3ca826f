"""FAEL's own objective solved exactly: equal distances where the simplex allows it, KKT conditions, one silo alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tiny
from fairsilo.config import TrainSettings
from fairsilo.core.messages import MODEL, Message, Reply
from fairsilo.core.round import close_round
from fairsilo.core.server import Server
from fairsilo.core.vectors import PARAMETER, Layout, Slot, gram
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError
from fairsilo.methods.simplex import equal_distances
from fairsilo.methods.text import method

F64 = torch.float64
SHARES = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=F64)


def distances(updates: Tensor, weights: Tensor) -> Tensor:
    """||U - w_m||^2 for every silo, from the models themselves."""
    new = weights @ updates
    return (new - updates).square().sum(1)


def some(seed: int, sizes: tuple[float, ...] = (1.0, 2.0, 0.5, 1.5)) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.tensor(sizes, dtype=F64)[:, None] * torch.randn(len(sizes), 7, dtype=F64, generator=stream)


def test_two_silos_meet_in_the_middle_whatever_their_shares() -> None:
    updates = torch.tensor([[0.0, 0.0], [4.0, 0.0]], dtype=F64)
    for shares in ([0.5, 0.5], [0.9, 0.1]):
        found = equal_distances(gram(updates), torch.tensor(shares, dtype=F64), ridge=0.0)
        torch.testing.assert_close(found, torch.full((2,), 0.5, dtype=F64))


def test_the_centre_of_a_triangle_by_hand() -> None:
    """A right triangle's centre is in the middle of its hypotenuse, so the silo at the right angle gets nothing."""
    updates = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 6.0]], dtype=F64)
    found = equal_distances(gram(updates), torch.full((3,), 1 / 3, dtype=F64), ridge=0.0)
    torch.testing.assert_close(found, torch.tensor([0.0, 0.5, 0.5], dtype=F64), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(distances(updates, found), torch.full((3,), 10.0, dtype=F64), rtol=1e-5, atol=1e-5)


def test_distances_are_equal_where_the_simplex_allows_it() -> None:
    """Updates of equal length and equal angles: the plain mean; shorter and longer ones, whose centre lies inside."""
    found = equal_distances(3 * torch.eye(4, dtype=F64), SHARES, ridge=0.0)
    torch.testing.assert_close(found, torch.full((4,), 0.25, dtype=F64))
    updates = torch.diag(torch.tensor([1.0, 1.1, 0.95, 1.2], dtype=F64))
    weights = equal_distances(gram(updates), SHARES, ridge=0.0)
    assert weights.min() > 0
    reached = distances(updates, weights)
    assert reached.std() < 1e-6 * reached.mean()
    assert distances(updates, SHARES).std() > 0.01  # they were not equal before


@pytest.mark.parametrize("ridge", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_karush_kuhn_tucker_conditions(seed: int, ridge: float) -> None:
    """The gradient of the objective is the same for all silos with weight, and no lower for those without."""
    updates = some(seed)
    products = gram(updates)
    found = equal_distances(products, SHARES, ridge)
    assert found.sum() == pytest.approx(1, abs=1e-9)
    assert found.min() >= 0
    weights = found.clone().requires_grad_(True)
    centre = torch.eye(4, dtype=F64) - 1 / 4
    spread = (centre @ (products.diagonal() - 2 * products @ weights)).square().sum()
    pull = ridge * torch.linalg.matrix_norm(2 * centre @ products, 2)
    (spread + pull**2 * (weights - SHARES).square().sum()).backward()
    slope = weights.grad
    assert slope is not None
    held = found > 1e-9
    scale = float(torch.linalg.matrix_norm(2 * centre @ products, 2)) ** 2
    level = slope[held].mean()
    assert (slope[held] - level).abs().max() < 1e-5 * scale
    assert ((slope[~held] - level) > -1e-5 * scale).all()


def test_the_variance_is_that_of_the_models_distances() -> None:
    updates = some(3)
    products, weights = gram(updates), equal_distances(gram(updates), SHARES, 0.0)
    linear = products.diagonal() - 2 * products @ weights
    reached = distances(updates, weights)
    assert float(linear.var()) == pytest.approx(float(reached.var()))
    for other in (SHARES, torch.full((4,), 0.25, dtype=F64), torch.softmax(some(9)[:, 0], 0)):
        assert reached.var() < distances(updates, other).var()


def test_a_strong_ridge_gives_the_shares_and_units_do_not_matter() -> None:
    products = gram(some(1))
    torch.testing.assert_close(equal_distances(products, SHARES, 1e3), SHARES, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(equal_distances(1e-12 * products, SHARES, 0.1), equal_distances(products, SHARES, 0.1))


def test_one_silo_and_updates_of_zero_keep_the_shares() -> None:
    one = torch.ones(1, dtype=F64)
    assert torch.equal(equal_distances(torch.tensor([[5.0]], dtype=F64), one, 0.1), one)
    torch.testing.assert_close(equal_distances(torch.zeros(4, 4, dtype=F64), SHARES, 0.1), SHARES)


class Given:
    """A server whose silos send the rows of a matrix, with samples in the ratio 1 : 2 : 3 : 4."""

    def __init__(self, how: str) -> None:
        layout = Layout([Slot("w", (7,), PARAMETER)], F64)
        self.names = ("a", "b", "c", "d")
        training = TrainSettings(rounds=9)
        self.server = Server(
            method(how), torch.zeros(7, dtype=F64), layout, layout, self.names, training, 9, 0, lambda *_: iter(())
        )

    def close(self, updates: Tensor) -> Tensor:
        self.server.round += 1
        self.server.facts = {}
        replies = [
            Reply(name, Message({MODEL: update.clone()}, {"samples": number + 1, "loss": 0.0}))
            for number, (name, update) in enumerate(zip(self.names, updates, strict=True))
        ]
        close_round(self.server, iter(replies), quorum=1)
        return torch.tensor(list(self.server.weights.values()), dtype=F64)


def test_a_round_uses_the_solution_and_momentum_mixes_it_with_the_round_before() -> None:
    first, second = some(0), some(1)
    plain, slow = Given("fael(solver=exact)"), Given("fael(solver=exact, momentum=0.75)")
    solutions = [equal_distances(gram(updates), SHARES, 0.1) for updates in (first, second)]
    for expected, updates in zip(solutions, (first, second), strict=True):
        torch.testing.assert_close(plain.close(updates), expected)
    torch.testing.assert_close(slow.close(first), solutions[0])
    torch.testing.assert_close(slow.close(second), 0.75 * solutions[0] + 0.25 * solutions[1])


def test_with_fphl_masked_updates_count() -> None:
    given = Given("fedheal(solver=exact, tau=0.6)")
    given.close(some(0))
    updates = some(1)
    found = given.close(updates)
    mask = given.server.facts["mask"]
    assert not mask.all()
    torch.testing.assert_close(found, equal_distances(gram(updates * mask), SHARES, 0.1))
    assert not torch.allclose(found, equal_distances(gram(updates), SHARES, 0.1))


def test_a_whole_run_learns(people: Federation) -> None:
    history, _ = tiny.run("fael(solver=exact)", people)
    losses = [sum(record["train_loss"].values()) for record in history.rounds]
    assert losses[-1] < losses[0]
    assert len({round(weight, 6) for weight in history.rounds[-1]["weights"].values()}) == 3


@pytest.mark.parametrize("how", ["fael(ridge=0.5)", "fedheal(momentum=0.5)", "fael(solver=exact, beta=0.1)"])
def test_settings_of_the_other_solver_are_refused(how: str) -> None:
    with pytest.raises(FairsiloError, match="has no effect with solver="):
        method(how)
