"""The command line: reads arguments, calls the library, prints. No logic of its own; torch is imported on use."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fairsilo import __version__
from fairsilo.config import Experiment, all_settings, experiment, read_yaml
from fairsilo.errors import FairsiloError, StoppedError, UnknownSettingError
from fairsilo.runs.comparison import read_plan

app = typer.Typer(
    help="Cross-silo federated learning under domain shift: generalise, personalise, stay fair.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)

Settings = Annotated[
    list[str] | None, typer.Argument(help="settings as key=value, such as method=fedprox rounds=20 data.folder=images")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="a YAML file of settings")]
OutFolder = Annotated[Path | None, typer.Option("--out", "-o", help="the run folder; by default one under runs/")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of tables")]


def main() -> None:
    """Entry point: bad input ends with one sentence and exit code 2, a stopped run with 1."""
    try:
        app()
    except StoppedError as problem:
        errors.print(f"stopped: {problem}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except FairsiloError as problem:
        errors.print(f"error: {_explained(problem)}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


def _explained(problem: FairsiloError) -> str:
    """What is no setting of a run may be one of a method, which stands behind its name."""
    if not isinstance(problem, UnknownSettingError):
        return str(problem)
    from fairsilo.methods.catalogue import having

    owners = having(problem.key)
    if not owners:
        return str(problem)
    more = f" and {len(owners) - 3} more" if len(owners) > 3 else ""
    return (
        f"{problem.key!r} is no setting of a run but of methods ({', '.join(owners[:3])}{more}); it stands behind "
        f'their name, as in "{owners[0]}({problem.key}=...)"'
    )


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        console.print(f"fairsilo {__version__}", highlight=False)
        raise typer.Exit


@app.command()
def run(settings: Settings = None, config: ConfigFile = None, out: OutFolder = None, as_json: AsJson = False) -> None:
    """Train a federation with one domain held out; write a run folder with a report.

    Without settings: FAA beside FedAvg on the embedded federation `glyphs`.
    """
    chosen = _experiment(config, settings)
    from fairsilo.runs import experiment as work

    _show(lambda listener: work.run(chosen, out=out, listener=listener), as_json, chosen)


@app.command()
def resume(folder: Annotated[Path, typer.Argument(help="a run folder")], as_json: AsJson = False) -> None:
    """Go on with a run that was interrupted, to the same numbers."""
    from fairsilo.runs import experiment as work

    chosen = work.read_experiment(folder)
    _show(lambda listener: work.resume(folder, listener), as_json, chosen)


@app.command()
def compare(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="methods and settings as key=value", metavar="[METHOD...]")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="a YAML file: settings, methods or grid, seeds, held-out domains"),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="seeds, separated by commas")] = None,
    held_out: Annotated[str | None, typer.Option(help="domains, separated by commas, or 'all'")] = None,
    out: OutFolder = None,
    as_json: AsJson = False,
) -> None:
    """Methods x held-out domains x seeds: a table with means, spreads and paired differences to the first method.

    A file may name methods: [..] or a grid: {rows: [..], columns: [..]} of compositions, seeds: [..] and
    held_out_domains: all or [..].
    """
    names = [text for text in arguments or () if not _is_setting(text)]
    given = [text for text in arguments or () if _is_setting(text)]
    plan = read_plan(config, given, methods=names, seeds=seeds, held_out=held_out)
    from fairsilo.cli.progress import ProgressListener
    from fairsilo.runs import experiment as work

    if out is None and config is not None and not names:
        out = Path("runs") / work.slug(f"compare-{config.stem}")
    with _interruptible("the same command"), ProgressListener(console, quiet=as_json) as listener:
        found = work.compare(
            plan.methods,
            experiment=plan.experiment,
            seeds=plan.seeds,
            held_out=plan.held_out,
            grid=plan.grid,
            out=out,
            listener=listener,
        )
    page = _write_comparison(found.folder)
    content = found.as_dict()
    if as_json:
        print(json.dumps(content))  # noqa: T201 - for scripts: exactly the JSON, no terminal formatting
        return
    _show_comparison(content, page)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="a run folder, or a comparison's")], as_json: AsJson = False
) -> None:
    """Write the HTML page of a run or of a comparison again and print its table."""
    if (folder / "comparison.json").exists():
        _report_comparison(folder, as_json)
        return
    from fairsilo.runs import experiment as work

    work.read_experiment(folder)
    from fairsilo.report.page import write_report
    from fairsilo.report.tables import run_table
    from fairsilo.runs.folder import Store

    stores = [Store(place) for place in _runs(folder)]
    found = [(store.read_json("run.json")["method"], store.read_json("summary.json")) for store in stores]
    if not found:
        raise FairsiloError(f"{folder} has no results yet; `fairsilo resume {folder}` goes on with it")
    path = write_report(folder)
    if as_json:
        print(json.dumps({"report": str(path), "summary": found[0][1]}))  # noqa: T201
        return
    console.print(run_table(*found[0], found[1] if len(found) > 1 else None))
    console.print(f"report: {path}", highlight=False, soft_wrap=True)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="one method, in full")] = None, as_json: AsJson = False
) -> None:
    """The catalogue: papers, parts, settings with ranges and defaults, what is sent and kept."""
    from fairsilo.methods.catalogue import CATALOGUE, entry

    found = [entry(name).describe()] if name else [one.describe() for one in CATALOGUE.values()]
    if as_json:
        print(json.dumps(found))  # noqa: T201
    elif name:
        _describe(found[0])
    else:
        from fairsilo.report.tables import methods_table

        console.print(methods_table(found))


@app.command("settings")
def list_settings(
    name: Annotated[str | None, typer.Argument(help="a group such as train, or one setting")] = None,
    as_json: AsJson = False,
) -> None:
    """What a run can be told as key=value: defaults, ranges, meanings."""
    words = {one["name"]: {one["name"], *one["name"].split(".")} for one in all_settings()}
    found = [one for one in all_settings() if not name or name in words[one["name"]]]
    if name and not found:
        raise UnknownSettingError(name, set().union(*words.values()))
    if as_json:
        print(json.dumps(found))  # noqa: T201
    else:
        from fairsilo.report.tables import settings_table

        console.print(settings_table(found))


@app.command()
def datasets(
    name: Annotated[str | None, typer.Argument(help="one data set, in full")] = None, as_json: AsJson = False
) -> None:
    """The embedded federations, and what your own data must look like."""
    from fairsilo.data import DATASETS, load

    if not name:
        rows = [{"name": key, "about": about} for key, about in DATASETS.items()]
        if as_json:
            print(json.dumps(rows))  # noqa: T201
            return
        for row in rows:
            console.print(f"{row['name']}: {row['about']}", highlight=False)
        console.print(
            "your own: data.folder=PATH with PATH/domain/class/*.png (or a CSV/JSON index with path, label, domain),\n"
            "          data.packed=PATH with one .npz per domain",
            highlight=False,
        )
        return
    found = load(name=name)
    facts: dict[str, Any] = {"name": found.name, "about": found.about, "classes": list(found.classes), "domains": {}}
    for domain in found.domains.values():
        counts = {split: int((domain.split == i).sum()) for i, split in enumerate(("train", "validation", "test"))}
        facts["domains"][domain.name] = counts
    if as_json:
        print(json.dumps(facts))  # noqa: T201
        return
    console.print(f"{found.name}: {found.about}\nclasses: {', '.join(found.classes)}", highlight=False)
    for domain_name, counts in facts["domains"].items():
        console.print(f"  {domain_name}: " + ", ".join(f"{n} {split}" for split, n in counts.items()), highlight=False)


RunFolder = Annotated[Path, typer.Argument(help="the folder of a finished run")]
OfSilo = Annotated[str | None, typer.Option("--silo", help="use this silo's own model instead of the global one")]
Which = Annotated[str, typer.Option("--model", help="which of a silo's own models: best (by validation) or last")]
NewData = Annotated[
    str,
    typer.Option("--data", help="PATH/class/image, PATH/domain/class/image, an index, packed files, or glyphs:street"),
]


@app.command()
def predict(
    folder: RunFolder,
    images: Annotated[list[Path], typer.Argument(help="image files, or folders of them")],
    silo: OfSilo = None,
    model: Which = "best",
    as_json: AsJson = False,
) -> None:
    """Classify images with the global model of a run, or with a silo's own.

    With FedAG's global model also: how much each silo's adapter counts in the answer.
    """
    _check_which(model)
    from fairsilo.data.newcomer import read_images
    from fairsilo.report.tables import predictions_table
    from fairsilo.runs.trained import Trained

    trained = Trained(folder)
    names, pixels = read_images(images, trained.size)
    found = trained.predict(pixels, silo, model).tolist()
    rows: list[dict[str, Any]] = [
        {"image": name, "probabilities": dict(zip(trained.classes, p, strict=True))}
        for name, p in zip(names, found, strict=True)
    ]
    attention = None if silo else trained.attention(pixels)
    if attention is not None:
        for row, weights in zip(rows, attention.tolist(), strict=True):
            row["attention"] = dict(zip(trained.silos, weights, strict=True))
    if as_json:
        print(json.dumps(rows))  # noqa: T201
        return
    console.print(predictions_table(rows))


@app.command()
def evaluate(
    folder: RunFolder,
    data: NewData,
    silo: OfSilo = None,
    model: Which = "best",
    adapt: Annotated[
        str | None, typer.Option("--adapt", help="adapt at test time first: dsbn, tent(adapt_lr=0.01)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a run's global model, or a silo's own, on labelled data that it never saw."""
    _check_which(model)
    from fairsilo.data.newcomer import read_newcomer
    from fairsilo.report.tables import measures_table
    from fairsilo.runs.trained import Trained

    trained = Trained(folder)
    rows = trained.evaluate(read_newcomer(data, trained.classes, trained.size), silo, model, adapt)
    if as_json:
        print(json.dumps(rows))  # noqa: T201
        return
    console.print(measures_table(rows))


