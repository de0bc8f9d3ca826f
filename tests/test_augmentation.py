"""Random changes of training images: what is drawn, what it does to pictures and to their masks."""

from __future__ import annotations

import colorsys
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from fairsilo.api import run
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.streams import Batches
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError
from fairsilo.tasks.augmentation import CHANGES, SETS, augmented, changes_of, draws, moved
from fairsilo.tasks.registry import task_of


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int = 12, channels: int = 3, height: int = 16, width: int = 16) -> Tensor:
    return (torch.rand(count, channels, height, width, generator=stream(9)) * 256).floor().clamp(max=255)


def changed(images: Tensor, kinds: str, seed: int = 0) -> Tensor:
    return augmented(images, draws(kinds, tuple(images.shape[1:]), Batches([(len(images), stream(seed))])))


@pytest.mark.parametrize("kinds", [*(kind.name for kind in CHANGES), *SETS])
def test_every_change_keeps_shape_and_range_and_depends_on_its_stream_alone(kinds: str) -> None:
    images = noise(30)
    before = images.clone()
    first = changed(images, kinds, 1)
    assert first.shape == images.shape
    assert torch.equal(images, before)
    assert torch.equal(changed(images, kinds, 1), first)
    assert not torch.equal(changed(images, kinds, 2), first)
    assert first.min() >= 0
    assert first.max() <= 255
    assert not torch.equal(first, images)


def test_what_is_named_later_leaves_the_draws_of_earlier_changes_alone() -> None:
    alone, more = (
        draws(kinds, (3, 16, 16), Batches([(20, stream())])) for kinds in ("crop+flip", "holes + flip + crop + jitter")
    )
    assert all(torch.equal(alone[key], more[key]) for key in ("shifts", "mirrored"))


# ------------------------------------------------------------------------------------------------------------ geometry
def centres(images: Tensor) -> Tensor:
    """Centre of mass of each picture, in pixels from the middle, x to the right and y down."""
    mass = images[:, 0]
    height, width = mass.shape[1:]
    down, right = torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2
    total = mass.sum((1, 2))
    return torch.stack([(mass.sum(1) * right).sum(1), (mass.sum(2) * down).sum(1)], 1) / total[:, None]


def dots(count: int, height: int, width: int, x: int, y: int) -> Tensor:
    """A blot so many pixels right of and below the middle."""
    down, right = torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2
    distance = (right[None, :] - x) ** 2 + (down[:, None] - y) ** 2
    return (255 * torch.exp(-distance / 8)).expand(count, 1, height, width).contiguous()


def test_a_rotation_keeps_distances_from_the_centre_also_of_wide_pictures() -> None:
    found = centres(changed(dots(60, 41, 61, 10, 0), "rotation(degrees=40)"))
    assert found.norm(dim=1).tolist() == pytest.approx([10.0] * 60, abs=0.2)
    angles = torch.rad2deg(torch.atan2(found[:, 1], found[:, 0]))
    assert -41 < angles.min() < -25
    assert 25 < angles.max() < 41


def test_a_chance_leaves_pictures_alone() -> None:
    found = centres(changed(dots(200, 41, 41, 10, 0), "rotation(degrees=40, chance=0.25)"))
    assert 30 < int((found[:, 1].abs() > 0.05).sum()) < 70


def test_scaling_goes_both_ways() -> None:
    found = centres(changed(dots(60, 61, 61, 10, 6), "scaling(by=0.2)"))
    factors = found / torch.tensor([10.0, 6.0])
    assert torch.allclose(factors[:, 0], factors[:, 1], atol=0.02)
    assert 0.79 < factors.min() < 0.85
    assert 1.15 < factors.max() < 1.21


def test_a_shear_moves_rows_by_their_height() -> None:
    above, below = (centres(changed(dots(60, 61, 81, 0, y), "shear(degrees=30)")) for y in (-10, 10))
    assert torch.allclose(above[:, 0], -below[:, 0], atol=0.05)
    assert torch.allclose(below[:, 1], torch.full((60,), 10.0), atol=0.05)
    most = 10 * math.tan(math.radians(30))
    assert most * 0.8 < below[:, 0].max() < most * 1.01


def test_a_resized_crop_is_a_window_of_the_picture() -> None:
    width = 40
    ramp = torch.arange(width).float().expand(200, 1, width, width)
    across = changed(torch.cat([ramp, ramp.transpose(2, 3)], 1), "resized-crop(scale=0.5, ratio=1.5)")
    inner = slice(5, -5)  # the outermost pixels are interpolated with black
    wide = across[:, 0, 20, inner].diff(dim=1).mean(1)
    high = across[:, 1, inner, 20].diff(dim=1).mean(1)
    area, ratio = wide * high, wide / high
    assert 0.45 < area.min() < 0.56
    assert 0.9 < area.max() < 1.01
    assert 0.6 < ratio.min() < 0.75
    assert 1.33 < ratio.max() < 1.55
    middle = across[:, 0, 20, 19:21].mean(1) - 19.5  # the window's own middle: it stays inside the picture
    room = (1 - wide) * width / 2
    assert (middle.abs() <= room + 0.1).all()
    assert middle.min() < -2
    assert middle.max() > 2


