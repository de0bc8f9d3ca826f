"""The model card of an export: what was trained on what, how good and how even it is, what left the silos, how to load
it. Markdown, with the header that the Hugging Face Hub reads."""

from __future__ import annotations

import datetime
import json
import platform
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
import yaml

from fairsilo import __version__
from fairsilo.analysis.groups import by_column, judged
from fairsilo.analysis.metrics import AT_HOME, at_chance, headline
from fairsilo.analysis.privacy import spent, words
from fairsilo.config import read_yaml
from fairsilo.core.silo import Memory
from fairsilo.core.vectors import AVERAGED, PRIVATE
from fairsilo.errors import FairsiloError
from fairsilo.runs.exported import code_in, plan_described

if TYPE_CHECKING:
    from fairsilo.runs.trained import Trained

PIPELINES = {"classify": "image-classification", "segment": "image-segmentation"}
PLACES = ("root", "folder", "packed", "server", "synthetic")  # settings of data that name places on a machine
PATH = re.compile(
    r"""(?:^|(?<=[=:\s'"(,\[]))(?<!http:)(?<!https:)(?:~[\w-]*|\.\.?|[A-Za-z]:)?[/\\](?!\s)[^,()|'"`\n]*"""
)
SELECTIONS = {
    "last": "the last that was evaluated",
    "last5": "the last evaluations, up to five",
    "source-validation": "selected as the best on the training silos' validation data",
    "oracle": "selected as the best on the unseen test data, and so an upper bound",
}


@dataclass(frozen=True)
class Facts:
    """What the card says of the export itself.

    Attributes:
        format: Of the files.
        which: `best` or `last`, of silos' own models.
        left_out: Models that there are none of.
        difference: The largest one between a file and the run, where it was checked.
        rounding: The largest one between float32 on a CPU and the run's own arithmetic.
        tolerance: What the first may be; of numbers as a share.
        sizes: Of the batches it was checked with.
    """

    format: str
    which: str
    left_out: Sequence[str]
    difference: float
    rounding: float
    tolerance: float
    sizes: Sequence[int]


def card(trained: Trained, facts: Facts, files: Mapping[str, str]) -> str:
    """The whole card; `files` are those of the folder it lies in, by model."""
    summary = trained.run_folder.read_json("summary.json")
    held = _held(trained, facts, files)
    parts = (
        _header(trained),
        f"# {_plain(shortened(trained.facts['method']))} on {_plain(shortened(trained.roster.name))}\n",
        *_opening(trained, facts, files, held),
        *_loading(trained, facts, files),
        *_results(summary, held),
        *_data(trained, summary),
        *_sent(trained),
        *_use(trained, summary, facts),
        *_made(trained, facts),
    )
    return "\n".join(parts)


def _header(trained: Trained) -> str:
    content: dict[str, Any] = {"library_name": "fairsilo", "tags": ["federated-learning", "domain-shift", "fairsilo"]}
    if len(trained.shape) == 3 and trained.roster.task in PIPELINES:
        content["pipeline_tag"] = PIPELINES[trained.roster.task]
    return f"---\n{yaml.safe_dump(content, sort_keys=False)}---\n"


@dataclass(frozen=True)
class Held:
    """Which model a file holds, in words, and of which round it is; None where that is not known."""

    words: str
    round: int | None


def _held(trained: Trained, facts: Facts, files: Iterable[str]) -> dict[str, Held]:
    last = trained.plan.training.rounds
    rows = trained.run_folder.rows("metrics")
    there = {row["silo"] for row in rows if row["model"] == "personal" and row.get("made", row["round"]) == last}
    return {name: _held_by(trained, facts, name, last, there) for name in files}


def _held_by(trained: Trained, facts: Facts, name: str, last: int, there: Container[str]) -> Held:
    if name == "global":
        return Held(f"of round {last}, the last", last)
    silo = "global" if name == "silos/global" else name
    if silo not in trained.silos:
        return Held("made after the run, when the silo joined", None)
    if trained.kept(silo, facts.which) == "best":
        remembered = trained.memories.get(silo, Memory()).get("silo", {})
        best = remembered.get("best", {}).get("round")
        return Held("its best by its validation data" + (f", of round {best}" if best else ""), best)
    why = "; without validation data there is no best" if facts.which == "best" else ""
    if silo in there:
        return Held(f"of round {last}, its last{why}", last)
    return Held(f"its last{why}", None)  # it may have sat out the last round


