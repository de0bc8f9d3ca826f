"""HAM10000 by source: skin lesions of seven kinds at four sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fairsilo.data.about import About, Layout, on_use, packed

DOMAINS = {"rosendahl": 2259, "vidir_modern": 3363, "vidir_molemax": 3954, "vienna_dias": 439}
CLASSES = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
TABLES = ("HAM10000_metadata.csv", "HAM10000_metadata")
IMAGES = ("HAM10000_images_part_1", "HAM10000_images_part_2", "HAM10000_images", "images")


def has_table(tables: Sequence[str], images: Sequence[str]) -> Callable[[Path], bool]:
    """Whether a folder has one of the tables and one of the folders of images."""
    return lambda folder: (
        any((folder / one).is_file() for one in tables) and any((folder / one).is_dir() for one in images)
    )


ABOUT = About(
    title="HAM10000 by site",
    shows="skin lesions of seven kinds from four sources: four of Fed-ISIC2019's six centres",
    domains=DOMAINS,
    classes=CLASSES,
    licence="CC BY-NC 4.0",
    size="2.8 GB",
    citation=(
        "P. Tschandl, C. Rosendahl, H. Kittler: The HAM10000 dataset, a large collection of multi-source dermatoscopic "
        "images of common pigmented skin lesions, Scientific Data 5, 2018"
    ),
    obtain=(
        "From Harvard Dataverse (doi 10.7910/DVN/DBW86T): HAM10000_metadata and the two archives of images, unpacked "
        "beside it."
    ),
    places=("ham10000", "HAM10000", "dermoscopy"),
    layouts=(
        Layout(
            "the table (HAM10000_metadata.csv) and folders of images (HAM10000_images_part_1, ...)",
            has_table(TABLES, IMAGES),
            on_use("dermoscopy:ham", tables=TABLES, images=IMAGES, domains=tuple(DOMAINS), classes=CLASSES),
        ),
        packed(*DOMAINS),
    ),
    protocols=("all images of a lesion are in one split; balanced accuracy is the metric",),
    sha256={
        "rosendahl.npz": "04ed85fcdd680e6991e0d9d507c4ac4dadb799f14345833c443c35fbccdad45b",
        "vidir_modern.npz": "a2ae3c8c621789325e3af02ae9bf4bf96cd2f5b3368aa24e24b3c90a9ce8e524",
        "vidir_molemax.npz": "729da424c83bdb91ee8908d33e151d96dd57d312a84ec3753263394b8f7ad5ae",
        "vienna_dias.npz": "9bf4f62135372f96f4b0bb78ab820762a107bf93810fb722dbf63c2bef268c6a",
    },
    metric="balanced-accuracy",
)
