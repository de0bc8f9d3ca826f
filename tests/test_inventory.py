"""`fairsilo runs`: what there is, what can go, what is taken elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from filelock import FileLock

from fairsilo.core.disk import numbered
from fairsilo.errors import FairsiloError
from fairsilo.report.tables import age
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.inventory import kept, prunable, prune, runs_under
from fairsilo.runs.lock import LOCK, in_use, locked
from fairsilo.runs.packing import pack, unpack
from fairsilo.runs.saved import SavedRun
from test_cli import FAST, call, here, packed  # noqa: F401 - fixtures


def made(folder: Path, status: str = "finished", rounds: int = 2, days: float = 0.0) -> Path:
    """A run folder as far as an inventory looks at it, with checkpoints of two rounds and a local model."""
    for inside in ("checkpoint", "local", "models"):
        (folder / inside).mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"status": status, "method": "fedavg"}))
    settings = {"method": "fedavg", "seed": 3, "data": {"held_out": "photo"}, "train": {"rounds": 2}}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (folder / "rounds.jsonl").write_text("".join(json.dumps({"round": one + 1}) + "\n" for one in range(rounds)))
    for round_ in (1, 2):
        for name in ("server", "silos"):
            numbered(folder / "checkpoint", name, round_).write_bytes(b"c" * 100)
    (folder / "local" / "round-00001.safetensors").write_bytes(b"l" * 1000)
    (folder / "models" / "global.safetensors").write_bytes(b"m" * 10)
    (folder / LOCK).touch()
    long_ago = time.time() - 86400 * days
    os.utime(folder / "rounds.jsonl", (long_ago, long_ago))
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_finished_running_interrupted_or_stopped(tmp_path: Path) -> None:
    made(tmp_path / "a")
    made(tmp_path / "deep" / "er" / "b", "running", rounds=1)
    made(tmp_path / "c", "stopped", rounds=0)
    made(tmp_path / "d", "running")
    with FileLock(tmp_path / "d" / LOCK):
        found = {one.folder.name: one for one in runs_under(tmp_path)}
    assert {name: one.state for name, one in found.items()} == {
        "a": "finished",
        "b": "interrupted",
        "c": "stopped",
        "d": "running",
    }
    one = found["b"]
    assert (one.method, one.held_out, one.seed, one.rounds, one.numbers) == ("fedavg", "photo", 3, (1, 2), {})
    assert one.bytes == sum(path.stat().st_size for path in one.folder.rglob("*") if path.is_file())


def broken(root: Path) -> dict[str, str]:
    """Runs that are damaged in several ways -> what is said of each."""
    texts = {
        "cut": ("run.json", '{"status": "fin'),
        "list": ("run.json", "[]"),
        "yaml": ("config.yaml", "data: [unclosed"),
        "odd": ("config.yaml", "data: text\n"),
        "numbers": ("config.yaml", "train: {rounds: many}\n"),
        "summary": ("summary.json", '{"metric": "accuracy"}'),
    }
    for name, (file, text) in texts.items():
        made(root / name)
        (root / name / file).write_text(text)
    for name, file in (("unset", "config.yaml"), ("unsaid", "run.json")):
        (made(root / name) / file).unlink()
    (made(root / "bytes") / "run.json").write_bytes(b"\xff\xfe{")
    return {
        "bytes": "bytes/run.json is damaged: it is no text in UTF-8",
        "cut": "cut/run.json is damaged: Unterminated string",
        "list": "list/run.json is damaged: it holds a list",
        "numbers": "numbers is damaged: it has texts for numbers",
        "odd": "odd holds what no run writes (AttributeError: ",
        "summary": "summary holds what no run writes (KeyError: ",
        "unsaid": "unsaid is no run folder: it has no run.json",
        "unset": "cannot read the configuration",
        "yaml": "yaml/config.yaml is not valid YAML: ",
    }


def test_damaged_runs_are_listed_as_such_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    said = broken(tmp_path / "runs")
    made(tmp_path / "runs" / "whole")
    found = {one.folder.name: one for one in runs_under(tmp_path / "runs", damaged=True)}
    assert {name for name, one in found.items() if one.state == "damaged"} == set(said)
    for name, why in said.items():
        assert why in found[name].why
        assert found[name].bytes > 1000
        assert abs(found[name].changed - time.time()) < 3600
    assert (found["whole"].state, found["whole"].why) == ("finished", "")
    code, out, err = call(capsys, "runs")
    assert code == 0
    assert out.count("damaged") == len(said)
    assert "whole" in out
    assert err.count("damaged: runs/") + err.count("damaged: cannot read") == len(said)
    listed = json.loads(call(capsys, "runs", "list", "runs", "--json")[1])
    assert {one["folder"]: one["why"] for one in listed}["runs/cut"].startswith("runs/cut/run.json is damaged")
    code, out, _ = call(capsys, "runs", "prune", "--yes", "--whole")
    assert (code, "of 1 runs" in out or "deleted" in out) == (0, True)
    assert sorted(one.name for one in (tmp_path / "runs").iterdir()) == sorted(said)  # nothing of the damaged goes


def test_a_folder_that_nobody_may_look_into_is_listed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "a")
    (tmp_path / "closed").mkdir()
    (tmp_path / "gone").mkdir()
    look = os.scandir

    def scandir(place: Any) -> Any:  # modes do not keep root out
        if Path(place).name == "closed":
            raise PermissionError(13, "Permission denied", str(place))
        if Path(place).name == "gone":
            raise FileNotFoundError(2, "No such file or directory", str(place))
        return look(place)

    monkeypatch.setattr(os, "scandir", scandir)
    found = runs_under(tmp_path, damaged=True)
    assert [(one.folder.name, one.state) for one in found] == [("a", "finished"), ("closed", "damaged")]
    assert [one.folder.name for one in runs_under(tmp_path)] == ["a"]


def test_a_folder_may_be_named_without_a_command_and_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "mine" / "one", days=3)  # seconds would pass between two looks
    assert call(capsys, "runs", "mine") == call(capsys, "runs", "list", "mine")
    assert json.loads(call(capsys, "runs", "mine", "--json")[1])[0]["folder"] == "mine/one"
    code, out, err = call(capsys, "runs", "nofolder")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: 'nofolder' is neither a folder nor a command of `fairsilo runs`; known: export, list, prune"
    ]
    assert "did you mean 'prune'?" in call(capsys, "runs", "prnue")[2]
    assert call(capsys, "runs", "list", "nofolder")[::2] == (2, "error: nofolder is no folder\n")


def test_a_disk_that_is_full_is_told_of_the_file_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.zip"

    def full(self: Any, *_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", str(self.filename) if self.mode == "w" else f"{tmp_path}/tmp1/x")

    pack(made(tmp_path / "runs" / "one"), file)
    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    with pytest.raises(OSError, match="No space left") as problem:
        unpack(file)
    assert problem.value.filename == str(tmp_path / "x")
    monkeypatch.setattr(zipfile.ZipFile, "write", full)
    with pytest.raises(OSError, match="No space left") as problem:
        pack(tmp_path / "runs" / "one", file)
    assert problem.value.filename == str(file)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["runs", "x.zip"]


def test_a_damaged_run_is_not_packed(tmp_path: Path) -> None:
    (made(tmp_path / "runs" / "cut") / "run.json").write_text("{")
    with pytest.raises(FairsiloError, match=r"run\.json is damaged"):
        pack(tmp_path / "runs" / "cut", tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def test_a_run_over_sites_waits_while_its_server_lives(tmp_path: Path) -> None:
    """Whose attempts are processes of their own: between them nobody holds the run's own folder."""
    runs = tmp_path / "federation" / "runs"
    for name, status in (("queued", "running"), ("few", "stopped"), ("over", "finished"), ("failed", "running")):
        made(runs / name, status)
    (runs / "failed" / "attempt.json").write_text('{"outcome": "failed", "message": "withdrawn"}')
    (runs / "few" / "attempt.json").write_text('{"outcome": "too few sites", "message": ""}')

    def states() -> dict[str, str]:
        return {one.folder.name: one.state for one in runs_under(tmp_path)}

    always = {"over": "finished", "failed": "stopped"}
    assert states() == {**always, "queued": "interrupted", "few": "stopped"}
    with locked(runs):
        assert states() == {**always, "queued": "waiting", "few": "waiting"}
        with locked(runs / "queued"):
            assert states()["queued"] == "running"
    assert states() == {**always, "queued": "interrupted", "few": "stopped"}


