"""The user's own images: what is read, in which order, and what each mistake is answered with."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import MakeFolder, picture
from PIL import Image

from fairsilo.data import load
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset
from fairsilo.data.folder import read_folder, read_index
from fairsilo.errors import FairsiloError

SAVED = ("PNG", "JPEG", "BMP", "WEBP", "GIF", "TIFF")


def levels(dataset: Dataset, domain: str) -> list[int]:
    """The grey level of each image's first pixel."""
    return dataset.domains[domain].inputs[:, 0, 0, 0].tolist()


def refused(path: Path, *words: object, size: int | None = None) -> str:
    """Reading must fail with one sentence that has all the words."""
    with pytest.raises(FairsiloError) as caught:
        load(folder=str(path), size=size)
    message = str(caught.value)
    for word in words:
        assert str(word) in message
    assert message.endswith(".")
    assert "\n" not in message
    return message


# ---- folders


def test_reads_domains_classes_and_images_in_order(make_folder: MakeFolder) -> None:
    dataset = read_folder(make_folder())
    assert dataset.name == "images"
    assert dataset.classes == ("cat", "dog")
    assert list(dataset.domains) == ["north", "south"]
    assert levels(dataset, "north") == [0, 1, 10, 11]
    assert levels(dataset, "south") == [100, 101, 110, 111]
    north = dataset.domains["north"]
    assert north.inputs.shape == (4, 3, 8, 8)
    assert north.inputs.dtype == torch.uint8
    assert north.targets.tolist() == [0, 0, 1, 1]
    assert north.split.tolist() == [UNDECIDED] * 4
    assert north.silo is None


def test_numbered_classes_are_in_numerical_order(make_folder: MakeFolder) -> None:
    dataset = read_folder(make_folder(classes=("10", "9", "2")))
    assert dataset.classes == ("2", "9", "10")
    assert levels(dataset, "north") == [20, 21, 10, 11, 0, 1]


def test_order_does_not_depend_on_the_file_system(make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_folder()
    expected = levels(read_folder(root), "south")
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(sorted(listed(folder), reverse=True)))
    dataset = read_folder(root)
    assert list(dataset.domains) == ["north", "south"]
    assert levels(dataset, "south") == expected


@pytest.mark.parametrize("kind", SAVED)
@pytest.mark.parametrize("upper", [False, True])
def test_reads_usual_formats_whatever_their_case(make_folder: MakeFolder, kind: str, upper: bool) -> None:
    root = make_folder()
    suffix = {"JPEG": "jpg", "TIFF": "tif"}.get(kind, kind.lower())
    picture(77).save(root / "north" / "cat" / f"9.{suffix.upper() if upper else suffix}", kind)
    assert levels(read_folder(root), "north")[2] in (76, 77, 78)


@pytest.mark.parametrize(
    ("mode", "value", "expected"),
    [
        ("L", 50, (50, 50, 50)),
        ("RGB", (1, 2, 3), (1, 2, 3)),
        ("1", 1, (255, 255, 255)),
        ("I;16", 51 * 256, (51, 51, 51)),
        ("RGBA", (9, 9, 9, 0), (255, 255, 255)),
        ("LA", (40, 255), (40, 40, 40)),
        ("P", 0, (0, 0, 0)),
    ],
)
def test_every_kind_of_pixel_becomes_rgb(
    make_folder: MakeFolder, mode: str, value: int, expected: tuple[int, int, int]
) -> None:
    root = make_folder()
    image = Image.new(mode, (8, 8), value)
    if mode == "P":
        image.putpalette([0, 0, 0, 255, 255, 255])
    image.save(root / "north" / "cat" / "0.png")
    assert tuple(read_folder(root).domains["north"].inputs[0, :, 4, 4].tolist()) == expected


def test_channels_rows_and_columns_are_where_they_belong(make_folder: MakeFolder) -> None:
    root = make_folder()
    pixels = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    Image.fromarray(pixels).save(root / "north" / "cat" / "0.png")
    np.testing.assert_array_equal(read_folder(root).domains["north"].inputs[0].permute(1, 2, 0), pixels)


