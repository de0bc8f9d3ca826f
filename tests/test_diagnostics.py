"""Each diagnostic on a case whose answer is known without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from fairsilo.analysis.diagnostics.a_distance import ADistance, ADistances, a_distance, proxy_a_distance
from fairsilo.analysis.diagnostics.aggregation import aggregate
from fairsilo.analysis.diagnostics.attention import Attention, DomainAttention, attention
from fairsilo.analysis.diagnostics.gap_variance import GapVariance, RoundGaps, gap_variance
from fairsilo.analysis.diagnostics.loss_surface import LossSurface, Plane, SurfaceModel, loss_surface
from fairsilo.analysis.diagnostics.replay import Replay
from fairsilo.analysis.diagnostics.t_sne import EmbeddedPoint, Embedding, t_sne
from fairsilo.analysis.diagnostics.update_consistency import Consistency, UpdateConsistency, update_consistency
from fairsilo.analysis.diagnostics.weight_gap import Trend, WeightGap, trend, weight_gap
from fairsilo.core.vectors import AVERAGED, BUFFER, COUNTER, PARAMETER, Layout, Slot
from fairsilo.errors import FairsiloError

F64 = torch.float64
NAMES = ("a", "b", "c")


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def layout_of(size: int) -> Layout:
    return Layout([Slot("w", (size,), PARAMETER)], F64)


def no_loss(model: Tensor, silo: str) -> float:
    raise AssertionError("no loss expected")


def no_features(model: Tensor, silo: str) -> tuple[Tensor, Tensor]:
    raise AssertionError("no features expected")


def no_attention(domain: str) -> Tensor:
    raise AssertionError("no attention expected")


@dataclass
class Fake:
    """A replay in memory: one dictionary of local models per round; losses, features, attention are plain functions."""

    locals: list[dict[str, Tensor]]
    measure: Callable[[Tensor, str], float] = no_loss
    see: Callable[[Tensor, str], tuple[Tensor, Tensor]] = no_features
    attention: Callable[[str], Tensor] = no_attention
    sents: list[Tensor] = field(default_factory=list)
    last: Tensor | None = None
    layout: Layout = field(default_factory=lambda: layout_of(3))
    silos: tuple[str, ...] = NAMES
    unseen: tuple[str, ...] = ("u",)
    samples: dict[str, int] = field(default_factory=lambda: {"a": 10, "b": 20, "c": 70})
    asked: list[tuple[str, str]] = field(default_factory=list)
    attends: bool = False

    @property
    def rounds(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.locals) + 1))

    @property
    def total_rounds(self) -> int:
        return len(self.locals)

    @property
    def domains(self) -> dict[str, bool]:
        return {name: name in self.unseen for name in (*self.silos, *self.unseen)}

    def sent(self, round: int) -> Tensor:
        return self.sents[round - 1] if self.sents else torch.zeros(self.layout.size, dtype=F64)

    def local(self, round: int) -> dict[str, Tensor]:
        return self.locals[round - 1]

    def after(self, round: int) -> Tensor | None:
        return self.last if round == self.rounds[-1] else self.sent(round + 1)

    def loss(self, vector: Tensor, silo: str, split: str) -> float:
        self.asked.append((silo, split))
        return self.measure(vector, silo)

    def features(self, vector: Tensor, silo: str, split: str, limit: int) -> tuple[Tensor, Tensor]:
        found, targets = self.see(vector, silo)
        return found[:limit], targets[:limit]


UNITS = dict(zip(NAMES, torch.eye(3, dtype=F64), strict=True))
SLOPES = dict(zip(NAMES, (1.0, 1.2, 2.0), strict=True))


def linear(model: Tensor, silo: str) -> float:
    """With unit vectors for local models the aggregate is the weights themselves, so G_i = slope_i (1 - a_i)."""
    return 5 - SLOPES[silo] * float(model[NAMES.index(silo)])


def linear_replay(rounds: int = 3) -> Fake:
    return Fake([UNITS] * rounds, linear)


def test_the_fake_is_a_replay() -> None:
    replay: Replay = linear_replay()
    assert replay.rounds == (1, 2, 3)


# ------------------------------------------------------------------------------------------ variance of the gaps
def test_gaps_of_quadratic_losses() -> None:
    centres = {"a": vector(0, 0, 0), "b": vector(4, 0, 0), "c": vector(0, 4, 0)}
    models = {"a": vector(1, 0, 0), "b": vector(3, 0, 0), "c": vector(0, 2, 0)}
    replay = Fake([models], lambda model, silo: 0.5 * float((model - centres[silo]).square().sum()))
    by_rule = {item.rule: item for item in gap_variance(replay).found}

    assert by_rule["FedAvg"].weights == pytest.approx({"a": 0.1, "b": 0.2, "c": 0.7})
    # the mean is (0.7, 1.4, 0): losses 1.225, 6.425, 3.625; the silos' own 0.5, 0.5, 2
    assert by_rule["FedAvg"].gaps == pytest.approx({"a": 0.725, "b": 5.925, "c": 1.625})
    assert by_rule["FedAvg"].variance == pytest.approx((0.725**2 + 5.925**2 + 1.625**2) / 3 - (8.275 / 3) ** 2)
    # the first round of GA is the plain mean (4/3, 2/3, 0)
    assert by_rule["GA"].weights == pytest.approx(dict.fromkeys(NAMES, 1 / 3))
    assert by_rule["GA"].gaps == pytest.approx({"a": 10 / 9 - 0.5, "b": 34 / 9 - 0.5, "c": 58 / 9 - 2})
    assert set(replay.asked) == {(silo, "validation") for silo in NAMES}


def test_linear_gaps_become_equal_under_faa() -> None:
    found = gap_variance(linear_replay()).found
    # slope_i (1 - a_i) = G for all and sum a_i = 1 give G = (M - 1) / sum 1/slope_i
    common = 2 / (1 + 1 / 1.2 + 1 / 2)
    for item in (item for item in found if item.rule == "FAA"):
        assert item.note == "ok"
        assert item.gaps == pytest.approx(dict.fromkeys(NAMES, common))
        assert item.weights == pytest.approx({silo: 1 - common / slope for silo, slope in SLOPES.items()})
        assert item.variance == pytest.approx(0, abs=1e-20)
    plain = [item for item in found if item.rule == "FedAvg"]
    assert all(item.gaps == pytest.approx({"a": 0.9, "b": 0.96, "c": 0.6}) for item in plain)
    assert all(item.variance == pytest.approx((0.08**2 + 0.14**2 + 0.22**2) / 3) for item in plain)


def test_ga_uses_new_weights_in_the_next_round() -> None:
    first, second = (item for item in gap_variance(linear_replay(2)).found if item.rule == "GA")
    assert first.weights == pytest.approx(dict.fromkeys(NAMES, 1 / 3))
    assert first.gaps == pytest.approx({"a": 2 / 3, "b": 0.8, "c": 4 / 3})
    # gap over the largest: 1/2, 3/5, 1; the step of round 1 of 2 is 0.2 + 0.2/2 = 0.3, a third of it for each of three
    moved = {"a": 1 / 3 + 0.05, "b": 1 / 3 + 0.06, "c": 1 / 3 + 0.1}
    assert second.weights == pytest.approx({silo: value / 1.21 for silo, value in moved.items()})
    assert second.variance < first.variance


def test_an_absent_silo_keeps_its_weight() -> None:
    without = {"a": UNITS["a"], "b": UNITS["b"]}
    found = gap_variance(Fake([UNITS, without, {}, UNITS], linear)).found
    by_round = {item.round: item.weights for item in found if item.rule == "FAA"}
    assert list(by_round) == [1, 2, 4]
    # of two, equal gaps are 1 (1 - a) = 1.2 a
    assert by_round[2] == pytest.approx({"a": 1 / 2.2, "b": 1.2 / 2.2})
    assert by_round[4] == pytest.approx(by_round[1])


def test_counters_take_the_maximum() -> None:
    layout = Layout([Slot("w", (1,), PARAMETER), Slot("n", (), COUNTER)], F64)
    merged = aggregate(layout, [vector(1, 3), vector(2, 5)], vector(0.25, 0.75))
    assert merged.tolist() == [1.75, 5.0]


def test_rows_of_the_gap_variance() -> None:
    rows = gap_variance(linear_replay(1)).rows()
    assert len(rows) == 9
    assert rows[0] == {
        "round": 1,
        "aggregation": "FedAvg",
        "silo": "a",
        "weight": pytest.approx(0.1),
        "generalisation_gap": pytest.approx(0.9),
        "population_variance_of_gaps": pytest.approx(0.0248),
        "note": "",
    }


# ---------------------------------------------------------------------------------------- weights against gaps
@pytest.mark.parametrize("sweep", [0, 2])
def test_linear_gaps_lie_on_a_falling_line(sweep: int) -> None:
    found = weight_gap(linear_replay(4), sweep=sweep)
    for silo, line in found.by_silo.items():
        assert line.slope == pytest.approx(-SLOPES[silo])
        assert line.intercept == pytest.approx(0, abs=1e-12)
        assert line.pearson == pytest.approx(-1)
    assert len(found.changes) == 4 * 3 * (4 if sweep else 1)
    assert found.overall.pearson is not None
    assert -1 < found.overall.pearson < 0


def test_equal_slopes_lie_on_one_line() -> None:
    extra = {"a": 0.1, "b": 0.2, "c": 0.4}

    def loss(model: Tensor, silo: str) -> float:
        own = float(model[NAMES.index(silo)])
        return 2 - 0.7 * own + (extra[silo] if own < 1 else 0.0)

    found = weight_gap(Fake([UNITS] * 3, loss))
    assert found.overall.slope == pytest.approx(-0.7)
    assert found.overall.pearson == pytest.approx(-1)
    # G = extra + 0.7 * 2/3 over the largest, times 0.2 (1 + 1/3) / 3
    raw = {silo: 1 / 3 + (value + 1.4 / 3) / (0.4 + 1.4 / 3) * 0.8 / 9 for silo, value in extra.items()}
    first = {item.silo: item.weight_change for item in found.changes if item.round == 1}
    assert first == pytest.approx({silo: value / sum(raw.values()) - 1 / 3 for silo, value in raw.items()})
    assert found.rows()[0]["slope_of_all"] == pytest.approx(-0.7)


def test_one_weight_at_a_time_moves_by_parts_of_the_step() -> None:
    # quadratic losses: the gap of silo i at weight v of its own and half of the rest for each of the others
    def loss(model: Tensor, silo: str) -> float:
        return float((model - UNITS[silo]).square().sum())

    found = weight_gap(Fake([UNITS], loss), sweep=2)
    # the step of round 1 of 1 is 0.4, a third of it for each of three silos
    steps = [-0.4 / 3, -0.2 / 3, 0.2 / 3, 0.4 / 3]
    assert [item.weight_change for item in found.changes] == pytest.approx(steps * 3)
    expected = [(2 / 3 - step) ** 2 * 1.5 - 2 / 3 for step in steps]
    assert [item.gap_change for item in found.changes] == pytest.approx(expected * 3)


def test_a_sweep_stays_on_the_simplex_and_in_the_rounds_asked_for() -> None:
    alone = Fake([{"a": UNITS["a"]}], linear, silos=("a",))
    assert weight_gap(alone, sweep=1).changes == ()
    found = weight_gap(linear_replay(4), step_size=3.0, sweep=1, rounds=[2]).changes
    assert {item.round for item in found} == {2}
    # a step of 1 each way is cut to the room there is: from the weights of equal gaps down to 0 and up to 1
    common = 2 / (1 + 1 / 1.2 + 1 / 2)
    room = [change for slope in SLOPES.values() for change in (common / slope - 1, common / slope)]
    assert [item.weight_change for item in found] == pytest.approx(room)
    with pytest.raises(FairsiloError, match="round 9 were not kept"):
        weight_gap(linear_replay(), rounds=[9])


def test_a_trend_by_hand_and_of_constant_data() -> None:
    line = trend([0, 1, 2, 3], [1, 3, 2, 6])
    assert line.slope == pytest.approx(1.4)
    assert line.intercept == pytest.approx(0.9)
    assert line.pearson == pytest.approx(7 / math.sqrt(5 * 14))
    assert trend([2, 2, 2], [1, 2, 3]) == Trend(None, None, None)
    assert trend([1, 2, 3], [0.5, 0.5, 0.5]) == Trend(0.0, 0.5, None)
    assert trend([], []) == trend([1], [1]) == Trend(None, None, None)


def test_equal_gaps_move_nothing_and_give_no_line() -> None:
    same = Fake([UNITS] * 2, lambda model, silo: 1 - float(model[NAMES.index(silo)]))
    found = weight_gap(same)
    assert found.overall.pearson is None
    assert all(line.slope is None for line in found.by_silo.values())


# ------------------------------------------------------------------------------------------------- A-distance
def cloud(count: int, centre: float, seed: int, width: int = 5) -> Tensor:
    return centre + torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def test_a_distance_of_separable_and_of_equal_sets() -> None:
    assert proxy_a_distance(cloud(100, 0, 1), cloud(100, 30, 2), seed=0) == 2
    assert proxy_a_distance(cloud(2000, 0, 1), cloud(2000, 0, 2), seed=0) < 0.15
    same = cloud(60, 0, 1)
    assert proxy_a_distance(same, same, seed=0) == 0


def test_a_distance_of_a_known_overlap() -> None:
    # uniform on [0, 2] and on [1, 3]: the best threshold anywhere in [1, 2] errs on a quarter of each
    steps = torch.linspace(0, 2, 400).unsqueeze(1)
    assert proxy_a_distance(steps, steps + 1, seed=3) == pytest.approx(2 * (1 - 2 * 0.25), abs=0.15)


def test_a_distance_does_not_depend_on_the_order_and_is_never_negative() -> None:
    for seed in range(5):
        one, other = cloud(30, 0, seed), cloud(36, 0.3, seed + 50)
        there = proxy_a_distance(one, other, seed)
        assert there == proxy_a_distance(other, one, seed)
        assert 0 <= there <= 2


def test_a_distance_of_constant_features_and_of_too_few() -> None:
    assert proxy_a_distance(torch.ones(8, 2), torch.ones(8, 2), seed=0) == 0
    with pytest.raises(FairsiloError, match="at least 4 samples"):
        proxy_a_distance(torch.ones(3, 2), torch.ones(8, 2), seed=0)


def shifted(model: Tensor, silo: str) -> tuple[Tensor, Tensor]:
    """Features of a silo, moved by the model's first number; silo c has too few samples."""
    count = 3 if silo == "c" else 40
    features = cloud(count, float(model[0]), seed=ord(silo[0]))
    return features, torch.arange(count) % 2


