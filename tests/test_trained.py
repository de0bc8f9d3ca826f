"""A finished run put to use, from the library and from the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

import tiny
from fairsilo import experiment as work
from fairsilo.data.dataset import TEST, TRAIN, VALIDATION, Dataset, Domain
from fairsilo.data.newcomer import read_images, read_newcomer
from fairsilo.data.packed import write_packed
from fairsilo.errors import FairsiloError
from fairsilo.store import Store
from fairsilo.trained import Replayed, Trained
from test_cli import call

TRAIN_FAST = {"rounds": 2, "epochs": 2, "batch_size": 8, "lr": 0.1}


def domain(name: str, shift: float, seed: int, count: int = 48) -> Domain:
    split = tiny.samples(count, shift, seed)
    decided = torch.full((count,), TRAIN, dtype=torch.int8)
    decided[count // 2 : 3 * count // 4], decided[3 * count // 4 :] = VALIDATION, TEST
    images = torch.nn.functional.interpolate(split.inputs.float(), size=(8, 8)).to(torch.uint8)
    return Domain(name, images, split.targets, decided)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    names = ("ink", "paint", "stamp")
    write_packed(
        Dataset("tiny", ("0", "1", "2"), {name: domain(name, 20.0 * i, i) for i, name in enumerate(names)}), folder
    )
    return folder


def trained_run(folder: Path, packed: Path, how: str, keep_local: bool = False) -> Path:
    work.run(
        method=how,
        data={"packed": str(packed)},
        model="tiny:TinyNet",
        train=TRAIN_FAST,
        evaluate={"keep_local": keep_local},
        engine={"name": "sequential"},
        out=folder,
    )
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, packed: Path) -> Path:
    return trained_run(tmp_path_factory.mktemp("runs") / "one", packed, "fedavg", keep_local=True)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A newcomer's images as PATH/class/image, 8 x 8."""
    folder = tmp_path_factory.mktemp("clinic")
    new = domain("new", 10.0, 9, 60)
    for number, (pixels, label) in enumerate(zip(new.inputs, new.targets.tolist(), strict=True)):
        (folder / str(label)).mkdir(exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / str(label) / f"{number:03d}.png")
    return folder


def last(run: Path, silo: str, model: str, split: str = "test") -> dict[str, float]:
    return next(
        row
        for row in reversed(Store(run).rows("metrics"))
        if (row["silo"], row["model"], row["split"]) == (silo, model, split)
    )


# ------------------------------------------------------------------------------------------------------------- answers
def test_evaluating_the_unseen_domain_again_gives_the_same_numbers(run: Path, packed: Path) -> None:
    trained = Trained(run)
    rows = trained.evaluate(read_newcomer(str(packed), trained.classes, trained.size))
    found = next(row for row in rows if row["domain"] == "stamp")
    expected = last(run, "stamp", "global")
    assert (found["loss"], found["metric"], found["samples"]) == (expected["loss"], expected["metric"], 48)


def test_predictions_are_those_that_were_scored(run: Path, packed: Path) -> None:
    trained = Trained(run)
    ink = read_newcomer(str(packed), trained.classes, None)["ink"]
    tested = ink.split == TEST
    for silo, model in ((None, "global"), ("ink", "personal")):
        found = trained.predict(ink.inputs[tested], silo, "last")
        assert torch.allclose(found.sum(1), torch.ones(len(found)))
        right = (found.argmax(1) == ink.targets[tested]).double().mean()
        assert float(right) == pytest.approx(last(run, "ink", model)["metric"])


def test_the_best_model_is_the_one_with_the_best_validation(run: Path, packed: Path) -> None:
    trained = Trained(run)
    rows = [
        r
        for r in Store(run).rows("metrics")
        if (r["silo"], r["model"], r["split"]) == ("ink", "personal", "validation")
    ]
    best = max(rows, key=lambda r: (r["metric"], -r["loss"]))
    ink = read_newcomer(str(packed), trained.classes, None)["ink"]
    held = ink.split == VALIDATION
    only = {"ink": Domain("ink", ink.inputs[held], ink.targets[held], ink.split[held])}
    assert trained.evaluate(only, "ink", "best")[0]["loss"] == pytest.approx(best["loss"], rel=1e-6)


def test_any_run_can_be_adapted_afterwards(run: Path, packed: Path, tmp_path: Path) -> None:
    """Evaluating with --adapt gives what training with the adaptation composed in gives."""
    composed = trained_run(tmp_path / "composed", packed, "fedavg | dsbn")
    trained = Trained(run)
    rows = trained.evaluate(read_newcomer(str(packed), trained.classes, None), adapt="dsbn")
    found = next(row for row in rows if (row["domain"], row["model"]) == ("stamp", "adapted"))
    assert found["loss"] == pytest.approx(last(composed, "stamp", "adapted")["loss"], rel=1e-6)
    # and a run that adapts one way can be adapted another way
    other = Trained(composed).evaluate(read_newcomer(str(packed), trained.classes, None), adapt="tent")
    assert {row["model"] for row in other} == {"global", "adapted"}


