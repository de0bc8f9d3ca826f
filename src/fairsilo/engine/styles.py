"""Before a run: every silo learns the word for its style, where a diffusion model draws images for the server.

An exchange as any other, so that a silo's images stay where they are on every engine; it sends the word's embedding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairsilo.core.messages import Exchange, Failure, Message
from fairsilo.core.roster import Roster
from fairsilo.core.samples import SiloData
from fairsilo.data.diffusion import Generator, learned_word
from fairsilo.engine.base import Engine
from fairsilo.errors import FairsiloError

STYLE = "style"  # the exchange
WORD = "word"  # what a silo answers


def ask_words(engine: Engine, source: str, roster: Roster, seed: int) -> dict[str, Tensor]:
    """Silo -> the word for its style.

    Raises:
        FairsiloError: A silo could not learn one, or sent something else.
    """
    numbers: dict[str, Any] = {"generator": source, "seed": seed, "classes": "\n".join(roster.classes)}
    messages = {name: Message({}, dict(numbers)) for name in roster.names}
    found = {}
    for reply in engine.ask(Exchange(STYLE, 0, messages, 0, STYLE)):
        answer = reply.answer
        if isinstance(answer, Failure):
            raise FairsiloError(f"{reply.silo} could not learn the word for its style: {answer.kind}: {answer.detail}")
        word = answer.tensors.get(WORD)
        if word is None or word.dim() != 1 or not word.is_floating_point() or not bool(torch.isfinite(word).all()):
            raise FairsiloError(f"{reply.silo} sent no word for its style")
        found[reply.silo] = word.float().cpu()
    missing = [name for name in roster.names if name not in found]
    if missing:
        raise FairsiloError(f"no word came for the style of {', '.join(missing)}")
    return found


def learn_style(data: SiloData, message: Message) -> Message:
    """A silo's answer, from some of its training images."""
    told = message.numbers
    generator, classes = Generator.of(str(told["generator"])), str(told["classes"]).split("\n")
    if not generator.is_here:
        raise FairsiloError(f"the diffusion model {generator.model} is no folder on this machine")
    return Message({WORD: learned_word(generator, data.train, classes, int(told["seed"]), STYLE, data.name)})
