"""Settings: where they come from, which win, what is refused and in which words."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairsilo.config import (
    DataSettings,
    EngineSettings,
    EvaluateSettings,
    Experiment,
    TrainSettings,
    all_settings,
    as_dict,
    experiment,
    known_keys,
    read_yaml,
)
from fairsilo.errors import FairsiloError
from fairsilo.fields import range_text
from fairsilo.protocols import participation_rule


def refused(*overrides: str, **settings: Any) -> str:
    """The sentence with which settings are refused."""
    with pytest.raises(FairsiloError) as problem:
        experiment(settings, overrides)
    return str(problem.value)


# ---------------------------------------------------------------------------------------------------------------- keys
@pytest.mark.parametrize(
    "settings", [{"train": {"rounds": 7}}, {"train.rounds": 7}, {"rounds": 7}], ids=["nested", "dotted", "leaf"]
)
def test_a_key_may_be_nested_dotted_or_its_last_word(settings: dict[str, Any]) -> None:
    assert experiment(settings).train.rounds == 7


def test_overrides_win_over_settings_and_the_later_over_the_earlier() -> None:
    made = experiment({"train": {"rounds": 7, "lr": 0.5}}, ["rounds=8", "train.rounds = 9"])
    assert (made.train.rounds, made.train.lr) == (9, 0.5)


def test_an_ambiguous_last_word_is_refused_and_its_dotted_keys_work() -> None:
    assert "name" not in known_keys()
    assert refused("name=glyphs").startswith("unknown setting 'name'")
    made = experiment({}, ["data.name=glyphs", "engine.name=sequential"])
    assert (made.data.name, made.engine.name) == ("glyphs", "sequential")


def test_the_top_level_seed_is_not_the_seed_of_the_data() -> None:
    made = experiment({"seed": 3, "data": {"seed": 4}})
    assert (made.seed, made.data.seed) == (3, 4)


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"roundz": 1}, "unknown setting 'roundz'; did you mean 'rounds'?"),
        ({"train": {"epoch": 1}}, "unknown setting 'train.epoch'; did you mean 'train.epochs'?"),
        ({"data.foldr": "x"}, "unknown setting 'data.foldr'; did you mean 'data.folder'?"),
        ({"evaluate.held_out": "x"}, "unknown setting 'evaluate.held_out'; did you mean 'data.held_out'?"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(settings: dict[str, Any], hint: str) -> None:
    assert refused(**settings) == hint


def test_a_key_near_to_none_is_answered_with_where_settings_are_listed() -> None:
    assert refused("clusters=5") == "unknown setting 'clusters'; `fairsilo settings` lists what there is"


def test_all_settings_are_listed_once_with_a_help_and_their_own_default() -> None:
    listed = all_settings()
    names = [one["name"] for one in listed]
    assert len(names) == len(set(names))
    assert set(names) == set(known_keys().values())
    assert all(one["help"] for one in listed)
    rounds = next(one for one in listed if one["name"] == "train.rounds")
    assert rounds == {"name": "train.rounds", "default": 6, "range": "at least 1", "search": "", "help": "rounds"}


def test_an_override_without_an_equals_sign_is_no_setting() -> None:
    assert refused("rounds") == "'rounds' is no setting; settings are written key=value, such as rounds=20"


def test_a_group_must_be_a_group() -> None:
    assert refused(train=5) == "train is 5; it must be a group of settings such as train: {...}"


def test_data_may_be_the_name_of_an_embedded_federation() -> None:
    assert experiment({"data": "glyphs"}).data.name == "glyphs"


# --------------------------------------------------------------------------------------------------------------- types
@pytest.mark.parametrize(("written", "read"), [("1e-3", 0.001), ("2", 2.0), ("0.25", 0.25), ("5.0e-1", 0.5)])
def test_numbers_are_read_however_they_are_written(written: str, read: float) -> None:
    found = experiment({}, [f"lr={written}"]).train.lr
    assert found == read
    assert isinstance(found, float)


def test_a_whole_float_is_a_whole_number_and_a_broken_one_is_not() -> None:
    found = experiment({"rounds": 20.0}).train.rounds
    assert found == 20
    assert isinstance(found, int)
    assert refused(rounds=2.5) == "train.rounds is 2.5; it must be a whole number"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("rounds=true", "train.rounds is True; it must be a whole number"),
        ("lr=true", "train.lr is True; it must be a number"),
        ("lr=fast", "train.lr is 'fast'; it must be a number"),
        ("lr=[1]", "train.lr is [1]; it must be a number"),
        ("strict=1", "engine.strict is 1; it must be true or false"),
        ("strict=maybe", "engine.strict is 'maybe'; it must be true or false"),
        ("rounds=", "train.rounds is None; it must be a whole number"),
        ("workers=two", "engine.workers is 'two'; it must be a whole number or nothing"),
        ("clip=big", "train.clip is 'big'; it must be a number or nothing"),
    ],
)
def test_a_value_of_another_type_is_refused_in_words(override: str, sentence: str) -> None:
    assert refused(override) == sentence


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    assert refused(lr=value) == f"train.lr is {value}; it must be a number"
    assert refused(rounds=value) == f"train.rounds is {value}; it must be a whole number"


@pytest.mark.parametrize(("text", "value"), [("true", True), ("yes", True), ("false", False), ("off", False)])
def test_yes_and_no_as_yaml_reads_them(text: str, value: bool) -> None:
    assert experiment({}, [f"keep_optimizer_state={text}"]).train.keep_optimizer_state is value


def test_an_empty_value_is_nothing_where_nothing_is_allowed() -> None:
    made = experiment({"workers": 3, "clip": 1.0}, ["workers=", "clip=null"])
    assert made.engine.workers is None
    assert made.train.clip is None


def test_a_list_becomes_a_tuple_so_that_settings_stay_hashable() -> None:
    made = experiment({}, ["domains=[ink, chalk]"])
    assert made.data.domains == ("ink", "chalk")
    assert hash(made) == hash(experiment({"data": {"domains": ["ink", "chalk"]}}))


def test_a_numeric_text_setting_is_kept_as_text() -> None:
    assert experiment({}, ["participation=0.5"]).train.participation == "0.5"
    assert experiment({"data": {"held_out": 2020}}).data.held_out == "2020"


# -------------------------------------------------------------------------------------------------------------- ranges
@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seed=-1", "seed is -1; it must be at least 0"),
        ("size=7", "data.size is 7; it must be 8 to 4096"),
        ("size=4097", "data.size is 4097; it must be 8 to 4096"),
        ("silos_per_domain=0", "data.silos_per_domain is 0; it must be at least 1"),
        ("validation=0.95", "data.validation is 0.95; it must be 0 to 0.9"),
        ("test=-0.1", "data.test is -0.1; it must be 0 to 0.9"),
        ("rounds=0", "train.rounds is 0; it must be at least 1"),
        ("epochs=0", "train.epochs is 0; it must be at least 1"),
        ("train.batch_size=0", "train.batch_size is 0; it must be at least 1"),
        ("optimizer=lion", "train.optimizer is 'lion'; it must be one of sgd, adam, adamw"),
        ("lr=0", "train.lr is 0.0; it must be above 0"),
        ("lr_schedule=linear", "train.lr_schedule is 'linear'; it must be one of constant, cosine, step"),
        ("momentum=1.1", "train.momentum is 1.1; it must be 0 to 1"),
        ("weight_decay=-1", "train.weight_decay is -1.0; it must be at least 0"),
        ("clip=0", "train.clip is 0.0; it must be above 0"),
        ("weighting=fair", "train.weighting is 'fair'; it must be one of auto, samples, uniform"),
        ("sampling=loss", "train.sampling is 'loss'; it must be one of uniform, size"),
        ("quorum=1.5", "train.quorum is 1.5; it must be 0 to 1"),
        ("every=0", "evaluate.every is 0; it must be at least 1"),
        ("selection=best", "evaluate.selection is 'best'; it must be one of last, last5, source-validation, oracle"),
        ("ddof=2", "evaluate.ddof is 2; it must be 0 to 1"),
        ("engine.name=ray", "engine.name is 'ray'; it must be one of auto, sequential, processes, lanes"),
        ("workers=0", "engine.workers is 0; it must be at least 1"),
        ("threads=0", "engine.threads is 0; it must be at least 1"),
        ("device=tpu", "engine.device is 'tpu'; it must be one of auto, cpu, cuda"),
        ("checkpoint_every=0", "engine.checkpoint_every is 0; it must be at least 1"),
    ],
)
def test_a_value_outside_its_range_is_refused_with_the_range(override: str, sentence: str) -> None:
    assert refused(override) == sentence


@pytest.mark.parametrize("override", ["momentum=0", "momentum=1", "quorum=0", "validation=0.9", "size=8", "ddof=1"])
def test_closed_bounds_belong_to_the_range(override: str) -> None:
    experiment({}, [override])


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"low": 0.0, "high": 1.0}, "0 to 1"),
        ({"low": 0.0, "high": 1.0, "open_low": True}, "above 0 and at most 1"),
        ({"low": 0.5}, "at least 0.5"),
        ({"low": 0.5, "open_low": True}, "above 0.5"),
        ({"high": 9}, "at most 9"),
        ({"choices": ("a", "b")}, "one of a, b"),
        ({}, ""),
    ],
)
def test_ranges_in_words(metadata: dict[str, Any], words: str) -> None:
    assert range_text(metadata) == words


def test_every_setting_has_a_help_text() -> None:
    for group in (Experiment, DataSettings, TrainSettings, EvaluateSettings, EngineSettings):
        for item in dataclasses.fields(group):
            if item.default is not dataclasses.MISSING:
                assert item.metadata["help"], item.name


# ------------------------------------------------------------------------------------------------------- participation
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("all", ("all", 1.0)),
        ("0.5", ("fraction", 0.5)),
        ("1.0", ("fraction", 1.0)),
        ("1", ("count", 1.0)),
        ("10", ("count", 10.0)),
    ],
)
def test_participation_is_all_a_share_or_a_count(text: str, rule: tuple[str, float]) -> None:
    assert participation_rule(text) == rule


@pytest.mark.parametrize("text", ["0", "0.0", "1.5", "2.0", "-1", "-0.5", "some", "", "nan"])
def test_any_other_participation_is_refused(text: str) -> None:
    with pytest.raises(FairsiloError, match=r"^train\.participation is .*'all', a share such as 0\.5 or a count"):
        participation_rule(text)


def test_participation_is_checked_when_the_experiment_is_made() -> None:
    assert refused("participation=1.5").startswith("train.participation is '1.5'")


# --------------------------------------------------------------------------------------------------- whole experiments
@pytest.mark.parametrize(
    ("settings", "pair"),
    [
        ({}, ("faa", "fedavg")),
        ({"rounds": 2}, ("faa", "fedavg")),
        ({"method": "fedprox"}, ("fedprox", None)),
        ({"method": "faa"}, ("faa", None)),
        ({"method": "faa", "baseline": "ga"}, ("faa", "ga")),
        ({"baseline": "ga"}, ("faa", "ga")),
        ({"baseline": None}, ("faa", None)),
    ],
)
def test_a_baseline_is_added_only_where_no_method_is_named(settings: dict[str, Any], pair: tuple[str, Any]) -> None:
    made = experiment(settings)
    assert (made.method, made.baseline) == pair


def test_a_method_named_in_an_override_gets_no_baseline_either() -> None:
    made = experiment({}, ["method=fedprox(mu=0.1) | fedheal"])
    assert (made.method, made.baseline) == ("fedprox(mu=0.1) | fedheal", None)


def test_the_embedded_data_are_used_only_where_no_source_is_given() -> None:
    assert experiment().data.name == "glyphs"
    assert experiment({"folder": "images"}).data.name is None
    assert experiment({"packed": "arrays"}).data.name is None


@pytest.mark.parametrize(
    ("changed", "rates"),
    [
        ({}, [2.0] * 5),
        ({"lr_warmup": 2}, [0.02, 0.02, 2.0, 2.0, 2.0]),
        ({"lr_schedule": "step"}, [2.0, 2.0, 2.0, 2.0, 0.2]),
        ({"lr_schedule": "cosine", "lr_warmup": 1}, [0.02, 2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)]),
    ],
)
def test_the_learning_rate_of_every_round(changed: dict[str, Any], rates: list[float]) -> None:
    training = TrainSettings(rounds=5, lr=2.0, **changed)
    found = [training.at(number) for number in range(1, 6)]
    assert [one.lr for one in found] == pytest.approx(rates)
    assert training.at(0) == found[0]
    assert all(dataclasses.replace(one, lr=2.0) == training for one in found)


@pytest.mark.parametrize(("rounds", "kept"), [(1, 1), (2, 1), (4, 3), (5, 4), (6, 4), (40, 32)])
def test_the_step_comes_after_four_fifths_of_the_rounds(rounds: int, kept: int) -> None:
    training = TrainSettings(rounds=rounds, lr=1.0, lr_schedule="step")
    assert [training.at(number + 1).lr for number in range(rounds)] == [1.0] * kept + [0.1] * (rounds - kept)


def test_a_warm_up_as_long_as_the_run_is_refused() -> None:
    said = refused("rounds=3", "lr_warmup=3")
    assert said == "train.lr_warmup is 3 and train.rounds 3; some rounds must come after the warm-up"


@pytest.mark.parametrize(
    ("text", "domains"),
    [
        ("photo", ("photo",)),
        ("scan, photo,", ("scan", "photo")),
        ("[scan, 1]", ("scan", "1")),
        ("none", None),
        ("", None),
    ],
)
def test_domains_are_listed_by_commas_or_as_yaml(text: str, domains: tuple[str, ...] | None) -> None:
    assert experiment({}, [f"domains={text}"]).data.domains == domains


def test_two_sources_of_data_are_refused() -> None:
    assert refused(folder="a", packed="b") == "data.folder and data.packed are both given; give one source of data"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "fedprox(mu=0.1) | fedheal", "seed": 5},
        {"folder": "images", "domains": ["a", "b"], "held_out": "a+b", "size": 32, "augment": "crop+flip"},
        {"method": "ga", "lr": "1e-3", "clip": 1, "participation": 10, "timeout": 5, "workers": 2, "strict": True},
        {"baseline": None, "data": {"held_out": None}},
    ],
)
def test_as_dict_is_read_back_as_the_same_experiment(settings: dict[str, Any]) -> None:
    made = experiment(settings)
    assert experiment(as_dict(made)) == made


def test_a_saved_yaml_file_is_read_back_as_the_same_experiment(tmp_path: Path) -> None:
    import yaml

    made = experiment({"folder": "images", "held_out": "-", "domains": ["on", "1"], "lr": 1e-05})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(as_dict(made)))
    assert experiment(read_yaml(path)) == made


# --------------------------------------------------------------------------------------------------------------- files
def test_yaml_with_nested_dotted_and_leaf_keys(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("method: fedprox(mu=0.1)\ntrain:\n  rounds: 4\n  lr: 1e-3\ndata.silos_per_domain: 2\nepochs: 3\n")
    made = experiment(read_yaml(path), ["rounds=6"])
    assert (made.train.rounds, made.train.epochs, made.train.lr) == (6, 3, 0.001)
    assert (made.method, made.data.silos_per_domain) == ("fedprox(mu=0.1)", 2)


def test_an_empty_file_holds_no_settings(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("# nothing yet\n")
    assert read_yaml(path) == {}


def test_bad_yaml_is_refused_in_one_line_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("rounds: [1, 2\nlr: 3\n")
    with pytest.raises(FairsiloError, match=r"bad\.yaml is not valid YAML: .*line 2") as problem:
        read_yaml(path)
    assert "\n" not in str(problem.value)


def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text("- rounds\n- lr\n")
    with pytest.raises(FairsiloError, match=r"must hold settings such as 'rounds: 20', not list"):
        read_yaml(path)


def test_a_missing_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match=r"cannot read the configuration .*nowhere\.yaml: No such file"):
        read_yaml(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("module", ["fairsilo", "fairsilo.config", "fairsilo.cli"])
def test_importing_the_settings_and_the_command_line_does_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("text", ["lr=nan", "lr=inf", "clip=nan", "participation=inf", "participation=-1"])
def test_not_a_number_in_words_is_refused_too(text: str) -> None:
    with pytest.raises(FairsiloError, match="must be"):
        experiment({}, [text])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("held_out=-", "-"),
        ("held_out=010", "010"),
        ("held_out=no", "no"),
        ("folder=2024-01-01", "2024-01-01"),
        ("folder=a: b", "a: b"),
        ("domains=[1, 2]", ("1", "2")),
        ("data=glyphs", "glyphs"),
    ],
)
def test_texts_are_taken_as_they_stand(text: str, value: object) -> None:
    key = {"data": "name"}.get(text.split("=")[0], text.split("=")[0])
    assert getattr(experiment({}, [text]).data, key) == value


def test_small_shares_empty_groups_and_no_baseline() -> None:
    assert experiment({"participation": 0.00001}).train.participation == "1e-05"
    assert experiment({"train": None}) == experiment()
    assert experiment({}, ["baseline=none"]).baseline is None
