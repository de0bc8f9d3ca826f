"""`fairsilo check`: a sound method of a stranger's passes, and each broken one fails by the law that it breaks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from fairsilo.cli import app
from fairsilo.config import fields_of
from fairsilo.core.attachments import EACH_UPDATE, Sends
from fairsilo.core.messages import Message
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.core.silo import Silo
from fairsilo.errors import FairsiloError
from fairsilo.fields import setting
from fairsilo.laws import check as laws
from fairsilo.laws.check import FAILED, NOT_APPLICABLE, PASSED, Finding, check
from fairsilo.laws.settings import other_values
from fairsilo.methods.text import method

LAWS = {law.name: law for law in laws.LAWS}


@dataclass(frozen=True)
class Sound(Part):
    """Gradients shrink with the rounds a silo took part in; silos with a large loss count more."""

    name = "sound"
    about = About(sends=(EACH_UPDATE, Sends("sound.length", "how far its model moved", dtype="float")))

    rate: float = setting(0.5, "how fast gradients shrink", low=0, high=1)
    by_loss: bool = setting(True, "weights by the silos' losses")

    def gradients(self, silo: Silo) -> None:
        silo.model.gradients.mul_(self.rate ** silo.memory.of(self).get("rounds", 0))

    def finish(self, silo: Silo, update: Message) -> None:
        memory = silo.memory.of(self)
        memory["rounds"] = memory.get("rounds", 0) + 1
        update.numbers["sound.length"] = float((silo.parameters - silo.start_parameters).detach().norm())

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        if not self.by_loss:
            return weights
        weights = weights * updates.numbers("loss") * updates.numbers("sound.length")
        return weights / weights.sum()


class Counting(Part):
    """Keeps state on the object: a resumed run and a worker process have another one."""

    name = "counting"

    def gradients(self, silo: Silo) -> None:
        steps = self.__dict__.get("steps", 0) + 1
        object.__setattr__(self, "steps", steps)
        silo.model.gradients.div_(steps)


class Restless(Part):
    """Draws from the global state, with the time as its seed."""

    name = "restless"

    def gradients(self, silo: Silo) -> None:
        torch.manual_seed(time.time_ns() % 2**40)
        silo.model.gradients.mul_(torch.rand(()))


class Smuggling(Part):
    """Attaches something that it does not declare."""

    name = "smuggling"

    def finish(self, silo: Silo, update: Message) -> None:
        update.numbers["smuggling.share"] = 0.5


class Promising(Part):
    """Declares something that no silo is ever asked for."""

    name = "promising"
    about = About(sends=(Sends("promising.mean", "a mean", shape=("channels",), exchange="share"),))

    def gradients(self, silo: Silo) -> None:
        silo.model.gradients.mul_(0.5)


class Idle(Part):
    """Does nothing."""

    name = "idle"

    def loss(self, silo: Silo, loss: Tensor, *_: Any) -> Tensor:
        return loss + 0.0


class Stamping(Part):
    """Changes what it remembers in place."""

    name = "stamping"

    def finish(self, silo: Silo, update: Message) -> None:
        silo.memory.of(self).setdefault("count", torch.zeros(1)).add_(1)

    def gradients(self, silo: Silo) -> None:
        silo.model.gradients.mul_(0.5)


class Leaking(Part):
    """A list that all silos share: what one leaves there reaches the next."""

    name = "leaking"
    last: list[float] = []  # noqa: RUF012 - the fault that is looked for

    def begin(self, silo: Silo) -> None:
        self.last.append(float(len(silo.data.train)))

    def gradients(self, silo: Silo) -> None:
        silo.model.gradients.mul_(1 / (1 + sum(self.last) / 100))


@dataclass(frozen=True)
class Deaf(Part):
    """Has a setting that it never reads."""

    name = "deaf"
    loudness: float = setting(0.5, "of nothing", low=0)

    def gradients(self, silo: Silo) -> None:
        silo.model.gradients.mul_(0.5)


class Still(Part):
    """Trains nothing, and does not say so."""

    name = "still"

    def gradients(self, silo: Silo) -> None:
        silo.model.gradients.zero_()
        silo.model.parameters.data.copy_(silo.start_parameters)

    def finish(self, silo: Silo, update: Message) -> None:
        silo.model.load(silo.start)


class Fragile(Part):
    """Its silos raise where they have few samples."""

    name = "fragile"

    def begin(self, silo: Silo) -> None:
        if silo.name == "b":
            raise ValueError("not here")


class Crowded(Part):
    """Counts on all silos at the server."""

    name = "crowded"
    about = About(sends=(EACH_UPDATE,))

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        return weights * torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64)


def tried(how: Any, *names: str) -> dict[str, Finding]:
    """What came of some laws."""

    def chosen() -> Iterator[Finding]:
        whole = laws.LAWS
        laws.LAWS = tuple(LAWS[name] for name in names) or whole
        try:
            yield from check(how)
        finally:
            laws.LAWS = whole

    return {finding.law: finding for finding in chosen()}


@pytest.mark.slow
def test_a_strangers_sound_part_passes_by_name_and_by_value() -> None:
    found = tried("test_check:Sound")
    assert {name: one.detail for name, one in found.items() if one.status != PASSED} == {}
    assert list(found) == list(LAWS)
    assert {one.status for one in tried(Sound(rate=0.2), "seed", "settings", "order").values()} == {PASSED}


@pytest.mark.parametrize(
    ("part", "law", "words"),
    [
        (Counting, "resume", "was cut at the stage 'start' of round 2 and resumed|state belongs into silo.memory"),
        (Counting, "order", "depend on the order in which silos are served"),
        (Restless, "seed", "two runs with the same seed differ"),
        (Smuggling, "declared", "malformed: sent 'smuggling.share', which is not declared"),
        (Promising, "declared", "no silo sent 'promising.mean', which is declared for the exchange 'share'"),
        (Idle, "counts", "without 'idle' every number of a run of 3 rounds is the same"),
        (Stamping, "memory", "stamping changed an entry of silo.memory in place during 'train'"),
        (Leaking, "seed", "two runs with the same seed differ"),
        (Deaf, "settings", "no number of a run differs, and none is refused, with loudness=0.25, 1.0"),
        (Still, "moves", "no trainable tensor changes"),
        (Fragile, "runs", "silo b: error: ValueError: not here"),
        (Crowded, "participation", "RuntimeError: The size of tensor"),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_a_broken_part_fails_by_the_law_it_breaks(part: type[Part], law: str, words: str) -> None:
    finding = tried(part(), law)[law]
    assert finding.status == FAILED
    assert any(one in finding.detail for one in words.split("|")), finding.detail
    assert "\n" not in finding.detail


def test_a_setting_that_seldom_acts_is_said_to_and_not_demanded_of_short_runs() -> None:
    @dataclass(frozen=True)
    class Patient(Sound):
        name = "patient"
        loudness: float = setting(0.5, "how loud", low=0, rare="in a hundred rounds")

    assert tried(Patient(), "settings")["settings"].status == PASSED
    assert fields_of(Patient)[-1]["help"] == "how loud (acts in a hundred rounds)"


@pytest.mark.slow
def test_state_on_an_object_is_found_by_worker_processes_too() -> None:
    assert tried("test_check:Counting", "engines")["engines"].status == FAILED


def test_a_bad_reply_that_no_one_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be if the screening of replies let them through."""
    from fairsilo.engine import loop

    monkeypatch.setattr(loop, "screened", lambda *given: given[2])
    found = tried(Sound(), "bad update", "bad attachment")
    assert [one.status for one in found.values()] == [FAILED, FAILED]