def _opening(trained: Trained, facts: Facts, files: Mapping[str, str], held: Mapping[str, Held]) -> Iterator[str]:
    names = _listed(trained.classes)
    method, network = shortened(trained.facts["method"]), network_of(trained)
    yield (
        f"Trained by federated learning with the method `{method}` and the network `{network}` over "
        f"{len(trained.silos)} silos, by fairsilo. Task: {trained.roster.task}"
        f"{f' ({len(trained.classes)} classes: {names})' if names else ''}.\n"
    )
    yield _table(("model", "file", "which"), ([name, f"`{file}`", held[name].words] for name, file in files.items()))
    if "global" in files and trained.server.own_model is not None:
        kind = type(trained.server.own_model.module).__name__
        yield f"The global model is a network of the server's own ({kind}), not that of the silos.\n"
    for name in facts.left_out:
        whose = "the method has no global model" if name == "global" else "it was not there at the end of the run"
        yield f"There is no model `{name}`: {whose}.\n"


# ------------------------------------------------------------------------------------------------------------- loading
def _loading(trained: Trained, facts: Facts, files: Mapping[str, str]) -> Iterator[str]:
    shape, dtype = "x".join(map(str, trained.shape)), trained.roster.dtype
    fit = trained.experiment.data.fit
    images = f", pixels from 0 to 255: what the network wants of them is done inside, but not their size (fit: {fit})"
    yield "## How to load\n"
    yield (
        f"Samples are {dtype}, N x {shape}, for any N"
        + (images if dtype == "uint8" else "")
        + f". Out come {_answers(trained)}. Run this in the folder of this file:\n"
    )
    yield f"```python\n{_snippet(trained, facts, files)}```\n"
    if facts.format in ("safetensors", "hf"):
        yield (
            "The file holds the weights by the names of their tensors; the network is made again by fairsilo "
            f"{__version__}"
            + (
                ", and a pretrained one that stands on a backbone needs that backbone where the run had it"
                if ":" in str(trained.experiment.model) + str(trained.experiment.method)
                else ""
            )
            + ". `--to onnx` and `--to pt2` hold the whole computation.\n"
        )
        missing = plan_described(trained.plan)["missing"]
        if missing:
            yield f"The run was given its {' and its '.join(missing)} from Python, and so is `read_exported`.\n"


def _answers(trained: Trained) -> str:
    count = len(trained.classes)
    if not trained.plan.task.classes:
        return "N numbers in the units of the data (float64)"
    if trained.plan.task.output.per == "pixel":
        return f"probabilities of the classes for each pixel, N x {count} x height x width"
    return f"probabilities, N x {count}, in the order of `classes`"


def _snippet(trained: Trained, facts: Facts, files: Mapping[str, str]) -> str:
    name, file = next(iter(files.items()))
    size, dtype = ", ".join(map(str, (2, *trained.shape))), trained.roster.dtype
    about = 'json.loads(pathlib.Path("model.json").read_text())["fairsilo"]'
    if facts.format == "onnx":
        return (
            "import json, pathlib\n\nimport numpy, onnxruntime\n\n"
            f'about = {about}\nsession = onnxruntime.InferenceSession("{file}")\n'
            f"samples = numpy.zeros(({size}), numpy.{dtype})\n"
            '(found,) = session.run(None, {"samples": samples})\nprint(about["classes"], found)\n'
        )
    if facts.format == "pt2":
        return (
            "import json, pathlib\n\nimport torch\n\n"
            f'about = {about}\nmodel = torch.export.load("{file}").module()\n'
            f"samples = torch.zeros({size}, dtype=torch.{dtype})\n"
            'with torch.no_grad():\n    print(about["classes"], model(samples))\n'
        )
    place = PurePosixPath(file).parent if facts.format == "hf" else "."  # the folder of its description
    given = ["" if facts.format == "hf" else json.dumps(name, ensure_ascii=False), *_given(trained)]
    call = ", ".join([f'"{place}"', *filter(None, given)])
    return (
        "import torch\n\nfrom fairsilo.runs.exported import read_exported\n\n"
        f"model = read_exported({call})\n"
        f"samples = torch.zeros({size}, dtype=torch.{dtype})\nprint(model(samples))\n"
    )


def _given(trained: Trained) -> Iterator[str]:
    """What `read_exported` must be told besides: objects of the run's that have no name, and that code is trusted."""
    about = plan_described(trained.plan)
    yield from (f"{kind}=the_{kind}_of_the_run" for kind in about["missing"])
    if code_in(about):
        yield "trust=True"


