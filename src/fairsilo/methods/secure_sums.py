"""Sums of which nobody sees the terms: the double masks of Bonawitz et al. (CCS 2017), step by step.

    keys     every silo makes keys for the round and signs them
    shares   every silo shares out its secrets among all, each share sealed for the one it is meant for
    (train)  updates travel under masks: one for every pair of silos, which cancel, and one of the silo's own
    agree    who sent an update is agreed on: each silo signs one list, whatever it is asked afterwards
    open     silos show their shares: of the own mask of those who sent one, of the pairs' keys of those who did not

For no silo both are ever shown, so that its update stays hidden. That holds while fewer than the threshold (more than
half of the silos) work together with the server, also if it lies about who is there: it cannot sign for a silo.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairsilo.core.messages import MODEL, Message
from fairsilo.core.server import Server
from fairsilo.core.silo import Silo
from fairsilo.core.vault import stretched
from fairsilo.errors import FairsiloError, StoppedError
from fairsilo.methods import masks

KEYS, SHARES, AGREE, OPEN = "keys", "shares", "agree", "open"  # the steps besides training
_KEY = 32  # bytes
_LETTER = 12 + 2 * masks.WIDTH + 16  # nonce, two shares, seal


def threshold(count: int) -> int:
    return count // 2 + 1


@dataclass(frozen=True)
class Public:
    """What everybody knows of a silo in a round: two public keys, and what its own mask must be made of."""

    seals: bytes
    pairs: bytes
    own: bytes  # SHA-256

    @classmethod
    def read(cls, told: bytes) -> Public:
        return cls(told[:_KEY], told[_KEY : 2 * _KEY], told[2 * _KEY : 3 * _KEY])


# --------------------------------------------------------------------------------------------------------- at a silo
def answer(part: str, silo: Silo, message: Message) -> Message:
    """A silo's answer to one of the steps."""
    kept = silo.memory.setdefault(part, {})
    step = {KEYS: _keys, SHARES: _shares, AGREE: _agree, OPEN: _open}[str(message.numbers["topic"])]
    return step(part, silo, kept, message)


def _keys(part: str, silo: Silo, kept: dict[str, Any], message: Message) -> Message:
    private = {name: silo.secret(part, name) for name in ("seals", "pairs", "own")}
    public = masks.public_key(private["seals"]) + masks.public_key(private["pairs"])
    told = public + hashlib.sha256(private["own"]).digest()
    kept.clear()
    kept |= {name: key.hex() for name, key in private.items()} | {"session": silo.asked, "told": told.hex()}
    proof = silo.vault.sign(_statement(silo.asked, silo.name, told))
    return Message({f"{part}.keys": _tensor(told + proof)}, {f"{part}.samples": len(silo.data.train)})


def _shares(part: str, silo: Silo, kept: dict[str, Any], message: Message) -> Message:
    """Believes the keys of those alone who signed them for this round."""
    session, told = str(kept["session"]), {name: bytes.fromhex(text) for name, text in _json(message, "peers").items()}
    _settle(silo, session, SHARES)
    for name, text in told.items():
        if not silo.vault.verify(name, _statement(session, name, text[: 3 * _KEY]), text[3 * _KEY :]):
            raise FairsiloError(f"the keys of {name!r} are not signed by its site")
    if told.get(silo.name, b"")[: 3 * _KEY].hex() != kept["told"]:
        raise FairsiloError("the server names other keys than this silo's own")
    names, secret = sorted(told), silo.secret(part, "polynomials")
    own, pairs = (
        masks.split(bytes.fromhex(kept[name]), len(names), threshold(len(names)), secret + name.encode())
        for name in ("own", "pairs")
    )
    letters = []
    for place, name in enumerate(names):
        key = _sealing(kept, silo.name, name, Public.read(told[name]), to=True)
        letters.append(masks.sealed(key, silo.secret(part, "nonce", name)[:12], own[place] + pairs[place]))
    kept["peers"] = {name: told[name].hex() for name in names}
    return Message({f"{part}.shares": torch.stack([_tensor(letter) for letter in letters])})


