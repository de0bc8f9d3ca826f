"""The sections of a run's page that say what happened and what was sent: failures, notes, messages."""

from __future__ import annotations

from fairsilo.analysis.attendance import attendance
from fairsilo.report.blocks import Run, pair, panel, paragraph, ranges, section, table
from fairsilo.report.texts import text

SHOWN = 200  # rows of the table of failures; the others are in rounds.jsonl


def failures(run: Run, baseline: Run | None) -> str:
    found = [
        (item.method, record["round"], failure)
        for item, _ in pair(run, baseline)
        for record in item.rounds
        for failure in record.get("failures") or ()
    ]
    rows = [
        f'<tr><th scope="row">{text(failure.get("silo", ""))}</th><td class="number">{text(number)}</td>'
        f"<td>{text(failure.get('exchange', ''))}</td><td>{text(failure.get('kind', ''))}</td>"
        f'<td class="long">{text(failure.get("detail", ""))}</td><td>{text(method)}</td></tr>\n'
        for method, number, failure in found[:SHOWN]
    ]
    head = "".join(f'<th scope="col">{name}</th>' for name in ("silo", "round", "exchange", "kind", "detail", "method"))
    none = "None: every silo that was asked gave a usable answer in every complete round."
    listed_ = table(f"<tr>{head}</tr>", rows) if rows else paragraph(none)
    more = paragraph(f"{len(found) - SHOWN} more are in rounds.jsonl.", "quiet") if len(found) > SHOWN else ""
    who = attendance(run.info.get("roster") or {}, run.rounds, run.rows)
    return section("failures", "Failures", panel(*who), listed_, more) + notes(run, baseline)


def notes(run: Run, baseline: Run | None) -> str:
    """What the methods noted, equal notes of several rounds together."""
    found: dict[tuple[str, str], list[int]] = {}
    for item, _ in pair(run, baseline):
        for record in item.rounds:
            for note in record.get("notes") or ():
                found.setdefault((item.method, str(note)), []).append(int(record["round"]))
    items = "".join(
        f"<li>{text(f'{ranges(rounds).capitalize()}, {method}: {note}')}</li>"
        for (method, note), rounds in found.items()
    )
    return section("notes", "Notes", f'<ul class="notes">{items}</ul>' if items else paragraph("No round has a note."))


def sent(run: Run, baseline: Run | None) -> str:
    content = [paragraph("Every silo sends its model, its number of training samples and its results. Besides:")]
    for item, _ in pair(run, baseline):
        lines = [str(line) for line in item.info.get("method_sends") or ()]
        content.append(f"<h3>{text(item.method)}</h3>\n")
        items = "".join(f"<li>{text(line)}</li>" for line in lines)
        content.append(f'<ul class="notes">{items}</ul>\n' if items else paragraph("Nothing else."))
    return section("sent", "What was sent besides the model", *content)
