"""The metrics of fairsilo's own tasks, apart from their mathematics: pages and tables need no more of a task."""

from __future__ import annotations

from dataclasses import replace

from fairsilo.core.task import Metric

CLASSIFY = (
    Metric("accuracy", "share of samples whose class is predicted"),
    Metric("balanced-accuracy", "mean over the classes present in the samples of the share predicted of each"),
    Metric("macro-f1", "mean over the classes present of 2 right / (samples + predictions) of each"),
    Metric("sensitivity", "share of the second of two classes that is found; of more the mean over those present"),
    Metric("specificity", "share of the first of two classes that is found; of more the mean over those present of the "
           "share of all others that is not taken for it"),
    Metric("auroc", "area under the curve of true against false positives, from scores in hundredths; of several "
           "classes the mean of each against the others"),
    Metric("ece", "expected calibration error: how far confidence is from accuracy, over 15 bins", False),
)  # fmt: skip
SEGMENT = (
    Metric("dice", "2 |A B| / (|A| + |B|) of an image, mean over images that show or are said to show a structure, and "
           "over structures"),
    Metric("dice-with-background", "the same with the background as one more structure"),
    Metric("grace-dice", "as GRACE's released code has it: mean over all images and over structures and background, 0 "
           "where a structure is neither there nor predicted"),
    Metric("hd95", "95th percentile of the distances between outlines, in pixels; images where one of the two is empty "
           "are left out", False, share=False),
)  # fmt: skip
NEXT_CHARACTER = (Metric("accuracy", "share of characters that are predicted"),)
REGRESS = (
    Metric("mae", "mean absolute error", False, share=False),
    Metric("rmse", "root of the mean squared error", False, share=False),
    Metric("r2", "share of the variance of the targets that is explained; below 0: worse than their mean", share=False),
)
METRICS = {"classify": CLASSIFY, "segment": SEGMENT, "next-character": NEXT_CHARACTER, "regress": REGRESS}  # by task


def kept(name: str, share: bool | None = None, higher: bool | None = None) -> Metric:
    """A metric as a folder says it is; what it does not say, as in those of older versions, is taken by the name."""
    known = next((one for some in METRICS.values() for one in some if one.name == name), Metric(name, ""))
    return replace(
        known,
        share=known.share if share is None else share,
        higher_is_better=known.higher_is_better if higher is None else higher,
    )
