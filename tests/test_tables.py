"""Tables for the terminal, for spreadsheets and for papers show the right numbers."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from fairsilo.analysis.metrics import summarise
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.report.latex import comparison_latex
from fairsilo.report.tables import (
    CHANCE,
    comparison_csv,
    comparison_table,
    comparison_tables,
    held_out_tables,
    methods_table,
    percent,
    predictions_table,
    run_table,
    spread_table,
)


def summary(outside: float | None, *own: float, selection: str = "last") -> dict[str, Any]:
    """A run with an unseen silo u and silos whose own models are 10 points better than the global one."""
    rows: list[dict[str, Any]] = []

    def add(silo: str, metric: float, model: str) -> None:
        place = {"round": 7, "silo": silo, "domain": silo, "unseen": silo == "u", "model": model, "split": "test"}
        rows.append({**place, "loss": 1.0, "metric": metric, "samples": 10})

    for name, metric in zip("ab", own, strict=True):
        add(name, metric, "global")
        add(name, metric + 0.1, "personal")
    if outside is not None:
        add("u", outside, "global")
    return summarise(rows, selection=selection)


def rendered(table: Table, width: int = 200) -> list[list[str]]:
    """The cells of a table as text, line by line; titles are lines of one cell."""
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    lines = text.getvalue().replace("┃", "│").splitlines()
    return [[cell.strip() for cell in line.strip("│ ").split("│")] for line in lines if any(map(str.isalnum, line))]


def test_percents() -> None:
    assert percent(0.12345) == "12.3"
    assert percent(1.0) == "100.0"
    assert percent(0.0) == "0.0"
    assert percent(0.05, sign=True) == "+5.0"
    assert percent(-0.05, sign=True) == "-5.0"
    assert percent(None) == "-"


def test_a_run_is_shown_with_its_three_answers_and_every_silo() -> None:
    lines = rendered(run_table("fedprox", summary(0.425, 0.5, 0.7)))
    assert lines[0] == ["fedprox — accuracy in percent; last round (7)"]
    cells = {line[0]: line[1:] for line in lines[1:]}
    assert cells["generalise"][0] == "42.5"
    assert cells["personalise"][0] == "70.0"
    assert cells["fair (mean)"][0] == "10.0 (60.0)"
    assert cells["worst to best tenth"][0] == "50.0 to 70.0"
    assert cells["variance, percent²"][0] == "100.0"
    assert cells["a"] == ["50.0", "60.0"]
    assert cells["b"] == ["70.0", "80.0"]
    assert cells["u (unseen)"] == ["42.5", "-"]


def test_the_baseline_stands_beside_the_method() -> None:
    lines = rendered(run_table("faa", summary(0.5, 0.5, 0.5), ("fedavg", summary(0.25, 0.1, 0.3))))
    assert lines[0] == ["faa beside fedavg — accuracy in percent; last round (7)"]
    assert [cell for cell in lines[1] if cell] == ["faa", "own model", "fedavg", "own model"]
    cells = {line[0]: line[1:] for line in lines[2:]}
    assert cells["generalise"] == ["50.0", "", "25.0"]
    assert cells["b"] == ["50.0", "60.0", "30.0", "40.0"]
    assert cells["fair (mean)"] == ["0.0 (50.0)", "", "10.0 (20.0)"]


def test_what_was_not_measured_is_a_dash() -> None:
    cells = {line[0]: line[1:] for line in rendered(run_table("fedavg", summary(None, 0.5, 0.7)))}
    assert cells["generalise"][0] == "-"


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ("last5", "mean of the last five evaluations (7)"),
        ("source-validation", "best round on the training silos' validation data (7)"),
        ("oracle", "ORACLE: best round on the unseen test data (7)"),
    ],
)
def test_a_table_says_how_its_numbers_were_selected(selection: str, words: str) -> None:
    chosen = {**summary(0.5, 0.5, 0.7), "selection": selection}
    assert words in str(run_table("fedavg", chosen).title)


def comparison(*names: str) -> dict[str, Any]:
    """Two held-out domains and one seed; each method beats the one before by 10 and 20 points outside."""
    cells = []
    for place, name in enumerate(names):
        for number, held_out in enumerate(("u", "v")):
            outside = 0.2 + 0.2 * number + 0.1 * place * (number + 1)
            cells.append({"method": name, "held_out": held_out, "seed": 3, "summary": summary(outside, 0.5, 0.7)})
    return {"methods": list(names), "held_out": ["u", "v"], "seeds": [3], "cells": cells}


def test_methods_are_compared_with_paired_differences() -> None:
    lines = rendered(comparison_table(comparison("fedavg", "faa")))
    assert lines[0] == ["accuracy in percent, mean over 2 held-out domains, one seed; last round"]
    assert lines[2] == ["method", "minus fedavg", "minus fedavg", "minus fedavg"]
    # fedavg: 20 and 40; faa: 30 and 60; differences 10 and 20
    assert lines[3] == ["fedavg", "30.0", "70.0", "10.0 (60.0)"]
    assert lines[4] == ["faa", "45.0", "70.0", "10.0 (60.0)"]
    assert lines[5] == ["+15.0", "+0.0", "+0.0"]


def test_differences_have_a_margin_over_seeds() -> None:
    seeds = {"u": 3, "v": 4}
    found = comparison("fedavg", "faa")
    cells = [{**cell, "held_out": "u", "seed": seeds[cell["held_out"]]} for cell in found["cells"]]
    lines = rendered(comparison_table({**found, "held_out": ["u"], "seeds": [3, 4], "cells": cells}))
    assert (lines[2], lines[3]) == (["minus fedavg"] * 3, ["method", "± 95 %", "± 95 %", "± 95 %"])
    # differences 10 and 20, their standard error 5, Student's t of one degree 12.706
    assert lines[6] == ["+15.0 ± 63.5", "+0.0", "+0.0"]


def test_tails_and_variance_are_a_table_of_their_own() -> None:
    found = comparison("fedavg", "faa")
    for cell in found["cells"]:
        cell["summary"]["fairness"]["global"]["mean"] += 0.125 * (cell["method"] == "faa")
    lines = rendered(spread_table(found))
    assert lines[2] == ["method", "minus fedavg", "worst tenth", "best tenth", "variance, percent²"]
    assert lines[3] == ["fedavg", "60.0", "50.0", "70.0", "100.0"]
    assert lines[4:6] == [["faa", "72.5", "50.0", "70.0", "100.0"], ["+12.5"]]


def test_an_error_has_its_variance_in_its_own_unit() -> None:
    found = {**summary(0.4, 0.5, 0.7), "metric": "mae"}
    lines = rendered(run_table("fedavg", found))
    assert lines[0] == ["fedavg — mae, lower is better; last round (7)"]
    cells = {line[0]: line[1:] for line in lines}
    assert cells["variance, mae²"][0] == "0.01"


def test_a_variance_that_an_older_summary_lacks_is_a_dash() -> None:
    found = summary(0.4, 0.5, 0.7)
    del found["fairness"]["global"]["variance_silos"]
    cells = {line[0]: line[1:] for line in rendered(run_table("fedavg", found))}
    assert cells["variance, percent²"][0] == "-"


def test_every_cell_is_a_line_of_the_csv() -> None:
    found = comparison("fedavg", "fedprox(mu=0.1) | fedheal")
    lines = list(csv.DictReader(io.StringIO(comparison_csv(found))))
    assert len(lines) == 4
    assert [(line["method"], line["held_out"], line["seed"]) for line in lines[1:3]] == [
        ("fedavg", "v", "3"),
        ("fedprox(mu=0.1) | fedheal", "u", "3"),
    ]
    assert float(lines[3]["generalisation"]) == pytest.approx(0.6)
    assert float(lines[0]["personalisation"]) == pytest.approx(0.7)
    assert float(lines[0]["fairness"]) == pytest.approx(0.1)
    assert float(lines[0]["fairness_mean"]) == pytest.approx(0.6)
    assert float(lines[0]["fairness_worst_tenth"]) == pytest.approx(0.5)
    assert float(lines[0]["fairness_best_tenth"]) == pytest.approx(0.7)
    assert float(lines[0]["fairness_variance_silos"]) == pytest.approx(0.01)
    assert lines[0]["fairness_at_chance"] == "False"
    assert lines[0]["gap_variance"] == ""
    assert lines[0]["selection"] == "last"


def test_a_method_with_a_comma_stays_one_column_of_the_csv() -> None:
    lines = list(csv.reader(io.StringIO(comparison_csv(comparison("fedheal(tau=0.4, beta=0.2)")))))
    assert {len(line) for line in lines} == {18}
    assert lines[1][0] == "fedheal(tau=0.4, beta=0.2)"


def test_latex_has_a_row_a_method() -> None:
    lines = comparison_latex(comparison("fedavg", "faa")).splitlines()
    ends = r"$50.0\;(0.0)$ & $70.0\;(0.0)$ & $100.0\;(0.0)$ \\"
    assert r"fedavg & $30.0\;(14.1)$ & $70.0\;(0.0)$ & $60.0\;(0.0)$ & $10.0\;(0.0)$ & " + ends in lines
    assert r"faa & $45.0\;(21.2)$ & $70.0\;(0.0)$ & $60.0\;(0.0)$ & $10.0\;(0.0)$ & " + ends in lines
    assert lines[0].removeprefix("% accuracy in percent, ") == (
        "mean over 2 held-out domains, one seed; in brackets: std over held-out domains"
    )
    assert lines[1].endswith("variance in percent²")
    assert lines[2] == r"\begin{tabular}{lrrrrrrr}"
    assert lines[-1] == r"\end{tabular}"


def test_spreads_over_seeds_and_over_domains_are_kept_apart() -> None:
    found = comparison("fedavg")
    again = [
        {**cell, "seed": 4, "summary": summary(outside, 0.5, 0.7)}
        for cell, outside in zip(found["cells"], (0.3, 0.7), strict=True)
    ]
    found = {**found, "seeds": [3, 4], "cells": [*found["cells"], *again]}
    # u has 20 and 30, v 40 and 70: by seed 30 and 50, by domain 25 and 55
    assert rendered(comparison_table(found))[-1][1] == "40.0 ± 14.1"
    assert rendered(held_out_tables(found)[0])[-1] == ["fedavg", "25.0", "55.0", "40.0", "21.2"]
    assert r"fedavg & $40.0 \pm 14.1\;(21.2)$ & " in comparison_latex(found)


def own_models(found: dict[str, Any], *names: str) -> dict[str, Any]:
    """The same comparison, in which these methods are about silos' own models."""
    for cell in found["cells"]:
        if cell["method"] in names:
            cell["summary"] = {**cell["summary"], "about": "personal"}
    return found


