"""Writes the page of all sentences with which fairsilo refuses something, from the sources alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from error_cures import AS_IT_SAYS, GENERAL, INSTEAD, KNOWN, SAYS_IT, SPELLING
from page_blocks import joined, table

SOURCES = Path(__file__).resolve().parent.parent / "src" / "fairsilo"
GENERATED = "<!-- written by docs/generate.py from src/fairsilo; change the sentence there instead -->"
KINDS = {"FairsiloError", "StoppedError", "TooFewError"}  # those that are given a sentence and reach a user
HINTS = {"near", "nearest", "_near", "_nearest"}  # `; did you mean 'rounds'?`, or a list of what is known
HINT = "\0"  # stands for such a hint until the sentence is divided

# file or folder of src/fairsilo -> the area that a reader knows it by; of two that hold a file the longer one counts
AREAS = {
    "config.py": "Settings",
    "fields.py": "Settings",
    "protocols.py": "Settings",
    "core/calls.py": "Settings",
    "core/rates.py": "Settings",
    "runs/effects.py": "Settings",
    "methods": "Methods",
    "core": "Methods",
    "methods/accounting.py": "Privacy",
    "methods/masks.py": "Privacy",
    "methods/sample_gradients.py": "Privacy",
    "methods/secure_sums.py": "Privacy",
    "methods/parts/secure_aggregation.py": "Privacy",
    "data": "Data",
    "core/roster.py": "Data",
    "core/samples.py": "Data",
    "data/diffusion.py": "Synthetic images",
    "data/drawing.py": "Synthetic images",
    "data/synthetic.py": "Synthetic images",
    "engine/styles.py": "Synthetic images",
    "methods/infusion.py": "Synthetic images",
    "models": "Models",
    "core/pixels.py": "Models",
    "core/fused.py": "Models",
    "core/recurrence.py": "Models",
    "tasks": "Tasks",
    "engine": "Training",
    "core/round.py": "Training",
    "runs/engines.py": "Training",
    "runs": "Runs",
    "core/files.py": "Runs",
    "api.py": "Runs",
    "errors.py": "Runs",
    "runs/cells.py": "Comparisons",
    "runs/compare.py": "Comparisons",
    "runs/comparison.py": "Comparisons",
    "runs/estimator.py": "Trained models and exports",
    "runs/examples.py": "Trained models and exports",
    "runs/export_formats.py": "Trained models and exports",
    "runs/exported.py": "Trained models and exports",
    "runs/exporting.py": "Trained models and exports",
    "runs/finished.py": "Trained models and exports",
    "runs/joining.py": "Trained models and exports",
    "runs/predictions.py": "Trained models and exports",
    "runs/trained.py": "Trained models and exports",
    "cli": "The command line",
    "tuning": "Tuning",
    "advice": "Advice",
    "report": "Reports and figures",
    "analysis": "Reports and figures",
    "runs/replayed.py": "Reports and figures",
    "watch": "Watching",
    "tracking": "Tracking",
    "deploy": "Across machines",
    "plugins.py": "Code of your own",
    "scaffold.py": "Code of your own",
    "laws": "Code of your own",
    "reproduction": "Tables of papers",
}
# where the half begins that says what to do: what is cut away, and what the half begins with
CUTS = re.compile(rf"; |\. (?=[A-Z])|: (?=pip install|`?fairsilo |write |compose )|, but (?=must|needs? )|{HINT}")
NO_CURE = (
    "nothing was written",
    "the first kept",
    "groups:",
    "tensors:",
    "there are {",
)  # said behind a semicolon, and no help
SAME = {
    "str",
    "int",
    "float",
    "sorted",
    "next",
    "iter",
    "list",
    "set",
    "strip",
    "lower",
    "values",
    "keys",
    "resolve",
    "replace",
    "split",
}
WORD = re.compile(r"[A-Za-z]{2,}")
FIELD = re.compile(r"\{[^{}]*\}")


def errors_page() -> str:
    """All sentences by area, each with what to do."""
    found = sentences()
    about = (
        "Every sentence with which fairsilo refuses input, as the sources have it; words in braces stand for yours. "
        "Search the page for the words that do not change. The commoner ones, with what is behind them, are in "
        "[troubleshooting](troubleshooting.md)."
    )
    blocks = ["# Error sentences", GENERATED, about]
    for area in dict.fromkeys(AREAS.values()):
        rows = [[_marked(one), cure] for one, cure in found.get(area, {}).items()]
        if rows:
            blocks += [f"## {area}", table(["it says", "what to do"], rows)]
    return joined(blocks)


@cache  # the sources do not change while pages are written
def texts() -> list[tuple[Path, str]]:
    """Every file with what it says, one text after the other."""
    modules = {path: Module.read(path) for path in sorted(SOURCES.rglob("*.py"))}
    names = {module.name: module.constants for module in modules.values()}
    return [(path, text) for path, module in modules.items() for text in module.texts(names)]


def sentences() -> dict[str, dict[str, str]]:
    """Area -> sentence -> what to do, in an order that does not depend on the files."""
    found: dict[str, dict[str, str]] = {area: {} for area in AREAS.values()}
    for path, text in texts():
        if len(WORD.findall(FIELD.sub(" ", text.replace(HINT, "")))) < 2:
            continue  # hands on what another sentence says
        area = area_of(path.relative_to(SOURCES))
        if area is None:
            raise ValueError(f"{path} refuses something, and AREAS in docs/error_pages.py does not have its folder")
        sentence, cure = divided(text, area)
        found[area].setdefault(sentence, cure)
    return {area: dict(sorted(rows.items(), key=_place)) for area, rows in found.items()}


def area_of(path: Path) -> str | None:
    """Where a reader looks for what this file says."""
    return next((AREAS[str(one)] for one in [path, *path.parents] if str(one) in AREAS), None)


def divided(text: str, area: str) -> tuple[str, str]:
    """A sentence without the half that says what to do, and that half; or what helps in such cases."""
    sentence, cure = halves(text)
    for pattern, better in INSTEAD.items():
        if re.search(pattern, text):
            return sentence, better
    if cure:
        return sentence, cure
    for pattern, known in KNOWN.items():
        if re.search(pattern, text):
            return sentence, known
    return sentence, AS_IT_SAYS if re.search(SAYS_IT, sentence) else GENERAL[area]


def halves(text: str) -> tuple[str, str]:
    """Both halves; the second is empty where a sentence does not say what to do."""
    for cut in CUTS.finditer(text):
        before, rest = text[: cut.start()], text[cut.end() :].replace(HINT, "")
        if before.count("(") != before.count(")") or rest.startswith(NO_CURE):
            continue
        half = _marked(_ended(rest.lstrip("; ")))
        half = f"it {half}" if half.startswith(("must ", "needs ", "need ")) else half
        return _ended(before), "; ".join(filter(None, (SPELLING, half))) if cut[0] == HINT else half
    return _ended(text), ""


def _ended(text: str) -> str:
    return re.sub(r"(?<!\.)\.$", "", " ".join(text.split()))


def _place(row: tuple[str, str]) -> tuple[str, str]:
    return FIELD.sub("", row[0]).strip(" :,'").casefold(), row[0]


def _marked(text: str) -> str:
    """As Markdown: what is in backquotes stays, all else is shown as it is."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # one that is not closed is a character like others
        return re.sub(r"([\\*_<\[\]`])", r"\\\1", text)
    return "`".join(
        piece if number % 2 else re.sub(r"([\\*_<\[\]])", r"\\\1", piece) for number, piece in enumerate(pieces)
    )


