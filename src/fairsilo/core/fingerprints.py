"""A sample as 64 bits of a hash of its content: enough to recognise it, not enough to restore it."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from fairsilo.core.samples import Split


def fingerprints(split: Split) -> Tensor:
    """One number per sample (int64, as many as samples), the same for the same input wherever it lies.

    It depends on the values, type and shape of the input alone, not on the target: a copy of a sample may have none.
    """
    head = hashlib.blake2b(repr((split.shape, split.dtype)).encode(), digest_size=8)
    found = []
    for inputs, _ in split.blocks():
        for sample in inputs.contiguous():
            one = head.copy()
            one.update(sample.numpy().tobytes())
            found.append(int.from_bytes(one.digest(), "little", signed=True))
    return torch.tensor(found, dtype=torch.int64)
