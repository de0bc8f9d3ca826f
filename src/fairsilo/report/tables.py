"""Tables for the terminal, for spreadsheets and for papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

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
)
from fairsilo.analysis.paired import compare_cells
from fairsilo.analysis.privacy import words
from fairsilo.report.charts import size
from fairsilo.report.spreadsheet import csv_text
from fairsilo.report.units import in_its_unit, shown_in, unit
from fairsilo.runs.inventory import Kept

SELECTIONS = {
    "last": "last round",
    "last5": "mean of the last five evaluations",
    "source-validation": "best round on the training silos' validation data",
    "oracle": "ORACLE: best round on the unseen test data",
}


GUESSED = "≈ chance"
CHANCE = (
    f"{GUESSED}: no better than always naming the most frequent class or guessing evenly (the lower end of the 95 % "
    "interval from the test size is not above that), so that its spread says nothing about fairness"
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
    title = f"{names} — {unit().word}; {SELECTIONS[summary['selection']]} ({rounds})"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name, _ in runs:
        table.add_column(escape(name), justify="right")
        table.add_column("own model", justify="right", style="dim")
    numbers = [headline(content) for _, content in runs]
    guessed = [at_chance(content) for _, content in runs]
    labels = {
        "generalisation": "generalise: global model, unseen domain",
        "personalisation": "personalise: silos' own models, at home",
        "fairness": "fair: std over silos, lower is more even (mean)",
    }
    for key in HEADLINES:
        shown = [_beside_mean(percent(found[key]), key, found[AT_HOME]) for found in numbers]
        cells = [cell for text, marks in zip(shown, guessed, strict=True) for cell in (_marked(text, marks[key]), "")]
        table.add_row(labels[key], *cells, style="bold")
    ends = [" to ".join(percent(found[key]) for key in TAILS) for found in numbers]
    table.add_row("worst to best tenth of silos, means", *(cell for text in ends for cell in (text, "")))
    spreads = [squared(found[VARIANCE]) for found in numbers]
    label = f"variance over silos, {unit().squared}"
    table.add_row(label, *(cell for text in spreads for cell in (text, "")), end_section=True)
    if any(CLUSTERED in content for _, content in runs):
        cells = [cell for _, content in runs for cell in (percent(content.get(CLUSTERED)), "")]
        table.add_row("clustering accuracy: silos in a cluster of their domain", *cells, end_section=True)
    for one in summary.get("privacy") or ():
        largest = words(max(one["epsilon"].values())) if one["epsilon"] else "no noise"
        label = f"epsilon of {one['part']} at delta {one['delta']:g}, largest of the silos"
        table.add_row(label, largest, *[""] * (2 * len(runs) - 1), end_section=True)
    by_silo = [{row["silo"]: row for row in content["silos"]} for _, content in runs]
    for row in summary["silos"]:
        label = f"{row['silo']} (unseen)" if row["unseen"] else row["silo"]
        cells = []
        for rows in by_silo:
            found = rows.get(row["silo"], {})
            marks = found.get("at_chance") or ()
            cells += [
                _marked(_adapted(found), ("global" if found.get("adapted") is None else "adapted") in marks),
                _marked(percent(found.get("personal")), "personal" in marks),
            ]
        table.add_row(escape(label), *cells)
    return _explained(table)


def _marked(text: str, guessed: bool) -> str:
    return f"{text} {GUESSED}" if guessed else text


def _beside_mean(text: str, key: str, centre: float | None) -> str:
    """A spread with the mean that it is around: alone it would praise a model that is equally bad everywhere."""
    return f"{text} ({percent(centre)})" if key == "fairness" and centre is not None else text


def _explained(table: Table) -> Table:
    """With a line below that says what the mark means, where one stands in the table."""
    if any(GUESSED in str(cell) for column in table.columns for cell in column.cells):
        table.caption, table.caption_justify = CHANCE, "left"
    return table


def _adapted(silo: Mapping[str, Any]) -> str:
    """The global model's result and, where it was adapted at test time, what became of it."""
    plain = percent(silo.get("global"))
    return plain if silo.get("adapted") is None else f"{plain} -> {percent(silo['adapted'])}"


