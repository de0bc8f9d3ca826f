"""How a data set becomes silos: who is left out, who gets what, and that nothing is lost or seen twice."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from fairsilo.core.samples import SiloData, Split
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset, Domain
from fairsilo.data.federation import Federation, federate, held_out_domains
from fairsilo.errors import FairsiloError

COUNT = 60


def domain(
    name: str,
    count: int = COUNT,
    *,
    classes: int = 3,
    split: Sequence[int] | None = None,
    group: Sequence[int] | None = None,
    silo: Sequence[str] | None = None,
) -> Domain:
    """Samples whose single pixel is their number, so that they can be followed."""
    return Domain(
        name,
        torch.arange(count, dtype=torch.uint8).view(count, 1, 1, 1),
        torch.arange(count) % classes,
        torch.tensor(split if split is not None else [UNDECIDED] * count, dtype=torch.int8),
        torch.tensor(group) if group is not None else None,
        tuple(silo) if silo is not None else None,
    )


def dataset(*domains: Domain) -> Dataset:
    found = domains or tuple(domain(name) for name in ("ink", "chalk", "photo"))
    return Dataset("drawings", ("0", "1", "2"), {one.name: one for one in found})


def numbers(split: Split) -> list[int]:
    return split.inputs.flatten().tolist()


def alone(found: Domain, **settings: float) -> SiloData:
    return federate(dataset(found), held_out="-", **settings).silos[0]


# ----------------------------------------------------------------------------------------------------- who is left out
@pytest.mark.parametrize(
    ("held_out", "trains", "unseen"),
    [
        ("photo", ("chalk", "ink"), ("photo",)),
        ("ink", ("chalk", "photo"), ("ink",)),
        ("auto", ("chalk", "ink"), ("photo",)),
        ("ink+photo", ("chalk",), ("ink", "photo")),
        (" photo + ink ", ("chalk",), ("ink", "photo")),
        ("-", ("chalk", "ink", "photo"), ()),
        ("none", ("chalk", "ink", "photo"), ()),
        (None, ("chalk", "ink", "photo"), ()),
    ],
)
def test_held_out_domains_only_evaluate(held_out: str | None, trains: tuple[str, ...], unseen: tuple[str, ...]) -> None:
    made = federate(dataset(), held_out=held_out)
    assert (made.names, made.unseen_names) == (trains, unseen)


def test_an_unseen_silo_is_tested_on_its_whole_domain_and_has_nothing_else() -> None:
    splits = [TRAIN] * 30 + [VALIDATION] * 10 + [TEST] * 20
    made = federate(dataset(domain("ink"), domain("photo", split=splits)), held_out="photo")
    photo = made["photo"]
    assert numbers(photo.test) == list(range(COUNT))
    assert (len(photo.train), len(photo.validation)) == (0, 0)


def test_a_domain_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(FairsiloError) as problem:
        held_out_domains(dataset(), "foto")
    assert str(problem.value) == "data.held_out is 'foto', which is no domain of drawings; did you mean 'photo'?"


def test_holding_out_every_domain_is_refused() -> None:
    with pytest.raises(FairsiloError, match="names every domain; at least one must be left to train on"):
        federate(dataset(), held_out="ink+chalk+photo")


def test_the_only_domain_cannot_be_held_out_by_itself() -> None:
    with pytest.raises(FairsiloError, match="the single domain 'ink'; at least two are needed"):
        federate(dataset(domain("ink")), held_out="auto")


# -------------------------------------------------------------------------------------------------------------- splits
def test_splits_are_disjoint_and_complete() -> None:
    for silo in federate(dataset()).silos:
        found = numbers(silo.train) + numbers(silo.validation) + numbers(silo.test)
        assert sorted(found) == list(range(COUNT))


def test_inputs_keep_their_targets() -> None:
    for silo in federate(dataset(), silos_per_domain=2).silos:
        for split in (silo.train, silo.validation, silo.test):
            assert [number % 3 for number in numbers(split)] == split.targets.tolist()


def test_each_class_gives_its_share() -> None:
    silo = alone(domain("ink"), test=0.2, validation=0.25)
    # 20 samples a class: 4 for testing, a quarter of the remaining 16 for validation
    for split, share in ((silo.test, 4), (silo.validation, 4), (silo.train, 12)):
        assert Counter(split.targets.tolist()) == {0: share, 1: share, 2: share}


def test_no_share_leaves_a_split_empty() -> None:
    silo = alone(domain("ink"), test=0.0, validation=0.0)
    assert (len(silo.train), len(silo.validation), len(silo.test)) == (COUNT, 0, 0)


def test_given_splits_are_kept() -> None:
    splits = [TRAIN] * 30 + [VALIDATION] * 12 + [TEST] * 18
    silo = alone(domain("ink", split=splits), test=0.5, validation=0.5)
    assert numbers(silo.train) == list(range(30))
    assert numbers(silo.validation) == list(range(30, 42))
    assert numbers(silo.test) == list(range(42, 60))


def test_where_a_test_set_is_given_the_undecided_train() -> None:
    splits = [UNDECIDED] * 30 + [TEST] * 30
    silo = alone(domain("ink", split=splits), validation=0.2)
    assert numbers(silo.test) == list(range(30, 60))
    assert sorted(numbers(silo.train) + numbers(silo.validation)) == list(range(30))
    assert len(silo.validation) == 6


def test_validation_is_carved_from_training_samples_only() -> None:
    splits = [TRAIN] * 40 + [TEST] * 20
    silo = alone(domain("ink", split=splits), validation=0.25)
    assert numbers(silo.test) == list(range(40, 60))
    assert set(numbers(silo.validation)) < set(range(40))


@pytest.mark.parametrize("seed", range(5))
def test_groups_never_cross_splits(seed: int) -> None:
    groups = [number // 4 for number in range(COUNT)]  # groups of four, of mixed classes
    silo = alone(domain("ink", group=groups), test=0.2, validation=0.2, seed=seed)
    held = [{groups[number] for number in numbers(split)} for split in (silo.train, silo.validation, silo.test)]
    assert not held[0] & held[1]
    assert not held[0] & held[2]
    assert not held[1] & held[2]
    assert all(held)
    assert len(silo.train) + len(silo.validation) + len(silo.test) == COUNT


# --------------------------------------------------------------------------------------------------------------- silos
def test_the_silos_of_a_domain_are_alike_in_size_and_classes() -> None:
    made = federate(dataset(domain("ink", 200)), held_out="-", silos_per_domain=3, test=0.2, validation=0.15)
    assert made.names == ("ink-1", "ink-2", "ink-3")
    for key in ("train", "validation"):
        splits = [silo.split(key) for silo in made.silos]
        assert max(map(len, splits)) - min(map(len, splits)) <= 1
        for label in range(3):
            counts = [int((split.targets == label).sum()) for split in splits]
            assert max(counts) - min(counts) <= 1


def test_the_silos_of_a_domain_divide_its_samples_and_share_its_test_set() -> None:
    whole = federate(dataset(domain("ink")), held_out="-").silos[0]
    made = federate(dataset(domain("ink")), held_out="-", silos_per_domain=4)
    assert {silo.domain for silo in made.silos} == {"ink"}
    for key in ("train", "validation"):
        dealt = [number for silo in made.silos for number in numbers(silo.split(key))]
        assert sorted(dealt) == sorted(numbers(whole.split(key)))
    assert all(numbers(silo.test) == numbers(whole.test) for silo in made.silos)


def test_known_holders_keep_their_samples() -> None:
    holders = ["north" if number < 45 else "south" for number in range(COUNT)]
    made = federate(dataset(domain("ink", silo=holders)), held_out="-")
    assert made.names == ("north", "south")
    for silo in made.silos:
        assert {holders[number] for number in numbers(silo.train) + numbers(silo.validation)} == {silo.name}
        assert silo.domain == "ink"


def test_more_silos_than_training_samples_are_refused() -> None:
    with pytest.raises(FairsiloError, match=r"of domain 'ink' gets no training sample; it needs more samples"):
        federate(dataset(domain("ink", 6)), held_out="-", silos_per_domain=7)


# --------------------------------------------------------------------------------------------------------------- seeds
def content(made: Federation) -> list[list[int]]:
    return [numbers(silo.split(key)) for silo in made.silos for key in ("train", "validation", "test")]


def test_the_seed_decides_the_splits_and_the_silos() -> None:
    first = content(federate(dataset(), silos_per_domain=2, seed=1))
    assert first == content(federate(dataset(), silos_per_domain=2, seed=1))
    assert first != content(federate(dataset(), silos_per_domain=2, seed=2))


def test_the_seed_decides_who_gets_what_where_the_splits_are_given() -> None:
    splits = [TRAIN] * 40 + [VALIDATION] * 10 + [TEST] * 10
    found = [
        content(federate(dataset(domain("ink", split=splits)), held_out="-", silos_per_domain=2, seed=seed))
        for seed in (1, 1, 2)
    ]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_domains_are_split_independently_of_each_other() -> None:
    made = federate(dataset(), held_out="-")
    assert numbers(made["ink"].test) != numbers(made["chalk"].test)
    fewer = federate(dataset(domain("ink"), domain("photo")), held_out="-")
    assert numbers(fewer["ink"].test) == numbers(made["ink"].test)


def test_the_global_random_state_plays_no_part() -> None:
    torch.manual_seed(1)
    first = content(federate(dataset()))
    torch.manual_seed(2)
    assert content(federate(dataset())) == first


# --------------------------------------------------------------------------------------------------------- federations
def member(name: str, count: int = 2) -> SiloData:
    some = Split(torch.zeros(count, 1), torch.zeros(count, dtype=torch.long))
    return SiloData(name, name, some, some, some)


def test_silos_are_kept_in_name_order() -> None:
    made = Federation("f", ("0",), (member("c"), member("a"), member("b")), (member("z"), member("y")))
    assert made.names == ("a", "b", "c")
    assert made.unseen_names == ("y", "z")


def test_the_order_of_domains_plays_no_part() -> None:
    domains = [domain(name) for name in ("ink", "chalk", "photo")]
    first, second = (federate(dataset(*order), held_out="ink") for order in (domains, domains[::-1]))
    assert first.names == second.names
    assert content(first) == content(second)


def test_two_silos_of_one_name_are_refused() -> None:
    with pytest.raises(FairsiloError, match="two silos are called 'a'; names must differ"):
        Federation("f", ("0",), (member("a"), member("b")), (member("a"),))


def test_a_federation_needs_silos_with_training_samples() -> None:
    with pytest.raises(FairsiloError, match="no silo that trains"):
        Federation("f", ("0",), ())
    with pytest.raises(FairsiloError, match="silo 'a' has no training samples"):
        Federation("f", ("0",), (member("a", 0),))


def test_silos_are_found_by_name_seen_or_not() -> None:
    made = Federation("f", ("0",), (member("a"),), (member("u"),))
    assert made["a"].name == "a"
    assert made["u"].name == "u"


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(FairsiloError, match="unknown task 'clasify'; did you mean 'classify'"):
        federate(dataclasses.replace(dataset(), task="clasify"))


# ------------------------------------------------------------------------------------------------------- client types
@pytest.mark.parametrize(
    ("dif", "counts", "first"),
    [(10, [10, 6, 3, 2, 1], 6), (5, [5, 3, 2, 2, 1], 225), (1, [2, 2, 2, 2, 2], 372)],
)
def test_client_types_as_in_fedgcr(dif: float, counts: list[int], first: int) -> None:
    """Its published training sizes: four fifths of 3,719 images of the first type (1,487 in all with dif 1)."""
    total = 2975 if dif > 1 else 1487
    domains = {}
    for name in "edcba":
        split = torch.full((total + 10,), TRAIN, dtype=torch.int8)
        split[total : total + 5], split[total + 5 :] = VALIDATION, TEST
        domains[name] = Domain(
            name, torch.zeros(total + 10, 3, 2, 2, dtype=torch.uint8), torch.arange(total + 10) % 2, split
        )
    made = federate(Dataset("d", ("0", "1"), domains), held_out="-", dif=dif, order=list("abcde"))
    by_type = [[silo for silo in made.silos if silo.domain == name] for name in "abcde"]
    assert [len(silos) for silos in by_type] == counts
    sizes = [[len(silo.train) for silo in silos] for silos in by_type]
    assert abs(sizes[0][0] - first) <= 1
    if dif == 10:
        published = [6, 12, 21, 38, 70, 126, 227, 409, 736, 1325]
        assert all(abs(one - other) <= 6 for one, other in zip(sizes[0], published, strict=True))
        assert [sum(one) for one in sizes] == pytest.approx([2970, 1650, 915, 508, 282], rel=0.01)
    if dif == 1:
        assert sizes[0][1] == pytest.approx(3 * sizes[0][0], abs=3)
    assert all(len(silo.test) == 5 for silo in made.silos)


def _sized(**sizes: int) -> Dataset:
    domains = {}
    for name, count in sizes.items():
        split = torch.full((count + 2,), TRAIN, dtype=torch.int8)
        split[count:] = TEST
        images = torch.zeros(count + 2, 3, 1, 1, dtype=torch.uint8)
        domains[name] = Domain(name, images, torch.arange(count + 2) % 2, split)
    return Dataset("d", ("0", "1"), domains)


def test_sizes_of_types_follow_from_the_first_one() -> None:
    """PACS: each type has 1/1.7 of the one before, whatever its domain holds, but no more than that."""
    made = federate(_sized(a=1000, b=2000, c=3000, d=100), held_out="-", dif=5, validation=0, order=list("abcd"))
    sizes = {name: sum(len(silo.train) for silo in made.silos if silo.domain == name) for name in "abcd"}
    assert sizes == {"a": 1000, "b": round(1000 / 1.7), "c": round(1000 / 1.7**2), "d": 100}
    assert [sum(silo.domain == name for silo in made.silos) for name in "abcd"] == [5, 3, 2, 1]


def test_the_series_of_ten_over_four_types_is_the_released_one() -> None:
    made = federate(_sized(a=10000, b=10000, c=10000, d=10000), held_out="-", dif=10, validation=0)
    sizes = [sum(len(silo.train) for silo in made.silos if silo.domain == name) for name in "abcd"]
    assert sizes == [10000, 4630, 2143, 992]  # a ratio of 2.16


def test_client_types_and_silos_that_the_data_name_do_not_go_together() -> None:
    named = domain("ink", silo=["a"] * 30 + ["b"] * 30)
    with pytest.raises(FairsiloError, match=r"^data\.dif decides the silos .* the data of 'ink' name their own$"):
        federate(dataset(named, domain("chalk")), held_out="-", dif=2)


def test_client_types_and_silos_per_domain_do_not_go_together() -> None:
    split = torch.full((40,), TRAIN, dtype=torch.int8)
    domain = Domain("a", torch.zeros(40, 3, 2, 2, dtype=torch.uint8), torch.arange(40) % 2, split)
    data = Dataset("d", ("0", "1"), {"a": domain, "b": domain})
    with pytest.raises(FairsiloError, match=r"leave data\.silos_per_domain at 1"):
        federate(data, held_out="-", dif=2, silos_per_domain=2)