def test_size_resizes_all(make_folder: MakeFolder) -> None:
    root = make_folder()
    picture(60, width=20, height=12).save(root / "south" / "dog" / "big.png")
    dataset = read_folder(root, size=16)
    assert dataset.domains["north"].inputs.shape == (4, 3, 16, 16)
    assert levels(dataset, "south") == [100, 101, 110, 111, 60]


def test_hidden_files_and_notes_beside_the_classes_are_passed_over(make_folder: MakeFolder) -> None:
    root = make_folder()
    (root / ".git").mkdir()
    (root / "README.md").write_text("ours")
    (root / "north" / "LICENCE").write_text("free")
    (root / "north" / "cat" / ".DS_Store").write_bytes(b"x")
    (root / "north" / "cat" / "Thumbs.db").write_bytes(b"x")
    assert levels(read_folder(root), "north") == [0, 1, 10, 11]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", tmp_path / "nowhere", "does not exist", "domain/class/image")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "images.zip").write_bytes(b"PK")
    refused(tmp_path / "images.zip", "images.zip", "is a file, not a folder")


def test_a_truncated_image_is_named(make_folder: MakeFolder) -> None:
    root = make_folder()
    file = root / "south" / "dog" / "1.png"
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(noise).save(file)
    file.write_bytes(file.read_bytes()[:-100])
    refused(root, file, "damaged or truncated")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_only_claims_to_be_an_image_is_named(make_folder: MakeFolder, content: bytes) -> None:
    root = make_folder()
    file = root / "south" / "dog" / "1.png"
    file.write_bytes(content)
    refused(root, file, "not an image")


# Pillow warns of damage in a TIFF's remarks; only damage to the picture must be refused.
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("kind", SAVED)
def test_a_damaged_image_is_read_or_refused_but_never_a_crash(make_folder: MakeFolder, kind: str) -> None:
    root = make_folder()
    file = root / "north" / "cat" / "0.png"
    random = np.random.default_rng(1)
    Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(file, kind)
    whole = np.frombuffer(file.read_bytes(), np.uint8)
    refusals = 0
    for _ in range(60):
        broken = whole[: random.integers(1, len(whole) + 1)].copy()
        broken[random.integers(0, len(broken), 3)] = random.integers(0, 256, 3)
        file.write_bytes(broken.tobytes())
        try:
            read_folder(root, size=8)
        except FairsiloError as error:
            refusals += str(file) in str(error)
    assert refusals > 20


