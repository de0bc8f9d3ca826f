"""The command line as a user meets it: output, JSON, exit codes and sentences for wrong input."""

from __future__ import annotations

import csv
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import tiny
from fairsilo import cli, config
from fairsilo.data.dataset import TEST, TRAIN, VALIDATION, Dataset, Domain
from fairsilo.data.federation import Federation
from fairsilo.data.packed import write_packed
from fairsilo.errors import FairsiloError, QuorumError, file_problem

FAST = ["rounds=2", "epochs=1", "batch_size=8", "lr=0.1", "engine.name=sequential"]


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny federation as a folder of the user's: three domains, classes 0 to 2."""
    folder = tmp_path_factory.mktemp("packed")
    domains = {}
    for index, name in enumerate(("ink", "paint", "stamp")):
        split = tiny.samples(48, 20.0 * index, index)
        decided = torch.full((48,), TRAIN, dtype=torch.int8)
        decided[24:36], decided[36:] = VALIDATION, TEST
        images = torch.nn.functional.interpolate(split.inputs.float(), size=(8, 8)).to(torch.uint8)
        domains[name] = Domain(name, images, split.targets, decided)
    write_packed(Dataset("tiny", ("0", "1", "2"), domains), folder)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_net.py").write_text(
        "from tiny import TinyNet\n\n\ndef make(classes, channels):\n    return TinyNet(classes, channels)\n"
    )
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `fairsilo ARGUMENTS`, in this process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["fairsilo", *arguments])
        patched.setenv("COLUMNS", "200")
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def _interrupted() -> None:
    raise KeyboardInterrupt


def test_run_writes_a_folder_and_ends_with_the_table(here: Path, packed: Path, capsys: Any) -> None:
    code, out, err = call(
        capsys, "run", f"data.packed={packed}", "model=my_net:make", *FAST, "held_out=stamp", "--out", "r"
    )
    assert (code, err) == (0, "")
    assert "faa sends, besides the model" in out
    assert "fedavg (stamp held out, seed 0): round 2/2, training loss " in out
    for word in ("generalise", "personalise", "fair", "ink", "paint", "stamp (unseen)"):
        assert word in out
    found = {path.name for path in (here / "r").iterdir()}
    assert {
        "config.yaml",
        "run.json",
        "metrics.jsonl",
        "rounds.jsonl",
        "summary.json",
        "report.html",
        "baseline",
    } <= found
    assert json.loads((here / "r" / "run.json").read_text())["status"] == "finished"
    assert json.loads((here / "r" / "baseline" / "run.json").read_text())["method"] == "fedavg"
    code, out, _ = call(capsys, "report", "r")
    assert code == 0
    assert "stamp (unseen)" in out
    code, out, _ = call(capsys, "report", "r", "--json")
    assert json.loads(out)["summary"]["rounds"] == [2]
    code, _, err = call(capsys, "run", f"data.packed={packed}", "--out", "r")
    assert code == 2
    assert "already holds a finished run" in err


def test_run_as_json_and_default_folders(here: Path, packed: Path, capsys: Any) -> None:
    arguments = ("run", "method=fedavg", f"packed={packed}", "model=my_net:make", *FAST, "--json")
    first, second = (json.loads(call(capsys, *arguments)[1]) for _ in range(2))
    assert first["method"] == "fedavg"
    assert first["baseline"] is None
    assert first["summary"]["generalisation"] == second["summary"]["generalisation"]
    assert (first["folder"], second["folder"]) == (
        f"runs/fedavg-{packed.name}-stamp-seed0",
        f"runs/fedavg-{packed.name}-stamp-seed0-2",
    )


def test_config_files_and_overrides(here: Path, packed: Path, capsys: Any) -> None:
    (here / "mine.yaml").write_text(
        f"method: fedprox(mu=0.5)\nmodel: my_net:make\ndata: {{packed: '{packed}'}}\ntrain: {{rounds: 1, epochs: 1}}\n"
    )
    code, _, err = call(capsys, "run", "-c", "mine.yaml", "engine.name=sequential", "seed=3", "--out", "r", "--json")
    assert (code, err) == (0, "")
    saved = (here / "r" / "config.yaml").read_text()
    assert "method: fedprox(mu=0.5)" in saved
    assert "seed: 3" in saved
    assert "held_out: stamp" in saved  # what `auto` came to


