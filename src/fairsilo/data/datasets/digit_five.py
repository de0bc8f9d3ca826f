"""Digit-Five: ten digits in handwriting, post codes, house numbers, rendered type and on photographs."""

from __future__ import annotations

from fairsilo.data.about import About, Layout, has_folders, on_use, packed

# name -> FedBN's folder
FOLDERS = {
    "mnist": "MNIST",
    "usps": "USPS",
    "svhn": "SVHN",
    "syn": "SynthDigits|SYN|syn",
    "mnist_m": "MNIST_M|MNISTM|MNIST-M",
}
STAND_INS = {
    "synth_rendered": "rendered from fonts in the manner of SYN, which could not be had; its results are not SYN's"
}
CITATION = (
    "MNIST: Y. LeCun and others 1998; USPS: J. J. Hull 1994; SVHN: Y. Netzer and others 2011; SYN and MNIST-M: Y. "
    "Ganin, V. Lempitsky 2015; the cut: X. Li, M. Jiang, X. Zhang, M. Kamp, Q. Dou: FedBN, ICLR 2021"
)
OBTAIN = (
    "FedBN's repository links its cut (digit_dataset.zip): MNIST/partitions/train_part0.pkl to 9, MNIST/test.pkl, ..."
)
PLACES = ("digit_dataset", "digits", "digit_five", "Digit-Five")
SHA256 = {
    "mnist.npz": "ceeeaa89d32684532d8edfec9cd4ed82b041521949feaff98e962d91b9b7f0a2",
    "usps.npz": "10b3ad6807ca38a11125aa405716155cfa8954c3f4c46df5b377329950e996ad",
    "svhn.npz": "476b0f65e1c4efd9a043c169383f352f425861be7a57189fbf020f528997fcf9",
    "mnist_m.npz": "073bbe1d641c115d3f7e8730b834dfafbe3b405d41656d11da48e3b34d163c49",
    "synth_rendered.npz": "a921721ec9730cf24269a8475cd573009e02b8fc4cab4d6b785030be687632da",
}


def pickles(*names: str) -> Layout:
    """FedBN's cut of these domains."""
    folders = {name: FOLDERS[name] for name in names}
    return Layout(
        "FedBN's pickles (MNIST/partitions/train_part*.pkl and MNIST/test.pkl), read without running them",
        has_folders(*folders.values()),
        on_use("layouts:digit_pickles", domains=folders),
    )


ABOUT = About(
    title="Digit-Five",
    shows="ten digits in five data sets: MNIST, USPS, SVHN, SYN and MNIST-M",
    domains=dict.fromkeys(FOLDERS, 0),
    classes=tuple("0123456789"),
    licence="MNIST: CC BY-SA 3.0; the others for non-commercial research",
    size="70 MB in FedBN's cut",
    citation=CITATION,
    obtain=OBTAIN,
    places=PLACES,
    layouts=(pickles(*FOLDERS), packed(*FOLDERS, stand_ins=tuple(STAND_INS))),
    protocols=(
        "FedGCR: client types in the order mnist, usps, syn, mnist_m, svhn "
        "(data.protocol=fedgcr, data.domains=mnist,usps,syn,mnist_m,svhn; data.dif=5 or 1 instead of 10)",
        "FedBN: a silo per domain",
    ),
    stand_ins=STAND_INS,
    sha256=SHA256,
)
