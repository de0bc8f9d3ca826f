"""DomainNet cut to ten classes, as FedBN has it."""

from __future__ import annotations

from pathlib import Path

from fairsilo.data.about import About, Layout, has_folders, on_use, packed
from fairsilo.data.datasets.domainnet import CITATION, DOMAINS, LICENCE, NAMES, OBTAIN

CLASSES = ("bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale", "windmill", "wine_glass", "zebra")


def _has_pickles(folder: Path) -> bool:
    return any((folder / f"{name}_train.pkl").is_file() for name in NAMES)


ABOUT = About(
    title="DomainNet, 10 classes",
    shows="ten classes of DomainNet in its six styles",
    domains=dict.fromkeys(NAMES, 0),
    classes=CLASSES,
    licence=LICENCE,
    size="18 GB for all of DomainNet, of which these classes are a thirtieth",
    citation=f"{CITATION}; the cut: X. Li, M. Jiang, X. Zhang, M. Kamp, Q. Dou: FedBN, ICLR 2021",
    obtain=f"{OBTAIN} FedBN's repository links lists (clipart_train.pkl, ...) that name training and test images.",
    places=("DomainNet", "domain_net", "domainnet"),
    layouts=(
        Layout(
            "FedBN's lists (DomainNet/clipart_train.pkl, clipart_test.pkl) beside the images",
            _has_pickles,
            on_use("layouts:path_pickles", domains=NAMES, classes=CLASSES),
        ),
        Layout(
            "DomainBed's folders (domain_net/clipart/zebra/*.jpg; also clip, info, ...)",
            has_folders(*DOMAINS),
            on_use("layouts:domain_folders", domains=DOMAINS, classes=CLASSES),
        ),
        packed(*NAMES),
    ),
    protocols=(
        "FedBN: a silo per domain, its own training and test images",
        "FedGCR: client types in the order clipart, real, painting, sketch, quickdraw, infograph (data.domains, "
        "data.dif=5 or 10)",
    ),
)
