"""Tables for the terminal, for spreadsheets and for papers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from fairsilo.analysis.chance import GUESSED
from fairsilo.analysis.groups import by_column
from fairsilo.analysis.metrics import (
    AT_HOME,
    CLUSTERED,
    HEADLINES,
    TAILS,
    VARIANCE,
    at_chance,
    by_held_out,
    guessed_by_held_out,
    headline,
    judged_fairness,
    mean,
    of_own_models,
    with_own_models,
)
from fairsilo.analysis.paired import compare_cells
from fairsilo.analysis.privacy import words
from fairsilo.report.left_out import left_out, left_out_tables
from fairsilo.report.repeats import repeats
from fairsilo.report.spreadsheet import csv_text
from fairsilo.report.texts import size
from fairsilo.report.units import in_its_unit, shown_in, unit
from fairsilo.runs.inventory import Kept

SELECTIONS = {
    "last": "last round",
    "last5": "mean of the last five evaluations",
    "source-validation": "best round on the training silos' validation data",
    "oracle": "ORACLE: best round on the unseen test data",
}


SIGN = GUESSED.partition(" ")[0]  # alone, where there is little room
CHANCE = (
    f"{GUESSED}: no better than always naming the most frequent class or guessing evenly (the lower end of the 95 % "
    "interval from the test size is not above that), so that its spread says nothing about fairness"
)
RUNS_OF = "method, held out, seed"
LABELS = {"generalisation": "generalise", "personalisation": "personalise", "fairness": "fair (mean)"}
MEANINGS = (
    "generalise: the global model on the unseen domain; personalise: silos' own models at home; fair: standard "
    "deviation over silos, lower is more even, in brackets the mean that it is around; worst and best tenth, variance: "
    "of silos"
)
OWN = "own models"
OF_OWN = (
    f"{OWN}: mean, spread and tails over silos are those of the silos' own models; of the other methods, those of the "
    "global model"
)


def percent(value: float | None, sign: bool = False) -> str:
    """A result in its unit, which for shares is percent."""
    if value is None:
        return "-"
    shown = unit().number(value)
    return f"+{shown}" if sign and not shown.startswith("-") else shown


def squared(value: float | None) -> str:
    """A variance, in the square of the unit."""
    return "-" if value is None else unit().number(value, 2)


def _of_run(
    method: str, summary: Mapping[str, Any], baseline: tuple[str, Mapping[str, Any]] | None = None
) -> Mapping[str, Any]:
    return summary


def of_comparison(comparison: Mapping[str, Any]) -> Mapping[str, Any]:
    """The summary that says which metric a comparison is about: that of its first run."""
    found: Mapping[str, Any] = comparison["cells"][0]["summary"] if comparison["cells"] else {}
    return found


@in_its_unit(_of_run)
def run_table(method: str, summary: Mapping[str, Any], baseline: tuple[str, Mapping[str, Any]] | None = None) -> Table:
    """The three answers and every silo's row, the baseline's beside."""
    runs = [(method, summary), *([baseline] if baseline else [])]
    rounds = ", ".join(map(str, summary["rounds"]))
    names = " beside ".join(escape(name) for name, _ in runs)
    title = f"{names} — {unit().title}; {SELECTIONS[summary['selection']]} ({rounds})"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name, _ in runs:
        table.add_column(escape(name), justify="right")
        table.add_column("own model", justify="right", style="dim")
    numbers = [headline(content) for _, content in runs]
    guessed = [at_chance(content) for _, content in runs]
    for key in HEADLINES:
        shown = [beside_mean(percent(found[key]), key, found[AT_HOME]) for found in numbers]
        if key == "fairness":
            shown = [
                f"{text}, {OWN}" if of_own_models(run) else text for text, (_, run) in zip(shown, runs, strict=True)
            ]
        cells = [
            cell for text, marks in zip(shown, guessed, strict=True) for cell in (_marked(text, marks[key], SIGN), "")
        ]
        table.add_row(LABELS[key], *cells, style="bold")
    ends = [" to ".join(percent(found[key]) for key in TAILS) for found in numbers]
    table.add_row("worst to best tenth", *(cell for text in ends for cell in (text, "")))
    spreads = [squared(found[VARIANCE]) for found in numbers]
    label = f"variance, {unit().squared}"
    table.add_row(label, *(cell for text in spreads for cell in (text, "")), end_section=True)
    if any(CLUSTERED in content for _, content in runs):
        cells = [cell for _, content in runs for cell in (percent(content.get(CLUSTERED)), "")]
        table.add_row("clustering accuracy", *cells, end_section=True)
    for one in summary.get("privacy") or ():
        largest = words(max(one["epsilon"].values())) if one["epsilon"] else "no noise"
        label = f"largest epsilon of {one['part']}, delta {one['delta']:g}"
        table.add_row(label, largest, *[""] * (2 * len(runs) - 1), end_section=True)
    by_silo = [{row["silo"]: row for row in content["silos"]} for _, content in runs]
    for row in summary["silos"]:
        label = f"{row['silo']} (unseen)" if row["unseen"] else row["silo"]
        cells = []
        for rows in by_silo:
            found = rows.get(row["silo"], {})
            marks = found.get("at_chance") or ()
            cells += [
                _marked(_adapted(found), ("global" if found.get("adapted") is None else "adapted") in marks, SIGN),
                _marked(percent(found.get("personal")), "personal" in marks, SIGN),
            ]
        table.add_row(escape(label), *cells)
    clusters = "clustering accuracy: silos in a cluster of their domain"
    notes = [MEANINGS, *([clusters] if any(CLUSTERED in content for _, content in runs) else [])]
    return explained(table, any(of_own_models(run) for _, run in runs), notes)


def _marked(text: str, guessed: bool, mark: str = GUESSED) -> str:
    return f"{text} {mark}" if guessed else text


def beside_mean(text: str, key: str, centre: float | None) -> str:
    """A spread with the mean that it is around: alone it would praise a model that is equally bad everywhere."""
    return f"{text} ({percent(centre)})" if key == "fairness" and centre is not None else text


def explained(table: Table, own: bool = False, first: Sequence[str] = ()) -> Table:
    """With a line below that says what the mark of chance means, where one stands in the table, and one for `OWN`."""
    guessed = any(SIGN in str(cell) for column in table.columns for cell in column.cells)
    notes = [*first, *[CHANCE] * guessed, *[OF_OWN] * own]
    table.caption, table.caption_justify = "\n".join(notes) or None, "left"
    return table


def comparison_tables(comparison: Mapping[str, Any]) -> list[Table]:
    """All tables of a comparison; what a mark means stands once, under the last table that has it."""
    tables = [*held_out_tables(comparison), comparison_table(comparison), spread_table(comparison)]
    tables += left_out_tables(comparison)
    said: set[str] = set()
    for table in reversed(tables):
        notes = str(table.caption or "").splitlines()
        table.caption = "\n".join(note for note in notes if note not in said) or None
        said.update(notes)
    return tables


def marked_own(method: str, own: Collection[str]) -> str:
    """The method, and whether fairness is that of its silos' own models."""
    return f"{method} ({OWN})" if method in own else method


