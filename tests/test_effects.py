"""A setting that was given and can have no effect is refused, by one table of rules."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import fairsilo
import tiny
from fairsilo import config
from fairsilo.config import Experiment
from fairsilo.core.samples import SiloData, Split
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset, Domain
from fairsilo.data.federation import Federation, federate
from fairsilo.errors import FairsiloError
from fairsilo.reproduction.tables import FOLDER
from fairsilo.runs import compare
from fairsilo.runs.comparison import read_comparison_file
from fairsilo.runs.effects import RULES, refuse_idle
from fairsilo.runs.setup import Objects, federation_of
from other_tasks import GROUNDS

PEOPLE = tiny.federation()
FLAT = Federation(
    "flat",
    ("0",),
    (SiloData("a", "a", *[Split(torch.zeros(2, 5), torch.zeros(2, dtype=torch.long)) for _ in range(3)]),),
)
NUMBERS = dataclasses.replace(
    FLAT,
    classes=(),
    task="regress",
    silos=(SiloData("a", "a", *[Split(torch.zeros(2, 5), torch.zeros(2)) for _ in range(3)]),),
)
MASKS = GROUNDS["segment"].federation()
SETTLED = dataclasses.replace(PEOPLE, settled=("data.test", "data.validation"))
UNNAMED = dataclasses.replace(PEOPLE, settled=("data.split",))
PACKED = "data.packed=somewhere"

# what is refused, with the words that say why; and where the same setting does have an effect
CASES: list[tuple[str, dict[str, Any], list[str], str, dict[str, Any], list[str]]] = [
    ("data.test=0.5", {"federation": SETTLED}, [], "the data name their own test samples", {}, []),
    ("data.split=random", {"federation": UNNAMED}, [], "the data name no splits", {}, []),
    ("data.split=order", {"by_hand": True}, [], "given as a Python object", {}, []),
    ("data.validation=0", {"federation": SETTLED}, [], "the data name their own validation samples", {}, []),
    ("data.validation=0.3", {"by_hand": True}, [], "given as a Python object", {}, []),
    ("data.size=32", {"by_hand": True}, [], "given as a Python object", {}, []),
    ("data.domains=a,b", {"by_hand": True}, [], "given as a Python object", {}, []),
    ("data.silos_per_domain=2", {"by_hand": True}, [], "given as a Python object", {}, []),
    ("data.share=0.5", {"by_hand": True}, [], "given as a Python object", {}, []),
    ("data.protocol=leaf", {"by_hand": True}, [], "given as a Python object", {}, []),
    ("data.fit=crop", {}, [PACKED], "images are not resized", {}, [PACKED, "data.size=8"]),
    ("data.fit=pad", {}, ["data.size=32"], "drawn in that size", {}, ["data=pacs", "data.size=32"]),
    ("data.root=x", {}, [PACKED], "data.name names none", {}, ["data=digit-five"]),
    ("data.seed=3", {"federation": SETTLED}, [PACKED], "not rendered, split or divided at random", {}, [PACKED]),
    ("data.seed=3", {"by_hand": True}, [], "not rendered", {"federation": SETTLED}, []),  # glyphs are rendered
    ("data.seed=3", {"federation": SETTLED}, [PACKED], "not rendered", {}, [PACKED, "data.silos_per_domain=2"]),
    ("data.seed=3", {"federation": SETTLED}, [PACKED], "not rendered", {}, [PACKED, "data.share=0.5"]),
    ("data.seed=3", {"by_hand": True}, [], "not rendered", {"by_hand": True}, ["data.synthetic=glyphs"]),
    ("data.augment=flip", {"federation": FLAT}, [], "no images", {}, []),
    ("data.synthetic_share=0.5", {}, [], "names no generator", {}, ["data.synthetic=folder:x"]),
    ("data.synthetic_bad=0.5", {}, [], "names no generator", {}, ["data.synthetic=glyphs"]),
    ("data.synthetic_bad=0.5", {}, ["data.synthetic=folder:x"], "only images that", {}, ["data.synthetic=glyphs"]),
    ("train.balance=true", {"federation": NUMBERS}, [], "no classes that samples are drawn by", {}, []),
    ("evaluate.examples=false", {}, [], "the task has none", {"federation": MASKS}, []),
    ("train.sampling=size", {}, [], "every silo takes part", {}, ["participation=0.5"]),
    ("train.sampling=size", {}, ["participation=3"], "every silo takes part", {}, ["participation=2"]),
    ("train.momentum=0.5", {}, ["optimizer=adam"], "it is of train.optimizer=sgd", {}, []),
    ("train.adam_beta2=0.9", {}, [], "of train.optimizer=adam", {}, ["optimizer=adamw"]),
    ("train.adam_eps=0.1", {}, [], "of train.optimizer=adam", {}, ["optimizer=adam"]),
    ("train.keep_optimizer_state=true", {}, ["momentum=0"], "no state", {}, ["momentum=0.1"]),
    ("engine.timeout=5", {}, ["engine.name=sequential"], "run in this process", {}, []),
    ("engine.workers=2", {}, ["engine.device=cuda"], "run in this process", {}, ["engine.name=processes"]),
    ("engine.features_limit=1", {}, [], "no pretrained backbone", {}, ["model=tiny-clip"]),
    ("engine.features_limit=1", {}, ["model=tiny-clip", "keep_features=false"], "is off", {}, ["model=tiny-vit"]),
    ("engine.keep_features=false", {}, ["model=resnet-10"], "no pretrained backbone", {}, ["model=mine:network"]),
    ("engine.lanes=2", {}, [], "only the engine lanes has them", {}, ["engine.device=cuda"]),
    ("engine.deterministic=true", {}, [], "the same numbers every time", {}, ["engine.device=cuda"]),
    ("engine.recurrence=layers", {}, [], "is for GPUs", {}, ["engine.device=cuda"]),
    ("engine.fused=true", {}, [], "is for GPUs", {}, ["engine.device=cuda"]),
    (
        "engine.fused=true",
        {},
        ["engine.device=cuda", "engine.channels_last=true"],
        "without channels_last",
        {},
        ["engine.device=cuda"],
    ),
    (
        "engine.recurrence=layers",
        {},
        ["engine.device=cuda", "engine.precision=bfloat16"],
        "for float32 and tf32",
        {},
        ["engine.device=cuda", "engine.precision=tf32"],
    ),
    ("engine.onednn=false", {}, ["engine.device=cuda"], "is for CPUs", {}, []),
    ("engine.convolutions=matrices", {}, ["engine.device=cuda"], "is for CPUs", {}, []),
]


def judge(settings: list[str], federation: Any = PEOPLE, methods: Any = ("fedavg",), **more: Any) -> None:
    refuse_idle(config.experiment({"method": "fedavg"}, settings), federation, methods, **more)


@pytest.mark.parametrize(("key", "where", "settings", "why", "elsewhere", "others"), CASES)
def test_a_setting_without_effect_is_refused_and_one_with_effect_is_not(
    key: str, where: dict[str, Any], settings: list[str], why: str, elsewhere: dict[str, Any], others: list[str]
) -> None:
    with pytest.raises(FairsiloError) as refusal:
        judge([*settings, key], **where)
    text = str(refusal.value)
    assert text.startswith(f"{key} has no effect here: ")
    assert why in text
    judge([*others, key], **elsewhere)
    judge(settings, **where)  # left at its default, it disturbs nobody


def test_every_rule_and_setting_has_a_case() -> None:
    tried = {key.partition("=")[0] for key, *_ in CASES}
    assert {name for rule in RULES for name in rule.settings} - tried == {"data.folder", "data.packed", "data.dif"}
    known = {item["name"] for item in config.all_settings()}
    assert all(name in known for rule in RULES for name in rule.settings)


def test_one_method_with_a_backbone_is_enough_in_a_comparison() -> None:
    judge(["engine.features_limit=1"], methods=("fedavg", "fedclip"))
    with pytest.raises(FairsiloError, match="no pretrained backbone"):
        judge(["engine.features_limit=1"], methods=("fedavg", "faa"))


def test_a_saved_configuration_says_no_more_than_the_user_did() -> None:
    """It holds every setting, also those that have no effect at their defaults."""
    saved = config.as_dict(config.experiment({"method": "fedavg", "optimizer": "adam"}))
    refuse_idle(config.experiment(saved), SETTLED, ["fedavg"], by_hand=True)


# ----------------------------------------------------------------------------------------- what the data themselves say
def domain(name: str, split: list[int], group: list[int] | None = None) -> Domain:
    count = len(split)
    tied = None if group is None else torch.tensor(group)
    inputs = torch.zeros(count, 1, 8, 8, dtype=torch.uint8)
    return Domain(name, inputs, torch.zeros(count, dtype=torch.long), torch.tensor(split, dtype=torch.int8), tied)


ALL_THREE = [TRAIN, VALIDATION, TEST]


@pytest.mark.parametrize(
    ("domains", "settled"),
    [
        ([domain("a", ALL_THREE)], ("data.test", "data.validation")),
        ([domain("a", [TRAIN, TRAIN, TEST])], ("data.test",)),  # validation is carved from training samples
        ([domain("a", [TRAIN, TRAIN])], ("data.test",)),  # all decided: nobody is tested
        ([domain("a", [UNDECIDED] * 3)], ()),
        ([domain("a", [UNDECIDED, UNDECIDED, VALIDATION])], ("data.validation",)),
        ([domain("a", ALL_THREE), domain("b", [UNDECIDED] * 3)], ()),  # the setting is about b
        ([domain("a", [TRAIN, UNDECIDED], [1, 1])], ("data.test",)),  # its group decides
    ],
)
def test_shares_are_settled_where_every_training_domain_names_its_samples(
    domains: list[Domain], settled: tuple[str, ...]
) -> None:
    held_out = domain("z", [UNDECIDED] * 2)
    found = Dataset("d", ("0",), {one.name: one for one in (*domains, held_out)})
    assert federate(found).settled == settled


@pytest.mark.slow
def test_glyphs_refuse_shares_before_anything_is_written(tmp_path: Path) -> None:
    for setting in ({"test": 0.9}, {"validation": 0}):
        with pytest.raises(FairsiloError, match="has no effect here: the data name their own"):
            fairsilo.run(method="fedavg", out=tmp_path / "run", **setting)
    with pytest.raises(FairsiloError, match=r"data\.validation=0 has no effect here"):
        fairsilo.compare(["fedavg", "fedprox"], out=tmp_path / "run", validation=0)
    assert not (tmp_path / "run").exists()


def test_the_projects_own_experiments_hold_to_the_rules() -> None:
    files = sorted(FOLDER.glob("*/*.yaml"))
    assert files
    for file in files:
        found = read_comparison_file(file)
        asked: Experiment = found.experiment
        settled = SETTLED if "glyphs" in file.stem else PEOPLE  # the others are told on the command line where data are
        if "shakespeare" in file.stem:  # of whose many roles some take part in a round
            one = PEOPLE.silos[0]
            silos = [dataclasses.replace(one, name=f"role {number}") for number in range(31)]
            settled = Federation("roles", PEOPLE.classes, silos, [])
        refuse_idle(asked, settled, found.methods)


# ------------------------------------------------------------------------------------------------------ naming domains
THREE = Dataset("d", ("0",), {name: domain(name, ALL_THREE) for name in ("north", "south", "east, far")})


@pytest.mark.parametrize("text", ["north,south", "north+south", " north , south ", "north,south,north"])
def test_several_domains_are_held_out_by_commas_as_by_plus(text: str) -> None:
    assert federate(THREE, held_out=text).unseen_names == ("north", "south")


def test_a_name_with_a_comma_is_still_a_name() -> None:
    assert federate(THREE, held_out="east, far").unseen_names == ("east, far",)


def test_an_unknown_domain_among_several_is_named_with_the_nearest() -> None:
    with pytest.raises(FairsiloError, match=r"data\.held_out is 'soth', which is no domain of d; did you mean 'south'"):
        federate(THREE, held_out="north,soth")


def test_unknown_domains_are_named_with_the_nearest() -> None:
    with pytest.raises(FairsiloError, match=r"Domain 'skech' is not in .*did you mean 'sketch'"):
        federation_of(config.experiment({}, ["domains=scan,skech"]))


def test_in_a_comparison_commas_separate_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "dataset_of", lambda _: THREE)
    base = config.experiment({"method": "fedavg"}, ["held_out=north,south"])
    assert compare.domains_of(base, "north,south", None, Objects()) == ["north", "south"]
    assert compare.domains_of(base, "north+south", None, Objects()) == ["north+south"]
    assert compare.domains_of(base, None, None, Objects()) == ["north,south"]  # one federation without both
