"""Packed masks: written and read back, resized with their images, and refused where they do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import picture
from test_packed import change, refused, sample

from fairsilo.data.dataset import TEST, TRAIN, Dataset, Domain
from fairsilo.data.newcomer import read_newcomer
from fairsilo.data.packed import read_packed, write_packed
from fairsilo.errors import FairsiloError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def masked(height: int = 6, width: int = 5) -> Dataset:
    random = torch.Generator().manual_seed(3)
    domains = {
        name: Domain(
            name,
            torch.randint(0, 256, (3, 3, height, width), generator=random, dtype=torch.uint8),
            torch.randint(0, 2, (3, height, width), generator=random, dtype=torch.uint8),
            torch.tensor([TRAIN, TEST, TRAIN], dtype=torch.int8),
            attributes={"scanner": ("x", "y", "x")},
        )
        for name in ("north", "south")
    }
    return Dataset("masked", ("background", "field"), domains, task="segment")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_packed(masked(), tmp_path / "lobes")
    return tmp_path / "lobes"


def test_masks_are_read_back_as_written(folder: Path) -> None:
    found = read_packed(folder)
    assert (found.task, found.classes) == ("segment", ("background", "field"))
    for name, domain in masked().domains.items():
        read = found.domains[name]
        assert torch.equal(read.targets, domain.targets)
        assert read.targets.dtype == torch.uint8
        assert torch.equal(read.samples.inputs, domain.samples.inputs)
        assert read.attributes == {"scanner": ("x", "y", "x")}


def test_without_names_the_classes_are_background_and_the_folder(folder: Path) -> None:
    for file in folder.glob("*.npz"):
        change(file, classes=None)
    assert read_packed(folder).classes == ("background", "lobes")


def test_a_mask_is_resized_with_its_image(tmp_path: Path) -> None:
    dataset = masked(4, 4)
    for domain in dataset.domains.values():
        domain.targets.zero_()
        domain.targets[:, :2, 2:] = 1
    write_packed(dataset, tmp_path / "p")
    expected = torch.zeros(8, 8, dtype=torch.uint8)
    expected[:4, 4:] = 1
    assert torch.equal(read_packed(tmp_path / "p", size=8).domains["north"].targets[0], expected)


def test_a_mask_of_another_shape_is_refused(folder: Path) -> None:
    change(folder / "south.npz", mask_shape=np.array([5, 6]))
    refused(folder, "Image 0 of packed file", folder / "south.npz", "5 x 6", "6 x 5")


def test_masks_that_do_not_fit_together_are_refused(folder: Path) -> None:
    file = folder / "north.npz"
    with np.load(file) as archive:
        bits = archive["mask_bits"]
    for changes, words in (
        ({"mask_bits": bits[:, :2]}, "4 bytes a mask of 5 x 6, not 2"),
        ({"mask_bits": bits, "mask_shape": np.array([6])}, "height and width"),
        ({"mask_shape": np.array([6, 5]), "classes": np.array(["a", "b", "c"])}, "2 classes"),
        ({"classes": np.array(["a", "b"]), "split": np.array([0, 1])}, "3 entries for 3 masks, not 2"),
    ):
        change(file, **changes)
        refused(folder, file, words)
    change(file, split=None, mask_shape=None)
    refused(folder, file, "no array 'mask_shape'")


def test_labels_in_one_domain_and_masks_in_another_are_refused(folder: Path) -> None:
    write_packed(sample(names=("west",)), folder.parent / "other")
    (folder.parent / "other" / "west.npz").rename(folder / "west.npz")
    change(folder / "west.npz", classes=np.array(["background", "field"]))
    refused(folder, "'west'", "classify", "segment")


def test_three_classes_of_masks_cannot_be_packed(tmp_path: Path) -> None:
    three = Dataset("m", ("a", "b", "c"), masked().domains, task="segment")
    with pytest.raises(FairsiloError, match="masks of two classes"):
        write_packed(three, tmp_path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
def test_real_masks_are_read() -> None:
    lung = read_packed(SHARED / "lung")
    assert {name: len(domain) for name, domain in lung.domains.items()} == {
        "jsrt": 247,
        "montgomery": 138,
        "shenzhen": 566,
    }
    assert (lung.task, lung.classes) == ("segment", ("background", "lung"))
    # both lungs cover between a tenth and a half of a chest X-ray
    assert all(0.1 < domain.targets.float().mean() < 0.5 for domain in lung.domains.values())


def test_masks_for_a_model_that_is_trained_already(folder: Path, tmp_path: Path) -> None:
    for file in folder.glob("*.npz"):
        change(file, classes=None)
    found = read_newcomer(str(folder), ("background", "lung"), None)
    assert torch.equal(found["south"].targets, masked().domains["south"].targets)
    for kind, level in (("images", 50), ("masks", 255)):
        (tmp_path / "clinic" / kind).mkdir(parents=True)
        picture(level).save(tmp_path / "clinic" / kind / "1.png")
    for place, name in ((tmp_path / "clinic", "clinic"), (tmp_path, "clinic")):
        if place == tmp_path:
            (tmp_path / "lobes" / "north.npz").unlink()
            (tmp_path / "lobes" / "south.npz").unlink()
            (tmp_path / "lobes").rmdir()
        (one,) = read_newcomer(str(place), ("background", "lung"), None).values()
        assert (one.name, one.targets.sum().item()) == (name, 64)
