"""Results class by class: how much of each class every silo's model finds, and what it takes for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairsilo.analysis.metrics import mean
from fairsilo.report.blocks import Run, heads, listed, paragraph, section, table
from fairsilo.report.texts import percent, shorten, text

CLASSES = 12  # columns of a table; of more the hardest, and the most confused pairs
PAIRS = 10
SILOS = 32  # with a confusion matrix of their own; the others are in metrics.jsonl
STRONGEST = 42  # percent of colour in the strongest cell: text on it stays legible in both themes
MODELS = {"global": "global", "adapted": "adapted", "personal": "own"}

Row = Mapping[str, Any]


def classes(run: Run) -> str:
    """Silos x classes, and a confusion matrix of each silo, of the model and the round that the results are about."""
    rows = rows_shown(run)
    found = {silo: shares for silo, row in rows.items() if (shares := shares_of(row))}
    if not found:
        return ""
    names = class_names(run, max(len(shares) for shares in found.values()))
    structures = any("dice" in (row.get("per_class") or {}) for row in rows.values())
    known = [number for number in range(len(names)) if not structures or number]  # class 0 is the background
    shown = hardest(found, known)
    what = "Dice of each structure" if structures else "Share of each class that is found (sensitivity)"
    about = f"{what} on the test data of round {run.summary['rounds'][-1]}; small: how many "
    about += "test images show it. " if structures else "test samples it has. "
    about += "The stronger the shade, the better; a dash: no test sample."
    if len(shown) < len(known):
        about += f" Of {len(known)} classes these are the {len(shown)} with the lowest mean over the silos."
    drawn = overview(run, rows, found, [(number, names[number]) for number in shown])
    return section("classes", "Class by class", paragraph(about), drawn, confusions(run, rows, names))


def rows_shown(run: Run) -> dict[str, Row]:
    """Silo -> its test row of the last selected round; a silo that sat out counts with its own model's latest."""
    if not run.summary["rounds"]:
        return {}
    last, found = run.summary["rounds"][-1], {}
    own = ("personal", "global") if run.summary["about"] == "personal" else ("global", "personal")
    for silo in run.summary["silos"]:
        for model in ("adapted", "global") if silo["unseen"] else own:
            past = [
                row
                for row in run.rows
                if (row["silo"], row["model"], row["split"]) == (silo["silo"], model, "test")
                and (row["round"] == last or (model == "personal" and row["round"] < last))
            ]
            if past:
                found[silo["silo"]] = max(past, key=lambda row: int(row["round"]))
                break
    return found


def shares_of(row: Row) -> list[tuple[float | None, float]]:
    """Of each class: the share that is found, or its Dice, and how many samples it has; none where rows say neither."""
    counted = row.get("per_class") or {}
    samples = counted.get("samples") or []
    if "right" in counted:
        values = [right / count if count else None for right, count in zip(counted["right"], samples, strict=False)]
    elif "dice" in counted:
        values = [value if count else None for value, count in zip(counted["dice"], samples, strict=False)]
    else:
        return []
    return list(zip(values, samples, strict=False))


def class_names(run: Run, count: int) -> list[str]:
    named = [str(name) for name in (run.info.get("roster") or {}).get("classes") or ()]
    return named if len(named) == count else [f"class {number}" for number in range(count)]


def hardest(found: Mapping[str, Sequence[tuple[float | None, float]]], known: Sequence[int]) -> list[int]:
    """The classes that a table has room for: all, or those with the lowest mean share, in their order."""
    if len(known) <= CLASSES:
        return list(known)
    each = {n: [one[n][0] for one in found.values() if n < len(one)] for n in known}
    centres = {n: mean(value for value in values if value is not None) for n, values in each.items()}
    told = [n for n in known if centres[n] == centres[n]]  # not NaN: some silo has samples of it
    return sorted(sorted(told, key=lambda n: centres[n])[:CLASSES])


