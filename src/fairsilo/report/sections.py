"""The sections of the page that are drawn: curves, domains, weights, gaps, costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from fairsilo.analysis.metrics import CLUSTERED, mean, variance
from fairsilo.report.axes import spans_decades
from fairsilo.report.bars import Bar, bar_chart
from fairsilo.report.blocks import (
    History,
    Run,
    cells,
    figure,
    figures,
    heads,
    kind_of,
    pair,
    panel,
    paragraph,
    points,
    ranges,
    section,
    share,
    table,
)
from fairsilo.report.lines import line_chart
from fairsilo.report.series import Point, Series, emphasised, legend
from fairsilo.report.texts import duration, percent, plain, size, text
from fairsilo.report.units import unit

NOTHING = 1e-9  # a weight below it


# ------------------------------------------------------------------------------------------------------- 4 curves
def history(run: Run, model: str, split: str, value: str = "metric") -> History:
    """Evaluated round -> silo -> value; a silo that sat out keeps its own model's latest, as in `metrics.results`."""
    found: History = {int(row["round"]): {} for row in sorted(run.rows, key=lambda row: int(row["round"]))}
    for row in run.rows:
        if row["model"] == model and row["split"] == split:
            found[int(row["round"])][row["silo"]] = row[value]
    latest: dict[str, float] = {}
    for number, values in found.items():
        latest = {**latest, **values} if model == "personal" else values
        found[number] = latest
    return found


def means_of(past: History, silos: Iterable[str] | None = None, scale: float | None = None) -> list[Point]:
    """Round and mean over the silos (all, where none are named), by default in the unit of results."""
    scale = unit().factor if scale is None else scale
    chosen = None if silos is None else set(silos)
    found = {n: [v for s, v in values.items() if chosen is None or s in chosen] for n, values in past.items()}
    return [(n, mean(values) * scale if values else None) for n, values in found.items()]


def curves(run: Run, baseline: Run | None) -> str:
    kinds: list[tuple[str, str, list[list[Point]]]] = []
    runs = pair(run, baseline)
    shared = [history(item, "global", "test") for item, _ in runs]
    own = [history(item, "personal", "test") for item, _ in runs]
    unseen = [silo["silo"] for silo in run.summary["silos"] if silo["unseen"]]
    accuracy = f"{run.metric}{unit().label}"
    if unseen:
        adapted = [history(item, "adapted", "test") for item, _ in runs]
        outside = [
            {n: values | new.get(n, {}) for n, values in p.items()} for p, new in zip(shared, adapted, strict=True)
        ]
        kinds.append(("Generalisation: global model, unseen domain", accuracy, [means_of(p, unseen) for p in outside]))
    if any(item.rows for item, _ in runs):  # there are results; the training loss is there before them
        kinds.append(("Personalisation: mean of the silos' own models", accuracy, [means_of(p) for p in own]))
        kinds.append(("Global model, mean over the training silos", accuracy, [means_of(p, run.silos) for p in shared]))
    losses = [{int(r["round"]): dict(r.get("train_loss") or {}) for r in item.rounds} for item, _ in runs]
    kinds.append(("Training loss, mean over the silos", "loss", [means_of(past, scale=1.0) for past in losses]))
    drawn = []
    for title, label, lines in kinds:
        series = [
            Series(item.method, line, colour, dashed=colour == 2)
            for (item, colour), line in zip(runs, lines, strict=True)
        ]
        limits, form = ((0.0, 100.0), percent) if label == accuracy and unit().sign else (None, plain)
        chart = line_chart(series, title=title, y_label=label, form=form, limits=limits)
        drawn.append(figure(title, chart, legend(series) if baseline else ""))
    about = "Every panel has its own scale. Point at a round to read its values."
    return section("curves", "Round by round", paragraph(about), figures(*drawn))


