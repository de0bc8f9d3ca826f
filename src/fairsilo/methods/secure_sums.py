"""Sums of which nobody sees the terms: the double masks of Bonawitz et al. (CCS 2017), step by step.

    keys     every silo makes keys for the round and signs them, with its number of samples
    shares   every silo shares out its secrets among all, each share sealed for the one it is meant for
    (train)  updates travel under masks: one for every pair of silos, which cancel, and one of the silo's own
    agree    who sent an update is agreed on: each silo signs one list, whatever it is asked afterwards
    open     silos show their shares: of the own mask of those who sent one, of the pairs' keys of those who did not

For no silo both are ever shown, so that its update stays hidden. Of n silos with keys t are needed to open a sum. A
server that follows the steps learns nothing more with fewer than t silos on its side; one that lies (it cannot sign for
a silo) with fewer than 2 t - n. Masks of pairs depend on what both silos were told (model, settings, who takes part):
where a server told them different things, they do not cancel.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import Sends
from fairsilo.core.messages import MODEL, Message, digest
from fairsilo.core.round import Totals
from fairsilo.core.server import Server
from fairsilo.core.silo import Silo
from fairsilo.core.vault import stretched
from fairsilo.errors import FairsiloError, StoppedError
from fairsilo.methods import masks

KEYS, SHARES, AGREE, OPEN = "keys", "shares", "agree", "open"  # the steps besides training
_KEY = 32  # bytes
_TOLD = 3 * _KEY + 8  # of what a silo signs at first
_LONGEST = 20_000  # bytes of it and of the proof
_LETTER = 12 + 2 * masks.WIDTH + 16  # nonce, two shares, seal


@dataclass(frozen=True)
class Rule:
    """How a part is set: its name, bits behind the point, and how many silos a sum needs."""

    part: str
    bits: int
    least: int
    over: float

    def enough(self, count: int) -> int:
        """How many of so many silos with keys must be there to open a sum."""
        return max(self.least, math.floor(self.over * count) + 1)


@dataclass(frozen=True)
class Public:
    """What everybody knows of a silo in a round: two public keys, what its own mask must be made of, and its size."""

    seals: bytes
    pairs: bytes
    own: bytes  # SHA-256
    samples: int

    @classmethod
    def read(cls, told: bytes) -> Public:
        seals, pairs, own = (told[start : start + _KEY] for start in range(0, 3 * _KEY, _KEY))
        return cls(seals, pairs, own, int.from_bytes(told[3 * _KEY : _TOLD], "big"))


# --------------------------------------------------------------------------------------------------------- at a silo
def answer(rule: Rule, silo: Silo, message: Message) -> Message:
    """A silo's answer to one of the steps."""
    kept = silo.memory.setdefault(rule.part, {})
    step = {KEYS: _keys, SHARES: _shares, AGREE: _agree, OPEN: _open}[str(message.numbers["topic"])]
    return step(rule, silo, kept, message)


def _keys(rule: Rule, silo: Silo, kept: dict[str, Any], message: Message) -> Message:
    private = {name: silo.secret(rule.part, name) for name in ("seals", "pairs", "own")}
    public = masks.public_key(private["seals"]) + masks.public_key(private["pairs"])
    told = public + hashlib.sha256(private["own"]).digest() + len(silo.data.train).to_bytes(8, "big")
    kept.clear()
    kept |= {name: key.hex() for name, key in private.items()} | {"session": silo.asked, "told": told.hex()}
    proof = silo.vault.sign(_statement(silo.asked, silo.name, told))
    return Message({f"{rule.part}.keys": _tensor(told + proof)})