def test_a_distances_per_silo_and_round() -> None:
    far, near = vector(40, 0, 0), vector(0, 0, 0)
    replay = Fake([{"a": far, "b": near, "c": far}, {"a": near, "b": far}], see=shifted)
    found = a_distance(replay).found
    assert [(item.round, item.silo, item.distance) for item in found] == [
        (1, "a", 2.0),
        (1, "b", 0.0),
        (1, "c", None),
        (2, "a", 0.0),
        (2, "b", 2.0),
    ]
    assert a_distance(replay, limit=10).rows()[0] == {
        "round": 1,
        "silo": "a",
        "global_model": "sent",
        "samples": 10,
        "proxy_a_distance": 2.0,
    }
    # the aggregate of the last round was not kept
    assert {item.round for item in a_distance(replay, against="after").found} == {1}
    with pytest.raises(FairsiloError, match="'sent' or 'after', not 'before'"):
        a_distance(replay, against="before")


# ------------------------------------------------------------------------------------------------------- t-SNE
def two_clusters(model: Tensor, silo: str) -> tuple[Tensor, Tensor]:
    """The unseen silo lies far away from everybody else, for every model."""
    return cloud(12, 100.0 if silo == "u" else 0.0, seed=ord(silo[0]) + int(model[0])), torch.arange(12) % 3


