"""Comparisons from a file: what is run, in which order, and the page that shows it."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fairsilo import cli, config
from fairsilo.analysis.metrics import mean, summarise
from fairsilo.analysis.paired import compare_cells
from fairsilo.data import load
from fairsilo.errors import FairsiloError
from fairsilo.methods.text import method
from fairsilo.report.comparison_page import page, write_comparison
from fairsilo.report.heat import STRONGEST
from fairsilo.report.page import write_report
from fairsilo.reproduction.tables import FOLDER
from fairsilo.runs import setup
from fairsilo.runs.comparison import OWN, ComparisonFile, Grid, composed, read_comparison_file, row_of
from test_cli import FAST, call, here, packed  # noqa: F401 - fixtures
from test_report_page import check_well_formed, part, words
from test_report_page import make as made


def read(folder: Path, text: str, *overrides: str, **given: Any) -> ComparisonFile:
    path = folder / "comparison.yaml"
    path.write_text(text, encoding="utf-8")
    return read_comparison_file(path, overrides, **given)


# ---------------------------------------------------------------------------------------------------------- the file
def test_a_file_holds_settings_methods_seeds_and_domains(tmp_path: Path) -> None:
    text = "methods: [fedavg, 'fedprox(mu=0.5)']\nseeds: [0, 3]\nheld_out_domains: [photo, 7]\nrounds: 4\n"
    found = read(tmp_path, text + "train: {epochs: 2}\n", "lr=0.5")
    assert found.methods == ("fedavg", "fedprox(mu=0.5)")
    assert found.seeds == (0, 3)
    assert found.held_out == ("photo", "7")
    assert found.grid is None
    training = found.experiment.train
    assert (training.rounds, training.epochs, training.lr) == (4, 2, 0.5)
    assert found.experiment.baseline is None


EXPERIMENTS = sorted(FOLDER.rglob("*.yaml"))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_experiment_that_is_kept_can_be_run(path: Path) -> None:
    """Its settings and methods exist, none is there twice, and it says by which command it is run."""
    text = path.read_text(encoding="utf-8")
    assert f"fairsilo reproduce {path.parent.name}/{path.stem}" in text
    given = ["data.packed=elsewhere"] if "data.packed=PATH" in text else []
    found = read_comparison_file(path, given)
    names = [(method(row_of(found.experiment, name).method).name, name.partition(OWN)[2]) for name in found.methods]
    assert len(set(names)) == len(names) >= 2
    assert found.experiment.data.packed == ("elsewhere" if given else None)


DIGITS = Path(__file__).parents[2] / "shared" / "data" / "digits"
PUBLISHED = {
    ("data.dif=10",): {
        "mnist": [6, 12, 21, 38, 70, 126, 227, 409, 736, 1325],
        "usps": [40, 72, 129, 233, 420, 756],
        "synth_rendered": [151, 273, 491],
        "mnist_m": [181, 327],
        "svhn": [282],
    },
    ("data.dif=5",): {
        "mnist": [225, 338, 507, 761, 1142],
        "usps": [417, 626, 939],
        "synth_rendered": [528, 792],
        "mnist_m": [352, 528],
        "svhn": [587],
    },
    ("data.dif=1", "data.validation=0.6"): {
        name: [371, 1115] for name in ("mnist", "usps", "synth_rendered", "mnist_m", "svhn")
    },
}


@pytest.mark.slow
@pytest.mark.skipif(not DIGITS.is_dir(), reason="the packed Digits are not here")
def test_fedgcrs_experiments_have_its_published_silos(monkeypatch: pytest.MonkeyPatch) -> None:
    read = load(packed=str(DIGITS))
    monkeypatch.setattr(setup, "load", lambda **_: read)  # once is enough
    folder = FOLDER / "fedgcr"
    for settings, published in PUBLISHED.items():
        one, other = (
            read_comparison_file(folder / f"{name}.yaml", [*settings, f"data.packed={DIGITS}"]).experiment
            for name in ("table1-digits", "table4-digits")
        )
        assert one.data == other.data
        made = setup.federation_of(dataclasses.replace(one, data=dataclasses.replace(one.data, held_out="-")))
        for name, sizes in published.items():
            found = [len(silo.train) for silo in made.silos if silo.domain == name]
            assert found == pytest.approx(sizes, abs=2)


def test_the_command_line_comes_before_the_file(tmp_path: Path) -> None:
    text = "grid: {rows: [fedavg], columns: ['', afl]}\nseeds: [0, 1]\nheld_out_domains: all\n"
    found = read(tmp_path, text, methods=["ga", "faa"], seeds="2, 5", held_out="a,b")
    assert (found.methods, found.grid) == (("ga", "faa"), None)
    assert (found.seeds, found.held_out) == ((2, 5), "a,b")
    assert read(tmp_path, text).held_out == "all"


def test_without_seeds_and_domains_the_experiments_own_count(tmp_path: Path) -> None:
    found = read(tmp_path, "methods: [fedavg]\nseed: 4\ndata: {held_out: photo}\n")
    assert (found.seeds, found.held_out, found.experiment.data.held_out) == ((4,), None, "photo")
    assert read(tmp_path, "methods: [fedavg]\nheld_out_domains: '-'\n").held_out == ("-",)


def test_a_grid_stands_for_its_compositions_row_by_row(tmp_path: Path) -> None:
    found = read(tmp_path, "grid:\n  rows: [fedavg, fedprox(mu=0.1)]\n  columns: ['', afl, fedheal]\n")
    assert found.grid == Grid(("fedavg", "fedprox(mu=0.1)"), ("", "afl", "fedheal"))
    assert found.methods == (
        "fedavg",
        "afl",
        "fedheal",
        "fedprox(mu=0.1)",
        "fedprox(mu=0.1) | afl",
        "fedprox(mu=0.1) | fedheal",
    )
    assert read(tmp_path, "grid: {rows: [ga], columns: [~, fedavg]}").methods == ("ga", "ga")  # refused by compare
    assert composed("fedavg", "") == "fedavg"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("metods: [fedavg]", "unknown setting 'metods'; did you mean 'methods'?"),
        ("methods: [fedavg]\nseds: [1]", "unknown setting 'seds'; did you mean 'seeds'?"),
        ("methods: [fedavg]\nheld_out_domain: all", "did you mean 'held_out_domains'?"),
        ("methods: [fedavg]\nrouns: 3", "unknown setting 'rouns'; did you mean 'rounds'?"),
        ("methods: [fedavg]\ntrain: {rouns: 3}", "unknown setting 'train.rouns'"),
        ("methods: [fedavg]\nrounds: 0", "train.rounds is 0; it must be at least 1"),
        ("rounds: 3", "name at least one method"),
        ("methods: []", "name at least one method"),
        ("methods: fedavg", "methods is 'fedavg'; it must be a list of methods"),
        ("methods: [fedavg, ' ']", "it must be a list of methods"),
        ("methods: [fedavg, fedavg]", "methods holds 'fedavg' twice"),
        ("methods: [fedavg]\ngrid: {rows: [ga], columns: ['']}", "methods and grid are both given"),
        ("grid: [fedavg]", "grid is ['fedavg']; it must be rows and columns"),
        ("grid: {rows: [fedavg], colums: ['']}", "unknown setting 'grid.colums'; did you mean 'columns'?"),
        ("grid: {rows: [fedavg], columns: []}", "grid.columns is empty"),
        ("grid: {rows: [fedavg]}", "grid.columns is None; it must be a list of methods"),
        ("grid: {rows: [''], columns: ['']}", "grid.rows is ['']"),
        ("methods: [fedavg]\nseeds: 3", "seeds is 3; it must be different whole numbers"),
        ("methods: [fedavg]\nseeds: [1, 1]", "seeds is [1, 1]; it must be different whole numbers"),
        ("methods: [fedavg]\nseeds: [true]", "seeds is [True]"),
        ("methods: [fedavg]\nseeds: [-1]", "from 0 on"),
        ("methods: [fedavg]\nseeds: []", "seeds is []"),
        ("methods: [fedavg]\nheld_out_domains: [~]", "held_out_domains is [None]"),
        ("methods: [fedavg]\nheld_out_domains: []", "held_out_domains is []"),
        ("methods: [fedavg]\nheld_out_domains: [true]", "held_out_domains is [True]"),
    ],
)
def test_a_wrong_file_gets_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(FairsiloError) as problem:
        read(tmp_path, text)
    assert sentence in str(problem.value)


def test_wrong_command_lines_get_one_sentence() -> None:
    with pytest.raises(FairsiloError, match="--seeds is '0,,1'; it must be different whole numbers"):
        read_comparison_file(None, methods=["fedavg"], seeds="0,,1")
    with pytest.raises(FairsiloError, match="'method=faa' has no effect here"):
        read_comparison_file(None, ["method=faa"], methods=["fedavg"])


def test_reading_a_comparison_does_not_wait_for_torch() -> None:
    code = "import sys, fairsilo.runs.comparison; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_table_of_fedheal_names_methods_of_the_catalogue() -> None:
    from fairsilo.methods.text import method

    path = FOLDER / "fedheal" / "table2-glyphs.yaml"
    found = read_comparison_file(path)
    assert len({method(name).name for name in found.methods}) == 7 * 4
    assert (found.held_out, found.experiment.evaluate.ddof) == (("-",), 1)


@pytest.mark.slow
# --------------------------------------------------------------------------------------------------- a comparison run
def test_a_grid_is_run_shown_and_taken_up_again(here: Path, packed: Path, capsys: Any) -> None:  # noqa: F811
    settings = "model: my_net:make\nrounds: 1\nepochs: 1\nbatch_size: 8\nlr: 0.1\nengine: {name: sequential}\n"
    text = "grid: {rows: [fedavg, fedprox(mu=0.5)], columns: ['', q-ffl]}\nheld_out_domains: '-'\nseeds: [0, 1]\n"
    (here / "small.yaml").write_text(f"{settings}{text}data: {{packed: '{packed}'}}\n")
    code, out, err = call(capsys, "compare", "-c", "small.yaml")
    assert (code, err) == (0, "")
    folder = here / "runs" / "compare-small"
    assert "page: runs/compare-small/comparison.html" in out
    content = json.loads((folder / "comparison.json").read_text())
    assert content["methods"] == ["fedavg", "q-ffl", "fedprox(mu=0.5)", "fedprox(mu=0.5) | q-ffl"]
    assert content["grid"] == {"rows": ["fedavg", "fedprox(mu=0.5)"], "columns": ["", "q-ffl"]}
    assert content["settings"]["train"]["rounds"] == 1
    assert [cell["seed"] for cell in content["cells"]] == [0, 1] * 4
    check_numbers(content, (folder / "comparison.html").read_text())
    finished = folder / "fedprox-mu=0.5-q-ffl" / "seed1" / "run.json"
    stamp = finished.read_text()
    (folder / "q-ffl" / "seed0" / "run.json").unlink()  # as if it had been interrupted
    assert json.loads(call(capsys, "compare", "-c", "small.yaml", "--json")[1]) == content
    assert finished.read_text() == stamp
    (folder / "comparison.html").unlink()
    code, out, _ = call(capsys, "report", str(folder))
    assert code == 0
    assert "minus fedavg" in out
    check_numbers(content, (folder / "comparison.html").read_text())
    found = json.loads(call(capsys, "report", str(folder), "--json")[1])
    assert found["table"] == compare_cells(content["methods"], content["cells"])
    (folder / "comparison.json").write_text("{}")
    code, _, err = call(capsys, "report", str(folder))
    assert code == 2
    assert "comparison.json is damaged: it has no methods" in err


DAMAGED = {
    "run.json": ('{"status": "fin', "run.json is damaged: Unterminated string"),
    "config.yaml": ("data: [unclosed", "config.yaml is not valid YAML"),
    "summary.json": ("{}", "summary.json is damaged: it holds no results of a run"),
    "metrics.jsonl": ('{"round": 1, "sil', "metrics.jsonl is damaged: its line 1 is no row"),
    "checkpoint/server-000002.safetensors": ("cut", "server-000002.safetensors is damaged: "),
    "checkpoint/silos-000002.safetensors": ("", "silos-000002.safetensors is damaged: "),
}


@pytest.fixture(scope="module")
def compared(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:  # noqa: F811
    """A folder with a comparison and the command that made it."""
    folder = tmp_path_factory.mktemp("compared")
    asked = ["compare", "fedavg", "ga", f"packed={packed}", "model=tiny:TinyNet", *FAST, "held_out=ink", "--out", "all"]
    with pytest.MonkeyPatch.context() as patched, suppress(SystemExit):
        patched.chdir(folder)
        patched.setattr(sys, "argv", ["fairsilo", *asked])
        cli.main()
    return folder, asked


@pytest.mark.one_in(3)
@pytest.mark.parametrize("file", DAMAGED)
def test_a_damaged_run_is_told_with_its_cure_and_the_cure_helps(
    compared: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, file: str
) -> None:
    folder, asked = compared
    shutil.copytree(folder / "all", tmp_path / "all")
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / "all" / "comparison.json").read_text()
    run = tmp_path / "all" / "ga" / "ink-seed0"
    text, said = DAMAGED[file]
    if file.startswith("checkpoint"):  # of a finished run nobody reads them
        (run / "run.json").unlink()
    (run / file).write_text(text)
    code, _, err = call(capsys, *asked)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
    assert "; delete all/ga/ink-seed0 and give the same command again, which makes that run anew" in err
    shutil.rmtree(run)
    assert call(capsys, *asked)[0] == 0
    assert (tmp_path / "all" / "comparison.json").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fedavg", "ga | faa"], "both decide the aggregation weights"),
        (["fedavg", "fedbn"], "the model has no BatchNorm module"),
        (["-c", "twice.yaml"], "a method is named twice: 'q-ffl' and 'q-ffl' are the same"),
        (["fedavg", "--held-out", "moon"], "which is no domain of"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_written(
    arguments: list[str],
    sentence: str,
    here: Path,  # noqa: F811
    packed: Path,  # noqa: F811
    capsys: Any,
) -> None:
    (here / "twice.yaml").write_text("grid: {rows: [fedavg, q-ffl], columns: ['', q-ffl]}\n")
    (here / "flat_net.py").write_text(
        "from torch import nn\n\n\ndef make(classes, channels):\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))\n"
    )
    code, _, err = call(capsys, "compare", *arguments, f"packed={packed}", "model=flat_net:make", *FAST)
    assert code == 2
    assert sentence in err
    assert not (here / "runs").exists()


def test_auto_is_replaced_by_the_domain_it_came_to(here: Path, packed: Path, capsys: Any) -> None:  # noqa: F811
    arguments = ["compare", "fedavg", f"packed={packed}", "model=my_net:make", *FAST, "rounds=1", "seed=2"]
    content = json.loads(call(capsys, *arguments, "--out", "c", "--json")[1])
    assert (content["held_out"], content["seeds"], content["grid"]) == (["stamp"], [2], None)
    assert (here / "c" / "fedavg" / "stamp-seed2" / "summary.json").exists()
    shown = (here / "c" / "comparison.html").read_text()
    assert "stamp" in words(shown)
    assert 'id="grid"' not in shown


# ----------------------------------------------------------------------------------------------------------- the page
def summary(number: int, selection: str = "last", about: str = "global", unseen: str = "-") -> dict[str, Any]:
    """Numbers that differ from run to run, over three domains of which one may be unseen."""
    rows = []
    for place, name in enumerate("abc"):
        metric = 0.3 + ((7 * number + 3 * place * number + place) % 13) / 20
        row = {"round": 2, "silo": name, "domain": name, "unseen": name == unseen, "split": "test", "samples": 5}
        rows += [{**row, "model": "global", "loss": 1.0, "metric": metric}]
        rows += [] if name == unseen else [{**row, "model": "personal", "loss": 1.0, "metric": metric + 0.05}]
    return summarise(rows, about, selection, ddof=1)


def fabricated(
    names: tuple[str, ...] = (),
    grid: Grid | None = None,
    domains: tuple[str, ...] = ("-",),
    seeds: tuple[int, ...] = (0,),
    **rules: str,
) -> dict[str, Any]:
    names = grid.methods if grid else names
    places = [(domain, name, seed) for domain in domains for name in names for seed in seeds]
    cells = [
        {"method": name, "held_out": domain, "seed": seed, "summary": summary(number, unseen=domain, **rules)}
        for number, (domain, name, seed) in enumerate(places)
    ]
    content = {"methods": names, "held_out": domains, "seeds": seeds, "cells": cells}
    content["grid"] = dataclasses.asdict(grid) if grid else None
    content["settings"] = config.as_dict(config.experiment({"method": names[0]}))
    return dict(json.loads(json.dumps(content)))


def rows_of(content: str, place: int) -> list[list[str]]:
    """The cells of the place-th table of a piece of the page, without the head."""
    body = re.findall(r"<tbody>(.*?)</tbody>", content, re.DOTALL)[place]
    lines = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [[words(cell).strip() for cell in re.findall(r"<t[dh].*?</t[dh]>", line, re.DOTALL)] for line in lines]


def points(value: float) -> str:
    return f"{100 * value:.1f}"


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def check_numbers(content: dict[str, Any], shown: str) -> None:
    """Every number of the page against those of comparison.json."""
    check_well_formed(shown)
    for row, line in zip(
        compare_cells(content["methods"], content["cells"]), rows_of(part(shown, "methods"), 0), strict=True
    ):
        assert line[0] == row["method"]
        for key, mean_, difference in zip(
            ("generalisation", "personalisation", "fairness"), line[1::2], line[2::2], strict=True
        ):
            found = row[key]
            spread = f" ± {points(found['std'])}" if found["std"] is not None else ""
            beside = f" mean {points(row['at_home']['mean'])}" if key == "fairness" else ""
            beside += f" domains ± {points(found['std_domains'])}" if found["std_domains"] is not None else ""
            some = "" if found["at_chance"] == row["cells"] else f" in {found['at_chance']} of {row['cells']} runs"
            beside += f" ≈ chance{some}" if found["at_chance"] else ""
            assert mean_ == (points(found["mean"]) + spread + beside if found["mean"] is not None else "–")
            assert (difference == "") == (found["difference"] is None)
            if difference:
                assert float(difference.split()[0].replace("−", "-")) == pytest.approx(
                    100 * found["difference"], abs=0.051
                )
    for cell, line in zip(content["cells"], rows_of(part(shown, "runs"), 0), strict=True):
        even = cell["summary"]["fairness"]["global"]
        held_out = [] if cell["held_out"] == "-" else [cell["held_out"]]
        assert line[0] == ", ".join([cell["method"], *held_out, f"seed {cell['seed']}"])
        silos = [silo["domain"] for silo in cell["summary"]["silos"] if not silo["unseen"]]
        numbers = [f"{100 * even['mean']:.2f}", f"{100 * even['std_domains']:.2f}"]
        if len(set(silos)) == len(silos):  # then they are the mean over silos and the spread around it
            assert (line[4:2:-1], len(line)) == (numbers, 6)
        else:
            assert line[5:7] == numbers
    if content.get("grid"):
        check_heat(content, part(shown, "grid"))


def check_heat(content: dict[str, Any], shown: str) -> None:
    grid = Grid(tuple(content["grid"]["rows"]), tuple(content["grid"]["columns"]))
    for place, (key, other) in enumerate((("mean", "std_domains"), ("std_domains", "mean"))):
        for row, line in zip(grid.rows, rows_of(shown, place), strict=True):
            assert line[0] == row
            for column, cell in zip(grid.columns, line[1:], strict=True):
                runs = [one["summary"] for one in content["cells"] if one["method"] == composed(row, column)]
                large, small = (mean(run["fairness"]["global"][which] for run in runs) for which in (key, other))
                guessed = any(run["fairness"]["global"].get("at_chance") for run in runs)
                numbers = f"{points(large)} {('Std', 'Avg')[place]} {points(small)}" + (" ≈ chance" if guessed else "")
                assert re.sub(r"^[RC]+ ", "", cell) == numbers


def test_the_page_names_models_links_runs_and_repeats_their_notes(tmp_path: Path) -> None:
    content = fabricated(names=("fedavg", "fedclip"))
    for cell, model in zip(content["cells"], ("small-cnn", "clip-tiny"), strict=True):
        cell |= {"folder": f"{cell['method']}/a b-seed0", "model": model}
        inside = tmp_path / cell["folder"]
        inside.mkdir(parents=True)
        (inside / "run.json").write_text(json.dumps({"status": "finished", "method": cell["method"]}))
        (inside / "config.yaml").write_text(f"method: {cell['method']}\n")
        rounds = [{"round": 1, "notes": ["<b>warm-up</b> over"]}, {"round": 2, "notes": ["<b>warm-up</b> over"]}]
        (inside / "rounds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rounds))
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    shown = write_comparison(tmp_path).read_text(encoding="utf-8")
    check_well_formed(shown)
    assert "<dt>Model</dt><dd>small-cnn, clip-tiny</dd>" in shown
    assert '<a href="fedavg/a%20b-seed0/report.html">fedavg, seed 0</a>' in part(shown, "runs")
    assert (tmp_path / "fedavg" / "a b-seed0" / "report.html").exists()
    said = words(part(shown, "notes"))
    assert said.count("<b>warm-up</b> over: fedavg (-, seed 0), fedclip (-, seed 0)") == 1
    # a comparison of an earlier version names neither folders nor models
    assert "<dt>Model</dt><dd>auto</dd>" in page(fabricated(names=("fedavg",)))


def test_links_to_runs_are_seen_unless_there_are_very_many() -> None:
    few, many = (fabricated(names=("fedavg",), domains=("a",), seeds=tuple(range(count))) for count in (60, 61))
    assert "<details open><summary>60 runs" in part(page(few), "runs")
    assert "<details><summary>61 runs" in part(page(many), "runs")
    assert rows_of(part(page(few), "runs"), 0)[7][0] == "fedavg, a, seed 7"


def test_a_run_leads_back_to_its_comparison_and_asks_for_no_other_seeds(tmp_path: Path) -> None:
    content = fabricated(names=("fedavg", "fedclip"), seeds=(0, 1))
    for cell in content["cells"]:
        cell["folder"] = f"{cell['method']}/a b-seed{cell['seed']}"
        made(tmp_path / "all" / cell["folder"], cell["method"])
    (tmp_path / "all" / "comparison.json").write_text(json.dumps(content))
    run = tmp_path / "all" / "fedclip" / "a b-seed1"
    alone = write_report(run).read_text()
    assert "<nav>" not in alone  # the comparison has no page yet
    assert "One of the 4 runs of a comparison with seeds 0, 1; this one has seed 7." in alone
    write_comparison(tmp_path / "all")
    for shown in ((run / "report.html").read_text(), write_report(run).read_text()):
        check_well_formed(shown)
        (link,) = re.findall(r'<nav><a href="([^"]*)">Comparison of fedavg, fedclip</a></nav>', shown)
        assert (run / link).resolve() == (tmp_path / "all" / "comparison.html").resolve()
        assert "Repeat with other seeds" not in shown
    for way in ("fedavg/../fedclip/a b-seed1", "fedclip/a b-seed1"):
        assert 'href="../../comparison.html"' in write_report(tmp_path / "all" / way).read_text()


@pytest.mark.parametrize("held", ["[]", "{}", '{"cells": [3]}', '{"cells": 3}', "{"])
def test_a_run_below_a_comparison_that_cannot_be_read_has_a_page(tmp_path: Path, held: str) -> None:
    made(tmp_path / "all" / "fedavg" / "seed0", "fedavg")
    (tmp_path / "all" / "comparison.json").write_text(held)
    shown = write_report(tmp_path / "all" / "fedavg" / "seed0").read_text()
    assert "Repeat with other seeds" in shown
    assert "<nav>" not in shown


def test_a_run_that_a_comparison_does_not_name_is_none_of_it(tmp_path: Path) -> None:
    content = fabricated(names=("fedavg",))
    content["cells"][0]["folder"] = "fedavg/seed0"
    made(tmp_path / "fedavg" / "seed1", "fedavg")
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    (tmp_path / "comparison.html").write_text("")
    assert "Repeat with other seeds" in write_report(tmp_path / "fedavg" / "seed1").read_text()


def test_runs_of_a_comparison_with_one_seed_say_so(tmp_path: Path) -> None:
    content = fabricated(names=("fedavg", "faa"))
    content["cells"][0]["folder"] = "fedavg/seed0"
    made(tmp_path / "fedavg" / "seed0", "fedavg")
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    shown = write_report(tmp_path / "fedavg" / "seed0").read_text()
    assert "One of the 2 runs of a comparison, all with seed 7: another seed gives other numbers." in shown


def test_both_spreads_stand_in_the_tables_of_domains_and_of_silos() -> None:
    content = fabricated(("fedavg", "faa"), domains=("a", "b"), seeds=(0, 1))
    row = compare_cells(content["methods"], content["cells"])[1]
    shown = page(content)
    for place, key in enumerate(("generalisation", "personalisation")):
        line = rows_of(part(shown, "held-out"), place)[1]
        assert line[3:] == [f"{points(row[key]['mean'])} ± {points(row[key]['std'])}", points(row[key]["std_domains"])]
        runs = [cell for cell in content["cells"] if (cell["method"], cell["held_out"]) == ("faa", "b")]
        values = [run["summary"][key]["mean"] for run in runs]
        assert line[2] == f"{points(mean(values))} ± {points(abs(values[0] - values[1]) / 2**0.5)}"
    found = row["variance_silos"]
    numbers = [f"{1e4 * found[name]:.1f}" for name in ("mean", "std", "std_domains")]
    assert rows_of(part(shown, "spread"), 0)[1][5] == "{} ± {} domains ± {}".format(*numbers)
    assert "± sample standard deviation over 2 seeds" in words(part(shown, "spread"))
    found, gain = row["at_home"], [line[2] for line in rows_of(part(shown, "spread"), 0)]
    assert gain == ["", f"{signed(100 * found['difference'])} ± {points(found['margin'])}"]
    heads = re.findall(r"<th\b[^>]*>(.*?)</th>", part(shown, "spread").partition("<tbody>")[0])
    assert heads[:3] == ["method", "mean", "minus fedavg ± 95\u00a0%"]
    single = page(fabricated(("fedavg", "faa"), domains=("a", "b")))
    assert "one seed, so that there is no ±" in words(part(single, "held-out"))


def test_the_page_marks_what_is_of_own_models() -> None:
    content = fabricated(("fedavg", "ditto"), domains=("a", "b"), seeds=(0, 1))
    for cell in content["cells"]:
        if cell["method"] == "ditto":
            cell["summary"]["about"] = "personal"
    shown = page(content)
    for line, marked in zip(rows_of(part(shown, "methods"), 0), (False, True), strict=True):
        assert ["own models" in one for one in line] == [False] * 5 + [marked, False]
    assert [line[0] for line in rows_of(part(shown, "spread"), 0)] == ["fedavg", "ditto (own models)"]
    by_domain = [[line[0] for line in rows_of(part(shown, "held-out"), place)] for place in range(3)]
    assert by_domain == [["fedavg", "ditto"], ["fedavg", "ditto"], ["fedavg", "ditto (own models)"]]
    marks = ["fairness of own models" in line[-1] for line in rows_of(part(shown, "runs"), 0)]
    assert marks == [cell["method"] == "ditto" for cell in content["cells"]]


@pytest.mark.parametrize(("change", "apart"), [({}, False), ({"domain": "a"}, True), ({"about": "personal"}, True)])
def test_every_run_repeats_no_column_where_each_silo_is_a_domain(change: dict[str, str], apart: bool) -> None:
    content = fabricated(("fedavg", "faa"), seeds=(0, 1))
    summary_ = content["cells"][1]["summary"]
    if "domain" in change:
        summary_["silos"][1] |= change
    summary_ |= {key: value for key, value in change.items() if key == "about"}
    runs = part(page(content), "runs")
    heads = re.findall(r"<th\b[^>]*>(.*?)</th>", runs.partition("<tbody>")[0])
    assert heads[1:-1] == ["generalisation", "personalisation", "fairness", "mean over silos", *["Avg", "Std"] * apart]
    assert ("Avg and Std:" in words(runs)) == apart
    assert {len(line) for line in rows_of(runs, 0)} == {len(heads)}


GRID = Grid(("fedavg", "fedprox", "scaffold"), ("", "afl", "fedheal"))


def test_a_comparison_whose_runs_lie_elsewhere_is_refused(tmp_path: Path) -> None:
    content = fabricated(names=("fedavg", "local"))
    content["cells"][1]["folder"] = "../other"
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    with pytest.raises(FairsiloError, match="a run of it lies outside of its folder"):
        write_comparison(tmp_path)


@pytest.mark.parametrize(
    ("domains", "seeds", "selection"),
    [(("-",), (0,), "last5"), (("a", "c"), (0, 1, 2), "last"), (("a",), (4, 5), "source-validation")],
)
def test_the_page_shows_the_numbers_of_the_comparison(
    domains: tuple[str, ...], seeds: tuple[int, ...], selection: str
) -> None:
    content = fabricated(grid=GRID, domains=domains, seeds=seeds, selection=selection)
    check_numbers(content, page(content))


def test_the_page_tells_settings_that_were_searched() -> None:
    content = fabricated(("fedavg", "fedprox"))
    assert "Settings that were searched" not in page(content)
    domain = content["held_out"][0]
    content["tuned"] = {domain: {"fedprox": "fedprox(mu=0.3) @ train.lr=0.1"}, "elsewhere": {"fedavg": "fedavg @ lr=7"}}
    shown = page(content)
    check_well_formed(shown)
    assert "fedprox(mu=0.3) @ train.lr=0.1" in shown
    assert "lr=7" not in shown


def test_the_best_of_rows_and_columns_is_bold_and_shaded_most() -> None:
    content = fabricated(grid=GRID)
    values = {cell["method"]: cell["summary"]["fairness"]["global"] for cell in content["cells"]}
    tables = part(page(content), "grid").split("<h3>")[1:]
    for key, best, drawn in (("mean", max, tables[0]), ("std_domains", min, tables[1])):
        cells = re.findall(r'<td class="number" style="--heat: ([\d.]+)%"><span>(.*?)</span>', drawn)
        table = [[values[composed(row, column)][key] for column in GRID.columns] for row in GRID.rows]
        for index, (shade, inside) in enumerate(cells):
            row, column = divmod(index, len(GRID.columns))
            value, line, upright = table[row][column], table[row], [one[column] for one in table]
            marks = ("R" if value == best(line) else "") + ("C" if value == best(upright) else "")
            assert ("<strong>" in inside) == bool(marks)
            assert re.findall(r"<sup>(.*?)</sup>", inside) == ([marks] if marks else [])
            if value == best([one for line_ in table for one in line_]):
                assert float(shade) == STRONGEST


def test_the_page_says_what_its_numbers_are() -> None:
    one = words(page(fabricated(grid=GRID, selection="last5")))
    assert "one run each (1 seed: 0; no domain held out)" in one
    assert "results are read from: mean of the last five evaluations (round 2)" in one
    assert "deviation over their domains in points (ddof 1)" in one
    assert "there is no ±" in one
    assert "No domain was held out, so there is no generalisation to report." in one
    several = words(page(fabricated(("fedavg", "faa"), domains=("a", "b"), seeds=(0, 1), about="personal")))
    assert "means over 4 runs each (2 seeds: 0, 1; 2 held-out domains)" in several
    assert "its sample standard deviation over the 2 seeds (ddof 1), and small below it" in several
    assert "its margin (95 %)" in several
    assert "and of the silos' own models for fedavg, faa" in several


def test_methods_without_a_global_model_get_a_dash() -> None:
    content = fabricated(grid=GRID)
    for cell in content["cells"]:
        if cell["method"] in ("afl", "fedprox | afl", "scaffold | afl", "scaffold", "scaffold | fedheal"):
            cell["summary"]["fairness"]["global"] = {}
    del content["settings"]
    found = part(page(content), "grid")
    check_well_formed(found)
    assert [line[2] for line in rows_of(found, 0)] == ["–"] * 3
    assert rows_of(found, 1)[2] == ["scaffold", "–", "–", "–"]


def test_a_grid_of_equal_values_is_not_shaded() -> None:
    content = fabricated(grid=Grid(("fedavg",), ("", "afl")))
    for cell in content["cells"]:
        cell["summary"] = content["cells"][0]["summary"]
    shown = part(page(content), "grid")
    assert set(re.findall(r"--heat: ([\d.]+)%", shown)) == {"0.0"}
    assert set(re.findall(r"<sup>(.*?)</sup>", shown)) == {"R"}


def test_nothing_comes_from_elsewhere_and_names_are_harmless(tmp_path: Path) -> None:
    bad = '<script>alert("x")</script>&amp;\x00'
    content = fabricated(grid=Grid(("fedavg", bad), ("", f"{bad}2")), domains=(bad, "a"), seeds=(0, 1))
    content["settings"]["data"]["name"] = bad
    content["settings"]["model"] = bad
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    shown = write_comparison(tmp_path).read_text(encoding="utf-8")
    check_well_formed(shown)
    assert "<script" not in shown
    assert "\x00" not in shown
    assert '<script>alert("x")</script>&amp;�' in words(shown)
    assert not re.search(r"src\s*=|url\(|@import|https?:", shown)
    assert set(re.findall(r'href="([^,"]*)', shown)) == {"data:text/csv;charset=utf-8"}
    assert "default-src 'none'" in shown
