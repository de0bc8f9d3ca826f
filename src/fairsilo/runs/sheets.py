"""A picture of the synthetic images that a run was given: some of every silo's, for the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image, PngImagePlugin
from torch import Tensor

from fairsilo.core.samples import Split
from fairsilo.runs.pictures import SHEET

ACROSS, DOWN = 20, 12  # images of a silo, and silos
PIXELS = 48  # of an image at least


def write_sheet(folder: Path, synthetic: Mapping[str, Split]) -> None:
    """Rows of images in the order of their classes; nothing where samples are no images."""
    shown = dict(sorted(synthetic.items())[:DOWN])
    if not shown or any(split.inputs.dim() != 4 or split.inputs.shape[1] not in (1, 3) for split in shown.values()):
        return
    rows = [_row(split) for split in shown.values()]
    wide = max(row.shape[2] for row in rows)
    sheet = torch.cat([F.pad(row, (0, wide - row.shape[2]), value=255) for row in rows], 1)
    about = PngImagePlugin.PngInfo()
    about.add_text("silos", json.dumps(list(shown)))
    beside = folder / f".{SHEET}.part"
    Image.fromarray(sheet.permute(1, 2, 0).numpy()).save(beside, "PNG", pnginfo=about)
    beside.replace(folder / SHEET)


def _row(split: Split) -> Tensor:
    """The first images of each class side by side, classes in turn."""
    targets = split.targets.cpu()
    places = torch.zeros_like(targets)
    for label in set(targets.tolist()):
        places[targets == label] = torch.arange(int((targets == label).sum()))
    classes = max(len(set(targets.tolist())), 1)
    first = (places < max(1, ACROSS // classes)).nonzero().flatten()[:ACROSS]
    chosen = first[targets[first].argsort(stable=True)]
    images = split.take(chosen)[0].cpu().expand(-1, 3, -1, -1)
    images = images if images.dtype == torch.uint8 else (255 * images.clamp(0, 1)).to(torch.uint8)
    factor = max(1, PIXELS // max(images.shape[2:]))
    large = images.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    return torch.cat(list(large), 2)
