"""A model as one vector: its order, its views, and the only averaging code."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from fairsilo.core import vectors
from fairsilo.core.vectors import (
    AVERAGED,
    BUFFER,
    COUNTER,
    PARAMETER,
    PRIVATE,
    SHARED,
    FlatModel,
    Layout,
    Slot,
    gram,
    squared_norms,
    weighted_mean,
)

small = settings(deadline=None, max_examples=60, database=None)


class Net(nn.Module):
    """Every kind of tensor: a convolution, norms in a shortcut, a layer norm, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3, padding=1)
        self.shortcut = nn.Sequential(nn.Conv2d(2, 2, 1, bias=False), nn.BatchNorm2d(2))
        self.norm = nn.LayerNorm(2)
        self.head = nn.Linear(2, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.shortcut(self.stem(inputs))).mean((2, 3))
        return self.head(self.norm(hidden))


def net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net()


def flat(module: nn.Module) -> FlatModel:
    return FlatModel(module, Layout.of(module))


def batch(seed: int = 1) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(6, 1, 4, 4, generator=stream), torch.arange(6) % 3


def norms_private(slot: Slot) -> str:
    return PRIVATE if slot.group == "batch-norm" else SHARED


# ------------------------------------------------------------------------------------------------------------- layouts
def test_parameters_come_first_then_float_buffers_then_counters() -> None:
    layout = Layout.of(net())
    assert [(slot.name, slot.role) for slot in layout.slots] == [
        ("stem.weight", PARAMETER),
        ("stem.bias", PARAMETER),
        ("shortcut.0.weight", PARAMETER),
        ("shortcut.1.weight", PARAMETER),
        ("shortcut.1.bias", PARAMETER),
        ("norm.weight", PARAMETER),
        ("norm.bias", PARAMETER),
        ("head.weight", PARAMETER),
        ("head.bias", PARAMETER),
        ("shortcut.1.running_mean", BUFFER),
        ("shortcut.1.running_var", BUFFER),
        ("shortcut.1.num_batches_tracked", COUNTER),
    ]
    # 18+2 stem, 4+4 shortcut, 4 layer norm, 6+3 head; 4 statistics; 1 counter
    assert (layout.parameters, layout.floats, layout.size) == (41, 45, 46)


def test_groups_say_head_batch_norm_norm_and_body() -> None:
    groups = {slot.name: slot.group for slot in Layout.of(net()).slots}
    assert {name for name, group in groups.items() if group == "head"} == {"head.weight", "head.bias"}
    assert {name for name, group in groups.items() if group == "norm"} == {"norm.weight", "norm.bias"}
    assert {name for name, group in groups.items() if group == "batch-norm"} == {
        "shortcut.1.weight",
        "shortcut.1.bias",
        "shortcut.1.running_mean",
        "shortcut.1.running_var",
        "shortcut.1.num_batches_tracked",
    }
    assert groups["stem.weight"] == groups["shortcut.0.weight"] == "body"


@pytest.mark.parametrize("norm", [nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)])
def test_norms_that_see_one_sample_are_no_batch_norms(norm: nn.Module) -> None:
    assert {slot.group for slot in Layout.of(norm).slots} == {"norm"}


def test_a_head_of_several_layers_is_all_head_but_for_its_norms() -> None:
    module = nn.ModuleDict({"head": nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "header": nn.Linear(1, 1)})
    groups = {slot.name: slot.group for slot in Layout.of(module).slots}
    assert groups["head.0.weight"] == "head"
    assert groups["head.1.weight"] == "batch-norm"
    assert groups["header.weight"] == "body"


def test_private_tensors_stand_last_in_each_stretch() -> None:
    layout = Layout.of(net()).with_kinds(norms_private)
    for role in (PARAMETER, BUFFER, COUNTER):
        private = [slot.kind == PRIVATE for slot in layout.slots if slot.role == role]
        assert private == sorted(private)
    assert [slot.role for slot in layout.slots] == [PARAMETER] * 9 + [BUFFER] * 2 + [COUNTER]
    assert [slot.name for slot in layout.slots][7:9] == ["shortcut.1.weight", "shortcut.1.bias"]
    assert (layout.wire.parameters, layout.wire.floats, layout.wire.size) == (37, 37, 37)


