"""A comparison as one HTML file that opens offline; a grid of compositions is shown as heat tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fairsilo import __version__
from fairsilo.analysis.chance import GUESSED
from fairsilo.analysis.metrics import (
    AT_HOME,
    HEADLINES,
    TAILS,
    VARIANCE,
    at_chance,
    by_held_out,
    guessed_by_held_out,
    headline,
    mean,
    of_own_models,
    spread_by_held_out,
    with_own_models,
)
from fairsilo.analysis.paired import compare_cells
from fairsilo.report.blocks import cells, document, heads, listed, paragraph, points, ranges, section, table
from fairsilo.report.glance import glance
from fairsilo.report.heat import heat_table, number
from fairsilo.report.latex import comparison_latex
from fairsilo.report.left_out import called, left_out, left_out_section
from fairsilo.report.page import write_report
from fairsilo.report.repeats import repeats
from fairsilo.report.tables import CHANCE, OWN, SELECTIONS, comparison_csv, in_runs, marked_own, of_comparison
from fairsilo.report.texts import signed, text, usable
from fairsilo.report.units import in_its_unit, unit
from fairsilo.report.whole import PAGE, whole_of
from fairsilo.runs.counting import read_comparison
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.inventory import damage_told

Content = Mapping[str, Any]
SHOWN = 60  # runs; the table of more is folded away


def write_comparison(folder: Path) -> Path:
    """Write the page of a comparison into its folder, its tables for spreadsheets and papers, and its runs' pages."""
    content, run_folder = read_comparison(folder), RunFolder(folder)
    whole = whole_of(folder, content, page=True)
    for cell in content["cells"]:
        if "folder" in cell and (run := folder / cell["folder"]).is_dir():
            with damage_told(run):
                write_report(run, whole)
    content["said"] = notes_of(folder, content)
    run_folder.write_text("comparison.csv", comparison_csv(content))
    run_folder.write_text("comparison.tex", comparison_latex(content))
    return run_folder.write_text(PAGE, page(content))


def notes_of(folder: Path, content: Content) -> dict[str, list[str]]:
    """What the runs noted, in the order of the runs -> the runs that did, by method, held-out domain and seed.

    What is known before the first round, and which listener was dropped, is in `run.json`; the rest is of rounds.
    """
    found: dict[str, list[str]] = {}
    for cell in content["cells"]:
        if "folder" not in cell:  # of an earlier version
            continue
        run = RunFolder(folder / cell["folder"])
        with damage_told(run.folder):
            whole = [run.read_json("run.json")] if (run.folder / "run.json").exists() else []
            records = [*whole, *run.rows("rounds")]
            notes = dict.fromkeys(str(note) for record in records for note in record.get("notes") or ())
        for note in notes:
            found.setdefault(note, []).append(f"{cell['method']} ({cell['held_out']}, seed {cell['seed']})")
    return found


def _summary_of(content: Content) -> Mapping[str, Any]:
    return of_comparison(content)


@in_its_unit(_summary_of)
def page(content: Content) -> str:
    """The whole document."""
    grid = content.get("grid")
    body = header(content) + left_out_section(content) + glance(content) + (heat(content, grid) if grid else "")
    body += headlines(content) + spread(content) + by_domain(content)
    body += searched(content) + raw(content) + notes(content)
    return document(title(content), body, f"<footer>\n{paragraph(f'fairsilo {__version__}')}</footer>\n")


# ------------------------------------------------------------------------------------------------------------ header
def title(content: Content) -> str:
    grid = content.get("grid")
    if grid:
        return f"{len(grid['rows'])} × {len(grid['columns'])} compositions"
    return listed(content["methods"], 4)


def header(content: Content) -> str:
    facts = [
        ("Data", source(content)),
        ("Model", model(content)),
        ("Held-out domains", held_out(content)),
        ("Seeds", listed(map(str, content["seeds"]), 12)),
        ("Runs", runs_words(content)),
        ("Rounds", setting(content, "train", "rounds")),
        ("Metric", metric(content)),
        ("Results are read from", selection(content)),
    ]
    drawn = "".join(
        f"<div{' class=wide' if name == 'Results are read from' else ''}><dt>{name}</dt><dd>{text(value)}</dd></div>"
        for name, value in facts
    )
    return (
        f'<header>\n<p class="eyebrow">fairsilo comparison</p>\n<h1>{text(title(content))}</h1>\n'
        f'<dl class="facts">{drawn}</dl>\n</header>\n'
    )


