"""Results by group: who is counted where, that sums are pooled and not means, and that small groups stay at home."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import fairsilo
import tiny
from fairsilo.analysis.chance import wilson
from fairsilo.analysis.groups import KINDS, by_group
from fairsilo.cli import app
from fairsilo.config import experiment
from fairsilo.core.attachments import bytes_of, expected, grouped
from fairsilo.core.disclosure import MINIMUM, told
from fairsilo.core.groups import Grouped, asked_of, asking, keys, labels_of
from fairsilo.core.messages import Exchange, Message, Reply
from fairsilo.core.roster import Member, Roster
from fairsilo.core.samples import SiloData, Split
from fairsilo.data.federation import Federation
from fairsilo.data.groups import MOST, groups_of
from fairsilo.engine.base import Engine
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.grouping import Pool as Tallies
from fairsilo.engine.loop import History, Loop
from fairsilo.engine.processes import Pool, Processes
from fairsilo.errors import FairsiloError
from fairsilo.laws.engines import FLAWS, Case, Spoiling, Wrapped
from fairsilo.laws.tiny import NETWORK, looped
from fairsilo.report.groups import group_tables
from fairsilo.report.page import write_report
from fairsilo.report.tables import comparison_csv
from fairsilo.tasks.classify import Classify
from fairsilo.tasks.regress import Regress
from other_tasks import GROUNDS

# of each silo's 18 test samples; the unseen silo is `u`
SEXES = {
    "a": "f" * 10 + "m" * 8,
    "b": "m" * 12 + "f" * 6,
    "c": "fm" * 9,
    "u": "f" * 7 + "m" * 11,
}
SCANNERS = {"a": ["old"] * 9 + ["new"] * 9, "b": ["old"] * 6 + [""] * 6 + ["new"] * 3 + ["rare"] * 3}


def labelled(silo: SiloData, **columns: Any) -> SiloData:
    test = Split(silo.test.inputs, silo.test.targets, attributes=columns)
    return dataclasses.replace(silo, test=test)


def people() -> Federation:
    """Everybody says sex; a and b say scanner."""
    made = tiny.federation()

    def one(silo: SiloData) -> SiloData:
        scanner = {"scanner": SCANNERS[silo.name]} if silo.name in SCANNERS else {}
        return labelled(silo, sex=SEXES[silo.name], **scanner)

    return dataclasses.replace(made, silos=tuple(map(one, made.silos)), unseen=tuple(map(one, made.unseen)))


def loop_of(how: str = "fedavg", groups: tuple[str, ...] = ("sex", "scanner"), **options: Any) -> Loop:
    training = options.pop("training", dataclasses.replace(tiny.TRAINING, rounds=2))
    plan = tiny.plan(how, training, **({"model": NETWORK} if "engine" in options else {}))
    return looped(plan, people(), groups=groups, server_data=tiny.synthetic(), **options)


def rows_of(history: History, column: str, model: str, unseen: bool = False, number: int = 2) -> dict[str, Any]:
    wanted = {"round": number, "column": column, "model": model, "unseen": unseen}
    (row,) = (row for row in history.groups if {key: row[key] for key in wanted} == wanted)
    return row


# -------------------------------------------------------------------------------------------------------- what is told
def test_small_groups_are_not_told_of() -> None:
    assert MINIMUM == 5
    assert told("f" * 5 + "m" * 5 + "x" * 4 + "y" * 4) == {"f", "m"}
    assert told("f" * 20 + "m" * 5) == {"f", "m"}
    assert told("xxxx") == set()
    assert told("") == set()


def test_nor_are_they_found_by_subtraction() -> None:
    """The whole split is reported too: with one sample left over, its result would be the difference."""
    assert told("f" * 20 + "m" * 9 + "x") == {"f"}
    assert told("f" * 9 + "m" * 20 + "xxyz") == {"m"}
    assert told("f" * 9 + "m" * 20 + "xxyyz") == {"f", "m"}  # five left over
    assert told("f" * 9 + "x") == set()


def test_a_sample_without_a_value_is_in_the_group_unknown() -> None:
    split = Split(torch.zeros(4, 1), torch.zeros(4), attributes={"age": ["", " ", 7, None]})  # type: ignore[list-item]
    assert labels_of(split, "age") == ["unknown", "unknown", "7", "unknown"]


def test_groups_are_those_that_some_silo_tells_of() -> None:
    found = groups_of(people(), ("scanner", "sex"))
    # b keeps `new` and `rare` to itself; together they are too many to be found by subtraction
    assert found.columns == {"scanner": ("new", "old", "unknown"), "sex": ("f", "m")}
    assert found.notes == ("silos 'c', 'u' have no column 'scanner', and are in none of its groups",)
    assert groups_of(people(), ()).columns == {}


def refused(federation: Federation, column: str) -> str:
    with pytest.raises(FairsiloError) as caught:
        groups_of(federation, (column,))
    return str(caught.value)


def test_columns_that_say_nothing_are_refused() -> None:
    assert "'sexe', which no silo's test samples have; their columns: scanner, sex; did you mean 'sex'?" in refused(
        people(), "sexe"
    )
    assert refused(people(), "height").endswith("columns: scanner, sex")
    assert "have no columns of this kind" in refused(tiny.federation(), "sex")
    made = tiny.federation()
    own = [labelled(one, number=[f"{one.name}{i}" for i in range(18)]) for one in made.silos]
    many = dataclasses.replace(made, silos=tuple(own))
    assert "band it first" in refused(many, "number")
    assert f"54 values in the test data, and at most {MOST}" in refused(many, "number")
    few = dataclasses.replace(made, silos=(labelled(made.silos[0], number=[str(i // 4) for i in range(18)]),))
    assert "has no effect here: no silo has 5 test samples" in refused(few, "number")


def test_the_setting_is_a_text_or_a_list() -> None:
    assert experiment({}, ["evaluate.groups=sex, age,sex"]).evaluate.groups == "sex, age"
    assert experiment({}, ["groups=sex"]).evaluate.columns == ("sex",)
    assert experiment({"evaluate": {"groups": ["sex", "age"]}}).evaluate.columns == ("sex", "age")
    assert experiment({"evaluate": {"groups": " , "}}).evaluate.groups is None
    with pytest.raises(FairsiloError, match=r"evaluate\.groups is 3; it must be names of columns"):
        experiment({"evaluate": {"groups": 3}})


# ---------------------------------------------------------------------------------------------------------- one silo
def test_tallies_of_groups_are_those_of_their_samples() -> None:
    task = Classify(3)
    stream = torch.Generator().manual_seed(0)
    prediction, targets = torch.randn(18, 3, generator=stream), torch.arange(18) % 3
    split = Split(torch.zeros(18, 1), targets, attributes={"sex": SEXES["c"]})
    whole = {}
    for size in (18, 4):
        found = Grouped.of(split, {"sex": ("f", "m")})
        order = torch.randperm(18, generator=stream)
        for indices in order.split(size):
            found.add(task, prediction[indices], targets[indices], indices)
        message = Message()
        found.write(message, "global.test", len(task.tally(prediction, targets)))
        tallies, samples = (message.tensors[key] for key in keys("global.test", "sex"))
        assert samples.tolist() == [9, 9]
        torch.testing.assert_close(tallies[0], task.tally(prediction[::2], targets[::2]))
        torch.testing.assert_close(tallies[1], task.tally(prediction[1::2], targets[1::2]))
        whole[size] = tallies.sum(0)
    torch.testing.assert_close(whole[18], task.tally(prediction, targets))


class Listening(Wrapped):
    """Notes every reply, and how often a silo's network is asked for a prediction."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.replies: list[tuple[str, str, Message]] = []
        self.asked: list[Message] = []

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        self.asked += exchange.messages.values()
        for reply in self.engine.ask(exchange):
            assert isinstance(reply.answer, Message)
            self.replies.append((exchange.kind, reply.silo, reply.answer.copy()))
            yield reply


