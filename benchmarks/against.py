"""This checkout against an older one, each by its own `run.py`, the two in turns.

    git worktree add ../older COMMIT && python benchmarks/against.py ../older

Every number of `run.py` is a ratio taken in one run already; here the ratios of both checkouts stand side by side, the
median over the turns, with the range.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]


def measured(checkout: Path) -> dict[str, dict[str, Any]]:
    """What `run.py` of a checkout finds, with that checkout's sources."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
        command = [sys.executable, str(checkout / "benchmarks" / "run.py"), "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment, cwd=checkout)
        found: dict[str, dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("older", type=Path, help="another checkout of fairsilo")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    checkouts = {"older": given.older.resolve(), "this": HERE}
    found: dict[str, list[dict[str, dict[str, Any]]]] = {name: [] for name in checkouts}
    for turn in range(given.turns):
        for name in sorted(checkouts, reverse=turn % 2 == 1):
            found[name].append(measured(checkouts[name]))
            print(f"turn {turn + 1} of {given.turns}: {name}", file=sys.stderr)
    print("| what | older | this |\n|---|---|---|")
    for what in found["this"][0]:
        cells = []
        for name in checkouts:
            medians = [one[what]["median"] for one in found[name]]
            cells.append(f"{statistics.median(medians):.3f} ({min(medians):.3f} to {max(medians):.3f})")
        print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