def setting(content: Content, *keys: str) -> Any:
    found: Any = content.get("settings") or {}
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return "–" if found is None else found


def model(content: Content) -> str:
    """The networks that were trained: what `auto` came to may differ from method to method."""
    found = dict.fromkeys(str(cell["model"]) for cell in content["cells"] if cell.get("model"))
    return listed(found) or str(setting(content, "model"))


def source(content: Content) -> str:
    found = (setting(content, "data", key) for key in ("name", "folder", "packed"))
    return str(next((value for value in found if value != "–"), "–"))


def metric(content: Content) -> str:
    found = setting(content, "evaluate", "metric")
    return "accuracy" if found == "–" else str(found).replace("-", " ")


def held_out(content: Content) -> str:
    return listed(["none" if name == "-" else str(name) for name in content["held_out"]])


def selection(content: Content) -> str:
    """The rule by which rounds were selected, with the rounds where all runs have the same."""
    summaries = [cell["summary"] for cell in content["cells"]]
    rules = list(dict.fromkeys(SELECTIONS[summary["selection"]] for summary in summaries))
    rounds = {tuple(summary["rounds"]) for summary in summaries}
    which = f" ({ranges(next(iter(rounds)))})" if len(rounds) == 1 and any(rounds) else ""
    return "; ".join(rules) + which


def counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def runs_words(content: Content) -> str:
    """How many runs there are and, where some are left out, how many count."""
    count, gone = len(content["cells"]), len(left_out(content))
    return f"{count} of {count + gone} count" if gone else str(count)


def all_repeats(content: Content) -> str:
    """How many runs stand behind a number, in words."""
    seeds = f"{counted(len(content['seeds']), 'seed')}: {listed(map(str, content['seeds']), 12)}"
    domains = counted(len(content["held_out"]), "held-out domain")
    if content["held_out"] == ["-"]:
        domains = "no domain held out"
    runs = repeats(content).runs
    each = "one run each" if runs.most == 1 else f"means over {runs.words('run')} each"
    grid = len(content["methods"]) * len(content["held_out"]) * len(content["seeds"])
    fewer = ", less those left out" if left_out(content) and len(content["cells"]) < grid else ""
    return f"{each} ({seeds}; {domains}{fewer})"


def degrees(content: Content) -> str:
    """Which standard deviation over silos and domains, by its degrees of freedom."""
    found = sorted({int(cell["summary"]["ddof"]) for cell in content["cells"]})
    return "ddof " + " or ".join(map(str, found))


# ------------------------------------------------------------------------------------------------- by held-out domain
def by_domain(content: Content) -> str:
    """Methods x held-out domains, one table per headline; nothing where a single domain was held out."""
    domains = list(content["held_out"])
    if len(domains) < 2:
        return ""
    drawn, whole = [], {row["method"]: row for row in compare_cells(content["methods"], content["cells"])}
    mine = with_own_models(content["cells"])
    for key in HEADLINES:
        shown, own = unit().word, mine if key == "fairness" else []
        if key == "fairness":
            shown = (
                f"standard deviation over silos in {unit().points}, lower is more even; small: the mean it is around"
            )
        rows = []
        for name in content["methods"]:
            found, centres = (by_held_out(content["cells"], name, one) for one in (key, AT_HOME))
            guessed = guessed_by_held_out(content["cells"], name, key)
            spreads, line = spread_by_held_out(content["cells"], name, key), ""
            spreads["mean"] = whole[name][key]["std"]
            for domain in (*domains, "mean"):
                centre = centres.get(domain) if key == "fairness" else None
                mark = GUESSED if domain in guessed or (domain == "mean" and guessed) else ""
                value = with_spread({"mean": found.get(domain), "std": spreads.get(domain)})
                line += number_cell(value, centre, mark, first=domain == "mean")
            line += cells([number(whole[name][key]["std_domains"])])
            rows.append(f'<tr><th scope="row">{text(marked_own(name, own))}</th>{line}</tr>\n')
        head = f'<tr><th scope="col">method</th>{heads(domains)}{heads(["mean", "std over domains"], True)}</tr>'
        drawn.append(f"<h3>{key.capitalize()}: {shown}</h3>\n{table(head, rows)}")
    about = f"Each domain held out in turn, {spread_words(content)}; the last column is the deviation over the domains."
    return section("held-out", "By held-out domain", paragraph(about), *drawn)