OF_OWN = "own models: mean, spread and tails over silos are those of the silos' own models"


def test_methods_about_own_models_are_marked_where_others_are_about_the_global_one() -> None:
    found = own_models(comparison("fedavg", "ditto"), "ditto")
    outside, at_home, even = (rendered(table) for table in held_out_tables(found))
    assert outside[-1][0] == at_home[-1][0] == "ditto"
    # own models are 10 points better: 60 and 80
    assert [line[:2] for line in even if len(line) > 1][1:] == [
        ["fedavg", "10.0 (60.0)"],
        ["ditto (own models)", "10.0 (70.0)"],
    ]
    lines = rendered(comparison_table(found))
    assert [line[-1] for line in lines[3:7]] == ["10.0 (60.0)", "10.0 (70.0)", "+0.0", "own models"]
    assert [line[0] for line in rendered(spread_table(found))[3:5]] == ["fedavg", "ditto (own models)"]
    assert OF_OWN in " ".join(line[0] for line in lines[7:])
    assert "own models" not in str(rendered(comparison_table(comparison("fedavg", "ditto"))))
    of_run = rendered(run_table("ditto", found["cells"][2]["summary"], ("fedavg", found["cells"][0]["summary"])))
    assert ["fair (mean)", "10.0 (70.0), own models", "", "10.0 (60.0)"] in of_run
    assert OF_OWN in " ".join(line[0] for line in of_run[-2:])
    lines = list(csv.DictReader(io.StringIO(comparison_csv(found))))
    assert [line["fairness_of"] for line in lines] == ["global model"] * 2 + ["own models"] * 2