@pytest.mark.parametrize("how", ["fedprox(mu=0.1) | fedheal", "scaffold", "local"])
def test_the_catalogue_and_compositions_are_checked_too(how: str) -> None:
    found = tried(how, "declared", "runs", "memory", "counts", "bad update", "bad attachment")
    assert FAILED not in {one.status for one in found.values()}
    attached = any(one.exchange == "train" and one.name != "model" for one in method(how).declared)
    assert (found["bad attachment"].status == PASSED) == attached
    assert found["bad update"].status == (NOT_APPLICABLE if how == "local" else PASSED)


@pytest.mark.slow
def test_a_method_around_a_backbone_is_tried_on_the_shipped_one() -> None:
    found = tried("clip-zero-shot", "runs", "moves", "seed")
    assert [one.status for one in found.values()] == [PASSED, NOT_APPLICABLE, PASSED]


def test_what_stops_a_plain_run_is_said_once() -> None:
    found = tried(Smuggling(), "declared", "runs", "seed", "resume")
    assert [one.status for one in found.values()] == [FAILED, *[NOT_APPLICABLE] * 3]


def test_other_values_of_a_setting_lie_in_its_range() -> None:
    sound = method("test_check:Sound")
    assert other_values(sound, "by_loss") == [False]
    assert all(0 <= value <= 1 and value != 0.5 for value in other_values(sound, "rate"))
    assert set(other_values(method("q-ffl"), "form")) == {"normalised"}


