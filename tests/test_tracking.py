"""Trackers: what they are told and when, that a resumed run goes on in its place, and that none of them stops a run.

TensorBoard is the real one. MLflow and W&B are stand-ins that write down how they are called.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import fairsilo
import tiny
from fairsilo import Event, FairsiloError, Federation, cli
from fairsilo.core.part import Part
from fairsilo.core.silo import Silo
from fairsilo.engine.events import Guarded, guarded
from fairsilo.runs.folder import RunFolder
from fairsilo.tracking import MLflow, TensorBoard, Tracker, WandB, tracker
from fairsilo.tracking.content import Facts, Names, facts_of
from fairsilo.tracking.registry import HANDED_ON, handed_on, handed_over, trackers
from fairsilo.tracking.tensorboard import wait_for_the_next_second
from fairsilo.tracking.worker import Worker

SMALL: dict[str, Any] = {"rounds": 3, "epochs": 1, "batch_size": 2, "engine": {"name": "sequential"}}
TABLE = "demo/uneven-glyphs"  # one of those that need no data
NAMES = {"a": "north-clinic", "b": "Süd Klinik", "c": "east", "u": "far_away"}

FAKE_MLFLOW = """
import json, os
from types import SimpleNamespace as Thing
def note(*what):
    with open(os.environ["TOLD"], "a") as file:
        file.write(json.dumps([os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT"), *what]) + "\\n")
class MlflowClient:
    def __init__(self, uri):
        self.known, self.uri = None, uri
        note("client", uri)
    def get_experiment_by_name(self, name):
        if "down" in (self.uri or ""):
            raise OSError("no answer from the server")
        return self.known
    def create_experiment(self, name):
        note("experiment", name)
        return "7"
    def create_run(self, experiment, run_name, tags):
        note("create", experiment, run_name, tags)
        return Thing(info=Thing(run_id="run-of-" + run_name))
    def update_run(self, run, status):
        note("update", run, status)
    def log_batch(self, run, metrics=(), params=()):
        assert len(metrics) <= 1000 and len(params) <= 100
        note("batch", run, [[one.key, one.value, one.step] for one in metrics], {one.key: one.value for one in params})
    def set_terminated(self, run, status):
        note("end", run, status)
"""
FAKE_ENTITIES = """
from dataclasses import dataclass
@dataclass
class Metric:
    key: str
    value: float
    timestamp: int
    step: int
@dataclass
class Param:
    key: str
    value: str
"""
FAKE_WANDB = """
import json, os
def note(*what):
    with open(os.environ["TOLD"], "a") as file:
        file.write(json.dumps(what) + "\\n")
class Settings:
    def __init__(self, **settings):
        self.settings = settings
class Summary(dict):
    def update(self, values):
        note("summary", values)
class Run:
    summary = Summary()
    def log(self, values, step):
        note("log", step, values)
    def finish(self, exit_code):
        note("finish", exit_code)
def init(settings, **options):
    note("init", options, settings.settings, os.environ["WANDB_SILENT"])
    return Run()
"""


@pytest.fixture
def people() -> Federation:
    """The tiny federation under names that would be noticed in a file."""
    found = tiny.federation()

    def named(silos: Any) -> Any:
        return tuple(dataclasses.replace(one, name=NAMES[one.name], domain=f"at-{NAMES[one.name]}") for one in silos)

    return dataclasses.replace(found, silos=named(found.silos), unseen=named(found.unseen))


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stand-ins for mlflow and wandb, in this process and in others; yields the file of their calls."""
    files = {"mlflow/__init__": FAKE_MLFLOW, "mlflow/entities": FAKE_ENTITIES, "wandb": FAKE_WANDB}
    files["mlflow/exceptions"] = "class MlflowException(Exception): ..."
    place = tmp_path / "packages"
    for name, text in files.items():
        (place / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.py").write_text(text)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mlflow", "wandb")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("TOLD", str(tmp_path / "told.jsonl"))
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    before = dict(os.environ)
    yield tmp_path / "told.jsonl"
    os.environ.clear()
    os.environ.update(before)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mlflow", "wandb")]:
        del sys.modules[name]


def calls(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(people: Federation, folder: Path, listener: Any, **more: Any) -> Any:
    chosen = {"method": "fedavg", "model": tiny.TinyNet, **SMALL, **more}
    return fairsilo.run(federation=people, out=folder, listener=listener, **chosen)


def stop_in(round_: int, kind: str = "opened") -> Any:
    def stop(event: Event) -> None:
        if event.kind == kind and event.round == round_:
            raise KeyboardInterrupt

    return stop


def interrupted(people: Federation, folder: Path, listener: Any, round_: int = 3) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(people, folder, [listener, stop_in(round_)])


def scalars(place: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag -> (step, value), as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(place), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def texts(place: Path) -> dict[str, str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(place))
    found.Reload()
    return {
        tag.partition("/")[0]: found.Tensors(tag)[-1].tensor_proto.string_val[0].decode()
        for tag in found.Tags()["tensors"]
    }


# --------------------------------------------------------------------------------------------------- several listeners
def test_a_listener_that_raises_is_dropped_alone(caplog: pytest.LogCaptureFixture) -> None:
    heard: dict[str, list[str]] = {"first": [], "broken": [], "last": []}

    class Broken(fairsilo.Listener):
        label = "of mine"

        def __call__(self, event: Event) -> None:
            heard["broken"].append(event.kind)
            raise ValueError("mine")

    both = guarded([lambda event: heard["first"].append(event.kind), Broken(), lambda e: heard["last"].append(e.kind)])
    for kind in ("start", "opened", "end"):
        both(Event(kind, 1, 1))
    assert heard == {"first": ["start", "opened", "end"], "broken": ["start"], "last": ["start", "opened", "end"]}
    (note,) = both.take_notes()
    assert note.startswith("the listener of mine raised at the event 'start' and is not called any more: ValueError")
    assert both.take_notes() == []
    assert [record.message for record in caplog.records] == [note]


def test_only_trackers_go_along_to_other_processes() -> None:
    follower = TensorBoard()
    assert Guarded([print, follower]).travelling() == (follower,)


def test_a_run_says_where_it_is_and_how_it_ended(people: Federation, tmp_path: Path) -> None:
    heard: list[Event] = []
    run(people, tmp_path / "a", heard.append, baseline="fedprox", rounds=1)
    assert [event.folder for event in heard if event.kind == "method"] == [tmp_path / "a", tmp_path / "a" / "baseline"]
    assert [(event.round, event.text) for event in heard if event.kind == "over"] == [(1, "finished")] * 2
    heard.clear()
    interrupted(people, tmp_path / "b", heard.append)
    assert [(event.round, event.text) for event in heard if event.kind == "over"] == [(3, "interrupted")]
    heard.clear()
    with pytest.raises(fairsilo.errors.StoppedError):
        run(people, tmp_path / "c", heard.append, lr=1e30)
    assert [event.text for event in heard if event.kind == "over"] == ["stopped"]


def test_a_folder_says_how_its_run_ended_before_anybody_hears_it(people: Federation, tmp_path: Path) -> None:
    """A tracker may take half a minute; what a listener leaves at that event is noted all the same."""
    seen: list[dict[str, Any]] = []

    def look(event: Event) -> None:
        if event.kind == "over":
            seen.append(json.loads((tmp_path / "run" / "run.json").read_text()))
            raise ValueError("late")

    run(people, tmp_path / "run", look, rounds=1)
    after = json.loads((tmp_path / "run" / "run.json").read_text())
    assert seen[0]["status"] == "finished"
    assert "raised at the event 'over'" in after["notes"].pop()
    assert after == seen[0]


@pytest.mark.parametrize("secret", ["me:pass", "me:p/ss", "me:p@ss", "me:p/s@s"])
def test_no_password_is_in_a_label(secret: str, told: Path) -> None:
    assert MLflow(f"http://{secret}@host:5000/x").label == "mlflow:http://host:5000/x"


# --------------------------------------------------------------------------------------------------------- TensorBoard
def test_tensorboard_has_what_the_run_folder_has(people: Federation, tmp_path: Path) -> None:
    result = run(people, tmp_path / "run", TensorBoard(), method="fedprox | tent")
    found, folder = scalars(tmp_path / "run" / "tensorboard"), RunFolder(tmp_path / "run")
    for record in folder.rows("rounds"):
        at = record["round"] - 1
        for name in ("north-clinic", "Süd Klinik", "east"):
            assert found[f"train_loss/{name}"][at] == (record["round"], pytest.approx(record["train_loss"][name]))
            assert found[f"weight/{name}"][at] == (record["round"], pytest.approx(record["weights"][name]))
        assert found["seconds"][at] == (record["round"], pytest.approx(record["seconds"]))
    tested = [row for row in folder.rows("metrics") if row["split"] == "test"]
    for row in tested:
        whose = f"{row['model']}/{row['silo']}"
        assert found[f"test_accuracy/{whose}"][row["round"] - 1] == (row["round"], pytest.approx(row["metric"]))
        assert found[f"test_loss/{whose}"][row["round"] - 1] == (row["round"], pytest.approx(row["loss"]))
    assert {tag for tag in found if tag.startswith("mean/")} == {
        f"mean/{model}" for model in ("global", "unseen", "personal", "adapted")
    }
    assert found["mean/adapted"][-1][1] == pytest.approx(result.summary["generalisation"]["mean"])
    assert found["answer/generalisation/mean"] == [(3, pytest.approx(result.summary["generalisation"]["mean"]))]
    assert found["answer/fairness/global/worst"] == [(3, pytest.approx(result.summary["fairness"]["global"]["worst"]))]
    assert all(len(points) == 3 for tag, points in found.items() if not tag.startswith("answer/"))
    said = texts(tmp_path / "run" / "tensorboard")
    assert "| train.rounds | 3 |" in said["settings"]
    assert "| held_out | at-far_away |" in said["settings"]
    assert "| method | fedprox &#124; tent |" in said["settings"]
    assert said["ended"] == "finished"
    assert json.loads((tmp_path / "run" / "tracking.json").read_text()) == {
        "tensorboard": {"run": str(tmp_path / "run" / "tensorboard"), "round": 3}
    }


def test_a_resumed_run_goes_on_in_the_same_place(people: Federation, tmp_path: Path) -> None:
    place = tmp_path / "logs" / "cut"
    run(people, tmp_path / "whole", TensorBoard(str(tmp_path / "logs")))
    interrupted(people, tmp_path / "cut", TensorBoard(str(tmp_path / "logs")))
    before = scalars(place)
    assert [step for step, _ in before["seconds"]] == [1]  # round 2 is complete, its checkpoint was not told of
    assert texts(place)["ended"] == "interrupted"
    fairsilo.resume(tmp_path / "cut", TensorBoard(str(tmp_path / "logs")), federation=people, model=tiny.TinyNet)
    assert sorted(one.name for one in (tmp_path / "logs").iterdir()) == ["cut", "whole"]
    after, whole = scalars(place), scalars(tmp_path / "logs" / "whole")
    assert [step for step, _ in after["seconds"]] == [1, 2, 3]
    assert after["seconds"][0] == before["seconds"][0]
    assert {tag: points for tag, points in after.items() if tag != "seconds"} == {
        tag: points for tag, points in whole.items() if tag != "seconds"
    }


def test_rounds_that_nobody_tracked_are_told_when_somebody_does(people: Federation, tmp_path: Path) -> None:
    """Also where nothing is left to train: the run was cut off behind its last checkpoint."""
    interrupted(people, tmp_path / "run", stop_in(3, "round"), round_=99)
    fairsilo.resume(tmp_path / "run", [TensorBoard()], federation=people, model=tiny.TinyNet)
    assert [step for step, _ in scalars(tmp_path / "run" / "tensorboard")["mean/global"]] == [1, 2, 3]


def test_what_a_kill_left_behind_is_not_shown_twice(people: Federation, tmp_path: Path) -> None:
    """The event file is ahead of tracking.json: the process was killed between the two."""
    interrupted(people, tmp_path / "run", TensorBoard())
    state = json.loads((tmp_path / "run" / "tracking.json").read_text())
    state["tensorboard"]["round"] = 0
    (tmp_path / "run" / "tracking.json").write_text(json.dumps(state))
    fairsilo.resume(tmp_path / "run", TensorBoard(), federation=people, model=tiny.TinyNet)
    assert [step for step, _ in scalars(tmp_path / "run" / "tensorboard")["seconds"]] == [1, 2, 3]


def test_a_run_that_goes_on_at_once_is_read_after_what_it_goes_on_from(tmp_path: Path) -> None:
    """In one second the order of the files' names is that of numbers as texts, in which 10 comes before 9."""
    second = int(time.time())
    for one in (second, second + 1):  # whatever second it is by now
        (tmp_path / f"events.out.tfevents.{one}.host.1.9").touch()
    wait_for_the_next_second(tmp_path)
    assert int(time.time()) > second + 1


def test_two_runs_of_one_name_get_two_folders(people: Federation, tmp_path: Path) -> None:
    for place in ("one", "other"):
        run(people, tmp_path / place / "run", TensorBoard(str(tmp_path / "logs")), rounds=1)
    second = RunFolder(tmp_path / "other" / "run").read_json("run.json")["id"]
    assert {one.name for one in (tmp_path / "logs").iterdir()} == {"run", f"run-{second}"}


# ------------------------------------------------------------------------------------------------------- what is sent
class Recorder(Tracker):
    """Keeps what a tracker would send."""

    name, module = "recorder", "json"

    def __init__(self, destination: str = "", *, anonymous: bool = False) -> None:
        super().__init__(destination, anonymous=anonymous)
        self.facts: list[Facts] = []
        self.sent: list[Any] = []

    def open(self, facts: Facts, run: str, told: int) -> str:
        self.facts.append(facts)
        self.sent.append(["open", facts.name, facts.group, facts.about, facts.settings])
        return run or "mine"

    def log(self, number: int, values: Mapping[str, float]) -> None:
        self.sent.append([number, dict(values)])

    def answer(self, values: Mapping[str, float]) -> None:
        self.sent.append(["answer", dict(values)])

    def close(self, ended: str) -> None:
        self.sent.append([ended])


@dataclasses.dataclass(frozen=True)
class Breaks(Part):
    """Raises at one silo, and says what nobody elsewhere should read."""

    name = "breaks"

    def begin(self, silo: Silo) -> None:
        if silo.name == "Süd Klinik":
            raise ValueError("/data/patient-17.dcm is no image")


def test_of_a_failure_only_the_kind_is_told(people: Federation, tmp_path: Path) -> None:
    seen = Recorder()
    run(people, tmp_path / "run", seen, method=Breaks(), rounds=1)
    (record,) = RunFolder(tmp_path / "run").rows("rounds")
    assert ["patient-17" in failure["detail"] for failure in record["failures"]] == [True]
    numbers = seen.sent[1][1]
    assert numbers["failed/error/Süd Klinik"] == 1
    assert "train_loss/Süd Klinik" not in numbers
    assert "patient" not in json.dumps(seen.sent)


def test_an_anonymous_tracker_is_told_no_name(people: Federation, tmp_path: Path) -> None:
    open_, hidden = Recorder(), Recorder(anonymous=True)
    run(people, tmp_path / "far_away-seed0", [open_, hidden], baseline="fedprox")
    shown, veiled = (json.dumps(one.sent, ensure_ascii=False) for one in (open_, hidden))
    for name in NAMES.values():
        assert name in shown
        assert name not in veiled
    assert hidden.facts[0].name == "silo-4-seed0"
    assert hidden.facts[1].place == ("silo-4-seed0", "baseline")
    assert hidden.facts[0].about["held_out"] == "domain-4"
    assert set(hidden.sent[1][1]) >= {"train_loss/silo-1", "test_loss/global/silo-4", "test_loss/personal/silo-3"}
    assert open_.sent[1][1]["train_loss/north-clinic"] == hidden.sent[1][1]["train_loss/silo-3"]
    assert "answer/generalisation/per_domain/silo-4" in hidden.sent[4][1]
    assert "data.name" in open_.facts[0].settings
    assert "data.name" not in hidden.facts[0].settings
    assert hidden.facts[0].settings["data.validation"] == open_.facts[0].settings["data.validation"]


def test_names_are_found_as_whole_words_and_as_folders_spell_them() -> None:
    roster = {
        "silos": [{"name": "a", "domain": "New York"}, {"name": "ab", "domain": "New York-East"}],
        "unseen": [{"name": "x", "domain": "x"}],
    }
    names = Names(roster, anonymous=True)
    assert names.within("fedavg-glyphs-New-York-seed0") == "fedavg-glyphs-domain-1-seed0"
    assert names.within("a+ab, fax, New York") == "silo-1+silo-2, fax, domain-1"
    assert names.within("New York-East, New York") == "domain-2, domain-1"
    assert (names.silo("x"), names.within("x")) == ("silo-3", "domain-3")
    assert Names(roster, anonymous=False).within("a+ab") == "a+ab"
    assert Names(roster, anonymous=True, held_out="far").within("far-trial3") == "domain-4-trial3"
    assert Names(roster, anonymous=True, held_out="x").within("x") == "domain-3"


def test_who_joins_later_changes_nobodys_number() -> None:
    """Rosters are in name order; the numbers of a run that goes on must not be."""
    before = {"silos": [{"name": "b", "domain": "b"}], "unseen": [{"name": "u", "domain": "u"}]}
    after = {**before, "silos": [{"name": "a", "domain": "new"}, *before["silos"]], "joined": {"a": 3}}
    first, later = Names(before, anonymous=True), Names(after, anonymous=True)
    assert [first.silo(name) for name in "bu"] == [later.silo(name) for name in "bu"] == ["silo-1", "silo-2"]
    assert later.silo("a") == "silo-3"
    assert later.within("new") == "domain-3"


def test_settings_are_flat_and_paths_are_cut_to_their_last_name(people: Federation, tmp_path: Path) -> None:
    run(people, tmp_path / "run", lambda _: None, rounds=1)
    config = (tmp_path / "run" / "config.yaml").read_text()
    config = config.replace("folder: null", "folder: /home/Jane Doe/images").replace("root: null", "root: ~/store/data")
    config = config.replace("model: ", "model: net(file=/home/x/y.pt) # ")
    (tmp_path / "run" / "config.yaml").write_text(config)
    facts = facts_of(Event("method", 0, 1, text="fedavg", folder=tmp_path / "run"), anonymous=False)
    assert facts.settings["data.folder"] == "images"
    assert facts.settings["data.root"] == "data"
    assert facts.settings["model"] == "net(file=y.pt)"
    assert facts.settings["train.rounds"] == 1
    assert "data.packed" not in facts.settings
    assert facts.about == {"method": "fedavg", "held_out": "at-far_away", "seed": "0"}


# -------------------------------------------------------------------------------------------------- a comparison's runs
def test_a_comparison_has_a_run_for_each_of_its_runs(people: Federation, tmp_path: Path) -> None:
    seen = Recorder()
    fairsilo.compare(
        ["fedavg", "fedavg @ lr=0.001"], seeds=[0, 1], federation=people, out=tmp_path / "both", listener=[seen],
        model=tiny.TinyNet, **{**SMALL, "rounds": 1},
    )  # fmt: skip
    assert [facts.place for facts in seen.facts] == [
        ("both", row, f"at-far_away-seed{seed}") for row in ("fedavg", "fedavg-lr=0.001") for seed in (0, 1)
    ]
    assert [facts.about["seed"] for facts in seen.facts] == ["0", "1"] * 2
    assert {facts.group for facts in seen.facts} == {"both"}
    assert [one for one in seen.sent if one == ["finished"]] == [["finished"]] * 4


@pytest.mark.slow
def test_trackers_follow_runs_in_other_processes(people: Federation, tmp_path: Path) -> None:
    fairsilo.compare(
        ["fedavg", "fedprox"], seeds=[0], federation=people, out=tmp_path / "both", jobs=2, model="small-cnn",
        listener=[print, TensorBoard(str(tmp_path / "logs"))], **{**SMALL, "rounds": 1},
    )  # fmt: skip
    places = sorted(path.parent for path in tmp_path.glob("logs/**/events*"))
    assert [place.relative_to(tmp_path / "logs").parts[:2] for place in places] == [
        ("both", "fedavg"),
        ("both", "fedprox"),
    ]
    assert all("answer/fairness/global/mean" in scalars(place) for place in places)


# ------------------------------------------------------------------------------------------------- a search's trials
def tune(people: Federation, folder: Path, listener: Any, **more: Any) -> Any:
    pytest.importorskip("optuna", reason="needs the extra tune")
    chosen = {**SMALL, "rounds": 2, "trials": 2, "model": "small-cnn", **more}
    return fairsilo.tune(["fedavg", "fedprox"], federation=people, out=folder, listener=listener, **chosen)


def test_a_search_has_a_run_for_each_of_its_trials(people: Federation, tmp_path: Path) -> None:
    seen, heard = Recorder(), list[Event]()
    found = tune(people, tmp_path / "mine", guarded([heard.append, seen]))
    assert sorted(facts.place for facts in seen.facts) == [
        ("mine", method, f"at-far_away-trial{number}") for method in ("fedavg", "fedprox") for number in (0, 1)
    ]
    trials = {
        (name, trial["number"]): trial for name, one in found.found["at-far_away"].items() for trial in one["trials"]
    }
    answers = [one[1] for one in seen.sent if one[0] == "answer"]
    for facts, answer in zip(seen.facts, answers, strict=True):
        trial = trials[facts.place[1], int(facts.place[2][-1])]
        assert answer["answer/objective"] == trial["score"]
        assert facts.settings["train.lr"] == pytest.approx(trial["values"]["train.lr"], rel=0.01)  # rows are rounded
        assert "answer/personalisation/mean" in answer
    assert [one for one in seen.sent if len(one) == 1] == [["finished"]] * 4
    assert [one[0] for one in seen.sent[:5]] == ["open", 1, 2, "answer", "finished"]
    assert sum(event.kind == "note" and "trial" in event.text for event in heard) == 4


def test_an_anonymous_tracker_is_told_no_name_of_a_search(people: Federation, tmp_path: Path) -> None:
    """Not even that of the domain which takes no part in its trials."""
    seen = Recorder(anonymous=True)
    tune(people, tmp_path / "mine", seen, trials=1)
    assert [name for name in NAMES.values() if name in json.dumps(seen.sent, ensure_ascii=False)] == []
    assert seen.facts[0].place == ("mine", "fedavg", "domain-4-trial0")
    assert seen.facts[0].about["held_out"] == "domain-4"


@pytest.mark.slow
def test_a_tracker_that_fails_in_a_search_is_noted_once_and_changes_nothing(
    people: Federation, tmp_path: Path, told: Path
) -> None:
    plain = tune(people, tmp_path / "plain", print)
    found = tune(people, tmp_path / "mine", guarded([MLflow("http://down"), TensorBoard()]))
    assert found.tuned == plain.tuned
    notes = [note for file in tmp_path.glob("mine/*/*/run.json") for note in json.loads(file.read_text())["notes"]]
    assert [note.partition(" raised")[0] for note in notes] == ["the listener mlflow:http://down"]
    assert [call[1] for call in calls(told)] == ["client"]
    places = list(tmp_path.glob("mine/*/*/tensorboard"))
    assert len(places) == 4
    assert all("answer/objective" in scalars(place) for place in places)


@pytest.mark.slow
def test_a_trial_that_is_given_up_or_cut_off_says_so(people: Federation, tmp_path: Path) -> None:
    seen = Recorder()
    with pytest.raises(KeyboardInterrupt):
        tune(people, tmp_path / "mine", guarded([seen, stop_in(2)]))
    assert seen.sent[-1] == ["interrupted"]
    seen.sent.clear()
    tune(people, tmp_path / "mine", guarded([seen]))
    assert [one[0] for one in seen.sent[:5]] == ["open", 1, 2, "answer", "finished"]
    seen.sent.clear()
    with pytest.raises(FairsiloError, match="no trial came to an end"):
        tune(people, tmp_path / "wild", guarded([seen]), search=["lr=1e30,1e31"], trials=1)
    assert [one[0] for one in seen.sent] == ["open", "stopped"] * 2


@pytest.mark.slow
def test_trackers_follow_trials_in_other_processes(people: Federation, tmp_path: Path) -> None:
    tune(people, tmp_path / "mine", guarded([print, TensorBoard(str(tmp_path / "logs"))]), trials=1, jobs=2)
    places = sorted(path.parent for path in tmp_path.glob("logs/**/events*"))
    assert [place.relative_to(tmp_path / "logs").parts for place in places] == [
        ("mine", method, "at-far_away-trial0") for method in ("fedavg", "fedprox")
    ]
    assert all("answer/objective" in scalars(place) for place in places)


# ---------------------------------------------------------------------------------------------------- MLflow and W&B
def test_mlflow_gets_a_run_that_is_killed_and_goes_on(people: Federation, tmp_path: Path, told: Path) -> None:
    interrupted(people, tmp_path / "run", MLflow("http://me:secret@host:5000"))
    state = (tmp_path / "run" / "tracking.json").read_text()
    assert json.loads(state) == {"mlflow:http://host:5000": {"run": "run-of-run", "round": 1}}
    fairsilo.resume(tmp_path / "run", MLflow("http://me:secret@host:5000"), federation=people, model=tiny.TinyNet)
    found = [call[1:] for call in calls(told)]
    assert [call[0] for call in found] == [
        *("client", "experiment", "create", "batch", "batch", "end"),
        *("client", "update", "batch", "batch", "batch", "end"),
    ]
    assert found[0] == ["client", "http://me:secret@host:5000"]
    assert found[2][1:3] == ["7", "run"]
    assert found[2][3] | {"fairsilo": ""} == {
        "method": "fedavg", "held_out": "at-far_away", "seed": "0", "group": "run", "fairsilo": "",
    }  # fmt: skip
    assert found[3][3]["train.batch_size"] == "2"
    assert [call[2] for call in found if call[0] in ("end", "update")] == ["KILLED", "RUNNING", "FINISHED"]
    assert {call[1] for call in found if call[0] in ("batch", "end", "update")} == {"run-of-run"}
    steps = [step for call in found if call[0] == "batch" for key, _, step in call[2] if key == "seconds"]
    assert steps == [1, 2, 3]
    assert {key for key, _, _ in found[-2][2]} >= {"answer/generalisation/mean"}
    assert calls(told)[0][0] == "10"


def test_mlflow_waits_as_long_as_the_user_says(people: Federation, tmp_path: Path, told: Path) -> None:
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "77"
    run(people, tmp_path / "run", MLflow(), rounds=1)
    assert {call[0] for call in calls(told)} == {"77"}
    assert calls(told)[0][2] is None


def test_a_server_that_is_down_is_noted_once_and_the_run_goes_on(
    people: Federation, tmp_path: Path, told: Path
) -> None:
    plain = run(people, tmp_path / "plain", [])
    result = run(people, tmp_path / "run", [MLflow("http://down"), TensorBoard()], baseline="fedprox")
    assert result.summary == plain.summary
    (note,) = RunFolder(tmp_path / "run").read_json("run.json")["notes"]
    assert note.startswith("the listener mlflow:http://down raised at the event")
    assert "OSError: no answer from the server" in note
    assert RunFolder(tmp_path / "run" / "baseline").read_json("run.json")["notes"] == []
    assert len(scalars(tmp_path / "run" / "tensorboard")["seconds"]) == 3
    assert [call[1] for call in calls(told)] == ["client"]


def test_wandb_gets_numbers_and_nothing_of_the_machine(people: Federation, tmp_path: Path, told: Path) -> None:
    interrupted(people, tmp_path / "run", WandB("team/project"))
    fairsilo.resume(tmp_path / "run", WandB("team/project"), federation=people, model=tiny.TinyNet)
    first, second = (call for call in calls(told) if call[0] == "init")
    assert first[1] == second[1]
    assert first[1] | {"config": {}} == {
        "entity": "team",
        "project": "project",
        "group": "run",
        "name": "run",
        "id": RunFolder(tmp_path / "run").read_json("run.json")["id"],
        "resume": "allow",
        "reinit": "create_new",
        "dir": str(tmp_path / "run"),
        "config": {},
    }
    assert first[1]["config"]["method"] == "fedavg"
    assert first[3] == "true"  # else it asks for a key at the terminal, and waits
    disabled = ("disable_code", "disable_git", "x_disable_machine_info", "x_disable_meta", "x_disable_stats")
    assert all(first[2][key] is True for key in disabled)
    assert first[2]["host"] == ""  # None would be the machine's name
    assert (first[2]["console"], first[2]["save_code"], first[2]["x_save_requirements"]) == ("off", False, False)
    assert 0 < first[2]["init_timeout"] <= 30
    assert 0 < first[2]["finish_timeout"] <= 30
    assert [call[1] for call in calls(told) if call[0] == "log"] == [1, 2, 3]
    assert [call[1] for call in calls(told) if call[0] == "finish"] == [130, 0]
    (summary,) = [call[1] for call in calls(told) if call[0] == "summary"]
    assert "answer/personalisation/mean" in summary


# --------------------------------------------------------------------------------------------------- slow and missing
def test_a_tracker_that_hangs_holds_a_run_up_for_a_bounded_time(
    people: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()

    class Hanging(Recorder):
        def log(self, number: int, values: Mapping[str, float]) -> None:
            never.wait(60)

    monkeypatch.setitem(tracker.PATIENCE, "finished", 0.3)
    begun = time.perf_counter()
    result = run(people, tmp_path / "run", Hanging())
    assert time.perf_counter() - begun < 30
    never.set()
    assert result.summary["rounds"] == [3]
    (note,) = RunFolder(tmp_path / "run").read_json("run.json")["notes"]
    assert "raised at the event 'over'" in note
    assert "its work was not done 0.3 s after the run" in note


def test_a_worker_does_jobs_in_order_and_raises_what_one_of_them_raised() -> None:
    done: list[int] = []
    worker = Worker("test")
    for number in range(5):
        worker.do(lambda number=number: done.append(number))  # type: ignore[misc]
    worker.end(10)
    assert done == [0, 1, 2, 3, 4]
    worker = Worker("test")
    worker.do(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        worker.end(10)
    with pytest.raises(ZeroDivisionError):
        worker.do(lambda: None)


def test_a_missing_package_is_told_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.chdir(tmp_path)
    for command in (["run"], ["compare", "fedavg"], ["tune", "fedavg"], ["reproduce", TABLE]):
        monkeypatch.setattr(sys, "argv", ["fairsilo", *command, "--track", "tensorboard:logs"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2
        assert 'needs the package tensorboard: pip install "fairsilo[tensorboard]"' in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_the_packages_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nothing_here").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(TensorBoard, "module", "nothing_here")
    with pytest.raises(FairsiloError, match="needs the package nothing_here"):
        TensorBoard()


def test_texts_name_trackers_and_destinations(told: Path) -> None:
    found = trackers(["tensorboard", "mlflow:http://host:5000", "tensorboard:logs/"], anonymous=True)
    assert [(type(one), one.destination, one.anonymous) for one in found] == [
        (TensorBoard, "", True),
        (MLflow, "http://host:5000", True),
        (TensorBoard, "logs/", True),
    ]
    with pytest.raises(FairsiloError, match="there is no tracker 'tensorbord'; did you mean 'tensorboard'"):
        trackers(["tensorbord"])
    with pytest.raises(FairsiloError, match="--track tensorboard:x is given twice"):
        trackers(["tensorboard:x", "mlflow", "tensorboard:x"])


def test_trackers_are_handed_on_to_a_process_that_works_elsewhere(
    told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = ["tensorboard", "tensorboard:logs", "mlflow:http://me:secret@host:5000", "wandb:team/project"]
    monkeypatch.setenv(*next(iter(handed_on(texts, anonymous=True).items())))
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    assert [(one.name, one.destination, one.anonymous) for one in handed_over()] == [
        ("tensorboard", "", True),
        ("tensorboard", str(tmp_path / "logs"), True),
        ("mlflow", "http://me:secret@host:5000", True),
        ("wandb", "team/project", True),
    ]
    monkeypatch.setenv(*next(iter(handed_on([], anonymous=False).items())))
    assert handed_over() == []
    monkeypatch.delenv(HANDED_ON)
    assert handed_over() == []
    with pytest.raises(FairsiloError, match="there is no tracker"):
        handed_on(["tensorbord"], anonymous=False)


def test_the_command_line_tracks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: dict[str, Any] = {}

    def kept(name: str) -> Any:
        def keep(*arguments: Any, listener: Any = None, **options: Any) -> None:
            along = listener.travelling() if isinstance(listener, Guarded) else (listener or arguments[1])[1:]
            heard[name] = [one.label for one in along]
            raise FairsiloError("enough")

        return keep

    for name in ("run", "resume", "compare", "tune"):
        monkeypatch.setattr(f"fairsilo.api.{name}", kept(name))
    monkeypatch.setattr("fairsilo.cli.running.read_experiment", lambda *_: fairsilo.config.experiment({}, []))
    commands = {
        "run": ["run"],
        "resume": ["resume", str(tmp_path)],
        "compare": ["compare", "fedavg"],
        "tune": ["tune", "fedavg"],
        "reproduce": ["reproduce", TABLE],
        "check": ["reproduce", "--check", "--out", str(tmp_path / "kept")],
    }
    for name, command in commands.items():
        both = ["--track", "tensorboard", "--track", "tensorboard:logs", "--json"]
        monkeypatch.setattr(sys, "argv", ["fairsilo", *command, *both])
        with pytest.raises(SystemExit):
            cli.main()
        made_by = name if name in heard else "compare"  # which makes the runs of tables too
        assert heard.pop(made_by) == ["tensorboard", "tensorboard:logs"]
    capsys.readouterr()
    for command in (["reproduce"], ["reproduce", TABLE, "--show"]):
        monkeypatch.setattr(sys, "argv", ["fairsilo", *command, "--track", "tensorboard"])
        with pytest.raises(SystemExit):
            cli.main()
        assert "here nothing is run" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["fairsilo", "run", "--anonymous"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "name one with --track" in capsys.readouterr().err
