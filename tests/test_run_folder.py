"""The run folder: what is written comes back, and a kill at any instant leaves something to go on from."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import tiny
from fairsilo.core.files import read_tree, write_tree
from fairsilo.core.vectors import FlatModel, Layout, Slot
from fairsilo.errors import FairsiloError
from fairsilo.runs.saved import SavedRun
from fairsilo.runs.seen import write_seen


@pytest.fixture
def run_folder(tmp_path: Path) -> SavedRun:
    made = SavedRun(tmp_path / "runs" / "one")
    made.create()
    return made


def save(run_folder: SavedRun, number: int) -> None:
    """A checkpoint that can be told from another."""
    run_folder.write_checkpoint(number, {"vector": torch.full((4,), float(number)), "memory": {}})


def round_of(run_folder: SavedRun) -> int:
    """The round of the checkpoint that is read, all of it being of that round."""
    found = run_folder.read_checkpoint()
    assert found is not None
    number, server = found
    assert server["vector"].tolist() == [number] * 4
    return number


# ---------------------------------------------------------------------------------------------------------------- rows
def test_rows_come_back_in_order_over_several_writes(run_folder: SavedRun) -> None:
    run_folder.append("metrics", [{"round": 1, "silo": "ä"}, {"round": 1, "silo": "line\nbreak"}])
    run_folder.append("metrics", [{"round": 2, "silo": None, "metric": 0.1}])
    assert run_folder.rows("metrics") == [
        {"round": 1, "silo": "ä"},
        {"round": 1, "silo": "line\nbreak"},
        {"round": 2, "silo": None, "metric": 0.1},
    ]


def test_a_file_that_is_not_there_has_no_rows(run_folder: SavedRun) -> None:
    assert run_folder.rows("metrics") == []


def test_a_line_cut_off_by_a_kill_is_ignored_at_every_length(run_folder: SavedRun) -> None:
    path = run_folder.folder / "metrics.jsonl"
    whole, last = json.dumps({"round": 1}) + "\n", json.dumps({"round": 2, "silo": "a"})
    for length in range(len(last)):
        path.write_text(whole + last[:length])
        assert run_folder.rows("metrics") == [{"round": 1}]


def test_cut_drops_rounds_after_the_checkpoint_and_the_broken_line(run_folder: SavedRun) -> None:
    run_folder.append("rounds", [{"round": 1}, {"round": 2}, {"round": 3}])
    with (run_folder.folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 4, "par')
    assert run_folder.cut("rounds", 2) == [{"round": 1}, {"round": 2}]
    run_folder.append("rounds", [{"round": 3, "again": True}])
    assert run_folder.rows("rounds") == [{"round": 1}, {"round": 2}, {"round": 3, "again": True}]


def test_cut_to_nothing_leaves_an_empty_file(run_folder: SavedRun) -> None:
    run_folder.append("rounds", [{"round": 1}])
    assert run_folder.cut("rounds", 0) == []
    assert (run_folder.folder / "rounds.jsonl").read_text() == ""


# --------------------------------------------------------------------------------------------------------------- files
def test_a_file_is_replaced_whole_or_not_at_all(run_folder: SavedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run_folder.write_json("run.json", {"status": "running"})

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        run_folder.write_json("run.json", {"status": "finished"})
    monkeypatch.undo()
    assert run_folder.read_json("run.json") == {"status": "running"}
    run_folder.write_json("run.json", {"status": "finished"})
    assert run_folder.read_json("run.json") == {"status": "finished"}
    assert [path.name for path in run_folder.folder.iterdir()] == ["run.json"]


def test_a_folder_that_is_no_run_is_said_to_be_none(run_folder: SavedRun) -> None:
    with pytest.raises(FairsiloError, match=r"one is no run folder: it has no run\.json"):
        run_folder.read_json("run.json")


def test_a_damaged_json_file_is_named(run_folder: SavedRun) -> None:
    (run_folder.folder / "run.json").write_text('{"status": ')
    with pytest.raises(FairsiloError, match=r"run\.json is damaged: "):
        run_folder.read_json("run.json")


# --------------------------------------------------------------------------------------------------------------- trees
def test_a_tree_of_everything_comes_back(tmp_path: Path) -> None:
    tree = {
        "none": None,
        "flags": [True, False],
        "numbers": {"int": 3, "float": 0.1, "large": 2**60, "infinite": float("inf"), "zero": 0},
        "text": "ä\n",
        "empty": {},
        "nothing": [],
        "deep": {"list": [{"tensor": torch.ones(2)}, [torch.zeros(1), "x"]]},
        "round": {1: 0.5, 2: 0.25},
    }
    write_tree(tmp_path / "tree", tree)
    found = read_tree(tmp_path / "tree")
    deep = found.pop("deep")
    assert found == {key: value for key, value in tree.items() if key != "deep"}
    assert found["flags"][0] is True
    assert torch.equal(deep["list"][0]["tensor"], torch.ones(2))
    assert torch.equal(deep["list"][1][0], torch.zeros(1))
    assert deep["list"][1][1] == "x"


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_tensors_come_back_bit_by_bit(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.rand(shape) * 3).to(dtype)
    write_tree(tmp_path / "tree", {"t": tensor})
    found = read_tree(tmp_path / "tree")["t"]
    assert found.dtype == dtype
    assert found.shape == tensor.shape
    assert torch.equal(found, tensor)


def test_tensors_that_share_or_skip_memory_come_back(tmp_path: Path) -> None:
    base = torch.arange(12.0).view(3, 4)
    tree = {"whole": base, "same": base, "turned": base.T, "stretch": base[1:, 1:3], "rows": base[1:]}
    write_tree(tmp_path / "tree", tree)
    found = read_tree(tmp_path / "tree")
    assert all(torch.equal(found[key], tree[key]) for key in tree)


def test_a_tree_is_let_go_as_soon_as_it_is_written_or_read(tmp_path: Path) -> None:
    """It may be as large as a model, so it must not wait for a collection of garbage."""
    gc.disable()
    try:
        kept = torch.ones(3)
        write_tree(tmp_path / "tree", {"deep": [{"t": kept}]})
        written = weakref.ref(kept)
        del kept
        assert written() is None
        read = weakref.ref(read_tree(tmp_path / "tree")["deep"][0]["t"])
        assert read() is None
    finally:
        gc.enable()


def test_a_tensor_with_a_gradient_is_kept_without_it(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {"t": torch.ones(2, requires_grad=True)})
    assert not read_tree(tmp_path / "tree")["t"].requires_grad


def test_an_empty_tree_comes_back_empty(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {})
    assert read_tree(tmp_path / "tree") == {}


@pytest.mark.parametrize("thing", [object(), {1, 2}, Path("x"), b"bytes", torch.float32, lambda: None])
def test_anything_else_is_refused_by_its_place(tmp_path: Path, thing: object) -> None:
    with pytest.raises(TypeError, match=rf"^/part/inner/1 is a {type(thing).__name__}; only tensors, numbers and"):
        write_tree(tmp_path / "tree", {"part": {"inner": [1, thing]}})


# -------------------------------------------------------------------------------------------------------------- models
def test_a_model_is_kept_by_tensor_names_with_its_layout(run_folder: SavedRun) -> None:
    module = tiny.TinyNet(3, 3)
    model = FlatModel(module, Layout.of(module))
    module(torch.rand(4, 3, 6, 6))
    run_folder.write_model(("personal", "last", "a"), model.read(), model.layout)
    found = run_folder.read_model(("personal", "last", "a"))
    expected = module.state_dict()
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert found["features.1.num_batches_tracked"].item() == 1
    with safe_open(run_folder.folder / "models" / "personal" / "last" / "a.safetensors", framework="pt") as file:
        described = json.loads(file.metadata()["layout"])
    by_name = {entry["name"]: entry for entry in described}
    assert set(by_name) == set(expected)
    assert by_name["features.1.running_var"] == {
        "name": "features.1.running_var",
        "shape": [6],
        "role": "buffer",
        "kind": "shared",
        "group": "batch-norm",
    }
    fresh = tiny.TinyNet(3, 3)
    fresh.load_state_dict(found)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\xff" * 64])
def test_a_damaged_model_is_named(run_folder: SavedRun, content: bytes) -> None:
    path = run_folder.folder / "models" / "global.safetensors"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(FairsiloError, match=r"global\.safetensors cannot be read: "):
        run_folder.read_model(("global",))


def test_a_model_cut_off_in_the_middle_is_named(run_folder: SavedRun) -> None:
    layout = Layout.of(tiny.TinyNet(3, 3))
    run_folder.write_model(("global",), torch.zeros(layout.size), layout)
    path = run_folder.folder / "models" / "global.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FairsiloError, match=r"global\.safetensors cannot be read: "):
        run_folder.read_model(("global",))


def test_a_model_that_is_not_there_is_named(run_folder: SavedRun) -> None:
    with pytest.raises(FairsiloError, match=r"nobody\.safetensors cannot be read: "):
        run_folder.read_model(("personal", "last", "nobody"))


# --------------------------------------------------------------------------------------------------------- checkpoints
def test_a_new_folder_has_no_checkpoint(run_folder: SavedRun) -> None:
    assert run_folder.read_checkpoint() is None


def test_a_checkpoint_comes_back_and_the_last_two_stay(run_folder: SavedRun) -> None:
    for number in (1, 2, 5):
        save(run_folder, number)
        assert round_of(run_folder) == number
    names = sorted(path.name for path in (run_folder.folder / "checkpoint").iterdir())
    assert names == ["server-000002.safetensors", "server-000005.safetensors"]


def test_a_kill_while_writing_leaves_the_last_checkpoint(run_folder: SavedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    save(run_folder, 1)

    def killed(path: Path, tree: Any) -> None:
        path.write_bytes(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr("fairsilo.runs.saved.write_tree", killed)
    with pytest.raises(KeyboardInterrupt):
        save(run_folder, 2)
    monkeypatch.undo()
    assert round_of(run_folder) == 1
    save(run_folder, 3)
    assert round_of(run_folder) == 3


def test_files_are_on_the_disk_before_they_take_their_name(
    run_folder: SavedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What survives a power failure: the content is synced before the move, the folder after it, rows before both."""
    import os

    calls: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        calls.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        sync(descriptor)

    def moved(self: Path, target: Path) -> Path:
        calls.append(f"move {target.name}")
        return replace(self, target)

    run_folder.append("metrics", [{"round": 1}])
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", moved)
    save(run_folder, 1)
    assert calls == [
        "sync metrics.jsonl",
        "sync .server-000001.safetensors.part",
        "move server-000001.safetensors",
        "sync checkpoint",
    ]
    calls.clear()
    write_seen(run_folder.folder, tiny.federation())
    assert calls == ["sync .seen.safetensors.part", "move seen.safetensors", f"sync {run_folder.folder.name}"]


