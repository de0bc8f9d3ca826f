"""Pickles of arrays and lists, read without running anything that they name."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from fairsilo.errors import FairsiloError

# What NumPy's arrays, types and scalars are put together from; `_frombuffer` by pickles of protocol 5.
ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
}


class _Arrays(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core.", "numpy._core.")  # its name before NumPy 2
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def read_arrays(file: Path) -> Any:
    """Lists, tuples, texts, numbers and NumPy arrays of a pickle; all else is refused unread.

    Raises:
        FairsiloError: It names anything else, which loading would import or call; or it is damaged.
    """
    try:
        return _Arrays(io.BytesIO(file.read_bytes()), encoding="latin1").load()
    except pickle.UnpicklingError as problem:
        raise FairsiloError(
            f"pickle {file} is refused: {problem}; only lists and NumPy arrays are read from pickles, since others "
            "can run code"
        ) from None
    except OSError as problem:
        raise FairsiloError(f"pickle {file} cannot be read ({problem.strerror})") from None
    except Exception as problem:  # a damaged pickle raises anything
        raise FairsiloError(f"pickle {file} is damaged ({type(problem).__name__}: {problem})") from problem


def read_pair(file: Path) -> tuple[Any, Any]:
    """Two columns, such as images and labels."""
    found = read_arrays(file)
    if not isinstance(found, tuple | list) and getattr(found, "shape", ()) != (2,):
        raise FairsiloError(f"pickle {file} holds a {type(found).__name__}, but needs a pair of samples and labels")
    if len(found) != 2:
        raise FairsiloError(f"pickle {file} holds {len(found)} entries, but needs a pair of samples and labels")
    first, second = found
    return first, second
