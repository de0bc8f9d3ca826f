"""fairsilo called as people call it: from a script without a guard, from `exec`, interactively, twice at once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fairsilo
import tiny
from fairsilo import config
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Event
from fairsilo.errors import FairsiloError
from fairsilo.runs.lock import locked
from fairsilo.runs.opened import read_experiment

TESTS = Path(__file__).parent
SMALL = {"rounds": 2, "epochs": 1, "lr": 0.1, "batch_size": 8}


def python(*arguments: str, folder: Path, text: str | None = None) -> str:
    """What a program prints; it must end well and leave nothing on the error stream."""
    code = f"import sys; sys.path[:0] = [{str(TESTS)!r}]\n"
    if text is not None:
        (folder / "script.py").write_text(code + textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


SCRIPT = """
    import fairsilo, tiny
    result = fairsilo.run(method="fedavg", model=MODEL, federation=tiny.federation(), rounds=2, epochs=1,
                          batch_size=8, engine={"workers": 2}, out="run")
    print("found", result.summary["generalisation"]["mean"])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        "'small-cnn'",
        pytest.param("lambda classes, channels: tiny.TinyNet(classes, channels)", marks=pytest.mark.slow),
        pytest.param("Mine", marks=pytest.mark.slow),
    ],
    ids=["name", "lambda", "class"],
)
def test_a_plain_script_without_a_guard_runs_once_on_all_workers(model: str, tmp_path: Path) -> None:
    """Workers must not run the script again: it would train in each of them, and leave their folders behind."""
    own = "\n    import tiny\n    class Mine(tiny.TinyNet):\n        pass\n    print('once')"
    said = python("script.py", folder=tmp_path, text=own + SCRIPT.replace("MODEL", model))
    assert said.count("once") == 1
    assert said.count("found") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "script.py"]
    rounds = (tmp_path / "run" / "rounds.jsonl").read_text()
    assert '"failures": []' in rounds
    assert '"kind": "lost"' not in rounds


@pytest.mark.slow
def test_interactively_and_under_exec_the_callers_own_model_is_found(tmp_path: Path) -> None:
    own = "import tiny\nclass Mine(tiny.TinyNet):\n    pass\n" + textwrap.dedent(SCRIPT).replace("MODEL", "Mine")
    said = python("script.py", folder=tmp_path, text=f"exec({own!r}, {{'__name__': 'elsewhere'}})")
    assert "found" in said
    code = f"import sys; sys.path[:0] = [{str(TESTS)!r}]\n" + own.replace('out="run"', 'out="again"')
    assert "found" in python("-c", code, folder=tmp_path)


def test_what_cannot_be_sent_to_a_worker_runs_in_this_process_and_says_so(people: Federation, tmp_path: Path) -> None:
    import threading

    held = threading.Lock()

    def model(classes: int, channels: int) -> tiny.TinyNet:
        with held:
            return tiny.TinyNet(classes, channels)

    said: list[str] = []

    def listen(event: Event) -> None:
        said.append(event.text)

    chosen = {"engine": {"name": "processes", "workers": 2}, **SMALL}
    result = fairsilo.run(
        method="fedavg", model=model, federation=people, out=tmp_path / "run", listener=listen, **chosen
    )  # type: ignore[arg-type]
    assert result.summary["generalisation"]["mean"] > 0
    assert any("silos run one after the other in this process" in text for text in said)


# -------------------------------------------------------------------------------------------------------- true records
@pytest.mark.slow
def test_a_federation_of_ones_own_is_recorded_under_its_own_name(people: Federation, tmp_path: Path) -> None:
    fairsilo.run(method="fedavg", model=tiny.TinyNet, federation=people, out=tmp_path / "run", **SMALL)  # type: ignore[arg-type]
    assert config.read_yaml(tmp_path / "run" / "config.yaml")["data"]["name"] == "tiny"
    assert "glyphs" not in (tmp_path / "run" / "report.html").read_text()


