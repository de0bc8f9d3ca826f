"""Models of a finished run for other programs: every format answers as the run does, or is not written."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import runpy
import subprocess
import sys
import zipfile
from contextlib import chdir, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

import fairsilo
import test_cli
from fairsilo import FairsiloError
from fairsilo.core.samples import SiloData, Split
from fairsilo.data.federation import Federation
from fairsilo.runs import export_formats, exporting
from fairsilo.runs.exported import read_description, read_exported, taken_apart
from fairsilo.runs.exporting import difference, replacing_folder
from fairsilo.runs.model_card import shortened
from fairsilo.runs.packing import pack
from other_tasks import GROUNDS
from tiny_backbones import write_clip

call, SLOW = test_cli.call, pytest.mark.slow
FORMATS = ("onnx", "pt2", "safetensors", "hf")
HERE = (str(Path(__file__).parents[1]), "site-packages", "other_tasks")  # what no file may tell of this machine


def split(count: int, seed: int) -> Split:
    stream = torch.Generator().manual_seed(seed)
    return Split(torch.randint(0, 256, (count, 3, 8, 8), generator=stream).to(torch.uint8), torch.arange(count) % 3)


def people(*names: str) -> Federation:
    silos = [SiloData(name, f"of {name}", *(split(12, 3 * i + j) for j in range(3))) for i, name in enumerate(names)]
    unseen = SiloData("u", "elsewhere", *(split(9, 90 + j) for j in range(3)))
    return Federation("toy", ("cat", "dog", "eel"), tuple(silos), (unseen,))


def ran(folder: Path, method: str = "fedavg", federation: Federation | None = None, **settings: Any) -> Path:
    train = {"rounds": settings.pop("rounds", 1), "epochs": 2, "batch_size": 6, "lr": 0.1}
    engine = {"name": "sequential", **settings.pop("engine", {})}
    given = federation or people("a", "b/c")
    fairsilo.run(federation=given, method=method, train=train, engine=engine, out=folder, **settings)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedBN, whose silos' own models differ from the global one."""
    return ran(tmp_path_factory.mktemp("export") / "run", "fedbn")


@pytest.fixture
def images() -> Tensor:
    return split(5, 77).inputs


def asked(form: str, path: Path, samples: Tensor) -> Tensor:
    """What a file says, by means of others than the exporter's."""
    if form == "onnx":
        session = import_module("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return torch.from_numpy(session.run(None, {"samples": samples.numpy()})[0])
    if form == "pt2":
        return torch.export.load(path).module()(samples).detach()
    return read_exported(path.parent)(samples)


def drawn(pixels: Tensor, path: Path) -> None:
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(path)


def told(folder: Path, *texts: str) -> list[str]:
    """Which of these texts stand in the files of an export."""
    found = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return [text for text in texts if text.encode() in found]


def printed(folder: Path) -> str:
    """What the snippet of a card prints, run as it stands in the folder of the card."""
    (snippet,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    script = folder.with_suffix(".py")
    script.write_text(snippet)
    with chdir(folder), redirect_stdout(StringIO()) as out:
        runpy.run_path(str(script))
    script.unlink()
    return out.getvalue()


# ------------------------------------------------------------------------------------------------------------- formats
@pytest.mark.parametrize("form", FORMATS)
def test_a_file_answers_as_the_run_does_and_its_card_says_how_to_load_it(
    form: str, run: Path, images: Tensor, tmp_path: Path
) -> None:
    trained = fairsilo.load(run)
    found = trained.export(form, tmp_path / form)
    assert (found.difference < 1e-5, found.left_out) == (True, ())
    for batch in (images[:1], images):
        torch.testing.assert_close(asked(form, found.files["global"], batch), trained.predict(batch))
    assert not list(tmp_path.glob(".*"))  # what was written beside is gone
    assert told(found.folder, *HERE, str(run)) == []
    first = trained.predict(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))[0, 0].item()
    assert re.search(rf"\[\[{first:.3f}", printed(found.folder).replace(" ", ""))


@pytest.mark.slow
def test_files_are_readable_by_whom_the_umask_lets(tmp_path: Path) -> None:
    """Neither by their owner alone, which some writers have by themselves, nor by all."""
    umask = 0o027
    before = os.umask(umask)
    try:
        run = ran(tmp_path / "run", evaluate={"keep_local": True})
        for form in FORMATS:
            fairsilo.load(run).export(form)
        pack(run, tmp_path / "run.zip")
    finally:
        os.umask(before)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in written} >= {".safetensors", ".onnx", ".pt2", ".html", ".json", ".zip"}
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        inside = {one.external_attr >> 16 & 0o777 for one in archive.infolist()}
    assert {path.stat().st_mode & 0o777 for path in written} | inside == {0o666 & ~umask}


