"""Odd and damaged files: each is read right, or refused in a sentence that names it."""

from __future__ import annotations

import dataclasses
import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import MakeFolder, picture
from PIL import Image
from test_packed import sample

from fairsilo.data import load
from fairsilo.data.dataset import UNDECIDED, Dataset, Domain
from fairsilo.data.describe import notes_of
from fairsilo.data.federation import federate
from fairsilo.data.folder import read_folder
from fairsilo.data.newcomer import read_newcomer
from fairsilo.data.packed import write_packed
from fairsilo.data.reading import Stack, decode, eight_bits
from fairsilo.errors import FairsiloError
from tiny_dicom import write_dicom


def saved(image: Image.Image, kind: str, **more: object) -> bytes:
    stream = BytesIO()
    image.save(stream, kind, **more)  # type: ignore[arg-type]
    return stream.getvalue()


# --------------------------------------------------------------------------------------------------------- grey values
@pytest.mark.parametrize(("most", "expected"), [(255, 255), (256, 16), (4095, 255), (4096, 16), (65535, 255)])
def test_sixteen_bits_are_scaled_by_their_true_range(most: int, expected: int) -> None:
    values = np.array([[0, most // 2], [most // 4, most]], np.uint16)
    found = decode(saved(Image.fromarray(values), "PNG"), "x", None)[..., 0]
    assert found[1, 1] == expected
    assert found[0, 0] == 0
    assert abs(int(found[0, 1]) - expected / 2) <= 1
    assert found.dtype == np.uint8


def test_larger_values_are_scaled_by_the_largest() -> None:
    assert eight_bits(np.array([[0, 100_000, 200_000, -5]])).tolist() == [[0, 128, 255, 0]]
    assert eight_bits(np.zeros((2, 2), np.uint16)).tolist() == [[0, 0], [0, 0]]


# -------------------------------------------------------------------------------------------------------------- colours
def test_cmyk_palette_and_transparency() -> None:
    cmyk = Image.new("CMYK", (4, 4), (0, 255, 255, 0))  # red
    assert decode(saved(cmyk, "TIFF"), "x", None)[0, 0].tolist() == [255, 0, 0]
    reds = decode(saved(cmyk, "JPEG", quality=100), "x", None)[0, 0].astype(int)
    assert (abs(reds - [255, 0, 0]) < 12).all()
    palette = Image.new("RGB", (4, 4), (10, 200, 30)).quantize(4)
    assert palette.mode == "P"
    assert decode(saved(palette, "PNG"), "x", None)[0, 0].tolist() == [10, 200, 30]
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    assert decode(saved(clear, "PNG"), "x", None)[0, 0].tolist() == [255, 255, 255]
    half = Image.new("RGBA", (4, 4), (0, 0, 0, 51))
    assert decode(saved(half, "PNG"), "x", None)[0, 0].tolist() == [204, 204, 204]
    through = Image.new("P", (4, 4), 0)
    assert decode(saved(through, "PNG", transparency=0), "x", None)[0, 0].tolist() == [255, 255, 255]


def test_an_image_is_turned_as_its_camera_was_held() -> None:
    values = np.zeros((2, 6, 3), np.uint8)
    values[0, 5] = 255  # top right
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: top of the picture is its right side
    turned = decode(saved(Image.fromarray(values), "PNG", exif=exif), "x", None)
    assert turned.shape == (6, 2, 3)
    assert turned[5, 1].tolist() == [255] * 3
    assert turned.sum() == 3 * 255
    exif[0x0112] = 1
    assert decode(saved(Image.fromarray(values), "PNG", exif=exif), "x", None).shape == (2, 6, 3)


# ----------------------------------------------------------------------------------------------------------- not square
def stripes() -> bytes:
    """Twelve wide, six high: black, white, black thirds."""
    values = np.zeros((6, 12), np.uint8)
    values[:, 4:8] = 255
    return saved(Image.fromarray(values), "PNG")


def test_three_ways_to_a_square() -> None:
    squeezed, cropped, padded = (decode(stripes(), "x", 6, fit)[..., 0] for fit in ("squeeze", "crop", "pad"))
    assert squeezed[3].tolist() == pytest.approx([0, 0, 255, 255, 0, 0], abs=64)
    assert squeezed[0, 2] == squeezed[5, 2] > 128
    assert cropped.tolist() == [[0, 255, 255, 255, 255, 0]] * 6
    assert padded[0].tolist() == padded[5].tolist() == [0] * 6
    assert padded[2, 2] > 128
    assert padded[2, 0] == 0


def test_a_mask_goes_the_way_of_its_image() -> None:
    mask = np.zeros((6, 12), np.uint8)
    mask[:, 4:8] = 1
    assert Stack(6, "crop").mask(mask).tolist() == [[0, 1, 1, 1, 1, 0]] * 6
    assert Stack(6, "squeeze").mask(mask).tolist() == [[0, 0, 1, 1, 0, 0]] * 6
    padded = Stack(6, "pad").mask(mask)
    assert padded[0].sum() == padded[5].sum() == 0
    assert padded[2].tolist() == [0, 0, 1, 1, 0, 0]
    classes = (2 * (np.arange(35) % 5 > 2)).astype(np.uint8)[None].repeat(35, 0)
    assert set(Stack(16).mask(classes).flatten().tolist()) == {0, 2}  # no class between them
    with pytest.raises(FairsiloError, match="squeeze, crop, pad"):
        Stack(6, "stretch")


def test_the_rule_reaches_the_readers(make_folder: MakeFolder) -> None:
    root = make_folder()
    for file in root.rglob("*.png"):
        file.write_bytes(stripes())
    for fit, corner in (("squeeze", 0), ("crop", 0), ("pad", 0)):
        found = load(folder=str(root), size=6, fit=fit).domains["north"].samples.inputs
        assert torch.equal(found[0, 0], torch.from_numpy(decode(stripes(), "x", 6, fit)[..., 0].copy()))
        assert found[0, 0, 0, 0] == corner


# ------------------------------------------------------------------------------------------------------- damaged files
def test_a_text_named_png_is_named(make_folder: MakeFolder) -> None:
    root = make_folder()
    (root / "north" / "cat" / "0.png").write_text("this is a text")
    with pytest.raises(FairsiloError, match=r"0\.png is not an image"):
        read_folder(root)


def test_hidden_files_are_passed_over(make_folder: MakeFolder) -> None:
    root = make_folder()
    for place in (root, root / "north", root / "north" / "cat"):
        (place / ".DS_Store").write_bytes(b"x")
        (place / "Thumbs.db").write_bytes(b"x")
    (root / "north" / "cat" / "._0.png").write_bytes(b"x")
    assert len(read_folder(root).domains["north"]) == 4


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_truncated_archive_is_named(tmp_path: Path, share: float) -> None:
    write_packed(sample(), tmp_path)
    content = (tmp_path / "south.npz").read_bytes()
    (tmp_path / "south.npz").write_bytes(content[: int(share * len(content))])
    with pytest.raises(FairsiloError, match=r"south\.npz is not an intact \.npz archive"):
        load(packed=str(tmp_path))


# ------------------------------------------------------------------------------------------- classes and small domains
def domain(name: str, labels: list[int]) -> Domain:
    undecided = torch.full((len(labels),), UNDECIDED, dtype=torch.int8)
    return Domain(name, torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8), torch.tensor(labels), undecided)


def test_a_class_of_the_held_out_domain_alone_is_refused() -> None:
    data = Dataset("d", ("x", "y"), {"a": domain("a", [0] * 10), "b": domain("b", [0, 1] * 5)})
    with pytest.raises(FairsiloError, match="class 'y' is in the held-out domain 'b'"):
        federate(data, held_out="b")


def test_a_class_that_a_silo_lacks_is_said() -> None:
    data = Dataset("d", ("x", "y"), {name: domain(name, [0, 1] * 20) for name in "abc"})
    data.domains["a"] = domain("a", [0] * 40)
    assert "silo 'a' has no training sample of 'y'" in notes_of(federate(data, held_out="c"))


def test_one_image_in_a_domain_trains_and_is_said() -> None:
    data = Dataset("d", ("x", "y"), {"a": domain("a", [0, 1] * 20), "b": domain("b", [1]), "c": domain("c", [0, 1])})
    made = federate(data, held_out="c")
    assert [len(made["b"].split(name)) for name in ("train", "validation", "test")] == [1, 0, 0]
    assert any(
        note.startswith("silo 'b' has 1 training sample and none for validation and test") for note in notes_of(made)
    )


def test_labels_out_of_range_are_refused() -> None:
    data = Dataset("d", ("x", "y"), {"a": domain("a", [0, 2] * 9), "b": domain("b", [0, 1])})
    with pytest.raises(FairsiloError, match="silo 'a' has labels from 0 to 2, and there are 2 classes"):
        federate(data, held_out="b")


# --------------------------------------------------------------------------------------------------------- masks, texts
def test_own_images_with_masks(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for kind, level in (("images", 50), ("masks", 255)):
            (tmp_path / "own" / name / kind).mkdir(parents=True)
            picture(level).save(tmp_path / "own" / name / kind / "1.png")
    found = load(folder=str(tmp_path / "own"))
    assert (found.task, found.classes) == ("segment", ("background", "own"))
    assert found.domains["a"].targets.tolist() == [[[1] * 8] * 8]
    assert found.domains["a"].samples.inputs.unique().tolist() == [50]  # type: ignore[no-untyped-call]
    picture(255, width=7).save(tmp_path / "own" / "b" / "masks" / "1.png")
    with pytest.raises(FairsiloError, match=r"b.images.1\.png is 8 x 8 pixels, but its mask is 7 x 8"):
        load(folder=str(tmp_path / "own"))
    picture(255, width=7).save(tmp_path / "own" / "b" / "masks" / "2.png")
    (tmp_path / "own" / "b" / "masks" / "1.png").unlink()
    with pytest.raises(FairsiloError, match=r"1\.png has no mask"):
        load(folder=str(tmp_path / "own"))


def test_own_texts_by_role(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps({"a": "ab" * 100, "b": "cd" * 200, "short": "e" * 99}))
    found = load(folder=str(tmp_path / "mine.json"))
    assert (found.task, {name: len(one) for name, one in found.domains.items()}) == (
        "next-character", {"a": 120, "b": 320}
    )  # fmt: skip
    (tmp_path / "mine.json").write_text(json.dumps({"a": "a text", "b": ["no text"]}))
    with pytest.raises(FairsiloError, match=r"mine\.json must be a JSON object of role -> text"):
        load(folder=str(tmp_path / "mine.json"))


def test_columns_of_an_index_become_attributes(make_folder: MakeFolder) -> None:
    root = make_folder()
    files = sorted(root.rglob("*.png"))
    lines = [
        f"{file.relative_to(root)},{file.parent.name},{file.parts[-3]},{'fm'[i % 2]}," for i, file in enumerate(files)
    ]
    (root / "index.csv").write_text("\n".join(["path,label,domain,sex,scanner", *lines]))
    found = load(folder=str(root / "index.csv"))
    assert found.domains["north"].attributes == {"sex": ("f", "m", "f", "m"), "scanner": ("",) * 4}
    assert federate(dataclasses.replace(found), held_out="south")["north"].train.attributes["sex"]


# --------------------------------------------------------------------------------------------------------------- DICOM
def test_dicom_values_are_scaled_by_window_or_bits(tmp_path: Path) -> None:
    values = np.array([[0, 1023], [2048, 4095]])
    file = tmp_path / "x.dcm"
    write_dicom(file, values)
    assert decode(file, "x", None)[..., 0].tolist() == [[0, 64], [128, 255]]
    write_dicom(file, values, "MONOCHROME1")
    assert decode(file, "x", None)[..., 0].tolist() == [[255, 191], [127, 0]]
    write_dicom(file, values, WindowCenter=1000, WindowWidth=2000, RescaleIntercept=-1024, RescaleSlope=1)
    assert decode(file, "x", None)[..., 0].tolist() == [[0, 0], [131, 255]]
    write_dicom(file, values, WindowCenter=[2048, 9], WindowWidth=[4096, 9])
    assert decode(file, "x", None)[..., 0].tolist() == [[0, 64], [128, 255]]
    file.write_bytes(b"no header")
    with pytest.raises(FairsiloError, match=r"x\.dcm is no DICOM file"):
        decode(file, "x", None)


def test_a_folder_of_dicom_keeps_patients_together(tmp_path: Path) -> None:
    for site in ("a", "b"):
        for number in range(4):
            write_dicom(
                tmp_path / site / ("ill", "well")[number % 2] / f"{number}.dcm",
                np.full((4, 4), 16 * number),
                PatientID=f"P{number // 2}",
                PatientSex="FM"[number // 2],
            )
    found = load(folder=str(tmp_path)).domains["a"]
    assert found.group is not None
    assert found.group.tolist() == [0, 1, 0, 1]
    assert found.attributes == {"sex": ("F", "M", "F", "M")}
    alone = read_newcomer(str(tmp_path / "a"), ("well", "ill"), None)["a"]  # as a site reads its own folder
    assert alone.group is not None
    assert (alone.group.tolist(), alone.names, alone.attributes) == (
        found.group.tolist(),
        found.names,
        found.attributes,
    )


# -------------------------------------------------------------------------------------------------------- Hub's parquet
def write_parquet(file: Path, rows: list[tuple[int, object, object]], names: list[str] | None = None) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table(
        {
            "image": [{"bytes": saved(picture(level), "PNG"), "path": None} for level, _, _ in rows],
            "label": [label for _, label, _ in rows],
            "domain": [one for _, _, one in rows],
        }
    )
    if names:
        features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, file)


def test_parquet_of_the_hub(tmp_path: Path) -> None:
    names = ["dog", "elephant"]
    root = tmp_path / "pacs"
    write_parquet(root / "data" / "train-00000-of-00002.parquet", [(10, 1, "photo"), (20, 0, "sketch")], names)
    write_parquet(root / "data" / "train-00001-of-00002.parquet", [(30, 0, "photo")], names)
    found = load(name="pacs", root=str(tmp_path))
    assert found.classes == ("dog", "elephant")
    assert found.domains["photo"].targets.tolist() == [1, 0]
    assert found.domains["photo"].samples.inputs[:, 0, 0, 0].tolist() == [10, 30]
    assert found.domains["photo"].split.tolist() == [UNDECIDED] * 2
    write_parquet(root / "data" / "test-00000-of-00001.parquet", [(40, 1, "photo")], names)
    assert load(name="pacs", root=str(tmp_path)).domains["photo"].split.tolist() == [0, 0, 2]
    write_parquet(root / "data" / "test-00000-of-00001.parquet", [(40, 2, "photo")], names)
    with pytest.raises(FairsiloError, match=r"row 0 of .*test-00000-of-00001\.parquet has label 2"):
        load(name="pacs", root=str(tmp_path))
    (root / "data" / "test-00000-of-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(FairsiloError, match=r"test-00000-of-00001\.parquet is no intact parquet"):
        load(name="pacs", root=str(tmp_path))


def test_parquet_with_classes_as_texts(tmp_path: Path) -> None:
    write_parquet(tmp_path / "pacs" / "all.parquet", [(1, "zebra", "b"), (2, "ant", "a"), (3, "ant", "b")])
    found = load(name="pacs", root=str(tmp_path))
    assert (found.classes, found.domains["b"].targets.tolist()) == (("ant", "zebra"), [1, 0])


def test_the_hub_is_asked_only_where_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fairsilo.data.preparing import prepare

    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(FairsiloError, match=r"needs the package datasets: pip install 'fairsilo\[hub\]'"):
        prepare("pacs", "hub:owner/pacs", str(tmp_path), 8, "squeeze")