def _adapted(silo: Mapping[str, Any]) -> str:
    """The global model's result and, where it was adapted at test time, what became of it."""
    plain = percent(silo.get("global"))
    return plain if silo.get("adapted") is None else f"{plain} -> {percent(silo['adapted'])}"


@in_its_unit(of_comparison)
def held_out_tables(comparison: Mapping[str, Any]) -> list[Table]:
    """As papers have it: methods x held-out domains with their mean and deviation, one table per headline."""
    tables, rows = [], compare_cells(comparison["methods"], comparison["cells"])
    own, behind = with_own_models(comparison["cells"]), repeats(comparison)
    over_seeds = f"mean over {behind.over_seeds}" if behind.seeds.most > 1 else behind.over_seeds
    for key in HEADLINES if len(comparison["held_out"]) > 1 else ():
        spread = f"std over silos in {unit().points}, lower is more even (mean)"
        shown = spread if key == "fairness" else unit().title
        title = f"{key} by held-out domain: {shown}, {over_seeds}; std is over domains"
        table = Table(title=title, title_justify="left")
        table.add_column("method")
        for name in (*comparison["held_out"], "mean", "std"):
            table.add_column(escape(name), justify="right")
        spreads = {row["method"]: row[key]["std_domains"] for row in rows}
        for method in comparison["methods"]:
            found, centres = (by_held_out(comparison["cells"], method, one) for one in (key, AT_HOME))
            guessed = guessed_by_held_out(comparison["cells"], method, key)
            table.add_row(
                escape(marked_own(method, own) if key == "fairness" else method),
                *(
                    _marked(beside_mean(percent(found.get(name)), key, centres.get(name)), name in guessed)
                    for name in comparison["held_out"]
                ),
                _marked(beside_mean(percent(found["mean"]), key, centres["mean"]), bool(guessed)),
                percent(spreads[method]),
            )
        tables.append(explained(table, key == "fairness" and bool(own)))
    return tables


