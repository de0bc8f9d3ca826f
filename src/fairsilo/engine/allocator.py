"""Memory of worker processes: freed blocks are kept for the next step."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc's malloc.h
_NEVER, _LARGE = 2**31 - 1, 2**30


def keep_freed_blocks() -> bool:
    """Have glibc keep what is freed; returns whether it does.

    By itself it gives large blocks back to the system and asks for them anew at the next step, and the system hands
    out each page by a fault and fills it with zeros. (PyTorch's builds for ARM have an allocator of their own, which
    this does not concern.) No number changes. The process stays as large as it ever was, so
    that this is for processes of our own only.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
