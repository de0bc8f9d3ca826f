"""Data sets read through Hugging Face's `datasets` (extra `hub`), from local repositories: nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import picture

from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, Dataset
from fairsilo.data.hub import read_hub, read_parquet
from fairsilo.data.prepared import read_prepared
from fairsilo.data.preparing import prepare
from fairsilo.data.reading import Stack
from fairsilo.errors import FairsiloError

hugging = pytest.importorskip("datasets", reason="needs the extra hub")


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `datasets` keeps goes into the test's folder, and it asks nobody."""
    monkeypatch.setattr(hugging.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(hugging.config, "HF_HUB_OFFLINE", True)
    hugging.disable_progress_bars()


def repository(folder: Path, domains: Any, **splits: int) -> Path:
    """Parquet as the Hub has it, with so many rows of each split; domains alternate, and images differ by row."""
    features = {"image": hugging.Image(), "domain": domains, "label": hugging.ClassLabel(names=["dog", "cat"])}
    names = ["photo", "sketch"]
    (folder / "data").mkdir(parents=True)
    for number, (split, count) in enumerate(splits.items()):
        rows = {
            "image": [picture(20 * number + row) for row in range(count)],
            "domain": [names[row % 2] for row in range(count)],
            "label": [row // 2 % 2 for row in range(count)],
        }
        made = hugging.Dataset.from_dict(rows, features=hugging.Features(features))
        made.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


def same(one: Dataset, other: Dataset) -> None:
    assert one.classes == other.classes
    assert list(one.domains) == list(other.domains)
    for name, domain in one.domains.items():
        assert torch.equal(domain.samples.inputs, other.domains[name].samples.inputs)
        assert torch.equal(domain.targets, other.domains[name].targets)
        assert torch.equal(domain.split, other.domains[name].split)


@pytest.mark.parametrize("named", [False, True])
def test_the_package_and_the_files_give_the_same(tmp_path: Path, named: bool) -> None:
    domains = hugging.ClassLabel(names=["photo", "sketch"]) if named else hugging.Value("string")
    folder = repository(tmp_path / "repository", domains, train=6, test=4)
    found = read_hub(str(folder), Stack(None, "squeeze"))
    assert found.classes == ("dog", "cat")
    photo = found.domains["photo"]
    assert photo.samples.inputs[:, 0, 0, 0].tolist() == [0, 2, 4, 20, 22]
    assert photo.targets.tolist() == [0, 1, 0, 0, 1]
    assert photo.split.tolist() == [TRAIN] * 3 + [TEST] * 2
    same(found, read_parquet(folder, Stack(None, "squeeze")))


def test_a_single_split_is_undecided(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repository", hugging.Value("string"), train=6)
    found = read_hub(str(folder), Stack(None, "squeeze"))
    assert found.domains["sketch"].split.tolist() == [UNDECIDED] * 3


def test_a_repository_of_image_files(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("test", 2)):
        folder = tmp_path / "repository" / split
        folder.mkdir(parents=True)
        lines = []
        for row in range(count):
            picture(row).save(folder / f"{row}.png")
            line = {"file_name": f"{row}.png", "label": "dog" if row else "cat", "domain": "ab"[row % 2]}
            lines.append(json.dumps(line))
        (folder / "metadata.jsonl").write_text("\n".join(lines))
    found = read_hub(str(tmp_path / "repository"), Stack(None, "squeeze"))
    assert found.classes == ("cat", "dog")
    assert found.domains["a"].samples.inputs[:, 0, 0, 0].tolist() == [0, 2, 0]
    assert found.domains["a"].targets.tolist() == [0, 1, 0]


def test_it_is_prepared_under_a_public_name(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repository", hugging.Value("string"), train=6)
    written = prepare("pacs", f"hub:{folder}", str(tmp_path), 8, "squeeze")
    same(read_prepared(written), read_hub(str(folder), Stack(8, "squeeze")))


def test_what_the_hub_has_not_or_has_otherwise_is_said(tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match=r"^nobody/nothing cannot be had from the Hugging Face Hub"):
        read_hub("nobody/nothing", Stack(None, "squeeze"))
    (tmp_path / "repository").mkdir()
    hugging.Dataset.from_dict({"text": ["a", "b"]}).to_parquet(tmp_path / "repository" / "train.parquet")
    with pytest.raises(FairsiloError, match="has no column 'image'; it needs image, label, domain"):
        read_hub(str(tmp_path / "repository"), Stack(None, "squeeze"))