def test_silos_have_their_own_models(run: Path, images: Tensor, tmp_path: Path) -> None:
    trained = fairsilo.load(run)
    found = trained.export("safetensors", tmp_path / "all", all_silos=True)
    assert list(found.files) == ["global", "a", "b/c"]
    assert found.files["b/c"] == tmp_path / "all" / "silos" / "b%2Fc.safetensors"
    for name, silo in (("global", None), ("a", "a"), ("b/c", "b/c")):
        assert torch.equal(read_exported(found.folder, name)(images), trained.predict(images, silo))
    assert not torch.equal(trained.predict(images, "a"), trained.predict(images))
    last = trained.export("hf", tmp_path / "one", silo="a", which="last")
    assert list(last.files) == ["a"]
    assert torch.equal(asked("hf", last.files["a"], images), trained.predict(images, "a", "last"))


def test_the_hugging_face_layout_has_a_folder_for_each_model(run: Path, tmp_path: Path) -> None:
    found = fairsilo.load(run).export("hf", tmp_path / "hf", all_silos=True)
    files = {"README.md", "config.json", "model.safetensors"}
    for place in ("global", "silos/a", "silos/b%2Fc"):
        assert {path.name for path in (found.folder / place).iterdir()} == files
    config = json.loads((found.folder / "global" / "config.json").read_text())
    assert config["id2label"] == {"0": "cat", "1": "dog", "2": "eel"}
    for place in (found.folder, found.folder / "silos" / "a"):
        assert printed(place).startswith("tensor([[")
    single = fairsilo.load(run).export("hf", tmp_path / "one", silo="a")
    assert {path.name for path in single.folder.iterdir()} == files


def test_names_of_silos_stay_inside_the_folder(tmp_path: Path) -> None:
    form = export_formats.format_of("hf")
    for name, inside in (("..", "%2E%2E"), (".", "%2E"), ("a/../b", "a%2F..%2Fb"), ("global", "global")):
        place = exporting._place(form, name, tmp_path, 2)
        assert (place.folder, place.name == "global") == (tmp_path / "silos" / inside, False)


@pytest.mark.parametrize("task", ["segment", *(pytest.param(one, marks=SLOW) for one in ("regress", "next-character"))])
def test_other_tasks_and_networks_of_ones_own(task: str, tmp_path: Path) -> None:
    ground, folder = GROUNDS[task], tmp_path / "run"
    ran(folder, federation=ground.federation(), model=ground.network, task={} if task != "regress" else {"scale": 2.0})
    trained = fairsilo.load(folder, model=ground.network)
    samples = ground.federation()["u"].test.inputs[:4]
    expected = trained.predict(samples)
    found = trained.export("pt2")
    assert found.folder == folder / "exported" / "pt2"
    torch.testing.assert_close(asked("pt2", found.files["global"], samples), expected)
    assert told(found.folder, *HERE, str(folder)) == []
    weights = trained.export("safetensors").folder
    assert torch.equal(read_exported(weights, model=ground.network)(samples), expected)
    with pytest.raises(FairsiloError, match="with a model of its own; give it: model="):
        read_exported(weights)