def _shares(rule: Rule, silo: Silo, kept: dict[str, Any], message: Message) -> Message:
    """Believes the keys of those alone who signed them for this round."""
    session, told = str(kept["session"]), {name: bytes.fromhex(text) for name, text in _json(message, "peers").items()}
    if len(told) < rule.enough(len(told)):
        raise FairsiloError("too few silos have keys for this round")
    for name, text in told.items():
        if not silo.vault.verify(name, _statement(session, name, text[:_TOLD]), text[_TOLD:]):
            raise FairsiloError(f"the keys of {name!r} are not signed by its site")
    if told.get(silo.name, b"")[:_TOLD].hex() != kept["told"]:
        raise FairsiloError("the server names other keys than this silo's own")
    _settle(silo, session, SHARES, silo.asked)
    names = sorted(told)
    own, pairs = (
        masks.split(
            bytes.fromhex(kept[name]), len(names), rule.enough(len(names)), silo.secret(rule.part, "shares", name)
        )
        for name in ("own", "pairs")
    )
    letters = []
    for place, name in enumerate(names):
        key = _sealing(kept, silo.name, name, Public.read(told[name]), to=True)
        letters.append(masks.sealed(key, silo.secret(rule.part, "nonce", name)[:12], own[place] + pairs[place]))
    kept["peers"] = {name: told[name].hex() for name in names}
    return Message({f"{rule.part}.shares": torch.stack([_tensor(letter) for letter in letters])})


def remember(rule: Rule, silo: Silo) -> None:
    """Keep what the server passed on with the model: who takes part, and the others' shares for this silo."""
    kept = silo.memory.setdefault(rule.part, {})
    kept["silos"] = json.dumps(_names(silo.message, f"{rule.part}.silos"))
    kept["letters"] = silo.message.tensors[f"{rule.part}.letters"].cpu()


def mask(rule: Rule, silo: Silo, update: Message) -> None:
    """Put the update under masks, in place: its share in the mean, all of it in a sum."""
    kept = silo.memory.setdefault(rule.part, {})
    names, peers = json.loads(kept["silos"]), {name: bytes.fromhex(text) for name, text in kept["peers"].items()}
    if silo.name not in names or not set(names) <= set(peers) or len(names) < rule.enough(len(peers)):
        raise FairsiloError("too few silos have keys for this round, or others than those that signed them")
    weight = weights(peers, names, silo.method.weighting(silo.training.weighting))[silo.name]
    floats = silo.model.layout.wire.floats
    fixed, counters = {}, torch.empty(0, dtype=torch.int64)
    for name, use in uses(silo.method.declared).items():
        tensor = update.tensors[name].cpu()
        if name == MODEL:
            tensor, counters = tensor[:floats], tensor[floats:].round().to(torch.int64)
        fixed[name] = masks.to_fixed(tensor * (weight if use == "mean" else 1), rule.bits)
    # these very numbers: masks over two different updates would show their difference
    _settle(silo, str(kept["session"]), "train", digest(fixed))
    context = _context(peers, names, silo.message.tensors[MODEL], silo.training, silo.method.parts)
    for name, hidden in fixed.items():
        masks.add_mask(hidden, _stream(bytes.fromhex(kept["own"]), name), 1)
        for other in names:
            if other != silo.name:
                key = _pair(bytes.fromhex(kept["pairs"]), Public.read(peers[other]), context)
                masks.add_mask(hidden, _stream(key, name), 1 if silo.name < other else -1)
        update.tensors[name] = torch.cat([hidden, counters]) if name == MODEL else hidden


def _agree(rule: Rule, silo: Silo, kept: dict[str, Any], message: Message) -> Message:
    """Sign the list of those who sent an update, once for these keys."""
    there, session = _names(message, "there"), str(kept["session"])
    if silo.name not in there or not set(there) <= set(json.loads(kept["silos"])):
        raise FairsiloError("the server's list of updates is none of this round's")
    if len(there) < rule.enough(len(kept["peers"])):
        raise FairsiloError("too few silos sent an update, so that their sum is not shown")
    _settle(silo, session, AGREE, json.dumps(there))
    return Message({f"{rule.part}.agreed": _tensor(silo.vault.sign(_list_statement(kept, there)))})


