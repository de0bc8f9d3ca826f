"""The server halves by hand: two or three silos, two rounds, numbers that fit in a line."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import test_silo
import tiny
from fairsilo.core.messages import Message
from fairsilo.core.server import Updates
from fairsilo.errors import FairsiloError
from fairsilo.methods.loss_weights import climb, q_coefficients, tilted
from fairsilo.methods.steps import nova_coefficients, path_length
from fairsilo.methods.text import method
from test_server_rules import LAYOUT, Given


def f64(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def weights(given: Given) -> list[float]:
    return list(given.server.weights.values())


# ------------------------------------------------------------------------------------------------ weights by losses
def test_q_ffl_by_hand() -> None:
    """With L = 2, h = q F^(q-1) L^2 ||D||^2 + L F^q = 16 + 2 and 36 + 4; each change counts L F^q / sum h."""
    found = q_coefficients(f64(1, 2), f64(4, 9), 1.0, 2.0)
    assert found.tolist() == pytest.approx([2 / 58, 4 / 58])
    squared = q_coefficients(f64(1, 2), f64(4, 9), 2.0, 2.0)  # h = 2 * 16 + 2 and 2 * 2 * 36 + 8
    assert squared.tolist() == pytest.approx([2 / 186, 8 / 186])


def test_q_ffl_moves_statistics_by_the_plain_mean() -> None:
    part = method("q-ffl").parts[0]
    deltas = f64([1, 1, 1, 1, 2, 2], [3, 3, 3, 3, 4, 4])
    updates = Updates(("a", "b"), deltas, torch.ones(2), [Message(), Message()], LAYOUT)
    moved = part.combine(Given("q-ffl").server, updates, f64(0.1, 0.2))
    assert moved.tolist() == pytest.approx([0.7] * 4 + [3.0] * 2)


def test_term_by_hand() -> None:
    assert tilted(f64(0.25, 0.75), f64(0.0, math.log(2)), 1.0).tolist() == pytest.approx([0.25 / 1.75, 1.5 / 1.75])
    assert tilted(f64(0.5, 0.5), f64(0.0, math.log(2)), -1.0).tolist() == pytest.approx([2 / 3, 1 / 3])


def test_term_as_released_divides_by_a_running_estimate() -> None:
    given, losses = Given("term(t=1, official=true)"), {"a": 0.0, "b": math.log(2)}
    estimate = 0.0
    for _ in range(2):
        given.close(losses, a=[1.0] * 4, b=[1.0] * 4)
        estimate = estimate / 2 + 0.75 / 2  # tilts are 1/2 and 1
        assert weights(given) == pytest.approx([0.5 / (4 * estimate), 1 / (4 * estimate)])


def test_afl_uses_the_weights_it_had_and_climbs_afterwards() -> None:
    given, losses = Given("afl(step_size=0.1)"), {"a": 1.0, "b": 2.0, "c": 0.0}
    changes: dict[str, list[float]] = {name: [1.0] * 4 for name in "abc"}
    given.close(losses, **changes)
    assert weights(given) == pytest.approx([1 / 3] * 3)
    given.close(losses, **changes)
    assert weights(given) == pytest.approx([1 / 3, 1 / 3 + 0.1, 1 / 3 - 0.1])  # projected: the mean step is taken off
    given.close(losses, a=[1.0] * 4, b=[1.0] * 4)
    share = (1 / 3) / (2 / 3 + 0.2)  # of two steps so far; those who take part share their mass
    assert weights(given) == pytest.approx([share, 1 - share])
    given.close(losses, **changes)
    assert sum(weights(given)) == pytest.approx(1)
    assert weights(given)[2] == pytest.approx(1 / 3 - 0.2)  # who was away kept the weight it had


def test_afl_gives_a_silo_that_comes_later_an_equal_share() -> None:
    given = Given("afl(step_size=0.1)")
    given.close({"a": 1.0, "b": 1.0}, a=[1.0] * 4, b=[1.0] * 4)
    assert weights(given) == pytest.approx([1 / 2] * 2)
    given.close({}, **{name: [1.0] * 4 for name in "abc"})
    assert weights(given) == pytest.approx([1 / 3] * 3)


def test_afl_can_start_at_the_shares_of_samples() -> None:
    part, server = method("afl(start=samples)").parts[0], Given("afl").server
    messages = [Message({}, {"received.loss": 1.0}) for _ in "abc"]
    updates = Updates(("a", "b", "c"), torch.zeros(3, 6, dtype=torch.float64), torch.ones(3), messages, LAYOUT)
    assert part.weights(server, updates, f64(0.2, 0.3, 0.5)).tolist() == pytest.approx([0.2, 0.3, 0.5])


def test_afls_climb_by_hand() -> None:
    start, losses = f64(1, 1, 1) / 3, f64(1, 2, 0)
    assert climb(start, losses, 0.1).tolist() == pytest.approx([1 / 3, 1 / 3 + 0.1, 1 / 3 - 0.1])
    raised = [1 / 3, 1 / 3 + 0.1, 0.3]
    assert climb(start, losses, 0.1, 0.3).tolist() == pytest.approx([one / sum(raised) for one in raised])
    given = Given("afl(step_size=0.1, carry=false)")
    given.close({"a": 1.0, "b": 2.0, "c": 0.0}, a=[1.0] * 4, b=[1.0] * 4, c=[1.0] * 4)
    assert weights(given) == pytest.approx([1 / 3, 1 / 3 + 0.1, 1 / 3 - 0.1])  # at once


# ------------------------------------------------------------------------------------------------------- directions
def test_fedfv_takes_off_what_points_against_an_earlier_round() -> None:
    """The mean of round 2 is (1, 1); c's update of round 1, (0, -2), opposes it: half of it is added back."""
    given = Given("fedfv(alpha=0, tau=2)")
    given.close(a=[1.0, 0.0, 0.0, 0.0], b=[1.0, 0.0, 0.0, 0.0], c=[0.0, -2.0, 0.0, 0.0])
    moved = given.close(a=[1.0, 1.0, 0.0, 0.0], b=[1.0, 1.0, 0.0, 0.0])
    assert moved[:4].tolist() == pytest.approx([math.sqrt(2), 0, 0, 0])  # as long as the plain mean
    later = given.close(a=[1.0, 1.0, 0.0, 0.0], b=[1.0, 1.0, 0.0, 0.0])  # c's update is too old by now
    assert later[:4].tolist() == pytest.approx([1, 1, 0, 0])


