"""Office-Home: sixty-five things of offices and homes in four styles."""

from __future__ import annotations

from fairsilo.data.about import About, Layout, has_folders, on_use, packed

DOMAINS = ("Art", "Clipart", "Product", "Real World|RealWorld|Real_World|Real")

ABOUT = About(
    title="Office-Home",
    shows="sixty-five things of offices and homes: art, clipart, products without background, photographs",
    domains={"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357},
    classes=("Alarm_Clock", "Backpack", "Batteries", "...", "Webcam"),
    licence="for non-commercial research and education",
    size="1.1 GB",
    citation=(
        "H. Venkateswara, J. Eusebio, S. Chakraborty, S. Panchanathan: Deep Hashing Network for Unsupervised Domain "
        "Adaptation, CVPR 2017"
    ),
    obtain="From hemanthdv.org/officeHomeDataset.html, or by DomainBed's download script; keep its four folders.",
    places=("office_home", "OfficeHome", "OfficeHomeDataset_10072016", "office-home"),
    layouts=(
        Layout(
            "DomainBed's folders (office_home/Art/Alarm_Clock/*.jpg)",
            has_folders(*DOMAINS),
            on_use("layouts:domain_folders", domains=DOMAINS),
        ),
        packed("Art", "Clipart", "Product", "Real World"),
    ),
    protocols=(
        "GA: 90 % of each domain to train, 10 % to test (data.test=0.1), each domain held out in turn",
        "DomainBed: 80 % and 20 % (data.test=0.2)",
        "FedAG: Clipart is held out",
    ),
)
