"""A silo at work: its batches, its pictures, and which tensors it takes from whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from fairsilo.config import TrainSettings
from fairsilo.core.local import descend
from fairsilo.core.messages import Message, Request
from fairsilo.core.method import Method
from fairsilo.core.output import Output
from fairsilo.core.part import Part
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.silo import Batch, Memory, Silo, prepare, uploaded
from fairsilo.core.streams import Batches
from fairsilo.core.vault import Simulated
from fairsilo.core.vectors import AVERAGED, PRIVATE, SHARED, FlatModel, Layout, Slot
from fairsilo.methods.text import method
from fairsilo.tasks import augmentation
from fairsilo.tasks.classify import Classify

SHARED_KINDS: Callable[[Slot], str] = lambda _: SHARED  # noqa: E731


def made(
    count: int = 20, *, size: int = 8, epochs: int = 1, kinds: Callable[[Slot], str] = SHARED_KINDS, **changes: Any
) -> Silo:
    """A silo whose samples carry their number as their colour."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = tiny.TinyNet(3, 3)
    model = FlatModel(module, Layout.of(module).with_kinds(kinds))
    images = torch.arange(count, dtype=torch.uint8).view(count, 1, 1, 1).expand(count, 3, 6, 6).contiguous()
    split = Split(images, torch.arange(count) % 3)
    place = {
        "data": SiloData(changes.pop("name", "a"), "a", split, split, split),
        "model": model,
        "method": Method(),
        "task": Classify(3),
        "training": TrainSettings(batch_size=size, epochs=epochs),
        "memory": Memory(),
        "message": Message(),
        "round": 1,
        "rounds": 3,
        "seed": 0,
        "untrained": model.read().clone,
        "vault": Simulated(0, "a"),
    }
    return Silo(**{**place, **changes})


def order(silo: Silo, **options: Any) -> list[list[int]]:
    return [batch.indices.tolist() for batch in silo.batches(**options)]


# ------------------------------------------------------------------------------------------------------------- batches
def test_an_epoch_sees_each_sample_once() -> None:
    batches = order(made(20, size=8))
    assert [len(batch) for batch in batches] == [8, 8, 4]
    assert sorted(index for batch in batches for index in batch) == list(range(20))


def test_inputs_and_targets_belong_to_their_indices() -> None:
    for batch in made().batches():
        assert batch.targets.tolist() == [index % 3 for index in batch.indices.tolist()]
        assert torch.equal(batch.inputs[:, 0, 0, 0], batch.indices.float() / 127.5 - 1)


def test_epochs_differ_in_order() -> None:
    batches = order(made(16, size=16, epochs=3))
    assert len(batches) == 3
    assert len({tuple(batch) for batch in batches}) == 3
    assert all(sorted(batch) == list(range(16)) for batch in batches)


def test_the_same_silo_round_and_seed_give_the_same_batches() -> None:
    assert order(made(epochs=2)) == order(made(epochs=2))


@pytest.mark.parametrize("change", [{"round": 2}, {"seed": 1}, {"name": "b"}])
def test_another_round_seed_or_silo_gives_other_batches(change: dict[str, Any]) -> None:
    assert order(made(**change)) != order(made())


def test_another_purpose_gives_other_batches() -> None:
    silo = made()
    assert order(silo, purpose="second") != order(silo)


def test_the_method_does_not_change_the_batches() -> None:
    assert order(made(method=Method((), "another"))) == order(made())


def test_the_number_of_epochs_can_be_asked_for() -> None:
    silo = made(8, size=8, epochs=1)
    assert len(order(silo, epochs=4)) == 4
    assert order(silo, epochs=4)[0] == order(silo)[0]


def test_drawing_batches_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    order(made(augment="crop+flip"))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(("count", "sizes"), [(16, [8, 8]), (17, [8, 8]), (18, [8, 8, 2]), (9, [8]), (1, [1])])
def test_a_trailing_batch_of_one_is_dropped_unless_it_is_all_there_is(count: int, sizes: list[int]) -> None:
    assert [len(batch) for batch in order(made(count, size=8))] == sizes


def test_evaluation_goes_through_a_split_in_its_own_order() -> None:
    silo = made(7, evaluation_batch=3)
    batches = [batch.indices.tolist() for batch in silo.evaluation_batches(silo.data.test)]
    assert batches == [[0, 1, 2], [3, 4, 5], [6]]