def test_fedfv_lets_the_highest_loss_keep_its_direction() -> None:
    """b has the higher loss and stays as it is; a loses what points against b."""
    moved = Given("fedfv(alpha=0.5, tau=0)").close(
        {"a": 1.0, "b": 2.0}, a=[1.0, 0.0, 0.0, 0.0], b=[-1.0, 1.0, 0.0, 0.0]
    )
    direction = f64(0.5 - 1, 0.5 + 1)
    torch.testing.assert_close(moved[:2], direction / direction.norm() * 0.5)


def test_adam_yogi_and_momentum_by_hand() -> None:
    steps = (2.0, 0.5)
    for rule in ("fedadam", "fedyogi", "fedavgm"):
        text = "beta1=0.9" if rule == "fedavgm" else "beta1=0.9, beta2=0.5, tau=0.1"
        given = Given(f"{rule}(server_lr=0.2, {text})")
        first, second = 0.0, 0.1**2
        for step in steps:
            moved = float(given.close(a=[step] * 4)[0])
            if rule == "fedavgm":
                first = 0.9 * first + step
                assert moved == pytest.approx(0.2 * first)
                continue
            first, square = 0.9 * first + 0.1 * step, step**2
            if rule == "fedadam":
                second = 0.5 * second + 0.5 * square
            else:
                second = second - 0.5 * square * math.copysign(1, second - square)
            assert moved == pytest.approx(0.2 * first / (math.sqrt(second) + 0.1))


def test_feddyns_server_by_hand() -> None:
    """Of three silos two take part: h falls by alpha / 3 of their sum, and the mean moves on by -h / alpha."""
    given = Given("feddyn(alpha=0.5)")
    for number in (1, 2):
        moved = given.close(a=[1.0] * 4, b=[3.0] * 4)
        assert moved[:4].tolist() == pytest.approx([2 + number * 4 / 3] * 4)
        assert moved[4:].tolist() == [0, 0]


