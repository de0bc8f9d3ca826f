"""What hides a number until many agree to show it: fixed point, masks from keys, shared secrets, sealed letters.

Whole numbers of 64 bits wrap around when they overflow, so a mask that covers all of them hides everything, and masks
that cancel leave the exact sum. The primitives are those of the package cryptography.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairsilo.core.vault import stretched
from fairsilo.errors import FairsiloError

PRIME = 2**521 - 1  # the field in which secrets are shared: larger than any of them
WIDTH = 66  # bytes of a number of it
LARGEST = 2.0**20  # of a value in fixed point: 2,000 silos' can then be added up at 32 bits behind the point
_BLOCK = 1 << 22  # bytes of a mask that are made at a time


# --------------------------------------------------------------------------------------------------------- fixed point
def to_fixed(values: Tensor, bits: int) -> Tensor:
    """Whole numbers in units of 2^-bits."""
    if values.numel() and not float(values.abs().max()) <= LARGEST:
        raise FairsiloError(f"a value is larger than {LARGEST:g}, too large to be masked")
    return (values.double() * 2.0**bits).round_().to(torch.int64)


def from_fixed(values: Tensor, bits: int) -> Tensor:
    return values.double() * 2.0**-bits


def add_mask(values: Tensor, key: bytes, sign: int) -> None:
    """Add, or take away, the mask of a key from whole numbers, in place."""
    ciphers, zeros = _primitives("ciphers"), bytes(_BLOCK)
    stream = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CTR(bytes(16))).encryptor()
    flat = values.view(-1).numpy()
    for start in range(0, flat.size, _BLOCK // 8):
        block = flat[start : start + _BLOCK // 8]
        mask = np.frombuffer(stream.update(zeros[: 8 * block.size]), dtype="<i8")
        (np.add if sign > 0 else np.subtract)(block, mask, out=block)


# ------------------------------------------------------------------------------------------------------ shared secrets
def split(secret: bytes, count: int, threshold: int, randomness: bytes) -> list[bytes]:
    """Shares of a secret, of which any `threshold` give it back and fewer say nothing (Shamir, 1979)."""
    drawn = stretched(randomness, "polynomial", 2 * WIDTH * (threshold - 1))
    pieces = (drawn[start : start + 2 * WIDTH] for start in range(0, len(drawn), 2 * WIDTH))
    coefficients = [int.from_bytes(secret, "big"), *(int.from_bytes(piece, "big") % PRIME for piece in pieces)]
    points = range(1, count + 1)
    values = [sum(c * pow(point, power, PRIME) for power, c in enumerate(coefficients)) % PRIME for point in points]
    return [value.to_bytes(WIDTH, "big") for value in values]


def joined(shares: dict[int, bytes], length: int = 32) -> bytes:
    """The secret behind shares by their places, the first of which is 0."""
    total = 0
    for place, share in shares.items():
        over = under = 1
        for other in shares:
            if other != place:
                over, under = over * (other + 1) % PRIME, under * (other - place) % PRIME
        total += int.from_bytes(share, "big") * over * pow(under, -1, PRIME)
    value = total % PRIME
    return value.to_bytes(length, "big") if value < 256**length else bytes(length)


# ------------------------------------------------------------------------------------------------------- keys, letters
def public_key(private: bytes) -> bytes:
    found = _private(private).public_key()
    return bytes(found.public_bytes_raw())


def common_key(private: bytes, public: bytes, purpose: str) -> bytes:
    """What two have in common of whom each knows its own private key and the other's public one."""
    x25519 = _primitives("x25519")
    return stretched(_private(private).exchange(x25519.X25519PublicKey.from_public_bytes(public)), purpose, 32)


def sealed(key: bytes, nonce: bytes, text: bytes) -> bytes:
    return nonce + bytes(_primitives("aead").AESGCM(key).encrypt(nonce, text, None))


def unsealed(key: bytes, letter: bytes) -> bytes:
    """The text of a letter; raises FairsiloError where it is not as it was written."""
    try:
        return bytes(_primitives("aead").AESGCM(key).decrypt(letter[:12], letter[12:], None))
    except Exception as problem:
        raise FairsiloError("a share of a key was changed on its way") from problem


def _private(private: bytes) -> Any:
    return _primitives("x25519").X25519PrivateKey.from_private_bytes(private)


def _primitives(name: str) -> Any:
    try:
        from cryptography.hazmat.primitives import ciphers
        from cryptography.hazmat.primitives.asymmetric import x25519
        from cryptography.hazmat.primitives.ciphers import aead, algorithms, modes
    except ImportError as problem:
        raise FairsiloError("masks need the package cryptography: pip install 'fairsilo[privacy]'") from problem
    ciphers.algorithms, ciphers.modes = algorithms, modes
    return {"ciphers": ciphers, "x25519": x25519, "aead": aead}[name]
