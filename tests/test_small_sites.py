"""Sites as hospitals have them: a class that one lacks, a handful of images, a single one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fairsilo
from fairsilo.core.samples import SiloData, Split
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset, Domain
from fairsilo.data.describe import describe, notes_of
from fairsilo.data.federation import Federation, federate
from fairsilo.engine.events import Event
from fairsilo.errors import FairsiloError
from test_cli import call

CLASSES = ("benign", "malignant")


def domain(name: str, labels: Sequence[int], group: Sequence[int] | None = None, **known: Tensor) -> Domain:
    stream = torch.Generator().manual_seed(len(labels))
    inputs = torch.randint(0, 256, (len(labels), 3, 8, 8), dtype=torch.uint8, generator=stream)
    split = known.get("split", torch.full((len(labels),), UNDECIDED, dtype=torch.int8))
    return Domain(name, inputs, torch.tensor(labels), split, None if group is None else torch.tensor(group))


def dataset(*domains: Domain, classes: tuple[str, ...] = CLASSES) -> Dataset:
    return Dataset("sites", classes, {one.name: one for one in domains})


USUAL = domain("a", [0, 1] * 20)
HELD_OUT = domain("c", [0, 1] * 10)


# --------------------------------------------------------------------------------------------------- a class is missing
def test_a_class_missing_at_one_site_is_accepted_and_said() -> None:
    made = federate(dataset(USUAL, domain("b", [0] * 20), HELD_OUT))
    assert set(notes_of(made)) == {
        "silo 'b' has no training sample of 'malignant'",
        "silo 'b' has no test sample of 'malignant'; balanced accuracy there is the mean over the other classes",
        "silo 'b' is tested on 4 samples: a metric there says little",
        "silo 'a' is tested on 8 samples: a metric there says little",
    }


def test_ordinary_sites_are_not_worth_a_note() -> None:
    assert notes_of(federate(dataset(domain("a", [0, 1] * 40), domain("b", [0, 1] * 40), HELD_OUT))) == []


def test_a_class_that_only_the_held_out_domain_has_is_refused() -> None:
    with pytest.raises(FairsiloError, match="class 'malignant' is in the held-out domain 'c', and no silo that trains"):
        federate(dataset(domain("a", [0] * 20), domain("b", [0] * 20), HELD_OUT))


def test_a_class_without_training_samples_anywhere_is_refused() -> None:
    split = torch.tensor([TRAIN, VALIDATION, TEST, TRAIN, TEST], dtype=torch.int8)
    with pytest.raises(FairsiloError, match="class 'malignant' has test samples at silo 'a', and no silo has a train"):
        federate(dataset(domain("a", [0, 0, 0, 0, 1], split=split), domain("c", [0] * 4)))


def test_a_class_that_nobody_has_is_no_obstacle() -> None:
    made = federate(dataset(USUAL, HELD_OUT, classes=(*CLASSES, "unclear")))
    assert "silo 'a' has no training sample of 'unclear'" in notes_of(made)


# ------------------------------------------------------------------------------------------------------ little is there
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_handful_of_images_always_leaves_one_to_train_on(count: int, share: float) -> None:
    made = federate(dataset(USUAL, domain("b", [0] * count), HELD_OUT), test=share, validation=share)
    silo = made["b"]
    assert len(silo.train) >= 1
    assert len(silo.train) + len(silo.validation) + len(silo.test) == count


def test_what_a_single_image_leaves_unmeasured_is_said() -> None:
    made = federate(dataset(USUAL, domain("b", [1]), HELD_OUT))
    assert "silo 'b' has 1 training sample and none for validation and test; no model is measured there" in notes_of(
        made
    )


def test_a_held_out_domain_of_one_image_is_said() -> None:
    made = federate(dataset(USUAL, domain("c", [1])))
    assert "silo 'c' is tested on 1 sample: a metric there says little" in notes_of(made)


def test_the_only_patient_of_a_site_is_trained_on() -> None:
    """Its images stay together, so that a share of them for testing would be all of them."""
    silo = federate(dataset(USUAL, domain("b", [0, 0, 0, 1, 1], [7] * 5), HELD_OUT))["b"]
    assert (len(silo.train), len(silo.validation), len(silo.test)) == (5, 0, 0)


def test_a_small_holder_within_a_domain_keeps_a_training_sample() -> None:
    """Twenty holders with two images each: a share of the whole domain would take both of some."""
    one = domain("b", [0, 1] * 20)
    held = Domain("b", one.inputs, one.targets, one.split, silo=tuple(f"s{i // 2:02d}" for i in range(40)))
    made = federate(dataset(USUAL, held, HELD_OUT), test=0.5, validation=0.5)
    sizes = [len(silo.train) for silo in made.silos if silo.domain == "b"]
    assert len(sizes) == 20
    assert min(sizes) == 1


def test_shares_are_kept_where_there_is_enough() -> None:
    silo = federate(dataset(domain("a", [0] * 50 + [1] * 50), HELD_OUT), test=0.2, validation=0.25)["a"]
    assert (len(silo.train), len(silo.validation), len(silo.test)) == (60, 20, 20)
    for split, each in ((silo.train, 30), (silo.validation, 10), (silo.test, 10)):
        assert torch.bincount(split.targets).tolist() == [each, each]


# ----------------------------------------------------------------------------------------------------------- whole runs
def test_a_run_with_a_single_image_at_one_site_says_so_and_ends(tmp_path: Path) -> None:
    people = federate(dataset(USUAL, domain("b", [1]), HELD_OUT))
    said: list[Event] = []
    settings = {"method": "fedavg", "rounds": 1, "epochs": 1, "engine": {"name": "sequential"}}
    result = fairsilo.run(federation=people, out=tmp_path / "run", listener=said.append, **settings)
    notes = [event.text for event in said if event.kind == "note"]
    expected = "silo 'b' has 1 training sample and none for validation and test; no model is measured there"
    assert expected in notes
    assert json.loads((result.folder / "run.json").read_text())["notes"] == notes
    rows = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    assert {row["silo"] for row in rows} == {"a", "c"}
    assert (result.folder / "report.html").exists()


def test_rows_tell_a_class_without_samples_from_one_that_is_always_wrong(tmp_path: Path) -> None:
    people = federate(dataset(USUAL, domain("b", [0] * 20), HELD_OUT))
    settings = {"method": "fedavg", "rounds": 1, "epochs": 1, "engine": {"name": "sequential"}}
    folder = fairsilo.run(federation=people, out=tmp_path / "run", **settings).folder
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        right, samples = row["per_class"]["right"], row["per_class"]["samples"]
        assert sum(samples) == row["samples"]
        shares = [r / n for r, n in zip(right, samples, strict=True) if n]
        assert row["metrics"]["balanced-accuracy"] == pytest.approx(sum(shares) / len(shares))
        assert row["metric"] == row["metrics"]["accuracy"] == pytest.approx(sum(right) / sum(samples))
        assert (samples[1] == 0) == (row["silo"] == "b")


# ----------------------------------------------------------------------------------------------------------- described
def test_data_are_described_with_what_they_lack() -> None:
    facts = describe(dataset(USUAL, domain("b", [0, 0])))
    assert facts["domains"]["a"] == {"train": 0, "validation": 0, "test": 0, "undecided": 40}
    assert facts["notes"] == ["domain 'b' has no sample of 'malignant'", "domain 'b' has 2 samples in all"]


def test_a_users_own_folder_is_described_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    for place in ("a/benign", "a/malignant", "b[/x]/benign"):
        folder = tmp_path.joinpath("data", *place.replace("[/x]", "[x]").split("/"))
        folder.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(folder / "0.png")
    _, out, _ = call(capsys, "datasets", str(tmp_path / "data"))
    assert "b[x]: 0 train, 0 validation, 0 test, 1 undecided" in out
    assert "domain 'b[x]' has no sample of 'malignant'" in out


def test_samples_of_different_shapes_are_refused() -> None:
    def silo(name: str, size: int) -> SiloData:
        split = Split(torch.zeros(2, 1, size, size), torch.tensor([0, 1]))
        return SiloData(name, name, split, split, split)

    with pytest.raises(FairsiloError, match="silo 'b' has samples of 1x9x9, and silo 'a' of 1x8x8"):
        Federation("mixed", CLASSES, (silo("a", 8), silo("b", 9)))