def _open(rule: Rule, silo: Silo, kept: dict[str, Any], message: Message) -> Message:
    """Show shares, once enough silos have signed the list that this silo signed."""
    there, session = _names(message, "there"), str(kept["session"])
    _settle(silo, session, AGREE, json.dumps(there))
    proofs = {name: bytes.fromhex(proof) for name, proof in _json(message, "proofs").items() if name in there}
    text = _list_statement(kept, there)
    signed = [name for name, proof in proofs.items() if silo.vault.verify(name, text, proof)]
    if len(signed) < rule.enough(len(kept["peers"])):
        raise FairsiloError("too few silos signed the list of updates, so that this silo shows nothing")
    found = []
    for name, letter in zip(json.loads(kept["silos"]), kept["letters"], strict=True):
        public = Public.read(bytes.fromhex(kept["peers"][name]))
        shares = masks.unsealed(_sealing(kept, silo.name, name, public, to=False), bytes(letter.tolist()))
        found.append(shares[: masks.WIDTH] if name in there else shares[masks.WIDTH :])
    return Message({f"{rule.part}.opened": torch.stack([_tensor(share) for share in found])})


def _settle(silo: Silo, session: str, step: str, value: str) -> None:
    if not silo.vault.settle(f"{silo.name} {session} {step}", value):
        raise FairsiloError(f"the step {step!r} was asked before in another way, which would show too much")


# ------------------------------------------------------------------------------------------------------- at the server
@dataclass
class Session:
    """A round's secure sum, as the server knows it."""

    public: dict[str, bytes]
    letters: dict[str, Tensor]  # silo -> its letters, one for each of those who have keys, in name order
    model: Tensor | None = None  # that silos were sent

    @property
    def silos(self) -> list[str]:
        return sorted(self.letters)

    def add_to(self, message: Message, part: str, silo: str) -> None:
        """Put what one silo needs beside the model that goes to it."""
        place = sorted(self.public).index(silo)
        message.tensors[f"{part}.letters"] = torch.stack([self.letters[name][place] for name in self.silos])
        message.numbers[f"{part}.silos"] = json.dumps(self.silos)
        self.model = message.tensors[MODEL]


def begun(rule: Rule, server: Server, silos: Iterable[str]) -> Session:
    """Keys and their shares of all silos that answer."""
    part = rule.part
    ask = {"part": part, "topic": KEYS, "session": secrets.token_hex(16)}  # new for every attempt, so keys are too
    keys = server.ask("share", {name: Message({}, dict(ask)) for name in silos})
    told = {name: bytes(found.tensors[f"{part}.keys"].tolist()) for name, found in sorted(keys.items())}
    public = {name: one for name, one in told.items() if _TOLD < len(one) < _LONGEST}
    _require(server, len(public), rule.enough(len(public)), "made keys")
    peers = json.dumps({name: one.hex() for name, one in public.items()})
    asked = {name: Message({}, {"part": part, "topic": SHARES, "peers": peers}) for name in public}
    found = {name: answer.tensors[f"{part}.shares"] for name, answer in server.ask("share", asked).items()}
    letters = {name: one for name, one in found.items() if one.shape == (len(public), _LETTER)}
    _require(server, len(letters), rule.enough(len(public)), "shared out their keys")
    return Session(public, letters)


