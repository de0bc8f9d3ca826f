"""Runs over sites inside this process: the numbers of a simulation, and what is agreed on before the first round."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.files import read_tree
from fairsilo.core.messages import MODEL, Failure, Message
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.deploy.remote import Asked, PauseError
from fairsilo.deploy.settings import read_site
from fairsilo.deploy.site import Site
from fairsilo.engine.events import Callback, Event, Guarded, guarded, silent
from fairsilo.errors import QuorumError
from fairsilo.report.page import write_report
from fairsilo.tracking import TensorBoard
from tiny_sites import (
    TRAIN,
    TRAINING,
    UNSEEN,
    Local,
    begun,
    counted,
    images,
    served,
    settings,
    settings_for,
    simulated,
    simulated_joining,
    simulated_without,
    sites_in,
    write_site,
)


def results(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["fft-gp", "fedavg", "scaffold", "fedheal", "ditto", "fedbn", "fedclip"])
def test_numbers_are_those_of_a_simulation(how: str, tmp_path: Path) -> None:
    wanted = simulated(tmp_path / "here", how, **settings_for(how))
    channel = Local(sites_in(tmp_path / "sites"))
    found = served(begun(tmp_path / "there", how, **settings_for(how)), channel)
    assert results(tmp_path / "there") == results(tmp_path / "here")
    assert found == wanted
    ours, theirs = (load_file(tmp_path / one / "models" / "global.safetensors") for one in ("here", "there"))
    assert ours.keys() == theirs.keys()
    assert all(bool((ours[key] == theirs[key]).all()) for key in ours)
    assert not (tmp_path / "there" / "models" / "personal").exists()
    kept = yaml.safe_load((tmp_path / "there" / "config.yaml").read_text())
    assert (kept["evaluate"]["metric"], kept["data"]["held_out"]) == ("accuracy", "street")


@pytest.mark.slow
def test_sites_learn_the_words_for_their_styles_themselves(tmp_path: Path) -> None:
    """The server draws from what they send; images, words and numbers are those of a simulation."""
    pytest.importorskip("diffusers")
    data = {**settings()["data"], "synthetic": "diffusion:tiny;steps=2;guidance=1;learn=2;images=1"}
    some, how = {"data": data}, "fedavg-ft(tuning_lr=0.05)"
    wanted = simulated(tmp_path / "here", how, **some)
    found = served(begun(tmp_path / "there", how, **some), Local(sites_in(tmp_path / "sites")))
    words = [read_tree(tmp_path / one / "synthetic" / ".words") for one in ("here", "there")]
    assert sorted(words[0]) == sorted(words[1]) == sorted(TRAINING)
    assert all(torch.equal(words[0][name], words[1][name]) for name in TRAINING)
    assert results(tmp_path / "there") == results(tmp_path / "here")
    assert found == wanted
    assert (tmp_path / "there" / "synthetic.png").is_file()


# ------------------------------------------------------------------------------------------------- when things break
class CutError(BaseException):
    """The server's process ends, as by a kill."""


def cut_at(kind: str, number: int) -> Callable[[Event], None]:
    def listener(event: Event) -> None:
        if (event.kind, event.round) == (kind, number):
            raise CutError

    return listener


@pytest.mark.one_in(7)
@pytest.mark.parametrize("moment", [("opened", 1), ("trained", 2), ("closed", 2), ("evaluated", 2), ("saved", 2)])
@pytest.mark.parametrize("how", ["scaffold", "ditto", "fft-gp"])
def test_a_server_that_is_cut_off_goes_on_to_the_same_numbers(
    how: str, moment: tuple[str, int], tmp_path: Path
) -> None:
    """Its sites too are started anew: all that they know is in their folders."""
    rounds = {"train": {**TRAIN, "rounds": 3}}
    simulated(tmp_path / "here", how, **rounds)
    run = begun(tmp_path / "there", how, **rounds)
    channel = Local(sites_in(tmp_path / "sites"))
    with pytest.raises(CutError):
        served(run, channel, listener=cut_at(*moment))
    channel.close()
    served(run, Local(sites_in(tmp_path / "sites")))
    assert results(run) == results(tmp_path / "here")