def mask(part: str, silo: Silo, update: Message, bits: int) -> None:
    """Put the update under masks, in place: shares of it in the mean, all of it in a sum."""
    kept = silo.memory.setdefault(part, {})
    names, weight = _json(silo.message, f"{part}.silos"), float(silo.message.numbers[f"{part}.weight"])
    peers = kept["peers"]
    if silo.name not in names or not set(names) <= set(peers) or len(names) < threshold(len(peers)):
        raise FairsiloError("too few silos have keys for this round, or others than those that signed them")
    _settle(silo, str(kept["session"]), "train")
    floats = silo.model.layout.wire.floats
    for name, use in uses(silo.method.declared).items():
        tensor = update.tensors[name].cpu()
        counters = tensor[floats:].round().to(torch.int64) if name == MODEL else tensor[:0].to(torch.int64)
        hidden = masks.to_fixed(tensor[: floats if name == MODEL else None] * (weight if use == "mean" else 1), bits)
        masks.add_mask(hidden, _stream(bytes.fromhex(kept["own"]), name), 1)
        for other in names:
            if other != silo.name:
                key = _pair(bytes.fromhex(kept["pairs"]), Public.read(bytes.fromhex(peers[other])))
                masks.add_mask(hidden, _stream(key, name), 1 if silo.name < other else -1)
        update.tensors[name] = torch.cat([hidden, counters])


def remember(part: str, silo: Silo) -> None:
    """Keep what the server passed on with the model: who takes part, and the others' shares for this silo."""
    kept = silo.memory.setdefault(part, {})
    kept["silos"] = str(silo.message.numbers[f"{part}.silos"])
    kept["letters"] = silo.message.tensors[f"{part}.letters"].cpu()


def _agree(part: str, silo: Silo, kept: dict[str, Any], message: Message) -> Message:
    """Sign the list of those who sent an update, once for these keys."""
    there, session = _json(message, "there"), str(kept["session"])
    if silo.name not in there or not set(there) <= set(json.loads(kept["silos"])):
        raise FairsiloError("the server's list of updates is none of this round's")
    if len(there) < threshold(len(kept["peers"])):
        raise FairsiloError("fewer silos than the threshold sent an update, so that their sum is not shown")
    _settle(silo, session, AGREE)
    return Message(
        {f"{part}.agreed": _tensor(silo.vault.sign(_statement(session, "list", json.dumps(there).encode())))}
    )


def _open(part: str, silo: Silo, kept: dict[str, Any], message: Message) -> Message:
    """Show shares, once enough silos have signed the same list."""
    there, session = _json(message, "there"), str(kept["session"])
    text = _statement(session, "list", json.dumps(there).encode())
    proofs = {name: bytes.fromhex(proof) for name, proof in _json(message, "proofs").items() if name in there}
    signed = [name for name, proof in proofs.items() if silo.vault.verify(name, text, proof)]
    if len(signed) < threshold(len(kept["peers"])):
        raise FairsiloError("too few silos signed the list of updates, so that this silo shows nothing")
    _settle(silo, session, OPEN)
    found = []
    for name, letter in zip(json.loads(kept["silos"]), kept["letters"], strict=True):
        public = Public.read(bytes.fromhex(kept["peers"][name]))
        shares = masks.unsealed(_sealing(kept, silo.name, name, public, to=False), bytes(letter.tolist()))
        found.append(shares[: masks.WIDTH] if name in there else shares[masks.WIDTH :])
    return Message({f"{part}.opened": torch.stack([_tensor(share) for share in found])})


def _settle(silo: Silo, session: str, step: str) -> None:
    if not silo.vault.settle(f"{silo.name} {session} {step}", silo.asked):
        raise FairsiloError(f"the step {step!r} was asked before in another way, which would show too much")


# ------------------------------------------------------------------------------------------------------- at the server
@dataclass(frozen=True)
class Session:
    """A round's secure sum, as the server knows it."""

    public: dict[str, bytes]
    letters: dict[str, Tensor]  # silo -> its letters, one for each of those who have keys, in name order
    weights: dict[str, float]

    @property
    def silos(self) -> list[str]:
        return sorted(self.letters)

    def add_to(self, message: Message, part: str, silo: str) -> None:
        """Put what one silo needs beside the model that goes to it."""
        place = sorted(self.public).index(silo)
        letters = torch.stack([self.letters[name][place] for name in self.silos])
        message.tensors[f"{part}.letters"] = letters
        message.numbers |= {f"{part}.silos": json.dumps(self.silos), f"{part}.weight": self.weights[silo]}


