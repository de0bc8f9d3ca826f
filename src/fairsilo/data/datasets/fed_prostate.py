"""Fed-Prostate: the prostate in T2-weighted magnetic resonance images of six sites."""

from __future__ import annotations

from fairsilo.data.about import About, Layout, has_folders, on_use, packed

# in the order A to F of the papers
DOMAINS = ("ISBI|RUNMC", "ISBI_1.5|BMC", "I2CVB", "UCL", "BIDMC", "HK")
NAMES = tuple(name.split("|")[0] for name in DOMAINS)

ABOUT = About(
    title="Fed-Prostate",
    shows="the prostate outlined in slices of T2-weighted magnetic resonance images of six sites",
    domains=dict.fromkeys(NAMES, 0),
    classes=("background", "prostate"),
    licence="for research, by the rules of NCI-ISBI 2013, I2CVB and PROMISE12",
    size="1 GB; 116 patients: 30, 30, 19, 13, 12, 12",
    citation="Q. Liu, Q. Dou, L. Yu, P. A. Heng: MS-Net, IEEE TMI 2020; Q. Liu, Q. Dou, P. A. Heng: SAML, MICCAI 2020",
    obtain=(
        "From liuquande.github.io/SAML: a folder per site with Case00.nii.gz and Case00_segmentation.nii.gz for every "
        "patient."
    ),
    places=("prostate", "fed_prostate", "Prostate", "ProstateMRI"),
    layouts=(
        Layout(
            "NIfTI files (BIDMC/Case00.nii.gz, Case00_segmentation.nii.gz; extra `medical`)",
            has_folders(*DOMAINS),
            on_use("volumes:prostate", domains=DOMAINS),
        ),
        packed(*NAMES),
    ),
    protocols=(
        "GRACE: slices with prostate, each with the one before and the one after as channels, intensities cut at the "
        "99 % quantile of the patient; all slices of a patient are in one split, as the papers' are not always",
        "GRACE: 64 % to train, 16 % for validation, 20 % to test (data.validation=0.2, data.test=0.2)",
    ),
    task="segment",
)
