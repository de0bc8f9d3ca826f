"""Rows of a comparison with settings of their own: `fedavg @ lr=0.1`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fairsilo
from fairsilo.config import experiment, read_yaml
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError
from fairsilo.runs.comparison import is_setting, read_comparison_file, row_of
from test_cli import call

SETTINGS: dict[str, Any] = {"model": "small-cnn", "train": {"rounds": 1, "epochs": 1, "batch_size": 8}}


def compared(folder: Path, people: Federation, methods: Any, **options: Any) -> Any:
    return fairsilo.compare(methods, federation=people, out=folder, **{**SETTINGS, **options})


def test_a_row_has_settings_of_its_own() -> None:
    base = experiment({"method": "fedavg", "train": {"lr": 0.1, "rounds": 3}})
    row = row_of(base, "fedprox(mu=0.3) @ lr=0.5 train.clip=1")
    assert (row.method, row.train.lr, row.train.clip, row.train.rounds) == ("fedprox(mu=0.3)", 0.5, 1.0, 3)
    assert row_of(base, "fedavg") == base
    assert row_of(base, "fedag @ data.synthetic_share=0.05").data.synthetic_share == 0.05  # the server's own images


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fedavg @", "says nothing behind the @"),
        ("fedavg @ held_out=photo", "data.held_out is the same for all methods"),
        ("fedavg @ seed=1", "seed is the same for all"),
        ("fedavg @ lrr=1", "lr"),
        ("fedavg @ lr=0", "it must be above 0"),
        ("fedavg @ fast", "settings are written key=value"),
    ],
)
def test_a_wrong_row_gets_one_sentence(text: str, said: str) -> None:
    with pytest.raises(FairsiloError, match=said):
        row_of(experiment({"method": "fedavg"}), text)


def test_rows_are_told_from_settings_of_the_command_line() -> None:
    assert not is_setting("fedavg @ lr=0.1")
    assert not is_setting("fedprox(mu=0.1)")
    assert is_setting("lr=0.1")


def test_a_row_is_trained_with_its_settings(people: Federation, tmp_path: Path) -> None:
    found = compared(tmp_path / "rows", people, ["fedavg", "fedavg @ lr=0.2"])
    quick = compared(tmp_path / "quick", people, ["fedavg"], train={**SETTINGS["train"], "lr": 0.2})
    assert [cell["method"] for cell in found.cells] == ["fedavg", "fedavg @ lr=0.2"]
    assert found.cells[1]["summary"] == quick.cells[0]["summary"]
    assert found.cells[0]["summary"] != quick.cells[0]["summary"]
    again = compared(tmp_path / "rows", people, ["fedavg", "fedavg @ lr=0.2"])
    assert again.cells == found.cells


def test_settings_that_were_searched_stand_for_a_method_by_held_out_domain(people: Federation, tmp_path: Path) -> None:
    domain = people.unseen[0].domain
    tuned = {domain: {"fedprox": "fedprox(mu=0.5) @ lr=0.2"}, "elsewhere": {"fedavg": "fedavg @ lr=9"}}
    found = compared(tmp_path / "tuned", people, ["fedavg", "fedprox"], tuned=tuned)
    direct = compared(tmp_path / "direct", people, ["fedprox(mu=0.5) @ lr=0.2", "fedavg"])
    assert [cell["method"] for cell in found.cells] == ["fedavg", "fedprox"]
    assert found.cells[1]["summary"] == direct.cells[0]["summary"]
    assert found.cells[0]["summary"] == direct.cells[1]["summary"]
    assert found.as_dict()["tuned"] == tuned


def test_the_same_row_twice_is_refused(people: Federation, tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match="named twice"):
        compared(tmp_path, people, ["fedavg @ lr=0.2", "fedavg  @ lr=0.2"])


def test_a_setting_without_effect_is_refused_in_a_row_too(people: Federation, tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match=r"train\.sampling"):
        compared(tmp_path, people, ["fedavg", "fedavg @ sampling=size"])


def test_a_file_may_say_what_was_tuned(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("methods: [fedavg, fedprox]\ntuned: {photo: {fedprox: fedprox @ lr=0.1}}\n")
    assert read_comparison_file(file).tuned == {"photo": {"fedprox": "fedprox @ lr=0.1"}}
    for text, said in (
        ("[1]", "tuned is"),
        ("{photo: {afl: afl}}", "not among the methods"),
        ("{photo: 1}", "tuned is"),
    ):
        file.write_text(f"methods: [fedavg, fedprox]\ntuned: {text}\n")
        with pytest.raises(FairsiloError, match=said):
            read_comparison_file(file)


@pytest.mark.slow
def test_the_command_line_takes_rows(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "c"
    code, text, _ = call(capsys, "compare", "fedavg", "fedavg @ lr=0.1", "rounds=1", "epochs=1", "-o", str(out))
    assert code == 0
    assert "fedavg @ lr=0.1" in text
    (folder,) = out.glob("fedavg-lr=0.1/*")
    assert read_yaml(folder / "config.yaml")["train"]["lr"] == 0.1


@pytest.mark.slow
def test_domains_and_seeds_may_be_given_with_commas_or_one_by_one(tmp_path: Path, capsys: Any) -> None:
    fast = ["rounds=1", "epochs=1", "data.share=40", "--json", "-o", str(tmp_path)]
    code, text, err = call(
        capsys, "compare", "fedavg", "--held-out", "scan", "--held-out", "photo", "--seeds", "0", "--seeds", "1", *fast
    )
    assert (code, err) == (0, "")
    found = json.loads(text)
    assert (found["held_out"], found["seeds"], len(found["cells"])) == (["scan", "photo"], [0, 1], 4)