def test_far_clusters_stay_apart_and_the_map_is_reproducible() -> None:
    replay = Fake([{"a": vector(1, 0, 0), "b": vector(2, 0, 0)}], see=two_clusters, silos=("a", "b"))
    found = t_sne(replay, limit=10)
    assert found == t_sne(replay, limit=10)
    pairs = {(point.model, point.silo, point.unseen) for point in found.points}
    everywhere = {("global", "a", False), ("global", "b", False), ("global", "u", True)}
    assert pairs == everywhere | {("a", "a", False), ("a", "u", True), ("b", "b", False), ("b", "u", True)}
    assert len(found.points) == 70
    assert [point.target for point in found.points[:4]] == [0, 1, 2, 0]

    places = torch.tensor([(point.x, point.y) for point in found.points])
    outside = torch.tensor([point.unseen for point in found.points])
    distances = torch.cdist(places, places)
    same = outside.unsqueeze(0) == outside.unsqueeze(1)
    nearest = distances.fill_diagonal_(math.inf).argmin(dim=1)
    assert bool(same[torch.arange(70), nearest].all())
    assert distances[~same].min() > 5 * distances.min(dim=1).values.median()


def test_few_points_and_one_dimension_have_a_map() -> None:
    def see(model: Tensor, silo: str) -> tuple[Tensor, Tensor]:
        return torch.arange(3.0).unsqueeze(1) + float(model[0]), torch.zeros(3, 4, 4)

    replay = Fake([{"a": vector(1, 0, 0)}], see=see, silos=("a",), unseen=())
    found = t_sne(replay)
    assert len(found.points) == 6
    assert all(math.isfinite(point.x) and math.isfinite(point.y) for point in found.points)
    assert found.rows()[0]["class"] is None  # masks are no classes
    assert found.global_model == "sent"
    with pytest.raises(FairsiloError, match="needs at least 4 points"):
        t_sne(replay, limit=1)


