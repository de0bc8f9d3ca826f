"""A package of the user's own, ready to edit: a method, a data set or a network with its test (`fairsilo new`).

The files are under `templates/`, with placeholders of `string.Template`.
"""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from fairsilo import data
from fairsilo.errors import FairsiloError, nearest, told_of
from fairsilo.methods import names
from fairsilo.models.described import all_models
from fairsilo.plugins import registered

LONGEST = 40  # characters of a name, so that lines of the package stay short
_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
_MEANT = {"auto", "none", "check", "prepare"}  # words that settings and commands understand in a name's place


@dataclass(frozen=True)
class Kind:
    """What sort of package is written.

    Attributes:
        words: What a user calls it.
        target: What the entry point names in the module.
        tries: Commands that put it to use once it is installed; `{name}` is filled in.
    """

    words: str
    target: str
    tries: tuple[str, ...]


KINDS = {
    "method": Kind(
        "method",
        "LossWeights",
        ("fairsilo check {name}", "fairsilo run method={name} baseline=fedavg rounds=3 epochs=1"),
    ),
    "dataset": Kind(
        "data set",
        "load",
        ("fairsilo datasets {name}", "fairsilo run data.name={name} method=fedavg rounds=3 epochs=1"),
    ),
    "model": Kind("model", "Net", ("fairsilo run model={name} method=fedavg rounds=3 epochs=1",)),
}


@dataclass(frozen=True)
class Package:
    """What was written.

    Attributes:
        folder: Where it lies.
        files: Its files, relative to the folder.
        commands: What to do next.
    """

    folder: Path
    files: tuple[str, ...]
    commands: tuple[str, ...]


def new(kind: str, name: str, out: Path | None = None) -> Package:
    """Write an installable package with a working method, data set or network, and its test.

    Args:
        kind: `method`, `dataset` or `model`.
        name: What it is called in commands; the module has the same name in lower case, with underscores.
        out: The folder, which must be empty or not exist; by default one of that name here.

    Returns:
        Where the package is, its files, and the next commands.

    Raises:
        FairsiloError: The name or the folder cannot be used; nothing is written.
    """
    if kind not in KINDS:
        raise FairsiloError(f"there is no template for {kind!r}{nearest(kind, KINDS)}")
    module = _module_of(kind, name)
    folder = Path(name) if out is None else out
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        what = "is a file" if folder.is_file() else "exists and is not empty"
        raise FairsiloError(f"folder {folder} {what}; choose another one with --out")
    chosen = KINDS[kind]
    values = {"name": name, "module": module, "target": chosen.target, "kind": chosen.words}
    content = _content(kind, values | {"group": f"fairsilo.{kind}s"})
    _write(folder, content)
    tries = (one.format(name=name) for one in chosen.tries)
    install = f"pip install -e {shlex.quote(f'{folder}[dev]')}"
    return Package(folder, tuple(content), (install, *tries, f"python -m pytest {shlex.quote(str(folder))}"))


def _module_of(kind: str, name: str) -> str:
    """The module's name, where the package's can be used."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST:
        raise FairsiloError(
            f"{name!r} cannot be the name of a package, which has letters, digits, - and _, begins with a letter, ends "
            f"with a letter or a digit, and has at most {LONGEST} characters"
        )
    module = _plain(name)
    if keyword.iskeyword(module) or keyword.issoftkeyword(module) or module in _MEANT:
        raise FairsiloError(f"{name!r} has a meaning of its own, in Python or in commands; choose another name")
    words = KINDS[kind].words
    for known in _known(kind):
        if _plain(known) == module:
            raise FairsiloError(f"there is a {words} {known!r} already; choose another name than {name!r}")
    if _importable(module):
        raise FairsiloError(f"Python finds a module {module!r} already; choose another name than {name!r}")
    return module


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _known(kind: str) -> Iterable[str]:
    """What fairsilo or an installed package has under a name; nothing is imported to find out."""
    if kind == "method":
        return (*names.own(), *registered(names.GROUP))
    return all_models() if kind == "model" else data.all_datasets()


def _importable(module: str) -> bool:
    """Whether the package would hide a module or be hidden by one; a folder without code is none."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


def _content(kind: str, values: dict[str, str]) -> dict[str, str]:
    """The package's files: path -> text."""
    sources = {
        "pyproject.toml": "pyproject.toml.tmpl",
        "README.md": f"{kind}/README.md.tmpl",
        f"src/{values['module']}/__init__.py": f"{kind}/package.py.tmpl",
        f"tests/test_{values['module']}.py": f"{kind}/test.py.tmpl",
    }
    place = files("fairsilo") / "templates"
    return {
        path: Template((place / source).read_text(encoding="utf-8")).substitute(values)
        for path, source in sources.items()
    }


def _write(folder: Path, content: dict[str, str]) -> None:
    """All files or none: they are written beside the folder, and put in place when they are complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with told_of(folder), TemporaryDirectory(dir=folder.parent, prefix=".fairsilo-new-") as place:
        complete = Path(place) / "package"
        for path, text in content.items():
            file = complete / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        if not folder.exists():
            complete.rename(folder)
            return
        for one in complete.iterdir():  # an empty folder stays what it is: a shell may be inside
            one.rename(folder / one.name)
