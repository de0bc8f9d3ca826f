"""Public data sets: each form that people have is read, and what is not found is said."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import pickle
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import picture

from fairsilo.config import experiment
from fairsilo.core.samples import SiloData, Split
from fairsilo.data import all_datasets, datasets, load
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset
from fairsilo.data.dermoscopy import age_group
from fairsilo.data.federation import Federation, federate
from fairsilo.data.packed import write_packed
from fairsilo.data.prepared import read_prepared, write_prepared
from fairsilo.data.text import LENGTH, VOCABULARY
from fairsilo.errors import FairsiloError
from fairsilo.runs import compare
from fairsilo.runs.setup import Objects, evaluate_of, federation_of
from fairsilo.tasks.classify import Classify
from fairsilo.tasks.registry import TASKS

SHARED = Path(__file__).parents[3] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")


def save(file: Path, level: int, width: int = 8, height: int = 8) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    picture(level, width, height).save(file)


def levels(dataset: Dataset, domain: str) -> list[int]:
    """The grey level of every image, in order."""
    return dataset.domains[domain].samples.inputs[:, 0, 0, 0].tolist()


# --------------------------------------------------------------------------------------------------------- the registry
@pytest.mark.parametrize("name", datasets.names())
def test_every_data_set_is_described(name: str) -> None:
    facts = datasets.about(name)
    for text in (facts.title, facts.shows, facts.licence, facts.size, facts.citation, facts.obtain):
        assert text.strip() == text != ""
    assert facts.domains
    assert facts.classes
    assert facts.places
    assert facts.protocols
    assert facts.layouts
    assert all(len(digest) == 64 for digest in facts.sha256.values())
    assert all_datasets()[name] == facts.shows


def test_what_the_issue_names_is_there() -> None:
    assert set(datasets.names()) == {
        "digits", "digit-five", "office-caltech-10", "pacs", "vlcs", "office-home", "terra-incognita", "domainnet",
        "domainnet-10", "imageclef-da", "fed-isic2019", "ham10000", "fed-prostate", "lung", "vessel", "shakespeare",
    }  # fmt: skip


def test_listing_imports_nothing_heavy() -> None:
    import subprocess

    code = (
        "import sys; from fairsilo.data import all_datasets; all_datasets(); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'PIL', 'nibabel')))"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


def test_without_a_root_the_two_places_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRSILO_DATA", raising=False)
    with pytest.raises(FairsiloError, match=r"data\.root or the environment variable FAIRSILO_DATA.*neither is set"):
        load(name="pacs")


def test_what_is_missing_is_said_with_the_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRSILO_DATA", str(tmp_path))
    with pytest.raises(FairsiloError) as caught:
        load(name="pacs")
    for word in ("PACS is not in", str(tmp_path), "PACS, pacs", "DomainBed", "packed files", "fairsilo datasets pacs"):
        assert word in str(caught.value)


def test_data_root_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, level in (("a", 10), ("b", 90)):
        for domain in ("photo", "sketch"):
            save(tmp_path / place / "PACS" / domain / "dog" / "1.png", level)
    monkeypatch.setenv("FAIRSILO_DATA", str(tmp_path / "a"))
    assert levels(load(name="pacs"), "photo") == [10]
    assert levels(load(name="pacs", root=str(tmp_path / "b")), "photo") == [90]
    assert levels(load(name="pacs", root=str(tmp_path / "b" / "PACS")), "photo") == [90]


def test_what_papers_report_is_reported_unless_another_metric_is_named() -> None:
    split = Split(torch.zeros(6, 3, 8, 8, dtype=torch.uint8), torch.arange(6) % 3)
    roster = Federation("any", ("0", "1", "2"), [SiloData("a", "a", split, split, split)]).roster
    for name, metric in (("ham10000", "balanced-accuracy"), ("pacs", "accuracy"), ("lung", "accuracy")):
        assert evaluate_of(experiment({"method": "fedavg", "data": {"name": name}}), roster).metric == metric
    chosen = experiment({"method": "fedavg", "data": {"name": "ham10000"}, "evaluate": {"metric": "auroc"}})
    assert evaluate_of(chosen, roster).metric == "auroc"


def test_a_comparison_over_all_domains_finds_them_under_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRSILO_DATA", raising=False)
    for domain in ("photo", "sketch"):
        save(tmp_path / "PACS" / domain / "dog" / "1.png", 10)
    base = experiment({"method": "fedavg", "data": {"name": "pacs", "root": str(tmp_path)}})
    assert compare.domains_of(base, "all", None, Objects()) == ["photo", "sketch"]


# ------------------------------------------------------------------------------------------------------------- folders
def test_folders_come_before_packed_files(tmp_path: Path) -> None:
    for domain in ("photo", "sketch"):
        for label in ("dog", "horse"):
            save(tmp_path / "PACS" / domain / label / "1.png", 5 + len(label))
    found = load(name="pacs", root=str(tmp_path))
    assert (found.name, found.classes, list(found.domains)) == ("pacs", ("dog", "horse"), ["photo", "sketch"])
    assert found.domains["photo"].targets.tolist() == [0, 1]
    assert levels(found, "photo") == [8, 10]
    assert "DomainBed" in found.source["form"]
    write_packed(found, tmp_path / "PACS")
    assert "DomainBed" in load(name="pacs", root=str(tmp_path)).source["form"]
    (tmp_path / "only").mkdir()
    write_packed(found, tmp_path / "only" / "pacs")
    assert "packed" in load(name="pacs", root=str(tmp_path / "only")).source["form"]


def test_domains_are_found_under_both_of_their_names(tmp_path: Path) -> None:
    for domain in ("clip", "Real"):
        for label in ("zebra", "bird", "zigzag"):
            save(tmp_path / "domain_net" / domain / label / "1.png", 1)
    assert list(load(name="domainnet", root=str(tmp_path)).domains) == ["clipart", "real"]
    with pytest.raises(FairsiloError, match="no folder of the class 'feather'"):
        load(name="domainnet-10", root=str(tmp_path))
    for label in datasets.about("domainnet-10").classes:
        save(tmp_path / "domain_net" / "clip" / label / "2.png", 9)
    cut = load(name="domainnet-10", root=str(tmp_path))
    assert cut.classes == tuple(datasets.about("domainnet-10").classes)
    assert cut.domains["real"].targets.tolist() == [0, 9]


def test_lists_of_paths_and_numbers(tmp_path: Path) -> None:
    for domain, level in (("b", 20), ("p", 30)):
        save(tmp_path / "image_CLEF" / domain / "x.png", level)
        save(tmp_path / "image_CLEF" / domain / "y.png", level + 1)
        listing = tmp_path / "image_CLEF" / "list" / f"{domain}List.txt"
        listing.parent.mkdir(exist_ok=True)
        listing.write_text(f"{domain}/y.png 11\n{domain}/x.png 0\n\n")
    found = load(name="imageclef-da", root=str(tmp_path))
    assert list(found.domains) == ["bing", "pascal"]
    assert found.domains["pascal"].targets.tolist() == [11, 0]
    assert levels(found, "pascal") == [31, 30]
    for line, words in (("p/x.png 12", "class number below 12"), ("p/z.png 1", "names p/z.png"), ("", "no image")):
        listing.write_text(line)
        with pytest.raises(FairsiloError, match=words):
            load(name="imageclef-da", root=str(tmp_path))


# --------------------------------------------------------------------------------------------------- FedBN's pickles
def write_pickle(file: Path, content: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps(content))


def digits_of(count: int, first: int, colour: bool) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    shape = (count, 6, 6, 3) if colour else (count, 6, 6)
    return np.full(shape, first, np.uint8), np.arange(count).astype(np.float64)


@pytest.mark.parametrize("as_list", [False, True])
def test_fedbn_s_digits(tmp_path: Path, as_list: bool) -> None:
    for folder, colour in (("MNIST", False), ("SynthDigits", True)):
        root = tmp_path / "digit_dataset" / folder
        for part in (0, 1, 10):
            pair = digits_of(2, part, colour)
            write_pickle(root / "partitions" / f"train_part{part}.pkl", list(pair) if as_list else pair)
        write_pickle(root / "test.pkl", digits_of(3, 99, colour))
    found = load(name="digits", root=str(tmp_path))
    assert list(found.domains) == ["mnist", "syn"]
    for name, domain in found.domains.items():
        assert levels(found, name) == [0, 0, 1, 1, 10, 10, 99, 99, 99]
        assert domain.targets.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 2]
        assert domain.split.tolist() == [TRAIN] * 6 + [TEST] * 3
    write_pickle(tmp_path / "digit_dataset" / "MNIST" / "test.pkl", (np.zeros((1, 6, 6), np.uint8), np.array([10])))
    with pytest.raises(FairsiloError, match=r"test\.pkl has labels from 10 to 10"):
        load(name="digits", root=str(tmp_path))
    (tmp_path / "digit_dataset" / "MNIST" / "test.pkl").unlink()
    with pytest.raises(FairsiloError, match=r"MNIST has no test\.pkl"):
        load(name="digits", root=str(tmp_path))


class Trap:
    """Would make a folder when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"mkdir {self.place}",)


