"""The report of a run as one HTML file that opens offline: no script, no font, no image from elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairsilo.analysis.chance import GUESSED, SHARES
from fairsilo.analysis.groups import by_group
from fairsilo.analysis.metrics import TAILS, VARIANCE, judged_fairness, of_own_models, summarise
from fairsilo.config import read_yaml
from fairsilo.core.roster import Roster
from fairsilo.errors import FairsiloError
from fairsilo.report.beside import against, whose_models, why_not_compared
from fairsilo.report.blocks import (
    Run,
    cells,
    document,
    figure,
    figures,
    heads,
    image,
    kind_of,
    listed,
    pair,
    panel,
    paragraph,
    points,
    ranges,
    section,
    share,
    table,
)
from fairsilo.report.classes import classes
from fairsilo.report.examples import examples
from fairsilo.report.figures.drawn import Drawn, figures_in
from fairsilo.report.groups import groups
from fairsilo.report.privacy import privacy
from fairsilo.report.said import failures, sent
from fairsilo.report.sections import costs, curves, domains, gap_section, weights
from fairsilo.report.synthetic import synthetic
from fairsilo.report.tables import squared
from fairsilo.report.texts import duration, plain, text
from fairsilo.report.units import in_its_unit, unit
from fairsilo.report.whole import Whole, caution, way_back, whole_above
from fairsilo.runs.folder import BASELINE, RunFolder, resuming
from fairsilo.runs.pictures import Examples, Sheet, read_examples, read_sheet


def write_report(folder: Path, whole: Whole | None = None) -> Path:
    """Write `report.html` into the run folder; a run of a comparison says so, which is looked for where not given."""
    run = read_run(folder)
    beside = folder / BASELINE
    baseline = read_run(beside, like=run) if beside.is_dir() and _holds_run(beside) else None
    raw = (folder / "config.yaml").read_text(encoding="utf-8") if (folder / "config.yaml").exists() else ""
    whole = whole or whole_above(folder)
    kept, sheet = read_examples(folder), read_sheet(folder)
    shown = page(run, baseline, raw, figures_in(folder / "figures"), kept, sheet, whole, way_back(folder, whole))
    return RunFolder(folder).write_text("report.html", shown)


def _holds_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("run.json", "config.yaml", "metrics.jsonl", "rounds.jsonl"))


def read_run(folder: Path, like: Run | None = None) -> Run:
    """A run, however short; a baseline is summarised `like` the run beside it, so that equal things are compared."""
    if not _holds_run(folder):
        raise FairsiloError(f"{folder} is no run folder: it holds neither results nor a configuration")
    run_folder = RunFolder(folder)
    info = run_folder.read_json("run.json") if (folder / "run.json").exists() else {}
    config = read_yaml(folder / "config.yaml") if (folder / "config.yaml").exists() else {}
    rows = [row for row in run_folder.rows("metrics") if usable_row(row)]
    rules = (like.config if like else config).get("evaluate") or {}
    reported = info.get("metric") or {}
    higher, ddof = reported.get("higher_is_better"), int(rules.get("ddof", 0))
    metric, share_of = str(reported.get("name") or rules.get("metric", "accuracy")), reported.get("share")
    summary = summarise(
        rows,
        info.get("about", "global"),
        rules.get("selection", "last"),
        ddof,
        higher=higher,
        metric=metric,
        share=share_of,
        counts=Roster.from_dict(info["roster"]).tested if "roster" in info else None,
    )
    grouped = by_group(
        run_folder.rows("groups"), summary["rounds"], ddof, higher is not False, metric, share_of is not False
    )
    summary |= {"groups": grouped} if grouped else {}
    named = info.get("method") or (like.config.get("baseline") if like else config.get("method"))
    return Run(str(named or "unknown method"), info, config, rows, run_folder.rows("rounds"), summary)


def read_results(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Method and summary of a run and, where there is one, of its baseline."""
    if not _holds_run(folder):
        raise FairsiloError(f"{folder} is no run folder: it holds neither results nor a configuration")
    places = [place for place in (folder, folder / BASELINE) if (place / "summary.json").exists()]
    if not places:
        raise FairsiloError(f"{folder} has no results yet; `{resuming(folder)}` goes on with it")
    run_folders = [RunFolder(place) for place in places]
    return [
        (str(run_folder.read_json("run.json")["method"]), run_folder.read_json("summary.json"))
        for run_folder in run_folders
    ]