def test_nothing_of_a_small_group_leaves_its_silo() -> None:
    loop = loop_of(wrap=Listening)
    loop.run()
    engine = loop.engine
    assert isinstance(engine, Listening)
    seen = 0
    for _, silo, answer in engine.replies:
        assert not any("rare" in key for key in (*answer.tensors, *answer.numbers))
        for model in ("global", "personal"):
            tallies, samples = keys(f"{model}.test", "scanner")
            assert (tallies in answer.tensors) == (silo in "ab" and f"{model}.test.loss" in answer.numbers)
            if tallies in answer.tensors:
                counts = Counter(label or "unknown" for label in SCANNERS[silo])
                wanted = [counts[value] if counts[value] >= 5 else 0 for value in ("new", "old", "unknown")]
                assert answer.tensors[samples].tolist() == wanted
                sent = answer.tensors[tallies].abs().sum(1) > 0
                assert sent.tolist() == [count > 0 for count in wanted]
                seen += 1
    assert seen == 8  # two silos, two models, two rounds
    assert not any("rare" in str(message.numbers.get("groups")) for message in engine.asked)


def test_groups_change_no_other_number_and_no_prediction_is_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    forward = tiny.TinyNet.forward
    monkeypatch.setattr(tiny.TinyNet, "forward", lambda self, x: (calls.append(len(x)), forward(self, x))[1])
    plain = loop_of(groups=()).run()
    without = len(calls)
    calls.clear()
    history = loop_of().run()
    assert len(calls) == without + 1  # one sample, to learn the size of a tally
    assert (plain.groups, plain.rows) == ([], history.rows)
    assert torch.equal(plain.vector, history.vector)
    assert len(history.groups) == 2 * (3 + 2)  # rounds; sex: two models and unseen, scanner: nobody unseen has it


