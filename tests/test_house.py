"""How the package is put together: imports go down the layers, in no circle, and no file grows too long."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import fairsilo

ROOT = Path(fairsilo.__file__).parent
LONGEST = 500
LAYERS = (
    "errors",
    "fields",
    "protocols",
    "config",
    "plugins",
    "core",
    "models",
    "tasks",
    "data",
    "methods",
    "engine",
    "analysis",
    "runs",
    "tracking",
    "experiments",
    "reproduction",
    "tuning",
    "advice",
    "report",
    "watch",
    "deploy",
    "api",
    "laws",
    "scaffold",
    "cli",
)


def modules() -> dict[str, Path]:
    """Dotted name -> file, of the whole package."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a file imports, anywhere in it; not what only the type checker sees."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            pending += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names if item.name in known)
        if isinstance(node, ast.ImportFrom) and node.module in known:
            inside = [f"{node.module}.{item.name}" for item in node.names]
            yield from (name if name in known else str(node.module) for name in inside)
        pending += ast.iter_child_nodes(node)


def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: set(imported(path, known)) - {name} for name, path in known.items()}


def layer(name: str) -> int | None:
    parts = name.split(".")
    return LAYERS.index(parts[1]) if len(parts) > 1 and parts[1] in LAYERS else None


def test_no_file_is_too_long() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules().items()}
    assert [name for name, length in lengths.items() if length > LONGEST] == []


def test_a_part_is_one_idea_and_no_library() -> None:
    """Networks belong in models/ and shared mathematics in methods/: parts stay under 60 lines on average."""
    parts = [path for path in (ROOT / "methods" / "parts").glob("*.py") if path.stem != "__init__"]
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in parts]
    assert sum(lengths) / len(lengths) < 60


def test_no_imports_go_round_in_a_circle() -> None:
    found = graph()
    assert len(found) > 100
    try:
        TopologicalSorter(found).prepare()
    except CycleError as circle:
        raise AssertionError(" -> ".join(circle.args[1])) from None


def test_every_module_has_a_layer() -> None:
    """All but the package itself, which imports on use."""
    assert [name for name in modules() if layer(name) is None] == ["fairsilo"]


def test_imports_go_down_the_layers_only() -> None:
    upward = {
        (name, other)
        for name, others in graph().items()
        for other in others
        if (here := layer(name)) is not None and (there := layer(other)) is not None and there > here
    }
    assert upward == set()


def test_a_diagnostic_and_its_figure_bear_the_same_name() -> None:
    from fairsilo.report.figures.registry import FIGURES

    shared = {"__init__", "replay", "aggregation"}
    diagnostics = {path.stem for path in (ROOT / "analysis" / "diagnostics").glob("*.py")} - shared
    drawings = {path.stem for path in (ROOT / "report" / "figures").glob("*.py")}
    assert diagnostics == {name.replace("-", "_") for name in FIGURES}
    assert diagnostics <= drawings
    for name, diagram in FIGURES.items():
        assert diagram.compute.__name__ == name.replace("-", "_")
        assert diagram.compute.__module__ == f"fairsilo.analysis.diagnostics.{name.replace('-', '_')}"
        assert diagram.draw.__module__ == f"fairsilo.report.figures.{name.replace('-', '_')}"