def test_resume_finishes_to_the_same_numbers(
    here: Path, packed: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["run", "method=scaffold", f"packed={packed}", "model=my_net:make", *FAST, "rounds=3", "--json"]
    whole = json.loads(call(capsys, *arguments, "--out", "whole")[1])
    from fairsilo.engine.loop import Loop

    normal = Loop._save

    def interrupted(self: Loop, number: int) -> None:
        normal(self, number)
        if number == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "_save", interrupted)
    code, _, err = call(capsys, *arguments, "--out", "cut")
    assert code == 130
    assert "fairsilo resume" in err
    said = json.loads((here / "cut" / "run.json").read_text())
    assert said["status"] == "interrupted"
    assert "message" not in said  # an exception's name says nothing
    assert "to go on: fairsilo resume cut" in call(capsys, "runs", ".")[1]
    monkeypatch.setattr("fairsilo.api.resume", lambda *_, **__: _interrupted())
    code, _, err = call(capsys, "resume", "cut", "--trust")  # before anything of it is written
    assert code == 130
    assert "`fairsilo resume cut` goes on from the last complete round" in err
    monkeypatch.undo()
    monkeypatch.chdir(here)
    monkeypatch.setattr("fairsilo.cli.listing.show", lambda *_: _interrupted())
    assert call(capsys, "methods") == (130, "", "interrupted\n")
    code, _, err = call(capsys, "report", "cut")
    assert code == 2
    assert "no results yet" in err
    resumed = json.loads(call(capsys, "resume", "cut", "--trust", "--json")[1])
    assert resumed["summary"] == whole["summary"]
    again = json.loads(call(capsys, "resume", "cut", "--trust", "--json")[1])  # resuming a finished run changes nothing
    assert again["summary"] == whole["summary"]


def test_a_run_below_quorum_ends_with_one_and_a_report(
    here: Path, packed: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["run", "method=fedavg", f"packed={packed}", "model=my_net:make", *FAST, "lr=1e30", "--out", "r"]
    code, out, err = call(capsys, *arguments)
    assert code == 1
    assert "round 1 stopped: 0 of 2 silos" in err
    assert "Training diverged at ink, paint: the loss or the model is no longer finite" in err
    assert "a smaller learning rate usually helps (train.lr is 1e+30 now), or clipped gradients (train.clip=1)" in err
    assert "silo ink left out (diverged: local training diverged: its model has a NaN or an infinity)" in out
    assert "_refuse_unsound" not in out + err
    assert "stopped" in (here / "r" / "report.html").read_text()
    for words in (["export", "r", "--to", "safetensors"], ["predict", "r", "seven.png"], ["figure", "t-sne", "r"]):
        code, _, err = call(capsys, *words, "--trust")
        assert code == 2
        assert "r stopped before its end (round 1 stopped: 0 of 2 silos" in err
        assert "a smaller learning rate usually helps" in err


def test_compare_pairs_methods_and_resumes_cells(here: Path, packed: Path, capsys: Any) -> None:
    arguments = ["compare", "fedavg", "fedprox(mu=0.5)", f"packed={packed}", "model=my_net:make", *FAST]
    arguments += ["--seeds", "0,1", "--held-out", "all", "--out", "c"]
    code, out, err = call(capsys, *arguments)
    assert (code, err) == (0, "")
    assert "fedprox(mu=0.5)" in out
    assert "minus fedavg" in out
    assert "run 12 of 12: fedprox(mu=0.5) (stamp held out, seed 1), about " in out
    cells = list(csv.DictReader((here / "c" / "comparison.csv").read_text().splitlines()))
    assert len(cells) == 2 * 2 * 3
    assert (here / "c" / "comparison.tex").read_text().count(r"\\") == 3 * (
        1 + 3
    )  # methods, and a table by domain for each answer
    stamp = (here / "c" / "fedavg" / "ink-seed0" / "run.json").read_text()
    code, out, _ = call(capsys, *arguments, "--json")
    assert len(json.loads(out)["cells"]) == 12
    assert (here / "c" / "fedavg" / "ink-seed0" / "run.json").read_text() == stamp  # finished cells are not run again
    code, _, err = call(capsys, *arguments, "rounds=1")
    assert code == 2
    assert "other settings" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "rouns=3"], "unknown setting 'rouns'; did you mean 'rounds'?"),
        (["run", "rounds=0"], "train.rounds is 0; it must be at least 1"),
        (["run", "method=fedprx"], "unknown method 'fedprx'; did you mean 'fedprox'?"),
        (["run", "method=fedprox(nu=1)"], "fedprox has no setting 'nu'; known: mu"),
        (["run", "method=fedprox(mu=-1)"], "proximal.mu is -1.0; it must be at least 0"),
        (["run", "method=ga | faa"], "both decide the aggregation weights"),
        (["run", "data.folder=nowhere"], "nowhere"),
        (["run", "data=mnist"], "mnist"),
        (["run", "engine.precision=tf32"], "engine.precision=tf32 is for GPUs"),
        (["run", "engine.name=lanes"], "engine.name=lanes is for GPUs"),
        (["run", "model=resnet"], "unknown model 'resnet'; did you mean 'resnet-"),
        (["run", "held_out=moon"], "which is no domain of glyphs; known: photo, print, scan, sketch, street"),
        (["run", "-c", "absent.yaml"], "cannot read the configuration absent.yaml"),
        (["run", "device=cuda", "engine.name=processes"], "is not for the processes engine"),
        (["resume", "absent"], "absent is no run folder"),
        (["report", "absent"], "absent is no run folder"),
        (["compare", "rounds=3"], "name at least one method"),
        (["compare", "fedavg", "--seeds", "one"], "--seeds is 'one'"),
        (["compare", "fedavg", "fedavg"], "a method is named twice"),
        (["methods", "fedavgg"], "did you mean 'fedavg'?"),
        (["models", "resnet-19"], "did you mean 'resnet-18'?"),
        (["datasets", "glyps"], "did you mean 'glyphs'?"),
    ],
)
def test_wrong_input_gets_one_sentence_and_exit_code_two(
    arguments: list[str], sentence: str, here: Path, capsys: Any
) -> None:
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert not (here / "runs").exists()  # nothing half-written


