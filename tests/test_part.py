"""Composition of parts: order, ablation, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor

import tiny
from fairsilo.config import TrainSettings, fields_of
from fairsilo.core.attachments import EACH_UPDATE, Sends
from fairsilo.core.method import Method
from fairsilo.core.needs import Facts
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.core.vectors import AVERAGED, PRIVATE, SHARED, Layout, Slot
from fairsilo.errors import FairsiloError
from fairsilo.fields import setting
from fairsilo.methods.parts.consistency_mask import ConsistencyMask
from fairsilo.methods.parts.distance_weights import DistanceWeights
from fairsilo.methods.parts.proximal import Proximal
from fairsilo.methods.text import method


@dataclass(frozen=True)
class First(Part):
    name = "first"
    about = About(sends=(Sends("one", "one thing"), EACH_UPDATE))
    strength: float = setting(1.0, "how much", low=0, high=2)

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Any:
        return "first"

    def begin(self, silo: Any) -> Any:
        return "first"


@dataclass(frozen=True)
class Decider(Part):
    name = "decider"
    about = About(sends=(EACH_UPDATE,), keeps=("weights",))
    does = frozenset({"decides-weights"})

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Any:
        return "decider"


@dataclass(frozen=True)
class Second(Part):
    name = "second"
    about = About(sends=(Sends("other", "another"), EACH_UPDATE), results="personal")

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Any:
        return "second"

    def begin(self, silo: Any) -> Any:
        return "second"


@dataclass(frozen=True)
class LoopA(Part):
    name = "loop-a"

    def train(self, silo: Any) -> Any: ...


@dataclass(frozen=True)
class LoopB(LoopA):
    name = "loop-b"


@dataclass(frozen=True)
class MixA(Part):
    name = "mix-a"
    about = About(sends=(EACH_UPDATE,))
    does = frozenset({"ignores-weights"})

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Any: ...


@dataclass(frozen=True)
class MixB(Part):
    name = "mix-b"
    about = About(sends=(EACH_UPDATE,))

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Any: ...


def called(made: Method, hook: str) -> list[str]:
    arguments = {"weights": 3, "begin": 1}[hook]
    return [found(*[None] * arguments) for found in made.hooks(hook)]


def refused(*parts: Part) -> str:
    with pytest.raises(FairsiloError) as problem:
        Method(parts, "m")
    return str(problem.value)


# ----------------------------------------------------------------------------------------------------------- composing
def test_the_order_of_parts_is_the_order_of_calls() -> None:
    assert called(Method((First(), Second())), "begin") == ["first", "second"]
    assert called(Method((Second(), First())), "begin") == ["second", "first"]


def test_the_part_that_decides_the_weights_comes_last_there() -> None:
    made = Method((Decider(), Second(), First()))
    assert called(made, "weights") == ["second", "first", "decider"]


def test_only_parts_that_define_a_hook_are_asked() -> None:
    made = Method((First(), Decider()))
    assert made.hooks("loss") == ()
    assert [part.name for part in made.owners("weights")] == ["first", "decider"]


def test_methods_and_parts_compose_with_a_bar() -> None:
    made = Method((First(),), "one") | Method((Decider(),), "two") | Second()
    assert [part.name for part in made.parts] == ["first", "decider", "second"]
    assert made.name == "one | two | second"


def test_plain_averaging_adds_nothing_to_a_composition() -> None:
    one = Method((First(),), "one")
    assert (Method() | one).name == (one | Method()).name == "one"
    assert (Method() | one).parts == one.parts
    assert (Method() | Method()).name == "fedavg"


def test_two_models_of_the_server_are_refused() -> None:
    brings = method("fedot")
    assert (brings | Second()).owners("server_network") == list(brings.parts)
    with pytest.raises(FairsiloError, match="'offsite' and 'domain-adapters' both bring a model of the server's own"):
        brings | method("fedag")


def test_methods_of_equal_parts_are_equal() -> None:
    assert Method((First(),), "m") == Method((First(1.0),), "m")
    assert Method((First(),), "m") != Method((First(0.5),), "m")
    assert len({Method((First(),), "m"), Method((First(),), "m")}) == 1


# ------------------------------------------------------------------------------------------------------------- without
@pytest.mark.parametrize("which", [Second, "second"])
def test_a_part_is_left_out_by_class_or_by_name(which: type[Part] | str) -> None:
    made = Method((First(), Second(), Decider()), "m")
    less = made.without(which)
    assert less.parts == (First(), Decider())
    assert less.name == "m.without(second)"
    assert len(made.parts) == 3


def test_several_parts_are_left_out_at_once() -> None:
    less = Method((First(), Second(), Decider()), "m").without(First, "decider")
    assert less.parts == (Second(),)
    assert less.name == "m.without(first, decider)"


def test_leaving_out_what_is_not_there_is_refused_with_what_is() -> None:
    made = Method((First(), Second()), "m")
    with pytest.raises(FairsiloError) as problem:
        made.without("third")
    assert str(problem.value) == "m has no part 'third'; its parts: first, second"
    with pytest.raises(FairsiloError, match="m has no part 'decider'"):
        made.without(Decider)
    with pytest.raises(FairsiloError, match="fedavg has no part 'first'; its parts: none"):
        Method().without("first")


def test_an_ablation_of_fedheal_is_one_of_its_halves() -> None:
    whole = method("fedheal(tau=0.4)")
    assert whole.without(DistanceWeights).parts == method("fphl(tau=0.4)").parts
    assert whole.without("consistency-mask").parts == method("fael").parts


# ------------------------------------------------------------------------------------------------------------ refusals
def test_a_part_cannot_be_in_a_method_twice() -> None:
    assert refused(First(), Second(), First(0.5)) == "m: the part 'first' is in it twice; name it once"


def test_two_owners_of_the_local_loop_are_refused() -> None:
    assert refused(LoopA(), LoopB()) == (
        "m: 'loop-a' and 'loop-b' both own the local loop; a method has one part that does"
    )


def test_two_owners_of_the_combination_are_refused() -> None:
    assert refused(MixB(), MixA()) == (
        "m: 'mix-b' and 'mix-a' both combine the updates; a method has one part that does"
    )


def test_two_parts_that_decide_the_weights_are_refused() -> None:
    assert refused(Decider(), DistanceWeights()) == (
        "m: 'decider' and 'distance-weights' both decide the aggregation weights; a method has one part that does"
    )


def test_weights_that_would_have_no_effect_are_refused() -> None:
    assert refused(Decider(), MixA()) == (
        "m: 'mix-a' combines the updates by its own coefficients, so the weights of 'decider' would have no effect; "
        "leave one of them out"
    )
    Method((Decider(), MixB()))
    Method((First(), MixA()))


def test_a_clash_is_refused_in_a_composition_too() -> None:
    with pytest.raises(FairsiloError, match=r"^a \| b: 'loop-a' and 'loop-b' both own the local loop"):
        Method((LoopA(),), "a") | Method((LoopB(),), "b")


# --------------------------------------------------------------------------------------------------------------- facts
def test_a_method_is_about_personal_models_where_one_of_its_parts_is() -> None:
    assert Method().results == "global"
    assert Method((First(),)).results == "global"
    assert Method((First(), Second())).results == "personal"


def test_the_server_sees_single_updates_where_a_part_needs_them() -> None:
    assert not Method().individual_updates
    assert not Method((LoopA(),)).individual_updates
    assert Method((LoopA(), First())).individual_updates
    assert Method((MixA(),)).individual_updates


def test_what_is_sent_and_kept_is_collected_from_the_parts() -> None:
    made = Method((First(), Decider(), Second()))
    assert made.sends == ("one thing", "another")
    assert made.keeps == ("weights",)


def test_settings_of_a_part_are_checked_when_it_is_made() -> None:
    with pytest.raises(FairsiloError, match=r"^first\.strength is 3\.0; it must be 0 to 2$"):
        First(3)
    assert First("1e-1").strength == 0.1  # type: ignore[arg-type]


def test_the_fields_of_a_part_are_its_settings() -> None:
    assert fields_of(First) == [
        {"name": "strength", "default": 1.0, "range": "0 to 2", "search": "", "help": "how much"}
    ]
    assert fields_of(Second) == []


def test_a_pickled_method_works_on() -> None:
    made = Method((Decider(), First(0.5)), "m")
    made.hooks("weights")
    back = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
    assert back == made
    assert called(back, "weights") == ["first", "decider"]
    assert (back | Second()).parts[-1] == Second()


# ------------------------------------------------------------------------------------------------------------- layouts
@dataclass(frozen=True)
class HeadPrivate(Part):
    name = "head-private"

    def kind(self, slot: Slot) -> str:
        return PRIVATE if slot.group == "head" else SHARED


@dataclass(frozen=True)
class AllAveraged(Part):
    name = "all-averaged"

    def kind(self, slot: Slot) -> str:
        return AVERAGED


@pytest.mark.parametrize("parts", [(HeadPrivate(), AllAveraged()), (AllAveraged(), HeadPrivate())])
def test_the_most_private_kind_wins(parts: tuple[Part, ...]) -> None:
    layout = Method(parts).layout(Layout.of(tiny.TinyNet(3, 3)))
    assert {slot.kind for slot in layout.slots if slot.group == "head"} == {PRIVATE}
    assert {slot.kind for slot in layout.slots if slot.group != "head"} == {AVERAGED}


def test_without_a_part_that_decides_everything_is_shared() -> None:
    layout = Method((First(),)).layout(Layout.of(tiny.TinyNet(3, 3)))
    assert {slot.kind for slot in layout.slots} == {SHARED}


# -------------------------------------------------------------------------------------------------------------- checks
@dataclass(frozen=True)
class Picky(Part):
    name = "picky"
    needs = frozenset({"image-task"})


@dataclass(frozen=True)
class Measuring(Part):
    name = "measuring"
    needs = frozenset({"validation"})


def check(made: Method, without: tuple[str, ...] = ()) -> None:
    made.check(Facts(Layout.of(tiny.TinyNet(3, 3)), TrainSettings(), "classify", without))


def test_a_task_that_a_part_is_not_for_is_refused() -> None:
    check(Method((Picky(),)))
    facts = Facts(Layout.of(tiny.TinyNet(3, 3)), TrainSettings(), "regress")
    with pytest.raises(FairsiloError, match=r"^picky is for the tasks classify, segment, not for regress$"):
        Method((Picky(),)).check(facts)


def test_a_part_that_measures_needs_validation_data_everywhere() -> None:
    check(Method((Measuring(),)))
    with pytest.raises(FairsiloError, match=r"^measuring .*'b' has none; set data\.validation above 0$"):
        check(Method((Measuring(),)), ("b",))


def test_local_norms_without_batch_norms_are_refused() -> None:
    check(method("fedbn"))
    with pytest.raises(FairsiloError, match="no BatchNorm module, so keeping norms local would change nothing"):
        method("fedbn").check(Facts(Layout.of(tiny.server_net(3, 3)), TrainSettings(), "classify"))


def test_real_parts_compose_by_value() -> None:
    made = Method((Proximal(0.1),), "prox") | ConsistencyMask(tau=0.4) | DistanceWeights()
    assert made.parts == method("fedprox(mu=0.1) | fedheal(tau=0.4)").parts


def test_what_a_part_needs_and_does_not_get_is_named() -> None:
    layout = Layout.of(tiny.TinyNet(3, 3))
    adam = TrainSettings(optimizer="adam")
    for text, facts, words in (
        ("moon", Facts(layout, TrainSettings(), "classify", features=False), "the network returns none"),
        ("fedavg-ft", Facts(layout, TrainSettings(), "classify"), "data.server=PATH"),
        ("fednova", Facts(layout, adam, "classify"), "train.optimizer must be sgd"),
        ("fedmix", Facts(layout, TrainSettings(), "ranking", blends=False), "the task ranking does not say how"),
        ("fedmix", Facts(layout, TrainSettings(), "next-character", continuous=False), "are codes, which have none"),
        (
            "fedproc",
            Facts(layout, TrainSettings(), "segment"),
            "for the tasks classify, next-character, not for segment",
        ),
    ):
        with pytest.raises(FairsiloError) as refusal:
            method(text).check(facts)
        assert words in str(refusal.value)


# ---------------------------------------------------------------------------------------------------- without effect
def frozen_body(classes: int, channels: int) -> tiny.TinyNet:
    network = tiny.TinyNet(classes, channels)
    network.features.requires_grad_(False)
    return network


@pytest.mark.parametrize("how", ["only-da", "only-da(align=adversarial)", "moon", "fedproto", "fedbabu", "fedrep"])
def test_what_moves_features_is_refused_on_a_frozen_body(how: str) -> None:
    people = tiny.federation().roster
    tiny.plan(how).check(people, server_data=False)
    with pytest.raises(FairsiloError, match="frozen"):
        tiny.plan(how, model=frozen_body).check(people, server_data=False)
    tiny.plan("fedavg", model=frozen_body).check(people, server_data=False)


@pytest.mark.parametrize("how", ["fedheal", "fphl", "fael", "fedfv", "grace-server", "fedavgm", "q-ffl", "fednova"])
def test_rules_over_shared_tensors_are_refused_where_none_is_shared(how: str) -> None:
    tiny.plan(f"fedbn | {how}").check(tiny.federation().roster, server_data=False)
    with pytest.raises(FairsiloError, match="here none is shared: it would do nothing"):
        tiny.plan(f"fedmtl | {how}").check(tiny.federation().roster, server_data=False)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("fedag(cross=false, lam=0.5)", r"domain-adapters\.lam has no effect with cross=false"),
        ("fedag(cross=false, margin=0.5)", r"domain-adapters\.margin has no effect with cross=false"),
        ("fedag(kd=false, quality=false)", r"domain-adapters\.quality has no effect with kd=false"),
        ("fedavgm(beta2=0.5)", r"server-optimizer\.beta2 has no effect with rule=momentum"),
        ("fedavgm(tau=0.5)", r"server-optimizer\.tau has no effect with rule=momentum"),
        ("fedrep(turns=batches, body_epochs=2)", r"body_epochs has no effect with turns=batches"),
        ("fine-tune(finetune_epochs=0, finetune_steps=2)", r"finetune_steps has no effect with finetune_epochs=0"),
        ("iop-fl(consistency_weight=0, noise=0.2)", r"noise has no effect with consistency_weight=0"),
    ],
)
def test_a_setting_that_another_switches_off_is_refused(how: str, words: str) -> None:
    with pytest.raises(FairsiloError, match=words):
        method(how)


def test_what_is_switched_off_and_left_as_it_was_is_accepted() -> None:
    for how in ("fedag(cross=false)", "fedag(kd=false)", "fedavgm", "fedrep(turns=batches)"):
        method(how)