def test_evaluation_is_never_augmented() -> None:
    silo = made(4, augment="crop+flip")
    (batch,) = silo.evaluation_batches(silo.data.test)
    assert torch.equal(batch.inputs, prepare(silo.data.test.inputs, torch.device("cpu"), torch.float32))


# ------------------------------------------------------------------------------------------------------------ pictures
def test_black_becomes_minus_one_and_white_one() -> None:
    found = prepare(torch.tensor([0, 255, 51], dtype=torch.uint8), torch.device("cpu"), torch.float32)
    assert found.dtype == torch.float32
    assert found.tolist()[:2] == [-1.0, 1.0]
    assert found[2].item() == pytest.approx(-0.6)


def test_preparing_leaves_the_images_alone_and_floats_as_they_are() -> None:
    images = torch.tensor([3], dtype=torch.uint8)
    prepare(images, torch.device("cpu"), torch.float32)
    assert images.item() == 3
    features = torch.tensor([7.5])
    assert prepare(features, torch.device("cpu"), torch.float32) is features


def pictures(count: int, size: int = 16) -> Tensor:
    """No two pixels of a picture alike, so that every change can be read off."""
    values = torch.arange(3 * size * size, dtype=torch.float32).view(1, 3, size, size)
    return values + 1000 * torch.arange(count).view(-1, 1, 1, 1)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def augmented(images: Tensor, kinds: str, stream: torch.Generator) -> Tensor:
    drawn = augmentation.draws(kinds, tuple(images.shape[1:]), Batches([(len(images), stream)]))
    return augmentation.augmented(images, drawn)


@pytest.mark.parametrize("kinds", ["crop", "flip", "crop+flip"])
def test_augmentation_keeps_the_shape_and_depends_on_its_stream_alone(kinds: str) -> None:
    images = pictures(12)
    before = images.clone()
    first = augmented(images, kinds, stream(1))
    assert first.shape == images.shape
    assert torch.equal(images, before)
    assert torch.equal(augmented(images, kinds, stream(1)), first)
    assert not torch.equal(augmented(images, kinds, stream(2)), first)


def test_a_flip_mirrors_whole_pictures_from_left_to_right() -> None:
    images = pictures(40)
    found = augmented(images, "flip", stream())
    mirrored = [torch.equal(one, image.flip(2)) for one, image in zip(found, images, strict=True)]
    kept = [torch.equal(one, image) for one, image in zip(found, images, strict=True)]
    assert all(a != b for a, b in zip(mirrored, kept, strict=True))
    assert 8 < sum(mirrored) < 32


def test_a_crop_shifts_by_whole_pixels_and_fills_with_black() -> None:
    images, margin = pictures(60), 2  # an eighth of 16
    seen = set()
    for one, image in zip(augmented(images, "crop", stream()), images, strict=True):
        matches = []
        for down in range(-margin, margin + 1):
            for right in range(-margin, margin + 1):
                expected = torch.zeros_like(image)
                rows = slice(max(0, -down), 16 - max(0, down))
                columns = slice(max(0, -right), 16 - max(0, right))
                source = image[:, max(0, down) : 16 + min(0, down), max(0, right) : 16 + min(0, right)]
                expected[:, rows, columns] = source
                if torch.equal(one, expected):
                    matches.append((down, right))
        assert len(matches) == 1
        seen.add(matches[0])
    # every shift occurs in both directions, and one says nothing of the other
    assert {down for down, _ in seen} == {right for _, right in seen} == {-2, -1, 0, 1, 2}
    assert len(seen) > 10


@pytest.mark.parametrize(("height", "margin"), [(6, 1), (8, 1), (15, 1), (16, 2), (24, 3)])
def test_a_crop_shifts_by_an_eighth_and_by_one_pixel_at_least(height: int, margin: int) -> None:
    shifts = augmentation.draws("crop", (3, height, height), Batches([(200, stream())]))["shifts"]
    assert shifts.unique().tolist() == list(range(-margin, margin + 1))


def test_wide_pictures_can_be_cropped() -> None:
    assert augmented(torch.zeros(2, 1, 8, 20), "crop", stream()).shape == (2, 1, 8, 20)


def test_augmented_batches_differ_between_epochs_and_rounds() -> None:
    silo = made(8, size=8, epochs=2, augment="crop")
    by_index = []
    for batch in [*silo.batches(), *dataclasses.replace(silo, round=2).batches()]:
        by_index.append(batch.inputs[batch.indices.argsort()])
    assert not torch.equal(by_index[0], by_index[1])
    assert not torch.equal(by_index[0], by_index[2])