@pytest.mark.parametrize("limit", [40, 20])
def test_an_image_over_the_pixel_limit_is_refused(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    # Pillow only warns up to twice its limit and raises above; both must end the same way.
    root = make_folder()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    refused(root, root / "north" / "cat" / "0.png", f"limit of {limit}")


def test_notes_among_images_are_named(make_folder: MakeFolder) -> None:
    root = make_folder()
    (root / "north" / "dog" / "notes.txt").write_text("blurred")
    refused(root, root / "north" / "dog" / "notes.txt", "not an image", ".png .jpg")


def test_an_image_outside_a_class_folder_is_named(make_folder: MakeFolder) -> None:
    root = make_folder()
    picture(1).save(root / "north" / "stray.png")
    refused(root, root / "north" / "stray.png", "outside a class folder")


def test_a_folder_inside_a_class_is_named(make_folder: MakeFolder) -> None:
    root = make_folder()
    (root / "north" / "dog" / "more").mkdir()
    refused(root, root / "north" / "dog", "'more'", "domain/class/image")


def test_an_empty_class_folder_is_named(make_folder: MakeFolder) -> None:
    root = make_folder()
    (root / "south" / "bird").mkdir()
    refused(root, root / "south" / "bird", "is empty")


def test_a_domain_without_class_folders_is_named(make_folder: MakeFolder) -> None:
    root = make_folder()
    (root / "west").mkdir()
    refused(root, root / "west", "no class folders")


def test_a_domain_may_lack_a_class(make_folder: MakeFolder) -> None:
    root = make_folder()
    (root / "south" / "bird").mkdir()
    picture(5).save(root / "south" / "bird" / "0.png")
    found = read_folder(root)
    assert found.classes == ("bird", "cat", "dog")
    assert found.domains["north"].targets.tolist() == [1, 1, 2, 2]
    assert levels(found, "north") == [0, 1, 10, 11]
    assert found.domains["south"].targets.tolist() == [0, 1, 1, 2, 2]
    assert levels(found, "south") == [5, 100, 101, 110, 111]


def test_one_domain_is_too_few(make_folder: MakeFolder) -> None:
    refused(make_folder(domains=("north",)), "only the domain 'north'", "at least 2 domains", "held out")


def test_no_domain_is_too_few(tmp_path: Path) -> None:
    refused(tmp_path, "no domain", "at least 2")


def test_mixed_sizes_are_named_with_the_remedy(make_folder: MakeFolder) -> None:
    root = make_folder()
    picture(5, width=9).save(root / "south" / "cat" / "0.png")
    first, second = root / "north" / "cat" / "0.png", root / "south" / "cat" / "0.png"
    refused(root, f"{first} is 8 x 8", f"{second} is 9 x 8", "size=32")


def test_an_impossible_size_is_refused(make_folder: MakeFolder) -> None:
    refused(make_folder(), "size is 0", "between 1 and", size=0)


def test_a_folder_of_packed_files_says_so(tmp_path: Path) -> None:
    (tmp_path / "north.npz").write_bytes(b"")
    refused(tmp_path, "packed")


# ---- indexes


def rows_of(root: Path) -> list[dict[str, object]]:
    """One row per image below the folder, in a mixed order."""
    files = sorted(root.glob("*/*/*.png"), key=lambda file: (file.name, file))
    return [
        {"path": f"images/{file.relative_to(root).as_posix()}", "label": file.parts[-2], "domain": file.parts[-3]}
        for file in files
    ]


def write_index(root: Path, rows: list[dict[str, object]], kind: str = "csv") -> Path:
    path = root.parent / f"index.{kind}"
    if kind == "json":
        path.write_text(json.dumps(rows))
        return path
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_an_index_gives_labels_splits_silos_and_groups(make_folder: MakeFolder, kind: str) -> None:
    root = make_folder()
    rows = rows_of(root)
    words = ["train", "val", "validation", "TEST", "", "train", "test", "train"]
    for number, (row, word) in enumerate(zip(rows, words, strict=True)):
        row.update(silo=f"{row['domain']}-{number % 2}", split=word, group=f"patient {number // 2}")
    dataset = load(folder=str(write_index(root, rows, kind)))
    # Index order: north cat, north dog, south cat, south dog of image 0, then of image 1.
    assert levels(dataset, "north") == [0, 10, 1, 11]
    assert dataset.classes == ("cat", "dog")
    north, south = dataset.domains["north"], dataset.domains["south"]
    assert north.targets.tolist() == [0, 1, 0, 1]
    assert north.split.tolist() == [TRAIN, VALIDATION, UNDECIDED, TRAIN]
    assert south.split.tolist() == [VALIDATION, TEST, TEST, TRAIN]
    assert north.silo == ("north-0", "north-1", "north-0", "north-1")
    assert north.group is not None
    assert south.group is not None
    assert north.group.tolist() == [0, 0, 2, 2]
    assert south.group.tolist() == [1, 1, 3, 3]


def test_an_index_needs_only_three_columns_and_may_repeat_rows(make_folder: MakeFolder) -> None:
    root = make_folder()
    rows = rows_of(root)
    dataset = read_index(write_index(root, [*rows, rows[0]]), size=4)
    north = dataset.domains["north"]
    assert levels(dataset, "north") == [0, 10, 1, 11, 0]
    assert north.inputs.shape == (5, 3, 4, 4)
    assert north.split.tolist() == [UNDECIDED] * 5
    assert north.silo is None
    assert north.group is None


def test_a_json_index_may_have_numbers_as_labels(make_folder: MakeFolder) -> None:
    root = make_folder()
    rows = [{**row, "label": 10 if row["label"] == "cat" else 9} for row in rows_of(root)]
    assert read_index(write_index(root, rows, "json")).classes == ("9", "10")


def test_a_spreadsheet_s_byte_order_mark_is_no_part_of_the_first_column(make_folder: MakeFolder) -> None:
    root = make_folder()
    path = write_index(root, rows_of(root))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_index(path).classes == ("cat", "dog")


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("column", ["path", "label", "domain"])
def test_a_missing_column_is_named(make_folder: MakeFolder, kind: str, column: str) -> None:
    root = make_folder()
    rows = [{name: value for name, value in row.items() if name != column} for row in rows_of(root)]
    refused(write_index(root, rows, kind), f"index.{kind}", f"no column {column!r}")


def test_a_misspelt_column_is_recognised(make_folder: MakeFolder) -> None:
    root = make_folder()
    rows = [{"path": row["path"], "labels": row["label"], "domain": row["domain"]} for row in rows_of(root)]
    refused(write_index(root, rows), "no column 'label'", "did you mean 'labels'")


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"split": "dev"}, "Row 3|split 'dev'|train, validation, val or test"),
        ({"label": ""}, "Row 3|no label"),
        ({"domain": " "}, "Row 3|no domain"),
        ({"path": "images/none.png"}, "none.png|does not exist"),
        ({"path": "images"}, "images|does not exist"),
    ],
)
def test_a_bad_value_is_named_with_its_row(
    make_folder: MakeFolder, kind: str, change: dict[str, object], words: str
) -> None:
    root = make_folder()
    rows = [{**row, "split": "train"} for row in rows_of(root)]
    rows[2].update(change)
    refused(write_index(root, rows, kind), *words.split("|"))