def begun(part: str, server: Server, silos: Iterable[str], least: int) -> Session:
    """Keys and their shares of all silos that answer."""
    ask = {"part": part, "topic": KEYS, "session": secrets.token_hex(16)}  # new for every attempt, so keys are too
    keys = server.ask("share", {name: Message({}, dict(ask)) for name in silos})
    told = {name: bytes(found.tensors[f"{part}.keys"].tolist()) for name, found in sorted(keys.items())}
    public = {name: one for name, one in told.items() if len(one) > 3 * _KEY}
    _require(server, len(public), least, "made keys")
    peers = json.dumps({name: one.hex() for name, one in public.items()})
    asked = {name: Message({}, {"part": part, "topic": SHARES, "peers": peers}) for name in public}
    found = {name: answer.tensors[f"{part}.shares"] for name, answer in server.ask("share", asked).items()}
    letters = {name: one for name, one in found.items() if one.shape == (len(public), _LETTER)}
    _require(server, len(letters), max(least, threshold(len(public))), "shared out their keys")
    counts = {name: float(keys[name].numbers[f"{part}.samples"]) for name in letters}
    if server.method.weighting(server.training.weighting) != "samples":
        counts = dict.fromkeys(counts, 1.0)
    total = sum(counts.values())
    return Session(public, letters, {name: count / total for name, count in counts.items()})


def opened(
    part: str, server: Server, session: Session, silos: Iterable[str], sums: Mapping[str, Tensor], bits: int
) -> dict[str, Tensor]:
    """The means and sums behind masked sums."""
    there = sorted(silos)
    enough, text = threshold(len(session.public)), json.dumps(there)
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
    totals = {
        name: tensor[: server.silo_layout.floats if name == MODEL else None].clone() for name, tensor in sums.items()
    }
    for row, name in enumerate(session.silos):
        shares = {places[one]: bytes(found[row].tolist()) for one, found in shown.items()}
        _unmask(totals, name, Public.read(session.public[name]), masks.joined(shares), session, there)
    mass = sum(session.weights[name] for name in there)
    server.weights = {name: session.weights[name] / mass for name in there}
    found = {name: masks.from_fixed(total, bits) for name, total in totals.items()}
    means = {name for name, use in uses(server.method.declared).items() if use == "mean"}
    return {name: total / mass if name in means else total for name, total in found.items()}


def _unmask(
    totals: dict[str, Tensor], silo: str, public: Public, secret: bytes, session: Session, there: list[str]
) -> None:
    """Take a silo's own mask away or, where it sent nothing, what the others added on its account."""
    right = hashlib.sha256(secret).digest() == public.own if silo in there else masks.public_key(secret) == public.pairs
    if not right:
        raise StoppedError(f"the shares of {silo!r} do not fit together: a silo showed a wrong one, and no sum is used")
    for name, total in totals.items():
        if silo in there:
            masks.add_mask(total, _stream(secret, name), -1)
            continue
        for other in there:
            key = _pair(secret, Public.read(session.public[other]))
            masks.add_mask(total, _stream(key, name), -1 if other < silo else 1)


def _require(server: Server, count: int, enough: int, did: str) -> None:
    if count < enough:
        raise StoppedError(f"round {server.round} stopped: {count} silos {did}, and secure sums need {enough}")


# ------------------------------------------------------------------------------------------------------- for both
def uses(declared: Iterable[Any]) -> dict[str, str]:
    """How the server uses what travels under masks: name -> mean or sum."""
    found = {one.name: one.per for one in declared if one.exchange == "train" and one.per != "silo"}
    return found | {MODEL: "mean"}


def _pair(private: bytes, other: Public) -> bytes:
    return masks.common_key(private, other.pairs, "pair")


def _stream(key: bytes, tensor: str) -> bytes:
    """The key of one tensor's mask: no two masks are made of the same."""
    return stretched(key, f"mask of {tensor}", _KEY)


def _sealing(kept: Mapping[str, Any], silo: str, other: str, public: Public, to: bool) -> bytes:
    way = f"{silo}\x1f{other}" if to else f"{other}\x1f{silo}"
    return masks.common_key(bytes.fromhex(kept["seals"]), public.seals, way)


def _statement(session: str, about: str, text: bytes) -> bytes:
    return f"fairsilo secure sum\x1f{session}\x1f{about}\x1f".encode() + text


def _json(message: Message, key: str) -> Any:
    return json.loads(str(message.numbers[key]))


def _tensor(text: bytes) -> Tensor:
    return torch.tensor(list(text), dtype=torch.uint8)
