"""A finished run put to use, from the library and from the command line."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

import test_cli
import tiny
from fairsilo import api
from fairsilo.core.output import Output
from fairsilo.core.samples import Split
from fairsilo.core.silo import prepare
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset, Domain
from fairsilo.data.newcomer import read_images, read_newcomer
from fairsilo.data.packed import write_packed
from fairsilo.errors import FairsiloError
from fairsilo.models.clip_networks import AdapterBank
from fairsilo.runs import replayed
from fairsilo.runs import trained as using
from fairsilo.runs.saved import SavedRun
from tiny_backbones import write_clip

Trained, Replayed = (
    partial(one, trust=True) for one in (using.Trained, replayed.Replayed)
)  # tiny:TinyNet is named code


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """As a user who trusts the folder, which names the network tiny:TinyNet."""
    return test_cli.call(capsys, *arguments, "--trust")


TRAIN_FAST = {"rounds": 2, "epochs": 2, "batch_size": 8, "lr": 0.1}


def domain(name: str, shift: float, seed: int, count: int = 48) -> Domain:
    split = tiny.samples(count, shift, seed)
    decided = torch.full((count,), TRAIN, dtype=torch.int8)
    decided[count // 2 : 3 * count // 4], decided[3 * count // 4 :] = VALIDATION, TEST
    images = F.interpolate(split.inputs.float(), size=(8, 8)).to(torch.uint8)
    return Domain(name, images, split.targets, decided)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    names = ("ink", "paint", "stamp")
    write_packed(
        Dataset("tiny", ("0", "1", "2"), {name: domain(name, 20.0 * i, i) for i, name in enumerate(names)}), folder
    )
    return folder


def trained_run(folder: Path, packed: Path, how: str, keep_local: bool = False, **data: Any) -> Path:
    api.run(
        method=how,
        data={"packed": str(packed), **data},
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
    return write_pictures(tmp_path_factory.mktemp("clinic"), domain("new", 10.0, 9, 60))


def write_pictures(folder: Path, new: Domain) -> Path:
    for number, (pixels, label) in enumerate(zip(new.inputs, new.targets.tolist(), strict=True)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / str(label) / f"{number:03d}.png")
    return folder


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory, packed: Path) -> Path:
    """A run of FedAG by ink and paint, which kept no local models."""
    folder = tmp_path_factory.mktemp("adapters")
    for place, name in enumerate(("ink", "paint")):
        write_pictures(folder / "made" / name, domain(name, 20.0 * place, 50 + place, 12))
    how = f"fedag(backbone=clip:{write_clip(folder / 'clip')}, server_lr=0.05, server_batch=6)"
    return trained_run(folder / "run", packed, how, synthetic=f"folder:{folder / 'made'}", synthetic_share=0.5)


def last(run: Path, silo: str, model: str, split: str = "test") -> dict[str, float]:
    return next(
        row
        for row in reversed(SavedRun(run).rows("metrics"))
        if (row["silo"], row["model"], row["split"]) == (silo, model, split)
    )


# ------------------------------------------------------------------------------------------------------------- answers
def test_evaluating_the_unseen_domain_again_gives_the_same_numbers(run: Path, packed: Path) -> None:
    trained = Trained(run)
    rows = trained.evaluate(read_newcomer(str(packed), trained.classes, trained.size))
    found = next(row for row in rows if row["domain"] == "stamp")
    expected = last(run, "stamp", "global")
    assert (found["loss"], found["metric"], found["samples"]) == (expected["loss"], expected["metric"], 48)


def test_samples_may_be_a_split(run: Path, packed: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "r")
    trained = Trained(tmp_path / "r")
    domain = read_newcomer(str(packed), trained.classes, trained.size)["stamp"]
    split = Split(domain.inputs, domain.targets)
    assert trained.evaluate({"x": split}) == trained.evaluate({"x": domain})
    undecided = dataclasses.replace(domain, split=torch.full_like(domain.split, UNDECIDED))
    found, expected = trained.personalise("one", split), trained.personalise("two", undecided)
    assert found["samples"] == expected["samples"]
    assert found["global"] != found["personal"]
    with pytest.raises(FairsiloError, match="the images are 3x4x4, and the model was trained on 3x8x8"):
        trained.evaluate({"x": Split(torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.long))})


def test_samples_that_the_run_has_seen_are_counted(run: Path, packed: Path, pictures: Path) -> None:
    """Half of each domain was trained on and a quarter used for validation; the held-out one and a clinic are new."""
    trained = Trained(run)
    rows = trained.evaluate(read_newcomer(str(packed), trained.classes, None), adapt="tent")
    found = {(row["domain"], row["model"]): row["seen"] for row in rows}
    assert found["ink", "global"] == found["paint", "adapted"] == {"training": 24, "validation": 12}
    assert found["stamp", "global"] == found["stamp", "adapted"] == {"training": 0, "validation": 0}
    (row,) = trained.evaluate(read_newcomer(str(pictures), trained.classes, None))
    assert row["seen"] == {"training": 0, "validation": 0}


def test_evaluate_says_what_was_seen(run: Path, packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "evaluate", str(run), "--data", str(packed))
    told = [line for line in out.splitlines() if "no new data" in line]
    assert told == [
        f"{name} is no new data for this run: 24 of 48 were trained on and 12 of 48 were used for validation"
        for name in ("ink", "paint")
    ]
    _, out, _ = call(capsys, "evaluate", str(run), "--data", str(packed), "--json")
    assert [row["seen"]["training"] for row in json.loads(out)] == [24, 24, 0]


def test_a_run_without_a_record_of_its_samples_says_nothing_of_them(run: Path, packed: Path, tmp_path: Path) -> None:
    older = Path(shutil.copytree(run, tmp_path / "older"))
    (older / "seen.safetensors").unlink()
    rows = Trained(older).evaluate(read_newcomer(str(packed), ("0", "1", "2"), None))
    assert [row["seen"] for row in rows] == [None] * 3


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
        for r in SavedRun(run).rows("metrics")
        if (r["silo"], r["model"], r["split"]) == ("ink", "personal", "validation")
    ]
    best = max(rows, key=lambda r: (r["metric"], -r["loss"]))
    ink = read_newcomer(str(packed), trained.classes, None)["ink"]
    held = ink.split == VALIDATION
    only = {"ink": Domain("ink", ink.inputs[held], ink.targets[held], ink.split[held])}
    assert trained.evaluate(only, "ink", "best")[0]["loss"] == pytest.approx(best["loss"], rel=1e-6)
    with pytest.raises(FairsiloError, match="which is 'worst'; it must be best or last"):
        trained.predict(ink.inputs[held], "ink", "worst")
    with pytest.raises(FairsiloError, match="which is 'worst'"):
        trained.predict(ink.inputs[held], which="worst")


def test_any_run_can_be_adapted_afterwards(run: Path, packed: Path, tmp_path: Path) -> None:
    """Evaluating with --adapt gives what training with the adaptation composed in gives."""
    composed = trained_run(tmp_path / "composed", packed, "fedavg | dsbn")
    trained = Trained(run)
    rows = trained.evaluate(read_newcomer(str(packed), trained.classes, None), adapt="dsbn")
    found = next(row for row in rows if (row["domain"], row["model"]) == ("stamp", "adapted"))
    assert found["loss"] == pytest.approx(last(composed, "stamp", "adapted")["loss"], rel=1e-6)
    assert trained.adapt({"stamp": read_newcomer(str(packed), trained.classes, None)["stamp"]}, "dsbn")[1] == found
    # and a run that adapts one way can be adapted another way
    other = Trained(composed).evaluate(read_newcomer(str(packed), trained.classes, None), adapt="tent")
    assert {row["model"] for row in other} == {"global", "adapted"}


@pytest.mark.one_in(3)
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
    with pytest.raises(FairsiloError, match=r"'clinic' has joined already, and .* is its model; choose another name"):
        trained.personalise("clinic", new)
    kept = Path(found["model"]).read_bytes()
    Path(found["model"]).unlink()
    again = Trained(tmp_path / "r").personalise("clinic", new)
    assert Path(again["model"]).read_bytes() == kept
    assert again == found
    if how == "iop-fl":
        assert {row["model"] for row in trained.evaluate({"x": new})} == {"global", "adapted"}


def test_a_newcomer_trains_at_the_whole_rate_whatever_the_schedule(run: Path, pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "r")
    config = tmp_path / "r" / "config.yaml"
    written = config.read_text()
    assert "lr_schedule: constant" in written
    config.write_text(written.replace("lr_schedule: constant", "lr_schedule: cosine"))
    one, other = Trained(run), Trained(tmp_path / "r")
    (new,) = read_newcomer(str(pictures), one.classes, one.size).values()
    assert other.plan.training.at(2).lr == pytest.approx(other.plan.training.lr / 2)
    assert one.personalise("late", new)["personal"] == other.personalise("late", new)["personal"]


def test_a_newcomer_without_test_data_and_its_model_by_default(run: Path, pictures: Path) -> None:
    trained = Trained(run)
    (new,) = read_newcomer(str(pictures), trained.classes, trained.size).values()
    found = trained.personalise("bare", new, validation=0, test=0)
    assert found["personal"] == {}
    assert trained.predict(new.inputs[:2], "bare").shape == (2, 3)  # its last, as it has no best
    assert trained.evaluate({"x": new}, "bare")[0]["model"] == "bare (last)"


def test_figures_of_models_that_were_not_sent_are_refused(packed: Path, tmp_path: Path) -> None:
    replay = Replayed(trained_run(tmp_path / "r", packed, "fedper", keep_local=True))
    with pytest.raises(FairsiloError, match="fedper keeps head"):
        _ = replay.rounds


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


# ----------------------------------------------------------------------------------------------------------- attention
@torch.no_grad()
def asked(run: Path, images: Tensor) -> tuple[Tensor, Tensor]:
    """Every adapter's answer (silos x images x classes) and the attention, from the saved model alone."""
    flat = Trained(run).plan.server_flat()
    assert flat is not None
    flat.load(flat.layout.pack(SavedRun(run).read_model(("global",))))
    bank = flat.module
    assert isinstance(bank, AdapterBank)
    phi = bank.logits(bank.adapted(bank.stem(prepare(images, torch.device("cpu"), torch.float32))))
    return phi, bank.attend(phi)


