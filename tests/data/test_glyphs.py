"""The embedded data set: complete, reproducible, free of leaks, and with a real shift between its domains."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairsilo.data import glyphs as drawn
from fairsilo.data import load
from fairsilo.data.dataset import SPLITS, TEST, TRAIN, VALIDATION, Dataset, Domain
from fairsilo.data.embedded import DATASETS
from fairsilo.data.glyphs import FONTS, HANDWRITTEN, ORIGINALS, _handwriting, _type, glyphs
from fairsilo.errors import FairsiloError

NAMES = ("scan", "photo", "print", "sketch", "street")


def test_has_five_domains_of_colour_images(federation: Dataset) -> None:
    assert tuple(federation.domains) == NAMES
    assert federation.classes == tuple("0123456789")
    assert federation.name in DATASETS
    for name, domain in federation.domains.items():
        assert domain.name == name
        assert domain.inputs.shape == (1000, 3, 32, 32)
        assert domain.inputs.dtype == torch.uint8
        assert domain.targets.dtype == torch.int64
        assert domain.split.dtype == torch.int8
        assert domain.inputs.is_contiguous()


@pytest.mark.parametrize("name", NAMES)
def test_every_split_has_every_class_in_equal_numbers(federation: Dataset, name: str) -> None:
    domain = federation.domains[name]
    sizes = {split: torch.bincount(domain.targets[domain.split == split]) for split in (TRAIN, VALIDATION, TEST)}
    assert sizes[TRAIN].tolist() == [62] * 10
    assert sizes[VALIDATION].tolist() == [13] * 10
    assert sizes[TEST].tolist() == [25] * 10


def test_no_original_is_in_two_domains(federation: Dataset) -> None:
    seen: set[int] = set()
    for domain in federation.domains.values():
        groups = set(_groups(domain).tolist())
        assert not seen & groups
        seen |= groups
    assert seen == set(range(ORIGINALS + 10 * sum(map(len, FONTS.values()))))  # and none is wasted


@pytest.mark.parametrize("name", NAMES)
def test_no_original_crosses_splits(federation: Dataset, name: str) -> None:
    domain = federation.domains[name]
    for one, other in ((TRAIN, VALIDATION), (TRAIN, TEST), (VALIDATION, TEST)):
        assert not set(_groups(domain, one).tolist()) & set(_groups(domain, other).tolist())


@pytest.mark.parametrize("name", ["print", "street"])
def test_no_font_crosses_splits(federation: Dataset, name: str) -> None:
    domain = federation.domains[name]
    fonts = [set(((_groups(domain, split) - ORIGINALS) // 10).tolist()) for split in (TRAIN, VALIDATION, TEST)]
    assert sum(map(len, fonts)) == len(set.union(*fonts)) == len(FONTS[name])


def test_the_files_of_scikit_learn_are_read_as_its_own_loaders_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loaders are asked where a release keeps the files elsewhere."""
    (shapes, labels), photographs = _handwriting(), drawn._photographs()
    monkeypatch.setattr(drawn, "_shipped", {}.get)
    there, also = _handwriting.__wrapped__()
    assert torch.equal(shapes, there)
    np.testing.assert_array_equal(labels, also)
    for one, other in zip(photographs, drawn._photographs.__wrapped__(), strict=True):
        assert torch.equal(one, other)


def test_labels_are_those_of_the_originals(federation: Dataset) -> None:
    _, labels = _handwriting()
    for name in HANDWRITTEN:
        domain = federation.domains[name]
        np.testing.assert_array_equal(domain.targets.numpy(), labels[_groups(domain).numpy()])


@pytest.mark.parametrize("name", ["print", "street"])
def test_every_printed_figure_is_ink_inside_its_square_and_unlike_the_others(name: str) -> None:
    figures = _type(name).flatten(1)
    assert 0.03 < float(figures.mean(1).min()) < float(figures.mean(1).max()) < 0.6
    frame = _type(name).clone()
    frame[:, :, 2:-2, 2:-2] = 0
    assert float(frame.sum()) == 0
    # A font without digits would draw the same box, or nothing, ten times.
    for font in figures.reshape(-1, 10, figures.shape[1]):
        assert float((torch.cdist(font, font) + 100 * torch.eye(10)).min()) > 5


def test_the_same_seed_gives_the_same_images_whatever_the_global_state(federation: Dataset) -> None:
    np.random.seed(7)
    torch.manual_seed(7)
    random.seed(7)
    again = glyphs(0)
    for name, domain in federation.domains.items():
        other = again.domains[name]
        assert torch.equal(domain.inputs, other.inputs)
        assert torch.equal(domain.targets, other.targets)
        assert torch.equal(domain.split, other.split)
        assert torch.equal(_groups(domain), _groups(other))


def test_the_global_state_is_left_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    glyphs(3, per_domain=100)
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])
    assert before[2] == random.getstate()