@pytest.mark.parametrize(
    "how", ["fedavg", "ditto", "fedper", "fedrod", "fedbabu", "pfedme", "harmofl", "local", "iop-fl", "faa"]
)
def test_a_new_silo_joins_by_the_methods_own_rule(how: str, packed: Path, pictures: Path, tmp_path: Path) -> None:
    trained = Trained(trained_run(tmp_path / "r", packed, how))
    (new,) = read_newcomer(str(pictures), trained.classes, trained.size).values()
    found = trained.personalise("clinic", new)
    assert found["samples"] == 42  # of 60: a fifth for testing, then 15 % for validation, class by class
    assert found["personal"]["test"]["metric"] > 0.4
    own = trained.evaluate({"clinic": new}, "clinic", "last")
    assert own[0]["samples"] == 60
    again = Trained(tmp_path / "r").personalise("clinic", new)
    assert again == found
    if how == "iop-fl":
        assert {row["model"] for row in trained.evaluate({"x": new})} == {"global", "adapted"}


def test_a_newcomer_without_test_data_and_its_model_by_default(run: Path, pictures: Path) -> None:
    trained = Trained(run)
    (new,) = read_newcomer(str(pictures), trained.classes, trained.size).values()
    found = trained.personalise("bare", new, validation=0, test=0)
    assert found["personal"] == {}
    assert trained.predict(new.inputs[:2], "bare").shape == (2, 3)  # its last, as it has no best
    assert trained.evaluate({"x": new}, "bare")[0]["model"] == "bare (last)"


def test_figures_of_models_that_were_not_sent_are_refused(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match="fedper keeps head"):
        Replayed(trained_run(tmp_path / "r", packed, "fedper", keep_local=True))


def test_predicting_needs_no_training_data(packed: Path, tmp_path: Path, pictures: Path) -> None:
    moved = tmp_path / "data"
    moved.mkdir()
    for file in packed.iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    folder = trained_run(tmp_path / "r", moved, "harmofl")
    for file in moved.iterdir():
        file.unlink()
    names, pixels = read_images([pictures], 8)
    assert Trained(folder).predict(pixels, "ink").shape == (len(names), 3)


# ------------------------------------------------------------------------------------------------------------- reading
def test_newcomers_may_have_one_domain_several_or_a_few_classes(pictures: Path, tmp_path: Path) -> None:
    (name,) = read_newcomer(str(pictures), ("0", "1", "2"), 8)
    assert name == pictures.name
    for place in ("x", "y"):
        (tmp_path / place / "1").mkdir(parents=True)
        Image.new("L", (5, 9)).save(tmp_path / place / "1" / "grey.png")
    found = read_newcomer(str(tmp_path), ("0", "1", "2"), 8)
    assert {key: one.targets.tolist() for key, one in found.items()} == {"x": [1], "y": [1]}
    assert found["x"].inputs.shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda _: None, "holds no folders"),
        (
            lambda path: (path / "d" / "tree").mkdir(parents=True),
            "has the class 'tree', which the model was not trained for",
        ),
        (lambda path: (path / "0").mkdir(), "holds no image in a folder of a class"),
    ],
)
def test_what_a_newcomer_gets_wrong_is_said(make, sentence: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path)
    with pytest.raises(FairsiloError, match=sentence):
        read_newcomer(str(tmp_path), ("0", "1", "2"), 8)


def test_an_embedded_domain_is_named_with_a_colon() -> None:
    found = read_newcomer("glyphs:street", tuple("0123456789"), 16)
    assert list(found) == ["street"]
    with pytest.raises(FairsiloError, match=r"glyphs has no domain 'strete'; did you mean 'street'\?"):
        read_newcomer("glyphs:strete", tuple("0123456789"), 16)


# -------------------------------------------------------------------------------------------------------- the commands
def test_predict_prints_a_class_per_image(run: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(pictures / "0" / "000.png")
    code, out, _ = call(capsys, "predict", str(run), file, "--silo", "ink")
    assert code == 0
    assert "probability" in out
    code, out, _ = call(capsys, "predict", str(run), file, str(pictures / "1"), "--json")
    rows = json.loads(out)
    assert len(rows) == 21
    assert rows[0]["image"] == file
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)


def test_evaluate_and_personalise_print_tables(run: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "evaluate", str(run), "--data", str(pictures), "--adapt", "tent")
    assert code == 0
    assert "adapted" in out
    code, out, _ = call(capsys, "personalise", str(run), "--data", str(pictures), "--name", "clinic", "--json")
    assert code == 0
    (found,) = json.loads(out)
    assert Path(found["model"]).exists()
    code, out, _ = call(capsys, "evaluate", str(run), "--data", str(pictures), "--silo", "clinic", "--model", "last")
    assert code == 0
    assert "clinic (last)" in out


