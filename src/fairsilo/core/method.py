"""Method: a composition of parts, with the checks that refuse combinations that make no sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from fairsilo.core import streams
from fairsilo.core.attachments import Sends
from fairsilo.core.messages import MODEL, SHOWN
from fairsilo.core.needs import CLASHES, Facts, parts_in, refusal
from fairsilo.core.part import Part
from fairsilo.core.rates import check_rates
from fairsilo.core.vectors import AUXILIARY, AVERAGED, PRIVATE, SHARED, Layout, Slot
from fairsilo.errors import FairsiloError


@dataclass(frozen=True)
class Method:
    """Parts in order; without any it is FedAvg. Two methods compose with `|`, and `without` leaves parts out.

    Args:
        parts: The parts; their hooks are called in this order.
        name: What tables and pages call it.

    Raises:
        FairsiloError: A part is there twice, two parts do what only one can do, or one would have no effect.

    Example:
        >>> from fairsilo import Method, method
        >>> both = method("fedprox(mu=0.1)") | method("fedheal")
        >>> both.name, [part.name for part in both.parts]
        ('fedprox(mu=0.1) | fedheal', ['proximal', 'consistency-mask', 'distance-weights'])
        >>> both.without("proximal").parts == method("fedheal").parts
        True
        >>> Method().parts
        ()
    """

    parts: tuple[Part, ...] = ()
    name: str = "fedavg"

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hooks", {})
        seen: dict[type[Part], Part] = {}
        for part in self.parts:
            if type(part) in seen:
                raise FairsiloError(f"{self.name}: the part {part.name!r} is in it twice; name it once")
            seen[type(part)] = part
        self._one("combine", "combine the updates")
        self._one("train", "own the local loop")
        self._one("adapt", "adapt the model at test time")
        self._one("network", "build the network")
        self._one("criterion", "replace the task's loss")
        self._one("server_network", "bring a model of the server's own")
        self._one("unmask", "mask the updates")
        own = self.owners("personal")
        makers = [part for part in self.parts if part in own or part.personalises]
        if len(makers) > 1:
            raise self._clash(makers[0], makers[1], "make the silo's own model")
        self._refuse_pairs()
        self._refuse_undeclared()
        self._refuse_unprotected()
        deciders = self.doing("decides-weights")
        if len(deciders) > 1:
            raise self._clash(deciders[0], deciders[1], "decide the aggregation weights")
        for owner in self.owners("combine"):
            if "ignores-weights" in owner.does and deciders:
                raise FairsiloError(
                    f"{self.name}: {owner.name!r} combines the updates by its own coefficients, so the weights of "
                    f"{deciders[0].name!r} would have no effect; leave one of them out"
                )

    def _refuse_pairs(self) -> None:
        """Refuse pairs of parts of which one would misread the other's data or have no effect."""
        for clash in CLASHES:
            for other in self.doing(clash.does):
                for part in self.parts:
                    if part.needs & set(clash.needs):
                        sentence = clash.refusal.format(part=part.name, other=other.name)
                        raise FairsiloError(f"{self.name}: {sentence}")
        bare = [part for part in self.parts if part.trains_bare]
        for part in self.parts:
            if bare and part is not bare[0] and (part in self.owners("loss") or part in self.owners("gradients")):
                raise FairsiloError(
                    f"{self.name}: with these settings {bare[0].name!r} sends a model trained on the task alone, so "
                    f"{part.name!r} would have no effect"
                )

    def _refuse_undeclared(self) -> None:
        """Refuse a part whose hooks get single updates and that does not declare it."""
        for hook in ("collect", "weights", "combine"):
            for part in self.owners(hook):
                if not any(one.is_single_update for one in part.about.sends):
                    raise FairsiloError(
                        f"{self.name}: {part.name!r} defines `{hook}`, which gets every silo's update, and does not "
                        "say so; add EACH_UPDATE (fairsilo.core.attachments) to about.sends"
                    )

    def _refuse_unprotected(self) -> None:
        """Refuse what would go around noise or masks: attachments that they do not cover."""
        noised, masked = self.doing("private-updates"), self.doing("masks-updates")
        for part in self.parts:
            for one in part.sends if part not in (*noised, *masked) else ():
                what = one.words or ("a number for the report" if SHOWN in one.name else "each silo's update")
                update = (one.name, one.exchange) == (MODEL, "train")
                if noised and one.to != "silos" and not update:
                    raise FairsiloError(
                        f"{self.name}: {noised[0].name!r} makes updates private, and {part.name!r} has silos send "
                        f"more: {what}; leave one of them out"
                    )
                hidden = one.per != "silo" and one.exchange == "train" and not one.is_number
                if masked and one.to != "silos" and not hidden and SHOWN not in one.name:
                    raise FairsiloError(
                        f"{self.name}: {masked[0].name!r} shows the server sums of updates alone, and {part.name!r} "
                        f"needs of single silos: {what}; leave one of them out"
                    )
        for part in set(noised) & set(self.owners("train")):
            for other in self.owners("criterion"):
                raise FairsiloError(
                    f"{self.name}: {part.name!r} needs the loss of every sample by itself, and {other.name!r} has "
                    "another; leave one of them out"
                )

    def _one(self, hook: str, does: str) -> None:
        owners = self.owners(hook)
        if len(owners) > 1:
            raise self._clash(owners[0], owners[1], does)

    def _clash(self, first: Part, second: Part, does: str) -> FairsiloError:
        return FairsiloError(
            f"{self.name}: {first.name!r} and {second.name!r} both {does}; a method has one part that does"
        )

    def doing(self, what: str) -> list[Part]:
        """The parts with one of the effects that core/needs.py lists."""
        return [part for part in self.parts if what in part.does]

    def owners(self, hook: str) -> list[Part]:
        return [part for part in self.parts if getattr(type(part), hook) is not getattr(Part, hook)]

    def hooks(self, hook: str) -> tuple[Callable[..., Any], ...]:
        """The bound hooks of the parts that define it, in order; in `weights` the part that decides them comes last, in
        `outgoing` the one that masks."""
        cache: dict[str, tuple[Callable[..., Any], ...]] = self.__dict__["_hooks"]
        if hook not in cache:
            owners = self.owners(hook)
            if hook == "weights":
                owners.sort(key=lambda part: "decides-weights" in part.does)
            if hook == "outgoing":
                owners.sort(key=lambda part: "masks-updates" in part.does)
            cache[hook] = tuple(getattr(part, hook) for part in owners)
        return cache[hook]

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": self.parts, "name": self.name, "_hooks": {}}

    def __or__(self, other: Method | Part) -> Method:
        if isinstance(other, Part):
            other = Method((other,), other.name)
        names = [method.name for method in (self, other) if method.parts]
        return Method(self.parts + other.parts, " | ".join(names) if names else "fedavg")

    def without(self, *which: type[Part] | str) -> Method:
        """The same method less some parts, given by class or by name."""
        kept = list(self.parts)
        for one in which:
            gone = [part for part in kept if part.name == one or (isinstance(one, type) and isinstance(part, one))]
            if not gone:
                label = one if isinstance(one, str) else one.name
                raise FairsiloError(
                    f"{self.name} has no part {label!r}; its parts: {', '.join(p.name for p in self.parts) or 'none'}"
                )
            kept = [part for part in kept if part not in gone]
        dropped = ", ".join(one if isinstance(one, str) else one.name for one in which)
        label = f"({self.name})" if "|" in self.name else self.name
        return Method(tuple(kept), f"{label}.without({dropped})")

    @property
    def results(self) -> str:
        """Which model its results are about."""
        return "personal" if any(part.results == "personal" for part in self.parts) else "global"

    @property
    def individual_updates(self) -> bool:
        """Whether the server must see each silo's update; otherwise it keeps a running sum only."""
        return any(one.is_single_update for one in self.declared)

    @property
    def declared(self) -> tuple[Sends, ...]:
        """What silos send to the server for the parts, with these settings."""
        return tuple(one for part in self.parts for one in part.sends if one.to != "silos")

    @property
    def secure_aggregation(self) -> bool:
        """Whether sums over the silos are all that the server needs, so that single updates may be masked."""
        return not any(one.per == "silo" and SHOWN not in one.name for one in self.declared)

    @property
    def server_sees(self) -> str:
        """What the server sees of a single silo, as the end of a sentence."""
        if self.doing("masks-updates"):
            return "sees the sum of the silos' updates alone"
        if self.individual_updates:
            return "sees each silo's update"
        own = dict.fromkeys(one.words for one in self.declared if one.per == "silo" and one.words)
        only = "needs only the sum of the silos' updates"
        return f"{only}, but sees of each silo: {'; '.join(own)}" if own else only

    @property
    def privacy(self) -> tuple[dict[str, Any], ...]:
        """What parts claim whose updates are differentially private: whom they protect, and with which delta."""
        return tuple(
            {"part": part.name, "protects": part.about.protects, "delta": getattr(part, "delta", 0.0)}
            for part in self.doing("private-updates")
        )

    def weighting(self, asked: str) -> str:
        """How silos are weighted before the `weights` hooks: as asked, otherwise as the method's paper does it."""
        if asked != "auto":
            return asked
        preferred = [part.weighting for part in self.parts if part.weighting]
        return preferred[-1] if preferred else "samples"

    @property
    def pools(self) -> bool:
        return bool(self.doing("pools-data"))

    @property
    def personalises(self) -> bool:
        """Whether silos make their own models from the new global one; otherwise local training leaves them."""
        return any(part.personalises for part in self.parts)

    @property
    def sends(self) -> tuple[str, ...]:
        """What silos send besides the model, in words."""
        return tuple(dict.fromkeys(one.words for part in self.parts for one in part.sends if one.words))

    @property
    def keeps(self) -> tuple[str, ...]:
        return tuple(text for part in self.parts for text in part.about.keeps)

    def layout(self, layout: Layout) -> Layout:
        """The layout of a network with the kinds the parts give its tensors; the most private kind wins."""
        strength = (SHARED, AVERAGED, PRIVATE)
        deciding = self.hooks("kind")

        def kind_of(slot: Slot) -> str:
            if slot.group == AUXILIARY:
                return PRIVATE
            return max((kind(slot) for kind in deciding), key=strength.index, default=SHARED)

        return layout.with_kinds(kind_of)

    def extended(self, network: nn.Module, seed: int) -> nn.Module:
        """The network with the parts' auxiliary modules added; their initial weights depend on the seed alone."""
        if hasattr(network, AUXILIARY):
            raise FairsiloError(f"the network has an attribute {AUXILIARY!r}, the name of what methods add; rename it")
        for part in self.parts:
            with streams.ambient(seed, "auxiliary weights", part.name):
                found = part.modules(network)
            if found and isinstance(network, nn.Sequential):
                raise FairsiloError(f"{part.name} puts a module beside the network, so it must not be an nn.Sequential")
            if found:
                if not hasattr(network, AUXILIARY):
                    network.add_module(AUXILIARY, nn.ModuleDict())
                network.get_submodule(AUXILIARY).add_module(part.name, nn.ModuleDict(found))
        return network

    def check(self, facts: Facts) -> None:
        """Raise FairsiloError where the method makes no sense, or has no effect, with this model and data."""
        check_rates(facts.layout, facts.training)
        if not facts.layout.wire.size:
            idle = [part for hook in ("weights", "combine", "step", "adapt") for part in self.owners(hook)]
            if idle:
                raise FairsiloError(f"{self.name}: no tensor is shared, so {idle[0].name!r} would have no effect")
        names = {part.name for part in self.parts}
        for part in self.parts:
            for other in parts_in(part.needs):
                if other not in names:
                    raise FairsiloError(f"{self.name}: {part.name!r} cannot do without {other!r}")
            refused = refusal(part.name, part.needs, facts)
            if refused:
                raise FairsiloError(refused)
            part.fits(facts.layout, facts.training)