# ------------------------------------------------------------------------------------------------------ 5 domains
def by_domain(run: Run) -> dict[str, tuple[float, bool]]:
    """Domain -> mean of the global model over its silos, and whether nobody trained on it."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for silo in run.summary["silos"]:
        if silo["global"] is not None:
            found.setdefault(silo["domain"], []).append(silo)
    return {name: (mean(s["global"] for s in silos), all(s["unseen"] for s in silos)) for name, silos in found.items()}


def domains(run: Run, baseline: Run | None) -> str:
    own = by_domain(run)
    if not own:
        return ""
    runs = [(item, colour, by_domain(item)) for item, colour in pair(run, baseline)]
    factor = unit().factor
    groups = [
        (
            name,
            [
                Bar(item.method, found[name][0] * factor if name in found else None, colour, unseen)
                for item, colour, found in runs
            ],
        )
        for name, (_, unseen) in own.items()
    ]
    spread = run.summary["fairness"]["global"].get("std_domains", 0.0)
    centres = [(item, colour, mean(v for v, unseen in found.values() if not unseen)) for item, colour, found in runs]
    centre = centres[0][2]
    several = sum(1 for _, unseen in own.values() if not unseen) > 1
    chart = bar_chart(
        groups,
        title="Global model by domain",
        x_label=f"{run.metric}{unit().label}",
        form=percent if unit().sign else plain,
        high=100.0 if unit().sign else None,
        band=((centre - spread) * factor, (centre + spread) * factor) if several else None,
        means=[Bar(f"mean of {item.method}", value * factor, colour) for item, colour, value in centres]
        if several
        else (),
    )
    hollow = "hollow: unseen, in neither mean nor band" if any(unseen for _, unseen in own.values()) else ""
    key = swatches([(item.method, colour) for item, colour, _ in runs], hollow)
    said = ["Only one domain trained, so there is no spread over domains."]
    if several:
        said = [spread_words(item, value) for item, _, value in centres]
        said.append(
            f"The upright line is the mean over the domains that trained, the band the mean of {run.method} "
            "± its standard deviation" + ("; a dashed line is the baseline's mean." if baseline else ".")
        )
    return section("domains", "Domain by domain", figures(figure("Global model by domain", chart, key), panel(*said)))


def swatches(names: Iterable[tuple[str, int]], hollow: str = "") -> str:
    """The key of a bar chart."""
    items = [f'<li class="s{colour}"><span class="swatch"></span>{text(name)}</li>' for name, colour in names]
    items += [f'<li class="s1"><span class="swatch hollow"></span>{text(hollow)}</li>'] if hollow else []
    return f'<ul class="legend">{"".join(items)}</ul>'


def spread_words(run: Run, centre: float) -> str:
    spread = run.summary["fairness"]["global"].get("std_domains")
    if spread is None:
        return ""
    return (
        f"{run.method}: {share(centre)} on average over the domains that trained, "
        f"with a {kind_of(run)} standard deviation of {points(spread)} {unit().points}."
    )


# ------------------------------------------------------------------------------------------------------ 6 weights
def _past_weights(run: Run) -> list[tuple[int, Mapping[str, float]]]:
    return [(int(record["round"]), record.get("weights") or {}) for record in run.rounds]


def _warm_ups(run: Run) -> list[tuple[int, str]]:
    """What rounds said of a warm-up."""
    return [(record["round"], note) for record in run.rounds for note in record.get("notes") or () if "warm-up" in note]


def _weights_figure(run: Run) -> str:
    past = _past_weights(run)
    names = run.silos or sorted({name for _, found in past for name in found})
    series = emphasised({name: [(n, found.get(name)) for n, found in past] for name in names})
    title, over = f"Weights of {run.method}", "warm-up over"
    marks = [(n, over) for n, note in _warm_ups(run) if note.startswith(over)]
    chart = line_chart(series, title=title, y_label="weight", include=[0.0], marks=marks)
    return figure(title, chart, legend(series))


def _for_nothing(past: Sequence[tuple[int, Mapping[str, float]]], of: str, most: int = 5) -> list[str]:
    """Silos that took part and had no weight, with the rounds; most rounds first."""
    silent: dict[str, list[int]] = {}
    for number, found in past:
        for name, weight in found.items():
            if abs(weight) < NOTHING:
                silent.setdefault(name, []).append(number)
    names = sorted(silent, key=lambda name: (-len(silent[name]), name))
    said = [
        f"{name} took part in {ranges(silent[name])}{of} and had no weight: nothing of its update came into the model."
        for name in names[:most]
    ]
    return said + ([f"So it was with {len(names) - most} other silos in some round."] if len(names) > most else [])


def weights(run: Run, baseline: Run | None) -> str:
    past, told = _past_weights(run), _warm_ups(run)
    sums = [math.fsum(found.values()) for _, found in past if found]
    apart = any(abs(total - 1) > 1e-3 for total in sums)
    said = [
        "How much each silo's update counted when the server combined them. A missing point: the silo took no part."
    ]
    said.append(
        f"The weights of this method need not add up to one: {plain(min(sums))} to {plain(max(sums))}." if apart else ""
    )
    ends = sorted((weight, name) for name, weight in (past[-1][1] if past else {}).items())
    if len(ends) > 1:
        (least, lowest), (most, highest) = ends[0], ends[-1]
        when = f"In the last round of {run.method}" if baseline else "In the last round"
        if most - least < 1e-9:
            said.append(f"{when} all silos counted the same ({plain(most)}).")
        else:
            said.append(f"{when} {highest} counted most ({plain(most)}), {lowest} least ({plain(least)}).")
    said += _for_nothing(past, f" of {run.method}" if baseline else "")
    said += [note[:1].upper() + note[1:] + "." for _, note in told]
    if CLUSTERED in run.info:
        said.append(f"Clustering accuracy: {share(run.info[CLUSTERED])} of the silos are in a cluster of their domain.")
    drawn = [_weights_figure(item) for item, _ in pair(run, baseline)]
    return section("weights", "Aggregation weights", figures(*drawn, panel(*said)))


# --------------------------------------------------------------------------------------------------------- 7 gaps
def gap_history(run: Run) -> History:
    """Round -> silo -> generalisation gap, as `metrics.gaps` gives it."""
    shared, own = (history(run, model, "validation", "loss") for model in ("global", "personal"))
    return {n: {silo: shared[n][silo] - own[n][silo] for silo in own[n] if silo in shared[n]} for n in own}


def gap_section(run: Run, baseline: Run | None) -> str:
    runs = [(item, colour, gap_history(item)) for item, colour in pair(run, baseline)]
    if not any(values for _, _, past in runs for values in past.values()):
        return section(
            "gaps", "Generalisation gaps", paragraph("No silo has validation data, so there is no gap to show.")
        )
    every = [value for _, _, past in runs for values in past.values() for value in values.values()]
    drawn = []
    like: list[Series] = []
    for item, _, past in runs:
        series = emphasised({s: [(n, v.get(s)) for n, v in past.items()] for s in run.silos}, like)
        like = like or series
        title = f"Gaps of {item.method}"
        chart = line_chart(series, title=title, y_label="gap (loss)", include=[0.0, *every])
        drawn.append(figure(title, chart, legend(series)))
    about = "The gap of a silo is the validation loss of the global model minus that of its own model. "
    about += "Equal gaps mean that no silo pays more than another for the shared model."
    return section("gaps", "Generalisation gaps", paragraph(about), figures(*drawn, *gap_variance(run, runs)))


def gap_variance(run: Run, runs: Sequence[tuple[Run, int, History]]) -> tuple[str, ...]:
    """The variance of the gaps over rounds, and how FFT-GP counts it."""
    count = len(run.silos)
    if count < 2:
        return (panel("A single silo: its gaps have no variance over silos."),)
    series = [
        Series(item.method, [(n, variance(v.values()) if v else None) for n, v in past.items()], colour, colour == 2)
        for item, colour, past in runs
    ]
    log = spans_decades(value for line in series for _, value in line.points)
    title = "Variance of the gaps over the silos"
    chart = line_chart(series, title=title, y_label="variance", log=log, include=() if log else [0.0])
    words = "This is the population variance over the M silos: the mean squared distance of a gap from the mean gap. "
    words += f"FFT-GP's eq. 6 is 2 M² times this: a double sum over pairs of silos, here {2 * count * count} times."
    return figure(title, chart, legend(series) if len(series) > 1 else ""), panel(words)


# -------------------------------------------------------------------------------------------------------- 8 costs
def totals(run: Run) -> dict[str, dict[str, float]]:
    """Exchange kind -> times, asked, bytes and seconds, summed over the run."""
    found: dict[str, dict[str, float]] = {}
    for record in run.rounds:
        for exchange in record.get("exchanges") or ():
            into = found.setdefault(
                str(exchange["kind"]), dict.fromkeys(("times", "asked", "down", "up", "seconds"), 0.0)
            )
            into["times"] += 1
            into["asked"] += exchange.get("asked", 0)
            into["down"] += exchange.get("bytes_down", 0)
            into["up"] += exchange.get("bytes_up", 0)
            into["seconds"] += exchange.get("seconds", 0.0)
    return found


def plain_exchange(run: Run, baseline: Run | None) -> tuple[float | None, str]:
    """Bytes a round of FedAvg's train exchange: measured where it ran, else twice the model for every participant."""
    for item in (run, baseline):
        if item and item.method == "fedavg" and "train" in totals(item):
            train = totals(item)["train"]
            return (train["down"] + train["up"]) / len(item.rounds), "as measured here"
    found = totals(run)
    if not found.get("evaluate", {}).get("asked") or "train" not in found:
        return None, ""
    # where the server has a network of its own, what is evaluated is not what silos are sent to train
    model = run.info.get("bytes_sent") or found["evaluate"]["down"] / found["evaluate"]["asked"]
    return 2 * model * found["train"]["asked"] / len(run.rounds), "twice the model's size for every participant"


