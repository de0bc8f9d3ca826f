"""PACS: photographs, art paintings, cartoons and sketches of seven things."""

from __future__ import annotations

from fairsilo.data.about import About, Layout, has_folders, on_use, packed

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
# the official lists: those for testing name whole domains, so that what is trained or validated on comes first
KFOLD = {"_train_kfold.txt": "train", "_crossval_kfold.txt": "validation", "_test_kfold.txt": "test"}

ABOUT = About(
    title="PACS",
    shows="seven things as photographs, paintings, cartoons and sketches",
    domains={"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929},
    classes=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    licence="no licence stated; for research",
    size="170 MB",
    citation="D. Li, Y. Yang, Y.-Z. Song, T. Hospedales: Deeper, Broader and Artier Domain Generalization, ICCV 2017",
    obtain="DomainBed's script `python -m domainbed.scripts.download` fetches it; keep its folder PACS.",
    places=("PACS", "pacs", "PACS/kfold", "kfold"),
    layouts=(
        Layout(
            "DomainBed's folders (PACS/photo/dog/*.jpg)",
            has_folders(*DOMAINS),
            on_use("layouts:domain_folders", domains=DOMAINS, lists=KFOLD),
        ),
        packed(*DOMAINS),
    ),
    protocols=(
        "the official split: where its lists (photo_train_kfold.txt, photo_crossval_kfold.txt, photo_test_kfold.txt) "
        "lie beside the folders, in splits/ or in 'Train val splits and h5py files pre-read'/, training and validation "
        "follow them. Their test lists name whole domains, for the one held out; the silos have no test images of "
        "their own then. data.split=random does without the lists",
        "DomainBed: 80 % of each domain to train, 20 % to test (data.test=0.2), each domain held out in turn",
        "GA: three domains train with equal weights, the fourth is held out (train.weighting=uniform)",
        "FedGCR: client types in the order photo, art_painting, cartoon, sketch (data.domains, data.dif=5 or 10)",
    ),
    sha256={
        "art_painting.npz": "b724bc91ecccab6ad81b39fb59ae5f9c406fcdb0169f013529ee138b837233a8",
        "cartoon.npz": "c806122daccee952d2b0f1bdfc73ab82f3cbb4ca6b15362900a4290a034a65b7",
        "photo.npz": "ed3b366dfa691d07577ca5a654c138c8b3a1270b5dacc2e37ec767f927381d8f",
        "sketch.npz": "713410dc7a8b9c167b6929032471a1b8ebb72853c828acf29dcf7fea68f7c9a8",
    },
)