def test_a_pickle_that_wants_to_run_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    for place in ("MNIST", "USPS"):
        write_pickle(tmp_path / place / "train.pkl", (Trap(trap), [0]))
        write_pickle(tmp_path / place / "test.pkl", digits_of(1, 0, False))
    with pytest.raises(FairsiloError, match=r"train\.pkl is refused: it asks for (posix|nt)\.system"):
        load(name="digits", root=str(tmp_path))
    assert not trap.exists()
    pickle.loads((tmp_path / "MNIST" / "train.pkl").read_bytes())  # noqa: S301 - shows that the trap is one
    assert trap.exists()


def test_a_truncated_pickle_is_named(tmp_path: Path) -> None:
    for place in ("MNIST", "USPS"):
        write_pickle(tmp_path / place / "train.pkl", digits_of(4, 0, False))
        write_pickle(tmp_path / place / "test.pkl", digits_of(1, 0, False))
    file = tmp_path / "USPS" / "train.pkl"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(FairsiloError, match=r"USPS.train\.pkl is (damaged|refused)"):
        load(name="digits", root=str(tmp_path))
    write_pickle(file, ([1], [2], [3]))
    with pytest.raises(FairsiloError, match="3 entries"):
        load(name="digits", root=str(tmp_path))


def test_fedbn_s_lists_of_office_caltech(tmp_path: Path) -> None:
    root = tmp_path / "office_caltech_10"
    for domain, level in (("amazon", 40), ("dslr", 50)):
        for number, label in enumerate(("bike", "mug")):
            save(root / domain / label / "1.jpg", level + number)
        paths = np.array([f"office_caltech_10/{domain}/mug/1.jpg", f"office_caltech_10/{domain}/bike/1.jpg"], object)
        write_pickle(root / f"{domain}_train.pkl", (paths, np.array(["mug", "bike"], object)))
        write_pickle(root / f"{domain}_test.pkl", ([f"{domain}/mug/1.jpg"], ["mug"]))
    found = load(name="office-caltech-10", root=str(tmp_path))
    assert found.domains["dslr"].targets.tolist() == [8, 1, 8]
    assert levels(found, "dslr") == [51, 50, 51]
    assert found.domains["dslr"].split.tolist() == [TRAIN, TRAIN, TEST]
    write_pickle(root / "dslr_test.pkl", (["dslr/mug/7.jpg"], ["mug"]))
    with pytest.raises(FairsiloError, match=r"dslr_test\.pkl names dslr/mug/7\.jpg"):
        load(name="office-caltech-10", root=str(tmp_path))
    write_pickle(root / "dslr_test.pkl", (["dslr/mug/1.jpg"], ["cup"]))
    with pytest.raises(FairsiloError, match="class 'cup'"):
        load(name="office-caltech-10", root=str(tmp_path))