def test_latex_marks_what_is_of_own_models() -> None:
    text = comparison_latex(own_models(comparison("fedavg", "ditto"), "ditto"))
    marked = r"$70.0\;(0.0)^{\ast}$ & $10.0\;(0.0)^{\ast}$ & "
    assert r"ditto & $45.0\;(21.2)$ & $70.0\;(0.0)$ & " + marked in text
    assert r"ditto & $10.0^{\ast}$ & $10.0^{\ast}$ & $10.0^{\ast}$ & $0.0$ & $+0.0$ \\" in text
    assert text.count("% \\ast (own models): ") == 2
    assert not re.search(r"fedavg & .*ast", text)
    assert "ast" not in comparison_latex(comparison("fedavg", "ditto")).replace("last", "")


def test_what_a_mark_means_is_said_once_under_the_last_table_that_has_it() -> None:
    found = own_models(comparison("fedavg", "ditto"), "ditto")
    for cell in found["cells"]:
        for even in cell["summary"]["fairness"].values():
            if isinstance(even, dict):
                even["at_chance"] = True
    found["cells"][0]["summary"]["generalisation"]["at_chance"] = True
    tables = comparison_tables(found)
    assert len(tables) == 5
    assert [table.caption is None for table in tables] == [True] * 4 + [False]
    assert str(tables[-1].caption).splitlines() == [CHANCE, str(tables[-1].caption).splitlines()[1]]
    assert OF_OWN in str(tables[-1].caption)
    for cell in found["cells"]:
        for even in cell["summary"]["fairness"].values():
            if isinstance(even, dict):
                even["at_chance"] = False
    chance = [CHANCE in str(table.caption) for table in comparison_tables(found)]
    assert chance == [False, False, False, True, False]  # the mark is at generalisation alone, and not over silos