def usable_row(row: Mapping[str, Any]) -> bool:
    return all(isinstance(row.get(key), int | float) for key in ("round", "metric", "loss"))


Kept = tuple[Sequence[Examples], int]  # examples, and of how many silos there are none


@in_its_unit(lambda run, *_, **__: run.summary)
def page(
    run: Run,
    baseline: Run | None,
    raw_config: str,
    diagrams: Sequence[Drawn] = (),
    kept: Kept = ((), 0),
    sheet: Sheet | None = None,
    whole: Whole | None = None,
    back: str = "",
) -> str:
    """The whole document."""
    title = f"{run.method} against {baseline.method}" if baseline else run.method
    body = "".join(
        (
            back,
            header(run, baseline),
            headline(run, baseline, whole),
            silo_table(run, baseline),
            curves(run, baseline),
            domains(run, baseline),
            groups(run, baseline),
            classes(run),
            examples(*kept),
            synthetic(sheet),
            weights(run, baseline),
            gap_section(run, baseline),
            diagnostics(diagrams),
            costs(run, baseline),
            failures(run, baseline),
            privacy(run),
            sent(run, baseline),
        )
    )
    return document(title, body, footer(run, raw_config))


# ------------------------------------------------------------------------------------------------------- 1 header
def selection_words(run: Run) -> str:
    rounds = run.summary["rounds"]
    if not rounds:
        return "nothing was evaluated yet"
    rule, which = run.summary["selection"], ranges(rounds)
    if rule == "last5":
        return f"mean of the last {len(rounds)} evaluations ({which})"
    if rule == "source-validation":
        return f"best on the training silos' validation data ({which})"
    if rule == "oracle":
        return f"oracle: best on the unseen test data ({which}); an upper bound, not a fair estimate"
    asked = run.setting("evaluate", "selection", "last")
    reason = "" if asked == "last" else f"; {asked} was asked for, but its data are missing"
    return f"the last evaluated round ({which}){reason}"


WIDE = ("Results are read from",)


def facts(run: Run) -> list[tuple[str, str]]:
    """What a run is of, by name."""
    configured = run.setting("data", "held_out", "-")
    none = configured in ("-", "none", "") or bool(run.rows)
    source = next((run.setting("data", key) for key in ("name", "folder", "packed") if run.setting("data", key)), "–")
    planned = run.setting("train", "rounds", run.done)
    found = [
        ("Data", source),
        ("Model", run.config.get("model", "–")),
        ("Held-out domain", listed(run.held_out) or ("none" if none else configured)),
        ("Silos", len(run.members("silos")) or len(run.silos) or "–"),
        ("Rounds", planned if run.done == planned else f"{run.done} of {planned}"),
        ("Seed", run.config.get("seed", "–")),
        ("Metric", f"{run.metric}, over the classes present" if run.metric.startswith("balanced") else run.metric),
        ("Results are read from", selection_words(run)),
    ]
    return [(name, str(value)) for name, value in found]


def header(run: Run, baseline: Run | None, called: tuple[str, str] = ("Run", "Baseline")) -> str:
    """The top of the page; of two runs a fact in which they differ is given of both. `called`: in what befell them."""
    others = dict(facts(baseline)) if baseline and baseline.config else {}
    of_both = [(name, value, others.get(name, value)) for name, value in facts(run)]
    drawn = "".join(
        f"<div{' class=wide' if name in WIDE else ''}><dt>{name}</dt>"
        f"<dd>{text(value if value == other else f'{value} / {other}')}</dd></div>"
        for name, value, other in of_both
    )
    order = ""
    if baseline and any(value != other for _, value, other in of_both):
        order = paragraph(f"Where there are two values, that of {run.method} stands first.", "quiet order")
    against = f' <span class="against">against {text(baseline.method)}</span>' if baseline else ""
    return (
        f'<header>\n<p class="eyebrow">fairsilo run report</p>\n<h1>{text(run.method)}{against}</h1>\n'
        f"{banner(run, called[0])}{banner(baseline, called[1]) if baseline else ''}"
        f'<dl class="facts">{drawn}</dl>\n{order}{panel(*run.info.get("notes", ()))}</header>\n'
    )


