"""A sample of small changes to the sources, and which of them the tests notice.

`python tests/mutants/sample.py [--count N] [--seed S] [--only TEXT] [--limit SECONDS] [--minutes M] [--workers N]`
draws N places over methods/, core/ and tasks/ (each file in turn, so that small files count too), changes one thing at
a time in a copy of the sources and runs the tests that concern the file, until the first fails. Survivors are printed
as rows of the table in survivors.md. A sample of one seed is the same as long as the sources are.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import trial

FOLDERS = ("methods", "core", "tasks")
# names and texts alone: what they say is compared by the tests of the documentation
LEFT_OUT = ("catalogue.py", "__init__.py", "hooks.py", "text.py")
COMPARISONS = {
    ast.Lt: (" >= ", " <= "),
    ast.LtE: (" > ", " < "),
    ast.Gt: (" <= ", " >= "),
    ast.GtE: (" < ", " > "),
    ast.Eq: (" != ",),
    ast.NotEq: (" == ",),
    ast.Is: (" is not ",),
    ast.IsNot: (" is ",),
    ast.In: (" not in ",),
    ast.NotIn: (" in ",),
}
ARITHMETIC = {
    ast.Add: " - ",
    ast.Sub: " + ",
    ast.Mult: " / ",
    ast.Div: " * ",
    ast.Pow: " * ",
    ast.FloorDiv: " * ",
    ast.Mod: " * ",
}
TWINS = {"min": "max", "max": "min", "sum": "mean", "mean": "sum", "add_": "sub_", "sub_": "add_", "exp": "neg"}
TWINS |= {"sqrt": "square", "square": "sqrt", "train": "eval", "eval": "train", "amax": "amin", "log": "exp"}


class Mutant(NamedTuple):
    file: Path
    line: int
    start: int  # in the text, in characters
    end: int
    new: str
    kind: str

    def text(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]


class Places(ast.NodeVisitor):
    """Every change that can be made inside the functions of one file."""

    def __init__(self, file: Path) -> None:
        self.file, self.source = file, file.read_text(encoding="utf-8")
        self.lines = [0]
        for line in self.source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.found: list[Mutant] = []
        self.inside = 0
        self.visit(ast.parse(self.source))

    def place(self, line: int, column: int) -> int:
        start = self.lines[line - 1]
        text = self.source[start : self.lines[line]].encode()[:column].decode()
        return start + len(text)

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.place(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self.place(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def segment(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def add(self, node: ast.AST, new: str, kind: str) -> None:
        self.between(*self.span(node), new, kind, node.lineno)  # type: ignore[attr-defined]

    def between(self, start: int, end: int, new: str, kind: str, line: int) -> None:
        if self.inside:
            self.found.append(Mutant(self.file, line, start, end, new, kind))

    # ---- what is never changed: messages to people, assertions for the type checker, annotations
    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        body = node.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]
        self.inside += 1
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for statement in body:
            self.visit(statement)
        self.inside -= 1

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_Raise(self, node: ast.Raise) -> None:
        self.add(node, "pass", "raise left out")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and self.inside:
            self.visit(node.value)

    # ---- what is changed
    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            start, end = self.span(node.left)[1], self.span(node.comparators[0])[0]
            between = self.source[start:end]
            if "(" not in between and ")" not in between:
                for new in COMPARISONS[type(node.ops[0])]:
                    self.between(start, end, new, "comparison", node.lineno)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        start, end = self.span(node.left)[1], self.span(node.right)[0]
        between = self.source[start:end]
        if type(node.op) in ARITHMETIC and "(" not in between and ")" not in between:
            self.between(start, end, ARITHMETIC[type(node.op)], "operator", node.lineno)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        start, end = self.span(node.values[0])[1], self.span(node.values[1])[0]
        between = self.source[start:end]
        if "(" not in between and ")" not in between and len(node.values) == 2:
            self.between(start, end, " or " if isinstance(node.op, ast.And) else " and ", "and / or", node.lineno)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.add(node, self.segment(node.operand), "sign or `not` left out")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, str(not node.value), "constant")
        elif isinstance(node.value, int | float):
            self.add(
                node,
                repr(node.value * 2 if isinstance(node.value, float) and node.value else node.value + 1),
                "constant",
            )

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self.add(node.value, "None", "result left out")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self.add(node.test, f"not ({self.segment(node.test)})", "condition turned round")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.add(node.test, f"not ({self.segment(node.test)})", "condition turned round")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.add(node, "pass", "call left out")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Subscript | ast.Attribute):
            self.add(node, "pass", "assignment left out")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add(node, "pass", "assignment left out")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        plain = [one for one in node.args if not isinstance(one, ast.Starred)]
        if len(plain) == len(node.args) >= 2:
            (start, middle), (after, end) = self.span(node.args[0]), self.span(node.args[1])
            one, other = self.segment(node.args[0]), self.segment(node.args[1])
            swapped = other + self.source[middle:after] + one
            if one != other:
                self.between(start, end, swapped, "arguments swapped", node.lineno)
        if isinstance(node.func, ast.Attribute) and node.func.attr in TWINS:
            _, end = self.span(node.func)
            self.between(end - len(node.func.attr), end, TWINS[node.func.attr], "another function", node.lineno)
        self.generic_visit(node)


def sources() -> list[Path]:
    files = [file for folder in FOLDERS for file in sorted((trial.PACKAGE / folder).rglob("*.py"))]
    return [file for file in files if file.name not in LEFT_OUT]


def drawn(seed: int, only: str) -> Iterator[Mutant]:
    """Files in turn, each giving one of its places at a time; long files twice as often as short ones."""
    stream = random.Random(seed)
    waiting = {}
    for file in sources():
        if only in str(file.relative_to(trial.PACKAGE)):
            places = Places(file).found
            stream.shuffle(places)
            waiting[file] = places
    while any(waiting.values()):
        files = [file for file, places in waiting.items() if places]
        stream.shuffle(files)
        for file in files:
            for _ in range(2 if len(waiting[file]) > 60 else 1):
                if waiting[file]:
                    yield waiting[file].pop()


def described(mutant: Mutant, source: str) -> str:
    """The line as it is and what becomes of it, short enough for a row of a table."""
    was = " ".join(source[mutant.start : mutant.end].split()) or "?"
    line = source.splitlines()[mutant.line - 1].strip()
    change = f"`{was}` -> `{mutant.new.strip()}`" if len(was) < 60 else f"-> `{mutant.new.strip()[:60]}`"
    return f"{mutant.file.relative_to(trial.PACKAGE)}:{mutant.line} | `{line[:100]}` | {mutant.kind}: {change}".replace(
        "|`", "| `"
    )


class Judge:
    """One process that tries mutants, in a copy of the sources of its own."""

    def __init__(self, limit: float, end: float) -> None:
        self.limit, self.end = limit, end
        self.context = trial.copied()
        self.copy = self.context.__enter__()
        self.log = self.copy.parent / "log"

    def verdict(self, mutant: Mutant) -> dict[str, object] | None:
        """What the tests say of a mutant; None where it is no Python, or time is up."""
        source = mutant.file.read_text(encoding="utf-8")
        file = self.copy / mutant.file.relative_to(trial.PACKAGE.parent)
        changed = mutant.text(source)
        try:
            ast.parse(changed)
        except SyntaxError:
            return None
        if time.monotonic() > self.end:
            return None
        file.write_text(changed, encoding="utf-8")
        started = time.monotonic()
        found = trial.outcome(self.copy, trial.tests_for(mutant.file), self.limit, self.log)
        file.write_text(source, encoding="utf-8")
        failed = [line for line in self.log.read_text(errors="replace").splitlines() if line.startswith("FAILED")]
        seconds = round(time.monotonic() - started, 1)
        return {"verdict": found, "mutant": described(mutant, source), "by": failed, "seconds": seconds}


JUDGE: list[Judge] = []  # of this process


def begin(limit: float, end: float) -> None:
    JUDGE.append(Judge(limit, end))


def judged(mutant: Mutant) -> dict[str, object] | None:
    return JUDGE[0].verdict(mutant)


def sound(chosen: list[Mutant], limit: float) -> bool:
    """Whether the tests pass on the sources as they are: one that fails would catch everything."""
    everything = dict.fromkeys(test for one in chosen for test in trial.tests_for(one.file))
    with trial.copied() as copy:
        log = copy.parent / "log"
        if trial.outcome(copy, everything, limit, log) == trial.SURVIVED:
            return True
        print(log.read_text(errors="replace"))
    return False


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=200, help="how many mutants")
    options.add_argument("--skip", type=int, default=0, help="leave out the first ones of the sample")
    options.add_argument("--seed", type=int, default=0, help="another seed, another sample")
    options.add_argument("--only", default="", help="files whose path has this text")
    options.add_argument("--limit", type=float, default=240, help="seconds for one mutant")
    options.add_argument("--minutes", type=float, default=600, help="stop after so many")
    options.add_argument("--workers", type=int, default=1, help="mutants tried at the same time")
    options.add_argument("--trusting", action="store_true", help="do not first see the tests pass without a mutant")
    options.add_argument("--out", type=Path, help="a line of JSON per mutant is added to this file")
    options.add_argument("--again", type=Path, help="only those that were not caught in this file")
    given = options.parse_args()
    end = time.monotonic() + 60 * given.minutes
    trial.warm()
    counts: Counter[object] = Counter()
    chosen = list(islice(drawn(given.seed, given.only), given.skip, given.skip + given.count))
    if given.again:
        rows = [json.loads(line) for line in given.again.read_text().splitlines()]
        wanted = {row["mutant"] for row in rows if row["verdict"] != trial.CAUGHT}
        chosen = [one for one in chosen if described(one, one.file.read_text(encoding="utf-8")) in wanted]
    if not given.trusting and chosen and not sound(chosen, 20 * given.limit):
        print("the tests fail without any mutant")
        return 1
    fork = multiprocessing.get_context("fork")  # the parent has imported what is slow
    with ProcessPoolExecutor(given.workers, fork, begin, (given.limit, end)) as pool:
        for row in filter(None, pool.map(judged, chosen)):
            counts[row["verdict"]] += 1
            if given.out:
                with given.out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(row) + "\n")
            if row["verdict"] != trial.CAUGHT:
                print(f"| {row['mutant']} | {row['verdict']} |", flush=True)
    # what timed out is neither: the change may loop for ever, or the machine be busy
    print(f"{counts[trial.CAUGHT]} of {counts[trial.CAUGHT] + counts[trial.SURVIVED]} mutants caught: {dict(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