def test_attention_is_that_of_the_adapters_in_the_order_of_the_silos(adapters: Path, packed: Path) -> None:
    trained = Trained(adapters)
    domains = read_newcomer(str(packed), trained.classes, None)
    stamp = domains["stamp"].inputs
    trained.plan = dataclasses.replace(trained.plan, evaluation_batch=20)  # 48 images in three batches
    found, (phi, beta) = trained.attention(stamp), asked(adapters, stamp)
    assert found is not None
    torch.testing.assert_close(found, beta)
    torch.testing.assert_close(found.sum(1), torch.ones(48))
    assert float((found[:, 0] - found[:, 1]).abs().min()) > 1e-3  # so that columns cannot be confused
    torch.testing.assert_close(trained.predict(stamp), torch.einsum("is,sic->ic", found, phi).softmax(1))
    for place, silo in enumerate(trained.silos):  # a column is the adapter that answers at the silo of that name
        home = domains[silo]
        own = asked(adapters, home.inputs[home.split == TEST])[0][place]
        loss = float(F.cross_entropy(own, home.targets[home.split == TEST]))
        assert loss == pytest.approx(last(adapters, silo, "global")["loss"], rel=1e-5)


def test_only_a_server_with_adapters_has_attention(
    run: Path, adapters: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = domain("new", 0, 0).inputs
    assert Trained(run).attention(images) is None
    about_pixels = {"attention": torch.ones(len(images), 2)}
    monkeypatch.setattr(tiny.TinyNet, "forward", lambda net, x: Output(net.head(net.features(x)), None, about_pixels))
    assert Trained(run).attention(images) is None  # a silo's own network may mean something else by it
    monkeypatch.setattr(AdapterBank, "tail", lambda bank, x: Output(bank.logits(bank.adapted(x)).mean(0)))
    assert Trained(adapters).attention(images) is None


def test_the_figure_of_attention_needs_no_local_models(
    adapters: Path, packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capsys, "figure", "all", str(adapters), "--json")
    assert code == 0
    written = [Path(path).name for path in json.loads(out)["files"]]
    assert written == [f"attention.{kind}" for kind in ("csv", "svg", "png", "json")]
    assert "Whose adapters answer for each domain" in (adapters / "report.html").read_text(encoding="utf-8")
    with (adapters / "figures" / "attention.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = []
    for name, one in read_newcomer(str(packed), ("0", "1", "2"), None).items():
        unseen = name == "stamp"  # of which all samples are for testing
        beta = asked(adapters, one.inputs if unseen else one.inputs[one.split == TEST])[1]
        means = zip(("ink", "paint"), beta.mean(0).tolist(), strict=True)
        expected += [(name, str(unseen), str(len(beta)), silo, pytest.approx(mean, rel=1e-5)) for silo, mean in means]
    assert [(*list(row.values())[:4], float(row["mean_attention"])) for row in rows] == expected
    code, _, errors = call(capsys, "figure", "t-sne", str(adapters))
    assert (code, errors.count("\n")) == (2, 1)
    assert "with the global one, which is another network in fedag" in errors


def test_silos_of_one_domain_give_one_bar_and_a_shared_test_set_counts_once(adapters: Path) -> None:
    people = Replayed(adapters).federation
    ink, paint = people.silos
    together = [dataclasses.replace(silo, domain="press") for silo in (ink, paint)]
    apart = Replayed(adapters, federation=dataclasses.replace(people, silos=tuple(together)))
    assert apart.domains == {"press": False, "stamp": True}
    images = torch.cat([ink.test.inputs, paint.test.inputs])
    torch.testing.assert_close(apart.attention("press"), asked(adapters, images)[1])
    together[1] = dataclasses.replace(together[1], test=ink.test)
    shared = Replayed(adapters, federation=dataclasses.replace(people, silos=tuple(together)))
    torch.testing.assert_close(shared.attention("press"), asked(adapters, ink.test.inputs)[1])


def test_predict_says_whose_adapters_answered(
    adapters: Path, run: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(pictures / "0" / "000.png")
    (row,) = json.loads(call(capsys, "predict", str(adapters), file, "--json")[1])
    ((ink, paint),) = asked(adapters, read_images([Path(file)], 8)[1])[1].tolist()
    assert row["attention"] == pytest.approx({"ink": ink, "paint": paint}, rel=1e-5)
    shares = [f"ink {100 * ink:.0f} %", f"paint {100 * paint:.0f} %"]
    said = ", ".join(shares if ink > paint else reversed(shares))  # the adapter that counts most comes first
    code, out, _ = call(capsys, "predict", str(adapters), file)
    assert code == 0
    assert said in out
    for others in ((str(adapters), file, "--silo", "ink"), (str(run), file)):
        assert "attention" not in json.loads(call(capsys, "predict", *others, "--json")[1])[0]
        assert "attention" not in call(capsys, "predict", *others)[1].replace(file, "")


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
            "has the class 'tree', which is none of the model's",
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
        (["predict", "{run}", "{pictures}", "--model", "worst"], "--which is 'worst'; it must be best or last"),
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
        (["figure", "attention", "{run}"], "fedavg has no attention between silos' adapters, as fedag has"),
        (["figure", "attention", "{run}", "split=test"], "attention has no options"),
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
        _ = Replayed(folder).rounds
    SavedRun(folder).write_json("run.json", {**SavedRun(folder).read_json("run.json"), "status": "stopped"})
    with pytest.raises(FairsiloError, match=r"stopped before its end .*`fairsilo resume "):
        Trained(folder)


def test_images_of_another_shape_are_refused(run: Path) -> None:
    with pytest.raises(FairsiloError, match="the images are 3x6x6, and the model was trained on 3x8x8"):
        Trained(run).predict(torch.zeros(1, 3, 6, 6, dtype=torch.uint8))


@pytest.mark.slow
def test_a_model_given_from_python_is_asked_for_again(packed: Path, tmp_path: Path) -> None:
    people = tiny.federation()
    api.run(method="fedavg", model=tiny.TinyNet, federation=people, train=TRAIN_FAST, out=tmp_path / "r")
    with pytest.raises(FairsiloError, match="with a model of its own"):
        Trained(tmp_path / "r")
    trained = Trained(tmp_path / "r", model=tiny.TinyNet)
    split = people["u"].test
    found = trained.evaluate({"u": dataclasses.replace(domain("u", 0, 0), inputs=split.inputs, targets=split.targets)})
    assert found[0]["loss"] == last(tmp_path / "r", "u", "global")["loss"]
