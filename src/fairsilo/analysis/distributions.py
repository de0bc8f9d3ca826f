"""Tails and quantiles of the distributions that tests and intervals need; scipy is slow to import, and is on use."""

from __future__ import annotations


def student_tail(t: float, free: float) -> float:
    """How likely a Student's t with so many degrees of freedom is above t."""
    from scipy.special import stdtr

    return float(stdtr(free, -t))


def student_quantile(p: float, free: float) -> float:
    """What a Student's t with so many degrees of freedom is below with probability p."""
    from scipy.special import stdtrit

    return float(stdtrit(free, p))


def fisher_tail(f: float, free: float, other_free: float) -> float:
    """How likely Fisher's F, a ratio of variances with these degrees of freedom, is above f."""
    from scipy.special import fdtrc

    return float(fdtrc(free, other_free, f))