def costs(run: Run, baseline: Run | None) -> str:
    if not any(totals(item) for item, _ in pair(run, baseline)):
        return section("costs", "Time and traffic", paragraph("No complete round, so nothing was counted."))
    reference, source = plain_exchange(run, baseline)
    rows, kinds = [], dict.fromkeys(kind for item, _ in pair(run, baseline) for kind in totals(item))
    for item, _ in pair(run, baseline):
        for kind, found in totals(item).items():
            count, moved = len(item.rounds), found["down"] + found["up"]
            times = f"{moved / count / reference:.2f} ×" if reference else "–"
            values = [f"{found['times']:.0f}", duration(found["seconds"]), duration(found["seconds"] / count)]
            values += [size(found["down"]), size(found["up"]), size(moved / count), times]
            rows.append(f'<tr><th scope="row">{text(item.method)}</th><td>{text(kind)}</td>{cells(values)}</tr>\n')
    names = ("times", "time", "time a round", "sent to silos", "sent by silos", "bytes a round", "against FedAvg train")
    head = f'<tr><th scope="col">method</th><th scope="col">exchange</th>{heads(names)}</tr>'
    drawn = [cost_figure(run, baseline, kinds, key) for key in ("bytes", "seconds")]
    taken = [record.get("seconds", math.nan) for record in run.rounds]
    about = f"A round took {duration(median(taken) if taken else math.nan)} (median)."
    if reference and run.rounds:
        about += f" A plain FedAvg round's train exchange moves {size(reference)} ({source})."
        moved = math.fsum(f["down"] + f["up"] for kind, f in totals(run).items() if kind != "evaluate")
        about += f" Evaluation aside, {run.method} moves {moved / len(run.rounds) / reference:.2f} times that."
    return section("costs", "Time and traffic", paragraph(about), frozen_words(run), table(head, rows), figures(*drawn))


