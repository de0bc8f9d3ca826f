"""Lung fields in chest X-rays of three collections."""

from __future__ import annotations

from pathlib import Path

from fairsilo.data.about import About, Layout, on_use, packed

DOMAINS = {"montgomery": 138, "shenzhen": 566, "jsrt": 247}


def _has_collections(folder: Path) -> bool:
    return (folder / "MontgomerySet").is_dir() or (folder / "ChinaSet_AllFiles").is_dir()


def _has_masks(folder: Path) -> bool:
    return any((folder / name / "images").is_dir() and (folder / name / "masks").is_dir() for name in DOMAINS)


ABOUT = About(
    title="Lung fields by site",
    shows="both lungs outlined in chest X-rays of Montgomery, Shenzhen and the JSRT",
    domains=DOMAINS,
    classes=("background", "lung"),
    licence="for research; Montgomery and Shenzhen by the U.S. National Library of Medicine",
    size="4 GB",
    citation=(
        "S. Jaeger and others: Two public chest X-ray datasets for computer-aided screening of pulmonary diseases, "
        "2014; J. Shiraishi and others (JSRT), 2000; B. van Ginneken and others (masks of JSRT), 2006"
    ),
    obtain=(
        "Montgomery and Shenzhen from the U.S. National Library of Medicine (MontgomerySet, ChinaSet_AllFiles with "
        "`mask`), JSRT from its society, as lung/jsrt/images/*.png and lung/jsrt/masks/*.png."
    ),
    places=("lung", "lungs", "chest"),
    layouts=(
        Layout(
            "the collections' own folders (MontgomerySet/CXR_png, ManualMask; ChinaSet_AllFiles/CXR_png, mask)",
            _has_collections,
            on_use("sites:lungs", domains=tuple(DOMAINS)),
        ),
        Layout(
            "images and masks of equal names (montgomery/images/*.png, montgomery/masks/*.png)",
            _has_masks,
            on_use("layouts:mask_folders", domains=tuple(DOMAINS), inside="lung"),
        ),
        packed(*DOMAINS),
    ),
    protocols=("a stand-in for multi-site segmentation: no paper of the catalogue uses it",),
    sha256={
        "jsrt.npz": "399d63eb6fed4079c33039cc38fd5aacab6ed446e6230fc423c97cdc0e401164",
        "montgomery.npz": "5040cff080a53650f25b24d95e806ab095d01e691e0ff6ff10b2e2a18dd01726",
        "shenzhen.npz": "2836e62d4bfb6f3f0bc25f79783531ba6c9cfc4a3698d0b72ed51757ea442f4e",
    },
    task="segment",
)