# ---------------------------------------------------------------------------------------------------------- dermoscopy
def test_flamby_s_table(tmp_path: Path) -> None:
    rows = ["image,target,center,fold,fold2"]
    for number in range(4):
        save(tmp_path / "fed_isic2019" / "ISIC_2019_Training_Input_preprocessed" / f"I{number}.jpg", 10 * number)
        rows.append(f"I{number},{7 - number},{5 * (number % 2)},{('train', 'test')[number // 2]},x")
    table = tmp_path / "fed_isic2019" / "train_test_split"
    table.write_text("\n".join(rows))
    found = load(name="fed-isic2019", root=str(tmp_path))
    assert list(found.domains) == ["center_0", "center_5"]
    assert found.domains["center_5"].targets.tolist() == [6, 4]
    assert found.domains["center_5"].split.tolist() == [TRAIN, TEST]
    assert found.classes[4] == "BKL"
    for old, new, words in (
        ("I3,4", "I3,8", "row 4 .* target '8'"),
        ("I3,", "I9,", "names the image I9"),
        ("fold,", "f,", "'fold'"),
    ):
        table.write_text("\n".join(rows).replace(old, new, 1))
        with pytest.raises(FairsiloError, match=words):
            load(name="fed-isic2019", root=str(tmp_path))


