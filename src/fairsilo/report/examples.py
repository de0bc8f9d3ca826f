"""Example images of data with masks: the section of a run's page."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from fairsilo.report.blocks import paragraph, section
from fairsilo.report.classes import MODELS
from fairsilo.report.texts import percent, text
from fairsilo.runs.pictures import Example, Examples

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
    from fairsilo.report.outlines import picture  # torch is imported where there are examples

    score = percent(100 * one.dice)
    said = f"{silo.silo}, {one.place} test image: Dice {score}; outlines of the true and the predicted mask"
    coded = base64.b64encode(picture(one, COLOURS)).decode("ascii")
    return (
        f'<div><img src="data:image/jpeg;base64,{coded}" alt="{text(said)}" />'
        f'<p class="caption">{text(one.place)}: Dice {score}</p></div>'
    )
