"""What `fairsilo datasets` does: report, prepare with verification, and list all faults of a folder at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import MakeFolder, picture
from test_packed import sample

from fairsilo.cli import main
from fairsilo.core.samples import InFile
from fairsilo.data import load
from fairsilo.data.checking import check_data
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset, Domain
from fairsilo.data.finding import report
from fairsilo.data.packed import write_packed
from fairsilo.data.prepared import find_prepared, read_prepared, verify, write_prepared
from fairsilo.data.preparing import prepare
from fairsilo.data.reading import Stack
from fairsilo.data.text import text_domain
from fairsilo.errors import FairsiloError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def call(capsys: Any, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `fairsilo WORDS`."""
    before, sys.argv = sys.argv, ["fairsilo", *words]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.fixture
def pacs(tmp_path: Path) -> Path:
    """A root with a small PACS, images wider than high."""
    for place, domain in enumerate(("photo", "cartoon")):
        for label in ("dog", "house"):
            for number in range(3):
                file = tmp_path / "root" / "PACS" / domain / label / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                picture(100 * place + 10 * len(label) + number, width=24, height=12).save(file)
    return tmp_path / "root"


# ------------------------------------------------------------------------------------------------------------- prepare
def test_a_prepared_data_set_is_mapped_and_equal(pacs: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    plain = load(name="pacs", root=str(pacs), size=8)
    folder = prepare("pacs", None, str(pacs), 8, "squeeze", lambda *step: seen.append(step))
    assert seen == [("photo", 6, 6), ("cartoon", 6, 6)]
    assert find_prepared(pacs, "pacs", 8, "squeeze") == folder
    found = load(name="pacs", root=str(pacs), size=8)
    assert found.source["prepared"] == str(folder)
    assert (found.classes, found.task, found.name) == (plain.classes, plain.task, plain.name)
    for name, domain in plain.domains.items():
        mapped = found.domains[name]
        assert isinstance(mapped.inputs, InFile)
        assert mapped.inputs.read_only
        assert torch.equal(mapped.samples.take([4, 0])[0], domain.samples.take([4, 0])[0])
        assert torch.equal(mapped.targets, domain.targets)
        assert torch.equal(mapped.split, domain.split)
    # another size is read from the images themselves
    assert "prepared" not in load(name="pacs", root=str(pacs), size=16).source
    assert "prepared" not in load(name="pacs", root=str(pacs), size=8, fit="crop").source


def test_prepared_without_the_original(pacs: Path, tmp_path: Path) -> None:
    prepare("pacs", str(pacs / "PACS"), str(tmp_path / "other"), 8, "pad")
    found = load(name="pacs", root=str(tmp_path / "other"), size=8, fit="pad")
    # bars above and below the image
    assert found.domains["photo"].samples.inputs[0, 0, :, 0].tolist() == [0, 0, 30, 30, 30, 30, 0, 0]


def test_all_that_a_domain_says_is_kept(tmp_path: Path) -> None:
    domain = Domain(
        "a",
        torch.arange(48, dtype=torch.uint8).view(4, 3, 2, 2),
        torch.tensor([[[0, 1], [1, 1]]] * 4, dtype=torch.uint8),
        torch.tensor([TRAIN, VALIDATION, TEST, UNDECIDED], dtype=torch.int8),
        torch.tensor([5, 5, 6, 7]),
        ("x", "y", "x", "y"),
        {"sex": ("f", "m", "m", "f")},
    )
    write_prepared(Dataset("d", ("no", "yes"), {"a/b": domain}, "about", "segment", {"k": "v"}), tmp_path / "p")
    found = read_prepared(tmp_path / "p")
    again = found.domains["a/b"]
    assert (found.about, found.task, found.source["k"]) == ("about", "segment", "v")
    assert torch.equal(again.samples.inputs, domain.samples.inputs)
    assert torch.equal(again.targets, domain.targets)
    assert again.group is not None
    assert again.group.tolist() == [5, 5, 6, 7]
    assert (again.silo, again.attributes) == (domain.silo, domain.attributes)
    assert again.split.tolist() == domain.split.tolist()


def test_what_was_changed_or_cut_is_noticed(pacs: Path) -> None:
    folder = prepare("pacs", None, str(pacs), 8, "squeeze")
    file = folder / "1.inputs"
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(FairsiloError, match=r"1\.inputs is not what was prepared"):
        verify(folder)
    file.write_bytes(content[:-1])
    with pytest.raises(FairsiloError, match=r"1\.inputs does not have 1152 bytes"):
        load(name="pacs", root=str(pacs), size=8)
    file.write_bytes(content)
    verify(folder)
    (folder / "0.safetensors").write_bytes(b"")
    with pytest.raises(FairsiloError, match="lacks targets of 'photo'"):
        load(name="pacs", root=str(pacs), size=8)
    (folder / "index.json").write_text('{"format": 0}')
    with pytest.raises(FairsiloError, match="another version"):
        load(name="pacs", root=str(pacs), size=8)


def test_what_cannot_be_written_is_told_of_the_copy_that_was_asked_for(
    pacs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written beside at first, into a folder that is gone when the sentence is read."""
    plain, copy = load(name="pacs", root=str(pacs), size=8), tmp_path / "copies" / "pacs"
    monkeypatch.setattr("fairsilo.data.prepared._digest", lambda _: "of other bytes")
    with pytest.raises(FairsiloError, match="is not what was prepared") as problem:
        write_prepared(plain, copy)
    assert str(problem.value).startswith(f"{copy / '0.inputs'} is not")
    assert list(copy.parent.iterdir()) == []


def test_a_damaged_image_leaves_nothing_behind(pacs: Path) -> None:
    (pacs / "PACS" / "cartoon" / "house" / "2.png").write_text("no image")
    with pytest.raises(FairsiloError, match=r"2\.png is not an image"):
        prepare("pacs", None, str(pacs), 8, "squeeze")
    assert list((pacs / "prepared").iterdir()) == []


def test_masks_are_prepared_with_their_images(tmp_path: Path) -> None:
    for name in ("jsrt", "montgomery"):
        for kind, level in (("images", 50), ("masks", 255)):
            (tmp_path / "lung" / name / kind).mkdir(parents=True)
            picture(level, width=16, height=8).save(tmp_path / "lung" / name / kind / "1.png")
    prepare("lung", None, str(tmp_path), 8, "pad")
    found = load(name="lung", root=str(tmp_path), size=8, fit="pad").domains["jsrt"]
    inputs, targets = found.samples.take([0])
    assert torch.equal((inputs[0, 0] > 25).to(torch.uint8), targets[0])
    assert targets.sum().item() == 32
    picture(255, width=8, height=16).save(tmp_path / "lung" / "jsrt" / "masks" / "1.png")
    with pytest.raises(FairsiloError, match=r"1\.png is 16 x 8 pixels, but its mask is 8 x 16"):
        prepare("lung", None, str(tmp_path), 8, "pad")


def test_text_needs_no_preparation(tmp_path: Path) -> None:
    role = text_domain("HAM", "x" * 100)
    assert role is not None
    with pytest.raises(FairsiloError, match="nothing to prepare"):
        write_prepared(Dataset("d", ("x",), {"HAM": role}), tmp_path / "p")


def test_images_are_decoded_when_they_are_asked_for(tmp_path: Path) -> None:
    stack = Stack(4, later=True)
    for number in range(3):
        picture(10 * number).save(tmp_path / f"{number}.png")
        stack.add(tmp_path / f"{number}.png", f"{number}.png")
    (tmp_path / "1.png").write_text("damaged")
    storage = stack.take()
    assert storage.take(torch.tensor([2, 0]))[:, 0, 0, 0].tolist() == [20, 0]
    assert (len(storage), storage.shape, storage.dtype) == (3, (3, 4, 4), torch.uint8)
    with pytest.raises(FairsiloError, match=r"1\.png is not an image"):
        storage.take(torch.tensor([1]))


def test_images_that_do_not_fit_into_memory_are_refused() -> None:
    stack = Stack(None, room=3 * 8 * 8 * 3)
    for number in range(3):
        stack.add(np.zeros((8, 8), np.uint8), str(number))
    with pytest.raises(FairsiloError, match=r"Images up to one more .*fairsilo datasets prepare"):
        stack.add(np.zeros((8, 8), np.uint8), "one more")


# -------------------------------------------------------------------------------------------------------------- report
def test_a_report_says_what_is_found_and_what_differs(pacs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRSILO_DATA", str(pacs))
    facts = report("pacs")
    assert facts["found"]["domains"] == {"photo": {"undecided": 6}, "cartoon": {"undecided": 6}}
    remarks = facts["found"]["remarks"]
    assert "domain 'sketch' is not there" in remarks
    assert "domain 'photo' has 6 samples, and the release 1670" in remarks
    assert facts["looked_for"][0] == str(pacs / "PACS")
    assert report("vlcs")["found"] is None


def test_a_packed_file_that_is_not_the_checked_one_is_said(tmp_path: Path) -> None:
    write_packed(sample(names=("photo", "sketch")), tmp_path / "pacs")
    remarks = report("pacs", str(tmp_path))["found"]["remarks"]
    assert "photo.npz is not the file that was checked (sha256 differs)" in remarks
    (tmp_path / "pacs" / "sketch.npz").write_bytes(b"")
    assert "cannot be read" in report("pacs", str(tmp_path))["found"]["remarks"][0]


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
def test_the_shared_files_are_the_checked_ones() -> None:
    for name, files in (("pacs", 4), ("digit-five", 5), ("ham10000", 4), ("vessel", 3), ("shakespeare", 2)):
        found = report(name, str(SHARED))["found"]
        assert f"{files} files are those that were checked (sha256)" in found["remarks"]
    assert any("synth_rendered" in remark for remark in report("digits", str(SHARED))["found"]["remarks"])


# --------------------------------------------------------------------------------------------------------- the commands
def test_the_commands(pacs: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRSILO_DATA", raising=False)
    code, out, _ = call(capsys, "datasets", "pacs")
    assert code == 0
    for words in ("PACS (pacs)", "licence:", "ICCV 2017", "how to get it:", "DomainBed", "photo 1670", "FAIRSILO_DATA"):
        assert words in out
    code, out, _ = call(capsys, "datasets", "pacs", "--root", str(pacs))
    assert f"found: {pacs / 'PACS'}" in out
    assert "photo: 6 undecided" in out
    code, out, _ = call(capsys, "datasets", "prepare", "pacs", "--from", str(pacs), "--root", str(pacs), "--size", "8")
    assert code == 0
    assert f"prepared and verified: {pacs / 'prepared' / 'pacs-8-squeeze'}" in out
    assert "prepared:" in call(capsys, "datasets", "pacs", "--root", str(pacs))[1]
    assert json.loads(call(capsys, "datasets", "pacs", "--root", str(pacs), "--json")[1])["prepared"]
    for words, said in (
        (["prepare", "paccs", "--root", "x"], "did you mean 'pacs'"),
        (["prepare", "vlcs", "--root", str(pacs)], "VLCS is not in"),
        (["prepare", "vlcs"], "--root FOLDER"),
        (["prepare"], "check PATH"),
        (["pacs", "--size", "8"], "are of `fairsilo datasets prepare NAME`"),
    ):
        code, _, err = call(capsys, "datasets", *words)
        assert code == 2
        assert said in err


# --------------------------------------------------------------------------------------------------------------- check
def test_all_faults_of_a_folder_are_listed_at_once(make_folder: MakeFolder, capsys: Any) -> None:
    root = make_folder(each=12)
    (root / "north" / "cat" / "0.png").write_text("a text")
    (root / "north" / "dog" / "1.png").write_bytes((root / "north" / "dog" / "1.png").read_bytes()[:-25])
    (root / "south" / "cat" / "notes.txt").write_text("x")
    (root / "south" / "cat" / "deeper").mkdir()
    (root / "south" / "bird").mkdir()
    (root / "west").mkdir()
    (root / "south" / ".hidden").write_text("x")
    picture(1).save(root / "loose.png")
    picture(1, width=9).save(root / "south" / "dog" / "wide.png")
    code, out, _ = call(capsys, "datasets", "check", str(root))
    assert code == 2
    for words in (
        "0.png is not an image", "1.png is damaged", "notes.txt among the images", "holds the folder 'deeper'",
        "bird is empty", "west has no class folders", "loose.png lies outside", ".hidden is hidden",
        "images differ in size", "1 images are not square", "domain 'west' has 0 samples",
    ):  # fmt: skip
        assert words in out
    found = check_data(root)
    assert (len(found.problems), found.samples) == (7, 47)


def test_a_folder_without_fault(make_folder: MakeFolder, capsys: Any) -> None:
    root = make_folder(each=5)
    code, out, _ = call(capsys, "datasets", "check", str(root))
    assert (code, out.strip()) == (0, f"{root}: 20 images in 2 domains, no problem")
    assert json.loads(call(capsys, "datasets", "check", str(root), "--json")[1])["problems"] == []


def test_what_single_domains_have_is_remarked(make_folder: MakeFolder) -> None:
    root = make_folder(each=10)
    (root / "south" / "emu").mkdir()
    picture(3).save(root / "south" / "emu" / "1.png")
    found = check_data(root)
    assert found.problems == []
    assert found.remarks == [
        "class 'emu' is in domain 'south' alone, which then cannot be held out",
        "domain 'north' has no sample of 'emu'",
    ]


def test_all_faults_of_an_index(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder()
    lines = ["path,label,domain,split", "north/cat/0.png,cat,north,train", "north/cat/9.png,cat,north,", ",cat,south,"]
    (root / "index.csv").write_text("\n".join([*lines, "south/cat/0.png,cat,south,tset"]))
    found = check_data(root / "index.csv")
    assert len(found.problems) == 4  # a file that is missing, a path, a split, and then one domain is left
    assert found.samples == 1
    assert "row 2" in found.problems[0]
    (root / "index.csv").write_text("path,label\n")
    assert "no column 'domain'" in check_data(root / "index.csv").problems[0]


def test_all_faults_of_packed_files(tmp_path: Path) -> None:
    write_packed(sample(names=("a", "b", "c", "d")), tmp_path)
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:200])
    with np.load(tmp_path / "b.npz") as archive:
        arrays = dict(archive)
    np.savez(tmp_path / "b.npz", **{**arrays, "label": np.array([0, 1, 2, 0])})
    images = arrays["images"].copy()
    images[: arrays["offsets"][1]] = 0
    np.savez(tmp_path / "c.npz", **{**arrays, "images": images})
    np.savez(tmp_path / "d.npz", **{**arrays, "classes": np.array(["cat", "cow"])})
    problems = check_data(tmp_path).problems
    assert len(problems) == 4
    for problem, words in zip(
        problems, ("a.npz is not an intact", "b.npz does not fit", "Image 0 of", "differ in"), strict=True
    ):
        assert words in problem


def test_all_faults_of_masks(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for kind in ("images", "masks"):
            (tmp_path / name / kind).mkdir(parents=True)
            for number in range(12):
                picture(255).save(tmp_path / name / kind / f"{number}.png")
    assert check_data(tmp_path).problems == []
    (tmp_path / "a" / "masks" / "3.png").unlink()
    (tmp_path / "b" / "images" / "4.png").unlink()
    (tmp_path / "a" / "masks" / "5.png").write_text("no mask")
    picture(255, width=9).save(tmp_path / "b" / "masks" / "6.png")
    problems = check_data(tmp_path).problems
    assert len(problems) == 4
    for words in ("3.png has no mask", "4.png has no image", "5.png is not an image", "its mask is 9 x 8"):
        assert any(words in problem for problem in problems)
    assert check_data(tmp_path).samples == 20