def means(comparison: Mapping[str, Any]) -> str:
    """What a mean and the ± behind it are over, in words."""
    behind = repeats(comparison)
    over = f" over {behind.domains.words('held-out domain')}" if behind.domains.most > 1 else ""
    if behind.varied:
        return f"mean{over} ± std over {behind.over_seeds}"
    return f"mean{over}, {behind.over_seeds}" if over else "one run"


@in_its_unit(of_comparison)
def comparison_table(comparison: Mapping[str, Any]) -> Table:
    """Methods x headlines: mean ± deviation over seeds, then the paired difference to the first method."""
    rows = compare_cells(comparison["methods"], comparison["cells"])
    selection = SELECTIONS[comparison["cells"][0]["summary"]["selection"]]
    beside = _minus_the_first(comparison)
    table = Table(title=f"{unit().title}, {means(comparison)}; {selection}", title_justify="left")
    table.add_column("method")
    for key in HEADLINES:
        what = f"{key}: std over silos, lower is more even (mean)" if key == "fairness" else key
        table.add_column(_above(what, beside), justify="right")
    clustered = _clustered(comparison)
    if clustered:
        table.add_column("clustering accuracy", justify="right")
    own = with_own_models(comparison["cells"])
    for row in rows:
        texts = []
        for key in HEADLINES:
            found = row[key]
            shown = beside_mean(with_spread(found), key, row[AT_HOME]["mean"]) + in_runs(found, row["cells"])
            texts.append(
                _above(shown, paired_difference(found), OWN if key == "fairness" and row["method"] in own else "")
            )
        if clustered:
            texts.append(percent(clustered.get(row["method"])))
        table.add_row(escape(row["method"]), *texts)
    return explained(table, bool(own))


@in_its_unit(of_comparison)
def spread_table(comparison: Mapping[str, Any]) -> Table:
    """Methods x mean, worst and best tenth, and variance over silos, as q-FFL and FFT-GP report them."""
    table = Table(title=f"over silos: {unit().title}, {means(comparison)}", title_justify="left")
    table.add_column("method")
    table.add_column(_above("mean", _minus_the_first(comparison)), justify="right")
    own = with_own_models(comparison["cells"])
    for name in ("worst tenth", "best tenth", f"variance, {unit().squared}"):
        table.add_column(name, justify="right")
    for row in compare_cells(comparison["methods"], comparison["cells"]):
        marked = in_runs(row[AT_HOME], row["cells"])
        numbers = [with_spread(row[key]) for key in (AT_HOME, *TAILS)] + [with_spread(row[VARIANCE], squared)]
        average = _above(numbers[0] + marked, paired_difference(row[AT_HOME]))
        table.add_row(escape(marked_own(row["method"], own)), average, *numbers[1:])
    return explained(table, bool(own))


def in_runs(found: Mapping[str, Any], runs: int) -> str:
    """The mark of chance, and in how many runs."""
    count = found["at_chance"]
    return "" if not count else f" {GUESSED}" if count == runs else f" {GUESSED} in {count} of {runs} runs"