# ------------------------------------------------------------------------------------------------------------- pooling
def regressed(errors: dict[str, list[float]], key: str, values: tuple[str, ...] = ("f", "m")) -> Message:
    """What a silo sends that is off by these numbers in each group."""
    task = Regress()
    rows = [task.tally(torch.tensor(errors[v]), torch.zeros(len(errors[v]))) for v in values]
    tallies, samples = keys(key, "sex")
    counts = torch.tensor([len(errors[v]) for v in values])
    return Message({tallies: torch.stack(rows), samples: counts}, {f"{key}.samples": int(counts.sum()) + 2})


def tallies_of(domains: tuple[str, ...] = ("x", "y")) -> Tallies:
    silos = tuple(Member(name, domain, 9, 0, 30) for name, domain in zip("ab", domains, strict=True))
    roster = Roster("toy", (), (4,), "float32", silos, (Member("u", "u", 0, 0, 30),), "regress")

    class Stub:
        task, round, memory = Regress(), 3, {}

    Stub.memory = {}
    return Tallies(Stub(), roster, {"sex": ("f", "m")})  # type: ignore[arg-type]


def test_sums_are_pooled_and_not_means_of_silos() -> None:
    pool = tallies_of()
    pool.take("a", "global", regressed({"f": [1.0] * 10, "m": [2.0] * 5}, "global.test"))
    pool.take("b", "global", regressed({"f": [4.0] * 5, "m": []}, "global.test"))
    pool.take("u", "global", regressed({"f": [7.0] * 5, "m": [8.0] * 6}, "global.test"))
    pool.take("a", "personal", regressed({"f": [0.5] * 10, "m": [0.25] * 5}, "personal.test"))
    found = {(row["model"], row["unseen"]): row for row in pool.rows()}
    assert set(found) == {("global", False), ("global", True), ("personal", False)}
    home = found["global", False]
    assert (home["round"], home["column"], home["left_out"]) == (3, "sex", 4)
    assert home["groups"]["f"]["metric"] == 2.0  # (10 * 1 + 5 * 4) / 15; the mean of the silos is 2.5
    assert home["groups"]["f"]["metrics"]["rmse"] == pytest.approx(6**0.5)
    assert (home["groups"]["f"]["samples"], home["groups"]["f"]["silos"]) == (15, 2)
    assert (home["groups"]["m"]["metric"], home["groups"]["m"]["silos"]) == (2.0, 1)
    assert [found["global", True]["groups"][v]["metric"] for v in "fm"] == [7.0, 8.0]
    assert [found["personal", False]["groups"][v]["metric"] for v in "fm"] == [0.5, 0.25]


def test_a_silo_that_sat_out_counts_with_its_latest_own_model() -> None:
    pool = tallies_of()
    pool.take("a", "personal", regressed({"f": [1.0] * 5, "m": []}, "personal.test"))
    pool.take("a", "global", regressed({"f": [1.0] * 5, "m": []}, "global.test"))
    assert [row["model"] for row in pool.rows()] == ["global", "personal"]
    pool.take("b", "personal", regressed({"f": [3.0] * 5, "m": []}, "personal.test"))
    (row,) = pool.rows()  # the global model was not measured
    assert row["groups"] == {
        "f": {
            "samples": 10,
            "silos": 2,
            "metric": 2.0,
            "metrics": {"mae": 2.0, "rmse": pytest.approx(5**0.5)},
            "error": pytest.approx(1 / 9**0.5),
        }
    }