def test_those_who_look_do_not_take_each_other_for_a_run(tmp_path: Path) -> None:
    run, found = made(tmp_path / "a"), []

    def look() -> None:
        found.extend(in_use(run) for _ in range(500))

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3000
    assert not any(found)


def test_a_folder_is_in_use_while_it_is_held_and_looking_writes_nothing(tmp_path: Path) -> None:
    assert not in_use(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path):
        assert in_use(tmp_path)
        ask = f"import pathlib, fairsilo.runs.lock as l; print(l.in_use(pathlib.Path({str(tmp_path)!r})))"
        assert subprocess.check_output([sys.executable, "-c", ask], text=True) == "True\n"
    assert not in_use(tmp_path)


def test_what_the_caller_knows_or_does_not_need_is_not_looked_up(tmp_path: Path) -> None:
    run = made(tmp_path / "a")
    one = kept(run, running=True, sized=False)
    assert (one.state, one.bytes) == ("running", 0)


def test_a_baseline_is_part_of_its_run(tmp_path: Path) -> None:
    made(tmp_path / "run")
    settings = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({**settings, "baseline": "fedavg"}))
    assert [one.state for one in runs_under(tmp_path)] == ["interrupted"]  # killed before its baseline began
    made(tmp_path / "run" / "baseline")
    (found,) = runs_under(tmp_path)
    assert (found.folder, found.state) == (tmp_path / "run", "finished")
    (goes,) = prunable([found])
    assert goes.bytes == 400