def test_ham10000_s_table_with_lesions_and_attributes(tmp_path: Path) -> None:
    root = tmp_path / "HAM10000"
    rows = ["lesion_id,image_id,dx,dx_type,age,sex,localization,dataset"]
    for number, (lesion, kind, site) in enumerate(
        [
            ("L1", "mel", "rosendahl"),
            ("L2", "nv", "vienna_dias"),
            ("L1", "mel", "rosendahl"),
            ("L3", "vasc", "rosendahl"),
        ]
    ):
        save(root / f"HAM10000_images_part_{1 + number % 2}" / f"I{number}.jpg", number)
        rows.append(
            f"{lesion},I{number},{kind},histo,{['44.0', '45', '', '80'][number]},{'fm'[number % 2]},back,{site}"
        )
    (root / "HAM10000_metadata.csv").write_text("\n".join(rows))
    domain = load(name="ham10000", root=str(tmp_path)).domains["rosendahl"]
    assert domain.targets.tolist() == [4, 4, 6]
    assert domain.group is not None
    assert domain.group.tolist() == [0, 0, 1]
    assert domain.attributes == {
        "sex": ("f", "f", "m"), "localization": ("back",) * 3, "age": ("30-44", "unknown", "75 and older")
    }  # fmt: skip
    assert [age_group(age) for age in ("0", "29", "30", "59", "60", "nan", "?")] == [
        "0-29", "0-29", "30-44", "45-59", "60-74", "unknown", "unknown"
    ]  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- masks
def mask(file: Path, box: tuple[int, int, int, int], size: int = 8) -> None:
    values = np.zeros((size, size), np.uint8)
    values[box[0] : box[1], box[2] : box[3]] = 255
    file.parent.mkdir(parents=True, exist_ok=True)
    from PIL import Image

    Image.fromarray(values).save(file)


def test_lungs_in_the_collections_own_folders(tmp_path: Path) -> None:
    root = tmp_path / "lung"
    save(root / "MontgomerySet" / "CXR_png" / "M1.png", 7)
    mask(root / "MontgomerySet" / "ManualMask" / "leftMask" / "M1.png", (0, 4, 0, 2))
    mask(root / "MontgomerySet" / "ManualMask" / "rightMask" / "M1.png", (0, 4, 6, 8))
    for name in ("C1", "C2"):
        save(root / "ChinaSet_AllFiles" / "CXR_png" / f"{name}.png", 8)
    mask(root / "ChinaSet_AllFiles" / "mask" / "C2_mask.png", (0, 1, 0, 1))
    found = load(name="lung", root=str(tmp_path))
    assert (found.task, found.classes) == ("segment", ("background", "lung"))
    assert found.domains["montgomery"].targets.sum().item() == 16
    assert found.domains["montgomery"].targets[0, 0].tolist() == [1, 1, 0, 0, 0, 0, 1, 1]
    assert len(found.domains["shenzhen"]) == 1
    mask(root / "ChinaSet_AllFiles" / "mask" / "C2_mask.png", (0, 1, 0, 1), size=6)
    with pytest.raises(FairsiloError, match=r"C2\.png is 8 x 8 pixels, but its mask is 6 x 6"):
        load(name="lung", root=str(tmp_path))


