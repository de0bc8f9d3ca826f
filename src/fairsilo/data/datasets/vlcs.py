"""VLCS: five classes in the photographs of four older data sets."""

from __future__ import annotations

from fairsilo.data.about import About, Layout, has_folders, on_use, packed

DOMAINS = ("Caltech101", "LabelMe", "SUN09", "VOC2007")

ABOUT = About(
    title="VLCS",
    shows="five classes in photographs of four data sets that were collected differently",
    domains={"Caltech101": 1415, "LabelMe": 2656, "SUN09": 3282, "VOC2007": 3376},
    classes=("bird", "car", "chair", "dog", "person"),
    licence="no licence stated; for research",
    size="3.6 GB",
    citation=(
        "C. Fang, Y. Xu, D. N. Rockmore: Unbiased Metric Learning: On the Utilization of Multiple Datasets and Web "
        "Images for Softening Bias, ICCV 2013"
    ),
    obtain="DomainBed's script `python -m domainbed.scripts.download` fetches it; keep its folder VLCS.",
    places=("VLCS", "vlcs"),
    layouts=(
        Layout(
            "DomainBed's folders (VLCS/Caltech101/bird/*.jpg)",
            has_folders(*DOMAINS),
            on_use("layouts:domain_folders", domains=DOMAINS),
        ),
        packed(*DOMAINS),
    ),
    protocols=("DomainBed: 80 % of each domain to train, 20 % to test (data.test=0.2), each domain held out in turn",),
)