def test_frozen_parameters_and_buffers_of_frozen_modules_are_in_no_vector() -> None:
    module = net()
    module.stem.bias.requires_grad = False
    for parameter in module.shortcut[1].parameters():
        parameter.requires_grad = False
    names = {slot.name for slot in Layout.of(module).slots}
    assert "stem.bias" not in names
    assert not {name for name in names if name.startswith("shortcut.1")}
    assert {"stem.weight", "shortcut.0.weight"} <= names


def test_buffers_of_a_half_frozen_module_are_kept() -> None:
    module = nn.BatchNorm1d(2)
    module.bias.requires_grad = False
    names = [slot.name for slot in Layout.of(module).slots]
    assert names == ["weight", "running_mean", "running_var", "num_batches_tracked"]


def test_buffers_that_are_not_saved_are_not_sent() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("kept", torch.ones(3))
    module.register_buffer("passing", torch.ones(5), persistent=False)
    assert [slot.name for slot in Layout.of(module).slots] == ["weight", "bias", "kept"]


def test_a_model_without_a_trainable_tensor_is_refused() -> None:
    module = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(ValueError, match="no trainable tensor"):
        Layout.of(module)


def test_the_layout_has_the_dtype_of_the_model() -> None:
    assert Layout.of(nn.Linear(1, 1)).dtype == torch.float32
    assert Layout.of(nn.Linear(1, 1).double()).dtype == torch.float64


def test_layouts_are_equal_by_slots_and_differ_by_kind() -> None:
    first, second = Layout.of(net(0)), Layout.of(net(1))
    assert first == second
    assert hash(first) == hash(second)
    assert first != first.with_kinds(norms_private)


def test_a_layout_describes_every_tensor() -> None:
    described = Layout.of(nn.Linear(2, 3)).with_kinds(lambda _: AVERAGED).describe()
    assert described[0] == {
        "name": "weight",
        "shape": (3, 2),
        "role": "parameter",
        "kind": "averaged",
        "group": "body",
    }


@st.composite
def slots(draw: st.DrawFn) -> list[Slot]:
    shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
    roles, kinds = st.sampled_from((PARAMETER, BUFFER, COUNTER)), st.sampled_from((SHARED, AVERAGED, PRIVATE))
    drawn = draw(st.lists(st.tuples(shapes, roles, kinds), min_size=1, max_size=8))
    made = [Slot(f"t{number}", shape, role, kind) for number, (shape, role, kind) in enumerate(drawn)]
    return [*made, Slot("sent", (2,), PARAMETER)]  # a federation shares something


@given(slots())
@small
def test_slots_tile_the_vector(drawn: list[Slot]) -> None:
    layout = Layout(drawn)
    covered = [position for slot in layout.slots for position in range(slot.start, slot.stop)]
    assert covered == list(range(layout.size))
    assert {slot.name: (slot.shape, slot.role, slot.kind) for slot in layout.slots} == {
        slot.name: (slot.shape, slot.role, slot.kind) for slot in drawn
    }
    assert all(slot.stop <= layout.parameters for slot in layout.slots if slot.role == PARAMETER)
    assert all(slot.start >= layout.floats for slot in layout.slots if slot.role == COUNTER)


@given(slots())
@small
def test_pack_is_the_inverse_of_views_and_the_wire_of_its_writing(drawn: list[Slot]) -> None:
    layout = Layout(drawn)
    vector = torch.arange(layout.size, dtype=torch.float32)
    assert torch.equal(layout.pack(layout.views(vector)), vector)
    sent = layout.to_wire(vector)
    assert len(sent) == layout.wire.size
    received = torch.full((layout.size,), -1.0)
    layout.write_wire(sent, received)
    private = torch.zeros(layout.size, dtype=torch.bool)
    for slot in layout.slots:
        private[slot.place] = slot.kind == PRIVATE
    assert torch.equal(received[~private], vector[~private])
    assert (received[private] == -1).all()


def test_the_wire_holds_the_same_tensors_under_the_same_names() -> None:
    layout = Layout.of(net()).with_kinds(norms_private)
    vector = torch.arange(layout.size, dtype=torch.float32)
    whole, sent = layout.views(vector), layout.wire.views(layout.to_wire(vector))
    assert set(whole) - set(sent) == {slot.name for slot in layout.slots if slot.kind == PRIVATE}
    assert all(torch.equal(sent[name], whole[name]) for name in sent)


