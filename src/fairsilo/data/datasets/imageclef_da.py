"""ImageCLEF-DA: twelve classes that four data sets share, fifty images each."""

from __future__ import annotations

from pathlib import Path

from fairsilo.data.about import About, Layout, has_folders, on_use, packed

CLASSES = (
    "aeroplane",
    "bike",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "dog",
    "horse",
    "monitor",
    "motorbike",
    "people",
)
LISTS = {name: f"list/{name[0]}List.txt" for name in ("bing", "caltech", "imagenet", "pascal")}
DOMAINS = ("bing|b", "caltech|c", "imagenet|i", "pascal|p")


def _has_lists(folder: Path) -> bool:
    return sum((folder / place).is_file() for place in LISTS.values()) >= 2


ABOUT = About(
    title="ImageCLEF-DA",
    shows="twelve classes in photographs of Bing, Caltech-256, ImageNet and Pascal VOC, fifty each",
    domains=dict.fromkeys(LISTS, 600),
    classes=CLASSES,
    licence="for research",
    size="70 MB",
    citation=(
        "B. Caputo and others: ImageCLEF 2014: Overview and Analysis of the Results, CLEF 2014; the cut: M. Long, H. "
        "Zhu, J. Wang, M. I. Jordan: Deep Transfer Learning with Joint Adaptation Networks, ICML 2017"
    ),
    obtain=(
        "From imageclef.org/2014/adaptation, or with the repositories of transfer-learning papers; the folders b, c, i "
        "and p of images and list/bList.txt to pList.txt."
    ),
    places=("image_CLEF", "ImageCLEF", "imageCLEF", "imageclef_da", "imageclef"),
    layouts=(
        Layout(
            "lists (list/bList.txt, with a path and a class number a line) beside the images",
            _has_lists,
            on_use("layouts:listed", lists=LISTS, classes=CLASSES),
        ),
        Layout(
            "folders (bing/aeroplane/*.jpg, or b/aeroplane/*.jpg)",
            has_folders(*DOMAINS),
            on_use("layouts:domain_folders", domains=DOMAINS, classes=CLASSES),
        ),
        packed(*LISTS),
    ),
    protocols=("FedAG: Pascal is held out (held_out=pascal)",),
)
