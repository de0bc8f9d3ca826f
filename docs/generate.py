"""Writes the pages about methods, models, data sets and settings from the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from error_pages import errors_page
from model_pages import file_of, model_page, models_page
from page_blocks import joined, table

from fairsilo.config import all_settings, fields_of
from fairsilo.core.needs import NEEDS
from fairsilo.data import datasets
from fairsilo.data.about import About
from fairsilo.methods.catalogue import CATALOGUE, Entry
from fairsilo.methods.parts.no_sharing import NoSharing
from fairsilo.models.described import own_models, suited
from fairsilo.report.reproduced import ledger_page
from fairsilo.report.tables import written
from fairsilo.reproduction.standing import Standing, runs_of
from fairsilo.reproduction.tables import tables
from fairsilo.tasks import classify, regress, segment
from fairsilo.tasks.augmentation import CHANGES, SETS
from fairsilo.tasks.metrics import METRICS
from fairsilo.tasks.registry import task_of

ROOT = Path(__file__).resolve().parent.parent
PAGES = Path("docs") / "methods"
DATA = Path("docs") / "datasets"
TASKS = Path("docs") / "tasks"
SETTINGS = Path("docs") / "settings.md"
LEDGER = Path("docs") / "reproduction.md"
ERRORS = Path("docs") / "errors.md"
MODELS = Path("docs") / "models.md"
MODEL = Path("docs") / "models"
NOTEBOOKS = Path("docs") / "notebooks"
THREATS = Path("docs") / "threats.md"
# what is meant to be run; other blocks, such as what a command prints, or `sh` for what is installed, stay text
CELL = re.compile(r"(?:<!-- slow -->\n)?^```(python|bash)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BEGIN, END = "<!-- methods -->", "<!-- /methods -->"
GENERATED = (
    "<!-- written by docs/generate.py from the catalogue; change src/fairsilo/methods.py or the part instead -->"
)
GENERATED_DATA = (
    "<!-- written by docs/generate.py; change the data set's file in src/fairsilo/data/datasets instead -->"
)
GENERATED_TASKS = "<!-- written by docs/generate.py; change src/fairsilo/tasks or docs/generate.py instead -->"
GENERATED_LEDGER = "<!-- written by docs/generate.py from the tables and runs in src/fairsilo/experiments -->"
GENERATED_SETTINGS = "<!-- written by docs/generate.py; change src/fairsilo/config.py instead -->"


# what the code does not say of a task: its title, what a sample and its target are, how data come in, a command
TASK_WORDS = {
    "classify": (
        "Classification",
        "An image, or a row of numbers, has one class.",
        "folders `DOMAIN/CLASS/*.png`, an index (CSV, JSON), packed files, a table with a `label` column",
        "fairsilo run data.folder=images evaluate.metric=balanced-accuracy task.class_weights=inverse",
    ),
    "segment": (
        "Segmentation",
        "An image has a class for each pixel; class 0 is the background.",
        "folders `DOMAIN/images` and `DOMAIN/masks`, NIfTI volumes, packed files",
        "fairsilo run data.folder=scans data.size=128 model=unet optimizer=adam lr=0.001",
    ),
    "next-character": (
        "Next character",
        "A window of 80 characters has the character after it as its target; a silo is a role, or a writer.",
        "a JSON object of role -> text, or LEAF's files",
        "fairsilo run data.folder=plays.json data.held_out=- lr=0.8 momentum=0",
    ),
    "regress": (
        "Regression",
        "A row of numbers, or an image, has a number as its target.",
        "a CSV file with the columns `silo`, `domain` and `target`, and a column for each input",
        "fairsilo run data.folder=plants.csv task.offset=120 task.scale=15",
    ),
}


LOSSES = {
    "classify": classify.LOSSES,
    "segment": segment.LOSSES,
    "next-character": ("cross-entropy",),
    "regress": regress.LOSSES,
}
SAMPLES = {"classify": (3, 32, 32), "segment": (3, 128, 128), "next-character": (80,), "regress": (8,)}


def described(entry: Entry) -> dict[str, Any]:
    """What the catalogue says about a method, and what it asks of data and network."""
    needs = [key for key in NEEDS if any(key in part.needs for part in entry.parts)]
    return {**entry.describe(), "needs": needs}


def generated(root: Path = ROOT) -> dict[Path, str]:
    """Path from the root -> content, for every file that the generator owns or owns a piece of."""
    found = [described(entry) for entry in CATALOGUE.values()]
    pages = {PAGES / f"{one['name']}.md": method_page(one) for one in found}
    pages |= {DATA / f"{name}.md": data_page(name, datasets.about(name)) for name in datasets.names()}
    pages |= {TASKS / f"{name}.md": task_page(name) for name in TASK_WORDS}
    pages |= {MODEL / file_of(name): model_page(name) for name in own_models()}
    pages |= {PAGES / "README.md": index(found), DATA / "README.md": data_index()}
    pages[THREATS] = with_table(THREATS, (root / THREATS).read_text(encoding="utf-8"), threats_table())
    pages |= {NOTEBOOKS / f"{page.stem}.ipynb": notebook(page.read_text(encoding="utf-8")) for page in tutorials()}
    return {**pages, MODELS: models_page(), SETTINGS: settings_page(), LEDGER: ledger(), ERRORS: errors_page()}


def tutorials() -> list[Path]:
    """The pages that are notebooks too: those with something to run in them."""
    docs = ROOT / "docs"
    pages = [*sorted((docs / "tutorials").glob("*.md")), docs / "your-own.md", docs / "your-own-data.md"]
    return [page for page in pages if CELL.search(page.read_text(encoding="utf-8"))]


def notebook(page: str) -> str:
    """A page as a notebook: its blocks of Python and commands are cells, all else is text. The tests run both."""
    cells: list[dict[str, Any]] = []
    kind = ""
    for number, piece in enumerate(CELL.split(page)):  # text, kind of a block, block, text, ...
        if number % 3 == 1:
            kind = piece
        elif piece.strip():
            source = "%%bash\n" * (number % 3 == 2 and kind == "bash") + piece.strip("\n")
            lines = source.splitlines(keepends=True)
            cell: dict[str, Any] = {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}, "source": lines}
            if number % 3:
                cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
            cells.append(cell)
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def stale(root: Path = ROOT) -> list[str]:
    """The files that differ from what would be written now, and the pages of methods that are gone."""
    wanted = generated(root)
    differing = [path for path, content in wanted.items() if _content(root / path) != content]
    return sorted(map(str, [*differing, *_left_over(root, wanted)]))


def write(root: Path = ROOT) -> None:
    wanted = generated(root)
    for folder in (PAGES, DATA, TASKS, MODEL, NOTEBOOKS):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path in _left_over(root, wanted):
        (root / path).unlink()
    for path, content in wanted.items():
        if _content(root / path) != content:
            (root / path).write_text(content, encoding="utf-8")


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _left_over(root: Path, wanted: Mapping[Path, str]) -> list[Path]:
    return [
        folder / path.name
        for folder in (PAGES, DATA, TASKS, MODEL)
        for path in (root / folder).glob("*.md")
        if folder / path.name not in wanted
    ]


# ------------------------------------------------------------------------------------------------------- the pages
def method_page(found: Mapping[str, Any]) -> str:
    """One method in full."""
    blocks = [
        f"# {found['title']} (`{found['name']}`)",
        GENERATED,
        found["idea"],
        f"Paper: {found['paper']}.",
        "```\n" + "\n".join(found["formulas"] or ["W <- sum_i p_i w_i"]) + "\n```",
        "## Run it",
        f"```\n{command(found)}\n```",
        "## Settings",
        settings(found["settings"]),
        "## What travels, what stays",
        bullets("Each silo sends", found["sends"]),
        bullets("Kept between rounds", found["keeps"]),
        bullets("Needed", [NEEDS[key].words for key in found["needs"] if NEEDS[key].words]),
        f"- The server {found['server_sees']}.",
        "- On a GPU its steps are recorded once and replayed."
        if found["recorded"]
        else "- On a GPU its steps are made one by one: they cannot be recorded.",
        f"- Results are about the {found['results_about']} model.",
        f"- Parts: {', '.join(f'`{name}`' for name in found['parts']) or 'none, the plain round'}.",
        "[All methods](README.md)",
    ]
    return joined(blocks)


def command(found: Mapping[str, Any]) -> str:
    """A command line that runs the method beside FedAvg, its first setting written out."""
    first = next(iter(found["settings"]), None)
    if found["name"] == "fedavg":
        return "fairsilo run method=fedavg"
    chosen = f'"{found["name"]}({first["name"]}={written(first["default"])})"' if first else found["name"]
    given = " data.server=PATH" if "server-data" in found["needs"] else ""
    given += ' model="small-cnn(norm=group)"' if "no-batch-norm" in found["needs"] else ""
    given += " data.synthetic=glyphs" if "synthetic-images" in found["needs"] else ""
    if found["model"]:  # FedAvg alone cannot train what it is built around
        return f"fairsilo run model={found['model']} method={chosen}{given}"
    return f"fairsilo run method={chosen} baseline=fedavg{given}"


def settings(items: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        [
            f"`{one['name']}`",
            f"`{written(one['default'])}`",
            one["range"] or "any",
            one["search"],
            one["help"],
            f"`{one['part']}`",
        ]
        for one in items
    ]
    head = ["name", "default", "range", "[searched](../tuning.md)", "meaning", "part"]
    return table(head, rows) if rows else "None."


def ledger() -> str:
    """What was run of the papers' tables."""
    found = tables()
    about = (
        "Our numbers beside the papers', from runs that are kept line by line (`src/fairsilo/experiments/results/`)"
        " since 2026-11-16. The mean of a row is over held-out domains, each of which counts once, and seeds; a "
        "difference to the first row is paired by both, with its 95 % interval (over seeds, none where a domain has "
        "one seed; not corrected for the number of rows), and is called as the paper's (or not) where that interval "
        "leaves zero out. Below each table stands what was found, in words; tables in there are of runs from before "
        "the ledger, as they came out, and their standard errors (± s.e.) count the runs of one seed on several "
        "held-out domains as independent looks, which they are not quite: take them as the least that chance can do. "
        "Nothing was tuned unless it says so. Explanations that were not tested are marked as guesses."
    )
    backbones = (
        "No pretrained ViT or CLIP can be had offline, so rows on foundation models use the **shipped tiny "
        "backbones** (tiny-vit 0.4 M, tiny-clip 1.1 M parameters, pretrained on rendered characters; the length of "
        "that was cut after a look at `glyphs`, see their card in `src/fairsilo/models/pretrained/`). They say how "
        "methods behave relative to one another on such a backbone, and nothing about a ViT-B/16. With a real "
        "checkpoint it is `model=vit:PATH` or `model=clip:PATH` and `data.size=224`."
    )
    runs = {one.name: runs_of(one, found) for one in found}
    page = ledger_page([Standing.of(one, runs[one.name]) for one in found], runs)
    return joined(["# Reproduction", GENERATED_LEDGER, about, backbones, page])