@SLOW
@pytest.mark.parametrize("form", ["onnx", "pt2", "hf"])
def test_the_servers_own_network_is_exported_whole(form: str, tmp_path: Path, images: Tensor) -> None:
    """FedAG: the adapters of all silos answer together; CLIP and its normalisation are in the file."""
    clip = write_clip(tmp_path / "clip")
    for place, name in enumerate("ab"):
        for label in ("cat", "dog", "eel"):
            (tmp_path / "made" / f"of {name}" / label).mkdir(parents=True)
            for number, pixels in enumerate(split(2, place).inputs):
                drawn(pixels, tmp_path / "made" / f"of {name}" / label / f"{number}.png")
    how = f"fedag(backbone=clip:{clip}, server_lr=0.05, server_batch=6)"
    data = {"synthetic": f"folder:{tmp_path / 'made'}"}
    trained = fairsilo.load(ran(tmp_path / "run", how, people("a", "b"), model="small-cnn", data=data))
    networks = {}
    for silo in (None, "a"):
        found = trained.export(form, tmp_path / "out", silo)
        ((name, file),) = found.files.items()
        torch.testing.assert_close(asked(form, file, images), trained.predict(images, silo), atol=1e-5, rtol=1e-5)
        networks[name] = read_description(found.folder)["models"][name]["network"]
        card = (found.folder / "README.md").read_text()
        assert ("a network of the server's own (AdapterBank)" in card) == (silo is None)
        assert (f"backbone=clip:{clip.name}" in card, str(tmp_path) in card) == (True, False)
        assert told(found.folder, *HERE, str(tmp_path)) == ([str(tmp_path)] if form == "hf" else [])
    assert networks == {"global": "server", "a": "silo"}


@pytest.mark.slow
def test_what_a_part_changes_of_images_is_in_the_file_or_refused(tmp_path: Path, images: Tensor) -> None:
    """HarmoFL gives images the federation's amplitude, which is no weight of the network."""
    trained = fairsilo.load(ran(tmp_path / "run", "harmofl"))
    found = trained.export("pt2")
    torch.testing.assert_close(asked("pt2", found.files["global"], images), trained.predict(images))
    with pytest.raises(FairsiloError, match="amplitude-norm changes what the network sees by"):
        trained.export("safetensors")
    assert not (trained.folder / "exported" / "safetensors").exists()


def test_a_method_without_a_global_model(tmp_path: Path) -> None:
    trained = fairsilo.load(ran(tmp_path / "run", "local"))
    with pytest.raises(FairsiloError, match="local has no global model; export with --silo or --all-silos"):
        trained.export("safetensors")
    found = trained.export("safetensors", all_silos=True)
    assert (list(found.files), found.left_out) == (["a", "b/c"], ("global",))
    assert "There is no model `global`: the method has no global model." in (found.folder / "README.md").read_text()


def test_what_only_rounds_otherwise_is_told_in_the_card(tmp_path: Path, images: Tensor) -> None:
    engine = {"channels_last": True, "convolutions": "matrices"}
    trained = fairsilo.load(ran(tmp_path / "run", engine=engine))
    found = trained.export("hf")
    torch.testing.assert_close(asked("hf", found.files["global"], images), trained.predict(images), atol=1e-5, rtol=0)
    assert "The files compute in float32" not in (found.folder / "README.md").read_text()