def test_figures_are_drawn_and_shown_in_the_report(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "figure", "update-consistency", str(run))
    assert code == 0
    assert {path.suffix for path in (run / "figures").iterdir()} == {".csv", ".svg", ".png", ".json"}
    assert "How steadily silos push parameters one way" in (run / "report.html").read_text(encoding="utf-8")
    code, out, _ = call(capsys, "figure", "loss-surface", str(run), "steps=3", "--json")
    assert code == 0
    assert json.loads(out)["report"].endswith("report.html")
    code, out, _ = call(capsys, "figure", "list")
    assert "t-sne" in out


def test_a_replay_gives_back_the_numbers_of_the_run(run: Path) -> None:
    replay = Replayed(run)
    after = replay.after(2)
    assert after is not None
    assert replay.loss(after, "stamp", "test") == last(run, "stamp", "global")["loss"]
    assert replay.loss(replay.local(2)["ink"], "ink", "test") == pytest.approx(
        last(run, "ink", "personal")["loss"], rel=1e-5
    )
    features, targets = replay.features(after, "ink", "test", 5)
    assert features.shape == (5, 24)
    assert torch.equal(targets, replay.features(replay.sent(1), "ink", "test", 5)[1])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["predict", "{run}", "{pictures}", "--silo", "inc"], "has no silo 'inc'; did you mean 'ink'?"),
        (["predict", "{run}", "{pictures}", "--model", "worst"], "--model is 'worst'; it must be best or last"),
        (["predict", "{run}", "nowhere.png"], "nowhere.png does not exist"),
        (["predict", "nowhere", "x.png"], "nowhere is no run folder"),
        (["evaluate", "{run}", "--data", "nowhere"], "nowhere is no folder"),
        (["evaluate", "{run}", "--data", "glyphs:street"], "glyphs size is 8, but must lie between 16 and 256 pixels"),
        (["evaluate", "{run}", "--data", "{pictures}", "--adapt", "fedprox"], "'fedprox' does not adapt at test time"),
        (
            ["evaluate", "{run}", "--data", "{pictures}", "--adapt", "tent", "--silo", "ink"],
            "leave out --silo or --adapt",
        ),
        (["personalise", "{run}", "--data", "{pictures}", "--name", "ink"], "has a silo 'ink' already"),
        (["personalise", "{run}", "--data", "{pictures}", "--test", "-0.5"], "--test is -0.5; it must be a share"),
        (["evaluate", "{run}", "--data", "{pictures}", "--adapt", "iop-fl"], "needs what silos keep during the run"),
        (["figure", "t-snee", "{run}"], "no figure is named 't-snee'; did you mean 't-sne'?"),
        (["figure", "loss-surface", "{run}", "step=3"], "loss-surface has no option 'step'; did you mean 'steps'?"),
        (["figure", "loss-surface"], "needs the folder of a run"),
    ],
)
def test_wrong_input(
    arguments: list[str], sentence: str, run: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [text.format(run=run, pictures=pictures) for text in arguments]
    code, _, errors = call(capsys, *texts)
    assert code == 2
    assert sentence in errors
    assert errors.count("\n") == 1


def test_a_run_that_kept_nothing_or_is_not_finished_says_so(packed: Path, tmp_path: Path) -> None:
    folder = trained_run(tmp_path / "r", packed, "fedavg")
    with pytest.raises(FairsiloError, match=r"evaluate\.keep_local=true"):
        Replayed(folder)
    Store(folder).write_json("run.json", {**Store(folder).read_json("run.json"), "status": "stopped"})
    with pytest.raises(FairsiloError, match="is not finished"):
        Trained(folder)


def test_images_of_another_shape_are_refused(run: Path) -> None:
    with pytest.raises(FairsiloError, match="the images are 3x6x6, and the model was trained on 3x8x8"):
        Trained(run).predict(torch.zeros(1, 3, 6, 6, dtype=torch.uint8))


def test_a_model_given_from_python_is_asked_for_again(packed: Path, tmp_path: Path) -> None:
    people = tiny.federation()
    work.run(method="fedavg", model=tiny.TinyNet, federation=people, train=TRAIN_FAST, out=tmp_path / "r")
    with pytest.raises(FairsiloError, match="with a model of its own"):
        Trained(tmp_path / "r")
    trained = Trained(tmp_path / "r", model=tiny.TinyNet)
    split = people["u"].test
    found = trained.evaluate({"u": dataclasses.replace(domain("u", 0, 0), inputs=split.inputs, targets=split.targets)})
    assert found[0]["loss"] == last(tmp_path / "r", "u", "global")["loss"]