def _clustered(comparison: Mapping[str, Any]) -> dict[str, float]:
    """Of the methods that cluster silos: the share in a cluster of their domain, mean over cells."""
    found: dict[str, list[float]] = {}
    for cell in comparison["cells"]:
        if CLUSTERED in cell["summary"]:
            found.setdefault(cell["method"], []).append(cell["summary"][CLUSTERED])
    return {method: mean(values) for method, values in found.items()}


def with_spread(found: Mapping[str, Any], written: Callable[[float | None], str] = percent) -> str:
    spread = f" ± {written(found['std'])}" if found["std"] is not None else ""
    return written(found["mean"]) + spread


def _minus_the_first(comparison: Mapping[str, Any]) -> str:
    """What differences are called at the head of a column; nothing where there are none."""
    first, *others = comparison["methods"]
    return f"minus {escape(first)}" + "\n± 95 %" * repeats(comparison).paired if others else ""


def _above(shown: str, *below: str) -> str:
    """A number with what is said of it in lines below, where anything is."""
    return "\n".join([shown, *(f"[dim]{one}[/dim]" for one in below if one)])


def paired_difference(found: Mapping[str, Any]) -> str:
    """To the first method, with its margin; empty for the first itself."""
    if found["difference"] is None:
        return ""
    margin = f" ± {percent(found['margin'])}" if found["margin"] is not None else ""
    return percent(found["difference"], sign=True) + margin


def comparison_csv(comparison: Mapping[str, Any]) -> str:
    """One line per cell, so that any statistic can be recomputed; last those that are left out, with why."""
    columns = ["method", "held_out", "seed", *HEADLINES, "fairness_of", "fairness_mean", "fairness_chance_level"]
    columns += [f"fairness_{key}" for key in (*TAILS, VARIANCE)]
    columns += [*(f"{key}_at_chance" for key in HEADLINES), "gap_variance", CLUSTERED, "selection"]
    grouped = [by_column(cell["summary"]) for cell in comparison["cells"]]
    columns += dict.fromkeys(key for one in grouped for key in one)
    rows = []
    for cell, groups in zip(comparison["cells"], grouped, strict=True):
        summary = cell["summary"]
        numbers = headline(summary)
        rows.append(
            {key: cell[key] for key in ("method", "held_out", "seed")}
            | {key: numbers[key] for key in HEADLINES}
            | {"fairness_of": OWN if of_own_models(summary) else "global model"}
            | {"fairness_mean": numbers[AT_HOME], "fairness_chance_level": judged_fairness(summary).get("chance")}
            | {f"fairness_{key}": numbers[key] for key in (*TAILS, VARIANCE)}
            | {f"{key}_at_chance": guessed for key, guessed in at_chance(summary).items()}
            | {"gap_variance": summary["fairness"]["gap_variance"], CLUSTERED: summary.get(CLUSTERED)}
            | {"selection": summary["selection"]}
            | groups
        )
    gone = left_out(comparison)
    rows += [{key: run[key] for key in ("method", "held_out", "seed")} | {"left_out": run["why"]} for run in gone]
    return csv_text([*columns, *(["left_out"] if gone else [])], rows)


def methods_table(descriptions: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=f"{len(descriptions)} methods; compose them with |, as in 'fedprox(mu=0.1) | fedheal'")
    for column in ("name", "idea", "settings", "results about"):
        table.add_column(column)
    for found in descriptions:
        settings = ", ".join(dict.fromkeys(f"{item['name']}={written(item['default'])}" for item in found["settings"]))
        table.add_row(*map(escape, (found["name"], found["idea"], settings, found["results_about"])))
    return table


def models_table(descriptions: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=f"{len(descriptions)} networks; settings stand behind the name, as in 'unet(norm=group)'")
    table.add_column("name", no_wrap=True)
    table.add_column("what it is, and what it takes", overflow="fold")
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("for", overflow="fold")
    for found in descriptions:
        about = f"{found['about']} {found['takes'][:1].upper()}{found['takes'][1:]}."
        size = counted(found).partition(" (")[0]
        table.add_row(*map(escape, (found["name"], about, size, ", ".join(found["tasks"]))))
    return table