def test_samples_that_silos_of_a_domain_share_are_counted_once() -> None:
    pool = tallies_of(("x", "x"))
    for name in "ab":
        pool.take(name, "global", regressed({"f": [1.0] * 10, "m": [2.0] * 5}, "global.test"))
    (row,) = pool.rows()
    assert (row["left_out"], row["groups"]["f"]["samples"], row["groups"]["f"]["silos"]) == (2, 10, 2)


def test_samples_that_two_silos_share_make_a_result_no_surer() -> None:
    values = [1.0, 2.0, 4.0, 5.0, 9.0]
    errors = {}
    for domains in (("x", "x"), ("x", "y")):
        pool = tallies_of(domains)
        for name in "ab":
            pool.take(name, "global", regressed({"f": values, "m": []}, "global.test"))
        errors[domains] = pool.rows()[0]["groups"]["f"]["error"]
    pooled = torch.tensor(values * 2).std(correction=1).item() / 10**0.5
    assert errors["x", "y"] == pytest.approx(pooled)
    assert errors["x", "x"] == pytest.approx(2**0.5 * pooled)


def test_a_metric_that_is_undefined_in_a_group_is_none() -> None:
    task = Classify(2, "sensitivity")
    pool = tallies_of()
    pool.server.task = task
    tallies, samples = keys("global.test", "sex")
    only_first = task.tally(torch.eye(2)[[0] * 5], torch.zeros(5, dtype=torch.long))
    rows = torch.stack([only_first, task.tally(torch.eye(2)[[1] * 5], torch.ones(5, dtype=torch.long))])
    pool.take("a", "global", Message({tallies: rows, samples: torch.tensor([5, 5])}, {"global.test.samples": 10}))
    (row,) = pool.rows()
    assert [row["groups"][value]["metric"] for value in "fm"] == [None, 1.0]


# --------------------------------------------------------------------------------------------------------- whole runs
def in_group(split: Split, column: str, value: str) -> Split:
    return split.subset([i for i, label in enumerate(labels_of(split, column)) if label == value])


def test_results_are_what_the_models_predict_of_a_groups_samples(tmp_path: Path) -> None:
    """Global, own and unseen, by predicting again with the saved models."""
    silos = people()
    settings = {"rounds": 1, "epochs": 2, "lr": 0.02, "batch_size": 8, "engine": {"name": "sequential"}}
    result = fairsilo.run(
        federation=silos, method="fedavg", out=tmp_path / "run", evaluate={"groups": "sex"}, **settings
    )
    trained = fairsilo.load(result.folder)
    found = result.summary["groups"]["sex"]

    def share(pairs: list[tuple[SiloData, str | None]], value: str) -> float:
        right = [
            trained.predict(part.inputs, silo, "last").argmax(1) == part.targets
            for part, silo in ((in_group(one.test, "sex", value), silo) for one, silo in pairs)
        ]
        return float(torch.cat(right).double().mean())

    kinds = ("global", "personal", "unseen")
    for value, samples, unseen in (("f", 25, 7), ("m", 29, 11)):
        of = found["values"][value]
        assert (of["samples"], of["unseen_samples"]) == (samples, unseen)
        assert of["global"] == share([(one, None) for one in silos.silos], value)
        assert of["personal"] == share([(one, one.name) for one in silos.silos], value)
        assert of["unseen"] == share([(one, None) for one in silos.unseen], value)
    assert len({of[kind] for of in found["values"].values() for kind in kinds}) >= 5  # or a swap might go unseen
    kept = json.loads((result.folder / "summary.json").read_text())
    assert kept["groups"] == result.summary["groups"]
    assert "sums of its test results by sex" in json.loads((result.folder / "run.json").read_text())["method_sends"][0]