def test_without_private_tensors_the_wire_is_the_vector_itself() -> None:
    layout = Layout.of(net()).with_kinds(lambda _: AVERAGED)
    vector = torch.zeros(layout.size)
    assert layout.wire is layout
    assert layout.to_wire(vector) is vector
    assert layout.own == layout.slots


def test_views_share_the_storage_of_the_vector_and_counters_are_whole_numbers() -> None:
    layout = Layout.of(net())
    vector = torch.zeros(layout.size)
    vector[-1] = 7
    views = layout.views(vector)
    views["head.bias"][1] = 5.0
    slot = next(slot for slot in layout.slots if slot.name == "head.bias")
    assert vector[slot.start + 1] == 5.0
    assert views["shortcut.1.num_batches_tracked"].dtype == torch.int64
    assert views["shortcut.1.num_batches_tracked"].item() == 7


# --------------------------------------------------------------------------------------------------------- flat models
def test_flattening_does_not_change_the_model() -> None:
    module, (inputs, _) = net(), batch()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    expected = module.eval()(inputs)
    model = flat(module)
    assert torch.equal(model.module(inputs), expected)
    after = module.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_read_and_load_round_trip_exactly_with_counters() -> None:
    model, other = flat(net(0)), flat(net(1))
    for _ in range(3):
        model.module(batch()[0])
    vector = model.read()
    assert vector[-1] == 3
    other.load(vector)
    assert torch.equal(other.read(), vector)
    own, taken = model.module.state_dict(), other.module.state_dict()
    assert all(torch.equal(own[name], taken[name]) for name in own)
    assert taken["shortcut.1.num_batches_tracked"].dtype == torch.int64


def test_reading_gives_a_copy() -> None:
    model = flat(net())
    vector = model.read()
    model.read().zero_()
    vector.zero_()
    assert model.read().abs().sum() > 0


def test_a_loaded_vector_is_not_held_on_to() -> None:
    model = flat(net())
    vector = torch.ones(model.layout.size)
    model.load(vector)
    vector.zero_()
    assert (model.read() == 1).all()


def test_running_statistics_land_in_the_vector() -> None:
    model, (inputs, _) = flat(net()), batch()
    before = model.layout.views(model.read())
    model.module.train()
    hidden = model.module.shortcut[0](model.module.stem(inputs)).detach()
    model.module(inputs)
    after = model.layout.views(model.read())
    expected = 0.9 * before["shortcut.1.running_mean"] + 0.1 * hidden.mean((0, 2, 3))
    torch.testing.assert_close(after["shortcut.1.running_mean"], expected)
    assert not torch.equal(after["shortcut.1.running_var"], before["shortcut.1.running_var"])
    assert after["shortcut.1.num_batches_tracked"].item() == 1


def test_statistics_begin_where_the_kernels_of_a_gpu_want_them() -> None:
    # channels last in float32 ended with "misaligned address" while they came right behind a head for ten classes
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(10))
    module(torch.rand(2, 3, 4, 4))
    layout = Layout.of(module)
    assert layout.parameters % 4 == 2
    FlatModel(module, layout)
    norm = module[1]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert (norm.running_mean.data_ptr() % 16, norm.running_var.data_ptr() % 16) == (0, 0)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_step_on_the_flat_parameter_is_a_step_on_every_tensor(name: str) -> None:
    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if name == "sgd":
            return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
        kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
        return kind(parameters, lr=0.01, weight_decay=0.01)

    plain = net()
    model = flat(copy.deepcopy(plain))
    ordinary, flattened = make(list(plain.parameters())), make([model.parameters])
    for step in range(4):
        inputs, targets = batch(step)
        ordinary.zero_grad()
        nn.functional.cross_entropy(plain(inputs), targets).backward()
        ordinary.step()
        model.gradients.zero_()
        nn.functional.cross_entropy(model.module(inputs), targets).backward()
        flattened.step()
    expected = model.layout.pack(dict(plain.named_parameters()) | dict(plain.named_buffers()))
    torch.testing.assert_close(model.read(), expected, rtol=1e-5, atol=1e-6)


