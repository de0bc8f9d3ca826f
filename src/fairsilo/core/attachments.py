"""What silos send, as a declaration: the sentence a user reads, the screening of replies, what the server sees, bytes.

Every part lists the tensors and numbers that its `finish` attaches and its `share` answers. Nothing else passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairsilo.core.messages import MODEL

Shape = str | tuple[int | str, ...]
NUMBER, SHARED, PARAMETERS, WIRE = "number", "shared", "parameters", "wire"
_STRETCHES = (SHARED, PARAMETERS, WIRE)
_DTYPES = ("model", "float", "int")
_USES = ("silo", "mean", "sum")


@dataclass(frozen=True)
class Sends:
    """One tensor or number that a silo sends.

    Args:
        name: Its key in the message.
        words: What a user reads about it. Attachments with the same words are said once; those without are not said.
        shape: `number`; a stretch of the model's vector (`shared`: its shared trainable tensors, `parameters`: all
            trainable tensors that are sent, `wire`: everything that is sent); or a tuple of sizes. A size is a number
            or a name: `classes`, `features`, `channels`, `height`, `width`, `synthetic`, or one that the part's `sizes`
            gives. A name that nobody gives is free, and the same within one reply.
        dtype: `model`, the model's own; `float`, any floating point; `int`.
        per: What the server uses: each silo's own (`silo`), or a `mean` or `sum` over the silos.
        exchange: The exchange that carries it: `train`, `share`, `probe`; anything else is outside the rounds.
        topic: Which question of a part's `share` exchanges it answers, where the part asks more than one.
        optional: When it may be missing, in words; empty where it never may.
        to: `server`, or `silos` for what the server sends on.
        least: The smallest value a number may have.
    """

    name: str
    words: str = ""
    shape: Shape = NUMBER
    dtype: str = "model"
    per: str = "silo"
    exchange: str = "train"
    topic: str = ""
    optional: str = ""
    to: str = "server"
    least: float = -math.inf

    def __post_init__(self) -> None:
        known = isinstance(self.shape, tuple) or self.shape in (NUMBER, *_STRETCHES)
        if not known or self.dtype not in _DTYPES or self.per not in _USES or self.to not in ("server", "silos"):
            raise TypeError(f"attachment {self.name!r}: {self.shape!r}, {self.dtype!r}, {self.per!r} or {self.to!r}")

    @property
    def is_number(self) -> bool:
        return self.shape == NUMBER


EACH_UPDATE = Sends(MODEL, shape=WIRE)  # of a part whose `collect`, `weights` or `combine` looks at single updates
