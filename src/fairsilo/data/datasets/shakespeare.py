"""Shakespeare: the next character in the lines of a role, as LEAF cuts the plays."""

from __future__ import annotations

from pathlib import Path

from fairsilo.data.about import About, Layout, on_use

TEXTS = ("roles.json.gz", "roles.json", "top31.json.gz", "top31.json")  # of all roles before the largest alone


def _has_leaf(folder: Path) -> bool:
    return any(any((folder / place).glob("*.json")) for place in ("train", "all_data", "data/train", "data/all_data"))


def _has_texts(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TEXTS)


ABOUT = About(
    title="Shakespeare (LEAF)",
    shows="the next character after eighty, in the lines of a speaking role; a role is a domain and a silo",
    domains={"a role each": 0},
    classes=("the 80 characters of LEAF's vocabulary",),
    licence="public domain",
    size="5 MB",
    citation="S. Caldas and others: LEAF: A Benchmark for Federated Settings, 2018; T. Li and others: q-FFL, ICLR 2020",
    obtain=(
        "LEAF's script (leaf/data/shakespeare): preprocess.sh -s niid --sf 0.05 -k 64 -tf 0.8 -t sample; its folder "
        "data, with train and test. Or a JSON file of role -> text."
    ),
    places=("shakespeare", "leaf/data/shakespeare", "shakespeare/data"),
    layouts=(
        Layout(
            "LEAF's JSON (data/train/*.json, data/test/*.json, or data/all_data/*.json)",
            _has_leaf,
            on_use("plays:leaf"),
        ),
        Layout("a JSON file of role -> text (roles.json.gz, top31.json.gz)", _has_texts, on_use("plays:texts")),
    ),
    protocols=(
        "LEAF and q-FFL: 31 roles drawn by data.seed, none held out, 80 % to train, 10 % for validation, 10 % to test "
        "(data.protocol=leaf); positions are drawn at random, so windows of training and test overlap, as theirs do",
    ),
    usual="data.protocol=leaf",
    sha256={
        "top31.json.gz": "8d1c3855ae31f3272f141fa49e3a6e1236740412fc2b87c06e794a1bf84275ba",
        "roles.json.gz": "2984a835fa3ede4a5f01b7986710d9ee2c02ab1c5f5ea9abbf561b4f6fdd4ecc",
    },
    task="next-character",
)
