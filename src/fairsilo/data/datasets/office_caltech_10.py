"""Office-Caltech-10: ten things in shop pictures, web photographs and two cameras."""

from __future__ import annotations

from pathlib import Path

from fairsilo.data.about import About, Layout, has_folders, on_use, packed

DOMAINS = ("amazon", "caltech", "dslr", "webcam")
CLASSES = (
    "back_pack",
    "bike",
    "calculator",
    "headphones",
    "keyboard",
    "laptop_computer",
    "monitor",
    "mouse",
    "mug",
    "projector",
)


def _has_pickles(folder: Path) -> bool:
    return any((folder / f"{name}_train.pkl").is_file() for name in DOMAINS)


ABOUT = About(
    title="Office-Caltech-10",
    shows="ten things in pictures of a shop, of the web, of a good camera and of a webcam",
    domains={"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295},
    classes=CLASSES,
    licence="for research",
    size="240 MB",
    citation=(
        "B. Gong, Y. Shi, F. Sha, K. Grauman: Geodesic Flow Kernel for Unsupervised Domain Adaptation, CVPR 2012"
    ),
    obtain="FedBN's repository links it as office_caltech_10.zip, with images and lists of training and test images.",
    places=("office_caltech_10", "office_caltech", "Office_Caltech_10", "OfficeCaltech10", "office-caltech-10"),
    layouts=(
        Layout(
            "FedBN's lists (office_caltech_10/amazon_train.pkl, amazon_test.pkl) beside the images",
            _has_pickles,
            on_use("layouts:path_pickles", domains=DOMAINS, classes=CLASSES),
        ),
        Layout(
            "folders (office_caltech_10/amazon/back_pack/*.jpg)",
            has_folders("amazon", "caltech|caltech10", "dslr", "webcam"),
            on_use("layouts:domain_folders", domains=("amazon", "caltech|caltech10", "dslr", "webcam")),
        ),
        packed(*DOMAINS),
    ),
    protocols=(
        "FedHEAL: 20 silos, five of each domain, a tenth of its training images each, none held out "
        "(data.protocol=fedheal-office); the last two of every ten images, in the order of their names, are tested on",
        "FedBN: a silo per domain, its own training and test images",
    ),
    sha256={
        "amazon.npz": "aa7704b186ea6f3403d8c4fef1fb3cf8ae1807b1a0231f64a621c0d1db9604dd",
        "caltech.npz": "980f852e4568cf4990ad99507fa80da2e564e873d513905a0d5ed3b928d23315",
        "dslr.npz": "f621200c496e26f8c0159f414c332e1dfb6a3f73bb20e248c70097268d1138d4",
        "webcam.npz": "ec463d6517136b4b2e6f42d74391c5ef25fadb98122754b89ac7696d014110c1",
    },
)