# ------------------------------------------------------------------------------------------------------------- results
def _results(summary: Mapping[str, Any], held: Mapping[str, Held]) -> Iterator[str]:
    found, guessed = headline(summary), at_chance(summary)
    metric, number = str(summary["metric"]).replace("-", " "), _number(summary)
    spread = "-" if found["fairness"] is None else f"{number(found['fairness'], True)} around {number(found[AT_HOME])}"
    shown = {
        "generalisation": ("the global model on a domain nobody trained on", number(found["generalisation"])),
        "personalisation": ("each silo's own model at home, mean", number(found["personalisation"])),
        "fairness": (f"standard deviation over silos, of the {_whose(summary)}; lower is more even", spread),
    }
    yield "## Results\n"
    yield f"{metric.capitalize()}, as the run measured it ({_rounds(summary)}).\n"
    yield from _of_other_models(summary, held)
    yield _table(
        ("question", "what is measured", "answer", "95 % interval"),
        (
            [key, what, f"{value}{' (at chance level)' if guessed[key] else ''}", _interval(summary, key)]
            for key, (what, value) in shown.items()
        ),
    )
    before = summary["generalisation"].get("unadapted")
    if before is not None:
        yield (
            "**The method adapts the global model at test time, and the first answer is that of the adapted model. The "
            f"files here hold the model as it is before that, which reached {number(before)}.**\n"
        )
    for column, one in (summary.get("groups") or {}).items():
        yield from _group(summary, column, one)


def _of_other_models(summary: Mapping[str, Any], held: Mapping[str, Held], most: int = 12) -> Iterator[str]:
    """Where results and files are of different rounds, nobody may take the first for those of the second."""
    rounds = summary["rounds"]
    others = [f"`{_plain(name)}`: {one.words}" for name, one in held.items() if rounds != [one.round]]
    if not rounds or not others:
        return
    read = f"of round {rounds[0]}" if len(rounds) == 1 else f"means over the rounds {', '.join(map(str, rounds))}"
    more = f"; and {len(others) - most} more" if len(others) > most else ""
    yield (
        f"**The results in this card are {read} ({SELECTIONS.get(summary['selection'], summary['selection'])}). They "
        f"are not those of these files, which hold other models: {'; '.join(others[:most])}{more}.** "
        "`fairsilo evaluate` measures the models of a run.\n"
    )


def _whose(summary: Mapping[str, Any]) -> str:
    own = summary["about"] == "personal" and summary["fairness"]["personal"]
    return "silos' own models" if own else "global model"


def _rounds(summary: Mapping[str, Any]) -> str:
    rounds = summary["rounds"]
    return f"selection: {summary['selection']}; round {', '.join(map(str, rounds))}" if rounds else "nothing evaluated"


def _interval(summary: Mapping[str, Any], key: str) -> str:
    interval = summary[key].get("interval") if key in ("generalisation", "personalisation") else None
    return "-" if interval is None else " to ".join(map(_number(summary), interval))


def _group(summary: Mapping[str, Any], column: str, found: Mapping[str, Any]) -> Iterator[str]:
    kind, number, worst = judged(summary["about"], found), _number(summary), by_column(summary)
    if not found[kind]:
        return
    yield f"### By {_plain(column)}\n"
    rows = ([value, f"{one['samples']:,}", number(one[kind])] for value, one in found["values"].items())
    yield _table((column, "test samples", f"{kind} model"), rows)
    yield (
        f"Gap between the best and the worst group ({_plain(worst[f'{column}_worst_group'])}): "
        f"{number(worst[f'{column}_gap'], True)}. Groups too small to be told are left out.\n"
    )


def _number(summary: Mapping[str, Any]) -> Any:
    """A function that writes results: shares in percent, spreads of them in points, anything else as it is."""
    share = summary.get("share") is not False

    def shown(value: float | None, spread: bool = False) -> str:
        if value is None:
            return "-"
        return f"{100 * value:.1f}{' points' if spread else ' %'}" if share else f"{value:.4g}"

    return shown


# ---------------------------------------------------------------------------------------------------------------- data
def _data(trained: Trained, summary: Mapping[str, Any]) -> Iterator[str]:
    roster, number = trained.roster, _number(summary)
    results = {one["silo"]: one for one in summary["silos"]}
    rows = []
    for member in (*roster.silos, *roster.unseen):
        one = results.get(member.name, {})
        shared = one.get("adapted") if one.get("adapted") is not None else one.get("global")
        counts = [f"{count:,}" for count in (member.train, member.validation, member.test)]
        if member.name in roster.unseen_names:
            counts[:2] = ["0 (unseen)", "0"]
        rows.append([member.name, member.domain, *counts, number(shared), number(one.get("personal"))])
    yield "## Data\n"
    yield (
        f"{_plain(shortened(roster.name))}: {len(roster.silos)} silos of {len(roster.domains)} domains trained; "
        f"{sum(one.train for one in roster.silos):,} training samples."
        + (f" Held out: {_listed(dict.fromkeys(one.domain for one in roster.unseen))}." if roster.unseen else "")
        + "\n"
    )
    yield _table(("silo", "domain", "train", "validation", "test", "global model", "own model"), rows)