def test_a_silo_left_out_of_one_row_is_named(make_folder: MakeFolder) -> None:
    root = make_folder()
    rows = [{**row, "silo": "a"} for row in rows_of(root)]
    del rows[1]["silo"]
    refused(write_index(root, rows, "json"), "Row 2", "no silo")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("index.csv", "", "no column 'path'"),
        ("index.csv", "path,label,domain\n", "has no rows"),
        ("index.csv", "path,label,domain\na.png,cat\n", "Row 1 of index|2 fields|header has 3"),
        ("index.csv", 'path,label,domain\n"a.png,cat,x\n', "not valid CSV"),
        ("index.json", "{", "not valid JSON"),
        ("index.json", '{"path": 1}', "list of objects"),
        ("index.json", "[1]", "list of objects"),
        ("index.json", '[{"path": ["a"], "label": "b", "domain": "c"}]', "Row 1|path ['a']|must be text"),
    ],
)
def test_a_broken_index_is_explained(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    refused(tmp_path / name, *words.split("|"))


def test_an_index_that_is_not_text_is_explained(tmp_path: Path) -> None:
    (tmp_path / "index.csv").write_bytes(b"\xff\xfe\x00")
    refused(tmp_path / "index.csv", "UTF-8")


def test_a_missing_index_and_an_unknown_kind_are_explained(tmp_path: Path) -> None:
    refused(tmp_path / "index.csv", "index.csv does not exist")
    (tmp_path / "index.txt").write_text("path")
    with pytest.raises(FairsiloError, match=r"'\.txt', but must be a \.csv or a \.json"):
        load(index=str(tmp_path / "index.txt"))


def test_an_index_is_held_to_the_same_rules_as_a_folder(make_folder: MakeFolder) -> None:
    root = make_folder()
    rows = rows_of(root)
    refused(write_index(root, [row for row in rows if row["domain"] == "north"]), "only the domain 'north'")
    without = [row for row in rows if (row["domain"], row["label"]) != ("south", "dog")]
    found = read_index(write_index(root, without))
    assert found.classes == ("cat", "dog")
    assert found.domains["south"].targets.tolist() == [0, 0]
    picture(5, width=9).save(root / "south" / "cat" / "0.png")
    refused(write_index(root, rows), "8 x 8", "9 x 8", "size=32")


def test_importing_the_package_is_cheap() -> None:
    check = "import sys, fairsilo.data; sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'PIL')))"
    source = str(Path(__file__).parents[2] / "src")
    command = f"import sys; sys.path.insert(0, {source!r}); {check}"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