def overview(
    run: Run,
    rows: Mapping[str, Row],
    found: Mapping[str, Sequence[tuple[float | None, float]]],
    shown: Sequence[tuple[int, str]],
) -> str:
    unseen = {silo["silo"] for silo in run.summary["silos"] if silo["unseen"]}
    lines = []
    for silo, shares in found.items():
        tag = ' <span class="tag">unseen</span>' if silo in unseen else ""
        line = f'<th scope="row">{text(silo)}{tag}</th><td>{MODELS[rows[silo]["model"]]}</td>'
        for number, _ in shown:
            value, samples = shares[number] if number < len(shares) else (None, 0)
            if value is None:
                line += '<td class="number">–</td>'
            else:
                small = f"<small>{samples:,.0f}</small>"
                line += (
                    f'<td class="number" style="--heat: {STRONGEST * value:.1f}%">{percent(100 * value)}{small}</td>'
                )
        lines.append(f"<tr>{line}</tr>\n")
    names = heads([shorten(name, 24) for _, name in shown])
    head = f'<tr><th scope="col">silo</th><th scope="col">model</th>{names}</tr>'
    return table(head, lines).replace('class="table"', 'class="table heat"', 1)


# ------------------------------------------------------------------------------------------------------------ confusion
def confusions(run: Run, rows: Mapping[str, Row], names: Sequence[str]) -> str:
    """What is taken for what, one folded table per silo; unseen silos first where not all have room."""
    unseen = {silo["silo"] for silo in run.summary["silos"] if silo["unseen"]}
    found = {silo: found for silo, row in rows.items() if (found := (row.get("per_pair") or {}).get("confusion"))}
    if not found or any(len(counts) != len(names) for counts in found.values()):
        return ""
    kept = sorted(found, key=lambda silo: silo not in unseen)[:SILOS]
    drawn = "".join(
        f'<details class="silo"><summary>{text(silo)}: {text(mistakes(counts, names))}</summary>\n'
        f"{matrix(counts, names) if len(names) <= CLASSES else pairs(counts, names)}</details>\n"
        for silo, counts in found.items()
        if silo in kept
    )
    about = (
        "What is taken for what: rows are the true class, columns the predicted one, shaded by the share of the row."
    )
    if len(names) > CLASSES:
        about = f"What is taken for what: of {len(names)} classes the {PAIRS} pairs that are confused most often."
    left = len(found) - len(kept)
    more = f"{left} more silos are in metrics.jsonl (per_pair)." if left else ""
    return f"<h3>Confusion</h3>\n{paragraph(about)}{drawn}{paragraph(more, 'quiet') if more else ''}"


def mistaken(counts: Sequence[Sequence[float]]) -> list[tuple[float, int, int]]:
    """How often, true class, predicted class: most often first."""
    found = [(n, i, j) for i, line in enumerate(counts) for j, n in enumerate(line) if i != j and n > 0]
    return sorted(found, key=lambda one: (-one[0], one[1], one[2]))


def mistakes(counts: Sequence[Sequence[float]], names: Sequence[str]) -> str:
    """The line that stands above a folded table."""
    wrong, total = mistaken(counts), sum(map(sum, counts))
    if not wrong:
        return f"all {total:,.0f} right"
    most = listed(f"{names[i]} taken for {names[j]} ({n:,.0f})" for n, i, j in wrong[:2])
    return f"{sum(n for n, _, _ in wrong):,.0f} of {total:,.0f} wrong; most often {most}"


def matrix(counts: Sequence[Sequence[float]], names: Sequence[str]) -> str:
    lines = []
    for i, (name, line) in enumerate(zip(names, counts, strict=True)):
        total = sum(line)
        drawn = ""
        for j, count in enumerate(line):
            shade = STRONGEST * count / total if total else 0.0
            kind = "number" if i == j else "number wrong"
            drawn += f'<td class="{kind}" style="--heat: {shade:.1f}%">{count:,.0f}</td>'
        lines.append(f'<tr><th scope="row">{text(name)}</th>{drawn}</tr>\n')
    head = f'<tr><th scope="col">true, predicted as</th>{heads([shorten(name, 24) for name in names])}</tr>'
    return table(head, lines).replace('class="table"', 'class="table heat confusion"', 1)


def pairs(counts: Sequence[Sequence[float]], names: Sequence[str]) -> str:
    lines = [
        f'<tr><th scope="row">{text(names[i])}</th><td>{text(names[j])}</td><td class="number">{count:,.0f}</td>'
        f'<td class="number">{percent(100 * count / sum(counts[i]))}</td></tr>\n'
        for count, i, j in mistaken(counts)[:PAIRS]
    ]
    names_ = '<th scope="col">true class</th><th scope="col">taken for</th>'
    return table(f"<tr>{names_}{heads(['times', 'of the true class'])}</tr>", lines)
