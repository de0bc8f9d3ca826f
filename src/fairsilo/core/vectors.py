"""A model as one flat vector with a layout of names: what is sent, and the only averaging code.

Order inside a vector: trainable parameters, then float buffers (BatchNorm statistics), then integer counters (kept
as floats, exact to 2^24); within each, shared before averaged before private ones. So `vector[:layout.shared]` is
what norms, cosines and masks are computed on (private and averaged tensors differ between silos by design),
`vector[:layout.floats]` is what is averaged; counters take the maximum. Private tensors are cut out of what is sent.
Frozen tensors are in no vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fairsilo.core.arithmetic import EXACT, Arithmetic
from fairsilo.core.convolutions import by_matrices
from fairsilo.core.fused import by_fused_kernels
from fairsilo.core.output import Output, as_output, widened
from fairsilo.core.pixels import Pixels
from fairsilo.core.recurrence import by_layers

SHARED, AVERAGED, PRIVATE = "shared", "averaged", "private"
PARAMETER, BUFFER, COUNTER = "parameter", "buffer", "counter"
AUXILIARY = "auxiliary"  # the group, and the name, of what parts train beside the network
_ROLES = (PARAMETER, BUFFER, COUNTER)
_KINDS = (SHARED, AVERAGED, PRIVATE)
RECORDING = {"cuda"}  # kinds of devices on which training steps may be recorded
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_OTHER_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


@dataclass(frozen=True)
class Slot:
    """Position of one tensor in the vector, and how the tensor is treated."""

    name: str
    shape: tuple[int, ...]
    role: str  # parameter, buffer or counter
    kind: str = SHARED  # shared, averaged or private
    group: str = "body"  # body, head, batch-norm, norm or auxiliary
    start: int = 0
    dtype: torch.dtype = torch.int64  # of a counter, which travels as a float

    @property
    def stop(self) -> int:
        return self.start + self.length

    @cached_property
    def length(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def place(self) -> slice:
        return slice(self.start, self.stop)


class Layout:
    """The slots of a model in vector order."""

    def __init__(self, slots: Iterable[Slot], dtype: torch.dtype = torch.float32) -> None:
        ordered = sorted(slots, key=lambda slot: (_ROLES.index(slot.role), _KINDS.index(slot.kind)))
        placed, position = [], 0
        for slot in ordered:
            placed.append(replace(slot, start=position))
            position += slot.length
        self.slots = tuple(placed)
        self.dtype = dtype
        self.size = position
        self.parameters = sum(slot.length for slot in placed if slot.role == PARAMETER)
        self.shared = sum(slot.length for slot in placed if slot.role == PARAMETER and slot.kind == SHARED)
        self.floats = self.size - sum(slot.length for slot in placed if slot.role == COUNTER)

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a module, every tensor shared: parts change the kinds afterwards (`with_kinds`)."""
        groups = _groups(module)
        slots = [
            Slot(name, tuple(parameter.shape), PARAMETER, group=groups[name])
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        ]
        frozen = _frozen_modules(module)
        for name, buffer in _persistent_buffers(module):
            if name.rpartition(".")[0] not in frozen:
                role = BUFFER if buffer.is_floating_point() else COUNTER
                slots.append(Slot(name, tuple(buffer.shape), role, group=groups[name], dtype=buffer.dtype))
        if not any(slot.role == PARAMETER for slot in slots):
            raise ValueError("the model has no trainable tensor, so there is nothing to train or send")
        dtypes = {p.dtype for p in module.parameters() if p.requires_grad}
        return cls(slots, dtypes.pop() if len(dtypes) == 1 else torch.float32)

    def with_kinds(self, kind_of: Callable[[Slot], str]) -> Layout:
        return Layout((replace(slot, kind=kind_of(slot)) for slot in self.slots), self.dtype)

    @cached_property
    def wire(self) -> Layout:
        """The layout of what is sent: this one without its private tensors."""
        sent = [slot for slot in self.slots if slot.kind != PRIVATE]
        return self if len(sent) == len(self.slots) else Layout(sent, self.dtype)

    @cached_property
    def own(self) -> tuple[Slot, ...]:
        """Tensors a silo keeps as its own instead of taking the server's."""
        return tuple(slot for slot in self.slots if slot.kind != SHARED)

    def to_wire(self, vector: Tensor) -> Tensor:
        if self.wire is self:
            return vector
        return torch.cat([vector[:0], *(vector[slot.place] for slot in self.slots if slot.kind != PRIVATE)])

    def write_wire(self, sent: Tensor, vector: Tensor) -> None:
        """Copy a vector as it is sent into a full one; private tensors keep their values."""
        if self.wire is self:
            vector.copy_(sent)
            return
        places = {slot.name: slot.place for slot in self.slots}
        for slot in self.wire.slots:
            vector[places[slot.name]] = sent[slot.place]

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Name -> tensor in the vector's own storage (counters become integers, so they are copies)."""
        tensors = {}
        for slot in self.slots:
            view = vector[slot.place].view(slot.shape)
            tensors[slot.name] = view.round().to(slot.dtype) if slot.role == COUNTER else view
        return tensors

    def pack(self, tensors: dict[str, Tensor]) -> Tensor:
        """The inverse of `views`."""
        return torch.cat([tensors[slot.name].detach().reshape(-1).to(self.dtype) for slot in self.slots])

    def shared_slots(self) -> Iterator[Slot]:
        """The trainable tensors that come back from the server."""
        return (slot for slot in self.slots if slot.role == PARAMETER and slot.kind == SHARED)

    def describe(self) -> list[dict[str, object]]:
        keys = ("name", "shape", "role", "kind", "group")
        return [{key: getattr(slot, key) for key in keys} for slot in self.slots]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.slots == other.slots

    def __hash__(self) -> int:
        return hash(self.slots)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by name; a tied tensor under each of its names."""
    return dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())


class FlatModel:
    """A module whose trainable tensors live in one flat storage.

    Loading a model, taking its difference to another, and every optimiser step are then operations on one vector.
    Gradients live in one vector too: the module's `.grad`s are views of `gradients`, zeroed, never None but while
    `backward` computes them. (So a parameter the loss does not reach has a zero gradient, and weight decay still acts
    on it.)
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        device: torch.device | str = "cpu",
        arithmetic: Arithmetic = EXACT,
    ) -> None:
        self.module = module.to(device)
        self.arithmetic = arithmetic
        if arithmetic.convolutions == "matrices":
            by_matrices(module)
        if torch.device(device).type == "cuda":
            if arithmetic.recurrence == "layers":
                by_layers(module)
            if arithmetic.fused:
                by_fused_kernels(module)
        self.layout = layout
        self.pixels = Pixels.of(module)  # how it wants its images
        self._frozen = _frozen_modules(module)
        tensors = tensors_of(module)
        self._values = torch.empty(layout.parameters, dtype=layout.dtype, device=device)
        # in a storage of their own, which begins where a GPU's kernels for BatchNorm want it: at a multiple of 16 bytes
        self._buffers = torch.empty(layout.floats - layout.parameters, dtype=layout.dtype, device=device)
        self._counters = [(slot, tensors[slot.name]) for slot in layout.slots if slot.role == COUNTER]
        self._held: dict[tuple[str, torch.Size, torch.dtype], Tensor] = {}
        self._sums: dict[str, Tensor] = {}
        self._trained: list[tuple[Tensor, Tensor]] = []  # and their gradients, views of `gradients`
        self.parameters = nn.Parameter(self._values)
        self.gradients = torch.zeros_like(self.parameters)
        self.parameters.grad = self.gradients
        for slot in layout.slots:
            if slot.role == COUNTER:
                continue
            given = tensors[slot.name].detach().reshape(-1)
            if slot.role == PARAMETER:
                parameter = tensors[slot.name]
                self._values[slot.place] = given
                parameter.data = self._values[slot.place].view(slot.shape)
                parameter.grad = self.gradients[slot.place].view(slot.shape)
                self._trained.append((parameter, parameter.grad))
            else:
                owner, _, leaf = slot.name.rpartition(".")
                place = slice(slot.start - layout.parameters, slot.stop - layout.parameters)
                self._buffers[place] = given
                module.get_submodule(owner)._buffers[leaf] = self._buffers[place].view(slot.shape)

    def forward(self, inputs: Tensor, vector: Tensor | None = None) -> Output:
        """The network's output, of the model held or of another one given as a vector, in the run's arithmetic."""
        inputs = self.arithmetic.ordered(inputs)
        with self.arithmetic.cast(self.parameters.device):
            if vector is None:
                found = as_output(self.module(inputs))
            else:
                found = as_output(functional_call(self.module, self.layout.views(vector), (inputs,)))
        return widened(found, self.layout.dtype) if self.arithmetic.precision == "bfloat16" else found

    def backward(self, loss: Tensor) -> None:
        """Leave a loss's gradient in `gradients`.

        By itself autograd adds to each tensor's `.grad`: on a GPU a kernel for every tensor, a quarter of all kernels
        in a step of EfficientNet-Lite0. There the tensors' gradients are taken as they come (copied first where their
        layout is another one, as a wide convolution's is with channels last) and added in a few kernels. Until then
        they exist beside `gradients`, as large as that once more. Other models that the loss reaches have theirs added
        as always.
        """
        self.gradients.zero_()
        if self.parameters.device.type not in RECORDING:
            loss.backward()  # type: ignore[no-untyped-call]
            return
        for parameter, _ in self._trained:
            parameter.grad = None
        try:
            loss.backward()  # type: ignore[no-untyped-call]
            found = [(place, parameter.grad) for parameter, place in self._trained if parameter.grad is not None]
        finally:
            for parameter, place in self._trained:
                parameter.grad = place
        if found:
            places, gradients = zip(*found, strict=True)
            torch._foreach_add_(places, gradients)

    def train(self) -> None:
        """Training mode, except for frozen modules: their statistics are in no vector and must not drift."""
        self.module.train()
        for name in self._frozen:
            self.module.get_submodule(name).eval()

    def eval(self) -> None:
        self.module.eval()

    @contextmanager
    def training_only(self, chosen: Callable[[Slot], bool]) -> Iterator[list[nn.Parameter]]:
        """Train the chosen tensors only; yields them as leaves over the same storage, for an optimiser."""
        tensors = tensors_of(self.module)
        slots = [slot for slot in self.layout.slots if slot.role == PARAMETER]
        for slot in slots:
            tensors[slot.name].requires_grad_(chosen(slot))
        try:
            yield self.leaves(chosen)
        finally:
            for slot in slots:
                tensors[slot.name].requires_grad_(True)

    def leaves(self, chosen: Callable[[Slot], bool]) -> list[nn.Parameter]:
        """Some trainable tensors for an optimiser of their own, over the same storage of values and gradients."""
        found = []
        for slot in self.layout.slots:
            if slot.role == PARAMETER and chosen(slot):
                found.append(leaf := nn.Parameter(self._values[slot.place]))
                leaf.grad = self.gradients[slot.place]
        return found

    @torch.no_grad()
    def hold(self, name: str, value: Tensor) -> Tensor:
        """A tensor on the device, at an address that stays the same for all silos this model serves.

        What a training step reads besides the model and its batch is held so: a recorded step then finds the values of
        the silo whose turn it is. On a CPU nothing is recorded, and it is the tensor itself: a copy of each would be
        memory as large as the model.
        """
        if self.parameters.device.type not in RECORDING:
            return value.to(self.parameters.device)
        key = (name, value.shape, value.dtype)
        if key not in self._held:
            self._held[key] = torch.empty_like(value, device=self.parameters.device)
        return self._held[key].copy_(value)

    def begin_sum(self, name: str) -> None:
        """Let a sum over the steps of an exchange begin at zero."""
        if name in self._sums:
            self._sums[name].zero_()

    @torch.no_grad()
    def add_to_sum(self, name: str, value: Tensor) -> None:
        """In a step: add to a sum, at an address that stays the same for all silos."""
        if name not in self._sums:
            self._sums[name] = torch.zeros_like(value)
        self._sums[name].add_(value)

    def sum_of(self, name: str) -> Tensor | None:
        """A sum as it is now; None before the first step that adds to it."""
        return self._sums[name].clone() if name in self._sums else None

    @contextmanager
    def keeping_statistics(self) -> Iterator[None]:
        """Restore all buffers after the block: for a forward pass that must not change BatchNorm's statistics."""
        floats = self._buffers.clone()
        counters = [counter.clone() for _, counter in self._counters]
        yield
        self._buffers.copy_(floats)
        for (_, counter), before in zip(self._counters, counters, strict=True):
            counter.copy_(before)

    @contextmanager
    def keeping_frozen(self) -> Iterator[None]:
        """Restore the buffers of frozen modules after the block: they are in no vector, so `load` does not."""
        buffers = [buffer for name in self._frozen for buffer in self.module.get_submodule(name).buffers(recurse=False)]
        before = [buffer.clone() for buffer in buffers]
        try:
            yield
        finally:
            for buffer, kept in zip(buffers, before, strict=True):
                buffer.copy_(kept)

    @torch.no_grad()
    def read(self) -> Tensor:
        """A copy of the whole vector."""
        vector = self._values.new_empty(self.layout.size)
        vector[: self.layout.parameters] = self._values
        vector[self.layout.parameters : self.layout.floats] = self._buffers
        for slot, counter in self._counters:
            vector[slot.place] = counter.reshape(-1).to(vector.dtype)
        return vector

    @torch.no_grad()
    def load(self, vector: Tensor) -> None:
        self._values.copy_(vector[: self.layout.parameters])
        self._buffers.copy_(vector[self.layout.parameters : self.layout.floats])
        for slot, counter in self._counters:
            counter.copy_(vector[slot.place].view(slot.shape).round())