def test_pfedmes_server_takes_a_share_of_the_mean() -> None:
    assert Given("pfedme(beta=0.5)").close(a=[2.0] * 4, b=[4.0] * 4)[:4].tolist() == [1.5] * 4


def test_fednova_by_hand() -> None:
    """tau_eff = 0.25 * 2 + 0.75 * 4 = 3.5."""
    assert nova_coefficients(f64(0.25, 0.75), f64(2, 4)).tolist() == pytest.approx([3.5 * 0.25 / 2, 3.5 * 0.75 / 4])


def test_a_path_that_goes_backwards_has_no_length() -> None:
    """Two steps go to 1 and back: to 0 where lr times mu is 2, to -1 where it is 3."""
    silo = test_silo.made(training=dataclasses.replace(tiny.TRAINING, lr=0.1, momentum=0.0))
    for mu, length in ((0.0, 2.0), (5.0, 1.5)):
        silo.method, silo.steps, update = method(f"fedprox(mu={mu}) | fednova"), 2, Message()
        silo.method.parts[1].finish(silo, update)
        assert update.numbers["normalized-averaging.length"] == length
    for mu, length in ((20.0, 0), (30.0, -1)):
        silo.method = method(f"fedprox(mu={mu}) | fednova")
        with pytest.raises(ValueError, match=f"has length {length}:"):
            silo.method.parts[1].finish(silo, Message())


def test_the_length_of_a_path_by_hand() -> None:
    assert path_length(3) == 3
    assert path_length(3, 0.5) == 1 + 1.5 + 1.75
    assert path_length(3, 0.0, 0.5) == 1 + 0.5 + 0.25


# ------------------------------------------------------------------------------------------------------- prototypes
def test_prototypes_are_the_mean_over_those_who_have_the_class() -> None:
    part, server = method("fedproto").parts[0], Given("fedproto").server

    def collect(means: list[list[list[float]]], counts: list[list[float]]) -> None:
        messages = [
            Message({"prototypes.means": f64(*one), "prototypes.counts": f64(*have)})
            for one, have in zip(means, counts, strict=True)
        ]
        part.collect(server, Updates(("a", "b"), torch.zeros(2, 6), torch.ones(2), messages, LAYOUT))

    # class 0: both, whatever their counts; class 1: b alone; class 2: nobody yet
    collect([[[2, 0], [9, 9], [0, 0]], [[4, 2], [1, 3], [0, 0]]], [[1, 0, 0], [100, 5, 0]])
    kept = server.memory.of(part)
    assert kept["means"].tolist() == [[3, 1], [1, 3], [0, 0]]
    assert kept["known"].tolist() == [True, True, False]
    collect([[[0, 0], [0, 0], [0, 0]], [[6, 6], [0, 0], [5, 5]]], [[0, 0, 0], [1, 0, 2]])
    kept = server.memory.of(part)
    assert kept["means"].tolist() == [[6, 6], [1, 3], [5, 5]]  # a class that nobody had this time keeps its own
    assert kept["known"].tolist() == [True, True, True]


# ------------------------------------------------------------------------------------------------ a bound on updates
def bounded(how: str, *rows: list[float]) -> tuple[list[list[float]], list[str]]:
    """Updates of silos a, b, c (four parameters, two statistics) after the bound, and what was noted."""
    given = Given(how)
    updates = Updates(tuple("abc"), f64(*rows), torch.ones(3), [Message()] * 3, LAYOUT)
    found = method(how).parts[0].collect(given.server, updates)
    return found.deltas.tolist(), given.server.notes


def test_a_long_update_is_cut_to_a_multiple_of_the_median() -> None:
    """Lengths 1, 2 and 1000: the last is cut to 3 x 2, its direction stays; the others are not touched."""
    one, two, long = [1.0, 0, 0, 0, 0, 1], [0.0, 2, 0, 0, 0, 1], [600.0, 800, 0, 0, 0, 1]
    found, notes = bounded("norm-bound", one, two, long)
    assert found[:2] == [one, two]
    assert found[2] == pytest.approx([3.6, 4.8, 0, 0, 0, 1])
    assert notes == ["the update of c was cut from length 1e+03 to 6"]