def settings_page() -> str:
    """All that a run can be told."""
    rows = [
        [f"`{one['name']}`", f"`{written(one['default'])}`", one["range"] or "any", one["help"]]
        for one in all_settings()
    ]
    about = (
        "Given as `key=value` (`fairsilo run train.rounds=20`), in a YAML file (`-c FILE`), or to `fairsilo.run`; the "
        "last word is enough where no other setting ends with it (`rounds=20`). `fairsilo settings` prints the same "
        'list. A method\'s own settings stand behind its name, as in `method="fedprox(mu=0.1)"`; [its '
        "page](methods/README.md) lists them."
    )
    head = ["name", "default", "range", "meaning"]
    return joined(["# Settings", GENERATED_SETTINGS, about, table(head, rows), *augmentation()])


def augmentation() -> list[str]:
    """The random changes of training images, and the sets of them."""
    rows = [
        [
            f"`{kind.name}`",
            kind.does,
            "; ".join(
                f"`{one['name']}` {one['help']} ({written(one['default'])}; {one['range']})"
                for one in fields_of(kind)  # type: ignore[arg-type]
            ),
        ]
        for kind in CHANGES
    ]
    about = (
        "`data.augment` names changes joined by `+`, with settings in brackets: "
        '`augment="crop + flip + rotation(degrees=30)"`. They are drawn anew for every image and step, from streams '
        "that depend on the seed, the round and the silo alone, so every engine draws alike; batches are changed on "
        "the device. Masks follow the geometry, with the nearest pixel's class. Geometry comes first, then colours "
        "(which need images of bytes), then holes, in whatever order they are named. No image is changed when a model "
        "is evaluated. Images keep their size: a crop moves or enlarges them."
    )
    sets = (
        "Sets by name: what the papers' released code does, as near as images of one size come. `ga` is GA's "
        "(FedDG-GA), `fedgcr` FedGCR's for photographs, `flamby` Fed-ISIC2019's (its random crop of larger images is "
        "`crop` here), `prostate` GRACE's for magnetic resonance images."
    )
    named = table(["set", "changes"], [[f"`{name}`", f"`{text}`"] for name, text in SETS.items()])
    return ["## Augmentation", about, table(["change", "an image is", "settings"], rows), sets, named]