# ----------------------------------------------------------------------------------------------------------- the check
@pytest.mark.parametrize("form", ["pt2", "safetensors"])
def test_a_file_that_answers_otherwise_is_not_kept(
    form: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One weight of the network is changed behind the exporter's back, as a faulty converter would."""

    def corrupted(held: Any) -> nn.Module:
        next(held.model.module.parameters()).data.view(-1)[0] += 0.5
        return taken_apart(held)

    monkeypatch.setattr(exporting, "taken_apart", corrupted)
    with pytest.raises(FairsiloError, match=f"the {form} file of global answers otherwise than the run on"):
        fairsilo.load(run).export(form, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_file_for_one_size_of_batches_is_not_kept(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fixed(source: export_formats.Source) -> Any:
        return torch.export.export(source.module, (source.samples,))

    monkeypatch.setattr(export_formats, "traced", fixed)
    with pytest.raises(FairsiloError, match="the pt2 file of global cannot be used on 1 samples"):
        fairsilo.load(run).export("pt2", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_is_told_of_the_folder_that_was_asked_for(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is written elsewhere at first, into a folder that is gone when the sentence is read."""

    def lacking(source: export_formats.Source) -> None:
        save_file({"other": torch.zeros(1)}, source.place.path)

    form = dataclasses.replace(export_formats.FORMATS["safetensors"], write=lacking)
    monkeypatch.setitem(export_formats.FORMATS, "safetensors", form)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FairsiloError, match=r"^out/global\.safetensors does not fit its network"):
        fairsilo.load(run).export("safetensors", "out")

    def full(source: export_formats.Source) -> None:
        raise OSError(28, "No space left on device", str(source.place.path))

    monkeypatch.setitem(export_formats.FORMATS, "safetensors", dataclasses.replace(form, write=full))
    with pytest.raises(OSError, match="No space left") as problem:
        fairsilo.load(run).export("safetensors", "out")
    assert problem.value.filename == "out/global.safetensors"
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_cannot_be_traced_is_refused_in_a_sentence(tmp_path: Path) -> None:
    trained = fairsilo.load(ran(tmp_path / "run", model=Peeking), model=Peeking)
    with pytest.raises(FairsiloError, match="cannot be traced for batches of any size"):
        trained.export("pt2", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_onnx_cannot_express_is_refused_in_a_sentence(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such operation: aten.odd\nand pages of advice")

    monkeypatch.setattr(torch.onnx, "export", without)
    with pytest.raises(FairsiloError, match=r"cannot express \(RuntimeError: no such operation: aten.odd\); --to pt2"):
        fairsilo.load(run).export("onnx", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


class Peeking(nn.Module):
    """A network whose path depends on the values of its inputs."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.head = nn.Linear(64 * channels, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs.flatten(1)) * (2.0 if float(inputs.detach().mean()) > 0 else 1.0)


def test_differences_are_seen_where_a_model_is_certain() -> None:
    sure, wrong = torch.tensor([[30.0, 0.0, -5.0]]), torch.tensor([[30.0, 0.1, -5.0]])
    gap, allowed = difference(wrong.softmax(1), sure.softmax(1))
    assert (wrong.softmax(1) - sure.softmax(1)).abs().max() < 1e-6
    assert gap > allowed
    assert difference(sure.softmax(1), sure.softmax(1)) == (0.0, pytest.approx(1e-4))
    assert difference(torch.tensor([0.002]), torch.tensor([0.0]), 15.0)[1] == pytest.approx(1.5e-3)
    nothing = torch.tensor([float("nan")])
    assert difference(nothing, torch.zeros(1))[0] == difference(torch.zeros(2), torch.zeros(1))[0] == float("inf")


# ------------------------------------------------------------------------------------------------------------- folders
def test_an_earlier_export_is_replaced_and_nothing_else(run: Path, tmp_path: Path) -> None:
    trained, out = fairsilo.load(run), tmp_path / "out"
    trained.export("safetensors", out, all_silos=True)
    trained.export("hf", out)
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    for name in ("notes.txt", "other.safetensors", "silos"):
        (out / name).mkdir() if name == "silos" else (out / name).write_text("mine")
        with pytest.raises(FairsiloError, match=rf"holds an earlier export, and {name} is no part of it; --force"):
            trained.export("hf", out)
        exporting.export(trained, "hf", out, force=True)
    with (out / "README.md").open("a") as card:
        card.write("mine")
    with pytest.raises(FairsiloError, match=r"and README.md was edited since; --force deletes all of it"):
        trained.export("hf", out)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(FairsiloError, match="holds other things than an earlier export"):
        exporting.export(trained, "hf", run, force=True)
    with pytest.raises(FairsiloError, match="is a file; name a folder"):
        trained.export("hf", out / "notes.txt")
    assert (out / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_is_whole_or_as_it_was(inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    monkeypatch.chdir(folder if inside else tmp_path)
    node = folder.stat().st_ino
    (folder / "old").write_text("old")

    def interrupted() -> None:
        with replacing_folder(folder) as beside:
            (beside / "new").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert (folder / "old").exists()
    with replacing_folder(folder) as beside:
        (beside / "new").write_text("new")
    assert [path.name for path in folder.iterdir()] == ["new"]
    assert (folder.stat().st_ino == node) == inside  # a shell is not left in a folder that is gone
    with pytest.raises(FairsiloError, match="holds the folder that you are in"):
        exporting._refuse_others(Path.cwd().parent, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


# ------------------------------------------------------------------------------------------------------------ the card
def test_the_card_and_the_description_tell_of_the_run(run: Path, tmp_path: Path) -> None:
    found = fairsilo.load(run).export("safetensors", tmp_path / "out", all_silos=True)
    text = (found.folder / "README.md").read_text()
    summary = json.loads((run / "summary.json").read_text())
    assert f"| {100 * summary['generalisation']['mean']:.1f} %" in text
    assert f"| {100 * summary['personalisation']['mean']:.1f} %" in text
    assert f"{100 * summary['fairness']['personal']['std_silos']:.1f} points around" in text
    assert "| a | of a | 12 | 12 | 12 |" in text
    assert "| u | elsewhere | 0 (unseen) | 0 | 9 |" in text
    assert (
        "Of these each silo's own model has its own values, and the global model the mean: `features.1.weight`" in text
    )
    for line in ("## What was sent", "## Intended use and limits", "Exported on 20", "method: fedbn", "held_out:"):
        assert line in text
    assert "packed:" not in text  # places on somebody's machine
    about = json.loads((found.folder / "model.json").read_text())["fairsilo"]
    assert about["classes"] == ["cat", "dog", "eel"]
    assert about["input"] == {"name": "samples", "shape": ["batch", 3, 8, 8], "dtype": "uint8"}
    pixels = about["models"]["global"]["normalisation"]
    assert (pixels["mean"], pixels["std"], pixels["inside_the_model"]) == ([0.5], [0.5], True)


def test_the_card_says_where_results_are_of_other_models(tmp_path: Path) -> None:
    trained = fairsilo.load(ran(tmp_path / "run", "fedbn", rounds=3, evaluate={"selection": "last5"}))
    trained.memories["a"]["silo"]["best"]["round"] = 2
    summary = json.loads((trained.folder / "summary.json").read_text())
    last, best = "of round 3, its last", "its best by its validation data, of round 2"
    for rule, rounds, which, other in (
        ("last5", [1, 2, 3], "last", [f"`global`: of round 3, the last; `a`: {last}; `b/c`: {last}."]),
        ("oracle", [2], "last", [f"`global`: of round 3, the last; `a`: {last}; `b/c`: {last}.", "an upper bound"]),
        ("last", [3], "best", [f"other models: `a`: {best}"]),
        ("last", [3], "last", []),
    ):
        (trained.folder / "summary.json").write_text(json.dumps(summary | {"selection": rule, "rounds": rounds}))
        found = trained.export("safetensors", all_silos=True, which=which)
        text = (found.folder / "README.md").read_text()
        assert f"| a | `silos/a.safetensors` | {last if which == 'last' else best} |" in text
        assert ("They are not those of these files" in text) == bool(other)
        assert all(words in text for words in other)


def test_paths_are_shortened_to_their_last_names() -> None:
    assert shortened("fedag(backbone=clip:/a/b, lr=1) | x(y=~/c/d)") == "fedag(backbone=clip:b, lr=1) | x(y=d)"
    for text in ("clip:/home/me/my clip/", "clip:C:\\me\\my clip", "clip:../here/my clip"):
        assert shortened(text) == "clip:my clip"
    for text in ("clip:openai/clip", "1 / 2", "https://a.org/b", "mine.code:make"):
        assert shortened(text) == text


def test_the_card_tells_of_groups_and_takes_names_as_they_are(tmp_path: Path) -> None:
    def grouped(seed: int) -> Split:
        images = split(24, seed)
        return Split(images.inputs, images.targets, attributes={"sex": tuple("fm" * 12)})

    silos = [SiloData(name, name, *(grouped(3 * i + j) for j in range(3))) for i, name in enumerate(("x|y", "<b>"))]
    toy = Federation("toy", ("cat", "dog", "eel"), tuple(silos))
    trained = fairsilo.load(ran(tmp_path / "run", "fedavg", toy, evaluate={"groups": "sex"}))
    text = (trained.export("safetensors", all_silos=True).folder / "README.md").read_text()
    values = json.loads((tmp_path / "run" / "summary.json").read_text())["groups"]["sex"]["values"]
    assert f"| f | {values['f']['samples']} | {100 * values['f']['global']:.1f} % |" in text
    assert "Gap between the best and the worst group" in text
    assert "| x\\|y | x\\|y | 24 |" in text
    assert "<b>" not in text


def test_the_card_says_that_the_first_answer_is_that_of_an_adapted_model(tmp_path: Path) -> None:
    trained = fairsilo.load(ran(tmp_path / "run", "fedavg | tent"))
    text = (trained.export("safetensors").folder / "README.md").read_text()
    before = json.loads((tmp_path / "run" / "summary.json").read_text())["generalisation"]["unadapted"]
    assert f"The files here hold the model as it is before that, which reached {100 * before:.1f} %" in text


# --------------------------------------------------------------------------------------------------- the command line
def test_the_command_writes_and_says_where(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    code, text, _ = call(capsys, "export", str(run), "--to", "safetensors", "--out", str(out), "--silo", "a")
    assert (code, f"a: {out / 'silos' / 'a.safetensors'}" in text) == (0, True)
    (out / "notes.txt").write_text("mine")
    assert call(capsys, "export", str(run), "--to", "safetensors", "--out", str(out))[0] == 2
    code, text, _ = call(capsys, "export", str(run), "--to", "safetensors", "--out", str(out), "--json", "--force")
    assert json.loads(text)["files"] == {"global": str(out / "global.safetensors")}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{run}", "--to", "onx"], "--to is 'onx'; did you mean 'onnx'?"),
        (["{run}", "--to", "hf", "--silo", "z"], "has no silo 'z'"),
        (["{run}", "--to", "hf", "--silo", "a", "--all-silos"], "leave one of them out"),
        (["{run}", "--to", "hf", "--which", "worst"], "--which is 'worst'; it must be best or last"),
        (["nowhere", "--to", "hf"], "nowhere is no run folder"),
    ],
)
def test_wrong_input_is_refused_in_a_sentence(
    arguments: list[str], sentence: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, problem = call(capsys, "export", *(one.format(run=run) for one in arguments))
    assert (code, sentence in problem) == (2, True), problem


def test_a_missing_package_is_named_with_its_extra(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export_formats, "find_spec", lambda name: None if name == "onnxscript" else object())
    code, _, problem = call(capsys, "export", str(run), "--to", "onnx")
    assert (code, problem) == (2, 'error: --to onnx needs onnxscript: pip install "fairsilo[onnx]"\n')


def test_reading_what_is_no_export(run: Path, tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match="holds no model that `fairsilo export` wrote"):
        read_exported(run)
    folder = fairsilo.load(run).export("safetensors", tmp_path / "out", silo="a").folder
    with pytest.raises(FairsiloError, match=r"has no model 'b'; known: a"):
        read_exported(folder, "b")
    about = json.loads((folder / "model.json").read_text())
    about["fairsilo"]["plan"]["model"] = "somebody:network"
    (folder / "model.json").write_text(json.dumps(about))
    with pytest.raises(FairsiloError, match="names code that would be imported and run: somebody:network"):
        read_exported(folder)
    about["fairsilo"]["plan"]["model"] = "resnet-10"
    (folder / "model.json").write_text(json.dumps(about))
    with pytest.raises(FairsiloError, match="does not fit its network"):
        read_exported(folder)


# --------------------------------------------------------------------------------------------------------- predictions
def test_predictions_as_arrays(run: Path, images: Tensor) -> None:
    trained = fairsilo.load(run)
    found = trained.predict_proba(images.numpy(), silo="a")
    assert torch.equal(trained.predict(images.numpy(), silo="a"), trained.predict(images, silo="a"))
    assert type(found) is np.ndarray and np.array_equal(found, trained.predict(images, "a").numpy())  # noqa: PT018
    assert list(trained.classes_) == ["cat", "dog", "eel"]


def test_an_estimator_tells_classes_as_scikit_learn_does(run: Path, images: Tensor) -> None:
    from sklearn.base import clone, is_classifier, is_regressor
    from sklearn.metrics import accuracy_score
    from sklearn.utils.validation import check_is_fitted

    trained = fairsilo.load(run)
    targets = np.array([0, 1, 2, 0, 1])
    for silo in (None, "a"):
        found, shares = trained.estimator(silo), trained.predict(images, silo).numpy()
        check_is_fitted(found)
        assert (is_classifier(found), is_regressor(found), clone(found)) == (True, False, found)
        assert found.classes_.tolist() == [0, 1, 2]
        assert np.array_equal(found.predict_proba(images.numpy()), shares)
        assert np.array_equal(found.predict(images), shares.argmax(1))
        right = float((shares.argmax(1) == targets).mean())
        assert found.score(images, torch.from_numpy(targets)) == right == accuracy_score(targets, found.predict(images))
    named, words = trained.estimator("a", "last", names=True), np.array(["cat", "dog", "eel"])
    expected = words[trained.predict(images, "a", "last").argmax(1)]
    assert named.classes_.tolist() == words.tolist()
    assert named.predict(images).tolist() == expected.tolist()
    assert named.score(images, expected.tolist()) == 1.0
    assert named.get_params() == {"trained": trained, "silo": "a", "which": "last", "names": True}


def test_samples_may_be_flat_rows_and_other_types_of_numbers(run: Path, images: Tensor) -> None:
    found = fairsilo.load(run).estimator()
    expected, pixels = found.predict_proba(images), images.numpy()
    frozen = pixels.copy()
    frozen.flags.writeable = False
    for same in (pixels.reshape(5, -1), images.flatten(1).double(), pixels.astype(np.int64), frozen, pixels.tolist()):
        assert np.array_equal(found.predict_proba(same), expected)
    assert np.array_equal(found.predict_proba(pixels[::-1]), found.predict_proba(images.flip(0)))
    assert found.n_features_in_ == 192


def test_tools_of_scikit_learn_take_an_estimator_as_fitted(run: Path) -> None:
    from matplotlib import pyplot
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.inspection import permutation_importance
    from sklearn.metrics import ConfusionMatrixDisplay

    given = split(12, 5)
    found = fairsilo.load(run).estimator("a")
    pixels, targets = given.inputs.numpy(), given.targets.numpy()
    drawn_ = ConfusionMatrixDisplay.from_estimator(found, pixels, targets, display_labels=["cat", "dog", "eel"])
    assert np.trace(drawn_.confusion_matrix) == round(12 * found.score(pixels, targets))
    pyplot.close(drawn_.figure_)
    flat = pixels.reshape(12, -1)
    frozen = import_module("sklearn.frozen").FrozenEstimator(found)
    calibrated = CalibratedClassifierCV(frozen, cv=2).fit(flat, targets)
    assert np.allclose(calibrated.predict_proba(flat).sum(1), 1)
    assert permutation_importance(found, flat, targets, n_repeats=1).importances.shape == (192, 1)


def test_an_estimator_refuses_what_it_cannot_do(run: Path, images: Tensor) -> None:
    from sklearn.model_selection import cross_val_score

    trained = fairsilo.load(run)
    found, named = trained.estimator(), trained.estimator(names=True)
    with pytest.raises(FairsiloError, match="this model is trained already, and only a run trains one"):
        found.fit(images, [0, 1, 2, 0, 1])
    with pytest.raises(FairsiloError, match="this model is trained already"):
        cross_val_score(found, images.flatten(1).numpy(), [0, 1, 0, 1, 0], cv=2, error_score="raise")
    for samples, sentence in (
        (images[:, :2], "the samples are 5x2x8x8, and they must be Nx3x8x8 or Nx192, one or more"),
        (images[:0], "the samples are 0x3x8x8"),
        (torch.tensor(3.0), "the samples are a single number"),
        (images / 255, r"the run's samples were whole numbers \(uint8\), and some of these are not"),
        (images.long() + 300, "or are too large"),
        (["x"], "samples must be arrays of numbers, and these are list"),
    ):
        with pytest.raises(FairsiloError, match=sentence):
            found.predict(samples)
    with pytest.raises(FairsiloError, match="tells classes by their numbers, and these are names"):
        found.score(images, ["cat"] * 5)
    with pytest.raises(FairsiloError, match="tells classes by their names, and these are numbers"):
        named.score(images, [0] * 5)
    with pytest.raises(FairsiloError, match="has no silo 'q'"):
        trained.estimator("q")
    with pytest.raises(FairsiloError, match="which is 'worst'; it must be best or last"):
        trained.estimator("a", "worst")


@pytest.mark.slow
def test_scikit_learn_is_imported_with_the_first_estimator(run: Path) -> None:
    code = (
        "import sys, fairsilo; trained = fairsilo.load(sys.argv[1]); before = 'sklearn' in sys.modules; "
        "trained.estimator(); sys.exit(before or 'sklearn' not in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(run)], check=False).returncode == 0


def test_predictions_as_a_table(run: Path, images: Tensor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, pixels in enumerate(images):
        drawn(pixels, tmp_path / f"{number}.png")
    out, image = tmp_path / "predictions.csv", tmp_path / "0.png"
    for given, sentence in ((image, "is one of the images"), (tmp_path, "exists and is no CSV file")):
        code, _, problem = call(capsys, "predict", str(run), str(given), "--out", str(image))
        assert (code, sentence in problem, image.read_bytes()[1:4]) == (2, True, b"PNG")
    code, text, _ = call(capsys, "predict", str(run), str(tmp_path), "--out", str(out))
    assert (code, text.strip()) == (0, f"5 predictions: {out}")
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = fairsilo.load(run).predict(images)
    for number, (row, shares) in enumerate(zip(rows, expected.tolist(), strict=True)):
        assert row["path"] == str(tmp_path / f"{number}.png")
        assert row["class"] == ("cat", "dog", "eel")[int(np.argmax(shares))]
        assert [float(row[f"probability_{name}"]) for name in ("cat", "dog", "eel")] == pytest.approx(shares)


@pytest.mark.parametrize("task", ["segment", "regress"])
def test_predictions_of_other_tasks(task: str, tmp_path: Path) -> None:
    from fairsilo.runs.predictions import flattened, predictions

    ground = GROUNDS[task]
    ran(tmp_path / "run", federation=ground.federation(), model=ground.network)
    trained = fairsilo.load(tmp_path / "run", model=ground.network)
    samples = ground.federation()["u"].test.inputs[:2]
    with pytest.raises(FairsiloError, match=f"the task is {task}"):
        trained.predict_proba(samples)
    with pytest.raises(FairsiloError, match=f"the task is {task}"):
        trained.estimator(names=True)
    if task == "segment":
        with pytest.raises(FairsiloError, match="predicts a class for every pixel"):
            predictions(trained, ["x", "y"], samples, None, "best")
    else:
        rows = predictions(trained, ["x", "y"], samples, None, "best")
        assert flattened(rows)[1] == {"path": "y", "number": pytest.approx(trained.predict(samples)[1].item())}


def test_an_estimator_of_numbers_is_a_regressor(tmp_path: Path) -> None:
    from sklearn.base import is_classifier, is_regressor
    from sklearn.inspection import permutation_importance
    from sklearn.metrics import r2_score

    ground = GROUNDS["regress"]
    ran(tmp_path / "run", federation=ground.federation(), model=ground.network, task={"scale": 2.0}, rounds=3)
    trained = fairsilo.load(tmp_path / "run", model=ground.network)
    test, found = ground.federation()["a"].test, trained.estimator("a")
    rows, numbers = test.inputs.double().numpy(), test.targets.numpy()
    assert (is_classifier(found), is_regressor(found), hasattr(found, "predict_proba")) == (False, True, False)
    assert np.array_equal(found.predict(rows), trained.predict(test.inputs, "a").numpy())
    assert found.score(rows, test.targets) == pytest.approx(r2_score(numbers, found.predict(rows)))
    assert found.score(rows, found.predict(rows)) == 1.0
    moved = permutation_importance(found, rows, numbers, random_state=0).importances_mean
    assert moved[0] > moved[3]  # the first column counts, the last does not
    with pytest.raises(FairsiloError, match="the samples are 2x3, and they must be Nx4, one or more"):
        found.predict(rows[:2, :3])