def test_the_server_tunes_on_data_of_its_own(here: Path, packed: Path, capsys: Any) -> None:
    arguments = ["run", "method=fedprox-ft(tuning_lr=0.01)", f"packed={packed}", "model=my_net:make", *FAST, "--json"]
    code, _, err = call(capsys, *arguments, "--out", "a")
    assert code == 2
    assert "data.server=PATH" in err
    code, out, err = call(capsys, *arguments, f"data.server={packed}", "--out", "b")
    assert (code, err) == (0, "")
    plain = json.loads(call(capsys, *[*arguments[:1], "method=fedprox", *arguments[2:]], "--out", "c")[1])
    assert json.loads(out)["summary"]["silos"] != plain["summary"]["silos"]


@pytest.mark.slow
def test_resuming_with_other_data_or_another_model_is_refused(here: Path, people: Any) -> None:
    import fairsilo

    fairsilo.run(method="fedavg", model=tiny.TinyNet, federation=people, out=here / "r", rounds=1, epochs=1)
    status = json.loads((here / "r" / "run.json").read_text())
    (here / "r" / "run.json").write_text(json.dumps({**status, "status": "stopped"}))
    with pytest.raises(FairsiloError, match="begun from Python with a federation of its own"):
        fairsilo.resume(here / "r")
    fewer = Federation("fewer", people.classes, people.silos[:2], people.unseen)
    with pytest.raises(FairsiloError, match="begun with other data or another model"):
        fairsilo.resume(here / "r", model=tiny.TinyNet, federation=fewer)
    again = fairsilo.resume(here / "r", model=tiny.TinyNet, federation=people)
    assert again.summary["rounds"] == [1]


def test_settings(capsys: Any) -> None:
    code, out, _ = call(capsys, "settings")
    assert (code, "at least 1" in out) == (0, True)
    listed = json.loads(call(capsys, "settings", "--json")[1])
    assert {"method", "train.rounds", "engine.device"} <= {one["name"] for one in listed}
    of_train = json.loads(call(capsys, "settings", "train", "--json")[1])
    assert of_train == [one for one in listed if one["name"].startswith("train.")]
    for word in ("lr", "train.lr"):
        assert [one["name"] for one in json.loads(call(capsys, "settings", word, "--json")[1])] == ["train.lr"]
    code, _, err = call(capsys, "settings", "rouns")
    assert (code, err) == (2, "error: unknown setting 'rouns'; did you mean 'rounds'?\n")


@pytest.mark.parametrize(
    "arguments", [["run", "method=ga", "warmup=3"], ["compare", "ga", "warmup=3"], ["settings", "warmup"]]
)
def test_a_setting_of_methods_is_named_as_such(arguments: list[str], capsys: Any) -> None:
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert err.startswith("error: 'warmup' is no setting of a run but of methods (ga, faa, ")
    assert err.endswith('it stands behind their name, as in "ga(warmup=...)"\n')