def test_a_round_that_was_not_kept_is_refused() -> None:
    with pytest.raises(FairsiloError, match="round 9 were not kept; the first kept is 1, the last 3"):
        t_sne(linear_replay(), round=9)
    with pytest.raises(FairsiloError, match="kept no local models"):
        loss_surface(Fake([]))


# ------------------------------------------------------------------------------------------------ loss surface
def test_surface_of_a_quadratic() -> None:
    bowl = vector(1, 2, 3)
    corners = {"global": vector(1, 1, 1), "a": vector(4, 1, 1), "c": vector(2, 3, 1)}
    replay = Fake(
        [{"a": corners["a"], "b": vector(0, 0, 9), "c": corners["c"]}],
        lambda model, _: 0.5 * float((model - bowl).square().sum()),
        last=corners["global"],
    )
    found = loss_surface(replay, silo_b="c", steps=5)
    # the sides from (1, 1, 1) are (3, 0, 0) and (1, 2, 0): x and y of the plane are the first two axes
    assert [(model.name, model.x, model.y) for model in found.models] == [
        ("global", 0.0, 0.0),
        ("a", pytest.approx(3), 0.0),
        ("c", pytest.approx(1), pytest.approx(2)),
    ]
    assert {model.name: model.loss for model in found.models} == pytest.approx({"global": 2.5, "a": 7.0, "c": 3.0})
    assert found.xs == pytest.approx([-0.75, 0.375, 1.5, 2.625, 3.75])
    assert found.ys == pytest.approx([-0.5, 0.25, 1.0, 1.75, 2.5])
    for y, line in zip(found.ys, found.losses, strict=True):
        for x, loss in zip(found.xs, line, strict=True):
            # the point is (1 + x, 1 + y, 1), the bottom of the bowl lies 2 above the plane
            assert loss == pytest.approx(0.5 * (x**2 + (y - 1) ** 2 + 4))
    assert (found.where, found.global_model, len(found.rows())) == ("u", "after", 28)
    assert set(replay.asked) == {("u", "test")}


