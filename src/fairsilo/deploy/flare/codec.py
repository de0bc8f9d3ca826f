"""FLARE's wire format, made ready for tensors as large as a model."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_common.decomposers import common_decomposers
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.f3.streaming.cacheable import CacheableObject, ItemConsumer
from nvflare.fuel.f3.streaming.download_service import download_object
from nvflare.fuel.utils import fobs
from safetensors import SafetensorError, safe_open
from torch import Tensor

PING = "fairsilo.ping"  # the topic by which the server asks whether a site's job process is there
SMALL = 2**20  # bytes up to which a tensor that arrived is kept in memory
_ALIGNED = 64  # bytes to whose multiple the first tensor in a file begins
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def register(folder: Path) -> None:
    """Teach FLARE tensors; those that arrive are written to files without a name on the disk of this folder.

    FLARE's own codecs come first: whoever encodes one of its types before them makes every later login fail.
    """
    flare_decomposers.register()
    common_decomposers.register()
    fobs.register(Tensors(folder))


class Tensors(TensorDecomposer):
    """The tensors of a message as one safetensors file, which is sent block by block and arrives on the disk.

    FLARE's own way is a message for each tensor. A model is one tensor here, and would be held several times at both
    ends, and at the server once more for every site whose answer waits for its turn.

    Args:
        folder: On the disk that takes what arrives.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def to_downloadable(self, items: dict[str, Tensor], max_chunk_size: int, fobs_ctx: dict[str, Any]) -> Blocks:
        return Blocks(items, max_chunk_size)

    def download(
        self, from_fqcn: str, ref_id: str, *, fobs_ctx: object = None, **options: Any
    ) -> tuple[str, dict[str, Tensor]]:
        """What went wrong, and the tensors by their names."""
        with tempfile.TemporaryFile(dir=self.folder) as file:
            arriving = Arriving(file)
            download_object(from_fqcn=from_fqcn, ref_id=ref_id, consumer=arriving, **options)
            if arriving.error:
                return str(arriving.error), {}
            try:
                return "", tensors_in(file)
            except (SafetensorError, OSError) as problem:
                return f"what arrived holds no tensors: {problem}", {}


class Blocks(CacheableObject):
    """Tensors as a safetensors file, of which only the block under way is in memory."""

    def __init__(self, tensors: Mapping[str, Tensor], size: int) -> None:
        # the widest first: every tensor then begins at a multiple of its width
        flat = {
            name: tensor.detach().reshape(-1).view(torch.uint8)
            for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].itemsize)
        }
        self.header = _header({name: tensors[name] for name in flat})
        self.places = [
            (name, start, min(start + size, len(values)))
            for name, values in flat.items()
            for start in range(0, len(values), size)
        ]
        super().__init__(flat, size)

    def get_item_count(self) -> int:
        return 1 + len(self.places)

    def get_item_size(self, index: int) -> int:
        _, start, stop = self.places[index - 1] if index else ("", 0, len(self.header))
        return stop - start

    def produce_item(self, index: int) -> bytes:
        if index == 0:
            return self.header
        name, start, stop = self.places[index - 1]
        block: bytes = self.base_obj[name][start:stop].numpy().tobytes()
        return block


class Arriving(ItemConsumer):
    """Writes blocks to a file."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self.file = file

    def consume_items(self, items: list[bytes], result: object) -> None:
        for block in items:
            self.file.write(block)


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    """The beginning of a safetensors file: how long its description is, and the description."""
    described, position = {}, 0
    for name, tensor in tensors.items():
        end = position + tensor.nbytes
        described[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(described).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNED)
    return struct.pack("<Q", len(text)) + text


def tensors_in(file: IO[bytes]) -> dict[str, Tensor]:
    """The tensors of a file that has no name; large ones stay in it and are read when they are used.

    They may be changed, which changes memory and not the file. The file is gone when nothing needs it any more.
    """
    file.flush()
    with safe_open(f"/dev/fd/{file.fileno()}", framework="pt") as found:
        tensors = {name: found.get_tensor(name) for name in found.keys()}  # noqa: SIM118
    return {name: tensor.clone() if tensor.nbytes <= SMALL else tensor for name, tensor in tensors.items()}