@pytest.mark.parametrize("task", sorted(GROUNDS))
def test_a_group_of_everybody_has_the_result_of_its_silo(task: str) -> None:
    ground = GROUNDS[task]
    made = ground.federation()
    unseen = (labelled(made.unseen[0], clinic=["one"] * 18),)
    silos = tuple(labelled(one, clinic=["one"] * 18) for one in made.silos)
    everybody = dataclasses.replace(made, silos=silos, unseen=unseen)
    history = looped(ground.plan("fedavg", everybody, rounds=1), everybody, groups=("clinic",)).run()
    (own,) = (row for row in history.rows if row["unseen"] and row["split"] == "test")
    found = rows_of(history, "clinic", "global", unseen=True, number=1)["groups"]["one"]
    assert (found["metric"], found["metrics"], found["samples"]) == (own["metric"], own["metrics"], 18)
    home = rows_of(history, "clinic", "global", number=1)["groups"]["one"]
    mean = sum(row["metric"] for row in history.rows if _at_home(row)) / 3  # of silos with as many samples each
    assert home["metric"] == pytest.approx(mean)


def _at_home(row: dict[str, Any]) -> bool:
    return (row["model"], row["split"], row["unseen"]) == ("global", "test", False)


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["fedavg", "fine-tune", "tent", "fedbn"])
def test_engines_agree_on_groups(how: str, pool: Pool) -> None:
    def processes(plan: Blueprint, silos: Federation) -> Processes:
        return Processes(plan, silos, pool)

    first, second = (loop_of(how, **more).run() for more in ({"engine": _sequential}, {"engine": processes}))
    assert first.groups == second.groups
    models = {row["model"] for row in first.groups}
    assert models == {"global", "personal"} | ({"adapted"} if how == "tent" else set())


def _sequential(plan: Blueprint, silos: Federation) -> Any:
    from fairsilo.engine.sequential import Sequential

    return Sequential(plan, silos)


def test_a_resumed_run_has_the_same_rows(tmp_path: Path) -> None:
    """Also where silos sit out: the server then needs what they sent before."""
    training = dataclasses.replace(tiny.TRAINING, rounds=4, participation="1")
    whole = loop_of(training=training, folder=tmp_path / "whole").run()

    def stop(event: Any) -> None:
        if event.kind == "opened" and event.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop_of(training=training, folder=tmp_path / "cut", listener=stop, checkpoint_every=2).run()
    again = loop_of(training=training, folder=tmp_path / "cut").run()
    assert again.groups == whole.groups
    written = [json.loads(line) for line in (tmp_path / "cut" / "groups.jsonl").read_text().splitlines()]
    assert written == whole.groups
    own = [rows_of(whole, "sex", "personal", number=n)["groups"]["f"]["silos"] for n in (1, 2, 3, 4)]
    assert own == sorted(own)
    assert own[-1] > 1  # one silo takes part in a round; the others count with what they had


FLAWED = [("fedavg", "train", "a"), ("fedavg", "evaluate", "a"), ("fedavg", "evaluate", "u"), ("tent", "adapt", "u")]
MODELS = {"train": "personal", "evaluate": "global", "adapt": "adapted"}


@pytest.mark.parametrize(("how", "exchange", "silo"), FLAWED)
def test_any_flaw_in_a_tally_is_that_silos_failure(how: str, exchange: str, silo: str) -> None:
    asked = Message({}, asking({"sex": ("f", "m")}))
    (pair,) = grouped(f"{MODELS[exchange]}.test", asked)
    cases: list[Case] = [(exchange, silo, one, fault) for one in pair for fault in FLAWS if _bad(one, fault)]
    training = dataclasses.replace(tiny.TRAINING, rounds=len(cases), lr=0.02)
    numbered = dict(enumerate(cases, start=1))
    loop = loop_of(how, ("sex",), training=training, wrap=lambda engine: Spoiling(engine, numbered))
    history = loop.run()
    for found, (_, _, one, fault) in zip(history.rounds, cases, strict=True):
        wrong = "not finite" if fault == "poison" else "malformed"
        failures = [(item["silo"], item["exchange"], item["kind"]) for item in found["failures"]]
        assert failures == [(silo, exchange, wrong)], (one.name, fault, found["failures"])
        assert "sex" in found["failures"][0]["detail"]


def _bad(one: Any, fault: str) -> bool:
    """Counts are whole numbers already, and have no NaN."""
    return one.dtype == "float64" or fault in ("drop", "reshape")