def test_vessels_in_the_collections_own_folders(tmp_path: Path) -> None:
    root = tmp_path / "vessel"
    save(root / "DRIVE" / "training" / "images" / "21_training.tif", 7)
    mask(root / "DRIVE" / "training" / "1st_manual" / "21_manual1.gif", (0, 2, 0, 2))
    save(root / "STARE" / "stare-images" / "im0001.ppm", 8)
    mask(root / "STARE" / "labels-ah" / "im0001.ah.ppm", (0, 3, 0, 3))
    for eye in "LR":
        save(root / "CHASE_DB1" / f"Image_01{eye}.jpg", 9)
        mask(root / "CHASE_DB1" / f"Image_01{eye}_1stHO.png", (0, 4, 0, 4))
    found = load(name="vessel", root=str(tmp_path))
    assert {name: domain.targets.sum().item() for name, domain in found.domains.items()} == {
        "drive": 4, "stare": 9, "chasedb1": 32
    }  # fmt: skip
    assert found.domains["chasedb1"].group is not None
    assert len(set(found.domains["chasedb1"].group.tolist())) == 1


def test_images_and_masks_of_equal_names(tmp_path: Path) -> None:
    for name in ("jsrt", "montgomery"):
        save(tmp_path / "lung" / name / "images" / "a.png", 5)
        mask(tmp_path / "lung" / name / "masks" / "a_mask.png", (0, 2, 0, 8))
    found = load(name="lung", root=str(tmp_path))
    assert found.domains["jsrt"].targets.sum().item() == 16
    save(tmp_path / "lung" / "jsrt" / "images" / "b.png", 5)
    with pytest.raises(FairsiloError, match=r"b\.png has no mask"):
        load(name="lung", root=str(tmp_path))


def volume(file: Path, values: np.ndarray) -> None:  # type: ignore[type-arg]
    nibabel = pytest.importorskip("nibabel")
    file.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), file)


def test_slices_of_prostates_by_patient(tmp_path: Path) -> None:
    scan = np.zeros((4, 6, 4), np.float32) + np.array([0, 30, 60, 90], np.float32)
    outline = np.zeros((4, 6, 4), np.uint8)
    outline[1, 2, [1, 3]] = 1
    for site in ("BIDMC", "RUNMC"):
        for case in ("Case00", "Case01"):
            volume(tmp_path / "prostate" / site / f"{case}.nii.gz", scan)
            volume(tmp_path / "prostate" / site / f"{case}_Segmentation.nii.gz", outline)
    found = load(name="fed-prostate", root=str(tmp_path))
    assert list(found.domains) == ["ISBI", "BIDMC"]
    domain = found.domains["BIDMC"]
    assert domain.group is not None
    assert domain.group.tolist() == [0, 0, 1, 1]
    inputs = domain.samples.inputs
    assert inputs.shape == (4, 3, 6, 4)
    # the slice before, the slice, the slice after; the last is its own successor
    assert inputs[0, :, 0, 0].tolist() == [0, 85, 170]
    assert inputs[1, :, 0, 0].tolist() == [170, 255, 255]
    assert domain.targets[0].nonzero().tolist() == [[2, 1]]
    volume(tmp_path / "prostate" / "BIDMC" / "Case01_Segmentation.nii.gz", outline[:, :, :2])
    with pytest.raises(FairsiloError, match=r"Case01\.nii\.gz is 4x6x4 and its mask .* is 4x6x2"):
        load(name="fed-prostate", root=str(tmp_path))
    (tmp_path / "prostate" / "BIDMC" / "Case01_Segmentation.nii.gz").write_bytes(b"no volume")
    with pytest.raises(FairsiloError, match=r"Case01_Segmentation\.nii\.gz is no intact NIfTI"):
        load(name="fed-prostate", root=str(tmp_path))


