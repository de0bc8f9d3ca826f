"""Retinal vessels in photographs of three collections."""

from __future__ import annotations

from pathlib import Path

from fairsilo.data.about import About, Layout, on_use, packed

DOMAINS = {"drive": 40, "stare": 20, "chasedb1": 28}


def _has_collections(folder: Path) -> bool:
    return any((folder / name).is_dir() for name in ("DRIVE", "STARE", "CHASE_DB1", "CHASEDB1"))


def _has_masks(folder: Path) -> bool:
    return any((folder / name / "images").is_dir() and (folder / name / "masks").is_dir() for name in DOMAINS)


ABOUT = About(
    title="Retinal vessels by site",
    shows="vessels outlined in photographs of the retina: DRIVE, STARE and CHASE-DB1",
    domains=DOMAINS,
    classes=("background", "vessel"),
    licence="for research",
    size="200 MB",
    citation=(
        "DRIVE: J. Staal and others 2004; STARE: A. Hoover, V. Kouznetsova, M. Goldbaum 2000; CHASE-DB1: M. Fraz and "
        "others 2012"
    ),
    obtain=(
        "DRIVE from drive.grand-challenge.org, STARE from cecas.clemson.edu/~ahoover/stare, CHASE-DB1 from Kingston "
        "University; unpacked as vessel/DRIVE, vessel/STARE and vessel/CHASE_DB1."
    ),
    places=("vessel", "vessels", "retina"),
    layouts=(
        Layout(
            "the collections' own folders (DRIVE/training/images, 1st_manual; STARE/*.ppm, *.ah.ppm; "
            "CHASE_DB1/Image_01L.jpg, Image_01L_1stHO.png)",
            _has_collections,
            on_use("sites:vessels"),
        ),
        Layout(
            "images and masks of equal names (drive/images/*.png, drive/masks/*.png)",
            _has_masks,
            on_use("layouts:mask_folders", domains=tuple(DOMAINS), inside="vessel"),
        ),
        packed(*DOMAINS),
    ),
    protocols=("a stand-in for multi-site segmentation: no paper of the catalogue uses it",),
    sha256={
        "chasedb1.npz": "21903245772b774dd30b5bbd31801ae6a02e28817b287731ee0051fe61134f83",
        "drive.npz": "98ceff4dc8bff3af9d6987611e470c11026c4dee0760534ca648d7922ab5fa7a",
        "stare.npz": "3034c3cf8b1fdc2607553d9618706ef4fca724d4dcca0ecb62760178b7b7050a",
    },
    task="segment",
)
