"""One process writes a run folder at a time."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fairsilo.errors import FairsiloError

LOCK, OWNER = (
    ".lock",
    ".owner",
)  # the lock itself goes with its process, also by a kill; the second file says whose it is
PATIENCE = 1.0  # seconds: whoever asks whether a folder is in use holds it for a moment


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run folder for as long as the block runs.

    Raises:
        FairsiloError: Another process holds it.
    """
    lock = FileLock(folder / LOCK, timeout=PATIENCE)
    try:
        lock.acquire(poll_interval=0.02)
    except Timeout:
        raise FairsiloError(f"{folder} is in use by {_owner(folder)}; wait until that run ends, or stop it") from None
    try:
        (folder / OWNER).write_text(json.dumps({"process": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        lock.release()


if sys.platform == "win32":

    def in_use(folder: Path) -> bool:
        """Whether a process holds the folder now."""
        if not (folder / LOCK).exists():
            return False
        lock = FileLock(folder / LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            return True
        lock.release()
        return False

else:
    import fcntl

    def in_use(folder: Path) -> bool:
        """Whether a process holds the folder now; also where this one may only read, or not even that (then: no).

        The lock is asked for as one that can be shared, so that those who look do not take each other for a run.
        """
        try:
            file = os.open(folder / LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # the second is how some file systems say the first
            return True
        except OSError:
            return False
        finally:
            os.close(file)
        return False


def _owner(folder: Path) -> str:
    try:
        found = json.loads((folder / OWNER).read_text())
        return f"process {found['process']} on {found['host']}"
    except (OSError, ValueError, KeyError):
        return "another process"
