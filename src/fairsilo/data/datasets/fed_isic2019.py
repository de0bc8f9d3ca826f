"""Fed-ISIC2019: skin lesions of eight kinds in dermoscopy of six centres."""

from __future__ import annotations

from fairsilo.data.about import About, Layout, on_use, packed
from fairsilo.data.datasets.ham10000 import has_table

DOMAINS = {
    "center_0": 12413,
    "center_1": 3954,
    "center_2": 3363,
    "center_3": 2259,
    "center_4": 819,
    "center_5": 439,
}
CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
TABLES = ("train_test_split", "train_test_split.csv", "train_test_folds.csv")
IMAGES = ("ISIC_2019_Training_Input_preprocessed", "ISIC_2019_Training_Input")

ABOUT = About(
    title="Fed-ISIC2019",
    shows="skin lesions of eight kinds, photographed through dermoscopes at six centres",
    domains=DOMAINS,
    classes=CLASSES,
    licence="CC BY-NC 4.0",
    size="9 GB, 1.5 GB preprocessed",
    citation=(
        "J. Ogier du Terrail and others: FLamby, NeurIPS 2022 (data sets and benchmarks); images: P. Tschandl and "
        "others 2018, N. C. F. Codella and others 2017, M. Combalia and others 2019"
    ),
    obtain=(
        "FLamby's scripts (flamby/datasets/fed_isic2019) download and preprocess it: the folder with "
        "ISIC_2019_Training_Input_preprocessed and the table train_test_split."
    ),
    places=("fed_isic2019", "fed_isic2019/ISIC_2019", "ISIC_2019", "isic2019"),
    layouts=(
        Layout(
            "FLamby's table (train_test_split) and images (ISIC_2019_Training_Input_preprocessed/*.jpg)",
            has_table(TABLES, IMAGES),
            on_use("dermoscopy:isic", tables=TABLES, images=IMAGES, domains=tuple(DOMAINS), classes=CLASSES),
        ),
        packed(*DOMAINS),
    ),
    protocols=("GRACE: FLamby's training and test images, balanced accuracy, each centre held out in turn",),
    metric="balanced-accuracy",
)
