"""Models and nested dictionaries of tensors as safetensors, never pickles; written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fairsilo.core.disk import replacing
from fairsilo.core.vectors import Layout
from fairsilo.errors import FairsiloError

Tree = Mapping[str, Any]


def write_model(path: Path, vector: Tensor, layout: Layout, *, private: bool = False) -> None:
    """A model by tensor names, with the kinds of its tensors in the metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {key: value.detach().cpu().contiguous() for key, value in layout.views(vector).items()}
    with replacing(path) as beside:
        save_tensors(tensors, beside, {"layout": json.dumps(layout.describe())}, private=private)


def save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str], *, private: bool = False) -> None:
    """Save as safetensors; an error of the system, such as a full disk, is raised as an `OSError`.

    The file may be read by whom the umask lets, as any other one, and a `private` one by its owner alone: safetensors
    by itself moves a temporary file into place, which only its owner may read.
    """
    path.unlink(missing_ok=True)  # what a kill left behind may have other permissions
    path.touch(mode=0o600 if private else 0o666)
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as problem:
        found = re.search(r"\(os error (\d+)\)", str(problem))
        if found is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from problem
    path.chmod(mode)


def write_tree(path: Path, tree: Tree, *, private: bool = False) -> None:
    """Nested dictionaries of tensors and plain values as one safetensors file; no pickle."""
    kept = _Kept()
    shape = _plain(tree, "", kept)
    save_tensors(kept.tensors or {"empty": torch.empty(0)}, path, {"tree": json.dumps(shape)}, private=private)


class _Kept:
    """The tensors of a file by key, from where they lie: copies would be as much memory as is saved."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._keys: dict[tuple[int, torch.dtype, torch.Size], str] = {}
        self._storages: set[int] = set()

    def key(self, tensor: Tensor) -> str:
        """What occurs twice is written once; any other overlap the format refuses."""
        whole = (tensor.data_ptr(), tensor.dtype, tensor.shape)
        if whole not in self._keys:
            self._keys[whole] = key = str(len(self.tensors))
            storage = tensor.untyped_storage().data_ptr()
            self.tensors[key] = tensor.clone() if storage in self._storages else tensor
            self._storages.add(storage)
        return self._keys[whole]


def _plain(value: Any, place: str, kept: _Kept) -> Any:
    if isinstance(value, Tensor):
        return {"tensor": kept.key(value.detach().cpu().contiguous())}
    if isinstance(value, Mapping):
        return {"map": [[key, _plain(item, f"{place}/{key}", kept)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_plain(item, f"{place}/{i}", kept) for i, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{place} is a {type(value).__name__}; only tensors, numbers and texts can be kept")


def read_tree(path: Path) -> dict[str, Any]:
    tensors, metadata = read_tensors(path)
    if "tree" not in metadata:
        raise FairsiloError(f"{path} was not written by fairsilo")
    return dict(_restored(json.loads(metadata["tree"]), tensors))


def _restored(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "map" in value:
        return {key: _restored(item, tensors) for key, item in value["map"]}
    return [_restored(item, tensors) for item in value["list"]]


def on_device(tree: Any, device: torch.device) -> Any:
    """The same tree with its tensors on a device."""
    if isinstance(tree, Tensor):
        return tree.to(device)
    return {key: on_device(value, device) for key, value in tree.items()} if isinstance(tree, dict) else tree


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (OSError, SafetensorError) as problem:
        raise FairsiloError(f"{path} cannot be read: {problem}") from problem
