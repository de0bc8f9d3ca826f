"""An LSTM layer as one kernel is an LSTM layer: values and gradients, in Triton's interpreter on a CPU."""

from __future__ import annotations

import copy
import importlib.util

import pytest
import torch
from torch import Tensor, nn

from fairsilo.core import recurrence
from fairsilo.core.arithmetic import Arithmetic
from fairsilo.core.recurrence import LayeredLSTM, by_layers
from fairsilo.core.vectors import FlatModel, Layout
from fairsilo.errors import FairsiloError
from fairsilo.models.char_lstm import CharLSTM


def found_by(lstm: nn.LSTM, inputs: Tensor) -> list[Tensor]:
    """Hidden states, last states and cells, and the gradients of a loss in which all of them count."""
    inputs = inputs.clone().requires_grad_()
    states, (last, cells) = lstm(inputs)
    stream = torch.Generator().manual_seed(1)
    loss = sum((one * torch.randn(one.shape, generator=stream)).sum() for one in (states, last, cells))
    found = torch.autograd.grad(loss, [inputs, *lstm.parameters()])  # type: ignore[arg-type]
    return [states.detach(), last.detach(), cells.detach(), *found]


@pytest.mark.parametrize(
    ("inputs", "width", "layers", "rows", "steps", "first"), [(8, 32, 2, 10, 5, True), (3, 32, 1, 17, 4, False)]
)
def test_values_and_gradients_are_those_of_an_lstm(
    inputs: int, width: int, layers: int, rows: int, steps: int, first: bool
) -> None:
    pytest.importorskip("triton", reason="Triton comes with PyTorch's builds for GPUs")
    torch.manual_seed(0)
    plain = nn.LSTM(inputs, width, layers, batch_first=first)
    layered = copy.deepcopy(plain)
    by_layers(layered)
    assert type(layered) is LayeredLSTM
    given = torch.randn(*((rows, steps) if first else (steps, rows)), inputs)
    for one, other in zip(found_by(plain, given), found_by(layered, given), strict=True):
        assert float((one - other).norm() / one.norm()) < 5e-6


@pytest.fixture
def triton_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrence, "find_spec", lambda _: importlib.util.find_spec("torch"))


@pytest.mark.parametrize(
    "lstm",
    [
        nn.LSTM(4, 48),
        nn.LSTM(4, 16),
        nn.LSTM(4, 32, bidirectional=True),
        nn.LSTM(4, 32, bias=False),
        nn.LSTM(4, 32).double(),
    ],
)
@pytest.mark.usefixtures("triton_there")
def test_what_the_kernels_are_not_for_stays_as_it_is(lstm: nn.Module) -> None:
    kind = type(lstm)
    by_layers(lstm)
    assert type(lstm) is kind


@pytest.mark.usefixtures("triton_there")
def test_states_to_go_on_from_and_packed_sequences_are_the_library_s() -> None:
    torch.manual_seed(0)
    plain = nn.LSTM(4, 32)
    layered = copy.deepcopy(plain)
    by_layers(layered)
    given, before = torch.randn(3, 2, 4), (torch.randn(1, 2, 32), torch.randn(1, 2, 32))
    assert torch.equal(layered(given, before)[0], plain(given, before)[0])
    packed = nn.utils.rnn.pack_sequence([given[:, 0], given[:2, 1]])
    assert torch.equal(layered(packed)[0].data, plain(packed)[0].data)
    assert layered(given[:, :0])[0].shape == (3, 0, 32)


@pytest.mark.usefixtures("triton_there")
def test_bfloat16_and_what_int32_cannot_count_are_the_library_s(monkeypatch: pytest.MonkeyPatch) -> None:
    layered = nn.LSTM(4, 32)
    by_layers(layered)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layered(torch.zeros(3, 2, 4))[0].dtype == torch.bfloat16
    monkeypatch.setattr(recurrence, "ADDRESSES", 3 * 2 * 4 * 32)
    assert layered(torch.zeros(3, 2, 4))[0].shape == (3, 2, 32)


def test_blocks_are_halved_where_a_multiprocessor_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        shared_memory_per_block_optin = 100 * 1024

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Device)
    assert recurrence._block(recurrence.FORWARD, torch.device("cuda")) == 128
    Device.shared_memory_per_block_optin = 227 * 1024
    assert recurrence._block(recurrence.FORWARD, torch.device("cuda")) == 256
    assert recurrence._block(recurrence.BACKWARD, torch.device("cpu")) == 256


def test_a_cpu_keeps_its_own_and_a_gpu_without_triton_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    network = CharLSTM(10)
    FlatModel(network, Layout.of(network), arithmetic=Arithmetic(recurrence="layers"))
    assert type(network.lstm) is nn.LSTM
    monkeypatch.setattr(recurrence, "find_spec", lambda _: None)
    with pytest.raises(FairsiloError, match="needs Triton"):
        by_layers(network)