# ---------------------------------------------------------------------------------------------------------------- text
def leaf_file(file: Path, roles: dict[str, str], first: int = 0, last: int | None = None) -> None:
    data = {}
    for name, text in roles.items():
        places = range(len(text) - LENGTH)[first:last]
        data[name] = {"x": [text[i : i + LENGTH] for i in places], "y": [text[i + LENGTH] for i in places]}
    content = {"users": list(data), "num_samples": [len(one["x"]) for one in data.values()], "user_data": data}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


ROLES = {name: "".join(VOCABULARY[2 + (i * step) % 70] for i in range(200)) for name, step in (("HAM", 1), ("LEAR", 3))}


def test_leaf_s_train_and_test(tmp_path: Path) -> None:
    base = tmp_path / "shakespeare" / "data"
    leaf_file(base / "train" / "a.json", ROLES, 0, 100)
    leaf_file(base / "test" / "b.json", ROLES, 100)
    found = load(name="shakespeare", root=str(tmp_path))
    assert (found.task, found.classes) == ("next-character", tuple(VOCABULARY))
    domain = found.domains["LEAR"]
    assert domain.split.tolist() == [TRAIN] * 100 + [TEST] * 20
    inputs, targets = domain.samples.take([100])
    assert "".join(VOCABULARY[code] for code in inputs[0]) == ROLES["LEAR"][100 : 100 + LENGTH]
    assert VOCABULARY[targets[0]] == ROLES["LEAR"][100 + LENGTH]


def test_a_leaf_file_with_one_role_is_refused(tmp_path: Path) -> None:
    leaf_file(tmp_path / "all_data" / "a.json", {**ROLES, "LEAR": ROLES["LEAR"][: LENGTH + 64]})
    with pytest.raises(FairsiloError, match="only the role 'HAM' with more than 64 samples"):
        load(name="shakespeare", root=str(tmp_path))
    leaf_file(tmp_path / "all_data" / "a.json", {**ROLES, "LEAR": ROLES["LEAR"][: LENGTH + 65]})
    assert load(name="shakespeare", root=str(tmp_path)).domains["HAM"].split.unique().tolist() == [UNDECIDED]
    (tmp_path / "all_data" / "a.json").write_text('{"users": []}')
    with pytest.raises(FairsiloError, match=r"a\.json has no user_data"):
        load(name="shakespeare", root=str(tmp_path))
    (tmp_path / "all_data" / "a.json").write_text('{"user_data": {"A": {"x": ["short"], "y": ["a"]}}}')
    with pytest.raises(FairsiloError, match="sample 0 of role 'A'"):
        load(name="shakespeare", root=str(tmp_path))


def test_texts_by_role(tmp_path: Path) -> None:
    (tmp_path / "roles.json.gz").write_bytes(gzip.compress(json.dumps(ROLES).encode()))
    assert len(load(name="shakespeare", root=str(tmp_path)).domains["HAM"]) == 120
    (tmp_path / "roles.json.gz").write_bytes(gzip.compress(json.dumps(ROLES).encode())[:-9])
    with pytest.raises(FairsiloError, match=r"roles\.json\.gz is not intact JSON"):
        load(name="shakespeare", root=str(tmp_path))


def test_roles_become_silos_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "next-character", Classify)
    text = {name: one * 40 for name, one in ROLES.items()}
    (tmp_path / "roles.json").write_text(json.dumps(text))
    made = federate(load(name="shakespeare", root=str(tmp_path)), held_out="-", validation=1 / 9, test=0.1)
    assert made.names == ("HAM", "LEAR")
    count = 40 * 200 - LENGTH
    for silo in made.silos:
        parts = [silo.split(name) for name in ("train", "validation", "test")]
        assert sum(map(len, parts)) == count
        assert [len(part) / count for part in parts] == pytest.approx([0.8, 0.1, 0.1], abs=0.03)
        inputs, targets = parts[2].take([0])
        shown = "".join(VOCABULARY[code] for code in inputs[0]) + VOCABULARY[targets[0]]
        assert shown in text[silo.name]
    assert made.roster.shape == (LENGTH,)