STATISTICS = Layout(
    [
        Slot("w", (2,), PARAMETER),
        Slot("norm.running_mean", (1,), BUFFER),
        Slot("norm.running_var", (1,), BUFFER),
        Slot("norm.num_batches_tracked", (), COUNTER),
    ],
    F64,
)


def test_statistics_follow_the_plane() -> None:
    plane = Plane(STATISTICS, vector(0, 0, 5, 1, 2), vector(2, 0, 7, 3, 9), vector(0, 4, 1, 1, 4))
    assert plane.at(0, 0).tolist() == [0, 0, 5, 1, 9]
    assert plane.at(1, 2).tolist() == [1, 2, 4, 2, 9]
    # one whole side beyond the origin the mean is 5 - 2, the variance 1 - 2 and so 0
    assert plane.at(-2, 0).tolist() == [-2, 0, 3, 0, 9]


def test_surface_points_of_models_are_the_models_themselves() -> None:
    layout = Layout([Slot("w", (7,), PARAMETER), Slot("n", (2,), BUFFER)])
    stream = torch.Generator().manual_seed(0)
    models = [torch.randn(9, generator=stream) for _ in range(3)]
    plane = Plane(layout, *models)
    for place, model in zip(plane.places, models, strict=True):
        assert torch.equal(plane.at(*place), model)
        # distances in the plane are distances between trainable tensors
        others = [math.dist(place, other) for other in plane.places]
        assert others == pytest.approx([float((model[:7] - other[:7]).norm()) for other in models], rel=1e-5)