def test_gradients_that_are_added_together_are_those_that_autograd_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: from zero, with a term in the flat vector, and nothing where the loss does not reach."""
    monkeypatch.setattr(vectors, "RECORDING", {"cpu"})
    model, (inputs, targets) = flat(net()), batch()

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(model.module(inputs), targets) + 0.1 * model.parameters.square().sum()

    model.eval()  # the same output every time
    loss().backward()
    expected = model.gradients.clone()
    for _ in range(2):
        model.backward(loss())
    assert expected.count_nonzero() > len(expected) // 2
    assert torch.equal(model.gradients, expected)

    names = [slot.name for slot in model.layout.slots if slot.role == PARAMETER]
    first = dict(model.module.named_parameters())[names[0]]
    model.backward(first.sum())
    assert torch.equal(model.gradients, torch.arange(len(expected)).lt(first.numel()).float())


def test_gradients_stay_views_of_one_vector_where_a_loss_cannot_be_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "RECORDING", {"cpu"})
    model = flat(net())
    with pytest.raises(RuntimeError, match="does not require grad"):
        model.backward(torch.zeros(()))
    model.gradients.fill_(2)
    assert all(torch.equal(one.grad, torch.full_like(one, 2)) for one in model.module.parameters())


def test_a_term_written_in_the_flat_vector_reaches_the_gradients_of_the_module() -> None:
    model = flat(net())
    centre = torch.zeros(model.layout.parameters)
    (0.5 * (model.parameters - centre).square().sum()).backward()
    for name, parameter in model.module.named_parameters():
        assert torch.equal(parameter.grad, parameter.detach()), name


def test_the_loss_and_a_flat_term_add_up_in_one_gradient() -> None:
    model, (inputs, targets) = flat(net()), batch()
    nn.functional.cross_entropy(model.module(inputs), targets).backward()
    alone = model.gradients.clone()
    model.gradients.zero_()
    (nn.functional.cross_entropy(model.module(inputs), targets) + 3 * model.parameters.sum()).backward()
    torch.testing.assert_close(model.gradients, alone + 3)
    assert model.parameters.grad is model.gradients


def test_tied_weights_appear_once_and_stay_tied() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    module[2].weight = module[0].weight
    model = flat(module)
    assert [slot.name for slot in model.layout.slots] == ["0.weight"]
    model.load(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert module[2].weight is module[0].weight
    assert module[2].weight.tolist() == [[1, 2], [3, 4]]
    # y = A relu(A x) with A = [[1, 2], [3, 4]] and x = (1, 1): relu gives (3, 7)
    assert module(torch.ones(1, 2)).tolist() == [[17, 37]]
    # a vector given from outside is tied too
    views = model.layout.views(torch.eye(2).flatten())
    assert functional_call(module, views, (torch.ones(1, 2),)).tolist() == [[1, 1]]
    # d(sum y)/dA = u^T relu(Ax) from the outer use, (A^T u) x^T from the inner, with u = (1, 1)
    model.gradients.zero_()
    module(torch.ones(1, 2)).sum().backward()
    assert model.gradients.tolist() == [3 + 4, 7 + 4, 3 + 6, 7 + 6]


def test_frozen_tensors_keep_their_values_and_get_no_gradient() -> None:
    module = net()
    module.stem.requires_grad_(False)
    weight = module.stem.weight.clone()
    model, (inputs, targets) = flat(module), batch()
    nn.functional.cross_entropy(model.module(inputs), targets).backward()
    model.load(torch.zeros(model.layout.size))
    assert torch.equal(module.stem.weight, weight)
    assert module.stem.weight.grad is None


# ----------------------------------------------------------------------------------------------------------- averaging
def rows(count: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def shares(count: int) -> Tensor:
    weights = torch.arange(1, count + 1, dtype=torch.float64)
    return weights / weights.sum()


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("width", [1, 65535, 65536, 65537, 131072, 200000])
def test_the_weighted_mean_is_that_in_double_precision(count: int, width: int) -> None:
    matrix, weights = rows(count, width), shares(count)
    found = weighted_mean(matrix, weights)
    expected = (matrix.double() * weights[:, None]).sum(0)
    assert found.dtype == torch.float32
    assert found.shape == (width,)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-6)


def test_a_weighted_mean_by_hand() -> None:
    matrix = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    assert weighted_mean(matrix, torch.tensor([0.25, 0.75])).tolist() == [2.5, -2.5]


def test_one_row_of_weight_one_comes_back_bit_by_bit() -> None:
    for width in (10, 100000):
        matrix = rows(1, width)
        assert torch.equal(weighted_mean(matrix, torch.ones(1, dtype=torch.float64)), matrix[0])


def test_the_weighted_mean_of_a_stretch_of_a_matrix_is_that_stretch_of_the_mean() -> None:
    matrix, weights = rows(3, 150000), shares(3)
    whole, stretch = weighted_mean(matrix, weights), weighted_mean(matrix[:, :70001], weights)
    torch.testing.assert_close(stretch, whole[:70001])


def test_the_weighted_mean_leaves_the_rows_alone() -> None:
    matrix = rows(2, 70000)
    before = matrix.clone()
    weighted_mean(matrix, shares(2)).zero_()
    assert torch.equal(matrix, before)


numbers = st.floats(-10, 10, width=32)


@given(st.integers(1, 5), st.integers(1, 6), st.data())
@small
def test_the_weighted_mean_is_linear_in_rows_and_in_weights(count: int, width: int, data: st.DataObject) -> None:
    def drawn(size: int) -> Tensor:
        return torch.tensor(data.draw(st.lists(numbers, min_size=size, max_size=size)), dtype=torch.float64)

    first, second = drawn(count * width).view(count, width), drawn(count * width).view(count, width)
    weights, others = drawn(count), drawn(count)
    by_rows = weighted_mean(first + 2 * second, weights)
    torch.testing.assert_close(by_rows, weighted_mean(first, weights) + 2 * weighted_mean(second, weights))
    by_weights = weighted_mean(first, weights - others)
    expected = weighted_mean(first, weights) - weighted_mean(first, others)
    torch.testing.assert_close(by_weights, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("width", [3, 65536, 65537, 200000])
def test_gram_is_accumulated_in_double_precision(width: int) -> None:
    matrix = rows(3, width) + 100  # a large mean, which single precision would smear
    wide = matrix.double()
    torch.testing.assert_close(gram(matrix), wide @ wide.T, rtol=1e-13, atol=0)
    torch.testing.assert_close(squared_norms(matrix), wide.square().sum(1), rtol=1e-13, atol=0)
    assert gram(matrix).dtype == squared_norms(matrix).dtype == torch.float64


def test_gram_and_squared_norms_by_hand() -> None:
    matrix = torch.tensor([[1.0, 2.0, 2.0], [0.0, 3.0, 4.0]])
    assert gram(matrix).tolist() == [[9, 14], [14, 25]]
    torch.testing.assert_close(squared_norms(matrix), torch.tensor([9.0, 25.0], dtype=torch.float64))


def test_a_small_number_beside_a_large_one_is_not_lost() -> None:
    matrix = torch.zeros(1, 70000)
    matrix[0, 0], matrix[0, -1] = 1e4, 1.0
    assert gram(matrix).item() == 1e8 + 1
    assert math.isclose(squared_norms(matrix).item(), 1e8 + 1, rel_tol=1e-14)


def test_frozen_modules_keep_their_statistics_in_training_mode() -> None:
    """Their buffers are in no vector, so a drift would leak from one silo to the next."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(2))
    module(torch.randn(2, 3, 6, 6))
    for parameter in [*module[0].parameters(), *module[1].parameters()]:
        parameter.requires_grad_(False)
    flat = FlatModel(module, Layout.of(module))
    flat.train()
    before = module[1].running_mean.clone()
    flat.module(torch.randn(8, 3, 6, 6) + 5)
    assert torch.equal(module[1].running_mean, before)
    assert module[3].training


def test_counters_come_back_in_their_own_type() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("mask", torch.tensor([True, False]))
    layout = Layout.of(module)
    assert layout.views(FlatModel(module, layout).read())["mask"].tolist() == [True, False]
    assert layout.views(FlatModel(module, layout).read())["mask"].dtype == torch.bool


def test_buffers_alone_are_nothing_to_train() -> None:
    with pytest.raises(ValueError, match="no trainable tensor"):
        Layout.of(nn.BatchNorm1d(3, affine=False))