_BLOCK = 1 << 17  # columns at a time: 20 rows of it stay in the cache


def blocks(row: Tensor, rows: int = 20) -> Iterator[slice]:
    """Columns at a time, for what is computed over so many rows of a matrix; a GPU takes all of them at once."""
    width = max(1024, 20 * _BLOCK // max(rows, 20)) if row.device.type == "cpu" else max(len(row), 1)
    for start in range(0, len(row), width):
        yield slice(start, start + width)


def weighted_mean(rows: Tensor, weights: Tensor) -> Tensor:
    """sum_i weights_i rows_i over the rows of a matrix, in the rows' own precision."""
    coefficients = weights.to(rows.device, rows.dtype)
    if rows.device.type != "cpu" or rows.dtype not in (torch.float32, torch.float64):
        return torch.mv(rows.T, coefficients)
    # numpy's matrix-vector product runs at twice the bandwidth of torch's on ARM, and as fast elsewhere
    matrix, factors = rows.detach().numpy(), coefficients.numpy()
    result = rows.new_empty(rows.shape[1])
    for block in blocks(result):
        np.matmul(factors, matrix[:, block], out=result.numpy()[block])
    return result


def gram(rows: Tensor, mask: Tensor | None = None) -> Tensor:
    """The Gram matrix of the rows in float64, computed block by block without a float64 copy of the matrix.

    With a mask (of the shape of `rows`) only entries where it is set count.
    """
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for start in range(0, rows.shape[1], _BLOCK):
        block = rows[:, start : start + _BLOCK].double()
        if mask is not None:
            block *= mask[:, start : start + _BLOCK]
        total += block @ block.T
    return total


def squared_norms(rows: Tensor) -> Tensor:
    """||row||^2 of every row in float64."""
    return torch.stack([torch.linalg.vector_norm(row, dtype=torch.float64).square() for row in rows])


def _groups(module: nn.Module) -> dict[str, str]:
    """Tensor name -> body, head, batch-norm, norm or auxiliary; the head is the attribute `head` of the network."""
    groups = {}
    for prefix, owner in module.named_modules():
        if prefix.split(".")[0] == AUXILIARY:
            group = AUXILIARY
        elif isinstance(owner, BATCH_NORMS):
            group = "batch-norm"
        elif isinstance(owner, _OTHER_NORMS):
            group = "norm"
        else:
            group = "head" if prefix.split(".")[0] == "head" else "body"
        for leaf, _ in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
            groups[f"{prefix}.{leaf}" if prefix else leaf] = group
    return groups


def _frozen_modules(module: nn.Module) -> set[str]:
    """Modules with parameters of their own, none of them trainable: their buffers are frozen too."""
    frozen = set()
    for prefix, owner in module.named_modules():
        own = list(owner.parameters(recurse=False))
        if own and not any(parameter.requires_grad for parameter in own):
            frozen.add(prefix)
    return frozen


def _persistent_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    persistent = set(module.state_dict(keep_vars=True))
    for name, buffer in module.named_buffers():
        if name in persistent:
            yield name, buffer