def test_the_command_prints_a_line_per_law_and_tells_by_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "LAWS", (LAWS["runs"], LAWS["counts"], LAWS["settings"]))
    good = CliRunner().invoke(app, ["check", "test_check:Sound"])
    assert good.exit_code == 0
    assert [line.split()[0] for line in good.output.splitlines()] == ["passed"] * 3
    bad = CliRunner().invoke(app, ["check", "test_check:Idle", "--json"])
    assert bad.exit_code == 1
    told = json.loads(bad.output)
    assert [(one["law"], one["status"]) for one in told] == [
        ("runs", "passed"),
        ("counts", "failed"),
        ("settings", "not applicable"),
    ]


# ----------------------------------------------------------------------------------------------------- your-own.md
ROOT = Path(__file__).resolve().parent.parent
SMALLER = ["rounds=1", "epochs=1", "domains=scan,print", "--json"]
OWN = "my_weights:LossWeights"


@pytest.mark.slow
def test_a_method_in_a_file_of_its_own_as_the_tutorial_has_it(tmp_path: Path) -> None:
    """The class as printed, used as `package:name` from the folder that it is in, and by an entry point as printed."""
    page = (ROOT / "docs" / "your-own.md").read_text(encoding="utf-8")
    (project,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", page.partition("## A method\n")[2].partition("\n## ")[0], re.DOTALL)
    package, _ = code.split("\n\n\nmethod = ")  # what follows runs it in Python: tests/test_docs.py
    assert len(package.splitlines()) < 50
    (tmp_path / "my_weights.py").write_text(package)

    def says(*words: str) -> str:
        where = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=tmp_path, env=where, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run = ["run", f"method={OWN}(power=2)", "baseline=fedavg"]
    found = json.loads(says("-m", "fairsilo.cli", *run, *SMALLER))
    assert found["method"] == f"{OWN}(power=2)"
    assert found["baseline"]["method"] == "fedavg"
    assert found["summary"] != found["baseline"]["summary"]
    assert OWN in says("-m", "fairsilo.cli", "compare", "fedavg", f"fedprox | {OWN}", *SMALLER)
    told = json.loads(says("-m", "fairsilo.cli", "check", OWN, "--json"))
    assert {one["status"] for one in told} <= {PASSED, NOT_APPLICABLE}

    offered = tomllib.loads(project)["project"]["entry-points"]["fairsilo.methods"]
    about = tmp_path / "my_weights-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-weights\nVersion: 1.0\n")
    points = "".join(f"{name} = {value}\n" for name, value in offered.items())
    (about / "entry_points.txt").write_text(f"[fairsilo.methods]\n{points}")
    code = "import sys; sys.path.insert(0, '.'); from fairsilo.methods.text import method; print(method('my-weights'))"
    assert "LossWeights(power=1.0)" in says("-c", code)


def test_what_cannot_be_tried_is_refused_in_a_sentence() -> None:
    with pytest.raises(FairsiloError, match="unknown method 'fedpox'"):
        list(check("fedpox"))
    with pytest.raises(FairsiloError, match=r"cannot be tried on the federation of the laws: .* cannot do without"):
        list(check(method("fedproto").without("prototypes")))