def test_latex_has_a_table_of_held_out_domains_for_each_answer() -> None:
    found = comparison("fedavg", "faa")
    again = [
        {**cell, "seed": 4, "summary": summary(outside, 0.5, 0.7)}
        for cell, outside in zip(found["cells"], (0.3, 0.7, 0.5, 0.9), strict=True)
    ]
    text = comparison_latex({**found, "seeds": [3, 4], "cells": [*found["cells"], *again]})
    tables = text.split("\n\n")
    assert [table.count(r"\begin{tabular}") for table in tables] == [1] * 4
    assert [table.partition(":")[0] for table in tables[1:]] == [
        "% generalisation",
        "% personalisation",
        "% fairness",
    ]
    lines = tables[1].splitlines()
    assert lines[1] == r"\begin{tabular}{lrrrrrr}"
    assert lines[3] == r"Method & u & v & Mean & Std (seeds) & Std (domains) & Minus fedavg \\"
    # u has 20 and 30, v 40 and 70: by seed 30 and 50, by domain 25 and 55
    assert lines[5] == r"fedavg & $25.0 \pm 7.1$ & $55.0 \pm 21.2$ & $40.0$ & $14.1$ & $21.2$ &  \\"
    # u has 30 and 50, v 60 and 90; differences 10, 20 and 20, 20: by seed 15 and 20, Student's t 12.706
    assert lines[6].endswith(r"& $57.5$ & $17.7$ & $24.7$ & $+17.5 \pm 31.8$ \\")
    assert all(line.startswith("%") or line.count(" & ") in (0, 6) for line in lines)
    assert all(line.isascii() for line in lines)


def test_one_held_out_domain_has_no_mean_over_domains_in_latex() -> None:
    found = comparison("fedavg", "faa")
    cells = [cell for cell in found["cells"] if cell["held_out"] == "u"]
    lines = comparison_latex({**found, "held_out": ["u"], "cells": cells}).split("\n\n")[1].splitlines()
    assert lines[3] == r"Method & u & Minus fedavg \\"
    assert lines[6] == r"faa & $30.0$ & $+10.0$ \\"
    nobody = [{**cell, "held_out": "-", "summary": summary(None, 0.5, 0.7)} for cell in cells]
    text = comparison_latex({**found, "held_out": ["-"], "cells": nobody})
    assert "% generalisation" not in text
    assert "Method & no domain held out & Minus fedavg" in text


def test_latex_escapes_what_latex_would_read() -> None:
    text = comparison_latex(comparison(r"a_b & 50% | {x} $#\y"))
    assert r"a\_b \& 50\% \textbar{} \{x\} \$\#\textbackslash{}y & $30.0" in text


def test_the_list_of_methods_names_each_with_its_settings() -> None:
    cells = {
        line[0]: line[1:] for line in rendered(methods_table([entry.describe() for entry in CATALOGUE.values()]), 300)
    }
    assert set(CATALOGUE) <= set(cells)
    assert cells["fedprox"][1:] == ["mu=0.01", "global"]
    # a setting that both parts have is said once
    assert cells["fedheal"][1].count("variant=released") == 1
    assert cells["ditto"][2] == "personal"


def test_predictions_show_what_counts_most_first() -> None:
    row = {"image": "x.png", "probabilities": {"cat": 0.2, "dog": 0.7, "cow": 0.1}}
    plain = rendered(predictions_table([row]))
    assert plain == [
        ["image", "class", "probability", "then", "probability"],
        ["x.png", "dog", "0.700", "cat", "0.200"],
    ]
    lines = rendered(predictions_table([{**row, "attention": {"ink": 0.256, "[b]": 0.414, "oil": 0.33}}]))
    assert [line[-1] for line in lines] == ["attention", "[b] 41 %, oil 33 %, ink 26 %"]