def test_a_damaged_checkpoint_is_named(run_folder: SavedRun) -> None:
    save(run_folder, 1)
    (run_folder.folder / "checkpoint" / "server-000001.safetensors").write_bytes(b"broken")
    with pytest.raises(FairsiloError, match=r"checkpoint/server-000001\.safetensors cannot be read: "):
        run_folder.read_checkpoint()


def test_keys_that_look_alike_stay_apart(tmp_path: Path) -> None:
    tree = {"a/b": torch.tensor(1.0), "a": {"b": torch.tensor(2.0)}}
    write_tree(tmp_path / "x.safetensors", tree)
    found = read_tree(tmp_path / "x.safetensors")
    assert (float(found["a/b"]), float(found["a"]["b"])) == (1.0, 2.0)


def test_silo_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    layout = Layout([Slot("w", (2,), "parameter")])
    SavedRun(tmp_path).write_model(("personal", "last", "../../x y"), torch.ones(2), layout)
    found = (tmp_path / "models" / "personal" / "last").iterdir()
    assert [path.name for path in found] == ["..%2F..%2Fx y.safetensors"]
    assert SavedRun(tmp_path).read_model(("personal", "last", "../../x y"))["w"].tolist() == [1.0, 1.0]


def test_foreign_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("[1]")
    with pytest.raises(FairsiloError, match="damaged"):
        SavedRun(tmp_path).read_json("run.json")
    save_file({"w": torch.ones(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(FairsiloError, match="not written by fairsilo"):
        read_tree(tmp_path / "foreign.safetensors")