def banner(run: Run, name: str) -> str:
    """Nothing for a finished run; what happened to any other."""
    status = run.info.get("status", "unknown")
    if status == "finished":
        return ""
    known = {"stopped": "stopped", "interrupted": "interrupted", "running": "not finished yet"}
    words = known.get(status, f"status: {status}")
    planned = run.setting("train", "rounds", run.done)
    message = str(run.info.get("message") or "")
    kind = "banner running" if status == "running" else "banner"
    return (
        f'<p class="{kind}" role="status"><strong>{name} {text(words)}</strong>: '
        f"{run.done} of {text(planned)} rounds are complete. {text(message[:1].upper() + message[1:])}</p>\n"
    )


# ---------------------------------------------------------------------------------------------------- 2 the answers
def headline(run: Run, baseline: Run | None, whole: Whole | None = None) -> str:
    why = why_not_compared(run, baseline) if baseline else ""
    beside = None if why else baseline
    cards = generalisation(run, beside) + personalisation(run, beside) + fairness(run, beside)
    said = caution(run, baseline, whole)
    if baseline and baseline.rows and why:
        said += f" {why}"
    elif baseline and baseline.rows and baseline.counted != run.counted:
        said += " Not the same silos were counted in every round of the two: see Failures."
    return f'<div class="cards">\n{cards}</div>\n{paragraph(said, "quiet")}'


def card(title: str, question: str, value: str, *lines: str) -> str:
    return (
        f'<div class="card"><h2>{title}</h2><p>{text(question)}</p><p class="big">{value}</p>{"".join(lines)}</div>\n'
    )


def with_interval(value: float, interval: Sequence[float] | None) -> str:
    """A result and between which ends it lies, given the size of the test set."""
    if interval is None:
        return share(value)
    low, high = map(points, interval)
    return f"{share(value)} <small>{low} to {high}</small>"


def interval_words(run: Run, found: Mapping[str, Any], tested: str) -> str:
    """What the two ends are."""
    if found["interval"] is None:
        return ""
    return paragraph(
        f"{low_to_high(found['interval'])} is the 95 % interval ({kind_of_interval(run)}) from the size of {tested}; "
        "another seed may fall outside it"
    )


def kind_of_interval(run: Run) -> str:
    return "Wilson" if run.summary["metric"] in SHARES else "normal"


def low_to_high(interval: Sequence[float]) -> str:
    return f"{points(interval[0])} to {points(interval[1])}"


def guessing_words(found: Mapping[str, Any]) -> str:
    """A warning where the result is no better than guessing."""
    if not found.get("at_chance"):
        return ""
    words = f"At chance level: naming the most frequent class or guessing evenly gives {share(found['chance'])}"
    return paragraph(words, "difference bad")


def generalisation(run: Run, baseline: Run | None) -> str:
    found = run.summary["generalisation"]
    outside, count = found["per_domain"], found["recent_rounds"]
    question = "The global model on a domain nobody trained on"
    if found["mean"] is None:
        reason = "No domain was held out." if run.rows else "Nothing was evaluated yet."
        return card("Generalisation", question, "–", paragraph(reason))
    said = (
        f"on {next(iter(outside))}"
        if len(outside) == 1
        else "mean of " + listed(f"{name} {share(value)}" for name, value in outside.items())
    )
    other = baseline.summary["generalisation"]["mean"] if baseline else None
    before = found.get("unadapted")
    moved = f"over the last {count} evaluations of this run it varied by {points(found['recent_std'])} {unit().points}"
    return card(
        "Generalisation",
        question,
        with_interval(found["mean"], found["interval"]),
        against(found["mean"], other, baseline.method) if baseline else "",
        guessing_words(found),
        paragraph(f"{run.metric} {said}"),
        interval_words(run, found, tested_words(run, outside)),
        paragraph(f"{moved} (standard deviation)" if count > 1 else "a single evaluation"),
        paragraph(f"adapted at test time, without labels; before that {share(before)}") if before is not None else "",
    )


