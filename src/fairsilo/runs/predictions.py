"""What a run says of image files, as rows: for a table, for JSON, and for a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fairsilo.errors import FairsiloError
from fairsilo.runs.trained import Trained

Row = dict[str, Any]


def predictions(trained: Trained, names: Sequence[str], images: Tensor, silo: str | None, which: str) -> list[Row]:
    """A row per image: its name, and the probability of each class or a number.

    With FedAG's global model also `attention`, the weight of each silo's adapter.

    Raises:
        FairsiloError: The run predicts masks, which are no row of a table.
    """
    task = trained.plan.task
    if task.output.per == "pixel":
        raise FairsiloError(
            f"{trained.folder} predicts a class for every pixel, which is no row of a table; "
            "fairsilo.load(folder).predict(images) gives the masks"
        )
    found = trained.predict(images, silo, which).tolist()
    if not task.classes:
        return [{"image": name, "number": value} for name, value in zip(names, found, strict=True)]
    rows: list[Row] = [
        {"image": name, "probabilities": dict(zip(trained.classes, shares, strict=True))}
        for name, shares in zip(names, found, strict=True)
    ]
    attention = None if silo else trained.attention(images)
    if attention is not None:
        for row, weights in zip(rows, attention.tolist(), strict=True):
            row["attention"] = dict(zip(trained.silos, weights, strict=True))
    return rows


def refuse_target(out: Path, images: Sequence[Path]) -> None:
    """A table may replace an earlier table, but no image and nothing else of the user's.

    Raises:
        FairsiloError: The file exists and is an input, or no CSV file.
    """
    if not out.exists():
        return
    if any(image.exists() and image.samefile(out) for image in images):
        raise FairsiloError(f"{out} is one of the images; name another file with --out")
    if out.is_dir() or out.suffix.lower() != ".csv":
        raise FairsiloError(f"{out} exists and is no CSV file; name another file with --out")


def flattened(rows: Sequence[Row]) -> list[Row]:
    """The rows of a CSV file, all with the same columns: path, class, and one column for each class and silo."""
    return [_flat(row) for row in rows]


def _flat(row: Row) -> Row:
    if "number" in row:
        return {"path": row["image"], "number": row["number"]}
    shares = row["probabilities"]
    return {
        "path": row["image"],
        "class": max(shares, key=shares.__getitem__),
        **{f"probability_{name}": value for name, value in shares.items()},
        **{f"attention_{silo}": value for silo, value in row.get("attention", {}).items()},
    }
