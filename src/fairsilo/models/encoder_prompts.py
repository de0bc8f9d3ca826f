"""Prompts inside an encoder that others share: put there for one call, in one thread, by a hook that stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn


@contextmanager
def _hooked(module: nn.Module, change: Callable[[Tensor], Tensor] | None) -> Iterator[None]:
    """Inside the block what the module returns is changed, in this thread; the backbone itself, which others share,
    is not."""
    if change is None:
        yield
        return
    with _HOOKING:
        if _changed not in module._forward_hooks.values():
            module.register_forward_hook(_changed)
    changes = _changes()
    before = changes.get(module)
    changes[module] = change
    try:
        yield
    finally:
        changes[module] = before


_HOOKING = threading.Lock()
_HERE = threading.local()  # of each thread: module -> what is made of its output at the moment


def _changes() -> WeakKeyDictionary[nn.Module, Callable[[Tensor], Tensor] | None]:
    if not hasattr(_HERE, "changes"):
        _HERE.changes = WeakKeyDictionary()
    found: WeakKeyDictionary[nn.Module, Callable[[Tensor], Tensor] | None] = _HERE.changes
    return found


def _changed(module: nn.Module, _inputs: Any, output: Tensor) -> Tensor | None:
    change = _changes().get(module)
    return None if change is None else change(output)


def appended(embeddings: nn.Module, prompts: Tensor | None) -> Any:
    if prompts is None:
        return _hooked(embeddings, None)

    def change(tokens: Tensor) -> Tensor:
        more = prompts if prompts.dim() == 3 else prompts.expand(tokens.shape[0], -1, -1)
        return torch.cat([tokens, more], 1)

    return _hooked(embeddings, change)


def context_after(first: int, embedding: nn.Module, context: Tensor | None) -> Any:
    """Inside the block a context takes the place of embedded tokens, after so many first ones."""
    if context is None:
        return _hooked(embedding, None)

    def change(tokens: Tensor) -> Tensor:
        inside = context.expand(len(tokens), -1, -1)
        return torch.cat([tokens[:, :first], inside, tokens[:, first + len(context) :]], 1)

    return _hooked(embedding, change)
