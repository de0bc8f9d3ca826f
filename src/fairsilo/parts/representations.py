"""A silo as one vector: the mean over its classes of their mean representation. What silos are clustered by.

Every class counts the same, so the vector tells what the silo's images look like and not how many it has of each class.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.models.networks import Output
from fairsilo.round import output_of
from fairsilo.silo import Silo

PROMPT = "h"  # the entry of Output.extra with the type-specific prompt of each image


def of_images(output: Output) -> Tensor:
    """One row per image: its type-specific prompt where the network makes one, else its features."""
    if isinstance(output.extra, dict) and PROMPT in output.extra:
        found: Tensor = output.extra[PROMPT]
        return found
    assert output.features is not None
    return output.features.flatten(1)


@torch.no_grad()
def representation(silo: Silo, max_batches: int = 0) -> Tensor:
    """h~ = mean over the classes present of the mean of h over their training samples, under the model held.

    With `max_batches` that many batches drawn at random stand for all samples: files often come sorted by class.
    """
    silo.model.eval()
    split = silo.data.train
    chosen = torch.arange(len(split))
    if max_batches:
        drawn = torch.randperm(len(split), generator=silo.stream("representation"))
        chosen = drawn[: max_batches * silo.training.batch_size]
    sums: Tensor | float = 0.0
    counts: Tensor | float = 0.0
    for indices in chosen.split(silo.evaluation_batch):
        batch = silo.batch(split, indices)
        member = F.one_hot(batch.targets, silo.task.classes).double()
        sums = sums + member.T @ of_images(output_of(silo, batch)).double()
        counts = counts + member.sum(0)
    assert isinstance(sums, Tensor)
    assert isinstance(counts, Tensor)
    present = counts > 0
    return (sums[present] / counts[present, None]).mean(0).to(silo.model.layout.dtype)
