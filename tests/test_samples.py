"""Splits hand out the same samples wherever they lie, and share what they can."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fairsilo.core.fingerprints import fingerprints
from fairsilo.core.samples import InFile, Split, joined
from fairsilo.data.dataset import UNDECIDED, Dataset, Domain
from fairsilo.data.federation import federate, pooled
from fairsilo.errors import FairsiloError

INPUTS = torch.arange(24.0).view(6, 2, 2)
TARGETS = torch.tensor([5, 4, 3, 2, 1, 0])


def in_file(folder: Path) -> Split:
    storage = InFile(str(folder / "inputs.bin"), tuple(INPUTS.shape), INPUTS.dtype)
    storage.tensor.copy_(INPUTS)
    return Split(storage, TARGETS)


KINDS: dict[str, Callable[[Path], Split]] = {
    "tensor": lambda _: Split(INPUTS, TARGETS),
    "file": in_file,
    "subset": lambda _: Split(INPUTS.flip(0), TARGETS.flip(0)).subset([5, 4, 3, 2, 1, 0]),
    "subset of a subset": lambda _: (
        Split(INPUTS.roll(2, 0), TARGETS.roll(2)).subset([2, 3, 4, 5, 1, 0]).subset(torch.tensor([0, 1, 2, 3, 5, 4]))
    ),
    "joined": lambda folder: joined([Split(INPUTS[:2], TARGETS[:2]), in_file(folder).subset([2, 3, 4, 5])]),
}


@pytest.fixture(params=KINDS)
def split(request: pytest.FixtureRequest, tmp_path: Path) -> Split:
    return KINDS[request.param](tmp_path)


@pytest.mark.parametrize("chosen", [[4, 0, 0, 5], [], [2]])
def test_every_kind_hands_out_the_same_samples(split: Split, chosen: list[int]) -> None:
    inputs, targets = split.take(chosen)
    assert torch.equal(inputs, INPUTS[chosen])
    assert torch.equal(targets, TARGETS[chosen])
    assert (len(split), split.shape, split.dtype) == (6, (2, 2), torch.float32)
    assert torch.equal(split.inputs, INPUTS)


def test_every_kind_is_gone_through_in_blocks(split: Split) -> None:
    blocks = list(split.blocks(4))
    assert [len(targets) for _, targets in blocks] == [4, 2]
    assert torch.equal(torch.cat([inputs for inputs, _ in blocks]), INPUTS)
    assert torch.equal(torch.cat([targets for _, targets in blocks]), TARGETS)


def test_every_kind_travels_to_another_process(split: Split) -> None:
    split.share_memory()
    again = pickle.loads(pickle.dumps(split))  # noqa: S301 - what this test has just written
    assert torch.equal(again.take([3, 1])[0], INPUTS[[3, 1]])
    assert torch.equal(again.targets, TARGETS)


def test_a_file_is_opened_again_and_not_copied(tmp_path: Path) -> None:
    split = in_file(tmp_path)
    again = pickle.loads(pickle.dumps(split))  # noqa: S301 - what this test has just written
    split.storage.tensor[0] = -1.0  # type: ignore[attr-defined]
    assert torch.equal(again.take([0])[0], torch.full((1, 2, 2), -1.0))


def test_what_was_taken_is_the_takers_own(split: Split) -> None:
    split.take([0])[0].fill_(99.0)
    assert torch.equal(split.take([0])[0], INPUTS[:1])


def test_inputs_and_targets_must_be_as_many() -> None:
    with pytest.raises(FairsiloError, match="6 inputs and 5 targets"):
        Split(INPUTS, TARGETS[:5])


def domain(name: str) -> Domain:
    inputs = torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1)
    return Domain(name, inputs, torch.arange(20) % 2, torch.full((20,), UNDECIDED, dtype=torch.int8))


def test_silos_of_a_domain_share_its_storage() -> None:
    dataset = Dataset("two", ("0", "1"), {"a": domain("a"), "b": domain("b")})
    made = federate(dataset, held_out="b", silos_per_domain=2)
    places = {silo.split(part).storage.place for silo in made.silos for part in ("train", "validation", "test")}
    assert len(places) == 1
    assert made["a-1"].train.storage.tensor.data_ptr() == dataset.domains["a"].inputs.data_ptr()  # type: ignore[attr-defined]
    held = torch.cat([silo.train.inputs for silo in made.silos] + [silo.validation.inputs for silo in made.silos])
    everything = torch.cat([held, made["a-1"].test.inputs]).flatten()
    assert sorted(everything.tolist()) == list(range(20))


def test_pooling_counts_a_shared_test_set_once() -> None:
    made = federate(Dataset("two", ("0", "1"), {"a": domain("a"), "b": domain("b")}), held_out="b", silos_per_domain=2)
    one = pooled(made).silos[0]
    assert len(one.test) == len(made["a-1"].test)
    assert len(one.train) == sum(len(silo.train) for silo in made.silos)
    assert torch.equal(one.train.take([len(made["a-1"].train)])[0], made["a-2"].train.take([0])[0])


# --------------------------------------------------------------------------------------------------------- fingerprints
def test_a_sample_has_one_fingerprint_wherever_it_lies(split: Split) -> None:
    expected = fingerprints(Split(INPUTS, TARGETS))
    assert torch.equal(fingerprints(split), expected)
    assert len(set(expected.tolist())) == 6
    assert torch.equal(fingerprints(split.subset([4, 1])), expected[[4, 1]])


def test_a_fingerprint_is_of_the_input_its_type_and_its_shape() -> None:
    ones = torch.ones(1, 2, 3, dtype=torch.uint8)
    (first,) = fingerprints(Split(ones, torch.zeros(1))).tolist()
    assert fingerprints(Split(ones, torch.ones(1))).tolist() == [first]  # whatever the target
    assert fingerprints(Split(ones.view(1, 3, 2), torch.zeros(1))).tolist() != [first]
    assert fingerprints(Split(ones.view(torch.int8), torch.zeros(1))).tolist() != [first]
    almost = ones.clone()
    almost[0, 1, 2] = 2
    assert fingerprints(Split(almost, torch.zeros(1))).tolist() != [first]
    assert fingerprints(Split(ones[:0], torch.zeros(0))).tolist() == []


# ----------------------------------------------------------------------------------------------------------- attributes
def test_attributes_go_with_their_samples() -> None:
    split = Split(INPUTS, TARGETS, attributes={"sex": list("fmfmfm")})
    assert split.subset([4, 1, 0]).attributes == {"sex": ("f", "m", "f")}
    assert split.subset([4, 1, 0]).subset([1]).attributes == {"sex": ("m",)}
    other = Split(INPUTS.clone(), TARGETS, attributes={"sex": ["x"] * 6, "age": list("123456")})
    assert joined([split.subset([1]), other.subset([0, 2])]).attributes == {"sex": ("m", "x", "x")}
    assert joined([other.subset([0]), Split(INPUTS, TARGETS)]).attributes == {}
    with pytest.raises(FairsiloError, match="attribute 'sex' has 2 values for 6 samples"):
        Split(INPUTS, TARGETS, attributes={"sex": ["f", "m"]})


def test_attributes_of_a_domain_reach_the_silos() -> None:
    one = dataclasses.replace(domain("a"), attributes={"number": tuple(map(str, range(20)))})
    made = federate(Dataset("two", ("0", "1"), {"a": one, "b": domain("b")}), held_out="b", silos_per_domain=2)
    for silo in made.silos:
        for name in ("train", "validation", "test"):
            split = silo.split(name)
            assert split.attributes["number"] == tuple(str(int(one)) for one in split.inputs.flatten())
    with pytest.raises(FairsiloError, match="20 targets and 3 entries of age"):
        dataclasses.replace(domain("a"), attributes={"age": ("1", "2", "3")})


def test_a_file_that_is_only_read_is_not_changed(tmp_path: Path) -> None:
    InFile(str(tmp_path / "f"), (4,), torch.float32).tensor[:] = torch.arange(4.0)
    (tmp_path / "f").chmod(0o444)
    again = InFile(str(tmp_path / "f"), (4,), torch.float32, read_only=True)
    again.tensor[0] = 9.0
    assert InFile(str(tmp_path / "f"), (4,), torch.float32, read_only=True).tensor.tolist() == [0, 1, 2, 3]
    copy = pickle.loads(pickle.dumps(again))  # noqa: S301 - what this test has just written
    assert copy.read_only
    assert copy.tensor.tolist() == [0, 1, 2, 3]
