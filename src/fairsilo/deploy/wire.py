"""What travels between server and sites, as dictionaries of tensors and plain values, and how little of it is believed.

Whoever receives something takes it apart here: what is not exactly of the expected form is a `WireError`, never another
exception and never a guess. Whether the tensors of a reply are those the method declares is screening's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fairsilo.core.messages import Message, Number, Request

Payload = dict[str, Any]

LONGEST_NAME = 300  # characters
LONGEST_TEXT = 1_000_000
MOST = 100_000  # entries of a message
DTYPES = {
    getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
}
_ANSWER = {"silo", "run", "round", "number", "tensors", "numbers"}


class WireError(Exception):
    """Something arrived that is not of the form it must have; the text says what, and quotes nothing of it."""


# ------------------------------------------------------------------------------------------------------------- messages
def packed(message: Message) -> Payload:
    """Tensors on the CPU and contiguous, as transports want them."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in message.tensors.items()}
    return {"tensors": tensors, "numbers": dict(message.numbers)}


def unpacked(content: object) -> Message:
    """The inverse of `packed`."""
    if not isinstance(content, Mapping):
        raise WireError("a message is no dictionary")
    tensors, numbers = content.get("tensors"), content.get("numbers")
    if not isinstance(tensors, Mapping) or not isinstance(numbers, Mapping):
        raise WireError("a message has no tensors or no numbers")
    if len(tensors) + len(numbers) > MOST:
        raise WireError(f"a message has more than {MOST} entries")
    return Message(
        {_name(name): _tensor(tensor) for name, tensor in tensors.items()},
        {_name(name): _number(number) for name, number in numbers.items()},
    )


def _name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise WireError("a name is no short text")
    return name


def _tensor(tensor: object) -> Tensor:
    if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.dtype not in DTYPES:
        raise WireError("a tensor is none, or of a kind that is not sent")
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise WireError("a tensor does not lie in one piece in memory")
    return tensor


def _number(number: object) -> Number:
    if not isinstance(number, bool | int | float | str):
        raise WireError("a number is none")
    if isinstance(number, str) and len(number) > LONGEST_TEXT:
        raise WireError(f"a text is longer than {LONGEST_TEXT} characters")
    if isinstance(number, int) and abs(number) >= 2**63:
        raise WireError("a whole number needs more than 64 bits")
    return number


# ------------------------------------------------------------------------------------------------ requests and answers
def question(silo: str, request: Request) -> Payload:
    """A request to one silo."""
    run, round_, number = request.identity
    return {"silo": silo, "kind": request.kind, "run": run, "round": round_, "number": number} | packed(request.message)


def asked(content: object) -> tuple[str, Request]:
    """The inverse of `question`."""
    silo, run, kind = (_text_of(content, key) for key in ("silo", "run", "kind"))
    round_, number = (_count_of(content, key) for key in ("round", "number"))
    return silo, Request(kind, round_, unpacked(content), number, run)


def answered(silo: str, request: Request, message: Message) -> Payload:
    """A silo's answer; it says which request it is to."""
    run, round_, number = request.identity
    return {"silo": silo, "run": run, "round": round_, "number": number} | packed(message)


def answer_to(content: object, silo: str, request: Request) -> Message:
    """The message of an answer, which must be this silo's to this request."""
    if not isinstance(content, Mapping) or not content.keys() >= _ANSWER:
        raise WireError("an answer lacks something")
    found = (_text_of(content, "run"), _count_of(content, "round"), _count_of(content, "number"))
    if found != request.identity or _text_of(content, "silo") != silo:
        raise WireError("an answer is to another request")
    return unpacked(content)


def _text_of(content: object, key: str) -> str:
    found = content.get(key) if isinstance(content, Mapping) else None
    if not isinstance(found, str) or len(found) > LONGEST_NAME:
        raise WireError(f"{key} is no short text")
    return found


def _count_of(content: object, key: str) -> int:
    found = content.get(key) if isinstance(content, Mapping) else None
    if type(found) is not int or not 0 <= found < 2**63:
        raise WireError(f"{key} is no count")
    return found


# ----------------------------------------------------------------------------------------------- what is no message
def noted(content: Mapping[str, Any]) -> Payload:
    """Plain values, such as who a site is, as one text."""
    return {"note": json.dumps(content)}


def note_in(content: object) -> dict[str, Any]:
    """The inverse of `noted`."""
    text = content.get("note") if isinstance(content, Mapping) else None
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        raise WireError("a note is no text")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise WireError("a note is no JSON") from problem
    if not isinstance(found, dict):
        raise WireError("a note is no object")
    return found