def test_a_tally_of_another_length_or_a_count_below_zero_is_a_failure() -> None:
    class Longer(Wrapped):
        def ask(self, exchange: Exchange) -> Iterator[Reply]:
            for reply in self.engine.ask(exchange):
                tallies, samples = keys("global.test", "sex")
                if exchange.kind == "evaluate" and isinstance(reply.answer, Message):
                    tensors = reply.answer.tensors
                    if reply.silo == "a":
                        tensors[tallies] = torch.cat([tensors[tallies], tensors[tallies][:, :1]], 1)
                    elif reply.silo == "b":
                        tensors[samples] = tensors[samples] - 100
                yield reply

    history = loop_of(groups=("sex",), wrap=Longer).run()
    failures = [(item["silo"], item["kind"]) for item in history.rounds[0]["failures"]]
    assert failures == [("a", "malformed"), ("b", "malformed")]
    assert rows_of(history, "sex", "global")["groups"]["f"] | {"metric": 0, "metrics": 0, "error": 0} == {
        "samples": 9,  # of c alone
        "silos": 1,
        "metric": 0,
        "metrics": 0,
        "error": 0,
    }


def test_undeclared_groups_are_refused() -> None:
    class Adding(Wrapped):
        def ask(self, exchange: Exchange) -> Iterator[Reply]:
            for reply in self.engine.ask(exchange):
                if exchange.kind == "evaluate" and reply.silo == "c" and isinstance(reply.answer, Message):
                    reply.answer.tensors["global.test.group_tallies.diagnosis"] = torch.zeros(2, 3)
                yield reply

    history = loop_of(wrap=Adding).run()
    assert "which is not declared" in history.rounds[0]["failures"][0]["detail"]


def test_bytes_with_groups_follow_from_the_declaration() -> None:
    loop = loop_of(groups=("sex",))
    (found, _) = loop.run().rounds
    (exchange,) = (one for one in found["exchanges"] if one["kind"] == "train")
    asks = Message({}, {"evaluate": True, **loop.by_group})
    assert asked_of(asks) == {"sex": ("f", "m")}
    server = loop.server
    groups = expected("train", asks, server.method.parts, server.task)
    counts = 3 * 2 * 4  # whole numbers of eight bytes where the declaration counts four
    sent = sum(bytes_of(groups, server.silo_layout, server.sizes_for(name)) for name in server.names)
    assert exchange["bytes_up"] == sent + counts


# --------------------------------------------------------------------------------------------------------- the summary
def row(number: int, model: str, unseen: bool = False, left_out: int = 0, **metrics: float | None) -> dict[str, Any]:
    groups = {value: {"samples": 10 + number, "silos": 1, "metric": metric} for value, metric in metrics.items()}
    place = {"round": number, "column": "sex", "model": model, "unseen": unseen}
    return {**place, "left_out": left_out, "groups": groups}


ROWS = [
    row(1, "global", f=0.1, m=0.9),
    row(2, "global", f=0.5, m=0.75, left_out=4),
    row(2, "personal", f=0.6, m=0.6),
    row(2, "global", True, f=0.2, m=0.3, left_out=7),
]


def test_worst_best_gap_and_spread_follow_the_direction_of_the_metric() -> None:
    found = by_group(ROWS, [2])["sex"]
    even = {"worst": 0.5, "worst_group": "f", "best": 0.75, "best_group": "m", "gap": 0.25, "std": 0.125, "mean": 0.625}
    assert found["global"] == even
    assert found["values"]["f"] == {
        "samples": 12,
        "unseen_samples": 12,
        "global": 0.5,
        "personal": 0.6,
        "unseen": 0.2,
        "intervals": {kind: list(wilson(value, 12)) for kind, value in zip(KINDS, (0.5, 0.6, 0.2), strict=True)},
    }
    assert (found["left_out"], found["unseen_left_out"]) == (4, 7)
    lower = by_group(ROWS, [2], higher=False)["sex"]["global"]
    assert (lower["worst_group"], lower["best"], lower["gap"]) == ("m", 0.5, 0.25)
    assert by_group(ROWS, [2], ddof=1)["sex"]["global"]["std"] == pytest.approx(0.125 * 2**0.5)