def task_page(name: str) -> str:
    """One task in full: data, loss, metrics, networks, and the methods that have no meaning for it."""
    title, about, data, command_ = TASK_WORDS[name]
    task = task_of(name, 3)
    metrics = [
        [
            f"`{one.name}`",
            one.about,
            "higher" if one.higher_is_better else "lower",
            "percent" if one.share else "units of the data",
        ]
        for one in METRICS[name]
    ]
    losses = ", ".join(f"`{one}`" for one in LOSSES[name])
    refused = [entry.name for entry in CATALOGUE.values() if not _has_meaning(entry, name)]
    said = ", ".join(f"[`{one}`](../methods/{one}.md)" for one in refused) or "none"
    ending = "a number" if name == "regress" else "a value for each class"
    per = "" if task.output.per == "sample" else f" for each {task.output.per}"
    blocks = [
        f"# {title} (`{name}`)",
        GENERATED_TASKS,
        about,
        f"- Data: {data}; see [your own data](../your-own-data.md).",
        f"- Losses (`task.loss`; the first is the default): {losses}; see [the loss](../tasks.md#the-loss).",
        f"- A network ends in {ending}{per}; where `model=auto`: `{suited(name, SAMPLES[name])}`.",
        f"- Refused, since the idea has no meaning here: {said}.",
        f"```\n{command_}\n```",
        "## Metrics",
        "All of them are measured with every evaluation, with an interval from the test size; the first is reported "
        "unless `evaluate.metric` names another.",
        table(["metric", "meaning", "better", "shown in"], metrics),
    ]
    return joined(blocks)


