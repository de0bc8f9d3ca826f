"""Packed data: what was written is read back, real data are read, and files that do not fit together are refused."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairsilo.data import load
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset, Domain
from fairsilo.data.packed import read_packed, write_packed
from fairsilo.errors import FairsiloError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def sample(channels: int = 3, names: tuple[str, ...] = ("north", "south")) -> Dataset:
    """Two domains of four random images in two classes."""
    random = torch.Generator().manual_seed(5)
    domains = {
        name: Domain(
            name=name,
            inputs=torch.randint(0, 256, (4, channels, 6, 5), generator=random, dtype=torch.uint8),
            targets=torch.tensor([0, 1, 1, 0]),
            split=torch.tensor([TRAIN, VALIDATION, TEST, UNDECIDED], dtype=torch.int8),
        )
        for name in names
    }
    return Dataset("sample", ("cat", "dog"), domains)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A packed folder without faults."""
    write_packed(sample(), tmp_path / "packed")
    return tmp_path / "packed"


def change(file: Path, **changes: Any) -> None:
    """Rewrite a packed file with some arrays changed, or dropped where None."""
    with np.load(file) as archive:
        arrays = {**{name: archive[name] for name in archive.files}, **changes}
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


def refused(folder: Path, *words: object, domains: list[str] | None = None) -> None:
    """Reading must fail with one sentence that has all the words."""
    with pytest.raises(FairsiloError) as caught:
        load(packed=str(folder), domains=domains)
    message = str(caught.value)
    for word in words:
        assert str(word) in message
    assert message.endswith(".")
    assert "\n" not in message


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written = sample()
    north = replace(written.domains["north"], group=torch.tensor([7, 7, 8, 9]), silo=("one", "one", "two", "three"))
    written.domains["north"] = north
    write_packed(written, tmp_path / "new" / "packed")
    dataset = read_packed(tmp_path / "new" / "packed")
    assert dataset.name == "packed"
    assert dataset.classes == ("cat", "dog")
    assert list(dataset.domains) == ["north", "south"]
    for name, domain in dataset.domains.items():
        for field in ("inputs", "targets", "split"):
            one, other = getattr(domain, field), getattr(written.domains[name], field)
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
    again = dataset.domains["north"]
    assert again.group is not None
    assert again.group.tolist() == [7, 7, 8, 9]
    assert again.silo == ("one", "one", "two", "three")
    assert dataset.domains["south"].group is None
    assert dataset.domains["south"].silo is None
    assert sorted(file.name for file in (tmp_path / "new" / "packed").iterdir()) == ["north.npz", "south.npz"]


def test_the_embedded_data_survive_the_round_trip(
    federation: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_packed(federation, tmp_path)
    read: Counter[str] = Counter()
    plain = np.lib.npyio.NpzFile.__getitem__

    def counted(archive: Any, key: str) -> Any:
        read[key] += 1
        return plain(archive, key)

    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", counted)
    dataset = read_packed(tmp_path)
    # an archive unpacks an array each time it is asked for: once a domain, not once an image
    assert set(read.values()) == {len(federation.domains)}
    assert dataset.classes == federation.classes
    for name, domain in federation.domains.items():
        assert torch.equal(dataset.domains[name].inputs, domain.inputs)
        assert torch.equal(dataset.domains[name].split, domain.split)


def test_grey_is_replicated(tmp_path: Path) -> None:
    grey = sample(channels=1)
    write_packed(grey, tmp_path)
    inputs = read_packed(tmp_path).domains["north"].inputs
    assert torch.equal(inputs, grey.domains["north"].inputs.expand(-1, 3, -1, -1))


def test_the_files_follow_the_documented_format(folder: Path) -> None:
    with np.load(folder / "north.npz", allow_pickle=False) as archive:
        assert archive["images"].dtype == np.uint8
        assert archive["offsets"].dtype == np.int64
        assert archive["split"].tolist() == [0, 2, 1, 3]
        first = archive["images"][archive["offsets"][0] : archive["offsets"][1]].tobytes()
        assert first.startswith(b"\x89PNG")
        assert archive["classes"].tolist() == ["cat", "dog"]


def test_only_named_domains_are_read_and_resized(tmp_path: Path) -> None:
    write_packed(sample(names=("east", "north", "south")), tmp_path)
    (tmp_path / "east.npz").write_bytes(b"never opened")
    dataset = load(packed=str(tmp_path), size=8, domains=["south", "north"])
    assert list(dataset.domains) == ["north", "south"]
    assert dataset.domains["south"].inputs.shape == (4, 3, 8, 8)


def test_without_splits_all_are_undecided_and_names_become_groups(folder: Path) -> None:
    change(folder / "north.npz", split=None, subject=np.array(["b", "a", "b", "c"]))
    north = read_packed(folder).domains["north"]
    assert north.split.tolist() == [UNDECIDED] * 4
    assert north.group is not None
    assert north.group.tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label": None}, "no array 'label'"),
        ({"classes": None}, "no array 'classes'"),
        ({"label": None, "mask_bits": np.zeros((4, 4), np.uint8)}, "no array 'mask_shape'"),
        ({"label": np.array([0, 1, 2, 0])}, "label must lie between 0 and 1, but has 0 to 2"),
        ({"label": np.array([0, 1, -1, 0])}, "label must lie between 0 and 1, but has -1 to 1"),
        ({"label": np.array([0, 1, 1])}, "offsets must have 4 entries for 3 labels, not 5"),
        ({"label": np.zeros(0, np.int64)}, "at least one number"),
        ({"label": np.zeros(4)}, "label must be whole numbers, not float64"),
        ({"split": np.array([0, 1, 4, 0])}, "split must be 0 train, 1 test, 2 validation or 3 undecided, but has 4"),
        ({"split": np.array([0, 1])}, "split must have 4 entries"),
        ({"subject": np.array([0, 1])}, "subject must have 4 entries"),
        ({"offsets": np.array([0, 9, 5, 20, 30])}, "offsets must begin at 0, increase and end at"),
        ({"images": np.zeros(10, np.uint8)}, "end at 10, the length of images"),
        ({"images": np.zeros(10)}, "one row of uint8"),
        ({"classes": np.array(["cat", "cat"])}, "distinct names"),
        ({"classes": np.array(["dog", "cat"])}, "has classes dog, cat, but 'north' has cat, dog"),
    ],
)
def test_arrays_that_do_not_fit_together_are_named(folder: Path, changes: dict[str, Any], words: str) -> None:
    change(folder / "south.npz", **changes)
    refused(folder, "south", words)