def test_a_tracker_goes_on_with_the_next_attempt_and_stops_none(tmp_path: Path) -> None:
    """Also where one of two fails; each attempt has trackers of its own, as it is a process of its own."""

    class Broken(TensorBoard):
        def log(self, number: int, values: Mapping[str, float]) -> None:
            raise OSError("no answer")

    def along(*more: Callback) -> Guarded:
        return guarded([TensorBoard(str(tmp_path / "logs")), Broken(str(tmp_path / "broken")), *more])

    run = begun(tmp_path / "there", "fedavg", train={**TRAIN, "rounds": 3})
    channel = Local(sites_in(tmp_path / "sites"))
    with pytest.raises(CutError):
        served(run, channel, listener=along(cut_at("closed", 3)))
    channel.close()
    state = json.loads((run / "tracking.json").read_text())
    place = f"tensorboard:{tmp_path / 'logs'}"
    assert 1 <= state[place]["round"] < 3
    served(run, Local(sites_in(tmp_path / "sites")), listener=along())
    state = json.loads((run / "tracking.json").read_text())
    assert state[place] == {"run": str(tmp_path / "logs" / "there"), "round": 3}
    assert state[f"tensorboard:{tmp_path / 'broken'}"]["round"] == 0
    (note,) = [one for one in json.loads((run / "run.json").read_text())["notes"] if "listener" in one]
    assert "OSError: no answer" in note
    assert sorted(one.name for one in (tmp_path / "logs").iterdir()) == ["there"]


class Slow(Local):
    """A site whose answers to some questions come too late, although it worked; it may also miss the round's end."""

    def __init__(self, sites: dict[str, Site], late: str, round_: int, deaf: bool) -> None:
        super().__init__(sites)
        self.late, self.round, self.deaf = late, round_, deaf

    def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
        for key, answer in super().call(step, asked, seconds):
            question = asked[key][1]
            if key == self.late and step == "ask" and (question["kind"], question["round"]) == ("train", self.round):
                yield key, Failure("timeout", "no answer within 1 s")
            else:
                yield key, answer

    def reached(self, step: str, site: str, content: Mapping[str, Any]) -> bool:
        ended = step == "commit" and json.loads(content["note"])["ends"][-1]["round"] == self.round
        return not (self.deaf and ended and site == self.late)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("how", ["scaffold", "ditto"])