def tested_words(run: Run, silos: Collection[str]) -> str:
    """The test data behind a mean over silos, in words."""
    found = [silo for silo in run.summary["silos"] if silo["silo"] in silos]
    sizes = {silo["domain"]: silo["samples"] for silo in found if silo["samples"] is not None}
    total = f"{sum(sizes.values()):,} samples"
    if len(sizes) <= 1:
        return f"the test set ({total})"
    return f"the test sets of {len(sizes)} domains ({total}; silos of one domain count as tested on the same ones)"


def personalisation(run: Run, baseline: Run | None) -> str:
    found = run.summary["personalisation"]
    silos = [silo["silo"] for silo in run.summary["silos"] if silo["personal"] is not None]
    question = "Each silo's own model at home"
    if found["mean"] is None:
        return card("Personalisation", question, "–", paragraph("No silo's own model was evaluated."))
    spread = (
        f"over the silos it varies by {points(found['std_silos'])} {unit().points} ({kind_of(run)} standard deviation)"
    )
    several = len(silos) > 1
    return card(
        "Personalisation",
        question,
        with_interval(found["mean"], found["interval"]),
        against(found["mean"], baseline.summary["personalisation"]["mean"], baseline.method) if baseline else "",
        guessing_words(found),
        paragraph(f"mean {run.metric} of {len(silos)} silos" if several else f"{run.metric}; a single silo"),
        interval_words(run, found, tested_words(run, silos)),
        paragraph(spread) if several else "",
    )


def fairness(run: Run, baseline: Run | None) -> str:
    """The deviation over silos that `metrics.headline` names, around its mean, with the two ends.

    A run's fairness is that of the models that its own results are about, so that of two runs it may be of different
    ones, as in `compare`.
    """
    about = "personal" if of_own_models(run.summary) else "global"
    found = judged_fairness(run.summary)
    own, possessive = ("the silos' own models", "'") if about == "personal" else ("the global model", "'s")
    question = f"How even {own} {'are' if about == 'personal' else 'is'} over those who trained"
    known = {silo["silo"]: silo for silo in run.summary["silos"] if not silo["unseen"] and silo[about] is not None}
    if len(known) < 2:
        return card("Fairness", question, "–", paragraph("A spread needs results of at least two silos."))
    count = len({silo["domain"] for silo in known.values()})
    words = f"{kind_of(run)} standard deviation of {own}{possessive} {run.metric} over the {len(known)} silos"
    words += f" ({points(found['std_domains'])} over their {count} domains)" if 1 < count < len(known) else ""
    # by value, since what is worst depends on the metric's direction
    worst, best = (min(known, key=lambda name: abs(known[name][about] - found[end])) for end in ("worst", "best"))
    tails = " and ".join(f"{share(found[key])} in the {key.replace('_', ' ')}" for key in TAILS)
    other = judged_fairness(baseline.summary) if baseline else {}
    name = whose_models(baseline, run) if baseline else ""
    guessed = found.get("at_chance") or other.get("at_chance")
    warning = "An even result at chance level is not fair: it is equally bad everywhere."
    if baseline and not found.get("at_chance"):
        warning = f"Not compared with {name}, which is at chance level: there an even result is not fair."
    return card(
        "Fairness",
        question,
        f"{points(found['std_silos'])} <small>{unit().points} around {share(found['mean'])}</small>",
        "" if guessed else against(found["std_silos"], other.get("std_silos"), name, spread=True),
        guessing_words(found),
        paragraph(warning) if guessed else "",
        paragraph(f"{words}, around their mean; lower is more even"),
        paragraph(f"worst {worst} {share(known[worst][about])}, best {best} {share(known[best][about])}"),
        paragraph(f"variance {squared(found[VARIANCE])} {unit().squared}; mean {tails} of the silos"),
        equal_words(found),
    )


def equal_words(found: Mapping[str, Any]) -> str:
    """How much of the spread the sizes of the test sets alone would make."""
    equal = found.get("std_if_equal")
    if equal is None:
        return ""
    more = "these are further apart" if found["apart"] else "these are no further apart than chance makes them"
    return paragraph(f"equally good silos would show {points(equal)} {unit().points} on these test data: {more}")


