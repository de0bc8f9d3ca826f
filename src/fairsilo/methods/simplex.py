"""Ways back onto the probability simplex, shared by the parts that move aggregation weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def clip_renormalise(weights: Tensor, previous: Tensor) -> Tensor:
    """Clip to [0, 1] and divide by the sum; the previous weights where nothing is left."""
    clipped = weights.clamp(0, 1)
    total = clipped.sum()
    return clipped / total if total > 0 else previous


def project(values: Tensor) -> Tensor:
    """The nearest point of the simplex in Euclidean distance (by sorting, with the inclusive prefix sum)."""
    descending = values.sort(descending=True).values
    shifts = (1 - descending.cumsum(0)) / torch.arange(1, len(values) + 1, dtype=values.dtype)
    last = int((descending + shifts > 0).nonzero().max())
    return (values + shifts[last]).clamp(min=0)


def equal_distances(products: Tensor, shares: Tensor, ridge: float) -> Tensor:
    """The weights p under which U = W + sum_j p_j D_j is as equally far from every W + D_m as they can make it.

    With K the inner products of the updates, ||U - (W + D_m)||^2 = p^T K p - 2 (K p)_m + K_mm, whose first term is the
    same for all m. So its variance over m is least at the minimum over the simplex of the convex quadratic

        || C (diag K - 2 K p) ||^2 + (ridge ||2 C K||)^2 ||p - shares||^2,   C = I - 1 1^T / M,

    in which the second term (||.|| the spectral norm) keeps p near the shares where the first does not decide.
    """
    from scipy import optimize  # slow to import

    least_squares: Any = optimize.nnls  # type: ignore[attr-defined,unused-ignore]
    count = len(shares)
    scale = float(products.diagonal().max())
    if count == 1 or scale <= 0:
        return shares / shares.sum()
    gram = products.double().cpu().numpy() / scale  # the minimum does not depend on the unit of length
    wanted = (shares / shares.sum()).double().cpu().numpy()
    centre = np.eye(count) - 1 / count
    slopes = 2 * centre @ gram
    pull = ridge * np.linalg.norm(slopes, 2)
    rows = np.concatenate([slopes, pull * np.eye(count)])
    aims = np.concatenate([centre @ gram.diagonal(), pull * wanted])
    # p >= 0 is nnls's own constraint; a heavy row holds the sum at 1
    heavy = 1e4 * max(float(np.linalg.norm(rows, 2)), float(np.linalg.norm(aims)), 1e-12)
    found, _ = least_squares(np.vstack([rows, np.full(count, heavy)]), np.append(aims, heavy))
    total = found.sum()
    return torch.from_numpy(found / total).to(shares) if total > 0 else shares / shares.sum()