def test_methods_and_datasets(capsys: Any) -> None:
    code, out, _ = call(capsys, "methods", "--json")
    names = [found["name"] for found in json.loads(out)]
    assert {"fedavg", "faa", "fedheal"} <= set(names)
    code, out, _ = call(capsys, "methods")
    assert code == 0
    code, out, _ = call(capsys, "methods", "faa")
    assert "K_i = (a'_i - a_i)/(G_i - G'_i)" in out
    assert "settings of fairness-aware, as in faa(step_size=0.2):\n" in out
    assert "warmup = auto" in out
    assert "sends: the losses of two candidate models" in out
    code, out, _ = call(capsys, "models")
    assert code == 0
    found = {one["name"]: one for one in json.loads(call(capsys, "models", "--json")[1])}
    assert found["resnet-50"]["parameters"] == 23_528_522
    assert {"unet", "tiny-clip", "efficientnet:PATH"} <= set(found)
    out = call(capsys, "models", "unet(norm=group)")[1]
    assert "for: segmentation" in out
    assert "parameters: 7.76 M (2 classes)" in out
    assert "norm = batch [one of batch, instance, group, no]" in out
    assert "pretrained instead: model=resnet:PATH" in call(capsys, "models", "resnet-18")[1]
    code, out, _ = call(capsys, "datasets")
    assert "glyphs" in out
    assert json.loads(call(capsys, "datasets", "--json")[1])[0]["name"] == "glyphs"
    assert json.loads(call(capsys, "datasets", "glyphs", "--json")[1])["domains"]["scan"]["train"] >= 600
    assert "street" in call(capsys, "datasets", "glyphs")[1]
    assert "fairsilo 0." in call(capsys, "--version")[1]


def test_the_settings_of_a_composition_stand_under_their_part_and_method(capsys: Any) -> None:
    code, out, _ = call(capsys, "methods", "elcfs(bank=16) | fedheal")
    assert code == 0
    places = [line for line in out.splitlines() if line.startswith(("settings of", "  "))]
    heads = [line for line in places if line.startswith("settings")]
    assert heads == [
        "settings of frequency-episodes, as in elcfs(window=0.1):",
        "settings of consistency-mask, as in fedheal(tau=0.3):",
        "settings of distance-weights, as in fedheal(beta=0.4):",
    ]
    inside = {head: [line.split()[0] for line in _below(places, head)] for head in heads}
    assert inside[heads[0]][:2] == ["window", "bank"]
    assert inside[heads[1]] == ["tau", "variant", "mask_buffers"]
    assert inside[heads[2]] == ["beta", "variant", "solver", "ridge", "momentum"]
    assert out.count("as printed (one value for consistency-mask and distance-weights)") == 2
    code, out, _ = call(capsys, "methods", "elcfs | fedheal", "--json")
    assert [one["name"] for one in json.loads(out)] == ["elcfs", "fedheal"]
    code, _, err = call(capsys, "methods", "elcfs | fedheel")
    assert (code, err) == (2, "error: unknown method 'fedheel'; did you mean 'fedheal'?\n")


def _below(lines: list[str], head: str) -> list[str]:
    """The lines behind a heading, up to the next one."""
    behind = lines[lines.index(head) + 1 :]
    return list(itertools.takewhile(lambda line: line.startswith("  "), behind))


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["figure", "--help"], ["settings", "--json"]])
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom fairsilo.cli import app\n"
        f"app({arguments!r}, standalone_mode=False)\n"
        "sys.exit(' '.join({'torch', 'numpy', 'sklearn', 'matplotlib', 'transformers'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_api_runs_a_model_and_a_federation_of_ones_own(here: Path, people: Any) -> None:
    import fairsilo

    settings = {"rounds": 2, "epochs": 1, "batch_size": 8, "engine": {"name": "processes", "workers": 2}}
    result = fairsilo.run(method="fedbn", model=tiny.TinyNet, federation=people, out=here / "r", **settings)
    assert result.summary["about"] == "personal"
    assert (here / "r" / "report.html").exists()
    with pytest.raises(FairsiloError, match="give an experiment or settings, not both"):
        fairsilo.run(config.experiment(), rounds=2)
    assert issubclass(QuorumError, fairsilo.FairsiloError)
    with pytest.raises(AttributeError):
        _ = fairsilo.nothing


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("runs/a/.run.json.part", "runs/a/run.json"),
        ("data/.pacs.partial/0.inputs", "data/pacs/0.inputs"),
        (".part", ".part"),
    ],
)
def test_a_file_in_the_making_is_told_by_the_name_that_it_will_have(file: str, named: str) -> None:
    said = f"cannot read or write {named}: No space left on device"
    assert file_problem(OSError(28, "No space left on device", file)) == said


@pytest.mark.parametrize("arguments", [["watch"], ["advise"], ["site", "join"], ["federation", "start"]])
def test_a_paragraph_of_help_has_no_line_that_ends_early(arguments: list[str]) -> None:
    """Typer keeps the lines that a docstring has in the source."""
    group: Any = typer.main.get_command(cli.app)
    for name in arguments:
        group = group.commands[name]
    paragraphs = group.help.split("\n\n")
    assert all(paragraph and "\n" not in paragraph for paragraph in paragraphs)
    assert arguments[0] not in ("watch", "advise") or len(paragraphs) == 2
