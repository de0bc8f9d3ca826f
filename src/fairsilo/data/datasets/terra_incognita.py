"""TerraIncognita: animals before camera traps at four places."""

from __future__ import annotations

from fairsilo.data.about import About, Layout, has_folders, on_use, packed

DOMAINS = ("location_100|L100", "location_38|L38", "location_43|L43", "location_46|L46")
NAMES = tuple(name.split("|")[0] for name in DOMAINS)

ABOUT = About(
    title="TerraIncognita",
    shows="wild animals before camera traps at four places",
    domains={"location_100": 4741, "location_38": 9736, "location_43": 3970, "location_46": 5883},
    classes=(
        "bird",
        "bobcat",
        "cat",
        "coyote",
        "dog",
        "empty",
        "opossum",
        "rabbit",
        "raccoon",
        "squirrel",
    ),
    licence="Community Data License Agreement, permissive",
    size="6 GB",
    citation="S. Beery, G. Van Horn, P. Perona: Recognition in Terra Incognita, ECCV 2018",
    obtain=(
        "DomainBed's download script cuts it from Caltech Camera Traps (`python -m domainbed.scripts.download`, "
        "terra_incognita); keep its folder."
    ),
    places=("terra_incognita", "TerraIncognita"),
    layouts=(
        Layout(
            "DomainBed's folders (terra_incognita/location_38/bird/*.jpg)",
            has_folders(*DOMAINS),
            on_use("layouts:domain_folders", domains=DOMAINS),
        ),
        packed(*NAMES),
    ),
    protocols=(
        "GA: 80 % of each domain to train, 20 % to test (data.test=0.2), each domain held out in turn",
        "DomainBed: the same",
    ),
)