def test_models_on_a_line_give_way_to_the_model_that_was_sent() -> None:
    models = {"a": vector(2, 0, 0), "b": vector(0, 2, 0)}
    replay = Fake([models], lambda model, _: float(model.sum()), last=vector(1, 1, 0), silos=("a", "b"))
    assert loss_surface(replay, steps=2).global_model == "sent"
    with pytest.raises(FairsiloError, match=r"\(after\) and the two local models lie on one line"):
        loss_surface(replay, steps=2, against="after")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "v"}, "no silo is named 'v'; known: a, b, c, u"),
        ({"silo_a": "aa"}, "'aa' has no local model in this round; did you mean 'a'?"),
        ({"silo_a": "a", "silo_b": "a"}, "needs the local models of two silos"),
        ({"steps": 1}, "steps is 1"),
        ({"against": "after"}, "after round 3 was not kept"),
    ],
)
def test_a_surface_that_cannot_be_drawn_says_why(options: dict[str, str], message: str) -> None:
    with pytest.raises(FairsiloError) as problem:
        loss_surface(linear_replay(), **options)  # type: ignore[arg-type]
    assert message in str(problem.value)


def test_a_surface_needs_an_unseen_silo_or_a_named_one() -> None:
    replay = Fake([UNITS], linear, unseen=(), sents=[vector(0, 0, 0)])
    with pytest.raises(FairsiloError, match="held out no domain"):
        loss_surface(replay, steps=2)
    assert loss_surface(replay, where="b", steps=2).where == "b"


# ----------------------------------------------------------------------------------------- consistency of updates
def moves(*changes: Sequence[float], silo: str = "a", **others: object) -> Fake:
    return Fake([{silo: vector(*change)} for change in changes], **others)  # type: ignore[arg-type]


def test_consistency_of_a_handmade_sequence() -> None:
    # over four rounds: always up; three times down; half and half (no change counts as up)
    replay = moves((1, -1, 0), (2, -3, -1), (1, 4, 0), (3, -1, -5))
    (found,) = update_consistency(replay).found
    assert (found.window, found.silo, found.tensor, found.rounds) == ("all 4 rounds", "a", "w", 4)
    assert found.mean == pytest.approx((1 + 0.75 + 0.5) / 3)
    assert found.shares == pytest.approx((1 / 3, 0, 1 / 3, 0, 1 / 3))
    # of 16 throws of four coins 6 are even, 8 are three of a kind, 2 are four of a kind
    assert found.shares_by_chance == pytest.approx((6 / 16, 0, 8 / 16, 0, 2 / 16))
    assert found.mean_by_chance == pytest.approx((6 * 0.5 + 8 * 0.75 + 2) / 16)