def test_the_method_local_is_a_name_like_others(tmp_path: Path) -> None:
    made(tmp_path / "c" / "local" / "photo-seed0")
    made(tmp_path / "c" / "models" / "photo-seed0")
    assert [one.folder.parent.name for one in runs_under(tmp_path)] == ["local", "models"]
    (tmp_path / "c" / "comparison.json").write_text("{}")
    pack(tmp_path / "c", tmp_path / "x.zip")
    assert (unpack(tmp_path / "x.zip") / "local" / "photo-seed0" / "models" / "global.safetensors").exists()


def test_what_a_link_leads_to_is_somebody_elses(tmp_path: Path) -> None:
    other, run = made(tmp_path / "elsewhere"), made(tmp_path / "runs" / "a")
    for inside in ("checkpoint", "local"):
        shutil.rmtree(run / inside)
        (run / inside).symlink_to(other / inside)
    (run / "baseline").symlink_to(other)
    found = runs_under(tmp_path / "runs")
    assert prunable(found, checkpoints=True, local=True) == prunable(found) == []


def test_runs_of_a_comparison_do_not_go_by_themselves(tmp_path: Path) -> None:
    made(tmp_path / "c" / "fedavg" / "u-seed0")
    made(tmp_path / "going" / "fedavg" / "u-seed0")
    made(tmp_path / "going" / "local" / "u-seed0", "running")
    (tmp_path / "c" / "comparison.json").write_text("{}")
    with FileLock(tmp_path / "going" / "local" / "u-seed0" / LOCK):
        assert prunable(runs_under(tmp_path), whole=True) == []
    assert [one.run.folder.parts[-3] for one in prunable(runs_under(tmp_path), whole=True)] == ["going"]


def test_only_the_last_checkpoint_stays_of_a_finished_run(tmp_path: Path) -> None:
    run, going = made(tmp_path / "a"), made(tmp_path / "b", "running")
    (goes,) = prunable(runs_under(tmp_path))
    assert (goes.run.folder, goes.bytes) == (run, 200)
    before = names(going)
    assert prune([goes]) == 200
    assert set((run / "checkpoint").iterdir()) == {numbered(run / "checkpoint", one, 2) for one in ("server", "silos")}
    assert (run / "local").is_dir()
    assert names(going) == before
    assert prunable(runs_under(tmp_path)) == []


