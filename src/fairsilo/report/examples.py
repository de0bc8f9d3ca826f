"""Example images of data with masks: outlines of the truth and of the prediction, drawn into small pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from fairsilo.report.blocks import paragraph, section
from fairsilo.report.charts import percent, text
from fairsilo.report.classes import MODELS
from fairsilo.runs.examples import Example, Examples

WIDTH = 320  # of a drawn picture: outlines of two pixels are fine lines on a page
# told apart without red and green; together they are white
COLOURS = {"truth": (57, 255, 106), "said": (255, 79, 216), "both": (255, 255, 255)}
LEGEND = {"truth": "outline of the truth", "said": "outline of the prediction", "both": "both"}


def examples(found: Sequence[Examples], left_out: int) -> str:
    """The section of the page; nothing where a run kept none."""
    if not found:
        return ""
    about = "Of each silo the best, the median and the worst test image by Dice, by the models of the last round. "
    about += "The Dice of an image is the mean over the structures that it shows or is said to show."
    more = f"Of {left_out} more silos no examples were kept." if left_out else ""
    drawn = "".join(map(of_silo, found))
    return section(
        "examples",
        "Example images",
        paragraph(about),
        legend(),
        f'<div class="figures">\n{drawn}</div>\n',
        paragraph(more, "quiet") if more else "",
    )


def of_silo(one: Examples) -> str:
    tag = ' <span class="tag">unseen</span>' if one.unseen else ""
    title = f"{text(one.silo)}{tag}, {MODELS[one.model]} model"
    shots = "".join(shot(one, each) for each in one.images)
    return f'<figure><h3>{title}</h3>\n<div class="shots">{shots}</div></figure>\n'


def legend() -> str:
    items = "".join(
        f'<li><span class="swatch" style="--own: rgb{COLOURS[key]}"></span>{words}</li>'
        for key, words in LEGEND.items()
    )
    return f'<ul class="legend outlines">{items}</ul>\n'


def shot(silo: Examples, one: Example) -> str:
    score = percent(100 * one.dice)
    said = f"{silo.silo}, {one.place} test image: Dice {score}; outlines of the true and the predicted mask"
    coded = base64.b64encode(picture(one)).decode("ascii")
    return (
        f'<div><img src="data:image/jpeg;base64,{coded}" alt="{text(said)}" />'
        f'<p class="caption">{text(one.place)}: Dice {score}</p></div>'
    )


def picture(one: Example) -> bytes:
    """The image with both outlines as a JPEG."""
    factor = max(1, WIDTH // max(one.image.shape[1:]))
    image = F.interpolate(one.image[None].float(), scale_factor=factor, mode="bilinear")[0]
    pixels = image.round().to(torch.uint8).expand(3, -1, -1).movedim(0, -1).clone()
    truth, said = (edges(mask, factor) for mask in (one.truth, one.said))
    for key, where in (("truth", truth & ~said), ("said", said & ~truth), ("both", truth & said)):
        pixels[where] = torch.tensor(COLOURS[key], dtype=torch.uint8)
    file = io.BytesIO()
    # without subsampling of colours, which would blur the outlines
    Image.fromarray(pixels.numpy()).save(file, "JPEG", quality=80, subsampling=0)
    return file.getvalue()


def edges(mask: Tensor, factor: int) -> Tensor:
    """Pixels on either side of a change of class, after each pixel became a square of `factor` pixels.

    Outside is background, so that what fills the whole image has an outline too.
    """
    large = F.pad(mask.repeat_interleave(factor, 0).repeat_interleave(factor, 1), (1, 1, 1, 1))
    found = torch.zeros_like(large, dtype=torch.bool)
    down, right = large[1:] != large[:-1], large[:, 1:] != large[:, :-1]
    found[1:] |= down
    found[:-1] |= down
    found[:, 1:] |= right
    found[:, :-1] |= right
    return found[1:-1, 1:-1]