@app.command()
def personalise(
    folder: RunFolder,
    data: NewData,
    name: Annotated[str | None, typer.Option("--name", help="of the new silo; by default its domain's")] = None,
    validation: Annotated[float, typer.Option(help="share of the training samples kept for validation")] = 0.15,
    test: Annotated[float, typer.Option(help="share of the samples kept for testing, where the data do not say")] = 0.2,
    as_json: AsJson = False,
) -> None:
    """Let a new silo join a finished run: its own model from the global one, by the method's own rule."""
    from fairsilo.data.newcomer import read_newcomer
    from fairsilo.report.tables import personalised_table
    from fairsilo.runs.trained import Trained

    trained = Trained(folder)
    domains = read_newcomer(data, trained.classes, trained.size)
    if name and len(domains) > 1:
        raise FairsiloError(f"{data} has {len(domains)} domains, and --name names one silo; give one domain")
    found = [trained.personalise(name or key, domain, validation, test) for key, domain in domains.items()]
    if as_json:
        print(json.dumps(found))  # noqa: T201
        return
    console.print(personalised_table(found))
    for one in found:
        console.print(f"model: {one['model']}", highlight=False, soft_wrap=True)


@app.command()
def figure(
    name: Annotated[str, typer.Argument(help="a figure, or `all`; without a run: `list`")],
    folder: Annotated[
        Path | None, typer.Argument(help="a finished run with evaluate.keep_local=true (or FedAG's)")
    ] = None,
    options: Annotated[list[str] | None, typer.Argument(help="options as key=value")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a diagnostic of a run as SVG, PNG and CSV, and put it into the report."""
    from fairsilo.report.figures import FIGURES, figures_of, options_of, write_figure

    if name == "list":
        for key, diagram in FIGURES.items():
            console.print(f"{key}: {diagram.about}", markup=False, highlight=False, soft_wrap=True)
        return
    if folder is None:
        raise FairsiloError(f"`fairsilo figure {name}` needs the folder of a run")
    names = list(FIGURES) if name == "all" else [name]
    chosen = {one: options_of(one, options or ()) for one in names}
    from fairsilo.report.page import write_report
    from fairsilo.runs.trained import Replayed

    replay = Replayed(folder)
    names = figures_of(replay) if name == "all" else names
    written = [path for one in names for path in write_figure(one, replay, folder / "figures", **chosen[one])]
    page = write_report(folder)
    if as_json:
        print(json.dumps({"files": [str(path) for path in written], "report": str(page)}))  # noqa: T201
        return
    for path in (*written, page):
        console.print(str(path), markup=False, highlight=False, soft_wrap=True)


def _check_which(model: str) -> None:
    if model not in ("best", "last"):
        raise FairsiloError(f"--model is {model!r}; it must be best or last")


@contextmanager
def _interruptible(resume: str) -> Iterator[None]:
    """Ctrl-C ends with the way to go on; the folder is whole at any instant."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print(f"interrupted; {resume} goes on from the last complete round", markup=False, highlight=False)
        raise typer.Exit(130) from None


def _experiment(file: Path | None, settings: list[str] | None) -> Experiment:
    return experiment(read_yaml(file) if file else {}, settings or [])


def _is_setting(text: str) -> bool:
    """`rounds=5` is a setting; `fedprox(mu=0.1)` is a method."""
    return "=" in text.split("(", maxsplit=1)[0]


def _write_comparison(folder: Path) -> Path:
    """The page, and the tables for spreadsheets and papers."""
    from fairsilo.report.comparison_page import read_comparison, write_comparison
    from fairsilo.report.tables import comparison_csv, comparison_latex

    content = read_comparison(folder)
    (folder / "comparison.csv").write_text(comparison_csv(content), encoding="utf-8")
    (folder / "comparison.tex").write_text(comparison_latex(content), encoding="utf-8")
    return write_comparison(folder)


def _show_comparison(content: dict[str, Any], page: Path) -> None:
    from fairsilo.report.tables import comparison_table, held_out_tables

    for table in (*held_out_tables(content), comparison_table(content)):
        console.print(table)
    console.print(f"page: {page}", highlight=False, soft_wrap=True)
    console.print(f"also as CSV, LaTeX and JSON: {page.parent}/comparison.*", highlight=False, soft_wrap=True)


def _report_comparison(folder: Path, as_json: bool) -> None:
    from fairsilo.analysis.metrics import compare_cells
    from fairsilo.report.comparison_page import read_comparison

    page, content = _write_comparison(folder), read_comparison(folder)
    if as_json:
        table = compare_cells(content["methods"], content["cells"])
        print(json.dumps({"report": str(page), "table": table}))  # noqa: T201
        return
    _show_comparison(content, page)


def _runs(folder: Path) -> list[Path]:
    return [place for place in (folder, folder / "baseline") if (place / "summary.json").exists()]


def _show(work: Callable[[Any], Any], as_json: bool, chosen: Experiment) -> None:
    from fairsilo.cli.progress import ProgressListener
    from fairsilo.report.tables import run_table
    from fairsilo.runs.experiment import sends_of

    sends = sends_of(chosen)
    if sends and not as_json:
        console.print(f"{chosen.method} sends, besides the model: {'; '.join(sends)}", highlight=False, soft_wrap=True)
    with _interruptible("`fairsilo resume FOLDER`"), ProgressListener(console, quiet=as_json) as listener:
        result = work(listener)
    if as_json:
        print(json.dumps(result.as_dict()))  # noqa: T201
        return
    beside = (result.baseline.method, result.baseline.summary) if result.baseline else None
    console.print(run_table(result.method, result.summary, beside))
    console.print(f"run folder: {result.folder}", highlight=False, soft_wrap=True)
    console.print(f"report: {result.folder / 'report.html'}", highlight=False, soft_wrap=True)


def _describe(found: dict[str, Any]) -> None:
    from fairsilo.report.tables import written

    lines = [f"{found['title']} ({found['name']}): {found['idea']}"]
    lines += [f"paper: {found['paper']}", f"parts: {', '.join(found['parts']) or 'none: the plain round'}"]
    lines += [f"formula: {text}" for text in found["formulas"]]
    for item in found["settings"]:
        allowed = f" [{item['range']}]" if item["range"] else ""
        lines.append(f"  {item['name']} = {written(item['default'])}{allowed}: {item['help']}")
    lines += [f"sends: {text}" for text in found["sends"]]
    lines += [f"keeps: {text}" for text in found["keeps"]] or ["keeps: nothing"]
    lines.append(f"results are about: the {found['results_about']} model")
    lines.append(f"the server {found['server_sees']}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