@in_its_unit(of_comparison)
def held_out_tables(comparison: Mapping[str, Any]) -> list[Table]:
    """As papers have it: methods x held-out domains with their mean and deviation, one table per headline."""
    tables, rows = [], compare_cells(comparison["methods"], comparison["cells"])
    for key in HEADLINES if len(comparison["held_out"]) > 1 else ():
        spread = f"std over silos in {unit().points}, lower is more even (mean)"
        shown = spread if key == "fairness" else unit().word
        title = f"{key} by held-out domain: {shown}, mean over {len(comparison['seeds'])} seeds; std is over domains"
        table = Table(title=title, title_justify="left")
        table.add_column("method")
        for name in (*comparison["held_out"], "mean", "std"):
            table.add_column(escape(name), justify="right")
        spreads = {row["method"]: row[key]["std_domains"] for row in rows}
        for method in comparison["methods"]:
            found, centres = (by_held_out(comparison["cells"], method, one) for one in (key, AT_HOME))
            guessed = guessed_by_held_out(comparison["cells"], method, key)
            table.add_row(
                escape(method),
                *(
                    _marked(_beside_mean(percent(found.get(name)), key, centres.get(name)), name in guessed)
                    for name in comparison["held_out"]
                ),
                _marked(_beside_mean(percent(found["mean"]), key, centres["mean"]), bool(guessed)),
                percent(spreads[method]),
            )
        tables.append(_explained(table))
    return tables


def means(comparison: Mapping[str, Any]) -> str:
    """What a mean and the ± behind it are over, in words."""
    domains, seeds = len(comparison["held_out"]), len(comparison["seeds"])
    over = f" over {domains} held-out domains" if domains > 1 else ""
    return f"mean{over} ± std over {seeds} seeds" if seeds > 1 else f"mean{over}, one seed" if over else "one run"


@in_its_unit(of_comparison)
def comparison_table(comparison: Mapping[str, Any]) -> Table:
    """Methods x headlines: mean ± deviation over seeds, then the paired difference to the first method."""
    rows = compare_cells(comparison["methods"], comparison["cells"])
    selection = SELECTIONS[comparison["cells"][0]["summary"]["selection"]]
    beside = f"minus {escape(comparison['methods'][0])}" + "\n± 95 %" * (len(comparison["seeds"]) > 1)
    table = Table(title=f"{unit().word}, {means(comparison)}; {selection}", title_justify="left")
    table.add_column("method")
    for key in HEADLINES:
        what = f"{key}: std over silos, lower is more even (mean)" if key == "fairness" else key
        table.add_column(f"{what}\n[dim]{beside}[/dim]", justify="right")
    clustered = _clustered(comparison)
    if clustered:
        table.add_column("clustering accuracy", justify="right")
    for row in rows:
        texts = []
        for key in HEADLINES:
            found = row[key]
            shown = _beside_mean(_with_spread(found), key, row[AT_HOME]["mean"]) + _in_runs(found, row["cells"])
            difference = _difference(found)
            texts.append(f"{shown}\n[dim]{difference}[/dim]" if difference else shown)
        if clustered:
            texts.append(percent(clustered.get(row["method"])))
        table.add_row(escape(row["method"]), *texts)
    return _explained(table)


@in_its_unit(of_comparison)
def paired_sentence(comparison: Mapping[str, Any]) -> str:
    """What the last method does better or worse than the first, with the margins of the paired differences."""
    first, *_, last = comparison["methods"]
    row = compare_cells(comparison["methods"], comparison["cells"])[-1]
    words = {
        "generalisation": "generalises by",
        "personalisation": "personalises by",
        AT_HOME: "mean over silos by",
        "fairness": "spread over silos by",
    }
    told = [f"{word} {_difference(row[key])}" for key, word in words.items() if row[key]["difference"] is not None]
    runs = f"{len(comparison['seeds'])} seeds"
    return f"{last} against {first}, {unit().points} ± 95 % over {runs}: {', '.join(told)}"


@in_its_unit(of_comparison)
def spread_table(comparison: Mapping[str, Any]) -> Table:
    """Methods x mean, worst and best tenth, and variance over silos, as q-FFL and FFT-GP report them."""
    table = Table(title=f"over silos: {unit().word}, {means(comparison)}", title_justify="left")
    table.add_column("method")
    for name in ("mean", "worst tenth", "best tenth", f"variance, {unit().squared}"):
        table.add_column(name, justify="right")
    for row in compare_cells(comparison["methods"], comparison["cells"]):
        marked = _in_runs(row[AT_HOME], row["cells"])
        numbers = [_with_spread(row[key]) for key in (AT_HOME, *TAILS)] + [_with_spread(row[VARIANCE], squared)]
        table.add_row(escape(row["method"]), numbers[0] + marked, *numbers[1:])
    return _explained(table)


