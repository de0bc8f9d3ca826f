"""The HTML report: its numbers, its self-containment, and what it says of short, broken or hostile runs."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fairsilo.analysis.chance import EvaluationSet, Judge
from fairsilo.analysis.metrics import gaps, headline, results, summarise
from fairsilo.analysis.paired import compared
from fairsilo.config import TrainSettings
from fairsilo.core.samples import SiloData, Split
from fairsilo.data.federation import Federation
from fairsilo.engine.host import Blueprint
from fairsilo.engine.loop import Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import FairsiloError
from fairsilo.methods.text import method
from fairsilo.report import page, sections
from fairsilo.report.axes import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, decades, nice_ticks, spans_decades
from fairsilo.report.bars import Bar, bar_chart
from fairsilo.report.beside import change
from fairsilo.report.blocks import section, table
from fairsilo.report.lines import line_chart
from fairsilo.report.page import equal_words, read_run, write_report
from fairsilo.report.series import COLOURS, Point, Series, emphasised
from fairsilo.report.texts import duration, percent, plain, shorten, signed, size
from fairsilo.report.units import shown_in
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.saved import SavedRun
from fairsilo.tasks.classify import Classify

SILOS = ("art", "clipart", "photo")
EVALUATE = {"selection": "last", "ddof": 0, "metric": "accuracy"}


def value(number: int, place: int, shift: float) -> float:
    """Made-up but reproducible shares, different everywhere."""
    return 0.3 + 0.04 * number + 0.07 * place + shift + 0.01 * ((number * 7 + place * 3) % 5)


def metric_rows(rounds: int, silos: tuple[str, ...], unseen: tuple[str, ...], validation: bool, shift: float) -> list:
    rows = []
    for number in range(1, rounds + 1):
        for place, name in enumerate((*silos, *unseen)):
            for model in ("global",) if name in unseen else ("global", "personal"):
                for split in ("validation", "test") if validation and name not in unseen else ("test",):
                    metric = value(number, place, shift + (0.05 if model == "personal" else 0.0))
                    found = {"round": number, "silo": name, "domain": name, "unseen": name in unseen, "model": model}
                    rows.append({**found, "split": split, "loss": 2 - metric, "metric": metric, "samples": 1234})
    return rows


def round_rows(rounds: int, silos: tuple[str, ...], extra: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    train = {"kind": "train", "asked": len(silos), "answered": len(silos), "bytes_down": 3000, "bytes_up": 3300}
    evaluate = {"kind": "evaluate", "asked": len(silos), "answered": len(silos), "bytes_down": 3000, "bytes_up": 0}
    return [
        {
            "round": number,
            "participants": list(silos),
            "counted": list(silos),
            "weights": dict.fromkeys(silos, 1 / len(silos)),
            "train_loss": dict.fromkeys(silos, 1 / number),
            "exchanges": [{**train, "seconds": 0.5}, {**evaluate, "seconds": 0.25}],
            "failures": [],
            "notes": [],
            "seconds": 0.8,
            **extra.get(number, {}),
        }
        for number in range(1, rounds + 1)
    ]


def make(
    folder: Path,
    name: str = "faa",
    *,
    rounds: int = 6,
    silos: tuple[str, ...] = SILOS,
    unseen: tuple[str, ...] = ("sketch",),
    validation: bool = True,
    shift: float = 0.0,
    evaluate: dict[str, Any] | None = None,
    extra: dict[int, dict[str, Any]] | None = None,
    **info: Any,
) -> Path:
    run_folder = RunFolder(folder)
    run_folder.create()
    run_folder.append("metrics", metric_rows(rounds, silos, unseen, validation, shift))
    run_folder.append("rounds", round_rows(rounds, silos, extra or {}))
    config = {"method": name, "model": "small-cnn", "seed": 7, "data": {"name": "glyphs"}, "train": {"rounds": 6}}
    (folder / "config.yaml").write_text(yaml.safe_dump({**config, "evaluate": evaluate or EVALUATE}), encoding="utf-8")
    facts = {"status": "finished", "method": name, "method_sends": [], "about": "global", "version": "9.8.7"}
    run_folder.write_json("run.json", {**facts, "seconds": 75.0, **info})
    return folder


def read(folder: Path) -> str:
    return write_report(folder).read_text(encoding="utf-8")


def words(content: str) -> str:
    """What a reader sees, without mark-up and with plain spaces."""
    body = re.sub(r"<style>.*?</style>|<title>.*?</title>", "", content, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))).replace("\u00a0", " ")


def part(content: str, name: str) -> str:
    found = re.search(rf'<section id="{name}">(.*?)</section>', content, re.DOTALL)
    assert found, name
    return found.group(1)


def card(content: str, title: str) -> str:
    found = re.search(rf'<div class="card"><h2>{title}</h2>(.*?)</div>', content, re.DOTALL)
    assert found, title
    return found.group(1)


class Balance(HTMLParser):
    """Fails on a tag that is closed in the wrong place."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_well_formed(content: str) -> int:
    parser = Balance()
    parser.feed(content)
    assert parser.open == []
    drawings = re.findall(r"<svg.*?</svg>", content, re.DOTALL)
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.get("aria-hidden") == "true" or (root.get("role") == "img" and root.find("title") is not None)
        assert "nan" not in re.sub(r"<title>.*?</title>", "", drawing)
    return len(drawings)