def test_intervals_of_groups_come_from_their_errors() -> None:
    """Of a metric that is no accuracy; over several rounds of the mean error."""
    rows = [row(1, "global", f=0.5, m=2.0), row(2, "global", f=0.7, m=3.0)]
    for one, error in zip(rows, (0.1, 0.3), strict=True):
        one["groups"]["f"]["error"] = error
    found = by_group(rows, [1, 2], metric="mae", share=False)["sex"]["values"]
    assert found["f"]["intervals"]["global"] == pytest.approx([0.6 - 1.96 * 0.2, 0.6 + 1.96 * 0.2], abs=1e-4)
    assert found["m"]["intervals"]["global"] is None  # the task knows no error
    shares = by_group(rows, [2], metric="balanced-accuracy")["sex"]["values"]["f"]["intervals"]
    assert shares["global"] == pytest.approx([0.7 - 1.96 * 0.3, 1.0], abs=1e-4)
    assert shares["personal"] is None


def test_several_rounds_are_averaged_and_others_left_out() -> None:
    assert by_group(ROWS, [1, 2])["sex"]["values"]["f"]["global"] == pytest.approx(0.3)
    assert by_group(ROWS, [1])["sex"]["unseen"] == {}
    assert by_group([], [1]) == {}


def test_an_adapted_model_is_the_answer_about_unseen_silos() -> None:
    rows = [*ROWS, row(2, "adapted", True, f=0.8, m=0.9)]
    assert by_group(rows, [2])["sex"]["values"]["f"]["unseen"] == 0.8


def test_a_group_without_a_result_is_in_no_spread() -> None:
    found = by_group([row(1, "global", f=None, m=0.5, x=0.25)], [1])["sex"]
    assert found["values"]["f"]["global"] is None
    assert (found["global"]["mean"], found["global"]["worst_group"]) == (0.375, "x")


# ------------------------------------------------------------------------------------------------------ what users see
def write_index(folder: Path) -> Path:
    """Bright and dark images of three clinics, with sex and a column that one clinic lacks values of."""
    lines = ["path,label,domain,sex,site"]
    for clinic in ("north", "south", "west"):
        for number in range(40):
            name = f"{clinic}-{number}.png"
            level = 40 + 3 * (number % 10) + (120 if number % 2 else 0)
            Image.new("L", (8, 8), level).save(folder / name)
            sex = "" if number % 20 == 19 else "fm"[number // 2 % 2]
            lines.append(f"{name},{'bright' if number % 2 else 'dark'},{clinic},{sex},{clinic}{number}")
    index = folder / "index.csv"
    index.write_text("\n".join(lines) + "\n")
    return index


def command(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), catch_exceptions=False, env={"COLUMNS": "200"})


SHORT = ("method=fedavg", "baseline=fedprox", "rounds=1", "epochs=1", "data.test=0.5", "engine.name=sequential")


def test_from_an_index_to_tables_and_page(tmp_path: Path) -> None:
    index, out = write_index(tmp_path), tmp_path / "run"
    said = command("run", f"data.folder={index}", "groups=sex", *SHORT, "--out", str(out))
    assert said.exit_code == 0
    assert "by sex — accuracy in percent" in said.output
    assert "sums of its test results by sex" in said.output
    summary = json.loads((out / "summary.json").read_text())
    found = summary["groups"]["sex"]
    assert set(found["values"]) <= {"f", "m", "unknown"}
    assert {"f", "m"} & set(found["values"])
    total = sum(of["samples"] for of in found["values"].values()) + found["left_out"]
    assert total == sum(one["samples"] for one in summary["silos"] if not one["unseen"])
    page = (out / "report.html").read_text()
    assert 'id="groups"' in page
    assert "By sex" in page
    again = command("report", str(out))
    assert "by sex — accuracy in percent" in again.output
    resumed = command("resume", str(out), "--json")
    assert json.loads(resumed.output)["summary"]["groups"] == summary["groups"]


def test_what_cannot_be_told_apart_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    index, out = write_index(tmp_path), tmp_path / "run"
    for groups, words in (("sez", "did you mean 'sex'?"), ("site", "band it first")):
        with pytest.raises(FairsiloError) as caught:
            command("run", f"data.folder={index}", f"groups={groups}", *SHORT, "--out", str(out))
        assert words in str(caught.value)
        assert not out.exists()