def opened(
    rule: Rule, server: Server, session: Session, silos: Iterable[str], sums: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The means and sums behind masked sums."""
    part, there = rule.part, sorted(silos)
    enough, text = rule.enough(len(session.public)), json.dumps(there)
    _require(server, len(there), enough, "sent an update")
    asked = {name: Message({}, {"part": part, "topic": AGREE, "there": text}) for name in there}
    agreed = server.ask("share", asked)
    proofs = json.dumps({name: bytes(found.tensors[f"{part}.agreed"].tolist()).hex() for name, found in agreed.items()})
    numbers = {"part": part, "topic": OPEN, "there": text, "proofs": proofs}
    answers = server.ask("share", {name: Message({}, dict(numbers)) for name in agreed})
    shown = {name: answer.tensors[f"{part}.opened"] for name, answer in answers.items()}
    shown = {name: one for name, one in shown.items() if one.shape == (len(session.letters), masks.WIDTH)}
    _require(server, len(shown), enough, "showed their shares")
    places = {name: place for place, name in enumerate(sorted(session.public))}
    floats = server.silo_layout.floats
    totals = {name: (tensor[:floats] if name == MODEL else tensor).clone() for name, tensor in sums.items()}
    assert session.model is not None
    training = server.training.at(server.round)
    context = _context(session.public, session.silos, session.model, training, server.method.parts)
    for row, name in enumerate(session.silos):
        shares = {places[one]: bytes(found[row].tolist()) for one, found in shown.items()}
        _unmask(totals, name, masks.joined(shares), session, there, context)
    counted = weights(session.public, session.silos, server.method.weighting(server.training.weighting))
    mass = sum(counted[name] for name in there)
    server.weights = {name: counted[name] / mass for name in there}
    found = {name: masks.from_fixed(total, rule.bits) for name, total in totals.items()}
    means = {name for name, use in uses(server.method.declared).items() if use == "mean"}
    return {name: total / mass if name in means else total for name, total in found.items()}


def _unmask(
    totals: dict[str, Tensor], silo: str, secret: bytes, session: Session, there: list[str], context: str
) -> None:
    """Take a silo's own mask away or, where it sent nothing, what the others added on its account."""
    public = Public.read(session.public[silo])
    right = hashlib.sha256(secret).digest() == public.own if silo in there else masks.public_key(secret) == public.pairs
    if not right:
        raise StoppedError(f"the shares of {silo!r} do not fit together: a silo showed a wrong one, and no sum is used")
    for name, total in totals.items():
        if silo in there:
            masks.add_mask(total, _stream(secret, name), -1)
            continue
        for other in there:
            key = _pair(secret, Public.read(session.public[other]), context)
            masks.add_mask(total, _stream(key, name), -1 if other < silo else 1)


def _require(server: Server, count: int, enough: int, did: str) -> None:
    if count < enough:
        raise StoppedError(f"round {server.round} stopped: {count} silos {did}, and secure sums need {enough}")


# ------------------------------------------------------------------------------------------------------- for both
def uses(declared: Iterable[Sends]) -> dict[str, str]:
    """How the server uses what travels under masks: name -> mean or sum."""
    return Totals(declared).uses | {MODEL: "mean"}


def weights(told: Mapping[str, bytes], silos: Iterable[str], weighting: str) -> dict[str, float]:
    """Shares of the mean, by the sizes that silos signed: a server that chose them could leave one silo alone in it."""
    counts = {name: Public.read(told[name]).samples if weighting == "samples" else 1 for name in silos}
    return {name: count / sum(counts.values()) for name, count in counts.items()}


def _context(
    told: Mapping[str, bytes], silos: list[str], model: Tensor, training: TrainSettings, parts: Sequence[Any]
) -> str:
    """What all silos of a round must have been told alike."""
    signed = {name: told[name][:_TOLD].hex() for name in sorted(told)}
    return digest([signed, silos, model, repr(training), [repr(part) for part in parts]])


def _pair(private: bytes, other: Public, context: str) -> bytes:
    return masks.common_key(private, other.pairs, f"pair {context}")


def _stream(key: bytes, tensor: str) -> bytes:
    """The key of one tensor's mask: no two masks are made of the same."""
    return stretched(key, f"mask of {tensor}", _KEY)


def _sealing(kept: Mapping[str, Any], silo: str, other: str, public: Public, to: bool) -> bytes:
    way = f"{silo}\x1f{other}" if to else f"{other}\x1f{silo}"
    return masks.common_key(bytes.fromhex(kept["seals"]), public.seals, way)


def _statement(session: str, about: str, text: bytes) -> bytes:
    return f"fairsilo secure sum\x1f{session}\x1f{about}\x1f".encode() + text


def _list_statement(kept: Mapping[str, Any], there: list[str]) -> bytes:
    return _statement(str(kept["session"]), "list", json.dumps([kept["peers"], there]).encode())


def _json(message: Message, key: str) -> Any:
    return json.loads(str(message.numbers[key]))


def _names(message: Message, key: str) -> list[str]:
    """A list of silos, each once and in order: a name that came twice would count twice."""
    found = _json(message, key)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found) or found != sorted(set(found)):
        raise FairsiloError("a list of silos is none")
    return found


def _tensor(text: bytes) -> Tensor:
    return torch.tensor(list(text), dtype=torch.uint8)