def test_turns_are_by_quarters_and_each_comes() -> None:
    images = noise(80)
    found = changed(images, "turns")
    by = [
        [torch.equal(one, torch.rot90(image, quarters, (1, 2))) for quarters in range(4)]
        for one, image in zip(found, images, strict=True)
    ]
    assert all(sum(one) == 1 for one in by)
    assert all(sum(one[quarters] for one in by) > 8 for quarters in range(4))


def test_upside_down_mirrors_from_top_to_bottom() -> None:
    images = noise(40)
    found = changed(images, "upside-down")
    upended = [torch.equal(one, image.flip(1)) for one, image in zip(found, images, strict=True)]
    assert 8 < sum(upended) < 32
    assert all(up or torch.equal(one, image) for up, one, image in zip(upended, found, images, strict=True))


def test_turns_of_wide_pictures_are_refused() -> None:
    with pytest.raises(FairsiloError, match="8 x 20 pixels; only square"):
        changed(noise(2, 3, 8, 20), "turns")


# ------------------------------------------------------------------------------------------------------------- colours
def recoloured(image: Tensor, **factors: float) -> Tensor:
    return augmented(image, {key: torch.tensor([value] * len(image)) for key, value in factors.items()})


def test_brightness_multiplies_and_stays_in_range() -> None:
    found = recoloured(torch.tensor([10.0, 100.0, 200.0]).view(1, 3, 1, 1), brightness=1.5)
    assert found.flatten().tolist() == [15.0, 150.0, 255.0]


def test_contrast_is_about_the_mean_luminance() -> None:
    image = torch.tensor([[[0.0, 100.0]], [[50.0, 100.0]], [[100.0, 100.0]]]).unsqueeze(0)
    middle = (0.587 * 50 + 0.114 * 100 + 100) / 2
    assert torch.allclose(recoloured(image, contrast=0.5), middle + 0.5 * (image - middle))


def test_saturation_is_about_each_pixel_and_grayscale_is_none_of_it() -> None:
    image = torch.tensor([200.0, 100.0, 0.0]).view(1, 3, 1, 1)
    gray = 0.299 * 200 + 0.587 * 100
    assert recoloured(image, saturation=0.5).flatten().tolist() == pytest.approx(
        [gray + (200 - gray) / 2, gray + (100 - gray) / 2, gray / 2]
    )
    found = changed(noise(60), "grayscale(chance=0.5)")
    colourless = (found.amax(1) - found.amin(1)).amax((1, 2)) < 1e-3
    assert 15 < int(colourless.sum()) < 45
    assert torch.equal(found[~colourless], noise(60)[~colourless])


def test_grayscale_stays_beside_jitter() -> None:
    found = changed(noise(20), "jitter + grayscale(chance=1)")
    assert (found.amax(1) - found.amin(1)).max() < 1e-3


@pytest.mark.parametrize("turn", [1 / 3, -0.2, 0.5])
def test_the_hue_turns_as_in_hsv(turn: float) -> None:
    image = noise(1, 3, 6, 6)
    image[0, :, 0, 0] = 77.0  # a pixel without colour has no hue to turn
    found = recoloured(image, hue=turn)
    for row in range(6):
        for column in range(6):
            hue, saturation, value = colorsys.rgb_to_hsv(*(image[0, :, row, column] / 255).tolist())
            wanted = colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value)
            assert (found[0, :, row, column] / 255).tolist() == pytest.approx(wanted, abs=1e-5)


def test_jitter_of_one_channel_leaves_colours_out() -> None:
    assert draws("jitter(hue=0.1)", (1, 8, 8), Batches([(4, stream())])).keys() == {"brightness", "contrast"}
    drawn = draws("jitter(hue=0.1, contrast=0)", (3, 8, 8), Batches([(400, stream())]))
    assert drawn.keys() == {"brightness", "saturation", "hue"}
    assert 0.6 <= drawn["brightness"].min() < 0.65
    assert 1.35 < drawn["brightness"].max() <= 1.4
    assert -0.1 <= drawn["hue"].min() < -0.09
    assert 0.09 < drawn["hue"].max() <= 0.1
    with pytest.raises(FairsiloError, match="grayscale, and images have 1 channels"):
        draws("grayscale", (1, 8, 8), Batches([(4, stream())]))


