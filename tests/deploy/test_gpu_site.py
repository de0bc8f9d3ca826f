"""Sites with a GPU and sites without in one federation. Skipped without a GPU; run on one by hand, before a release."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from fairsilo.deploy.site import Site
from test_vault import Authority
from tiny_sites import TRAINING, UNSEEN, Local, begun, counted, served, simulated, sites_in

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

MIXED = {"print": "cuda", "scan": "cpu", "sketch": "auto", UNSEEN: "auto"}
PRIVATE = "fedavg | dp-sgd(noise=0.6) | secure-aggregation"
METHODS = ["fedavg", "scaffold", "ditto", "fedbn", "fedheal", "fft-gp", PRIVATE]


def mixed_sites(folder: Path) -> dict[str, Site]:
    return {name: site for name, device in MIXED.items() for site in sites_in(folder, (name,), device=device).values()}


def certify(sites: dict[str, Site], folder: Path) -> None:
    """Secure sums need sites that can sign."""
    authority = Authority(folder)
    for name, site in sites.items():
        site.credentials = authority.credentials(name)


def losses(run: Path) -> dict[str, float]:
    """By round, silo, model and split."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {" ".join(str(row[key]) for key in ("round", "silo", "model", "split")): row["loss"] for row in rows}


def settings_of(method: str) -> dict[str, Any]:
    if method != PRIVATE:
        return {}
    pytest.importorskip("opacus", reason="needs the extra `privacy`")
    pytest.importorskip("cryptography", reason="needs the extra `privacy`")
    return {"model": "small-cnn(norm=group)"}


@pytest.mark.parametrize("method", METHODS)
def test_sites_with_a_gpu_and_without_make_one_run(method: str, tmp_path: Path) -> None:
    """All are counted; what they do is what a simulation on the CPU does, up to how a GPU rounds."""
    changes = settings_of(method)
    run = begun(tmp_path / "server", method, **changes)
    sites = mixed_sites(tmp_path / "sites")
    if method == PRIVATE:
        certify(sites, tmp_path / "authority")
    found = served(run, Local(sites))
    assert counted(run) == [list(TRAINING)] * 2
    devices = Counter(site.host.blueprint.device for site in sites.values() if site.host)
    assert devices == {"cuda": 3, "cpu": 1}
    if method == PRIVATE:  # the noise is the sites' own, and no simulation has it
        assert found["privacy"]
        return
    simulated(tmp_path / "simulated", method, **changes)
    expected = losses(tmp_path / "simulated")
    assert expected
    assert losses(run) == pytest.approx(expected, rel=1e-5)


def test_what_a_site_keeps_on_its_gpu_is_there_after_a_restart(tmp_path: Path) -> None:
    """Its second process trains on from the file, and may do so without the GPU."""
    whole = begun(tmp_path / "whole", "ditto")
    served(whole, Local(mixed_sites(tmp_path / "some")))
    run = begun(tmp_path / "server", "ditto")

    def cut(event: Any) -> None:
        if (event.kind, event.round) == ("round", 1):
            raise KeyboardInterrupt

    channel = Local(mixed_sites(tmp_path / "sites"))
    with pytest.raises(KeyboardInterrupt):
        served(run, channel, listener=cut)
    channel.close()
    served(run, Local(sites_in(tmp_path / "sites", device="cpu")))
    assert counted(run) == [list(TRAINING)] * 2
    assert losses(run) == pytest.approx(losses(whole), rel=1e-5)
