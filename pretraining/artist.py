"""Pictures to train the generator on: digits over grounds that `scenes.py` does not draw, from shapes of other fonts.

tiny-clip must not have seen them: a generator that draws what CLIP was trained on can teach it nothing. So fonts are
other ones (`generator_fonts.txt`), handwriting comes from other strokes, and all code here is this file's own. Nothing
is taken from `glyphs` or from any other federation's images.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

SIZE, CANVAS = 32, 64  # pixels of a picture, and while it is drawn
HAND, TYPE = 0, 1  # where a shape comes from
LUMA = (0.3, 0.59, 0.11)


@dataclass
class Style:
    """How each picture of a batch is drawn, every number between 0 and 1; columns of a table, a row each picture."""

    typed: Tensor  # type instead of handwriting
    outlined: Tensor  # only the edge of the figure
    bold: Tensor  # grown strokes
    large: Tensor  # of the figure in the picture
    light: Tensor  # brightness of the ground
    red: Tensor  # its colour, where it has one
    blue: Tensor
    coloured: Tensor  # how far colours may go from grey
    shaded: Tensor  # a ramp of light
    cloudy: Tensor  # soft patches
    cluttered: Tensor  # edges and patches of other things
    striped: Tensor  # a pattern in the ground
    contrast: Tensor  # of figure and ground
    inverting: Tensor  # the figure turns the ground into its opposite instead of covering it
    crowded: Tensor  # other figures at the sides
    soft: Tensor  # out of focus
    coarse: Tensor  # seen with few pixels
    grainy: Tensor  # noise

    def table(self) -> Tensor:
        return torch.stack([getattr(self, item.name) for item in fields(self)], 1)

    def said(self) -> Tensor:
        """Which words of the vocabulary are true of each picture."""
        true = {"typed": self.typed > 0.5, "handwritten": self.typed < 0.5, "light": self.light > 0.5}
        true |= {"dark": self.light < 0.5, **{name: getattr(self, name) > 0.5 for name in ADJECTIVES}}
        return torch.stack([true[word] for word in VOCABULARY], 1)


ADJECTIVES = (
    "outlined", "coloured", "cluttered", "cloudy", "striped", "shaded", "crowded", "inverting", "bold", "soft",
    "coarse", "grainy",
)  # fmt: skip
VOCABULARY = ("typed", "handwritten", "light", "dark", *ADJECTIVES)


class Artist:
    """Draws batches of digits without end.

    Args:
        shapes: uint8, N x side x side: ink of one figure each, centred.
        labels: Which digit each is.
        sources: HAND or TYPE.
    """

    def __init__(self, shapes: Tensor, labels: Tensor, sources: Tensor, device: torch.device, seed: int = 0) -> None:
        self.shapes, self.device = shapes.to(device), device
        self.random = torch.Generator(device).manual_seed(seed)
        rows = {(source, digit): ((labels == digit) & (sources == source)).nonzero().flatten()
                for source in (HAND, TYPE) for digit in range(10)}  # fmt: skip
        longest = max(map(len, rows.values()))
        self.counts = torch.tensor([[len(rows[source, digit]) for digit in range(10)] for source in (HAND, TYPE)])
        self.rows = torch.zeros(2, 10, longest, dtype=torch.long)
        for (source, digit), found in rows.items():
            self.rows[source, digit, : len(found)] = found
        self.rows, self.counts = self.rows.to(device), self.counts.to(device)
        steps = (torch.arange(CANVAS, device=device) * 2 + 1) / CANVAS - 1
        self.y, self.x = torch.meshgrid(steps, steps, indexing="ij")
        frequency = torch.fft.fftfreq(CANVAS, device=device) * CANVAS
        self.radius = (frequency[:, None] ** 2 + frequency[None, : CANVAS // 2 + 1] ** 2).sqrt().clamp_min(1)
        self.luma = torch.tensor(LUMA, device=device).reshape(1, 3, 1, 1)

    # ------------------------------------------------------------------------------------------------- random numbers
    def uniform(self, count: int, low: float = 0.0, high: float = 1.0, channels: int = 1) -> Tensor:
        drawn = torch.rand(count, channels, 1, 1, generator=self.random, device=self.device)
        return low + (high - low) * drawn

    def normal(self, *size: int) -> Tensor:
        return torch.randn(size, generator=self.random, device=self.device)

    def style(self, count: int) -> Style:
        """Many pictures are plain: a switch decides whether a fault or an ornament is there at all."""

        def number(chance: float = 1.0) -> Tensor:
            found, there = (torch.rand(count, generator=self.random, device=self.device) for _ in range(2))
            return found * (there < chance)

        def switch(chance: float) -> Tensor:
            return (torch.rand(count, generator=self.random, device=self.device) < chance).float()

        return Style(
            typed=switch(0.5), outlined=switch(0.15), bold=number(0.6), large=number(), light=number(), red=number(),
            blue=number(), coloured=number(0.65), shaded=number(0.5), cloudy=number(0.35), cluttered=number(0.4),
            striped=number(0.2), contrast=number(), inverting=switch(0.15), crowded=switch(0.25), soft=number(0.5),
            coarse=number(0.3), grainy=number(0.5),
        )  # fmt: skip

    # ---------------------------------------------------------------------------------------------------------- drawing
    @torch.no_grad()
    def batch(self, count: int) -> tuple[Tensor, Tensor, Style]:
        """Pictures in [-1, 1], their digits, and how they were drawn."""
        label = torch.randint(10, (count,), generator=self.random, device=self.device)
        style = self.style(count)
        return self.drawn(label, style), label, style

    @torch.no_grad()
    def drawn(self, label: Tensor, style: Style) -> Tensor:
        column = {item.name: getattr(style, item.name).reshape(-1, 1, 1, 1) for item in fields(style)}
        ink = self.figure(label, style, 0.0)
        side = torch.where(self.uniform(len(label)) < 0.5, -1.0, 1.0)
        for number in (1.0, -1.0):
            other = torch.randint(10, (len(label),), generator=self.random, device=self.device)
            beside = self.figure(other, style, number * side * self.uniform(len(label), 1.15, 1.45))
            shown = column["crowded"] * (self.uniform(len(label)) < (0.9 if number > 0 else 0.5)).float()
            ink = torch.maximum(ink, shown * beside)
        ground = self.ground(column)
        picture = self.inked(ground, ink, column)
        return self.seen(picture, column)

    def figure(self, label: Tensor, style: Style, shift: Tensor | float) -> Tensor:
        """Ink of a random shape of each digit, bent, turned, moved, grown or hollowed out."""
        count, source = len(label), style.typed.long()
        choice = torch.rand(count, generator=self.random, device=self.device) * self.counts[source, label]
        ink = self.shapes[self.rows[source, label, choice.long()]][:, None].float() / 255
        typed = style.typed.reshape(-1, 1, 1, 1)
        turn = self.uniform(count, -0.22, 0.22) * (1 - 0.6 * typed)
        slant = self.uniform(count, -0.2, 0.2) * (1 - 0.7 * typed)
        size = 0.75 + 0.5 * style.large.reshape(-1, 1, 1, 1)
        wide = size * self.uniform(count, 0.75, 1.1)
        x, y = self.x - (self.uniform(count, -0.12, 0.12) + shift * size), self.y - self.uniform(count, -0.12, 0.12)
        x, y = (turn.cos() * x + turn.sin() * y) / wide, (turn.cos() * y - turn.sin() * x) / size
        x = x + slant * y
        bend = 0.09 * (1 - 0.8 * typed)  # hands differ by more than fonts do
        x, y = x + bend * self.wave(count, y), y + bend * self.wave(count, x)
        ink = F.grid_sample(ink, torch.cat([x, y], 1).permute(0, 2, 3, 1), align_corners=False)
        bold = style.bold.reshape(-1, 1, 1, 1)
        ink = (
            ink
            + bold * (F.max_pool2d(ink, 3, 1, 1) - ink)
            + (bold > 0.6) * (F.max_pool2d(ink, 5, 1, 2) - ink) * bold / 2
        )
        ink = ink.clamp(0, 1)
        edge = F.max_pool2d(ink, 5, 1, 2) - (-F.max_pool2d(-ink, 3, 1, 1))
        return torch.where(style.outlined.reshape(-1, 1, 1, 1) > 0.5, edge, ink)

    def wave(self, count: int, along: Tensor) -> Tensor:
        return (self.uniform(count, 1.5, 5) * along + self.uniform(count, 0, 6.28)).sin() * self.uniform(count)

    def clouds(self, count: int, channels: int, slope: float) -> Tensor:
        """Noise with a natural spectrum, of mean 0 and deviation 1."""
        spectrum = torch.fft.rfft2(self.normal(count, channels, CANVAS, CANVAS)) / self.radius**slope
        noise = torch.fft.irfft2(spectrum, s=(CANVAS, CANVAS))
        return (noise - noise.mean((2, 3), True)) / noise.std((2, 3), keepdim=True).clamp_min(1e-6)

    def ramp(self, count: int) -> Tensor:
        angle = self.uniform(count, 0, 6.2832)
        return angle.cos() * self.x + angle.sin() * self.y

    def ground(self, column: dict[str, Tensor]) -> Tensor:
        count = len(column["light"])
        tint = torch.cat([column["red"], 0.5 * torch.ones_like(column["red"]), column["blue"]], 1) - 0.5
        base = column["light"] + 0.8 * column["coloured"] * tint
        base = base + 0.35 * column["shaded"] * self.ramp(count)
        own = column["coloured"]  # patches are as coloured as the ground
        patchy = self.clouds(count, 3, 1.4)
        patchy = own * patchy + (1 - own) * patchy.mean(1, keepdim=True)
        base = base + 0.22 * column["cloudy"] * patchy
        for _ in range(5):
            level, sharp = self.uniform(count, -0.6, 0.6), self.uniform(count, 4, 40)
            region = torch.sigmoid(sharp * (self.ramp(count) - level)) * torch.sigmoid(
                sharp * (self.ramp(count) - self.uniform(count, -0.8, 0.3))
            )
            change = self.uniform(count, -0.5, 0.5, 3)
            change = own * change + (1 - own) * change.mean(1, keepdim=True)
            base = base + column["cluttered"] * region * change
        base = base + 0.15 * column["cluttered"] * self.clouds(count, 1, 0.8)
        lines = (self.ramp(count) * self.uniform(count, 8, 26)).sin()
        lines = torch.where(
            self.uniform(count) < 0.4, lines * (self.ramp(count) * self.uniform(count, 8, 26)).sin(), lines
        )
        return base + 0.22 * column["striped"] * lines.sign() * lines.abs().sqrt()

    def inked(self, ground: Tensor, ink: Tensor, column: dict[str, Tensor]) -> Tensor:
        """The figure over its ground: lighter on dark ones, darker on light ones, now and then the other way."""
        count = len(ink)
        middle = (ground * self.luma).sum(1, keepdim=True).mean((2, 3), keepdim=True)
        up = torch.where(middle + self.uniform(count, -0.12, 0.12) < 0.5, 1.0, -1.0)
        step = 0.4 + 0.5 * column["contrast"]
        colour = middle + up * step + 0.5 * column["coloured"] * self.uniform(count, -0.5, 0.5, 3)
        covered = ground + (colour - ground) * ink
        opposite = ground + (1 - 2 * ground.clamp(0, 1)) * ink
        return torch.where(column["inverting"] > 0.5, opposite, covered)

    def seen(self, picture: Tensor, column: dict[str, Tensor]) -> Tensor:
        """Through a lens and a sensor, at the size of a picture."""
        picture = picture.clamp(0, 1)
        blurred = F.avg_pool2d(
            F.avg_pool2d(picture, 5, 1, 2, count_include_pad=False), 5, 1, 2, count_include_pad=False
        )
        picture = picture + column["soft"] * (column["coarse"] < 0.5) * (blurred - picture)
        few = F.interpolate(F.adaptive_avg_pool2d(picture, 11), (CANVAS, CANVAS), mode="bilinear")
        picture = torch.where(column["coarse"] > 0.5, few, picture)
        picture = F.avg_pool2d(picture, CANVAS // SIZE)
        grain = self.normal(len(picture), 3, SIZE, SIZE)
        own = column["coloured"]
        grain = own * grain + (1 - own) * grain[:, :1]
        picture = (picture + 0.1 * column["grainy"] * grain).clamp(0, 1)
        return (picture * 255).round() / 127.5 - 1