def test_a_step_that_came_too_late_is_not_remembered(how: str, deaf: bool, tmp_path: Path) -> None:
    """As in a simulation, where a silo that did not answer in time remembers nothing of it."""
    some = {"train": {**TRAIN, "rounds": 4, "quorum": 0.5}}
    run = begun(tmp_path / "there", how, **some)
    served(run, Slow(sites_in(tmp_path / "sites"), "scan", 2, deaf))
    failures = [json.loads(line)["failures"] for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert [[(one["silo"], one["kind"]) for one in of] for of in failures] == [[], [("scan", "timeout")], [], []]
    wanted = simulated_without(tmp_path / "here", how, "scan", 2, **some)
    assert results(run) == wanted


def test_a_site_that_is_away_is_left_out_and_comes_back(tmp_path: Path) -> None:
    some = {"train": {**TRAIN, "rounds": 4, "quorum": 0.5}}
    run, sites = begun(tmp_path / "there", "scaffold", **some), sites_in(tmp_path / "sites")
    channel = Local(sites)

    def leaves(event: Event) -> None:
        if (event.kind, event.round) == ("opened", 2):
            del channel.sites["scan"]
        if (event.kind, event.round) == ("opened", 4):
            (run / "pause").touch()
            channel.sites["scan"] = sites["scan"]
            raise CutError

    with pytest.raises(CutError):
        served(run, channel, listener=leaves)
    (run / "pause").unlink()
    channel.close()
    served(run, Local(sites_in(tmp_path / "sites")))
    counted = [json.loads(line)["counted"] for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert counted == [[*TRAINING], ["print", "sketch"], ["print", "sketch"], [*TRAINING]]


def copied_at(number: int, what: Path, to: Path, then: Callable[[Event], None]) -> Callable[[Event], None]:
    """A backup, taken when a round was saved."""

    def listener(event: Event) -> None:
        if (event.kind, event.round) == ("saved", number):
            shutil.copytree(what, to)
        then(event)

    return listener


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", [2, 1, 0])
def test_a_site_goes_on_with_the_state_that_was_restored(number: int, tmp_path: Path) -> None:
    """From a copy of the last round, of an older one, or without any; an older state is named."""
    rounds = {"train": {**TRAIN, "rounds": 3}}
    run, state = begun(tmp_path / "there", "scaffold", **rounds), tmp_path / "sites" / "scan" / "state"
    channel = Local(sites_in(tmp_path / "sites"))
    with pytest.raises(CutError):
        served(run, channel, listener=copied_at(number, state, tmp_path / "copy", cut_at("opened", 3)))
    channel.close()
    shutil.rmtree(state)
    if number:
        shutil.copytree(tmp_path / "copy", state)
    told: list[str] = []
    served(run, Local(sites_in(tmp_path / "sites")), listener=lambda event: told.append(event.text))
    simulated(tmp_path / "here", "scaffold", **rounds)
    named = f"silo 'scan' goes on from what it kept after round {number}" in told
    assert (named, results(run) == results(tmp_path / "here")) == (number < 2, number == 2)


def test_a_server_restored_from_a_copy_that_is_too_old_does_not_go_on(tmp_path: Path) -> None:
    """Sites keep the last two rounds. What they have is of later ones, so that they would train from another state."""
    rounds = {"train": {**TRAIN, "rounds": 4}}
    run, sites = begun(tmp_path / "there", "scaffold", **rounds), tmp_path / "sites"
    channel = Local(sites_in(sites))
    served(run, channel, listener=copied_at(1, run, tmp_path / "copy", silent))
    channel.close()
    told: list[str] = []
    with pytest.raises(QuorumError, match="0 of 3 silos gave a usable update"):
        served(tmp_path / "copy", Local(sites_in(sites)), listener=lambda event: told.append(event.text))
    assert "site 'scan' takes no part: what its silos kept does not fit the run's checkpoint" in told


def test_an_attempt_ends_at_a_round_when_a_site_is_back(tmp_path: Path) -> None:
    run = begun(tmp_path / "there", "fedavg")

    def back(event: Event) -> None:
        if (event.kind, event.round) == ("closed", 1):
            (run / "pause").touch()

    with pytest.raises(PauseError, match="a site is back, or new"):
        served(run, Local(sites_in(tmp_path / "sites")), listener=back)
    assert [json.loads(line)["round"] for line in (run / "rounds.jsonl").read_text().splitlines()] == [1]


# ------------------------------------------------------------------------------------------------ who joins, who leaves
SOME: dict[str, Any] = {"train": {**TRAIN, "rounds": 5, "quorum": 0.5}}


def until(run: Path, number: int, sites: dict[str, Site]) -> None:
    """An attempt that ends after a round, because a site is there that it does not have."""

    def new(event: Event) -> None:
        if (event.kind, event.round) == ("closed", number):
            (run / "pause").touch()

    channel = Local(sites)
    with pytest.raises(PauseError):
        served(run, channel, tuple(sites), listener=new)
    (run / "pause").unlink()
    channel.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["scaffold", "fft-gp(warmup=0)"])
def test_numbers_with_a_site_that_joins_later_are_those_of_a_simulation(how: str, tmp_path: Path) -> None:
    """One that trains, and one that evaluates alone."""
    run = begun(tmp_path / "there", how, **SOME)
    until(run, 2, sites_in(tmp_path / "sites", ("print", "scan")))
    served(run, Local(sites_in(tmp_path / "sites")))
    assert counted(run) == [["print", "scan"]] * 2 + [[*TRAINING]] * 3
    assert json.loads((run / "run.json").read_text())["roster"]["joined"] == {"sketch": 3, UNSEEN: 3}
    assert yaml.safe_load((run / "config.yaml").read_text())["data"]["held_out"] == UNSEEN
    assert results(run) == simulated_joining(tmp_path / "here", how, ("sketch", UNSEEN), 3, **SOME)


def test_one_site_joins_and_another_leaves_for_good(tmp_path: Path) -> None:
    run, told = begun(tmp_path / "there", "afl", **SOME), list[Event]()
    until(run, 2, sites_in(tmp_path / "sites", ("print", "scan", UNSEEN)))
    channel = Local(sites_in(tmp_path / "sites"))

    def leaves(event: Event) -> None:
        told.append(event)
        if (event.kind, event.round) == ("opened", 4):
            del channel.sites["print"]

    served(run, channel, listener=leaves)
    assert counted(run) == [["print", "scan"]] * 2 + [[*TRAINING]] + [["scan", "sketch"]] * 2
    assert any(event.text == "silo 'sketch' of site 'sketch' takes part from round 3 on" for event in told)
    page = write_report(run).read_text()
    assert "sketch joined in round 3." in page
    assert "print gave no usable answer from round 4 on: its site is not connected." in page


class Piecewise(Part):
    """Has a model at the server with a piece for each silo."""

    name = "piecewise"
    about = About(sends=(EACH_UPDATE,))

    def server_network(self, network: nn.Module, classes: tuple[str, ...], silos: tuple[str, ...]) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, len(classes)), *(nn.Linear(1, 1) for _ in silos))

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        return torch.zeros_like(server.vector)

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        assert server.network is not None
        message.tensors[MODEL] = server.network().read()
        return message


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("how", "changes", "newcomer", "why"),
    [
        ("fedavg", {"engine": {"newcomers": False}}, {}, "the run takes no newcomers (engine.newcomers); set it"),
        ("fedavg", {}, {"folder": "small"}, "it has samples of shape 3x12x12, and the run's silos of 3x16x16"),
        ("faa", {}, {"validation": 0}, "measures models on validation data, and 'sketch' has none"),
        ("fedavg | test_serving:Piecewise", {}, {}, "has a piece of its server's model for each silo"),
    ],
)
def test_a_newcomer_that_does_not_fit_is_left_out(
    how: str, changes: dict[str, Any], newcomer: dict[str, Any], why: str, tmp_path: Path
) -> None:
    shutil.copytree(images() / "sketch", tmp_path / "sites" / "sketch" / "small")
    for path in (tmp_path / "sites" / "sketch" / "small").rglob("*.png"):
        Image.open(path).resize((12, 12)).save(path)
    run = begun(tmp_path / "there", how, data=settings()["data"] | {"size": None}, **changes)
    until(run, 1, sites_in(tmp_path / "sites", ("print", "scan"), trust=["test_serving"]))
    sites = sites_in(tmp_path / "sites", trust=["test_serving"])
    sites["sketch"] = Site(read_site(write_site(tmp_path / "sites" / "sketch", "sketch", **newcomer), "sketch"))
    told: list[Event] = []
    served(run, Local(sites), (*TRAINING,), listener=told.append)
    assert counted(run) == [["print", "scan"]] * 2
    (said,) = (event.text for event in told if "silo 'sketch'" in event.text)
    assert said.startswith("silo 'sketch' of site 'sketch' takes no part: ")
    assert why in said