def frozen_words(run: Run) -> str:
    """Where a part of the model is frozen: what is sent of it against all of it, and whether its features were kept."""
    sent, whole = run.info.get("bytes_sent"), run.info.get("bytes_model")
    if not sent or not whole or whole < 1.05 * sent:  # a few numbers that belong to the network are never sent
        return ""
    words = f"Of the model's {size(whole)} only the trained tensors are sent: {size(sent)} each way, "
    words += f"{whole / sent:.0f} times less than the model."
    said = str(run.info.get("features") or "")
    return paragraph(words + (f" {said[:1].upper()}{said[1:]}." if said else ""))


def cost_figure(run: Run, baseline: Run | None, kinds: Iterable[str], key: str) -> str:
    found = [(item, colour, totals(item)) for item, colour in pair(run, baseline)]

    def value(item: Run, of: Mapping[str, float] | None) -> float | None:
        return None if of is None else (of["seconds"] if key == "seconds" else of["down"] + of["up"]) / len(item.rounds)

    groups = [
        (kind, [Bar(item.method, value(item, all_.get(kind)), colour) for item, colour, all_ in found])
        for kind in kinds
    ]
    title, form, unit = ("Time a round", duration, "seconds") if key == "seconds" else ("Bytes a round", size, "bytes")
    key_ = swatches([(item.method, colour) for item, colour, _ in found]) if baseline else ""
    return figure(title, bar_chart(groups, title=title, x_label=unit, form=form), key_)