def spread_words(content: Content) -> str:
    """What a mean over seeds and the ± behind it are."""
    behind = repeats(content)
    if behind.seeds.most > 1:
        return f"mean ± sample standard deviation over {behind.over_seeds}"
    return "one seed, so that there is no ±"


def number_cell(
    shown: str,
    centre: float | None,
    guessed: str = "",
    first: bool = False,
    domains: float | None = None,
    own: bool = False,
    power: int = 1,
) -> str:
    """A number; small below it the mean that a spread is around, its deviation over held-out domains, the mark of a
    result that is no better than guessing, and whether it is that of silos' own models."""
    below = f"<small>mean {text(number(centre))}</small>" if centre is not None else ""
    below += (
        f"<small>domains ± {text(signed(unit().number(domains, power)))}</small>"
        if domains is not None and usable(domains)
        else ""
    )
    below += f"<small>{text(guessed.strip())}</small>" if guessed else ""
    below += f"<small>{OWN}</small>" if own else ""
    return f'<td class="number{" first" if first else ""}">{text(shown)}{below}</td>'


# -------------------------------------------------------------------------------------------------------- heat tables
def heat(content: Content, grid: Mapping[str, Sequence[str]]) -> str:
    """Rows x columns twice: shaded by the average, and by how even the model is."""
    about = (
        f"Avg is the mean {metric(content)} of the global model over those who trained, in {unit().word}; Std its "
        f"standard deviation over their domains in {unit().points} ({degrees(content)}), lower is more even. "
        f"Numbers are {all_repeats(content)}; results are read from: {selection(content)}."
    )
    marks = "Bold is the best of its row (R) or of its column (C); the stronger the shade, the better."
    guessed = {name for name in content["methods"] if any(chance_of_runs(content, name))}
    if guessed:
        marks += f" A result at chance is neither shaded nor ranked. {CHANCE}."
    if repeats(content).seeds.most == 1:
        marks += " One seed: a small difference may be chance."
    average = {name: over_runs(content, name, "mean") for name in content["methods"]}
    spread = {name: over_runs(content, name, "std_domains") for name in content["methods"]}
    tables = (
        "<h3>Shaded by the average</h3>\n",
        heat_table(grid, ("Avg", average), ("Std", spread), max if unit().higher else min, guessed),
        "<h3>Shaded by the spread over domains</h3>\n",
        heat_table(grid, ("Std", spread), ("Avg", average), min, guessed),
    )
    return section("grid", "Rows and columns composed", paragraph(about), paragraph(marks, "quiet"), *tables)


def over_runs(content: Content, name: str, key: str) -> float | None:
    """Mean over a method's runs of a fairness number of the global model."""
    found = [global_number(cell["summary"], key) for cell in content["cells"] if cell["method"] == name]
    known = [value for value in found if value is not None]
    return mean(known) if known else None


def chance_of_runs(content: Content, name: str) -> list[bool]:
    """Of each run of a method, whether its global model is at chance over those who trained."""
    summaries = [cell["summary"] for cell in content["cells"] if cell["method"] == name]
    return [bool((summary["fairness"].get("global") or {}).get("at_chance")) for summary in summaries]


def global_number(summary: Mapping[str, Any], key: str) -> float | None:
    value = (summary["fairness"].get("global") or {}).get(key)
    return value if usable(value) else None


