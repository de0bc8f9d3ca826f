"""Trees of tensors and plain values in safetensors files; never pickles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fairsilo.errors import FairsiloError

Tree = Mapping[str, Any]


def write_tree(path: Path, tree: Tree) -> None:
    """Nested dictionaries of tensors and plain values as one safetensors file; no pickle."""
    tensors: dict[str, Tensor] = {}

    def plain(value: Any, place: str) -> Any:
        if isinstance(value, Tensor):
            key = str(len(tensors))
            tensors[key] = value.detach().cpu().contiguous().clone()
            return {"tensor": key}
        if isinstance(value, Mapping):
            return {"map": [[key, plain(item, f"{place}/{key}")] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            return {"list": [plain(item, f"{place}/{i}") for i, item in enumerate(value)]}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"{place} is a {type(value).__name__}; only tensors, numbers and texts can be kept")

    shape = plain(tree, "")
    save_file(tensors or {"empty": torch.empty(0)}, path, metadata={"tree": json.dumps(shape)})


def read_tree(path: Path) -> dict[str, Any]:
    tensors, metadata = read_tensors(path)
    if "tree" not in metadata:
        raise FairsiloError(f"{path} was not written by fairsilo")

    def restored(value: Any) -> Any:
        if isinstance(value, dict):
            if "tensor" in value:
                return tensors[value["tensor"]]
            if "map" in value:
                return {key: restored(item) for key, item in value["map"]}
            return [restored(item) for item in value["list"]]
        return value

    return dict(restored(json.loads(metadata["tree"])))


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