# --------------------------------------------------------------------------------------------------------------- holes
def test_holes_are_black_squares() -> None:
    found = changed(torch.full((200, 3, 40, 40), 9.0), "holes(most=3, side=0.1, chance=0.5)")
    hidden = (found == 0).all(1).sum((1, 2))
    assert 60 < int((hidden == 0).sum()) < 140
    assert int(hidden.max()) <= 3 * 16
    assert int((hidden == 16).sum()) > 15  # one square of 4 x 4
    assert int((hidden > 32).sum()) > 10
    assert ((found == 0) | (found == 9)).all()


# --------------------------------------------------------------------------------------------------------------- masks
@pytest.mark.parametrize("kinds", ["crop + flip", "flip + upside-down + turns"])
def test_masks_go_with_their_images(kinds: str) -> None:
    masks = torch.randint(0, 3, (20, 16, 16), generator=stream(3))
    task = task_of("segment", 3)
    images, found = task.augment(
        masks[:, None].float(), masks, task.draws(kinds, (1, 16, 16), Batches([(20, stream())]))
    )
    assert torch.equal(images[:, 0], found.float())
    assert found.dtype == masks.dtype


def test_masks_follow_a_rotation_with_whole_class_numbers_and_ignore_colours_and_holes() -> None:
    picture = dots(30, 41, 41, 8, -5) > 127
    task = task_of("segment", 3)
    kinds = "rotation(degrees=60) + jitter + holes"
    drawn = task.draws(kinds, (1, 41, 41), Batches([(30, stream())]))
    _, found = task.augment(200.0 * picture, 2 * picture[:, 0].long(), drawn)
    assert set(found.unique().tolist()) == {0, 2}
    turned = moved(200.0 * picture, drawn)[:, 0] > 100
    overlap = 2 * ((found == 2) & turned).sum() / ((found == 2).sum() + turned.sum())
    assert overlap > 0.93


# ----------------------------------------------------------------------------------------------------------------- text
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("blur", "data.augment is 'blur'; it must be none, a set"),
        ("crop + flip + crop", "has crop twice"),
        ("crop +", "joined by"),
        ("rotation(30)", "'30' in 'rotation\\(30\\)' is no setting"),
        ("rotation(angle=30)", "rotation has no setting angle; it has degrees"),
        ("rotation(degrees=300)", "data.augment: rotation.degrees is 300"),
        ("rotation(degrees=30", "it must be none"),
    ],
)
def test_wrong_texts_are_refused_in_a_sentence(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match=told):
        changes_of(text)
    with pytest.raises(FairsiloError, match=told):
        run(federation=tiny.federation(), model=tiny.TinyNet, data={"augment": text}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_colours_need_pixels_of_a_known_range(tmp_path: Path) -> None:
    splits = [Split(torch.rand(6, 3, 6, 6), torch.arange(6) % 3) for _ in range(3)]
    silos = [SiloData(name, name, *splits) for name in "abc"]
    federation = Federation("floats", ["x", "y", "z"], silos[:2], silos[2:])
    for text in ("jitter", "ga"):
        with pytest.raises(FairsiloError, match="computes with colours, and images are float32"):
            run(federation=federation, model=tiny.TinyNet, data={"augment": text}, out=tmp_path / "run")


@pytest.mark.slow
def test_engines_draw_alike(tmp_path: Path) -> None:
    def answers(engine: str, augment: str = "flamby") -> list[Any]:
        found = run(
            method="fedavg",
            federation=tiny.federation(),
            model="small-cnn",
            data={"augment": augment},
            train={"rounds": 2, "epochs": 1, "batch_size": 4},
            engine={"name": engine, "workers": 2} if engine == "processes" else {"name": engine},
            out=tmp_path / f"{engine}-{augment}",
        )
        return list(found.summary["silos"])

    assert answers("sequential") == answers("processes")
    assert answers("sequential", "none") != answers("sequential", "ga")


# -------------------------------------------------------------------------------------------------------------- batches
@pytest.mark.parametrize("kinds", [*SETS, "crop+flip", "rotation + scaling + shear + resized-crop + turns"])
def test_what_is_drawn_for_all_batches_at_once_is_what_each_would_draw_by_itself(kinds: str) -> None:
    def each() -> list[tuple[int, torch.Generator]]:
        return [(count, stream(number)) for number, count in enumerate((16, 16, 7, 1))]

    together = draws(kinds, (3, 32, 32), Batches(each()))
    alone = [draws(kinds, (3, 32, 32), Batches([one])) for one in each()]
    for key, drawn in together.items():
        assert torch.equal(drawn, torch.cat([one[key] for one in alone])), key
        assert not torch.equal(drawn[:16], drawn[16:32]), key