def test_changes_are_measured_from_the_model_that_was_sent() -> None:
    replay = moves((1, 1, 1), (1, 1, 1), sents=[vector(0, 2, 0), vector(0, 2, 2)])
    (found,) = update_consistency(replay).found
    assert found.shares == pytest.approx((1 / 3, 0, 0, 0, 2 / 3))


def test_windows_are_cut_to_the_rounds_there_are() -> None:
    # up for ten rounds, then up and down in turn
    def up(number: int) -> float:
        return 1.0 if number < 10 or number % 2 else -1.0

    def windows(rounds: int) -> dict[str, float]:
        found = update_consistency(moves(*[(up(number), 1, 1) for number in range(rounds)])).found
        return {item.window: item.mean for item in found}

    assert windows(10) == {"all 10 rounds": 1.0}
    assert windows(30) == pytest.approx(
        {"first 10 rounds": 1, "all 30 rounds": (20 / 30 + 2) / 3, "last 10 rounds": 2.5 / 3}
    )
    assert windows(120) == pytest.approx(
        {"first 10 rounds": 1, "first 100 rounds": (55 / 100 + 2) / 3, "last 10 rounds": 2.5 / 3}
    )


def test_silos_count_their_own_rounds() -> None:
    up, down = vector(1, 1, 1), vector(-1, -1, -1)
    replay = Fake([{"a": up, "b": up}, {"a": down}, {"a": up, "b": up}, {"a": down}])
    found = {item.silo: item for item in update_consistency(replay).found}
    assert (found["a"].rounds, found["a"].mean) == (4, 0.5)
    assert (found["b"].rounds, found["b"].mean) == (2, 1.0)
    chosen = update_consistency(replay, rounds=[1, 3]).found
    assert [(item.window, item.silo, item.mean) for item in chosen] == [
        ("rounds 1 to 3", "a", 1.0),
        ("rounds 1 to 3", "b", 1.0),
    ]


def test_six_of_ten_rounds_is_exactly_the_edge() -> None:
    replay = moves(*[(1, 1, 1)] * 6, *[(-1, -1, -1)] * 4)
    (found,) = update_consistency(replay).found
    assert found.shares == (0, 1, 0, 0, 0)


def test_tensors_are_chosen_by_name_and_size() -> None:
    slots = [
        Slot("features.0.weight", (3,), PARAMETER),
        Slot("features.1.weight", (2,), PARAMETER),
        Slot("head.weight", (4,), PARAMETER, group="head"),
        Slot("norm.weight", (9,), PARAMETER, kind=AVERAGED),
    ]
    layout = Layout(slots, F64)
    replay = Fake([{"a": torch.ones(18, dtype=F64)}], layout=layout)
    tensors = {
        asked: update_consistency(replay, tensor=asked).found[0].tensor for asked in (None, "head.weight", "all")
    }
    assert tensors == {None: "features.0.weight", "head.weight": "head.weight", "all": "all"}
    for wrong in ("norm.weight", "feature.0.weight"):
        with pytest.raises(FairsiloError, match=f"no shared tensor is named '{wrong}'"):
            update_consistency(replay, tensor=wrong)
    with pytest.raises(FairsiloError, match="round 7 were not kept"):
        update_consistency(replay, rounds=[7])


def test_rows_of_the_consistency() -> None:
    rows = update_consistency(moves((1, 1, -1), (1, -1, -1))).rows()
    assert [(row["consistency_from"], row["share_of_parameters"]) for row in rows] == [
        (0.5, pytest.approx(1 / 3)),
        (0.6, 0),
        (0.7, 0),
        (0.8, 0),
        (0.9, pytest.approx(2 / 3)),
    ]


