"""The catalogue and the text that names a method."""

from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.errors import FairsiloError
from fairsilo.methods.catalogue import CATALOGUE, ENTRIES, entry
from fairsilo.methods.parts.consistency_mask import ConsistencyMask
from fairsilo.methods.parts.distance_weights import DistanceWeights
from fairsilo.methods.parts.proximal import Proximal
from fairsilo.methods.text import method

PARTS = tuple(dict.fromkeys(part for one in ENTRIES for part in one.parts))


def refused(text: str) -> str:
    with pytest.raises(FairsiloError) as problem:
        method(text)
    return str(problem.value)


# --------------------------------------------------------------------------------------------------------------- texts
def test_a_name_alone_is_the_method_with_its_defaults() -> None:
    assert method("fedprox") == Method((Proximal(),), "fedprox")
    assert method("fedavg") == Method()
    assert method(" fedprox() ").parts == (Proximal(),)


@pytest.mark.parametrize("text", ["fedprox(mu=0.5)", "fedprox( mu = 0.5 )", "fedprox(mu=5e-1)", "fedprox(mu='0.5')"])
def test_settings_stand_in_brackets(text: str) -> None:
    assert method(text).parts == (Proximal(0.5),)


def test_settings_may_be_given_by_name() -> None:
    assert method("fedprox", mu=0.5) == method("fedprox(mu=0.5)")


def test_settings_by_name_do_not_go_with_a_composition() -> None:
    with pytest.raises(FairsiloError, match=r"settings by name go with one method, and 'fedprox \| fedheal'"):
        method("fedprox | fedheal", mu=0.5)


def test_composition_settings_and_ablation_in_one_text() -> None:
    text = "fedprox(mu=0.1) | fedheal(tau=0.4).without(distance-weights)"
    made = method(text)
    assert made.parts == (Proximal(0.1), ConsistencyMask(tau=0.4))
    assert made.name == text


def test_a_setting_goes_to_every_part_that_has_it() -> None:
    mask, weights = method("fedheal(variant=paper, beta=0.2, mask_buffers=true)").parts
    assert mask == ConsistencyMask(variant="paper", mask_buffers=True)
    assert weights == DistanceWeights(beta=0.2, variant="paper")


def test_several_parts_are_left_out() -> None:
    assert method("fedheal.without(distance-weights, consistency-mask)").parts == ()


@pytest.mark.parametrize("text", tiny.ALL)
def test_the_name_of_a_method_is_read_back_as_the_method(text: str) -> None:
    made = method(text)
    assert method(made.name) == made


@pytest.mark.parametrize("text", ["", "fedprox |", "| fedprox", "fedprox(mu=0.1", "fedprox mu=0.1", "fedprox.less(x)"])
def test_a_text_of_another_form_is_refused_with_examples(text: str) -> None:
    assert refused(text).endswith(" is no method; write fedprox, fedprox(mu=0.1) or fedheal.without(consistency-mask)")


def test_a_setting_without_its_name_is_refused() -> None:
    assert refused("fedprox(0.1)") == "'0.1' in 'fedprox(0.1)' is no setting; write key=value"


# ------------------------------------------------------------------------------------------------------------ refusals
def test_an_unknown_method_is_refused_with_the_nearest() -> None:
    assert refused("fedprx") == "unknown method 'fedprx'; did you mean 'fedprox'?"
    assert refused("fedprox | scafold") == "unknown method 'scafold'; did you mean 'scaffold'?"
    assert "; known: " in refused("zzz")


def test_an_unknown_setting_is_refused_with_the_nearest() -> None:
    assert refused("fedheal(varient=paper)") == "fedheal has no setting 'varient'; did you mean 'variant'?"
    assert refused("fedprox(lam=1)") == "fedprox has no setting 'lam'; known: mu"
    assert refused("fedavg(mu=1)") == "fedavg has no setting 'mu'; it has none"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fedprox(mu=-1)", "proximal.mu is -1.0; it must be at least 0"),
        ("fedheal(tau=1.5)", "consistency-mask.tau is 1.5; it must be 0 to 1"),
        ("fael(beta=2)", "distance-weights.beta is 2.0; it must be 0 to 1"),
        ("fphl(variant=mine)", "consistency-mask.variant is 'mine'; it must be one of released, paper"),
        ("scaffold(server_lr=0)", "control-variates.server_lr is 0.0; it must be above 0"),
        ("q-ffl(q=-0.1)", "q-fair.q is -0.1; it must be at least 0"),
        ("ditto(lam=strong)", "personal-model.lam is 'strong'; it must be a number"),
        ("fphl(mask_buffers=1)", "consistency-mask.mask_buffers is 1; it must be true or false"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_the_range(text: str, sentence: str) -> None:
    assert refused(text) == sentence


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_part_checks_its_settings(part: type[Part]) -> None:
    for item in dataclasses.fields(part):
        with pytest.raises(FairsiloError, match=rf"^{part.name}\.{item.name} is \[None\]; it must be"):
            part(**{item.name: [None]})


def test_weights_that_would_have_no_effect_are_refused() -> None:
    for text in ("q-ffl | ga", "ga | q-ffl", "faa | q-ffl", "q-ffl | fael", "afl | term"):
        assert "both decide the aggregation weights" in refused(text)
    for text in ("fedfv | ga", "faa | fedfv"):
        assert "'conflict-projection' combines the updates by its own coefficients" in refused(text)
    for text in ("q-ffl | fphl", "fednova | fedheal"):
        assert "both combine the updates" in refused(text)
    for text in ("fedsam | ditto", "harmofl | elcfs"):
        assert "both own the local loop" in refused(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("harmofl | fedavg-ft", "server-tuning"),
        ("fedmix | harmofl", "mean-mixing"),
        ("harmofl | fedag", "domain-adapters"),
    ],
)
def test_normalised_images_are_refused_where_others_are_fed_as_they_are(text: str, part: str) -> None:
    said = refused(text)
    assert "'amplitude-norm' see images that were normalised at a silo" in said
    assert f"{part!r} would give them images as they are" in said


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("ga | faa", "both decide the aggregation weights"),
        ("fedheal | ga", "both decide the aggregation weights"),
        ("fphl | q-ffl", "both combine the updates"),
    ],
)
def test_methods_that_do_the_same_thing_do_not_compose(text: str, does: str) -> None:
    assert does in refused(text)