def test_statistics_are_cut_by_themselves() -> None:
    """A length of 3e9 in what is not trained: the parameters beside it stay as they are."""
    rows = [[1.0, 0, 0, 0, 0, 2], [1.0, 0, 0, 0, 0, 2], [1.0, 0, 0, 0, 3e9, 0]]
    found, notes = bounded("norm-bound(bound=9)", *rows)
    assert found[2] == pytest.approx([1, 0, 0, 0, 6, 0])
    assert notes == ["the statistics vector of c was cut from length 3e+09 to 6"]


def test_a_given_bound_holds_for_all() -> None:
    rows = [[1.0, 0, 0, 0, 0, 0], [0.0, 2, 0, 0, 0, 0], [0.0, 0, 0, 4, 0, 0]]
    found, _ = bounded("norm-bound(bound=1.5, times=0)", *rows)
    assert found == [[1, 0, 0, 0, 0, 0], [0, 1.5, 0, 0, 0, 0], [0, 0, 0, 1.5, 0, 0]]
    with pytest.raises(FairsiloError, match="neither bound nor times, so that it would do nothing"):
        method("norm-bound(times=0)")


# -------------------------------------------------------------------------------------------- screening by the median
def screened(how: str, *rows: list[float]) -> tuple[str, dict[str, str]]:
    """The silos, of a, b, c and so on, whose updates (four parameters, two statistics) count, and why others do not."""
    given, names = Given(how), tuple("abcdef"[: len(rows)])
    messages = [Message({}, {"samples": number}) for number in range(len(rows))]
    updates = Updates(names, f64(*rows), torch.arange(len(rows)).double(), messages, LAYOUT)
    found = method(how).parts[0].collect(given.server, updates)
    assert found.deltas.tolist() == [row for name, row in zip(names, rows, strict=True) if name in found.silos]
    assert found.samples.tolist() == found.numbers("samples").tolist()
    return "".join(found.silos), given.server.left_out


def test_an_update_far_from_the_median_does_not_count() -> None:
    """The median is (1, 0, 0, 0), the distances are 1, 1 and 3: three times the middle one is as far as may be."""
    rows = [[0.0, 0, 0, 0, 0, 0], [2.0, 0, 0, 0, 0, 0], [1.0, 3, 0, 0, 0, 0]]
    assert screened("median-screen(times=3)", *rows) == ("abc", {})
    found, why = screened("median-screen(times=2.9)", *rows)
    assert found == "ab"
    assert why == {"c": "its update is 3 from the median, and 2.9 is allowed"}


def test_the_median_of_four_lies_between_the_two_in_the_middle() -> None:
    """Of 0, 2, 4 and 10 it is 3; of the distances 3, 1, 1 and 7 it is 2."""
    rows = [[value, 0.0, 0, 0, 0, 0] for value in (0.0, 2.0, 4.0, 10.0)]
    assert screened("median-screen(times=3.5)", *rows)[0] == "abcd"
    assert screened("median-screen(times=3.4)", *rows)[0] == "abc"


def test_statistics_far_from_the_median_are_enough() -> None:
    """Distances of the statistics are 1, 1 and 1e9; of the parameters all are as far as may be."""
    rows = [[1.0, 0, 0, 0, 1, 0], [1.0, 0, 0, 0, 0, 1], [1.0, 0, 0, 0, 0, 1e9]]
    found, why = screened("median-screen", *rows)
    assert found == "ab"
    assert why["c"].startswith("its statistics vector is 1e+09 from the median")


def test_two_updates_are_not_screened() -> None:
    assert screened("median-screen", [0.0, 0, 0, 0, 0, 0], [1e9, 0, 0, 0, 0, 0])[0] == "ab"


def test_an_update_that_does_not_count_moves_nothing_and_is_a_failure_of_its_silo() -> None:
    loop = tiny.run("median-screen(times=1)", tiny.federation())[1]
    for record in loop.history.rounds:
        left_out = [one["silo"] for one in record["failures"] if one["kind"] == "screened"]
        assert len(left_out) == 1  # of three distances two are not above the one in the middle
        assert sorted([*record["counted"], *left_out]) == ["a", "b", "c"]
        assert set(record["weights"]) == set(record["counted"])
    given = Given("median-screen(times=1)")
    moved = given.close(a=[0.0, 0, 0, 0], b=[2.0, 0, 0, 0], c=[1.0, 3, 0, 0])
    assert moved.tolist() == [1, 0, 0, 0, 0, 0]
