"""Digits: the four data sets of Digit-Five that FedHEAL uses."""

from __future__ import annotations

from dataclasses import replace

from fairsilo.data.about import packed
from fairsilo.data.datasets.digit_five import ABOUT as FIVE
from fairsilo.data.datasets.digit_five import STAND_INS, pickles

DOMAINS = ("mnist", "usps", "svhn", "syn")

ABOUT = replace(
    FIVE,
    title="Digits",
    shows="ten digits in four data sets: MNIST, USPS, SVHN and SYN",
    domains=dict.fromkeys(DOMAINS, 0),
    layouts=(pickles(*DOMAINS), packed(*DOMAINS, stand_ins=tuple(STAND_INS))),
    protocols=(
        "FedHEAL: 20 silos, five of each domain as in its code, a hundredth of the domain's training images each, none "
        "held out (data.protocol=fedheal-digits)",
    ),
)