def test_another_seed_gives_other_images_and_other_splits() -> None:
    one, other = glyphs(0, per_domain=100), glyphs(1, per_domain=100)
    for name in NAMES:
        assert not torch.equal(one.domains[name].inputs, other.domains[name].inputs)
        assert set(_groups(one.domains[name], TEST).tolist()) != set(_groups(other.domains[name], TEST).tolist())


def test_two_renderings_of_one_original_differ(federation: Dataset) -> None:
    for domain in federation.domains.values():
        group = _groups(domain)
        twice = int(torch.bincount(group).argmax())
        first, second, *_ = domain.inputs[group == twice]
        assert not torch.equal(first, second)


@pytest.mark.parametrize(("size", "count"), [(16, 103), (48, 200)])
def test_other_sizes_keep_all_classes_in_every_split(size: int, count: int) -> None:
    for domain in glyphs(size=size, per_domain=count).domains.values():
        assert domain.inputs.shape == (count, 3, size, size)
        for split in range(len(SPLITS)):
            assert len(domain.targets[domain.split == split].unique()) == 10


@pytest.mark.parametrize(("arguments", "words"), [({"size": 8}, "size is 8"), ({"per_domain": 20}, "is 20")])
def test_arguments_out_of_range_are_refused(arguments: dict[str, int], words: str) -> None:
    with pytest.raises(FairsiloError, match=words):
        glyphs(**arguments)


def test_load_takes_it_by_name_size_seed_and_domains() -> None:
    dataset = load("glyphs", size=16, seed=2, domains=["street", "scan"])
    assert list(dataset.domains) == ["scan", "street"]
    assert torch.equal(dataset.domains["scan"].inputs, glyphs(2, 16).domains["scan"].inputs)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "exactly one of name, folder, index and packed, but given: none"),
        ({"name": "glyphs", "folder": "here"}, "given: name='glyphs', folder='here'"),
        ({"name": "glyfs"}, "unknown data set 'glyfs'; did you mean 'glyphs'?"),
        ({"name": "glyphs", "domains": ["scan", "phto"]}, "'phto' is not in .*did you mean 'photo'"),
        ({"name": "glyphs", "domains": ["scan"]}, "only the domain 'scan', but at least 2"),
    ],
)
def test_load_explains_what_is_wrong(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(FairsiloError, match=words):
        load(**arguments)  # type: ignore[arg-type]


@pytest.mark.slow
def test_each_domain_can_be_learnt_at_home_and_fails_elsewhere(federation: Dataset) -> None:
    accuracy = _matrix(federation)
    home = accuracy.diag()
    assert float(home.min()) >= 85
    assert float(home.mean()) < 99
    assert float((home - accuracy.min(1).values).min()) >= 15


def _groups(domain: Domain, split: int | None = None) -> Tensor:
    assert domain.group is not None
    return domain.group if split is None else domain.group[domain.split == split]


def _matrix(dataset: Dataset) -> Tensor:
    """Test accuracy in per cent: row = domain trained on, column = domain tested on."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            rows = [_accuracies(_train(domain), dataset) for domain in dataset.domains.values()]
    finally:
        torch.set_num_threads(threads)
    return torch.tensor(rows)


def _samples(domain: Domain, split: int) -> tuple[Tensor, Tensor]:
    chosen = domain.split == split
    inputs = domain.inputs[chosen].float() / 255 - 0.5
    return inputs.to(memory_format=torch.channels_last), domain.targets[chosen]


def _train(domain: Domain, epochs: int = 10, batch: int = 32) -> nn.Module:
    """A network of two convolutions at half resolution, enough for digits and quick on one core."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.AvgPool2d(2),
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten()),
        nn.Linear(2048, 10),
    ).to(memory_format=torch.channels_last)
    inputs, targets = _samples(domain, TRAIN)
    optimiser = torch.optim.Adam(network.parameters())
    steps = epochs * -(-len(targets) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.01, total_steps=steps)
    for _ in range(epochs):
        for chosen in torch.randperm(len(targets)).split(batch):
            optimiser.zero_grad()
            F.cross_entropy(network(inputs[chosen]), targets[chosen]).backward()
            optimiser.step()
            schedule.step()
    return network.eval()


@torch.no_grad()
def _accuracies(network: nn.Module, dataset: Dataset) -> list[float]:
    tests = [_samples(domain, TEST) for domain in dataset.domains.values()]
    return [100 * float((network(inputs).argmax(1) == targets).float().mean()) for inputs, targets in tests]


if __name__ == "__main__":
    sys.stdout.write(f"trained on (row), tested on (column): {', '.join(NAMES)}\n")
    for name, row in zip(NAMES, _matrix(glyphs()).tolist(), strict=True):
        sys.stdout.write(f"{name:8}{''.join(f'{value:7.1f}' for value in row)}\n")