# ------------------------------------------------------------------------------------- splits by lists and by order
OFFICIAL = "Train val splits and h5py files pre-read"


def kfold(folder: Path, domain: str, **lists: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, files in lists.items():
        lines = [f"{domain}/{file} {1 + file.startswith('elephant')}\n" for file in files]
        (folder / f"{domain}_{name}_kfold.txt").write_text("".join(lines))


def pacs(root: Path) -> Path:
    for domain in ("photo", "sketch"):
        for number in range(4):
            save(root / "PACS" / domain / ("dog" if number < 2 else "elephant") / f"{number}.png", number)
    return root / "PACS"


@pytest.mark.parametrize("place", [".", "splits", OFFICIAL, f"../{OFFICIAL}"])
def test_pacs_is_split_by_its_lists_wherever_they_lie(tmp_path: Path, place: str) -> None:
    folder = pacs(tmp_path)
    every = ["dog/0.png", "dog/1.png", "elephant/2.png", "elephant/3.png"]
    kfold(folder / place, "photo", train=[every[3], every[0]], crossval=[every[1]], test=every)
    found = load(name="pacs", root=str(tmp_path))
    assert found.domains["photo"].split.tolist() == [TRAIN, VALIDATION, TEST, TRAIN]
    assert found.domains["sketch"].split.tolist() == [UNDECIDED] * 4
    assert found.domains["photo"].names == tuple(every)


def test_the_official_lists_leave_silos_without_a_test_and_the_held_out_domain_whole(tmp_path: Path) -> None:
    folder = pacs(tmp_path)
    every = ["dog/0.png", "dog/1.png", "elephant/2.png", "elephant/3.png"]
    for domain in ("photo", "sketch"):
        kfold(folder, domain, train=every[1:], crossval=every[:1], test=every)
    found = load(name="pacs", root=str(tmp_path))
    made = federate(found, held_out="sketch")
    assert [len(made["photo"].split(name)) for name in ("train", "validation", "test")] == [3, 1, 0]
    assert len(made["sketch"].test) == 4
    assert made.settled == ("data.test", "data.validation")
    without = federate(found, held_out="sketch", split="random", test=0.5, validation=0)
    assert [len(without["photo"].split(name)) for name in ("train", "validation", "test")] == [2, 0, 2]


@pytest.mark.parametrize(
    ("listed", "sentence"),
    [(["dog/0.png"], "do not name photo/dog/1.png, which is there"), (["dog/9.png"], "name photo/dog/9.png")],
)
def test_lists_that_do_not_fit_the_folder_are_refused(tmp_path: Path, listed: list[str], sentence: str) -> None:
    folder = pacs(tmp_path)
    every = ["dog/0.png", "dog/1.png", "elephant/2.png", "elephant/3.png"]
    kfold(folder, "photo", train=listed if "9" not in listed[0] else [*every, *listed])
    with pytest.raises(FairsiloError, match=sentence):
        load(name="pacs", root=str(tmp_path))


def office(root: Path) -> None:
    """Thirteen images of a domain; names that sort otherwise as text than as paths: `back/` comes before `back-up/`."""
    for domain in ("amazon", "webcam"):
        for number in range(13):
            label = "back" if number < 7 else "back-up"
            save(root / "office_caltech_10" / domain / label / f"{number:02d}.png", number)


def test_fedheal_tests_the_last_two_of_every_ten_files(tmp_path: Path) -> None:
    office(tmp_path)
    data = {"name": "office-caltech-10", "root": str(tmp_path), "protocol": "fedheal-office"}
    made = federation_of(experiment({"data": {**data, "silos_per_domain": 2, "share": "0.5"}}))
    for domain in ("amazon", "webcam"):
        one, other = made[f"{domain}-1"], made[f"{domain}-2"]
        assert one.test.inputs[:, 0, 0, 0].tolist() == [8, 9]
        trained = [*one.train.inputs[:, 0, 0, 0].tolist(), *other.train.inputs[:, 0, 0, 0].tolist()]
        assert len(one.train) == 5  # int(0.5 * 11)
        assert set(trained) < set(range(13)) - {8, 9}
        assert len(set(trained)) == 10


def test_the_order_of_names_survives_packing_and_preparing(tmp_path: Path) -> None:
    office(tmp_path)
    found = load(name="office-caltech-10", root=str(tmp_path))
    shuffled = torch.randperm(13, generator=torch.Generator().manual_seed(0)).tolist()
    mixed = {}
    for name, domain in found.domains.items():
        assert domain.names is not None
        names = tuple(domain.names[index] for index in shuffled)
        inputs, targets = domain.samples.take(shuffled)
        mixed[name] = dataclasses.replace(domain, inputs=inputs, targets=targets, names=names)
    mixed_up = dataclasses.replace(found, domains=mixed)
    write_packed(mixed_up, tmp_path / "packed")
    write_prepared(mixed_up, tmp_path / "prepared")
    for again in (load(packed=str(tmp_path / "packed")), read_prepared(tmp_path / "prepared")):
        assert again.domains["amazon"].names == mixed["amazon"].names
        made = federate(again, held_out="-", split="order")
        assert sorted(made["amazon"].test.inputs[:, 0, 0, 0].tolist()) == [8, 9]


def test_what_cannot_be_split_in_order_is_refused(tmp_path: Path) -> None:
    office(tmp_path)
    found = load(name="office-caltech-10", root=str(tmp_path))
    with pytest.raises(FairsiloError, match=r"data\.test is 0\.25; with data\.split=order it counts in tenths"):
        federate(found, split="order", test=0.25)
    tied = dataclasses.replace(found.domains["amazon"], group=torch.arange(13) // 2)
    grouped = dataclasses.replace(found, domains={**found.domains, "amazon": tied})
    with pytest.raises(FairsiloError, match="some of domain 'amazon' belong together"):
        federate(grouped, split="order")
    assert federate(found, split="order").settled == ()
    assert federate(found, split="random").settled == ("data.split",)


# ------------------------------------------------------------------------------------------------------ what is at hand
@needs_shared
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lung", {"montgomery": 138, "shenzhen": 566, "jsrt": 247}),
        ("vessel", {"drive": 40, "stare": 20, "chasedb1": 28}),
        ("office-caltech-10", {"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}),
    ],
)
def test_shared_data_are_found_by_name(name: str, expected: dict[str, int]) -> None:
    found = load(name=name, root=str(SHARED), size=16)
    assert {domain: len(samples) for domain, samples in found.domains.items()} == expected
    assert list(found.domains) == list(expected)
    assert dict(datasets.about(name).domains) == expected


@needs_shared
def test_of_the_shared_roles_31_are_drawn_as_leaf_does() -> None:
    """From all of them: few have many samples, as the papers' have; the largest alone would be alike."""
    found = load(name="shakespeare", root=str(SHARED), domains=["31"])
    sizes = [len(role) for role in found.domains.values()]
    assert len(sizes) == 31
    assert statistics.median(sizes) < statistics.fmean(sizes) / 2
    assert load(name="shakespeare", root=str(SHARED), domains=["31"], seed=1).domains.keys() != found.domains.keys()
    inputs, _ = next(iter(found.domains.values())).samples.take(torch.arange(4))
    assert inputs.shape == (4, LENGTH)


@needs_shared
def test_fedheal_s_office_has_the_papers_sizes() -> None:
    data = {"name": "office-caltech-10", "root": str(SHARED), "size": 16, "protocol": "fedheal-office"}
    made = federation_of(experiment({"data": data}))
    expected = {"amazon": (76, 190), "caltech": (89, 224), "dslr": (12, 30), "webcam": (23, 58)}
    assert len(made.silos) == 20
    for silo in made.silos:
        assert (len(silo.train), len(silo.test)) == expected[silo.domain]
        assert not len(silo.validation)