def test_the_catalogue_says_that_a_token_of_a_silos_style_may_be_sent() -> None:
    told = {
        one.name: [line for line in one.describe()["sends"] if "textual-inversion token" in line] for one in ENTRIES
    }
    for name in ("fedag", "fedclip-ft", "fedot-ft", "fedavg-ft", "fedprox-ft"):
        assert len(told[name]) == 1
    assert not told["fedclip"]
    assert not told["fedavg"]


@pytest.mark.parametrize("name", [one.name for one in ENTRIES if one.parts])
def test_no_method_composes_with_itself(name: str) -> None:
    assert "is in it twice; name it once" in refused(f"{name} | {name}")


# ----------------------------------------------------------------------------------------------------------- catalogue
def test_names_are_told_apart() -> None:
    assert len(CATALOGUE) == len(ENTRIES)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_method_describes_itself_in_json(name: str) -> None:
    found = json.loads(json.dumps(entry(name).describe()))
    assert found["name"] == name
    assert found["title"]
    assert found["idea"].endswith(".")
    assert found["paper"].rsplit(" ", 1)[-1].isdigit()
    assert found["parts"] == [part.name for part in method(name).parts]
    assert len(found["formulas"]) == len(found["parts"])
    assert found["sends"][0] == "its model and its number of training samples"
    assert found["results_about"] in ("global", "personal")
    for item in found["settings"]:
        assert item["help"], item
        # the default that is described is a value that the method takes
        assert method(f"{name}({item['name']}={item['default']})").parts == method(name).parts


@pytest.mark.parametrize(
    ("name", "individual", "about"),
    [
        ("fedavg", False, "global"),
        ("fedprox", False, "global"),
        ("fedmix", False, "global"),
        ("ditto", False, "personal"),
        ("fedbn", False, "personal"),
        ("scaffold", False, "global"),
        ("feddyn", False, "global"),
        ("fedavgm", False, "global"),
        ("fedadam", False, "global"),
        ("fedyogi", False, "global"),
        ("pfedme", False, "personal"),
        ("fedavg-ft", False, "global"),
        ("fedproto", True, "global"),
        ("fedproto(share_model=false)", True, "personal"),
        ("fedmtl", False, "personal"),
        ("fedmtl(regularizer=true)", True, "personal"),
        ("iop-fl", False, "personal"),
        ("fedfv", True, "global"),
        ("fedag", True, "global"),
        ("q-ffl", True, "global"),
        ("ga", True, "global"),
        ("faa", True, "global"),
        ("fedheal", True, "global"),
    ],
)
def test_who_needs_single_updates_and_whose_models_are_meant(name: str, individual: bool, about: str) -> None:
    made = method(name)
    assert (made.individual_updates, made.results) == (individual, about)


def test_one_personal_part_makes_a_composition_personal() -> None:
    assert method("fedheal | ditto").results == "personal"
    assert method("fedbn | faa").individual_updates


@pytest.mark.parametrize("text", tiny.ALL)
def test_every_method_survives_pickling(text: str) -> None:
    made = method(text)
    for hook in ("weights", "loss", "begin"):
        made.hooks(hook)
    back = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
    assert back == made
    for hook in ("weights", "loss", "begin", "combine", "train"):
        assert [found.__qualname__ for found in back.hooks(hook)] == [found.__qualname__ for found in made.hooks(hook)]


def test_without_may_be_chained_and_a_setting_given_once() -> None:
    assert method("fedheal.without(consistency-mask).without(distance-weights)").parts == ()
    with pytest.raises(FairsiloError, match="mu is given twice"):
        method("fedprox(mu=0.1, mu=0.2)")
    with pytest.raises(FairsiloError, match="must be a number"):
        method("fedprox(mu=nan)")


@pytest.mark.slow
def test_a_part_of_a_script_is_run_as_it_is(tmp_path: Path) -> None:
    """It has no name elsewhere, so that it is given again to resume and load; that is no reason to refuse it."""
    script = tmp_path / "mine.py"
    script.write_text(
        "import fairsilo, torch\n"
        "class Mine(fairsilo.Part):\n"
        "    name = 'mine'\n"
        "split = fairsilo.Split(torch.rand(12, 1, 8, 8), torch.arange(12) % 2)\n"
        "silos = tuple(fairsilo.SiloData(name, name, split, split, split) for name in 'ab')\n"
        "people = fairsilo.Federation('toy', ('no', 'yes'), silos)\n"
        "made = dict(federation=people, method=Mine(), rounds=1, epochs=1, engine={'name': 'sequential'})\n"
        "print(fairsilo.run(out='run', **made).method)\n"
        "print(fairsilo.load('run', method=Mine()).silos)\n"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.splitlines()[-1:]) == ("", ["('a', 'b')"])
