"""Images out of shapes, in batches on the device: distortions, ways of drawing, backgrounds, light, camera faults.

All code here is this folder's own; it shares no function, palette or picture with `fairsilo.data.glyphs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from shapes import HANDFONT, SIDE, SOURCES, STROKES, TYPE, Bank
from signs import STYLES

SIZE = 32  # pixels of an image
CANVAS = 64  # pixels while it is drawn
# How often a style is drawn, and from which source its shapes come: type, handwriting fonts, skeletons.
SHARE = {"hand": 0.26, "sketch": 0.20, "print": 0.15, "sign": 0.17, "scene": 0.22}
MIX = {
    "hand": (0.10, 0.25, 0.65),
    "sketch": (0.20, 0.20, 0.60),
    "print": (0.80, 0.15, 0.05),
    "sign": (0.75, 0.10, 0.15),
    "scene": (0.20, 0.20, 0.60),
}
DIGIT_SHARE = 0.55  # of all images; the other classes share the rest


class Painter:
    """Draws batches of labelled images without end; the same seed on the same device gives the same images."""

    def __init__(self, bank: Bank, device: torch.device, seed: int, digits_only: bool = False) -> None:
        self.bank, self.device = bank.to(device), device
        self.random = torch.Generator(device).manual_seed(seed)
        classes = len(bank.first)
        chance = torch.full((classes,), (1 - DIGIT_SHARE) / max(1, classes - 10), device=device)
        chance[:10] = 0.1 if digits_only else DIGIT_SHARE / 10
        if digits_only:
            chance[10:] = 0
        self.chance = chance
        steps = (torch.arange(CANVAS, device=device) * 2 + 1) / CANVAS - 1
        self.x, self.y = steps.reshape(1, 1, 1, -1), steps.reshape(1, 1, -1, 1)
        frequency = torch.fft.fftfreq(CANVAS, device=device) * CANVAS
        self.radius = (frequency[:, None] ** 2 + frequency[: CANVAS // 2 + 1][None] ** 2).sqrt().clamp_min(1)
        self.cosines = _cosines(8).to(device)
        self.mix = {style: torch.tensor(mix, device=device) for style, mix in MIX.items()}
        self.brightness = torch.tensor([0.3, 0.6, 0.1], device=device).reshape(1, 3, 1, 1)
        self.sideways = torch.tensor([1.0, 0.0], device=device)

    # ------------------------------------------------------------------------------------------------- random numbers
    def uniform(self, low: float, high: float, count: int, channels: int = 1) -> Tensor:
        """One number per image and channel, shaped to multiply images."""
        drawn = torch.rand(count, channels, 1, 1, generator=self.random, device=self.device)
        return low + (high - low) * drawn

    def happens(self, probability: float, count: int) -> Tensor:
        return (self.uniform(0, 1, count) < probability).float()

    def normal(self, *size: int) -> Tensor:
        return torch.randn(size, generator=self.random, device=self.device)

    def pick(self, options: tuple[Callable[[int], Tensor], ...], count: int) -> Tensor:
        """Each option draws an equal part of the images; which image comes from which is shuffled."""
        sizes = [count // len(options) + (i < count % len(options)) for i in range(len(options))]
        parts = [option(size) for option, size in zip(options, sizes, strict=True) if size]
        return torch.cat(parts)[torch.randperm(count, generator=self.random, device=self.device)]

    # ---------------------------------------------------------------------------------------------------------- images
    @torch.no_grad()
    def batch(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Images in [-1, 1] of 256 levels each, their classes, and their styles; grouped by style."""
        sizes = [round(count * share) for share in SHARE.values()]
        sizes[0] += count - sum(sizes)
        images, labels, styles = [], [], []
        for number, (style, size) in enumerate(zip(STYLES, sizes, strict=True)):
            if size == 0:
                continue
            image, label = self.styled(style, size)
            images.append(image)
            labels.append(label)
            styles.append(torch.full((size,), number, device=self.device))
        return torch.cat(images), torch.cat(labels), torch.cat(styles)

    @torch.no_grad()
    def styled(self, style: str, count: int) -> tuple[Tensor, Tensor]:
        """So many images of one style."""
        label = torch.multinomial(self.chance, count, replacement=True, generator=self.random)
        shape = self.lifted(label, self.mix[style])
        drawn = {
            "hand": self.hand,
            "sketch": self.sketch,
            "print": self.printed,
            "sign": self.sign,
            "scene": self.scene,
        }[style](shape)
        image = (self.exposed(drawn).clamp(0, 1) * 255).round()
        return image / 127.5 - 1, label

    def lifted(self, label: Tensor, mix: Tensor) -> Tensor:
        """A random shape of each class out of the bank."""
        source = torch.multinomial(mix, len(label), replacement=True, generator=self.random)
        first, count = self.bank.first[label, source], self.bank.count[label, source]
        row = first + (torch.rand(len(label), generator=self.random, device=self.device) * count).long()
        return self.bank.shapes[row].unsqueeze(1).float() / 255

    # --------------------------------------------------------------------------------------------- distortions of ink
    def coarse(self, ink: Tensor) -> Tensor:
        """Seen with very few pixels (8 to 14 each way) and enlarged again, the ink filling its frame."""
        parts = []
        for number, part in enumerate(torch.tensor_split(ink, 5)):
            side = (8, 8, 9, 11, 14)[number]
            n = len(part)
            if n == 0:
                continue
            # Stretched towards its frame, and a little turned.
            wide, tall = self.uniform(0.98, 1.3, n), self.uniform(0.98, 1.3, n)
            slim = self.uniform(0.55, 1.0, n) ** self.happens(0.3, n)
            turn, slant = self.uniform(-0.12, 0.12, n), self.uniform(-0.15, 0.15, n)
            steps = (torch.arange(side * 4, device=self.device) * 2 + 1) / (side * 4) - 1
            x, y = steps.reshape(1, 1, 1, -1), steps.reshape(1, 1, -1, 1)
            across = (x * turn.cos() - y * turn.sin() + slant * y) / (wide * slim)
            down = (x * turn.sin() + y * turn.cos()) / tall
            fine = self._sampled(part, torch.cat([across, down], 1).permute(0, 2, 3, 1))
            small = F.pad(F.avg_pool2d(fine, 4), (1, 1, 1, 1))
            small = (small * self.uniform(1.0, 1.35, n)).clamp(0, 1)
            mode = ("bicubic", "bilinear")[number % 2]
            parts.append(F.interpolate(small, (SIDE, SIDE), mode=mode, align_corners=False))
        return torch.cat(parts).clamp(0, 1)

    def sometimes_coarse(self, ink: Tensor, share: float) -> Tensor:
        cut = int(len(ink) * share)
        return torch.cat([self.coarse(ink[:cut]), ink[cut:]]) if cut else ink

    def pen(self, ink: Tensor) -> Tensor:
        """Thicker or thinner strokes with harder or softer edges."""
        mixed, back = self.shuffled(ink)
        groups = list(torch.tensor_split(mixed, 6))
        if len(groups[0]):
            groups[0] = F.max_pool2d(groups[0], 3, 1, 1)
        if len(groups[1]):
            groups[1] = F.pad(-F.max_pool2d(-groups[1], 2, 1), (0, 1, 0, 1))
        groups[2] = self.smooth(groups[2], 1)
        groups[3] = self.smooth(groups[3], 2)
        ink = torch.cat(groups)[back]
        level = self.uniform(0.28, 0.58, len(ink))
        sharp = self.uniform(5, 16, len(ink))
        low, high = torch.sigmoid(-level * sharp), torch.sigmoid((1 - level) * sharp)
        return (torch.sigmoid((ink - level) * sharp) - low) / (high - low)

    def shuffled(self, ink: Tensor) -> tuple[Tensor, Tensor]:
        """The batch in random order, and the order that undoes it."""
        order = torch.randperm(len(ink), generator=self.random, device=self.device)
        return ink[order], order.argsort()

    def smooth(self, image: Tensor, reach: int) -> Tensor:
        side = 2 * reach + 1
        if len(image) == 0:
            return image
        return F.avg_pool2d(F.pad(image, (reach,) * 4, mode="replicate"), side, 1)

    def _sampled(self, ink: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(ink, grid, padding_mode="zeros", align_corners=False)

    def view(
        self, count: int, zoom: tuple[float, float], turn: float = 0.16, slant: float = 0.22, tilt: float = 0.12
    ) -> Tensor:
        """Where each pixel of the canvas looks in the square of the shape: turned, slanted, tilted, crumpled."""
        angle, shear = self.uniform(-turn, turn, count), self.uniform(-slant, slant, count)
        size, aspect = self.uniform(*zoom, count), torch.exp(self.uniform(-0.16, 0.16, count))
        x = self.x + self.uniform(-0.12, 0.12, count)
        y = self.y + self.uniform(-0.10, 0.10, count)
        depth = 1 + self.uniform(-tilt, tilt, count) * x + self.uniform(-tilt, tilt, count) * y
        x, y = x / depth / (size * aspect), y / depth / size * aspect
        x, y = x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()
        x = x + shear * y
        crumple = F.interpolate(self.normal(count, 2, 5, 5), (CANVAS, CANVAS), mode="bicubic", align_corners=True)
        grid = torch.cat([x, y], 1) + self.uniform(0, 0.05, count) * crumple
        return grid.permute(0, 2, 3, 1)

    def crisp(self, ink: Tensor) -> Tensor:
        return ((ink - 0.5) * self.uniform(3, 8, len(ink)) + 0.5).clamp(0, 1)

    def rim(self, ink: Tensor, reach: int) -> Tensor:
        """The edge of the ink: where a wide brush and a thin one differ."""
        if len(ink) == 0:
            return ink
        side = 2 * reach + 1
        return (F.max_pool2d(ink, side, 1, reach) + F.max_pool2d(-ink, side, 1, reach)).clamp(0, 1)

    # ------------------------------------------------------------------------------------------------------ backgrounds
    def plain(self, count: int) -> Tensor:
        return self.uniform(0, 1, count, 3).expand(-1, -1, CANVAS, CANVAS)

    def ramp(self, count: int) -> Tensor:
        angle = self.uniform(0, 2 * math.pi, count)
        along = ((self.x * angle.cos() + self.y * angle.sin()) * 0.5 + 0.5).clamp(0, 1)
        return torch.lerp(self.uniform(0, 1, count, 3), self.uniform(0, 1, count, 3), along)

    def glow(self, count: int) -> Tensor:
        x, y = self.x - self.uniform(-1, 1, count), self.y - self.uniform(-1, 1, count)
        near = torch.exp(-(x * x + y * y) * self.uniform(0.5, 4, count))
        return torch.lerp(self.uniform(0, 1, count, 3), self.uniform(0, 1, count, 3), near)

    def bars(self, count: int) -> Tensor:
        angle = self.uniform(0, math.pi, count)
        along = (self.x * angle.cos() + self.y * angle.sin()) * self.uniform(3, 18, count)
        band = torch.sigmoid((along + self.uniform(0, 6, count)).sin() * self.uniform(1, 8, count))
        return torch.lerp(self.uniform(0, 1, count, 3), self.uniform(0, 1, count, 3), band)

    def tiles(self, count: int) -> Tensor:
        angle, pitch = self.uniform(0, math.pi, count), self.uniform(4, 16, count)
        x = (self.x * angle.cos() - self.y * angle.sin()) * pitch + self.uniform(0, 6, count)
        y = (self.x * angle.sin() + self.y * angle.cos()) * pitch + self.uniform(0, 6, count)
        tile = torch.sigmoid(x.sin() * y.sin() * self.uniform(4, 30, count))
        return torch.lerp(self.uniform(0, 1, count, 3), self.uniform(0, 1, count, 3), tile)

    def windows(self, count: int) -> Tensor:
        """Rows of bright or dark windows in a wall."""
        x = (self.x * self.uniform(5, 20, count) + self.uniform(0, 6, count)).sin()
        y = (self.y * self.uniform(5, 20, count) + self.uniform(0, 6, count)).sin()
        hole = torch.sigmoid((x - self.uniform(-0.3, 0.6, count)) * 9)
        hole = hole * torch.sigmoid((y - self.uniform(-0.3, 0.6, count)) * 9)
        wall = self.uniform(0, 1, count, 3) + 0.06 * self.normal(count, 1, CANVAS, CANVAS)
        return torch.lerp(wall, self.uniform(0, 1, count, 3), hole)

    def quilt(self, count: int) -> Tensor:
        cells = self.normal(count, 3, 7, 7) * self.uniform(0.08, 0.3, count) + self.uniform(0.1, 0.9, count, 3)
        return F.interpolate(cells, (CANVAS, CANVAS), mode="nearest").clamp(0, 1)

    def marble(self, count: int) -> Tensor:
        """Veins: a sine of a plane bent by smooth noise."""
        bend = F.interpolate(self.normal(count, 1, 6, 6), (CANVAS, CANVAS), mode="bicubic", align_corners=True)
        angle = self.uniform(0, math.pi, count)
        along = (self.x * angle.cos() + self.y * angle.sin()) * self.uniform(2, 9, count)
        vein = 0.5 + 0.5 * (along + self.uniform(0.5, 3, count) * bend).sin()
        return torch.lerp(self.uniform(0, 1, count, 3), self.uniform(0, 1, count, 3), vein)

    def nature(self, count: int) -> Tensor:
        """Noise with the spectrum of natural scenes, in colours that vary together."""
        white = torch.fft.rfft2(self.normal(count, 3, CANVAS, CANVAS))
        field = torch.fft.irfft2(white * self.radius ** -self.uniform(0.8, 2.2, count), s=(CANVAS, CANVAS))
        field = field / field.std((1, 2, 3), keepdim=True).clamp_min(1e-6)
        grey = field[:, :1]
        field = torch.lerp(grey, field, self.uniform(0, 0.7, count))
        return (self.uniform(0.15, 0.85, count, 3) + self.uniform(0.06, 0.3, count) * field).clamp(0, 1)

    def collage(self, count: int) -> Tensor:
        """Half planes and blobs of different colours over each other, with hard edges."""
        scene = self.ramp(count)
        for number in range(5):
            x, y = self.x - self.uniform(-1, 1, count), self.y - self.uniform(-1, 1, count)
            angle = self.uniform(0, 2 * math.pi, count)
            across, down = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
            flat = across if number % 2 else self.uniform(0.15, 0.6, count) - (across**2 + 3 * down**2).sqrt()
            scene = torch.lerp(scene, self.uniform(0, 1, count, 3), torch.sigmoid(flat * self.uniform(12, 60, count)))
        return scene

    def blots(self, count: int) -> Tensor:
        cells = F.interpolate(self.normal(count, 1, 12, 12), (CANVAS, CANVAS), mode="bicubic", align_corners=False)
        spot = torch.sigmoid((cells - self.uniform(-0.5, 1.2, count)) * self.uniform(2, 12, count))
        return torch.lerp(self.uniform(0, 1, count, 3), self.uniform(0, 1, count, 3), spot)

    def anything(self, count: int) -> Tensor:
        quiet = (self.plain, self.ramp, self.glow, self.marble)
        busy = (self.bars, self.tiles, self.windows, self.quilt, self.nature, self.nature, self.collage, self.blots)
        one, other = self.pick(quiet + busy, count), self.pick((self.nature, *busy), count)
        # Sometimes two of them side by side.
        angle = self.uniform(0, 2 * math.pi, count)
        side = torch.sigmoid((self.x * angle.cos() + self.y * angle.sin() + self.uniform(-0.6, 0.6, count)) * 30)
        return torch.lerp(one, other, side * self.happens(0.3, count))

    def paper(self, count: int) -> Tensor:
        """Almost white or tinted paper, blank, ruled or squared, flat or with a shadow."""
        tint = self.uniform(0.72, 1, count) - self.uniform(0, 0.12, count, 3) * self.happens(0.5, count)
        pitch = self.uniform(7, 20, count)
        rule = torch.sigmoid(((self.y * pitch + self.uniform(0, 6, count)).sin() - 0.9) * 30)
        square = torch.sigmoid(((self.x * pitch + self.uniform(0, 6, count)).sin() - 0.9) * 30)
        lines = torch.maximum(rule, square * self.happens(0.5, count)) * self.happens(0.25, count)
        sheet = torch.lerp(tint, self.uniform(0.4, 0.9, count, 3), lines * self.uniform(0.2, 0.7, count))
        angle = self.uniform(0, 2 * math.pi, count)
        shade = (self.x * angle.cos() + self.y * angle.sin()) * self.uniform(0, 0.12, count) * self.happens(0.5, count)
        return (sheet + shade).clamp(0, 1)

    # ----------------------------------------------------------------------------------------------------------- ink
    def opposite(self, ground: Tensor, ink: Tensor, gap: float = 0.3) -> Tensor:
        """A colour that stands out from what lies under the ink: darker on light ground, lighter on dark."""
        under = ((ground * self.brightness).sum(1, keepdim=True) * ink).sum((2, 3), keepdim=True)
        under = under / ink.sum((2, 3), keepdim=True).clamp_min(1e-3)
        n = len(ink)
        # Near the middle either way is possible.
        dark = (under + self.uniform(-0.15, 0.15, n) > 0.5).float()
        low = self.uniform(0, 1, n, 3) * (under - gap).clamp(0, 1)
        high = 1 - self.uniform(0, 1, n, 3) * (1 - under - gap).clamp(0, 1)
        return torch.lerp(high, low, dark)

    def laid(self, ground: Tensor, colour: Tensor, ink: Tensor) -> Tensor:
        return ground + (colour - ground) * ink

    def blotchy(self, ink: Tensor) -> Tensor:
        """Ink that has not taken everywhere, or has run."""
        n = len(ink)
        grain = F.interpolate(self.normal(n, 1, 20, 20), (CANVAS, CANVAS), mode="bilinear", align_corners=False)
        patchy = ink * (1 - self.uniform(0, 0.5, n) * torch.sigmoid(grain * 2))
        run = torch.maximum(ink, self.smooth(ink, 2) * self.uniform(0.2, 0.7, n))
        return torch.where(self.happens(0.5, n) > 0, patchy, run)

    # --------------------------------------------------------------------------------------------------------- styles
    def hand(self, shape: Tensor) -> Tensor:
        """Writing in dark ink on paper."""
        n = len(shape)
        ink = self.pen(self.sometimes_coarse(shape, 0.65))
        ink = self._sampled(ink, self.view(n, (0.95, 1.3)))
        ink = torch.where(self.happens(0.2, n) > 0, self.blotchy(ink), ink)
        sheet = self.paper(n)
        grey = self.uniform(0, 0.4, n)
        colour = grey + self.uniform(0, 0.25, n, 3) * self.happens(0.4, n)
        return self.laid(sheet, colour, ink * self.uniform(0.8, 1, n))

    def sketch(self, shape: Tensor) -> Tensor:
        """Pencil: outlines drawn once or twice, hatching, or faint thin strokes."""
        n = len(shape)
        solid = self.pen(self.sometimes_coarse(shape, 0.6))
        view = self.view(n, (0.98, 1.32))
        ink = self.crisp(self._sampled(solid, view))
        shake = F.interpolate(self.normal(n, 2, 4, 4), (CANVAS, CANVAS), mode="bicubic", align_corners=True)
        second = view * (1 + 0.05 * self.normal(n, 1, 1, 2)) + 0.04 * self.normal(n, 1, 1, 2)
        again = self.crisp(self._sampled(solid, second + 0.02 * shake.permute(0, 2, 3, 1)))
        mixed, back = self.shuffled(torch.cat([ink, again], 1))
        drawn = []
        for number, group in enumerate(torch.tensor_split(mixed, 8)):
            m = len(group)
            one, two = group[:, :1], group[:, 1:]
            if m == 0:
                continue
            if number < 3:
                line = self.rim(one, 1)
            elif number < 6:
                line = torch.maximum(self.rim(one, 1), self.uniform(0.5, 1, m) * self.rim(two, 1))
            elif number == 6:
                angle = self.uniform(0, math.pi, m)
                hatch = (self.x * angle.cos() + self.y * angle.sin()) * self.uniform(18, 40, m)
                hatch = torch.sigmoid(hatch.sin() * 4)
                line = torch.maximum(one * hatch, self.rim(one, 1) * self.happens(0.7, m))
            else:
                line = one * self.uniform(0.4, 1, m)
            press = F.interpolate(self.normal(m, 1, 9, 9), (CANVAS, CANVAS), mode="bicubic", align_corners=False)
            drawn.append(line * (self.uniform(0.7, 1, m) + 0.13 * press).clamp(0, 1))
        pencil = torch.cat(drawn)[back]
        sheet = self.paper(n) + self.uniform(0, 0.06, n) * self.normal(n, 1, CANVAS, CANVAS)
        colour = self.uniform(0, 0.38, n) + self.uniform(0, 0.2, n, 3) * self.happens(0.2, n)
        image = self.laid(sheet, colour, pencil)
        chalk = self.happens(0.12, n)  # light lines on a board
        return torch.where(chalk > 0, 1 - image, image)

    def printed(self, shape: Tensor) -> Tensor:
        """Type on paper or on a printed pattern, dark on light or the other way round."""
        n = len(shape)
        ink = self.pen(self.sometimes_coarse(shape, 0.1))
        ink = self._sampled(ink, self.view(n, (0.72, 1.3), turn=0.1, slant=0.12, tilt=0.05))
        shadow = torch.roll(self.smooth(ink, 1), (3, 3), (2, 3)) * self.happens(0.12, n)
        ink = torch.where(self.happens(0.2, n) > 0, self.blotchy(ink), ink)
        patterns = self.pick((self.bars, self.tiles, self.ramp, self.blots), n)
        sheet = torch.lerp(self.paper(n), patterns, self.uniform(0, 0.25, n) * self.happens(0.6, n))
        sheet = self.laid(sheet, self.uniform(0, 0.6, n, 3), 0.6 * shadow)
        colour = self.uniform(0, 0.55, n, 3) * self.uniform(0.2, 1, n)
        swap = self.happens(0.3, n)
        back = torch.lerp(sheet, colour.expand_as(sheet), swap)
        front = torch.lerp(colour.expand_as(sheet), sheet, swap)
        return self.laid(back, front, ink)

    def sign(self, shape: Tensor) -> Tensor:
        """A plate of any colour, whole or filling the image, often with other characters beside the one meant."""
        n = len(shape)
        ink = self.pen(self.sometimes_coarse(shape, 0.1))
        view = self.view(n, (0.75, 1.2), tilt=0.25)
        lettering = self._sampled(ink, view)
        for side in (-1.0, 1.0):
            other = ink[torch.randperm(n, generator=self.random, device=self.device)]
            # Another character's square stands beside this one, closer for narrow type.
            away = side * self.uniform(1.0, 1.6, n).reshape(n, 1, 1, 1) * self.sideways
            lettering = torch.maximum(lettering, self._sampled(other, view - away) * self.happens(0.45, n))
        # A rounded rectangle in the shape's own square, so that it is tilted like the lettering.
        x, y = view.permute(0, 3, 1, 2).split(1, 1)
        wide, tall = self.uniform(0.85, 1.6, n), self.uniform(0.85, 1.4, n)
        power = self.uniform(3, 12, n)
        edge = ((x.abs() / wide) ** power + (y.abs() / tall) ** power).clamp_min(1e-6) ** (1 / power)
        plate = torch.maximum(torch.sigmoid((1 - edge) * 30), self.happens(0.6, n))
        frame = torch.exp(-(((edge - 0.9) / 0.04) ** 2)) * self.happens(0.3, n)
        # Any colour, from grey to full.
        hue = torch.rand(n, 3, 1, 1, generator=self.random, device=self.device)
        strong = torch.lerp(hue.mean(1, keepdim=True), hue, self.uniform(0, 1.6, n)).clamp(0, 1)
        plain = self.laid(self.anything(n), strong, plate)
        paint = self.opposite(strong.expand_as(plain), lettering.clamp_min(1e-3), 0.28)
        image = self.laid(plain, paint, torch.maximum(lettering, frame) * self.uniform(0.65, 1, n))
        fall = self.uniform(0.55, 1.1, n) + self.uniform(-0.3, 0.3, n) * self.x + self.uniform(-0.3, 0.3, n) * self.y
        image = image * torch.where(self.happens(0.6, n) > 0, fall, torch.ones_like(fall))
        return torch.where(self.happens(0.4, n) > 0, self.smooth(image, 1), image)

    def scene(self, shape: Tensor) -> Tensor:
        """Painted over any background, solid, or in outline, or with a shadow or a halo."""
        n = len(shape)
        ink = self.pen(self.sometimes_coarse(shape, 0.55))
        ink = self._sampled(ink, self.view(n, (0.9, 1.3)))
        ground = self.anything(n)
        colour = self.opposite(ground, ink)
        # Ground as strong as the ink hides it: it is mostly pulled some way to the other side.
        ground = torch.lerp(ground, 1 - colour.expand_as(ground), self.uniform(0, 0.45, n))
        shadow = torch.roll(self.smooth(ink, 1), (2, 3), (2, 3)) * self.happens(0.12, n)
        ground = self.laid(ground, self.uniform(0, 0.3, n), 0.7 * shadow)
        halo = F.max_pool2d(ink, 5, 1, 2) * self.happens(0.12, n)
        ground = self.laid(ground, 1 - colour, halo)
        thick = self.rim(self.crisp(ink), 1)
        ink = torch.where(self.happens(0.1, n) > 0, thick, ink)
        ink = torch.where(self.happens(0.15, n) > 0, self.blotchy(ink), ink)
        inside = torch.lerp(colour, self.uniform(0, 1, n, 3), 0.3 * (0.5 + 0.5 * self.x)) if n else colour
        colour = torch.where(self.happens(0.2, n) > 0, inside, colour.expand_as(inside))
        return self.laid(ground, colour, ink * self.uniform(0.8, 1, n))

    # --------------------------------------------------------------------------------------------------------- camera
    def exposed(self, image: Tensor) -> Tensor:
        """From the canvas to the image: focus, grain, compression, contrast."""
        image = F.avg_pool2d(image, CANVAS // SIZE)
        n = len(image)
        soft = self.smooth(image, 1)
        image = torch.lerp(image, soft, self.uniform(0, 1, n) * self.happens(0.35, n))
        image = torch.where(self.happens(0.12, n) > 0, self.blocked(image), image)
        grain = self.normal(n, 3, SIZE, SIZE)
        grey = self.happens(0.5, n)
        grain = torch.lerp(grain, grain[:, :1].expand_as(grain), grey)
        strength = self.uniform(0, 1, n) ** 2 * 0.11
        image = image + strength * grain
        middle = image.mean((1, 2, 3), keepdim=True)
        image = middle + (image - middle) * self.uniform(0.75, 1.2, n) + self.uniform(-0.08, 0.08, n)
        colourless = image.mean(1, keepdim=True).expand_as(image)
        image = torch.where(self.happens(0.1, n) > 0, colourless, image)
        return torch.where(self.happens(0.05, n) > 0, 1 - image, image)

    def blocked(self, image: Tensor) -> Tensor:
        """Squares of eight pixels each way lose their fine cosines, as in strongly compressed pictures."""
        n, side = len(image), SIZE // 8
        blocks = image.reshape(n, 3, side, 8, side, 8).permute(0, 1, 2, 4, 3, 5)
        waves = self.cosines @ blocks @ self.cosines.T
        steps = torch.arange(8, device=self.device, dtype=torch.float32)
        coarse = (0.03 + 0.03 * (steps[:, None] + steps[None])) * self.uniform(0.5, 3, n).reshape(n, 1, 1, 1, 1, 1)
        waves = (waves / coarse).round() * coarse
        blocks = self.cosines.T @ waves @ self.cosines
        return blocks.permute(0, 1, 2, 4, 3, 5).reshape(n, 3, SIZE, SIZE)


def _cosines(side: int) -> Tensor:
    """The orthonormal cosine transform."""
    steps = torch.arange(side, dtype=torch.float32)
    matrix = torch.cos(math.pi / side * (steps[None] + 0.5) * steps[:, None]) * math.sqrt(2 / side)
    matrix[0] /= math.sqrt(2)
    return matrix


assert (TYPE, HANDFONT, STROKES) == (0, 1, 2)
assert all(len(mix) == SOURCES for mix in MIX.values())
assert tuple(SHARE) == STYLES