def _sent(trained: Trained) -> Iterator[str]:
    layout, facts = trained.model.layout, trained.facts
    private, kept = ([slot.name for slot in layout.slots if slot.kind == kind] for kind in (PRIVATE, AVERAGED))
    own = "Of these each silo's own model has its own values, and the global model the mean"
    yield "## What was sent\n"
    if len(private) == len(layout.slots):
        yield "No tensor of a model left its silo; numbers of samples and results did.\n"
    else:
        size = f" ({facts['bytes_sent']:,} bytes each time)" if "bytes_sent" in facts else ""
        yield (
            f"Every silo sent {len(layout.slots) - len(private)} of the {len(layout.slots)} tensors of its "
            f"model{size}, its number of training samples and its results."
            + (f" These stayed with it: {_listed(f'`{name}`' for name in private)}." if private else "")
            + (f" {own}: {_listed(f'`{name}`' for name in kept)}." if kept else "")
            + "\n"
        )
    lines = [str(line) for line in facts.get("method_sends") or ()]
    yield (
        "Besides: "
        + ("\n\n" + "\n".join(f"- {_plain(shortened(line))}" for line in lines) if lines else "nothing.")
        + "\n"
    )
    for one in spent(trained.run_folder.rows("rounds"), facts.get("method_privacy") or ()):
        most = max(one["epsilon"].values(), default=None)
        if most is not None:
            yield (
                f"Differential privacy by {one['part']}: epsilon at most {words(most)} at delta {one['delta']:g}, for "
                f"{one['protects']}. It covers what silos sent of their training, not their numbers and results.\n"
            )


# ----------------------------------------------------------------------------------------------------- use, and limits
def _use(trained: Trained, summary: Mapping[str, Any], facts: Facts) -> Iterator[str]:
    yield "## Intended use and limits\n"
    limits = [
        "Meant for research, on samples like those of the domains above, prepared in the same way. Elsewhere measure "
        "it first (`fairsilo evaluate`): the first answer says how it did on a domain that nobody trained on.",
        f"One run with one seed ({trained.experiment.seed}); another seed gives other numbers.",
        "It is no medical device, and nobody has examined it for decisions about people.",
        "A model may tell something about the samples it was trained on, a silo's own model more of that silo. Ask the "
        "silos before you pass it on.",
    ]
    if any(at_chance(summary).values()):
        limits.insert(0, "**Some results are no better than guessing; see the table above.**")
    yield "\n".join(f"- {line}" for line in limits) + "\n"


def _made(trained: Trained, facts: Facts) -> Iterator[str]:
    yield "## How it was made\n"
    yield (
        f"Trained with fairsilo {trained.facts.get('version', '?')} and torch {trained.facts.get('torch', '?')}, begun "
        f"{trained.facts.get('started', '?')}. Exported on {datetime.date.today().isoformat()} with fairsilo "
        f"{__version__}, torch {torch.__version__}, Python {platform.python_version()}, as {facts.format}.\n"
    )
    yield (
        f"Every file was read back and compared with the run on random batches of {_listed(map(str, facts.sizes))} "
        f"samples: the largest difference was {facts.difference:.1g}, and {facts.tolerance:g} "
        f"{'' if trained.plan.task.classes else 'of the largest answer, or of task.scale, '}is allowed."
        + (
            f" The files compute in float32; the run computes otherwise, and differed by {facts.rounding:.1g}."
            if trained.rounds_otherwise
            else ""
        )
        + "\n"
    )
    settings = _settings(trained)
    yield f"Settings, without places on the machine where it ran:\n\n```yaml\n{settings}```\n"


def _settings(trained: Trained) -> str:
    try:
        found = read_yaml(trained.folder / "config.yaml")
    except FairsiloError:
        return ""
    data = {key: value for key, value in (found.get("data") or {}).items() if key not in PLACES}
    kept = {key: value for key, value in found.items() if key != "engine"} | {"data": data}
    return str(yaml.safe_dump(_shortened_in(kept), sort_keys=False, allow_unicode=True)).replace("```", "'''")


def _shortened_in(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shortened_in(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shortened_in(one) for one in value]
    return shortened(value) if isinstance(value, str) else value


def network_of(trained: Trained) -> str:
    """The network's name in settings; one that was given as an object has that of its class."""
    if "model" in trained.facts.get("objects", ()):
        return type(trained.model.module).__name__
    return shortened(trained.experiment.model)


def shortened(text: object) -> str:
    """With the last names of paths instead of whole ones, which tell of somebody's machine; `OWNER/NAME` is kept."""
    return PATH.sub(lambda found: re.split(r"[/\\]", found[0].rstrip("/\\ "))[-1], str(text))


# ------------------------------------------------------------------------------------------------------------ markdown
def _plain(text: object) -> str:
    """A name of somebody else's in a line of Markdown."""
    return " ".join(str(text).split()).replace("<", "&lt;").replace("|", "\\|")


def _listed(names: Iterable[object], most: int = 12) -> str:
    found = list(map(_plain, names))
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(heads), ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_plain, line))} |" for line in lines) + "\n"
