"""Which samples a run has seen: fingerprints in its folder, so that no result on them is taken for one on new data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairsilo.core.disk import replacing
from fairsilo.core.files import read_tree, write_tree
from fairsilo.core.fingerprints import fingerprints
from fairsilo.core.samples import Split
from fairsilo.data.federation import Federation

FILE = "seen.safetensors"


@dataclass(frozen=True)
class Seen:
    """Fingerprints of all samples that silos trained on, and of those that rounds and models were chosen by."""

    training: Tensor
    validation: Tensor

    def count(self, split: Split) -> dict[str, int]:
        """How many of these samples were seen, in training and (only there) in validation."""
        asked = fingerprints(split)
        trained = torch.isin(asked, self.training)
        validated = torch.isin(asked, self.validation) & ~trained
        return {"training": int(trained.sum()), "validation": int(validated.sum())}


def seen_of(federation: Federation) -> Seen:
    """What each silo says of its own training and validation samples, put together."""

    def together(splits: Iterable[Split]) -> Tensor:
        return torch.cat([fingerprints(split) for split in splits])

    return Seen(together(silo.train for silo in federation.silos), together(s.validation for s in federation.silos))


def write_seen(folder: Path, federation: Federation) -> None:
    """Keep the fingerprints in the run's folder; they are written once, when the run begins."""
    path = folder / FILE
    if not path.exists():
        found = seen_of(federation)
        with replacing(path) as beside:
            write_tree(beside, {"training": found.training, "validation": found.validation})


def read_seen(folder: Path) -> Seen | None:
    """None where a run of an earlier version kept no fingerprints."""
    path = folder / FILE
    if not path.exists():
        return None
    found = read_tree(path)
    return Seen(found["training"], found["validation"])


def warning(row: Mapping[str, Any]) -> str:
    """A sentence about a row of `Trained.evaluate` whose samples are not all new; empty where they are."""
    seen, total = row.get("seen"), row["samples"]
    if not seen or not any(seen.values()):
        return ""
    words = {"training": "trained on", "validation": "used for validation"}
    counts = " and ".join(f"{count} of {total} were {words[key]}" for key, count in seen.items() if count)
    return f"{row['domain']} is no new data for this run: {counts}"
