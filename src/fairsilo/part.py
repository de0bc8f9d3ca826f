"""Part and Method: one idea of one paper, and how ideas compose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from fairsilo import streams
from fairsilo.config import TrainSettings, check_fields
from fairsilo.errors import FairsiloError
from fairsilo.messages import Message
from fairsilo.models.networks import Output
from fairsilo.server import Server, Updates
from fairsilo.silo import Batch, Batches, Silo
from fairsilo.vectors import AUXILIARY, AVERAGED, PRIVATE, SHARED, Layout, Slot


@dataclass(frozen=True)
class Part:
    """One idea, both halves in one file; its fields are its hyper-parameters.

    A hook gets the current value and returns the next one; the default changes nothing. All hooks are called from
    `round.py` and from nowhere else. Order of composition is order of calls.
    """

    name: ClassVar[str] = "part"
    paper: ClassVar[str] = ""
    formula: ClassVar[str] = ""
    sends: ClassVar[tuple[str, ...]] = ()  # besides the model, in words: users decide about privacy knowing it
    keeps: ClassVar[tuple[str, ...]] = ()  # between rounds, at the silo or the server
    about: ClassVar[str] = "global"  # which model the results are about: global or personal
    equal_silos: ClassVar[bool] = False  # its paper counts every silo alike in the mean, not by its samples
    decides_weights: ClassVar[bool] = False  # its `weights` replaces what came before
    ignores_weights: ClassVar[bool] = False  # its `combine` does not use the weights
    needs: ClassVar[tuple[str, ...]] = ()  # other parts it cannot do without, by name
    needs_validation: ClassVar[bool] = False  # silos must have validation samples
    needs_features: ClassVar[bool] = False  # the network must return features
    pulls_features: ClassVar[bool] = False  # a term of its loss moves the features: something trained must stand before
    reads_images: ClassVar[bool] = False  # works on the images themselves, so features cannot stand for them
    needs_input_gradients: ClassVar[bool] = False  # differentiates by the inputs, so no frozen stage may stand before
    normalises_images: ClassVar[bool] = False  # networks see other images than silos hold, also at evaluation
    needs_server_data: ClassVar[bool] = False  # the server must be given data (data.server)
    needs_synthetic: ClassVar[bool] = False  # a generator must make images in each silo's style (data.synthetic)
    reads_steps: ClassVar[bool] = False  # divides a silo's change by its local steps, each of which moves every tensor
    uneven_steps: ClassVar[bool] = False  # its local loop takes other steps than that
    pools: ClassVar[bool] = False  # all training data are in one place: a baseline, not a federation
    adapts_once: ClassVar[bool] = False  # its `adapt` is long: asked after the last round only
    tasks: ClassVar[tuple[str, ...]] = ("classify", "segment", "next-character")

    def __post_init__(self) -> None:
        check_fields(self, f"{self.name}.")

    @property
    def trains_bare(self) -> bool:
        """Whether what is sent was trained without the terms and corrections of other parts."""
        return False

    # at construction
    def kind(self, slot: Slot) -> str:
        """How a tensor of the model is treated: shared, averaged or private."""
        return SHARED

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        """A model adaptation: what is trained around a frozen backbone; one owner per method."""
        return network

    def server_network(self, network: nn.Module, classes: tuple[str, ...], silos: tuple[str, ...]) -> nn.Module:
        """The server's own network, where it holds another than the silos that train; `network` is a new one of
        theirs before any adaptation."""
        return network

    def modules(self, network: nn.Module) -> dict[str, nn.Module]:
        """Auxiliary trainables beside the network (an adversary, a second head), trained with it and private."""
        return {}

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        """Raise FairsiloError where this part would do nothing, or nonsense, with this model and training."""

    # once
    def prepare(self, server: Server) -> None:
        """Before round 1, by exchanges of kind `share`."""

    def conclude(self, server: Server) -> None:
        """After the last round."""

    # at the silo
    def share(self, silo: Silo, message: Message) -> Message:
        """Answer this part's own `share` exchange."""
        return Message()

    def begin(self, silo: Silo) -> None:
        """Before local training, the received model loaded."""

    def train(self, silo: Silo) -> Tensor:
        """The local loop, which returns its mean loss; one owner per method, by default epochs of `descend`."""
        raise NotImplementedError

    def inputs(self, silo: Silo, inputs: Tensor, batch: Batch, training: bool) -> Tensor:
        """Change what the network sees, also at evaluation; `training` where the method's own objective is computed."""
        return inputs

    def criterion(self, silo: Silo, output: Output, batch: Batch) -> Tensor:
        """The loss that is trained in the task's place; one owner per method."""
        raise NotImplementedError

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        """Add a term; may call silo.forward again."""
        return loss

    def gradients(self, silo: Silo) -> None:
        """Correct silo.model.gradients in place."""

    def finish(self, silo: Silo, update: Message) -> None:
        """After local training: attach what the server needs, keep what the next round needs."""

    def personal(self, silo: Silo, vector: Tensor) -> Tensor:
        """The silo's own model (whole vector); by default what it has after local training."""
        return vector

    @property
    def personalises(self) -> bool:
        """Whether `personalise` does anything, with these settings."""
        return type(self).personalise is not Part.personalise

    def personalise(self, silo: Silo) -> None:
        """Turn the new global model, which is loaded, into the silo's own; asked after rounds that are evaluated."""

    def adapt(self, silo: Silo, batches: Batches) -> Iterator[Tensor]:
        """At an unseen silo: predictions for its test inputs, in their order, adapting the loaded model to them without
        labels; one owner per method."""
        raise NotImplementedError

    # at the server
    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        """What is sent to one silo; it may differ per silo."""
        return message

    def accompany(self, server: Server, message: Message) -> Message:
        """What goes with every model that is sent, also to be probed or evaluated, also to unseen silos."""
        return message

    def equip(self, server: Server, message: Message) -> Message:
        """What unseen silos get with the model that they adapt; may ask silos for it."""
        return message

    def collect(self, server: Server, updates: Updates) -> Updates:
        """Screen, mask, cluster; writes memory and facts."""
        return updates

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        """Coefficients of the updates; may probe candidates."""
        return weights

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        """The direction over parameters and float buffers; one owner per method, and without side effects, since
        candidates are combined too."""
        return updates.mean(weights)

    def step(self, server: Server, updates: Updates, direction: Tensor) -> Tensor:
        """Server optimiser, corrections; writes memory."""
        return direction

    def model_for(self, server: Server, silo: str | None, vector: Tensor) -> Tensor:
        """The model that answers evaluation at a silo (None: an unseen one)."""
        return vector


