"""Uneven silos: a share or a number of samples by domain, and silos by domain; on any data, also the embedded ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from test_packed import sample

from fairsilo import config
from fairsilo.data import load
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset, Domain
from fairsilo.data.federation import Federation, federate
from fairsilo.data.packed import write_packed
from fairsilo.data.reading import draw, restrict
from fairsilo.errors import FairsiloError
from fairsilo.runs.effects import refuse_idle
from fairsilo.runs.setup import federation_of


def domain(name: str, count: int, split: int = UNDECIDED, classes: int = 2) -> Domain:
    inputs = torch.arange(count, dtype=torch.int32).view(count, 1, 1, 1)
    marks = torch.full((count,), split, dtype=torch.int8)
    return Domain(name, inputs, torch.arange(count) % classes, marks)


def data(**counts: int) -> Dataset:
    return Dataset("d", ("0", "1"), {name: domain(name, count) for name, count in counts.items()})


def sizes(made: Federation) -> dict[str, int]:
    return {silo.name: len(silo.train) for silo in made.silos}


def test_each_silo_gets_its_share_of_the_training_samples_and_no_sample_twice() -> None:
    made = federate(
        data(a=1000, b=500),
        held_out="-",
        silos_per_domain={"a": 3, "b": 2},
        share={"a": 0.01, "b": 30},
        validation=0,
        test=0.2,
    )
    assert sizes(made) == {"a-1": 8, "a-2": 8, "a-3": 8, "b-1": 30, "b-2": 30}
    for name in "ab":
        held = torch.cat([silo.train.inputs for silo in made.silos if silo.domain == name]).flatten()
        tested = next(silo.test.inputs for silo in made.silos if silo.domain == name).flatten()
        assert len(held.unique()) == len(held)
        assert not set(held.tolist()) & set(tested.tolist())
    assert len(made["a-1"].test) == 200
    assert made["b-1"].train.targets.bincount().tolist() == [15, 15]


def test_shares_may_use_up_the_domain() -> None:
    made = federate(data(a=100, b=100), held_out="b", silos_per_domain=2, share={"a": 0.5}, validation=0, test=0.2)
    assert sizes(made) == {"a-1": 40, "a-2": 40}


def test_one_share_for_all_domains_and_validation_out_of_it() -> None:
    made = federate(data(a=100, b=200), held_out="-", share={"": 0.5}, validation=0.25, test=0)
    found = {silo.name: (len(silo.train), len(silo.validation)) for silo in made.silos}
    assert found == {"a": (38, 12), "b": (76, 24)}


def test_what_is_set_aside_for_validation_is_cut_as_much() -> None:
    one = domain("a", 120, TRAIN)
    one.split[100:] = VALIDATION
    one.split[110:] = TEST
    made = federate(
        Dataset("d", ("0", "1"), {"a": one, "b": domain("b", 40)}), held_out="b", silos_per_domain=2, share={"a": 0.2}
    )
    assert [(len(silo.train), len(silo.validation), len(silo.test)) for silo in made.silos] == [(20, 2, 10)] * 2


def test_rare_classes_keep_their_share() -> None:
    rare = dataclasses.replace(domain("a", 200, TRAIN), targets=(torch.arange(200) >= 180).long())
    made = federate(
        Dataset("d", ("0", "1"), {"a": rare, "b": domain("b", 40)}), held_out="-", share={"a": 0.1}, validation=0
    )
    assert made["a"].train.targets.bincount().tolist() == [18, 2]


def test_named_silos_keep_a_share_of_their_own() -> None:
    named = dataclasses.replace(domain("a", 30, TRAIN), silo=("x",) * 20 + ("y",) * 10)
    made = federate(
        Dataset("d", ("0", "1"), {"a": named, "b": domain("b", 9)}), held_out="b", share={"": 0.5}, validation=0
    )
    assert sizes(made) == {"x": 10, "y": 5}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"share": {"a": 0.6}, "silos_per_domain": 2}, "asks for 2 x 48 samples of 'a', which has 80 to train on"),
        ({"share": {"a": 81}}, "asks for 81 samples of 'a', which has 80"),
        ({"share": {"a": 0.001}}, "asks for 0 samples of 'a'"),
        ({"share": {"c": 0.1}}, "data.share names 'c', which is no domain of d"),
        ({"silos_per_domain": {"c": 2}}, "data.silos_per_domain names 'c', which is no domain"),
        ({"share": {"b": 0.1}, "held_out": "b"}, "'b', which is held out"),
        ({"share": {"": 0.1}, "dif": 2}, "leave data.share out"),
        ({"silos_per_domain": {"a": 2}, "dif": 2}, "leave data.silos_per_domain at 1"),
    ],
)
def test_what_cannot_be_had_is_said(given: dict[str, object], words: str) -> None:
    with pytest.raises(FairsiloError, match=words):
        federate(data(a=100, b=100), **{"held_out": "-", **given})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ settings
def test_settings_by_domain_are_texts_or_mappings() -> None:
    text = config.experiment({}, ["data.share=mnist=0.01, svhn=600", "data.silos_per_domain=mnist=3, usps=7"])
    mapping = config.experiment(
        {"data": {"share": {"mnist": 0.01, "svhn": 600}, "silos_per_domain": {"mnist": 3, "usps": 7}}}
    )
    assert text == mapping
    assert text.data.shares == {"mnist": 0.01, "svhn": 600}
    assert text.data.counts == {"mnist": 3, "usps": 7}
    assert hash(text.data) == hash(mapping.data)
    assert config.experiment(config.as_dict(text)) == text
    assert config.experiment({}, ["share=0.1", "silos_per_domain=5"]).data.shares == {"": 0.1}
    assert config.experiment({}, ["silos_per_domain=5"]).data.counts == {"": 5}
    assert config.experiment({"data": {"share": 20}}).data.share == "20"


@pytest.mark.parametrize("text", ["mnist=0", "mnist=1.5", "mnist=0.1, mnist=0.2", "0.1, 0.2", "=3", "mnist=inf", "x"])
def test_bad_shares_are_refused(text: str) -> None:
    with pytest.raises(FairsiloError, match=r"data\.share is "):
        config.experiment({}, [f"data.share={text}"])


@pytest.mark.parametrize("text", ["mnist=0", "mnist=1.5", "a=b"])
def test_bad_counts_are_refused(text: str) -> None:
    with pytest.raises(FairsiloError, match=r"data\.silos_per_domain is "):
        config.experiment({}, [f"data.silos_per_domain={text}"])


def test_a_protocol_sets_what_is_left_at_its_default() -> None:
    made = config.experiment({}, ["protocol=fedheal-digits", "silos_per_domain=2"]).data
    assert (made.held_out, made.silos_per_domain, made.share, made.validation) == ("-", 2, "0.01", 0.0)
    assert config.experiment({}, ["protocol=leaf"]).data.test == 0.1
    assert config.experiment({}, ["protocol=leaf"]).data.validation == pytest.approx(0.1 / 0.9)
    with pytest.raises(FairsiloError, match=r"data\.protocol is 'fedhele'"):
        config.experiment({}, ["protocol=fedhele"])


def test_a_number_of_domains_is_drawn_by_the_seed(tmp_path: Path) -> None:
    names = tuple("abcdef")
    write_packed(sample(names=names), tmp_path)
    chosen = {tuple(load(packed=str(tmp_path), domains=["3"], seed=seed).domains) for seed in range(20)}
    assert len(chosen) > 5
    assert all(len(one) == 3 and set(one) <= set(names) for one in chosen)
    first = load(packed=str(tmp_path), domains=["3"], seed=1)
    assert list(first.domains) == list(load(packed=str(tmp_path), domains=["3"], seed=1).domains)
    assert len(load(packed=str(tmp_path), domains=["6"]).domains) == 6
    with pytest.raises(FairsiloError, match=r"asks for 7 domains, but .* has 6"):
        load(packed=str(tmp_path), domains=["7"])


def test_a_drawn_choice_is_no_order(federation: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = config.experiment({}, ["domains=3", "data.dif=2", "held_out=-"])
    monkeypatch.setattr("fairsilo.runs.setup.load", lambda **given: load_drawn(federation, given["domains"]))
    assert len({silo.domain for silo in federation_of(experiment).silos}) == 3


def load_drawn(dataset: Dataset, domains: tuple[str, ...]) -> Dataset:
    assert domains == ("3",)
    return restrict(dataset, draw(dataset, 3, 0))


def test_leaf_s_protocol_is_80_10_10() -> None:
    leaf = config.experiment({}, ["protocol=leaf"]).data
    made = federate(data(a=1000, b=1000), held_out=leaf.held_out, validation=leaf.validation, test=leaf.test)
    assert [(len(silo.train), len(silo.validation), len(silo.test)) for silo in made.silos] == [(800, 100, 100)] * 2


def test_uneven_silos_of_the_embedded_data(federation: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsilo.runs.setup.load", lambda **_: federation)
    experiment = config.experiment(
        {}, ["held_out=-", "data.share=scan=0.05, photo=0.2", "data.silos_per_domain=scan=4, print=2"]
    )
    made = federation_of(experiment)
    refuse_idle(experiment, made, ["fedavg"])
    found = sizes(made)
    train = int((federation.domains["scan"].split == TRAIN).sum())
    assert {found[f"scan-{i}"] for i in range(1, 5)} == {train // 20}
    assert found["photo"] == train // 5
    assert found["print-1"] + found["print-2"] == train == found["sketch"]
    assert all(len(silo.validation) for silo in made.silos)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("data.fit=crop", "images are not resized"),
        ("data.root=somewhere", "data.name names none of them"),
    ],
)
def test_what_has_no_effect_is_refused(
    setting: str, words: str, federation: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairsilo.runs.setup.load", lambda **_: federation)
    experiment = config.experiment({}, [setting])
    with pytest.raises(FairsiloError, match=words):
        refuse_idle(experiment, federation_of(experiment), ["fedavg"])


def test_a_protocol_s_own_settings_may_be_idle(tmp_path: Path) -> None:
    settled = {name: domain(name, 40, TRAIN) for name in "ab"}
    for one in settled.values():
        one.split[::4] = TEST
    made = federate(Dataset("d", ("0", "1"), settled), held_out="-")
    refuse_idle(config.experiment({"data": {"packed": "p", "protocol": "domainbed-90-10"}}), made, ["fedavg"])
    with pytest.raises(FairsiloError, match=r"data\.test=0\.1 has no effect"):
        refuse_idle(config.experiment({"data": {"packed": "p", "test": 0.1}}), made, ["fedavg"])