# ------------------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize(
    ("selection", "ddof", "about"),
    [("last", 0, "global"), ("last5", 1, "personal"), ("source-validation", 0, "global"), ("oracle", 1, "global")],
)
def test_cards_and_table_show_the_summary(tmp_path: Path, selection: str, ddof: int, about: str) -> None:
    evaluate = {**EVALUATE, "selection": selection, "ddof": ddof}
    content = read(make(tmp_path / "run", evaluate=evaluate, about=about))
    expected = summarise(RunFolder(tmp_path / "run").rows("metrics"), about, selection, ddof)
    three = headline(expected)
    recent = expected["generalisation"]["recent_std"]
    assert f"{three['generalisation']:.1%}"[:-1] in card(content, "Generalisation")
    assert "±" not in card(content, "Generalisation")
    low, high = expected["generalisation"]["interval"]
    assert f"<small>{low * 100:.1f} to {high * 100:.1f}</small>" in card(content, "Generalisation")
    assert "95 % interval (Wilson) from the size of the test set (1,234 samples)" in card(content, "Generalisation")
    assert f"last 5 evaluations of this run it varied by {recent * 100:.1f} points" in card(content, "Generalisation")
    assert f"{three['personalisation']:.1%}"[:-1] in card(content, "Personalisation")
    varied = f"over the silos it varies by {expected['personalisation']['std_silos'] * 100:.1f} points"
    assert varied in card(content, "Personalisation")
    centre = f"{three['at_home'] * 100:.1f}\u00a0%"
    assert f"{three['fairness'] * 100:.1f} <small>points around {centre}</small>" in card(content, "Fairness")
    assert ("sample" if ddof else "population") + " standard deviation" in card(content, "Fairness")
    table = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", part(content, "silos"))
    for silo, row in zip(expected["silos"], table, strict=True):
        shown = words(row)
        assert silo["silo"] in shown
        assert "1,234" in shown
        assert ("unseen" in shown) == silo["unseen"]
        for key in ("global", "personal"):
            assert silo[key] is None or f"{silo[key] * 100:.1f} %" in shown
        assert silo["gap"] is None or f"{silo['gap']:.3f}".replace("-", "−") in shown


def test_worst_and_best_silo_are_named(tmp_path: Path) -> None:
    content = read(make(tmp_path / "run"))
    known = {s["silo"]: s["global"] for s in read_run(tmp_path / "run").summary["silos"] if not s["unseen"]}
    worst, best = min(known, key=lambda name: known[name]), max(known, key=lambda name: known[name])
    expected = f"worst {worst} {known[worst] * 100:.1f} %, best {best} {known[best] * 100:.1f} %"
    assert expected in words(card(content, "Fairness"))
    spread = read_run(tmp_path / "run").summary["fairness"]["global"]["variance_silos"]
    assert f"variance {spread * 1e4:.1f} percent²; mean" in words(card(content, "Fairness"))


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ({"a": 0.80, "b": 0.82}, "these are no further apart than chance makes them"),
        ({"a": 0.70, "b": 0.92}, "these are further apart"),
    ],
)
def test_a_spread_is_held_against_what_the_test_data_make(accuracies: dict[str, float], verdict: str) -> None:
    judge = Judge({name: EvaluationSet(name, 1234) for name in accuracies})
    said = f"equally good silos would show 0.8 points on these test data: {verdict}"
    assert words(equal_words(judge.apart(accuracies, {}, 0))).strip() == said
    assert equal_words({}) == equal_words(Judge({}).apart(accuracies, {}, 0)) == ""