# ----------------------------------------------------------------------------------------------------- from the sources
@dataclass
class Module:
    """A file of the package: the sentences in it, and the names that stand for texts and numbers."""

    name: str
    tree: ast.Module
    constants: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Module:
        parts = path.relative_to(SOURCES.parent).with_suffix("").parts
        made = cls(".".join(parts).removesuffix(".__init__"), ast.parse(path.read_text(encoding="utf-8")))
        for node in made.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                for target in node.targets:
                    if isinstance(target, ast.Name) and isinstance(node.value.value, str | int | float):
                        made.constants[target.id] = str(node.value.value)
        return made

    def texts(self, known: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        """Every sentence, with fields in braces; two where it is chosen between two."""
        names = dict(self.constants)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                there = known.get(node.module or "", {})
                names |= {one.asname or one.name: there[one.name] for one in node.names if one.name in there}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS and node.args:
                yield from (text for text in _said(node.args[0], names) if text)


def _said(node: ast.expr, names: Mapping[str, str]) -> list[str]:
    """What an expression says: a text for each of its ways, empty where only the program knows."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=name):
            return [names.get(name, "")]
        case ast.IfExp(body=first, orelse=second):
            return [*_said(first, names), *_said(second, names)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [one + other for one in _said(left, names) for other in _said(right, names)]
        case ast.JoinedStr(values=values):
            text = "".join(_piece(value, names) for value in values)
            return [re.sub(r"(?<=\S)\{(hint|has|otherwise)\}", HINT, text)]  # what `near` gave a few lines above
    return [""]


def _piece(node: ast.expr, names: Mapping[str, str]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.FormattedValue)
    value = node.value
    match value:
        case ast.Call(func=ast.Name(id=function)) if function in HINTS:
            return HINT
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Call(func=ast.Name(id="resuming"), args=[folder]):
            return f"fairsilo resume {{{word(folder)}}}"  # as it mostly is; what was begun in Python goes on there
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Name() | ast.Constant(value=str()) as right):
            end = right.value if isinstance(right, ast.Constant) else "{" + word(right) + "}"
            return "{" + word(left) + "}/" + str(end)
    return "{" + word(value) + "}"


def word(node: ast.expr) -> str:
    """A readable name for what stands in a field: of the thing itself, not of how it is computed."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.Name(id=name):
            return _plain(name)
        case ast.Attribute(attr="name", value=ast.Name(id="self")):
            return "name"
        case ast.Attribute(attr="name" | "id" | "names", value=owner):
            return word(owner)
        case ast.Attribute(attr="__name__" | "__qualname__"):
            return "type"
        case ast.Attribute(attr="strerror"):
            return "reason"
        case ast.Attribute(attr=name):
            return _plain(name)
        case ast.Subscript(value=owner, slice=ast.Constant(value=str(key))) if isinstance(owner, ast.Name):
            return _plain(key)
        case ast.Subscript(value=owner) | ast.Starred(value=owner):
            return word(owner)
        case ast.BinOp(left=left, op=ast.Div()):
            return word(left)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=int(number))):
            return f"{word(left)} {'+' if isinstance(node.op, ast.Add) else '-'} {number}"
        case ast.BinOp(left=left, right=right):
            return word(right) if isinstance(left, ast.Constant) else word(left)
        case ast.IfExp(body=first, orelse=second):
            ways = dict.fromkeys(filter(None, (word(first), word(second))))
            return " or ".join(ways)
        case ast.BoolOp(values=[first, *_]) | ast.UnaryOp(operand=first):
            return word(first)
        case ast.JoinedStr(values=values):
            parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in values]
            return " ".join(filter(None, (word(part).strip() for part in parts)))
        case ast.GeneratorExp(generators=[one, *_]) | ast.ListComp(generators=[one, *_]):
            return word(one.iter)
        case ast.Call():
            return _called(node)
    return "value"