@dataclass(frozen=True)
class Method:
    """Parts in order. Two methods compose with `|`; an ablation is a value: `method.without(SomePart)`."""

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
        own = self.owners("personal")
        makers = [part for part in self.parts if part in own or part.personalises]
        if len(makers) > 1:
            raise self._clash(makers[0], makers[1], "make the silo's own model")
        self._refuse_pairs()
        deciders = [part for part in self.parts if part.decides_weights]
        if len(deciders) > 1:
            raise self._clash(deciders[0], deciders[1], "decide the aggregation weights")
        for owner in self.owners("combine"):
            if owner.ignores_weights and deciders:
                raise FairsiloError(
                    f"{self.name}: {owner.name!r} combines the updates by its own coefficients, so the weights of "
                    f"{deciders[0].name!r} would have no effect; leave one of them out"
                )

    def _refuse_pairs(self) -> None:
        """Parts that would read something else than they think, or be without effect, beside another."""
        uneven = [part for part in self.parts if part.uneven_steps]
        normalising = [part for part in self.parts if part.normalises_images]
        bare = [part for part in self.parts if part.trains_bare]
        for part in self.parts:
            if part.reads_steps and uneven:
                raise FairsiloError(
                    f"{self.name}: {part.name!r} counts local steps that move every tensor alike, and those of "
                    f"{uneven[0].name!r} do not"
                )
            if normalising and (part.needs_server_data or part.needs_synthetic or part.needs_input_gradients):
                raise FairsiloError(
                    f"{self.name}: networks of {normalising[0].name!r} see images that were normalised at a silo, and "
                    f"{part.name!r} would give them images as they are; leave one of them out"
                )
            if bare and part is not bare[0] and (part in self.owners("loss") or part in self.owners("gradients")):
                raise FairsiloError(
                    f"{self.name}: with these settings {bare[0].name!r} sends a model trained on the task alone, so "
                    f"{part.name!r} would have no effect"
                )

    def _one(self, hook: str, does: str) -> None:
        owners = self.owners(hook)
        if len(owners) > 1:
            raise self._clash(owners[0], owners[1], does)

    def _clash(self, first: Part, second: Part, does: str) -> FairsiloError:
        return FairsiloError(
            f"{self.name}: {first.name!r} and {second.name!r} both {does}; a method has one part that does"
        )

    def owners(self, hook: str) -> list[Part]:
        return [part for part in self.parts if getattr(type(part), hook) is not getattr(Part, hook)]

    def hooks(self, hook: str) -> tuple[Callable[..., Any], ...]:
        """The bound hooks of the parts that define it, in order; a part that decides the weights comes last there."""
        cache: dict[str, tuple[Callable[..., Any], ...]] = self.__dict__["_hooks"]
        if hook not in cache:
            owners = self.owners(hook)
            if hook == "weights":
                owners.sort(key=lambda part: part.decides_weights)
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
    def about(self) -> str:
        """Which model its results are about."""
        return "personal" if any(part.about == "personal" for part in self.parts) else "global"

    @property
    def individual_updates(self) -> bool:
        """Whether the server must see each silo's update (then secure aggregation cannot apply); else a running sum
        is enough and memory does not grow with the silos."""
        return any(self.owners(hook) for hook in ("collect", "weights", "combine", "step"))

    def weighting(self, asked: str) -> str:
        """How silos count in the mean, before parts have their say: as asked, else as the method's paper has it."""
        if asked != "auto":
            return asked
        return "uniform" if any(part.equal_silos for part in self.parts) else "samples"

    @property
    def pools(self) -> bool:
        return any(part.pools for part in self.parts)

    @property
    def personalises(self) -> bool:
        """Whether silos make their own models from the new global one; else they have them from local training."""
        return any(part.personalises for part in self.parts)

    @property
    def sends(self) -> tuple[str, ...]:
        return tuple(text for part in self.parts for text in part.sends)

    @property
    def keeps(self) -> tuple[str, ...]:
        return tuple(text for part in self.parts for text in part.keeps)

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
        """The network with the parts' auxiliary modules beside it; their first weights depend on the seed alone."""
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
        """Refuse, with a sentence, what would be nonsense or a silent no-op."""
        names = {part.name for part in self.parts}
        for part in self.parts:
            for other in part.needs:
                if other not in names:
                    raise FairsiloError(f"{self.name}: {part.name!r} cannot do without {other!r}")
            if facts.task not in part.tasks:
                raise FairsiloError(f"{part.name} is for the tasks {', '.join(part.tasks)}, not for {facts.task}")
            if part.needs_validation and facts.without_validation:
                raise FairsiloError(
                    f"{part.name} measures models on validation data, and {facts.without_validation[0]!r} has none; "
                    "set data.validation above 0"
                )
            if part.needs_features and not facts.features:
                raise FairsiloError(
                    f"{part.name} compares features, and the network returns none; let it return "
                    "fairsilo.models.networks.Output(prediction, features)"
                )
            if part.pulls_features and facts.features and not facts.trained_features:
                raise FairsiloError(
                    f"{part.name} moves the network's features, which are frozen in this model: it would do nothing"
                )
            if part.needs_server_data and not facts.server_data:
                raise FairsiloError(
                    f"{part.name} trains on data of the server's own; give a folder of images: data.server=PATH"
                )
            if part.needs_input_gradients and facts.staged:
                raise FairsiloError(
                    f"{part.name} needs gradients of the inputs, and the first stage of the network is frozen"
                )
            if part.needs_synthetic and not facts.synthetic:
                raise FairsiloError(
                    f"{part.name} needs synthetic images; choose a generator: data.synthetic=glyphs, folder:PATH or "
                    "diffusion:MODEL"
                )
            part.fits(facts.layout, facts.training)
        if not facts.layout.wire.size:
            idle = [part for hook in ("weights", "combine", "step", "adapt") for part in self.owners(hook)]
            if idle:
                raise FairsiloError(f"{self.name}: no tensor is shared, so {idle[0].name!r} would have no effect")


@dataclass(frozen=True)
class Facts:
    """What a method must fit: the model, the training, the data."""

    layout: Layout
    training: TrainSettings
    task: str
    without_validation: tuple[str, ...] = ()
    features: bool = True
    trained_features: bool = True
    server_data: bool = False
    staged: bool = False
    synthetic: bool = False
