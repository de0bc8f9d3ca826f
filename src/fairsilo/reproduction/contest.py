"""The same methods on several federations: who is ahead, by how much, and how sure that is."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fairsilo.analysis.paired import Difference, Pairs, corrected, front, mean_ranks, over_federations
from fairsilo.errors import FairsiloError, nearest
from fairsilo.reproduction.blocks import Blocks, Source


@dataclass(frozen=True)
class Contest:
    """Methods, each run in the same blocks.

    Attributes:
        blocks: In which every method was run.
        reference: The method that the others are compared with.
    """

    blocks: Blocks
    reference: str

    @classmethod
    def of(cls, sources: Sequence[Source], reference: str | None = None) -> Contest:
        """Raises FairsiloError where methods differ, no block is complete, or the reference is none of them."""
        blocks = Blocks.of(sources)
        against = reference or blocks.methods[0]
        if against not in blocks.methods:
            raise FairsiloError(f"{against!r} is none of the methods{nearest(against, blocks.methods)}")
        if len(blocks.methods) < 2:
            raise FairsiloError(f"{sources[0].name} has one method; it takes two to compare")
        return cls(blocks, against)

    @property
    def federations(self) -> tuple[str, ...]:
        return self.blocks.federations

    def means(self, measure: str) -> dict[str, float]:
        """Method -> mean over the federations, each of which counts once, as their held-out domains do."""
        return {
            method: statistics.fmean(self.blocks.by_federation(values))
            for method, values in self.blocks.answers[measure].items()
        }

    def _paired(self, values: Mapping[str, Sequence[float]], method: str) -> list[Pairs]:
        """Federation by federation: a method minus the reference."""
        found: dict[str, dict[tuple[str, int], float]] = {name: {} for name in self.federations}
        for block, mine, theirs in zip(self.blocks.whole, values[method], values[self.reference], strict=True):
            found[block.source][block.held_out, block.seed] = mine - theirs
        return list(found.values())

    @cached_property
    def differences(self) -> dict[str, dict[str, Difference]]:
        """Measure -> method -> its difference to the reference; p is corrected for all of them together (Holm)."""
        found = {
            (measure, method): over_federations(self._paired(values, method))
            for measure, values in self.blocks.answers.items()
            for method in self.blocks.methods
            if method != self.reference
        }
        sure = dict(zip(found, corrected(list(found.values())), strict=True))
        return {
            measure: {method: one for (name, method), one in sure.items() if name == measure}
            for measure in self.blocks.answers
        }

    @property
    def comparisons(self) -> int:
        """How many differences are corrected for: those of several seeds."""
        return sum(one.repeated for some in self.differences.values() for one in some.values())

    @cached_property
    def ranks(self) -> dict[str, float]:
        """Method -> its rank, mean over federations and judged answers; 1 is the best."""
        scores = [
            {method: self.blocks.by_federation(values[method])[place] for method in self.blocks.methods}
            for values in (self.blocks.answers[name] for name in self.blocks.judged)
            for place in range(len(self.federations))
        ]
        return mean_ranks(scores)

    def front(self) -> list[str]:
        """The methods that no other beats in all judged answers at once, by their means."""
        return front([self.means(name) for name in self.blocks.judged])

    def as_dict(self) -> dict[str, object]:
        found = {
            "reference": self.reference,
            "federations": self.federations,
            "blocks": [str(block) for block in self.blocks.whole],
            "incomplete": {str(block): why for block, why in self.blocks.incomplete.items()},
            "ranks": self.ranks,
            "means": {name: self.means(name) for name in self.blocks.answers},
            "differences": {
                name: {method: vars(one) for method, one in some.items()} for name, some in self.differences.items()
            },
            "front": self.front(),
        }
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]