def _called(node: ast.Call) -> str:
    match node:
        case ast.Call(func=ast.Attribute(attr="join"), args=[listed]):
            return word(listed)
        case ast.Call(func=ast.Name(id="map"), args=[_, listed]):
            return word(listed)
        case ast.Call(func=ast.Name(id="len"), args=[listed]):
            return f"number of {word(listed)}"
        case ast.Call(func=ast.Name(id="type")):
            return "type"
        case ast.Call(func=ast.Name(id="min" | "max" as which), args=[listed]):
            return f"{'smallest' if which == 'min' else 'largest'} of {word(listed)}"
        case ast.Call(func=ast.Name(id=name), args=[one, *_]) if name in SAME:
            return word(one)
        case ast.Call(func=ast.Name(id="_reason" | "said" | "_said")):
            return "reason"
        case ast.Call(func=ast.Attribute(value=owner, attr="min" | "max" as which), args=[]):
            return f"{'smallest' if which == 'min' else 'largest'} of {word(owner)}"
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
            return _plain(key)
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in SAME:
            return word(owner)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return _plain(name)
    return "value"


def _plain(name: str) -> str:
    text = name.strip("_").lower().replace("_", " ").replace(".", " ")
    return "reason" if text in {"problem", "error", "why"} else text or "value"