# ---------------------------------------------------------------------------------------------------------- headlines
def headlines(content: Content) -> str:
    """The three answers of every method, and its paired differences to the first."""
    rows = compare_cells(content["methods"], content["cells"])
    names = ("generalisation", "personalisation", "fairness: std over silos")
    groups = "".join(f'<th class="group" scope="colgroup" colspan="2">{name}</th>' for name in names)
    mean = "one run" if repeats(content).runs.most == 1 else "mean ± std"
    pair = heads([mean, minus_the_first(content)], True)
    head = f'<tr><td></td>{groups}</tr><tr><th scope="col">method</th>{pair * len(HEADLINES)}</tr>'
    lines, own = [], with_own_models(content["cells"])
    for row in rows:
        line = ""
        for key in HEADLINES:
            centre = row[AT_HOME]["mean"] if key == "fairness" else None
            guessed, domains = in_runs(row[key], row["cells"]), row[key]["std_domains"]
            mine = key == "fairness" and row["method"] in own
            line += number_cell(with_spread(row[key]), centre, guessed, first=True, domains=domains, own=mine)
            line += cells([difference(row[key])])
        lines.append(f'<tr><th scope="row">{text(row["method"])}</th>{line}</tr>\n')
    said = [paragraph(explained(content))]
    if any(row[key]["at_chance"] for row in rows for key in HEADLINES):
        said.append(paragraph(f"{CHANCE}. A spread around such a mean is compared with none."))
    return section("methods", "Method by method", *said, table(head, lines))


def explained(content: Content) -> str:
    """What the table's numbers and its ± are."""
    behind = repeats(content)
    words = f"In {unit().word}, {all_repeats(content)}; results are read from: {selection(content)}. "
    several = behind.domains.most > 1
    if behind.runs.most > 1:
        where = "over held-out domains, each of which counts once" if several else "over seeds"
        words += f"A mean is {where}"
        seeds = f"{'the ' * behind.seeds.each}{behind.over_seeds}"
        words += f"; ± after it is its sample standard deviation over {seeds} (ddof 1)" if behind.varied else ""
        words += ", and small below it stands that of the domains' own means" if several else ""
        words += (
            f". Differences to {content['methods'][0]} are taken run by run, same seed and same held-out domain; ± "
            "after their mean is its margin (95 %) over seeds, which takes several of them. "
        )
    else:
        words += "With one run there is no ±, and a difference may be chance. "
    if content["held_out"] == ["-"]:
        words += "No domain was held out, so there is no generalisation to report. "
    words += f"Fairness is the standard deviation over silos ({degrees(content)}), with the mean that it is around "
    words += "small below it; lower is more even. It is that of "
    own = with_own_models(content["cells"])
    of_own = f", and of the silos' own models for {listed(own, len(own))}" if own else ""
    return f"{words}the global model{of_own}."


def with_spread(found: Mapping[str, Any], power: int = 1) -> str:
    spread = f" ± {unit().number(found['std'], power)}" if usable(found["std"]) else ""
    return (signed(unit().number(found["mean"], power)) if usable(found["mean"]) else "–") + spread


def spread(content: Content) -> str:
    """Mean, worst and best tenth, and variance over silos of every method."""
    lines, own = [], with_own_models(content["cells"])
    for row in compare_cells(content["methods"], content["cells"]):
        line = ""
        for key, power in (*((one, 1) for one in (AT_HOME, *TAILS)), (VARIANCE, 2)):
            guessed, domains = in_runs(row[key], row["cells"]), row[key]["std_domains"]
            line += number_cell(with_spread(row[key], power), None, guessed, domains=domains, power=power)
            line += cells([difference(row[key])]) if key == AT_HOME else ""
        lines.append(f'<tr><th scope="row">{text(marked_own(row["method"], own))}</th>{line}</tr>\n')
    names = ["mean", minus_the_first(content), *(key.replace("_", " ") for key in TAILS), f"variance, {unit().squared}"]
    head = f'<tr><th scope="col">method</th>{heads(names)}</tr>'
    said = f"In {unit().word}, as q-FFL and FFT-GP report it: the mean over silos, the means of the worst and of the "
    said += f"best tenth of them (at least one silo), and the variance over them ({degrees(content)})"
    said += f"; {spread_words(content)}, and the mean's paired difference to {content['methods'][0]}"
    said += ", and small below it the deviation over held-out domains." if repeats(content).domains.most > 1 else "."
    return section("spread", "Over silos", paragraph(said), table(head, lines))