def _in_runs(found: Mapping[str, Any], runs: int) -> str:
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


def _with_spread(found: Mapping[str, Any], written: Callable[[float | None], str] = percent) -> str:
    spread = f" ± {written(found['std'])}" if found["std"] is not None else ""
    return written(found["mean"]) + spread


def _difference(found: Mapping[str, Any]) -> str:
    if found["difference"] is None:
        return ""
    margin = f" ± {percent(found['margin'])}" if found["margin"] is not None else ""
    return percent(found["difference"], sign=True) + margin


def comparison_csv(comparison: Mapping[str, Any]) -> str:
    """One line per cell, so that any statistic can be recomputed."""
    columns = ["method", "held_out", "seed", *HEADLINES, "fairness_mean", "fairness_chance_level"]
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
            | {"fairness_mean": numbers[AT_HOME], "fairness_chance_level": judged_fairness(summary).get("chance")}
            | {f"fairness_{key}": numbers[key] for key in (*TAILS, VARIANCE)}
            | {f"{key}_at_chance": guessed for key, guessed in at_chance(summary).items()}
            | {"gap_variance": summary["fairness"]["gap_variance"], CLUSTERED: summary.get(CLUSTERED)}
            | {"selection": summary["selection"]}
            | groups
        )
    return csv_text(columns, rows)


@in_its_unit(of_comparison)
def comparison_latex(comparison: Mapping[str, Any]) -> str:
    """A booktabs table of the means and deviations: over seeds behind the ±, over held-out domains in brackets."""
    rows = compare_cells(comparison["methods"], comparison["cells"])
    brackets = "; in brackets: std over held-out domains" if len(comparison["held_out"]) > 1 else ""
    lines = [
        f"% {unit().word}, {means(comparison).replace('±', '+-')}{brackets}",
        f"% over silos: mean, standard deviation, means of the worst and best tenth, variance in {unit().squared}",
        r"\begin{tabular}{lrrrrrrr}",
        r"\toprule",
        r"Method & Generalisation & Personalisation & Mean & Std & Worst tenth & Best tenth & Variance \\",
        r"\midrule",
    ]
    columns = ("generalisation", "personalisation", AT_HOME, "fairness", *TAILS)
    for row in rows:
        cells = [*(_latex_cell(row[key]) for key in columns), _latex_cell(row[VARIANCE], squared)]
        lines.append(f"{escaped_latex(row['method'])} & {' & '.join(cells)} \\\\")
    if any(row[key]["at_chance"] for row in rows for key in columns):
        lines.insert(1, r"% \dagger: " + CHANCE.partition(": ")[2].replace("%", r"\%"))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_cell(found: Mapping[str, Any], how: Callable[[float | None], str] = percent) -> str:
    written = _with_spread(found, how).replace("±", r"\pm")
    domains = "" if found["std_domains"] is None else rf"\;({how(found['std_domains'])})"
    mark = r"^{\dagger}" if found["at_chance"] else ""
    return f"${written}{domains}{mark}$"


def escaped_latex(text: str) -> str:
    """A text as LaTeX prints it."""
    special = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "|": r"\textbar{}"}
    return "".join(
        special.get(character) or (f"\\{character}" if character in "&%$#_{}" else character) for character in text
    )


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
    """Runs of a folder: state, the three answers, size and age."""
    title = "results: generalise / personalise / spread over silos"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("state", no_wrap=True)
    for name in ("rounds", "results", "size", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("run", overflow="fold")
    for one in runs:
        done, planned = one.rounds
        rounds = f"{done}" if planned in (None, done) else f"{done} of {planned}"
        with shown_in(one.metric, one.share):
            numbers = " / ".join(percent(one.numbers[key]) for key in HEADLINES) if one.numbers else "-"
        where = one.folder.relative_to(root) if one.folder != root else one.folder
        table.add_row(one.state, rounds, numbers, size(one.bytes), age(now - one.changed), escape(str(where)))
    return table


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