def _has_meaning(entry: Entry, task: str) -> bool:
    """Whether every part of a method can do the task; what it needs besides is another matter."""
    kinds = ("classification", "one-class", "class-predictions", "image-task")
    facts = SimpleNamespace(task=task)
    return all(NEEDS[key].met(facts) for part in entry.parts for key in kinds if key in part.needs)  # type: ignore[arg-type]


def data_page(name: str, facts: About) -> str:
    """One data set in full."""
    rows = [[f"`{domain}`", str(count) if count else "not fixed"] for domain, count in facts.domains.items()]
    stand_ins = [f"- `{domain}` stands in for a domain: {word}." for domain, word in facts.stand_ins.items()]
    checked = [f"- `{file}`: `{digest}`" for file, digest in facts.sha256.items()]
    size = "data.size=64" if facts.task != "next-character" else ""
    sample = " ".join(filter(None, (f"fairsilo run data={name} data.root=PATH", facts.usual, size)))
    blocks = [
        f"# {facts.title} (`{name}`)",
        GENERATED_DATA,
        f"{facts.shows[0].upper()}{facts.shows[1:]}.",
        f"- Task: `{facts.task}`; classes: {', '.join(facts.classes)}.",
        f"- Licence: {facts.licence}.",
        f"- Size: {facts.size}.",
        f"- Citation: {facts.citation}.",
        table(["domain", "samples"], rows),
        *stand_ins,
        "## How to get it",
        facts.obtain,
        f"Looked for under `data.root` (or `FAIRSILO_DATA`) as {', '.join(f'`{one}`' for one in facts.places)}, or in "
        "that folder itself, in this order:",
        *(f"- {layout.words}" for layout in datasets.layouts(name)),
        f"```\nfairsilo datasets {name} --root PATH\n{sample}\n```",
        "## Protocols",
        *(f"- {text}." for text in facts.protocols),
        *(["## Files that were checked (sha256)", *checked] if checked else []),
        "[All data sets](README.md)",
    ]
    return joined(blocks)