def test_a_damaged_image_is_named_by_file_and_number(folder: Path) -> None:
    with np.load(folder / "south.npz") as archive:
        images, offsets = archive["images"].copy(), archive["offsets"]
    images[offsets[2] + 40 : offsets[3]] = 0
    change(folder / "south.npz", images=images)
    refused(folder, f"Image 2 of packed file {folder / 'south.npz'}", "damaged")
    images[offsets[2] : offsets[3]] = 0
    change(folder / "south.npz", images=images)
    refused(folder, f"Image 2 of packed file {folder / 'south.npz'}", "not an image")


def test_mixed_sizes_are_named(tmp_path: Path) -> None:
    dataset = sample()
    south = dataset.domains["south"]
    dataset.domains["south"] = replace(south, inputs=south.inputs[:, :, :4])
    write_packed(dataset, tmp_path)
    refused(tmp_path, "north.npz is 5 x 6", "south.npz is 5 x 4", "size=32")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04broken", pickle.dumps([1])])
def test_a_file_that_is_no_archive_is_named(folder: Path, content: bytes) -> None:
    (folder / "south.npz").write_bytes(content)
    refused(folder, folder / "south.npz", "not an intact .npz archive")


def test_a_single_array_is_no_archive(folder: Path) -> None:
    with (folder / "south.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    refused(folder, folder / "south.npz", "not an intact .npz archive")


def test_a_cut_archive_is_named(folder: Path) -> None:
    whole = (folder / "south.npz").read_bytes()
    (folder / "south.npz").write_bytes(whole[: len(whole) // 2])
    refused(folder, folder / "south.npz", "not an intact .npz archive")


def test_pickled_objects_are_never_loaded(folder: Path) -> None:
    change(folder / "south.npz", classes=np.array(["cat", None], dtype=object))
    refused(folder, folder / "south.npz", "not an intact .npz archive")


def test_folders_and_domains_that_are_not_there_are_named(folder: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "nowhere does not exist", ".npz per domain")
    refused(folder / "north.npz", "is a file, not a folder")
    refused(folder, "'nort' is not in", "did you mean 'north'", domains=["nort", "south"])
    refused(folder, "only the domain 'south'", domains=["south"])
    (folder / "north.npz").unlink()
    refused(folder, "only the domain 'south'", "at least 2")


def test_writing_refuses_what_could_not_be_read_back(tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match=r"'\.\./up' cannot be a file name"):
        write_packed(sample(names=("../up", "south")), tmp_path)
    with pytest.raises(FairsiloError, match="only grey or RGB"):
        write_packed(sample(channels=2), tmp_path)
    write_packed(sample(), tmp_path)
    with pytest.raises(FairsiloError, match=r"already holds south\.npz"):
        write_packed(sample(names=("north", "west")), tmp_path)


@pytest.mark.skipif(not (SHARED / "digits").is_dir(), reason="the shared data folder is not on this machine")
def test_reads_the_shared_digits() -> None:
    dataset = read_packed(SHARED / "digits", domains=["mnist", "svhn"])
    assert dataset.classes == tuple("0123456789")
    for domain in dataset.domains.values():
        assert domain.inputs.shape == (5220, 3, 32, 32)
        assert int((domain.split == TRAIN).sum()) == 3720
        assert int((domain.split == TEST).sum()) == 1500
        assert len(domain.targets.unique()) == 10


@pytest.mark.skipif(not (SHARED / "dermoscopy").is_dir(), reason="the shared data folder is not on this machine")
def test_subjects_become_groups() -> None:
    dataset = read_packed(SHARED / "dermoscopy", size=16, domains=["vienna_dias", "rosendahl"])
    assert dataset.domains["vienna_dias"].group is not None