def test_a_newcomer_that_cannot_begin_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would count against the quorum in every round."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run = begun(tmp_path / "there", "fedavg")
    until(run, 1, sites_in(tmp_path / "sites", ("print", "scan")))
    sites = sites_in(tmp_path / "sites")
    sites["sketch"] = Site(read_site(write_site(tmp_path / "sites" / "sketch", "sketch", device="cuda"), "sketch"))
    told: list[Event] = []
    served(run, Local(sites), listener=told.append)
    assert [json.loads(line)["participants"] for line in (run / "rounds.jsonl").read_text().splitlines()] == [
        ["print", "scan"]
    ] * 2
    assert json.loads((run / "run.json").read_text())["roster"]["joined"] == {UNSEEN: 2}
    assert "sketch" not in json.loads((run / "sites.json").read_text())
    assert any("site 'sketch' takes no part: it does not find the GPU" in event.text for event in told)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("scan", "silo 'scan' of site 'sketch' takes no part: site 'scan' has one of this name"),
        (UNSEEN, f"silo {UNSEEN!r} of site 'sketch' takes no part: two sites have one of this name"),
    ],
)
def test_a_name_that_is_in_use_is_refused_for_the_newcomer_alone(name: str, why: str, tmp_path: Path) -> None:
    run = begun(tmp_path / "there", "fedavg")
    until(run, 1, sites_in(tmp_path / "sites", ("print", "scan")))
    sites = sites_in(tmp_path / "sites")
    sites["sketch"] = Site(read_site(write_site(tmp_path / "sites" / "sketch", "sketch", name=name), "sketch"))
    told: list[Event] = []
    served(run, Local(sites), listener=told.append)
    assert counted(run) == [["print", "scan"]] * 2
    assert why in [event.text for event in told]


def test_a_kill_while_a_newcomer_is_written_down_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    """Its site is written before its silo is."""
    run = begun(tmp_path / "there", "fedavg")
    until(run, 1, sites_in(tmp_path / "sites", ("print", "scan")))
    places = json.loads((run / "sites.json").read_text())
    (run / "sites.json").write_text(json.dumps({**places, "sketch": "sketch"}))
    served(run, Local(sites_in(tmp_path / "sites")))
    assert counted(run) == [["print", "scan"], [*TRAINING]]