def test_difference_to_the_baseline_has_the_right_sign_and_word(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", shift=0.023)
    make(folder / "baseline", "fedavg")
    content = read(folder)
    assert 'difference good">+2.3 points against fedavg<' in card(content, "Generalisation")
    assert "no difference to fedavg" in card(content, "Fairness")
    turned = make(tmp_path / "turned")
    make(turned / "baseline", "fedprox(mu=0.1) | fedheal", shift=0.1)
    assert 'difference bad">−10.0 points against fedprox(mu=0.1) | fedheal<' in card(read(turned), "Personalisation")
    assert "significan" not in content
    assert "not equally far" not in content
    short = make(tmp_path / "short", rounds=4, status="stopped")
    make(short / "baseline", "fedavg")
    apart = read(short)
    assert "not equally far, round 4 and round 6 of fedavg: their difference is not shown." in apart
    assert 'class="difference' not in card(apart, "Generalisation") + card(apart, "Fairness")
    assert "One run, one seed (7)" in content
    assert "Not the same silos" not in content
    rounds = RunFolder(folder).rows("rounds")
    rounds[2] = {**rounds[2], "counted": ["nobody else"]}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rounds))
    assert "Not the same silos were counted in every round of the two: see Failures" in read(folder)


def own_and_global(folder: Path) -> None:
    """Runs of `ditto`, which is about silos' own models, and of `fedavg`, which is not.

    Ditto's own models are less even than the global model of fedavg, and more even than the own models of fedavg.
    """
    for name, about, apart in (("ditto", "personal", 0.05), ("fedavg", "global", 0.2)):
        made = RunFolder(make(folder / name, name, about=about))
        rows = made.rows("metrics")
        for row in rows:
            row["metric"] -= apart if (row["silo"], row["model"]) == (SILOS[0], "personal") else 0.0
        made.write_text("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def test_a_report_compares_fairness_as_compare_does(tmp_path: Path) -> None:
    """Each run's is that of the models that its results are about, whichever of them is the baseline."""
    own_and_global(tmp_path)
    runs = [read_run(tmp_path / name) for name in ("ditto", "fedavg")]
    cells = [{"method": run.method, "held_out": "sketch", "seed": 7, "summary": run.summary} for run in runs]
    one = compared(cells, "ditto", "fedavg", "fairness")
    assert one is not None
    by = 100 * one.difference.mean
    assert by > 1
    told = [words(page.fairness(*pair)) for pair in (runs, runs[::-1])]
    assert f"+{by:.1f} points against fedavg (global model): less even" in told[0]
    assert "How even the silos' own models are" in told[0]
    assert f"−{by:.1f} points against ditto (own models): more even" in told[1]
    assert "How even the global model is" in told[1]
    alone = words(page.fairness(runs[1], runs[1]))
    assert "no difference to fedavg " in alone
    assert "(global model)" not in alone


@pytest.mark.parametrize(("kind", "compares"), [("personal", True), ("global", False)])
def test_the_mark_of_chance_is_that_of_the_number_shown(tmp_path: Path, kind: str, compares: bool) -> None:
    own_and_global(tmp_path)
    ditto, fedavg = (read_run(tmp_path / name) for name in ("ditto", "fedavg"))
    marked = {**fedavg.summary["fairness"], kind: {**fedavg.summary["fairness"][kind], "at_chance": True}}
    told = words(page.fairness(ditto, dataclasses.replace(fedavg, summary={**fedavg.summary, "fairness": marked})))
    assert ("points against fedavg (global model)" in told) == compares
    assert ("Not compared with fedavg (global model), which is at chance level" in told) != compares


def test_a_difference_is_good_in_the_direction_of_its_metric() -> None:
    with shown_in("mae"):
        assert change(2.0, 3.0) == ("−1 mae", "good", "")
        assert change(3.0, 2.0) == ("+1 mae", "bad", "")
        assert change(2.0, 3.0, spread=True) == ("−1 mae", "good", "more even")
        assert change(2.0, 2.0) == ("no difference", "", "")
    with shown_in("accuracy"):
        assert change(0.2, 0.3) == ("−10.0 points", "bad", "")
        assert change(0.3001, 0.3) == ("no difference", "", "")


def facts(content: str) -> dict[str, str]:
    return {name: words(value).strip() for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", content)}


def test_what_a_run_and_its_baseline_do_not_share_is_given_of_both(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", rounds=4)
    make(folder / "baseline", "fedavg")
    content = read(folder)
    found = facts(content)
    assert found["Rounds"] == "4 of 6 / 6"
    assert found["Results are read from"] == "the last evaluated round (round 4) / the last evaluated round (round 6)"
    assert found["Held-out domain"] == "sketch"
    assert "Where there are two values, that of faa stands first." in content
    same = make(tmp_path / "same")
    make(same / "baseline", "fedavg")
    assert facts(read(same))["Rounds"] == "6"
    assert "two values" not in read(same)


def test_who_takes_part_is_known_before_the_first_evaluation(tmp_path: Path) -> None:
    roster = {"silos": [{"name": name, "domain": "here"} for name in "abcde"], "unseen": [{"name": "u", "domain": "v"}]}
    run = read_run(make(tmp_path / "run", rounds=0, status="running"))
    found = page.facts(dataclasses.replace(run, info={**run.info, "roster": roster}))
    assert {("Silos", "5"), ("Held-out domain", "v")} <= set(found)
    assert ("Silos", "–") in page.facts(run)


def test_tables_have_names_for_whoever_hears_them(tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    make(folder / "baseline", "fedavg")
    content = read(folder)
    tables = re.findall(r'<div class="table[^"]*"[^>]*>', content)
    assert len(tables) == content.count("<table>") > 1
    assert all('role="region"' in one for one in tables)
    named = re.findall(r'aria-label="([^"]*)"', "".join(tables))
    assert named[:2] == ["Silo by silo", "Time and traffic"]
    assert len(named) == len(tables)


def test_a_table_is_named_by_the_heading_that_it_stands_under() -> None:
    one = table("", [])
    drawn = section(
        "s",
        'A "title" & more',
        one + "<figure><h3>A picture</h3></figure>" + one,
        "<h3>By <em>age</em> &amp; size</h3>" + one,
        f"<details class=silo><summary>b</summary>{one}</details>",
        one.replace('class="table"', 'class="table heat"', 1),
    )
    told = [html.unescape(name) for name in re.findall(r'<div class="table[^>]* aria-label="([^"]*)">', drawn)]
    title = 'A "title" & more'
    below = f"{title}: By age & size"
    assert told == [title, title, below, f"{title}: b", below]


def test_weights_are_shown_of_both_and_a_slow_start_is_no_usual_round(tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    make(folder / "baseline", "fedavg")
    assert "Weights of fedavg" in read(folder)
    rounds = RunFolder(folder).rows("rounds")
    for number, record in enumerate(rounds):
        record["seconds"] = 50.0 if number == 0 else 2.0
    (folder / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in rounds))
    assert f"A round took {duration(2.0)} (median)" in read(folder)


@pytest.mark.parametrize(("place", "word"), [(0, "less even"), (2, "more even")])
def test_a_smaller_spread_is_better(tmp_path: Path, place: int, word: str) -> None:
    folder = make(tmp_path / "run")
    make(folder / "baseline", "fedavg")
    rows = RunFolder(folder).rows("metrics")
    for row in rows:  # pull the worst silo down, or the best one towards the others
        row["metric"] -= 0.1 if row["silo"] == SILOS[place] else 0.0
    RunFolder(folder).write_text("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    shown = card(read(folder), "Fairness")
    assert word in shown
    assert f"difference {'good' if word == 'more even' else 'bad'}" in shown


def test_history_is_what_the_metrics_give_in_every_round(tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    rows = [row for row in RunFolder(folder).rows("metrics") if (row["round"], row["silo"]) != (3, "art")]
    RunFolder(folder).write_text("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    run = read_run(folder)
    for number, values in sections.history(run, "personal", "test").items():
        assert values == results(rows, [number], "personal", "test")
    assert sections.gap_history(run) == {n: gaps(rows, n) for n in range(1, 7)}


def test_costs_are_set_against_a_plain_round(tmp_path: Path) -> None:
    probe = {"kind": "probe", "asked": 3, "answered": 3, "bytes_down": 6000, "bytes_up": 300, "seconds": 1.0}
    plain = round_rows(1, SILOS, {})[0]["exchanges"]
    folder = make(tmp_path / "run", extra={n: {"exchanges": [*plain, probe]} for n in range(1, 7)})
    shown = words(part(read(folder), "costs"))
    assert "moves 6 kB (twice the model's size for every participant)" in shown  # 2 x 1000 bytes x 3 silos
    assert "faa moves 2.10 times that" in shown  # (6300 + 6300) / 6000
    make(folder / "baseline", "fedavg")
    shown = words(part(read(folder), "costs"))
    assert "moves 6.3 kB (as measured here)" in shown
    assert "faa probe 6 6.0 s 1.0 s 36 kB 1.8 kB 6.3 kB 1.00 ×" in shown


def test_a_server_with_a_network_of_its_own_does_not_change_what_a_plain_round_moves(tmp_path: Path) -> None:
    shown = words(part(read(make(tmp_path / "run", bytes_sent=2000, bytes_model=2020)), "costs"))
    assert "moves 12 kB (twice the model's size for every participant)" in shown  # 2 x 2000 bytes x 3 silos
    assert "times less than the model" not in shown  # one per cent is no frozen backbone
    shown = words(part(read(make(tmp_path / "frozen", bytes_sent=2000, bytes_model=90_000)), "costs"))
    assert "45 times less than the model" in shown


def test_weights_that_are_the_same_are_not_ranked(tmp_path: Path) -> None:
    shown = words(part(read(make(tmp_path / "run")), "weights"))
    assert "In the last round all silos counted the same (0.333)." in shown
    uneven = {6: {"weights": {"art": 0.5, "clipart": 0.3, "photo": 0.2}}}
    shown = words(part(read(make(tmp_path / "uneven", extra=uneven)), "weights"))
    assert "In the last round art counted most (0.500), photo least (0.200)." in shown


def test_silos_whose_updates_count_for_nothing_are_named(tmp_path: Path) -> None:
    """Weights that hit 0 stay unseen in a figure of many lines."""
    even, without = {"art": 0.5, "clipart": 0.5, "photo": 0.5}, {"art": 0.0, "clipart": 0.4, "photo": 0.6}
    assert "had no weight" not in words(part(read(make(tmp_path / "even", extra={2: {"weights": even}})), "weights"))
    extra = {number: {"weights": without} for number in (2, 3, 5)} | {6: {"weights": without | {"photo": 1e-12}}}
    shown = words(part(read(make(tmp_path / "zero", extra=extra)), "weights"))
    told = "took part in rounds 2 to 3, 5 to 6 and had no weight: nothing of its update came into the model."
    assert f"art {told}" in shown
    assert "photo took part in round 6 and had no weight" in shown
    assert shown.index("art took part") < shown.index("photo took part")
    make(tmp_path / "zero" / "baseline", "fedavg")
    method = json.loads((tmp_path / "zero" / "run.json").read_text(encoding="utf-8"))["method"]
    beside = words(part(read(tmp_path / "zero"), "weights"))
    assert f"art took part in rounds 2 to 3, 5 to 6 of {method} and had no weight" in beside


def test_gap_variance_states_the_factor(tmp_path: Path) -> None:
    shown = words(part(read(make(tmp_path / "run")), "gaps"))
    assert "FFT-GP's eq. 6 is 2 M² times this" in shown
    assert "here 18 times" in shown


# ------------------------------------------------------------------------------------------------ the file as such
def test_nothing_comes_from_elsewhere(tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    make(folder / "baseline", "fedavg")
    content = read(folder)
    assert not re.search(r"https?://|//[a-z0-9.-]+\.[a-z]{2,}/", content)
    assert not re.search(r"<(link|script|img|iframe|object|embed|base)\b|@import|url\(|\b(src|srcset)\s*=", content)
    assert set(re.findall(r'<(\w+)[^>]* href="([^,"]*)', content)) == {("a", "data:text/csv;charset=utf-8")}
    assert check_well_formed(content) > 9
    assert len(re.findall(r"<h1", content)) == 1
    identifiers = re.findall(r'\bid="([^"]+)"', content)
    assert len(identifiers) == len(set(identifiers))


def test_hostile_names_are_only_text(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>\"'&\x07]]>"
    failure = {"silo": name, "exchange": "train", "kind": "error", "detail": "<img src=x onerror=alert(2)>"}
    content = read(
        make(
            tmp_path / "run",
            "<b>method</b>",
            silos=(name, "b"),
            extra={2: {"failures": [failure], "notes": ["<i>note</i>"]}},
            status="stopped",
            message="</p><script>x</script>",
            method_sends=["<u>all</u>"],
            version="<s>1</s>",
        )
    )
    for tag in ("script", "img", "b", "i", "u", "s"):
        assert f"<{tag}>" not in content
        assert f"<{tag} " not in content
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in part(content, "silos")
    check_well_formed(content)


def test_style_sheet_has_readable_colours_in_both_themes() -> None:
    style = files("fairsilo.report").joinpath("page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    for theme in (light, dark):
        colour = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", theme))
        for ground in ("card", "page"):
            for name in [f"series-{n}" for n in range(1, COLOURS + 1)]:
                assert contrast(colour[name], colour[ground]) >= 3, (name, ground)
            for name in ("ink", "muted", "good", "bad"):
                assert contrast(colour[name], colour[ground]) >= 4.5, (name, ground)


def contrast(first: str, second: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dim = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


# -------------------------------------------------------------------------------------------------- unusual runs
def test_a_stopped_run_says_so_first(tmp_path: Path) -> None:
    content = read(make(tmp_path / "run", rounds=2, status="stopped", message="round 3 stopped: the quorum is 2."))
    shown = words(content)
    assert "Run stopped : 2 of 6 rounds are complete. Round 3 stopped: the quorum is 2." in shown
    assert shown.index("Run stopped") < shown.index("Generalisation")
    assert "Rounds 2 of 6" in shown
    assert "stopped" not in words(read(make(tmp_path / "other")))


def test_without_a_baseline_nothing_is_compared(tmp_path: Path) -> None:
    content = read(make(tmp_path / "run"))
    assert "against" not in words(content).replace("against FedAvg train", "")
    assert "difference" not in re.sub(r"<style>.*?</style>", "", content, flags=re.DOTALL)
    assert "colspan" not in content


def test_without_an_unseen_silo(tmp_path: Path) -> None:
    content = read(make(tmp_path / "run", unseen=()))
    assert "No domain was held out." in card(content, "Generalisation")
    assert "Held-out domain none" in words(content)
    assert "unseen domain" not in words(part(content, "curves"))
    assert '<span class="tag">' not in content


def test_without_validation_rows(tmp_path: Path) -> None:
    evaluate = {**EVALUATE, "selection": "source-validation"}
    content = read(make(tmp_path / "run", validation=False, evaluate=evaluate))
    assert "No silo has validation data" in part(content, "gaps")
    assert "source-validation was asked for, but its data are missing" in content


def test_what_the_data_lack_stands_at_the_top(tmp_path: Path) -> None:
    evaluate = {**EVALUATE, "metric": "balanced-accuracy"}
    content = read(make(tmp_path / "run", evaluate=evaluate, notes=["silo 'b<i>' has no test sample of 'x'"]))
    head = content.partition("<section")[0]
    assert "silo 'b<i>' has no test sample of 'x'" in words(head)
    assert "balanced accuracy, over the classes present" in words(head)


def test_the_page_chooses_rounds_by_the_metrics_direction(tmp_path: Path) -> None:
    evaluate = {**EVALUATE, "selection": "source-validation"}
    for higher, chosen in ((True, 6), (False, 1)):  # the metric of these rows grows from round to round
        metric = {"name": "error", "higher_is_better": higher}
        run = read_run(make(tmp_path / str(higher), evaluate=evaluate, metric=metric))
        assert run.summary["rounds"] == [chosen]


def test_failures_and_notes_are_listed(tmp_path: Path) -> None:
    failure = {"silo": "photo", "exchange": "train", "kind": "not finite", "detail": "the update is not finite"}
    extra: dict[int, dict[str, Any]] = {n: {"notes": ["FAA: clipped"]} for n in (2, 3, 5)}
    extra[4] = {"failures": [failure], "notes": ["warm-up over in round 4: weights begin to move"]}
    content = read(make(tmp_path / "run", extra=extra))
    assert "photo 4 train not finite the update is not finite faa" in words(part(content, "failures"))
    assert "Rounds 2 to 3, 5, faa: FAA: clipped" in words(part(content, "notes"))
    assert "Warm-up over in round 4" in words(part(content, "weights"))
    assert 'class="mark"' in part(content, "weights")
    none = read(make(tmp_path / "none"))
    assert "None: every silo" in part(none, "failures")
    assert "No round has a note." in part(none, "notes")


def test_what_is_sent_and_the_configuration(tmp_path: Path) -> None:
    content = read(make(tmp_path / "run", method_sends=["two losses"]))
    assert "<li>two losses</li>" in part(content, "sent")
    assert "fairsilo 9.8.7" in content
    assert "took 1 min 15 s" in words(content)
    assert "<details>" in content
    assert "seed: 7" in content


@pytest.mark.parametrize("silos", [("only",), tuple(f"hospital-with-a-rather-long-name-{n:02d}" for n in range(30))])
def test_one_silo_and_thirty(tmp_path: Path, silos: tuple[str, ...]) -> None:
    content = read(make(tmp_path / "run", rounds=1, silos=silos))
    check_well_formed(content)
    assert all(name in content for name in silos)
    assert ("24 others in between" in content) == (len(silos) == 30)
    assert ("at least two silos" in card(content, "Fairness")) == (len(silos) == 1)


def test_a_folder_without_a_complete_round(tmp_path: Path) -> None:
    content = read(make(tmp_path / "run", rounds=0, status="running"))
    assert "Run not finished yet : 0 of 6 rounds" in words(content)
    assert "Nothing was evaluated yet." in content
    check_well_formed(content)


def test_bare_baseline_and_missing_files(tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    (folder / "baseline").mkdir()
    assert "against" not in words(read(folder)).replace("against FedAvg train", "")
    RunFolder(folder / "baseline").write_json("run.json", {"status": "running", "method": "fedavg"})
    content = read(folder)
    assert "Baseline not finished yet" in content
    assert "points against" not in content
    (folder / "run.json").unlink()
    (folder / "config.yaml").unlink()
    check_well_formed(read(folder))
    with pytest.raises(FairsiloError, match="no run folder"):
        write_report(tmp_path)


def test_values_that_are_not_numbers_are_left_out(tmp_path: Path) -> None:
    folder = make(tmp_path / "run")
    rows = RunFolder(folder).rows("metrics")
    for row in rows[::3]:
        row["loss"] = math.nan
    rows[-1]["metric"] = None
    RunFolder(folder).write_text("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows) + '{"round": 7, "si')
    content = read(folder)
    check_well_formed(content)
    assert not re.search(r"\b(nan|NaN)\b", re.sub(r"<(script|style).*?</\1>", "", content, flags=re.DOTALL))


def test_the_rows_of_a_real_run(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    stream = torch.Generator().manual_seed(0)

    def silo(name: str) -> SiloData:
        made = [Split(torch.randn(12, 1, 8, 8, generator=stream), torch.arange(12) % 2) for _ in range(3)]
        return SiloData(name, name, *made)

    federation = Federation("toy", ("x", "y"), (silo("a"), silo("b")), (silo("u"),))
    plan = Blueprint(method("faa(warmup=0)"), "small-cnn", Classify(2), 1, TrainSettings(rounds=2, epochs=1), 0)
    run_folder = SavedRun(tmp_path / "run")
    run_folder.create()
    history = Loop(
        plan, federation.roster, Sequential(plan, federation, folder=run_folder.folder), records=run_folder
    ).run()
    content = read(run_folder.folder)
    check_well_formed(content)
    expected = headline(summarise(history.rows))
    assert f"{expected['generalisation']:.1%}"[:-1] in card(content, "Generalisation")
    assert "probe" in part(content, "costs")


# ------------------------------------------------------------------------------------------------------- charts
@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1, None)],
        [(1, 0.0)],
        [(3, 5.0)],
        [(n, 87.4) for n in range(1, 9)],
        [(1, 1.0), (2, None), (3, 2.0)],
        [(1, math.nan), (2, math.inf), (3, 0.5)],
        [(n, 10.0 ** (n * 20)) for n in range(1, 9)],
        [(n, -1e-9 * n) for n in range(1, 200)],
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_line_chart_of_anything(points: list[Point], log: bool) -> None:
    drawing = line_chart([Series("a", points), Series("b", points, 0)], title="t", y_label="y", log=log)
    root = ElementTree.fromstring(drawing)
    usable = [y for _, y in points if y is not None and math.isfinite(y) and (y > 0 or not log)]
    assert len(root.findall("rect")) == len(usable)  # one place to point at per value
    assert ("nothing was recorded" in drawing) == (not usable)
    for path in root.iter("path"):
        if path.get("class") == "line":
            for x, y in places_of(path.get("d", "")):
                assert LEFT <= x <= WIDTH - RIGHT
                assert TOP <= y <= HEIGHT - BOTTOM


def places_of(path: str) -> list[tuple[float, float]]:
    """Where the points of a line lie, which are told by steps from one to the next."""
    found: list[tuple[float, float]] = []
    for pen, across, down in re.findall(r"([Ml])(-?[\d.]+) (-?[\d.]+)", path):
        start = found[-1] if pen == "l" else (0.0, 0.0)
        found.append((round(start[0] + float(across), 1), round(start[1] + float(down), 1)))
    return found


def test_steps_along_a_line_end_where_its_points_are() -> None:
    points: list[Point] = [(n, math.sin(n) * 1.7) for n in range(1, 38)]
    root = ElementTree.fromstring(line_chart([Series("a", points)], title="t", y_label="y"))
    line = next(path for path in root.iter("path") if path.get("class") == "line")
    dots = [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in root.iter("circle")]
    assert len(dots) == len(points)
    assert places_of(line.get("d", "")) == dots


def test_a_line_is_interrupted_where_a_value_is_missing() -> None:
    drawing = line_chart([Series("a", [(1, 1.0), (2, None), (3, 2.0), (4, 3.0)])], title="t", y_label="y")
    path = next(p for p in ElementTree.fromstring(drawing).iter("path") if p.get("class") == "line")
    assert re.sub(r"[^Ml]", "", path.get("d", "")) == "MMl"


def test_line_chart_places_points_to_scale() -> None:
    drawing = line_chart([Series("a", [(1, 0.0), (2, 50.0), (3, 100.0)])], title="t", y_label="y")
    heights = [float(c.get("cy", "")) for c in ElementTree.fromstring(drawing).iter("circle")]
    assert heights == [HEIGHT - BOTTOM, (HEIGHT - BOTTOM + TOP) / 2, TOP]


def test_bar_chart_has_lengths_to_scale_and_skips_none() -> None:
    groups = [("x", [Bar("m", 50.0), Bar("b", 100.0, 2)]), ("y", [Bar("m", None), Bar("b", math.nan)])]
    drawing = bar_chart(groups, title="t", x_label="x", high=100.0, band=(40, 120), means=[Bar("mean", 50.0)])
    root = ElementTree.fromstring(drawing)
    half, whole = (float(r.get("width", "")) for r in root.iter("rect") if r.get("class") == "bar")
    assert half == pytest.approx(whole / 2)
    assert "nothing was recorded" in bar_chart([("x", [Bar("m", None)])], title="t", x_label="x")
    ElementTree.fromstring(bar_chart([("x", [Bar("m", 0.0)])], title="t", x_label="x", form=size))


def test_there_is_room_for_the_numbers_beside_an_axis() -> None:
    for low, high in ((0.0, 0.0003), (-0.0005, 0.000125), (-0.005, 0.00125), (0.0, 1e-7), (-3e4, 2e5)):
        drawn = line_chart([Series("a", [(1, low), (2, high)], 1)], title="t", y_label="variance")
        numbers = re.findall(r'class="tick"[^>]*text-anchor="end">([^<]*)</text>', drawn)
        assert len(numbers) > 2
        assert all(len(one) * 6.2 <= LEFT - 6 for one in numbers), numbers
        assert sorted(float(one.replace("−", "-")) for one in numbers) == pytest.approx(nice_ticks(low, high))


def test_ticks_are_round_and_enclose() -> None:
    assert nice_ticks(0.13, 0.87) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert nice_ticks(1, 3, whole=True) == [1, 2, 3]
    constant = nice_ticks(5, 5)
    assert constant[0] < 5 < constant[-1]
    assert decades(0.003, 20) == pytest.approx([1e-3, 1e-2, 0.1, 1, 10, 100])
    assert not spans_decades([1.0, 100.0])
    assert spans_decades([1.0, None, 0.0, 101.0])


def test_numbers_as_text() -> None:
    assert percent(87.44) == "87.4\u00a0%"
    assert percent(None) == "–"
    assert plain(-0.5) == "−0.500"
    assert signed("-0.0") == "0.0"
    assert [size(v) for v in (0, 999, 1000, 2.88e6)] == ["0\u00a0B", "999\u00a0B", "1\u00a0kB", "2.88\u00a0MB"]
    assert [duration(v) for v in (0.0334, 2.5, 3725)] == ["33\u00a0ms", "2.5\u00a0s", "1\u00a0h 2\u00a0min"]
    assert shorten("hospital-of-saint-12", 11) == "hospita…-12"
    assert page.ranges([3]) == "round 3"
    assert page.ranges([1, 2, 3, 7]) == "rounds 1 to 3, 7"


def test_many_lines_keep_colour_for_the_ends_only() -> None:
    lines = {f"s{n:02d}": [(1, float(n))] for n in range(20)}
    series = emphasised(lines)
    assert {line.name for line in series if line.colour} == {"s00", "s01", "s02", "s17", "s18", "s19"}
    assert [line.colour for line in emphasised(lines, like=series)] == [line.colour for line in series]
    assert all(line.colour for line in emphasised({name: lines[name] for name in list(lines)[:8]}))
