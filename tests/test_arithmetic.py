"""What changes rounding is the run's own setting: recorded, the same on every engine, and put back afterwards."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tiny
from fairsilo import run
from fairsilo.config import EngineSettings
from fairsilo.core.arithmetic import EXACT, Arithmetic, fast
from fairsilo.core.convolutions import MatrixConv2d
from fairsilo.data.federation import Federation
from fairsilo.engine.processes import Pool, Processes
from fairsilo.errors import FairsiloError
from fairsilo.runs.setup import engine_of

ROUGH = Arithmetic("bfloat16", channels_last=True)
MATRICES = Arithmetic(onednn=False, convolutions="matrices")  # what is fast on ARM


def switches() -> tuple[Any, ...]:
    backends = torch.backends
    return backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32, backends.mkldnn.enabled


@pytest.mark.parametrize(
    ("arithmetic", "tf32", "onednn"),
    [(EXACT, False, True), (Arithmetic("tf32"), True, True), (Arithmetic(onednn=False), False, False)],
)
def test_torchs_switches_are_set_and_put_back(arithmetic: Arithmetic, tf32: bool, onednn: bool) -> None:
    before = switches()
    with arithmetic.set():
        assert switches() == (tf32, tf32, onednn and before[2])
    assert switches() == before


def test_kernels_that_repeat_are_asked_for_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert not torch.are_deterministic_algorithms_enabled()
    with Arithmetic(deterministic=True).set():
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        with EXACT.set():  # says nothing about it
            assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    assert Arithmetic.of(EngineSettings(deterministic=True)) == Arithmetic(deterministic=True)
    assert engine_of(EngineSettings(preset="fast", deterministic=True)).deterministic


def test_bfloat16_rounds_products_and_leaves_the_rest_as_it_was() -> None:
    inputs = torch.randn(4, 3, 6, 6)
    exact, rough = (tiny.plan("fedavg", arithmetic=one).flat() for one in (EXACT, ROUGH))
    for model in (exact, rough):
        model.train()
    one, other = exact.forward(inputs), rough.forward(inputs)
    assert other.prediction.dtype == torch.float32
    assert other.features is not None
    assert other.features.dtype == torch.float32
    assert not torch.equal(one.prediction, other.prediction)
    torch.testing.assert_close(one.prediction, other.prediction, rtol=0.05, atol=0.05)
    assert rough.parameters.dtype == rough.read().dtype == torch.float32
    # of another model given as a vector as well
    again = rough.forward(inputs, exact.read())
    assert again.prediction.dtype == torch.float32


def test_memory_order_is_that_of_the_setting() -> None:
    seen: list[bool] = []
    model = tiny.plan("fedavg", arithmetic=Arithmetic(channels_last=True)).flat()
    model.module.register_forward_pre_hook(
        lambda _, given: seen.append(given[0].is_contiguous(memory_format=torch.channels_last))
    )
    model.forward(torch.randn(4, 3, 6, 6))
    assert seen == [True]
    assert Arithmetic(channels_last=True).ordered(torch.randn(4, 7)).shape == (4, 7)


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", [ROUGH, MATRICES], ids=["rough", "matrices"])
def test_engines_round_alike(arithmetic: Arithmetic, people: Federation, pool: Pool) -> None:
    plan = tiny.plan("fedprox", arithmetic=arithmetic)
    with arithmetic.set():
        alone = tiny.looped(plan, people, server_data=tiny.synthetic()).run()
    together = tiny.looped(plan, people, engine=lambda p, f: Processes(p, f, pool), server_data=tiny.synthetic()).run()
    assert alone.rows == together.rows
    assert torch.equal(alone.vector, together.vector)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["fedavg", "per-fedavg", "dp-sgd", "elcfs", "scaffold | fedheal"])
def test_convolutions_by_matrices_train_alike(how: str, people: Federation) -> None:
    """Also gradients of single samples (dp-sgd); only rounding differs."""
    losses = []
    for arithmetic in (EXACT, Arithmetic(convolutions="matrices")):
        plan = tiny.plan(
            how, dataclasses.replace(tiny.TRAINING, rounds=2), model="small-cnn(norm=group)", arithmetic=arithmetic
        )
        network = plan.flat().module
        kinds = {type(one) for one in network.modules() if isinstance(one, nn.Conv2d)}
        assert kinds == {MatrixConv2d if arithmetic.convolutions == "matrices" else nn.Conv2d}
        history = tiny.looped(plan, people, server_data=tiny.synthetic()).run()
        losses.append(torch.tensor([row["loss"] for row in history.rows]))
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


def test_rounding_travels_with_the_plan() -> None:
    plan = tiny.plan("fedavg", model="small-cnn", arithmetic=ROUGH)
    assert type(plan).from_text(plan.as_text()).arithmetic == ROUGH


def test_fast_is_resolved_into_settings_before_a_run_is_written(tmp_path: Path) -> None:
    found = run(method="fedavg", rounds=1, epochs=1, preset="fast", engine={"name": "sequential"}, out=tmp_path / "run")
    saved = (found.folder / "config.yaml").read_text(encoding="utf-8")
    chosen = fast("cpu")
    assert f"precision: {chosen.precision}" in saved
    assert f"channels_last: {str(chosen.channels_last).lower()}" in saved
    assert f"convolutions: {chosen.convolutions}" in saved
    assert fast("cuda") == ROUGH


def test_what_contradicts_fast_is_refused() -> None:
    with pytest.raises(FairsiloError, match=r"engine\.preset=fast sets engine\.precision=bfloat16; leave one"):
        engine_of(EngineSettings(preset="fast", precision="tf32", device="cuda"))
    assert engine_of(EngineSettings(device="auto")).device == ("cuda" if torch.cuda.is_available() else "cpu")