def data_index() -> str:
    """The list of all data sets."""
    found = {name: datasets.about(name) for name in datasets.names()}
    rows = [[f"[`{name}`]({name}.md)", one.shows, one.task, one.licence] for name, one in found.items()]
    about = (
        "Public data sets that fairsilo reads in the forms people have them. Nothing is downloaded; `fairsilo datasets "
        "NAME` says how to get one, where it is looked for and what is found. `fairsilo datasets prepare NAME --from "
        "PATH --size 64` converts it once into memory-mapped files, of which a batch reads only what it needs. "
        "[Your own data](../your-own-data.md) need no entry here."
    )
    return joined(["# Data sets", GENERATED_DATA, about, table(["name", "what it shows", "task", "licence"], rows)])


def bullets(title: str, items: Iterable[str]) -> str:
    return f"- {title}: {'; '.join(items) or 'nothing'}."


def index(descriptions: Iterable[Mapping[str, Any]]) -> str:
    """The list of all pages."""
    rows = [
        [f"[`{one['name']}`]({one['name']}.md)", one["idea"], one["results_about"], one["paper"]]
        for one in descriptions
    ]
    about = "They compose with `|`, as in `fedprox(mu=0.1) | fedheal`; `fairsilo methods NAME` prints the same facts."
    return joined(["# Methods", GENERATED, about, table(["name", "idea", "results about", "paper"], rows)])


# ------------------------------------------------------------------------------------ pages with a table of methods
def with_table(page: Path, text: str, made: str) -> str:
    """A page with the table between its marks written anew."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} must hold {BEGIN} and {END} around the table of methods")
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def threats_table() -> str:
    """What each method reveals to whom, under any of its settings."""
    head = ["method", "the server needs of each silo", "of all silos together", "other silos get", "stays at the silo"]
    return table(head, [revealed(entry) for entry in CATALOGUE.values()])


def revealed(entry: Entry) -> list[str]:
    """A row of that table, from what the parts declare."""
    sent = [one for part in entry.parts for one in part.about.sends]
    single = any(one.is_single_update for one in sent)
    update = [] if NoSharing in entry.parts else ["its update"]
    alone = [*(update if single else ()), *(one.words for one in sent if one.to != "silos" and one.per == "silo")]
    together = [*(() if single else update), *(one.words for one in sent if one.to != "silos" and one.per != "silo")]
    others = [one.words for one in sent if one.to != "server"]
    stays = [text for part in entry.parts for text in part.about.keeps if "at the silo" in text]
    cells = ("; ".join(dict.fromkeys(filter(None, words))) for words in (alone, together, others, stays))
    return [f"[`{entry.name}`](methods/{entry.name}.md)", *(cell or "-" for cell in cells)]


if __name__ == "__main__":
    write()