def minus_the_first(content: Content) -> str:
    """What differences are called at the head of a column."""
    return f"minus {content['methods'][0]}" + (" ± 95\u00a0%" if repeats(content).paired else "")


def difference(found: Mapping[str, Any]) -> str:
    if not usable(found["difference"]):
        return ""
    margin = f" ± {points(found['margin'])}" if usable(found["margin"]) else ""
    return ("+" if points(found["difference"])[0].isdigit() else "") + points(found["difference"]) + margin


def searched(content: Content) -> str:
    """The settings that stood for the methods, where they were searched for each held-out domain."""
    found = content.get("tuned") or {}
    lines = [
        f'<tr><th scope="row">{text(name)}</th><td>{text(domain)}</td><td><code>{text(row)}</code></td></tr>\n'
        for domain in content["held_out"]
        for name, row in found.get(domain, {}).items()
    ]
    head = "<tr>" + "".join(f'<th scope="col">{name}</th>' for name in ("method", "held out", "settings")) + "</tr>"
    said = "Settings were searched for each held-out domain, by validation data of the silos that train there."
    return section("searched", "Settings that were searched", paragraph(said), table(head, lines)) if lines else ""


# --------------------------------------------------------------------------------------------------------- every run
def raw(content: Content) -> str:
    """Every run by itself, with a link to its page; the same numbers unrounded are in the CSV and the JSON."""
    apart = not all(silos_are_domains(cell["summary"]) for cell in content["cells"])
    columns = (*HEADLINES, "mean over silos", *(("Avg", "Std") if apart else ()))
    lead, last = '<th scope="col">run</th>', '<th scope="col">read from</th>'
    head = f"<tr>{lead}{heads(columns)}{last}</tr>"
    lines = []
    for cell in content["cells"]:
        summary = cell["summary"]
        three = headline(summary)
        numbers = [three[key] for key in (*HEADLINES, AT_HOME)]
        numbers += [global_number(summary, key) for key in ("mean", "std_domains")] if apart else []
        where = f"{summary['selection']}: {ranges(summary['rounds'])}"
        where += f"; {GUESSED}" if any(at_chance(summary).values()) else ""
        where += f"; fairness of {OWN}" if of_own_models(summary) else ""
        name = text(called(cell))
        if "folder" in cell:
            name = f'<a href="{text(quote(cell["folder"]))}/report.html">{name}</a>'
        lines.append(
            f'<tr><th scope="row">{name}</th>{cells([finely(value) for value in numbers])}<td>{text(where)}</td></tr>\n'
        )
    said = f"In {unit().word}. Fairness is the standard deviation around the mean over silos beside it."
    if apart:
        said += " Avg and Std: the global model's mean over those who trained and its deviation over their domains."
    folded = f"{paragraph(said, 'quiet')}{table(head, lines)}"
    begin = f"<details{'' if len(lines) > SHOWN else ' open'}><summary>{counted(len(lines), 'run')}</summary>\n"
    return section("runs", "Every run", f"{begin}{folded}</details>\n")


def silos_are_domains(summary: Mapping[str, Any]) -> bool:
    """Whether what is measured over silos is what the global model has over domains: each silo is one."""
    domains = [silo["domain"] for silo in summary.get("silos") or () if not silo["unseen"]]
    return 0 < len(domains) == len(set(domains)) and not of_own_models(summary)


def notes(content: Content) -> str:
    """What runs noted, equal notes of several runs together."""
    found = content.get("said") or {}
    items = "".join(f"<li>{text(f'{note}: {listed(runs, len(runs))}')}</li>" for note, runs in found.items())
    return section("notes", "Notes of the runs", f'<ul class="notes">{items}</ul>') if items else ""


def finely(value: float | None) -> str:
    """With more digits than above, since a reader may want to recompute the means."""
    if value is None or not usable(value):
        return "–"
    return signed(f"{100 * value:.2f}" if unit().sign else f"{value:.6g}")