def counted(found: Mapping[str, Any]) -> str:
    """How many parameters a network has, and with how many classes; empty where its checkpoint decides."""
    count = found["parameters"]
    size = f"{count / 1e6:.2f} M" if count >= 1e5 else f"{count:,}"
    return f"{size} ({found['classes']} classes)" if count else ""


def settings_table(listed: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="settings as key=value; the last word is enough where no other setting ends with it")
    for column in ("name", "default", "range", "meaning"):
        table.add_column(column, overflow="fold")
    for one in listed:
        table.add_row(*map(escape, (one["name"], written(one["default"]), one["range"], one["help"])))
    return table


def written(value: Any) -> str:
    """A default as it is written on the command line."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def predictions_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The likeliest class of each image, its probability, and the runner-up; where adapters answered, whose."""
    table = Table()
    table.add_column("image", overflow="fold")
    for column in ("class", "probability", "then", "probability"):
        table.add_column(column, justify="right" if column == "probability" else "left")
    if any("attention" in row for row in rows):
        table.add_column("attention")
    for row in rows:
        cells = [text for name, value in _ranked(row["probabilities"])[:2] for text in (escape(name), f"{value:.3f}")]
        shares = [f"{escape(silo)} {100 * value:.0f} %" for silo, value in _ranked(row.get("attention", {}))]
        table.add_row(escape(row["image"]), *cells, *([", ".join(shares)] if shares else []))
    return table


def _ranked(values: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda item: -item[1])


def runs_table(runs: Sequence[Kept], root: Path, now: float) -> Table:
    """Runs of a folder: state, the three answers, size and age, and what they are of, as folders may have any name."""
    title = "results: generalise / personalise / spread over silos (mean)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("state", no_wrap=True)
    for name in ("rounds", "results", "size", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(RUNS_OF, overflow="fold")
    table.add_column("run", overflow="fold")
    for one in runs:
        done, planned = one.rounds
        rounds = f"{done}" if planned in (None, done) else f"{done} of {planned}"
        where = one.folder.relative_to(root) if one.folder != root else one.folder
        table.add_row(
            one.state,
            rounds,
            _answers(one),
            size(one.bytes),
            age(now - one.changed),
            escape(_of(one)),
            escape(str(where)),
        )
    if any(any(one.at_chance.values()) for one in runs):
        table.caption, table.caption_justify = CHANCE, "left"
    return table


def _of(one: Kept) -> str:
    seed = "" if one.seed is None else f"seed {one.seed}"
    return ", ".join(filter(None, [one.method, "" if one.held_out == "-" else one.held_out, seed]))


def _answers(one: Kept) -> str:
    """Of a run in a line; the sign of chance alone stands behind each that is no better, as there is little room."""
    if not one.numbers:
        return "-"
    with shown_in(one.metric, one.share, one.higher):
        shown = {key: beside_mean(percent(one.numbers[key]), key, one.numbers[AT_HOME]) for key in HEADLINES}
    return " / ".join(f"{words} {SIGN}" if one.at_chance.get(key) else words for key, words in shown.items())


def age(seconds: float) -> str:
    """Roughly: in the largest unit of which there are two."""
    for length, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {word}"
    return f"{max(seconds, 0):.0f} s"


def measures_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A model on several domains."""
    table = Table()
    for column in ("domain", "model", f"metric{unit().label}", "loss", "samples"):
        table.add_column(column, justify="left" if column in ("domain", "model") else "right")
    for row in rows:
        numbers = [percent(row["metric"]), f"{row['loss']:.4f}", f"{row['samples']:,}"]
        table.add_row(escape(row["domain"]), escape(row["model"]), *numbers)
    return table


def personalised_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """New silos: the global model there, and their own."""
    table = Table(title=f"metric in {unit().word} on the new silo's own data", title_justify="left")
    for column in ("silo", "training samples", "split", "global model", "own model"):
        table.add_column(column, justify="left" if column in ("silo", "split") else "right")
    for one in found:
        for split, own in one["personal"].items():
            shared = one["global"].get(split, {}).get("metric")
            table.add_row(escape(one["silo"]), f"{one['samples']:,}", split, percent(shared), percent(own["metric"]))
    return table