# ---------------------------------------------------------------------------------------------- whose tensors are held
def norms(kind: str) -> Callable[[Slot], str]:
    return lambda slot: kind if slot.group == "batch-norm" else SHARED


def is_norm(layout: Layout) -> Tensor:
    mask = torch.zeros(layout.size, dtype=torch.bool)
    for slot in layout.slots:
        mask[slot.place] = slot.group == "batch-norm"
    return mask


def test_without_tensors_of_its_own_a_silo_takes_the_whole_model() -> None:
    silo = made()
    sent = torch.full((silo.model.layout.size,), 2.0)
    silo.load(sent)
    assert torch.equal(silo.model.read(), sent)
    assert torch.equal(silo.start, sent)
    silo.keep_own()
    assert silo.memory == {}


def test_averaged_tensors_are_taken_once_and_then_kept() -> None:
    silo = made(kinds=norms(AVERAGED))
    layout = silo.model.layout
    norm = is_norm(layout)
    sent = torch.full((layout.size,), 2.0)
    silo.load(sent)
    assert torch.equal(silo.model.read(), sent)  # nothing kept yet: the mean of the others is the best start
    silo.model.load(torch.full((layout.size,), 5.0))
    silo.keep_own()
    later = made(kinds=norms(AVERAGED), memory=silo.memory)
    later.load(torch.full((layout.size,), 3.0))
    assert (later.model.read()[norm] == 5).all()
    assert (later.model.read()[~norm] == 3).all()
    assert torch.equal(later.start, later.model.read())
    assert (later.sent == 3).all()


def test_averaged_tensors_are_sent_as_the_difference_to_what_was_sent() -> None:
    silo = made(kinds=norms(AVERAGED))
    size = silo.model.layout.size
    silo.memory["silo"] = {"own": torch.full((int(is_norm(silo.model.layout).sum()),), 5.0)}
    silo.load(torch.full((size,), 3.0))
    change = silo.change()
    assert change.shape == (size,)
    assert (change[is_norm(silo.model.layout)] == 2).all()
    assert (change[~is_norm(silo.model.layout)] == 0).all()


def test_private_tensors_start_at_their_initial_value_and_are_then_kept() -> None:
    silo = made(kinds=norms(PRIVATE))
    layout = silo.model.layout
    norm = is_norm(layout)
    assert layout.wire.size == layout.size - int(norm.sum())
    silo.load(torch.full((layout.wire.size,), 2.0))
    assert torch.equal(silo.model.read()[norm], silo.untrained()[norm])
    assert (silo.model.read()[~norm] == 2).all()
    silo.model.load(torch.full((layout.size,), 5.0))
    silo.keep_own()
    assert silo.change().shape == (layout.wire.size,)
    assert (silo.change() == 3).all()
    later = made(kinds=norms(PRIVATE), memory=silo.memory)
    later.load(torch.full((layout.wire.size,), 4.0))
    assert (later.model.read()[norm] == 5).all()
    assert (later.model.read()[~norm] == 4).all()


def test_averaged_and_private_tensors_of_one_model_are_told_apart() -> None:
    def kinds(slot: Slot) -> str:
        return PRIVATE if slot.group == "head" else norms(AVERAGED)(slot)

    silo = made(kinds=kinds)
    layout = silo.model.layout
    kept = torch.arange(layout.size, dtype=torch.float32)
    silo.model.load(kept)
    silo.keep_own()
    later = made(kinds=kinds, memory=silo.memory)
    later.load(torch.full((layout.wire.size,), -1.0))
    for slot in layout.slots:
        found = later.model.read()[slot.place]
        assert torch.equal(found, kept[slot.place]) if slot.kind != SHARED else (found == -1).all()


def test_loading_does_not_change_what_was_sent_nor_the_initial_model() -> None:
    silo = made(kinds=norms(PRIVATE))
    sent = torch.full((silo.model.layout.wire.size,), 2.0)
    initial = silo.untrained()
    silo.load(sent)
    silo.model.load(torch.zeros(silo.model.layout.size))
    silo.change()
    assert (sent == 2).all()
    assert torch.equal(silo.untrained(), initial)


def test_another_model_can_be_run_without_being_held() -> None:
    silo = made()
    silo.model.module.eval()
    inputs = torch.rand(2, 3, 6, 6)
    before = silo.forward(inputs).prediction
    other = torch.zeros(silo.model.layout.size)
    assert (silo.forward(inputs, other).prediction == 0).all()
    assert torch.equal(silo.forward(inputs).prediction, before)


