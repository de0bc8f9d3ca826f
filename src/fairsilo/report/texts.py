"""Values as texts of a page: names made safe, numbers in few digits, bytes, times."""

from __future__ import annotations

import html
import math
import re
from typing import TypeGuard

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def text(value: object) -> str:
    """Anything as text that is safe in HTML and in XML."""
    return html.escape(_CONTROL.sub("�", str(value)))


def usable(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def signed(written: str) -> str:
    """A true minus sign in front of a negative number, and none in front of zero."""
    if written.startswith("-"):
        return "−" + written[1:] if float(written[1:]) else written[1:]
    return written


def plain(value: float | None) -> str:
    """A number with three to four digits, or a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    return signed(f"{value:.2e}" if value and (abs(value) < 1e-3 or abs(value) >= 1e5) else f"{value:.3f}")


def percent(value: float | None) -> str:
    """A number that is in percent already, as 87.4 %."""
    return "–" if value is None or not math.isfinite(value) else f"{signed(f'{value:.1f}')}\u00a0%"


def size(value: float | None) -> str:
    """Bytes in decimal units."""
    if value is None or not math.isfinite(value):
        return "–"
    power = min(int(math.log10(abs(value)) // 3), 4) if abs(value) >= 1 else 0
    return f"{value / 1000**power:.3g}\u00a0{('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def duration(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    if value < 1:
        return f"{value * 1000:.0f}\u00a0ms"
    if value < 60:
        return f"{value:.1f}\u00a0s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}\u00a0h {minutes}\u00a0min" if hours else f"{minutes}\u00a0min {seconds}\u00a0s"


def shorten(name: str, length: int) -> str:
    """The beginning and the end of a long name; numbers that tell silos apart usually stand at the end."""
    if len(name) <= length:
        return name
    tail = (length - 1) // 3
    return f"{name[: length - 1 - tail]}…{name[-tail:]}"
