"""DomainNet: 345 classes in six styles, 586,575 images."""

from __future__ import annotations

from fairsilo.data.about import About, Layout, has_folders, on_use, packed

DOMAINS = ("clipart|clip", "infograph|info", "painting|paint", "quickdraw|quick", "real", "sketch")
NAMES = tuple(name.split("|")[0] for name in DOMAINS)
CITATION = (
    "X. Peng, Q. Bai, X. Xia, Z. Huang, K. Saenko, B. Wang: Moment Matching for Multi-Source Domain Adaptation, "
    "ICCV 2019"
)
LICENCE = "for non-commercial research and education (fair use)"
OBTAIN = "From ai.bu.edu/M3SDA (cleaned version), or by DomainBed's download script; keep its six folders."

ABOUT = About(
    title="DomainNet",
    shows="345 classes as clipart, infographics, paintings, quick drawings, photographs and sketches",
    domains={
        "clipart": 48129,
        "infograph": 51605,
        "painting": 72266,
        "quickdraw": 172500,
        "real": 172947,
        "sketch": 69128,
    },
    classes=("The_Eiffel_Tower", "The_Great_Wall_of_China", "aircraft_carrier", "...", "zigzag"),
    licence=LICENCE,
    size="18 GB; prepare it, since it does not fit into memory",
    citation=CITATION,
    obtain=OBTAIN,
    places=("domain_net", "DomainNet", "domainnet"),
    layouts=(
        Layout(
            "DomainBed's folders (domain_net/clipart/zebra/*.jpg; also clip, info, ...)",
            has_folders(*DOMAINS),
            on_use("layouts:domain_folders", domains=DOMAINS),
        ),
        packed(*NAMES),
    ),
    protocols=(
        "FedAG: clipart, painting and real train; infograph, quickdraw and sketch are held out "
        "(held_out=infograph+quickdraw+sketch)",
        "DomainBed: 80 % of each domain to train, 20 % to test (data.test=0.2)",
    ),
)
