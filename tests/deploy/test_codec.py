"""Tensors on their way through FLARE: exact, a block at a time, and on the disk where they arrive."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("nvflare", reason="needs the package nvflare: pip install 'fairsilo[flare]'")
from fairsilo.deploy import wire
from fairsilo.deploy.flare import codec

NUMBERS = torch.arange(24).reshape(2, 3, 4)


def blocks(tensors: dict[str, Tensor], size: int) -> list[list[bytes]]:
    """What the sender gives, request by request."""
    source, state, found = codec.Blocks(tensors, size), None, []
    while True:
        told, data, state = source.produce(state, "site")
        if told != "ok":
            return found
        found.append(data)


def arrived(sent: Iterable[list[bytes]], folder: Path, patched: pytest.MonkeyPatch) -> tuple[str, dict[str, Tensor]]:
    def download(consumer: codec.Arriving, **options: Any) -> None:
        for data in sent:
            consumer.consume("reference", {}, data)

    patched.setattr(codec, "download_object", download)
    return codec.Tensors(folder).download(from_fqcn="server", ref_id="reference")


def in_file(tensor: Tensor) -> bool:
    """Whether the memory of a tensor is a part of a file that has no name."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(one, 16) for one in line.split()[0].split("-"))
        if begin <= tensor.data_ptr() < end:
            return line.endswith("(deleted)")
    return False


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_all_kinds_of_tensors_arrive_as_they_are(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {str(dtype): NUMBERS.to(dtype) for dtype in wire.DTYPES}
    tensors |= {"one": torch.tensor(0.1), "none": torch.empty(0, 3), "part": torch.arange(10.0)[3:5]}
    problem, found = arrived(blocks(tensors, size), tmp_path, monkeypatch)
    assert not problem
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].is_contiguous()
        assert torch.equal(found[name], tensor)


def test_a_large_tensor_is_sent_in_blocks_and_stays_in_a_file_that_nobody_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = {"model": torch.randn(codec.SMALL), "few": torch.ones(3)}
    told = blocks(sent, 2**16)
    assert max(sum(map(len, data)) for data in told) <= 2**16
    _, found = arrived(told, tmp_path, monkeypatch)
    assert not list(tmp_path.iterdir())
    assert in_file(found["model"])
    assert not in_file(found["few"])
    found["model"].mul_(2)  # as a running sum does
    assert torch.equal(found["model"], 2 * sent["model"])


def test_what_is_lost_on_the_way_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = blocks({"model": torch.randn(1000)}, 100)
    for sent in (told[:-1], told[1:], [], [*told, told[-1]]):
        problem, found = arrived(sent, tmp_path, monkeypatch)
        assert "holds no tensors" in problem
        assert not found


@pytest.mark.slow
@given(
    st.binary(max_size=200)
    | st.builds(
        lambda described, data: struct.pack("<Q", len(described)) + described + data,
        st.dictionaries(
            st.text(max_size=3),
            st.fixed_dictionaries(
                {
                    "dtype": st.sampled_from(["F32", "F8_E4M3", "F4", "C64", "U64", "BOOL", "X"]),
                    "shape": st.lists(st.integers(-1, 2**64), max_size=3),
                    "data_offsets": st.lists(st.integers(-1, 300), min_size=1, max_size=3),
                }
            ),
            max_size=3,
        ).map(lambda described: json.dumps(described).encode()),
        st.binary(max_size=40),
    )
)
def test_whatever_arrives_is_tensors_or_a_sentence(sent: bytes) -> None:
    with pytest.MonkeyPatch.context() as patched:
        problem, found = arrived([[sent]], Path(__file__).parent, patched)
    assert isinstance(problem, str)
    assert all(isinstance(one, Tensor) for one in found.values())


def test_flare_knows_tensors_by_this_codec(tmp_path: Path) -> None:
    from nvflare.fuel.utils import fobs

    codec.register(tmp_path)
    assert isinstance(fobs.get_dot_handler(codec.Tensors(tmp_path).get_download_dot()), codec.Tensors)
    sent = {"model": torch.arange(3.0)}
    assert torch.equal(fobs.loads(fobs.dumps(sent))["model"], sent["model"])