def test_a_folder_in_use_is_refused_to_a_second_run_and_to_resume(people: Federation, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    refused: list[str] = []

    def listen(event: Event) -> None:
        if event.kind != "opened":
            return
        for attempt in (second, lambda: fairsilo.resume(folder, federation=people, model=tiny.TinyNet)):
            with pytest.raises(FairsiloError) as problem:
                attempt()
            refused.append(str(problem.value))

    def second() -> object:
        return fairsilo.run(method="fedavg", model=tiny.TinyNet, federation=people, out=folder, **SMALL)  # type: ignore[arg-type]

    engine = {"name": "sequential"}
    fairsilo.run(
        method="fedavg", model=tiny.TinyNet, federation=people, out=folder, listener=listen, engine=engine, **SMALL
    )  # type: ignore[arg-type]
    assert len(refused) == 4
    assert "already holds a run" in refused[0]
    assert "is in use by process" in refused[1]
    assert len((folder / "rounds.jsonl").read_text().splitlines()) == 2


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    code = f"""
        import os, signal
        from pathlib import Path
        from fairsilo.runs.lock import locked
        with locked(Path({str(tmp_path)!r})):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, check=False)
    assert done.returncode == -9
    with locked(tmp_path), pytest.raises(FairsiloError, match="is in use by process"), locked(tmp_path):
        pass


# ---------------------------------------------------------------------------------------------------- code by its name
class Pull(Part):
    """A part of somebody else's: nothing in fairsilo knows it."""

    name = "pull"

    def gradients(self, silo: object) -> None:
        silo.model.gradients.mul_(0.5)  # type: ignore[attr-defined]


def test_methods_of_other_packages_run_and_resume(people: Federation, tmp_path: Path) -> None:
    chosen = {"model": tiny.TinyNet, "federation": people, "engine": {"name": "sequential"}, **SMALL}
    by_name = fairsilo.run(method="test_scripts:Pull", out=tmp_path / "name", **chosen)  # type: ignore[arg-type]
    by_value = fairsilo.run(method=Pull(), out=tmp_path / "value", **chosen)  # type: ignore[arg-type]
    plain = fairsilo.run(method="fedavg", out=tmp_path / "plain", **chosen)  # type: ignore[arg-type]
    assert by_name.summary == by_value.summary != plain.summary
    assert read_experiment(tmp_path / "value", trust=True).method == "test_scripts:Pull"
    composed = fairsilo.method("fedprox(mu=0.1)") | Pull()
    both = fairsilo.compare([composed, "fedavg"], out=tmp_path / "both", **chosen)  # type: ignore[arg-type]
    assert both.methods[1] == "fedavg"

    class Crash(BaseException):
        pass

    def crash(event: Event) -> None:
        if event.kind == "opened" and event.round == 2:
            raise Crash

    with pytest.raises(Crash):
        fairsilo.run(method=Pull(), out=tmp_path / "cut", listener=crash, **chosen)  # type: ignore[arg-type]
    given = {"federation": people, "model": tiny.TinyNet}
    with pytest.raises(FairsiloError, match="names code that would be imported and run: test_scripts:Pull"):
        fairsilo.resume(tmp_path / "cut", **given)  # type: ignore[arg-type]
    assert fairsilo.resume(tmp_path / "cut", trust=True, **given).summary == by_name.summary  # type: ignore[arg-type]
    trained = fairsilo.load(tmp_path / "cut", model=tiny.TinyNet, trust=True)
    assert trained.predict(people["u"].test.inputs[:2]).shape == (2, 3)


def test_a_part_without_a_name_elsewhere_must_be_given_again(people: Federation, tmp_path: Path) -> None:
    class Here(Pull):
        name = "here"

    chosen = {"model": tiny.TinyNet, "federation": people, "engine": {"name": "sequential"}, **SMALL}
    ablation = Method((Here(),), "mine")
    found = fairsilo.run(method=ablation, out=tmp_path / "run", **chosen)  # type: ignore[arg-type]
    with pytest.raises(FairsiloError, match=r"a method of its own; use it there: fairsilo\.load\(folder, method="):
        fairsilo.load(tmp_path / "run", model=tiny.TinyNet)
    assert fairsilo.load(tmp_path / "run", model=tiny.TinyNet, method=ablation).silos == ("a", "b", "c")
    assert found.method == "mine"


@pytest.mark.slow
def test_opening_a_folder_imports_nothing_that_it_names(tmp_path: Path, people: Federation) -> None:
    folder = tmp_path / "run"
    fairsilo.run(method="fedavg", model=tiny.TinyNet, federation=people, out=folder, **SMALL)  # type: ignore[arg-type]
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')")
    text = (folder / "config.yaml").read_text().replace("model: small-cnn", "model: evil:network")
    assert "evil:network" in text
    (folder / "config.yaml").write_text(text)
    for command in (["resume"], ["predict"], ["evaluate"], ["figure", "all"]):
        more = [] if command[0] in ("resume",) else [str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "fairsilo.cli", *command, str(folder), *more],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert "it ran" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_the_working_directory_does_not_stay_importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairsilo.plugins import imported

    (tmp_path / "beside_me.py").write_text("value = 3\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert imported("beside_me:value", "model") == 3
    assert sys.path == before
    with pytest.raises(FairsiloError, match="cannot be imported"):
        imported("not_there:value", "model")