def test_a_page_without_groups_has_no_such_section(tmp_path: Path) -> None:
    settings = {"rounds": 1, "epochs": 1, "engine": {"name": "sequential"}}
    result = fairsilo.run(federation=people(), method="fedavg", out=tmp_path / "run", **settings)
    assert "groups" not in result.summary
    assert not (result.folder / "groups.jsonl").exists()
    assert 'id="groups"' not in write_report(result.folder).read_text()
    assert group_tables([("fedavg", result.summary)]) == []


def test_a_page_says_worst_gap_and_what_was_left_out(tmp_path: Path) -> None:
    settings = {"rounds": 2, "epochs": 1, "batch_size": 8, "engine": {"name": "sequential"}}
    result = fairsilo.run(
        federation=people(), method="fedavg", out=tmp_path / "run", evaluate={"groups": "sex, scanner"}, **settings
    )
    page = (result.folder / "report.html").read_text()
    found = result.summary["groups"]
    assert "silos &#x27;c&#x27;, &#x27;u&#x27; have no column &#x27;scanner&#x27;" in page
    assert found["scanner"]["left_out"] == 6
    assert "Test samples left out: 6 of the silos that trained." in page
    even = found["sex"]["global"]
    assert f"worst {even['worst_group']} {100 * even['worst']:.1f}" in page
    assert page.count('<small class="bad">worst</small>') >= 2
    low, high = found["sex"]["values"][even["worst_group"]]["intervals"]["global"]
    assert f"<small>{100 * low:.1f} to {100 * high:.1f}</small>" in page.partition('id="groups"')[2]
    sex, scanner = group_tables([("fedavg", result.summary)])
    assert [column.header for column in sex.columns] == ["sex", "samples + unseen", "fedavg, global", "fedavg, unseen"]
    assert [column.header for column in scanner.columns] == ["scanner", "samples", "fedavg, global"]
    assert "6 of the silos that trained" in str(scanner.caption)
    assert sex.caption is None


def test_new_data_are_measured_by_group_too(tmp_path: Path) -> None:
    """At hand, so that small groups are shown."""
    index, out = write_index(tmp_path), tmp_path / "run"
    command("run", f"data.folder={index}", "held_out=west", *SHORT, "--out", str(out))
    trained = fairsilo.load(out)
    rows = json.loads(command("evaluate", str(out), "--data", str(index), "--groups", "sex", "--json").output)
    assert [row["domain"] for row in rows] == ["north", "south", "west"]
    found = rows[0]["groups"]["sex"]
    assert {value: of["samples"] for value, of in found.items()} == {"f": 20, "m": 18, "unknown": 2}
    assert sum(of["samples"] * of["metric"] for of in found.values()) == pytest.approx(40 * rows[0]["metric"])
    split = Split(torch.zeros(6, 3, 8, 8, dtype=torch.uint8), torch.zeros(6).long(), attributes={"sex": "ffffmm"})
    (row,) = trained.evaluate({"new": split}, groups="sex")
    assert {value: of["samples"] for value, of in row["groups"]["sex"].items()} == {"f": 4, "m": 2}
    assert "groups" not in trained.evaluate({"new": split})[0]
    with pytest.raises(FairsiloError, match="have no column 'sez'; did you mean 'sex'"):
        trained.evaluate({"new": split}, groups=["sez"])
    shown = command("evaluate", str(out), "--data", str(index), "--groups", "sex").output
    assert "unknown" in shown


def test_a_comparison_names_the_worst_group_of_each_cell(tmp_path: Path) -> None:
    settings = {"rounds": 1, "epochs": 1, "engine": {"name": "sequential"}, "evaluate": {"groups": "sex"}}
    found = fairsilo.compare(["fedavg", "ditto"], federation=people(), out=tmp_path / "both", **settings)
    lines = list(csv.DictReader(comparison_csv(found.as_dict()).splitlines()))
    for line, cell in zip(lines, found.cells, strict=True):
        even = cell["summary"]["groups"]["sex"]["personal" if cell["method"] == "ditto" else "global"]
        assert (line["sex_worst_group"], line["sex_worst"]) == (even["worst_group"], str(even["worst"]))
        assert line["sex_gap"] == str(even["gap"])
    with pytest.raises(FairsiloError, match="'age', which no silo's test samples have"):
        fairsilo.compare(["fedavg"], federation=people(), out=tmp_path / "none", evaluate={"groups": "age"})