def test_more_goes_where_it_is_asked_for(tmp_path: Path) -> None:
    run, old = made(tmp_path / "a"), made(tmp_path / "b", days=40)
    assert [one.bytes for one in prunable(runs_under(tmp_path), checkpoints=True)] == [400, 400]
    assert [one.bytes for one in prunable(runs_under(tmp_path), local=True)] == [1200, 1200]
    (goes,) = prunable(runs_under(tmp_path), older=30 * 86400, whole=True)
    assert goes.paths == (old,)
    with FileLock(old / LOCK):
        assert prune([goes]) == 0  # somebody took it up meanwhile
    prune([goes])
    assert (run.is_dir(), old.exists()) == (True, False)


def test_a_packed_run_leaves_behind_what_is_of_this_machine(tmp_path: Path) -> None:
    run = made(tmp_path / "mine")
    assert pack(run, tmp_path / "out" / "x.zip") == (tmp_path / "out" / "x.zip").stat().st_size
    with zipfile.ZipFile(tmp_path / "out" / "x.zip") as archive:
        assert set(archive.namelist()) == {
            "mine/config.yaml",
            "mine/models/global.safetensors",
            "mine/rounds.jsonl",
            "mine/run.json",
        }
    pack(run, tmp_path / "y.zip", models=False)
    assert "global.safetensors" not in names(unpack(tmp_path / "y.zip"))
    assert unpack(tmp_path / "y.zip") == tmp_path / "y" / "mine"


def test_what_is_of_silos_samples_stays_unless_asked_for(tmp_path: Path) -> None:
    run = made(tmp_path / "a")
    failure = {"silo": "x", "exchange": "train", "kind": "error", "detail": "no file /patients/jane.png"}
    (run / "rounds.jsonl").write_text(json.dumps({"round": 1, "failures": [failure]}) + "\n" + '{"round": 2, "fai')
    (run / "run.json").write_text(json.dumps({"status": "stopped", "method": "fedavg", "message": "jane.png"}))
    (run / "figures").mkdir()
    shown = ("report.html", "seen.safetensors", "examples.safetensors", "synthetic.png", "figures/t-sne.csv")
    for name in (*shown, ".examples.safetensors.part", ".owner"):
        (run / name).write_text("jane")
    pack(run, tmp_path / "x.zip")
    found = unpack(tmp_path / "x.zip")
    assert {path.name for path in found.rglob("*") if path.is_file() and b"jane" in path.read_bytes()} == set()
    assert RunFolder(found).rows("rounds")[0]["failures"] == [{**failure, "detail": ""}]
    pack(run, tmp_path / "y.zip", samples=True)
    told = unpack(tmp_path / "y.zip")
    assert all((told / name).exists() for name in shown)
    assert not {".owner", ".examples.safetensors.part"} & names(told)
    assert "jane.png" in (told / "run.json").read_text()


def test_a_file_is_unpacked_once_and_another_beside_it(tmp_path: Path) -> None:
    run = made(tmp_path / "one")
    pack(run, tmp_path / "one.zip")
    assert (
        unpack(tmp_path / "one.zip") == unpack(tmp_path / "one.zip") == tmp_path / "one-2" / "one"
    )  # `one` is the run
    (run / "rounds.jsonl").write_text("")
    pack(run, tmp_path / "one.zip")
    assert unpack(tmp_path / "one.zip") == tmp_path / "one-3" / "one"
    assert {path.name for path in tmp_path.iterdir()} == {"one", "one.zip", "one-2", "one-3"}


def test_wrong_things_to_pack_and_unpack_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match="holds neither a run nor a comparison"):
        pack(tmp_path, tmp_path / "x.zip")
    run = made(tmp_path / "a", "running")
    with FileLock(run / LOCK), pytest.raises(FairsiloError, match="still running"):
        pack(run, tmp_path / "x.zip")
    pack(run, tmp_path / "a.zip")
    with pytest.raises(FairsiloError, match=r"a\.zip is there already and holds something else"):
        pack(made(tmp_path / "b"), tmp_path / "a.zip")
    (tmp_path / "bad.zip").write_bytes(b"no zip")
    with pytest.raises(FairsiloError, match=r"bad\.zip is there already"):
        pack(run, tmp_path / "bad.zip")
    with pytest.raises(FairsiloError, match=r"bad\.zip is damaged"):
        unpack(tmp_path / "bad.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a/x", "")
        archive.writestr("b/x", "")
    with pytest.raises(FairsiloError, match="was not written by `fairsilo runs export`"):
        unpack(tmp_path / "other.zip")
    for place in ("x.zip", "models/x.zip"):
        with pytest.raises(FairsiloError, match="would lie in the folder that it packs"):
            pack(run, run / place)
    with zipfile.ZipFile(tmp_path / "up.zip", "w") as archive:
        archive.writestr("../x", "")
    with pytest.raises(FairsiloError, match="was not written by `fairsilo runs export`"):
        unpack(tmp_path / "up.zip")
    with pytest.raises(FairsiloError, match="is no folder"):
        runs_under(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0 s"), (100, "100 s"), (120, "2 min"), (7200, "2 h"), (3e5, "3 d")]
)
def test_an_age_is_told_roughly(seconds: float, said: str) -> None:
    assert age(seconds) == said


