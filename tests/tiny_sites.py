"""Sites of a small federation of glyphs, and a channel to them inside this process."""

from __future__ import annotations

import atexit
import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from fairsilo.api import run
from fairsilo.config import experiment
from fairsilo.core.messages import Exchange, Failure, Reply
from fairsilo.data.federation import Federation
from fairsilo.data.glyphs import glyphs
from fairsilo.deploy.remote import Asked
from fairsilo.deploy.serving import serve
from fairsilo.deploy.settings import read_site
from fairsilo.deploy.site import Site
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.events import Callback, Event, silent
from fairsilo.engine.loop import Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.runs.running import no_page, start_folder
from fairsilo.runs.saved import SavedRun
from fairsilo.runs.setup import Objects, federation_of, plan_of, resolved

TRAINING, UNSEEN = ("print", "scan", "sketch"), "street"
PER_DOMAIN, SIZE = 100, 16


@cache
def images() -> Path:
    """Small glyphs as image files, DOMAIN/CLASS/*.png: a site has one of the domains, a simulation all of them."""
    folder = Path(tempfile.mkdtemp(prefix="fairsilo-sites-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    found = glyphs(0, SIZE, PER_DOMAIN)
    for name in (*TRAINING, UNSEEN):
        samples = found.domains[name].samples
        pixels, targets = samples.take(range(len(samples)))
        for number, (image, target) in enumerate(zip(pixels, targets.tolist(), strict=True)):
            place = folder / name / found.classes[target]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{number:03d}.png")
    return folder


def settings(**changes: Any) -> dict[str, Any]:
    """Of a run that a simulation and sites make alike."""
    data = {"folder": str(images()), "held_out": UNSEEN, "size": SIZE, "classes": list("0123456789")}
    return {"model": "small-cnn", "data": data, "train": TRAIN, "engine": {"name": "sequential"}, **changes}


def settings_for(method: str) -> dict[str, Any]:
    """What a method needs to be changed: one around a frozen backbone has its model, and images of that size."""
    return {"model": "tiny-clip", "data": {**settings()["data"], "size": 32}} if "clip" in method else {}


TRAIN: dict[str, Any] = {"rounds": 2, "epochs": 1, "lr": 0.02, "batch_size": 16}


def write_site(folder: Path, site: str, /, **changes: Any) -> Path:
    """`site.yaml` of a site that holds the domain it is named after."""
    folder.mkdir(parents=True, exist_ok=True)
    described: dict[str, Any] = {"domain": site, "folder": str(images() / site)}
    described |= {"role": "evaluate"} if site == UNSEEN else {}
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump(described | changes))
    return path


class Local:
    """Sites in this process: what is asked and answered goes through the same forms as on a wire."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self.sites = dict(sites)
        self.calls: list[tuple[str, str]] = []

    def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
        for key, (site, content) in reversed(asked.items()):  # in no particular order
            self.calls.append((step, site))
            if site in self.sites and self.reached(step, site, content):
                yield key, self.sites[site].answer(step, content)
            else:
                yield key, Failure("lost", "its site is not connected")

    def close(self) -> None:
        """The sites' processes end."""
        for site in self.sites.values():
            site.close()

    def reached(self, step: str, site: str, content: Mapping[str, Any]) -> bool:
        """Whether a site hears what it is asked."""
        return True


def sites_in(folder: Path, names: tuple[str, ...] = (*TRAINING, UNSEEN), **changes: Any) -> dict[str, Site]:
    return {name: Site(read_site(write_site(folder / name, name, **changes), name)) for name in names}


def begun(folder: Path, method: str, **changes: Any) -> Path:
    """A run folder with its configuration."""
    chosen = experiment({**settings(**changes), "method": method})
    folder.mkdir(parents=True, exist_ok=True)
    start_folder(folder, chosen, Objects())
    return folder


def served(
    folder: Path, channel: Any, names: tuple[str, ...] = (*TRAINING, UNSEEN), listener: Callback = silent
) -> Any:
    return serve(folder, channel, names, listener, no_page)


def counted(run: Path) -> list[list[str]]:
    """The silos whose replies were used, round by round."""
    return [json.loads(line)["counted"] for line in (run / "rounds.jsonl").read_text().splitlines()]


def simulated(folder: Path, method: str, **changes: Any) -> Any:
    return run(method=method, out=folder, **settings(**changes)).summary


class Forgetful(Sequential):
    """A simulation in which one silo's training fails in one round."""

    def __init__(self, plan: Blueprint, federation: Federation, silo: str, round_: int) -> None:
        super().__init__(plan, federation)
        self.failing = (silo, round_)

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        silo, round_ = self.failing
        if (exchange.kind, exchange.round) != ("train", round_):
            yield from super().ask(exchange)
            return
        others = {name: message for name, message in exchange.messages.items() if name != silo}
        found = {reply.silo: reply for reply in super().ask(replace(exchange, messages=others))}
        found[silo] = Reply(silo, Failure("timeout", "no answer within 1 s"), 0.0, exchange.number)
        yield from (found[name] for name in sorted(found))


def simulated_without(folder: Path, method: str, silo: str, round_: int, **changes: Any) -> list[dict[str, Any]]:
    """The evaluation rows of a simulation in which a silo fails to train in a round."""
    chosen = experiment({**settings(**changes), "method": method})
    federation = federation_of(chosen)
    plan = plan_of(resolved(chosen, federation.roster), federation.roster)
    loop = Loop(plan, federation.roster, Forgetful(plan, federation, silo, round_), records=SavedRun(folder))
    folder.mkdir(parents=True)
    return json.loads(json.dumps(loop.run().rows))  # type: ignore[no-any-return]


def simulated_joining(folder: Path, method: str, later: tuple[str, ...], round_: int, **changes: Any) -> Any:
    """The evaluation rows of a simulation in which some silos are there from a round on only."""
    chosen = experiment({**settings(**changes), "method": method})
    everybody = federation_of(chosen)
    silos, unseen = (
        tuple(one for one in some if one.name not in later) for some in (everybody.silos, everybody.unseen)
    )
    folder.mkdir(parents=True)

    def loop(people: Federation, listener: Callback) -> Loop:
        plan = plan_of(resolved(chosen, people.roster), people.roster)
        engine = Sequential(plan, people, folder=folder)
        return Loop(plan, people.roster, engine, records=SavedRun(folder), listener=listener)

    def cut(event: Event) -> None:
        if (event.kind, event.round) == ("round", round_ - 1):
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        loop(replace(everybody, silos=silos, unseen=unseen), cut).run()
    return json.loads(json.dumps(loop(everybody, silent).run().rows))