# ------------------------------------------------------------------------------------- attention between adapters
def test_attention_is_the_mean_over_the_images_of_a_domain() -> None:
    given = {"a": [[0.5, 0.5], [0.25, 0.75]], "b": [[0.0, 1.0]], "u": [[0.5, 0.5], [1.0, 0.0], [0.75, 0.25]]}
    replay = Fake([], attention=lambda domain: torch.tensor(given[domain]), silos=("a", "b"))
    rows = attention(replay).rows()
    assert [tuple(row.values()) for row in rows] == [
        ("a", False, 2, "a", 0.375),
        ("a", False, 2, "b", 0.625),
        ("b", False, 1, "a", 0.0),
        ("b", False, 1, "b", 1.0),
        ("u", True, 3, "a", 0.75),
        ("u", True, 3, "b", 0.25),
    ]
    assert list(rows[0]) == ["domain", "unseen", "images", "silo", "mean_attention"]


# ------------------------------------------------------------------------------------------------ numbers for a ledger
def test_the_numbers_of_lines_and_gaps() -> None:
    trends = {"a": Trend(-2.0, 0.0, -1.0), "b": Trend(-4.0, 0.0, None), "c": Trend(None, None, None)}
    assert WeightGap((), trends, Trend(None, None, None)).numbers() == {"slope": -3.0, "pearson": -1.0}
    rounds = [RoundGaps(number, "GA", {}, {"a": 0.0, "b": 2.0 * number}) for number in (1, 2)]
    assert GapVariance(tuple(rounds)).numbers() == {"ga": pytest.approx((1 + 4) / 2)}  # the others were not measured


def test_the_numbers_of_distances_and_surfaces() -> None:
    values = {(1, "a"): 0.5, (1, "b"): 1.5, (2, "a"): 0.1, (2, "b"): 0.5, (3, "a"): None}
    found = ADistances(tuple(ADistance(number, silo, "sent", 9, value) for (number, silo), value in values.items()))
    assert found.numbers() == {"first": 1.0, "last": pytest.approx(0.3), "mean": pytest.approx(2.6 / 4)}
    assert ADistances(()).numbers() == {}
    models = (SurfaceModel("global", 0, 0, 1.0), SurfaceModel("a", 1, 0, 2.0), SurfaceModel("b", 0, 1, 4.0))
    surface = LossSurface(1, "u", "sent", models, (0.0, 1.0), (0.0, 1.0), ((1.0, 2.0), (4.0, math.inf)))
    assert surface.numbers() == {"global": 1.0, "local": 3.0, "rise": pytest.approx(4 / 3)}


def test_the_numbers_of_consistency_and_attention() -> None:
    found = [
        Consistency("first 10 rounds", silo, "w", 10, 0.7, 0.62, (0.3, share), (0.9, 0.02))
        for silo, share in (("a", 0.1), ("b", 0.5))
    ]
    wanted = {"first 10 rounds": pytest.approx(0.3), "first 10 rounds, by chance": pytest.approx(0.02)}
    assert UpdateConsistency(tuple(found)).numbers() == wanted
    domains = (
        DomainAttention("x", False, 3, {"a": 0.8, "b": 0.2}),
        DomainAttention("u", True, 3, {"a": 0.4, "b": 0.6}),
    )
    assert Attention(domains).numbers() == {"trained": 0.8, "unseen": 0.6}


@pytest.mark.parametrize(("shift", "low", "high"), [(1e6, 0.0, 0.0), (0.0, 0.8, 1.2)])
def test_mixing_tells_a_domain_apart_from_one_among_the_others(shift: float, low: float, high: float) -> None:
    drawn = torch.randn(400, 2, generator=torch.Generator().manual_seed(1)).tolist()
    points = [
        EmbeddedPoint(x + shift * (place < 100), y, "global", "u" if place < 100 else "a", place < 100, None)
        for place, (x, y) in enumerate(drawn)
    ]
    points += [EmbeddedPoint(shift, 0.0, "a", "a", False, None)] * 50  # seen by a local model: does not count
    assert low <= Embedding(1, "after", tuple(points)).numbers()["mixing"] <= high
    assert Embedding(1, "after", tuple(points[:100])).numbers() == {}