def answers(folder: Path, outside: float | None, own: float, spread: float, guessed: bool = False) -> None:
    """A summary as far as an inventory looks at it; the spread is around the second number."""
    even = {"std_silos": spread, "mean": own, "at_chance": guessed}
    found = {"metric": "accuracy", "share": True, "about": "global", "fairness": {"global": even, "personal": {}}}
    found |= {"generalisation": {"mean": outside, "at_chance": None}, "personalisation": {"mean": own}}
    (folder / "summary.json").write_text(json.dumps(found))


def test_a_spread_is_listed_with_its_mean_and_guessing_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    answers(made(tmp_path / "runs" / "good"), 0.8, 0.836, 0.046)
    made(tmp_path / "runs" / "early")
    said = call(capsys, "runs")[1]
    assert "80.0 / 83.6 / 4.6 (83.6)" in said
    assert "≈" not in said
    answers(made(tmp_path / "runs" / "guesses"), None, 0.1, 0.0, guessed=True)
    said = " ".join(call(capsys, "runs")[1].split())
    assert " - / 10.0 / 0.0 (10.0) ≈ " in said
    assert "≈ chance: no better than always naming the most frequent class" in said
    good, early, guesses = (
        next(one for one in runs_under(tmp_path) if one.folder.name == name) for name in ("good", "early", "guesses")
    )
    assert (good.at_chance, early.at_chance) == (dict.fromkeys(good.at_chance, False), {})
    assert guesses.as_dict()["at_chance"] == {"generalisation": False, "personalisation": False, "fairness": True}


def test_a_real_run_is_listed_pruned_and_opened_elsewhere(here: Path, packed: Path, capsys: Any) -> None:  # noqa: F811
    given = (f"data.packed={packed}", "model=my_net:make", *FAST, "rounds=3", "held_out=stamp")
    assert call(capsys, "run", "method=scaffold", *given, "--out", "runs/one", "--json")[0] == 0
    code, out, _ = call(capsys, "runs")
    assert code == 0
    assert "finished" in out
    assert "one" in out
    (one,) = json.loads(call(capsys, "runs", "list", "runs", "--json")[1])
    summary = json.loads((here / "runs" / "one" / "summary.json").read_text())
    assert one["numbers"]["generalisation"] == summary["generalisation"]["mean"]
    assert "would delete" in call(capsys, "runs", "prune", "--dry-run")[1]
    assert "deleted" in call(capsys, "runs", "prune", "--yes")[1]
    assert "nothing to delete" in call(capsys, "runs", "prune", "--yes")[1]
    saved = SavedRun(here / "runs" / "one").read_checkpoint()
    assert saved is not None
    assert saved[0] == 3
    before = call(capsys, "report", "runs/one")[1].rpartition("report:")[0]
    assert call(capsys, "runs", "export", "runs/one", "-o", "away/one.zip")[0] == 0
    code, out, _ = call(capsys, "report", "away/one.zip")
    assert (code, out.rpartition("report:")[0]) == (0, before)
    assert (here / "away" / "one" / "one" / "report.html").exists()


def test_wrong_input_ends_with_one_sentence(here: Path, capsys: Any) -> None:  # noqa: F811
    assert call(capsys, "runs")[::2] == (2, "error: runs is no folder\n")
    (here / "runs").mkdir()
    assert call(capsys, "runs")[1] == "no run in runs\n"
    code, _, err = call(capsys, "runs", "prune", "--older", "soon")
    assert (code, err) == (2, "error: --older soon: write a time such as 2h, 90m or 1h30m\n")