# -------------------------------------------------------------------------------------------------------------- memory
def test_a_copy_of_a_memory_can_be_thrown_away() -> None:
    memory = Memory({"part": {"count": 1}})
    copy = memory.copy()
    copy["part"]["count"] = 2
    copy["other"] = {}
    assert memory == {"part": {"count": 1}}
    assert isinstance(copy, Memory)


def test_a_message_weighs_its_tensors_eight_bytes_a_number_and_its_texts() -> None:
    message = Message({"model": torch.zeros(10), "counts": torch.zeros(3, dtype=torch.int64)}, {"n": 1, "part": "abc"})
    assert message.bytes == 40 + 24 + 8 + 3
    copy = message.copy()
    copy.tensors.pop("model")
    assert "model" in message.tensors


# ------------------------------------------------------------------------------------------------ decided before a step
@dataclass(frozen=True)
class Drawing(Part):
    """Draws a number per sample, and looks at it in every pass over a batch."""

    name = "drawing"

    def draw(self, silo: Silo, indices: Tensor, stream: torch.Generator) -> dict[str, Tensor]:
        return {"number": torch.rand(len(indices), generator=stream)}

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        silo.scratch.setdefault("seen", []).append((batch.indices, batch.extra["drawing.number"]))
        return loss


def drawn(how: Method, round_: int = 1) -> list[tuple[Tensor, Tensor]]:
    plan = tiny.plan(how)
    silo = plan.silo(plan.flat(), tiny.federation()["a"], Request("train", round_, Message()), Memory())
    silo.load(plan.start()[1])
    (train,) = how.hooks("train") or (descend,)
    train(silo)
    return silo.scratch["seen"]  # type: ignore[no-any-return]


def test_a_part_draws_once_for_each_batch_whoever_passes_over_it_again() -> None:
    alone = drawn(Method((Drawing(),), "drawing"))
    twice = drawn(Method((Drawing(),), "drawing") | method("fedsam"))
    assert len(twice) == 2 * len(alone) == 2 * 3
    for number, (indices, values) in enumerate(alone):
        assert len(values) == len(indices)
        for again in twice[2 * number : 2 * number + 2]:
            assert torch.equal(again[0], indices)
            assert torch.equal(again[1], values)
    assert len({float(values[0]) for _, values in alone}) == len(alone)
    assert not torch.equal(drawn(Method((Drawing(),), "drawing"), 2)[0][1], alone[0][1])


def test_all_that_is_random_is_decided_before_the_first_step() -> None:
    """Whatever the steps do, the plan of an exchange is the same; and it is moved to a device as a whole."""
    silo = made(20, size=8, epochs=2, augment="crop+flip")
    one, other = silo.planned(), silo.planned()
    assert [step.last for step in one] == [False] * (len(one) // 2) + [True] * (len(one) // 2)
    for step, again in zip(one, other, strict=True):
        assert torch.equal(step.indices, again.indices)
        assert step.augmentation.keys() == {"shifts", "mirrored"}
        assert all(torch.equal(value, again.augmentation[key]) for key, value in step.augmentation.items())
        assert all(len(value) == len(step.indices) for value in step.augmentation.values())
    moved = uploaded(one, torch.device("meta"), torch.device("cpu"))
    assert all(value.device.type == "meta" for step in moved for value in step.augmentation.values())
    assert [value.shape for step in moved for value in step.augmentation.values()] == [
        value.shape for step in one for value in step.augmentation.values()
    ]


def test_balanced_draws_take_all_classes_equally_often() -> None:
    """As many samples as an epoch has, drawn with replacement; without it each sample comes once."""
    silo = made(200, size=50)
    targets = torch.zeros(200, dtype=torch.long)
    targets[:10] = 1
    silo.data = dataclasses.replace(silo.data, train=Split(silo.data.train.inputs, targets))
    plain = torch.cat([step.indices for step in silo.planned()])
    assert sorted(plain.tolist()) == list(range(200))
    silo.training = dataclasses.replace(silo.training, balance=True)
    drawn = torch.cat([step.indices for step in silo.planned()])
    assert len(drawn) == 200
    assert 70 < int(targets[drawn].sum()) < 130
    assert torch.equal(drawn, torch.cat([step.indices for step in silo.planned()]))