# ----------------------------------------------------------------------------------------------------- 3 the silos
def silo_table(run: Run, baseline: Run | None) -> str:
    if not run.summary["silos"]:
        return section("silos", "Silo by silo", paragraph("Nothing was evaluated yet."))
    names = ("global", "personal", "gap")
    lead = heads(["test samples", "chance"])
    head = f'<th scope="col">silo</th><th scope="col">domain</th>{lead}{heads(names, True)}'
    if baseline:
        groups = "".join(
            f'<th class="group" scope="colgroup" colspan="3">{text(item.method)}</th>'
            for item, _ in pair(run, baseline)
        )
        head = f'<tr><td colspan="4"></td>{groups}</tr><tr>{head}{heads(names, True)}</tr>'
    else:
        head = f"<tr>{head}</tr>"
    others = {silo["silo"]: silo for silo in baseline.summary["silos"]} if baseline else {}
    rows = []
    for silo in run.summary["silos"]:
        tag = ' <span class="tag">unseen</span>' if silo["unseen"] else ""
        samples = "–" if silo["samples"] is None else f"{silo['samples']:,}"
        row = f'<th scope="row">{text(silo["silo"])}{tag}</th><td>{text(silo["domain"])}</td>'
        row += cells([samples, share(chance_level(silo))]) + results_cells(silo)
        row += results_cells(others.get(silo["silo"], {})) if baseline else ""
        rows.append(f"<tr>{row}</tr>\n")
    about = f"{run.metric.capitalize()} on each silo's test data, of the global and of the silo's own model. "
    known = any(silo.get("chance") for silo in run.summary["silos"])
    if any(one for silo in run.summary["silos"] for one in (silo.get("intervals") or {}).values()):
        about += f"Small: its 95 % interval from the number of test samples ({kind_of_interval(run)}). "
    about += (
        "The gap is the validation loss of the global model minus that of the silo's own: how much a silo gives up. "
    )
    if known:
        about += "Chance is what a model reaches that always names the most frequent class or guesses evenly; "
        about += f"{GUESSED} marks results whose interval reaches down to it."
    return section("silos", "Silo by silo", paragraph(about), table(head, rows))


def chance_level(silo: Mapping[str, Any]) -> float | None:
    found = silo.get("chance")
    return max(found["majority"], found["uniform"]) if found else None


def results_cells(silo: Mapping[str, Any]) -> str:
    intervals, guessed = silo.get("intervals") or {}, silo.get("at_chance") or ()
    kind = "global" if silo.get("adapted") is None else "adapted"
    shared = share(silo.get(kind)) + (f" (unadapted {share(silo['global'])})" if kind == "adapted" else "")
    found = [(shared, kind), (share(silo.get("personal")), "personal")]
    drawn = ""
    for place, (value, model) in enumerate(found):
        below = f"<small>{low_to_high(intervals[model])}</small>" if intervals.get(model) else ""
        below += f"<small>{GUESSED}</small>" if model in guessed else ""
        first = " first" if place == 0 else ""
        drawn += f'<td class="number{first}">{text(value)}{below}</td>'
    return drawn + cells([plain(silo.get("gap"))])


# ------------------------------------------------------------------------------------------------------ diagnostics
def diagnostics(diagrams: Sequence[Drawn]) -> str:
    """What `fairsilo figure` drew of this run."""
    if not diagrams:
        return ""
    drawn = "".join(
        figure(one.title, image(one.svg, one.title, one.csv), caption=one.about).replace(
            "<figure>", '<figure class="wide">' if one.wide else "<figure>"
        )
        for one in diagrams
    )
    about = "Drawn from the models that the run kept; numbers as CSV, and the drawings, are in figures/."
    return section("diagnostics", "Diagnostics", paragraph(about), figures(drawn))


# -------------------------------------------------------------------------------------------------------- 10 footer
def footer(run: Run, raw_config: str) -> str:
    pieces = [f"fairsilo {run.info.get('version', '')}".strip()]
    if run.info.get("started"):
        pieces.append(f"started {run.info['started']}")
    if isinstance(run.info.get("seconds"), int | float):
        pieces.append(f"took {duration(run.info['seconds'])}")
    shown = f"<details><summary>Configuration</summary><pre>{text(raw_config)}</pre></details>" if raw_config else ""
    return f"<footer>\n{paragraph('; '.join(pieces))}{shown}\n</footer>\n"
