"""A filter over the payloads of many messages: a text is in none of them, or possibly in some. No false negatives.

    grams     a bit per hash of four consecutive bytes      a text can only occur if all its grams are set
    tokens    a Bloom filter of whole words and numbers     runs of letters, digits, _ and bytes above 127
    escapes   whether a payload has a backslash             JSON may then encode a string in another way

A token is whole if other bytes, or the start or end of the payload, surround it. Of a search text, only the inner
tokens are certainly whole: `12` also occurs in `4123`. Names and values of JSON fields are always whole tokens.
Random bytes set most grams, and then the grams exclude nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

GRAM_BYTES = 4
GRAM_BITS = 20
TOKEN_BITS_LEAST = 10
TOKEN_BITS_MOST = 22
BITS_PER_TOKEN = 8
STEP_BYTES = 4 * 1024 * 1024
"""Bytes processed at once; at least one message."""

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

IN_TOKENS = np.array([chr(n).isalnum() or n == ord("_") if n < 128 else True for n in range(256)], bool)
WEIGHTS: Hashes = np.random.default_rng(20261116).integers(1, 2**63, 64, dtype=np.uint64) | np.uint64(1)
"""Part of the index format, as are the hash functions below."""
SPREAD = np.uint64(0x9E3779B97F4A7C15)
GRAM_SPREAD = np.uint32(0x9E3779B1)


class PayloadFilter(NamedTuple):
    grams: bytes
    tokens: bytes
    escapes: bool

    def may_have_text(self, text: bytes) -> bool:
        return self._may_have_grams(text) and self._may_have_tokens(inner_tokens(text))

    def may_have_value(self, *texts: bytes) -> bool:
        """Whether the payloads may have these names and values of JSON fields."""
        return self.escapes or all(
            self._may_have_grams(text) and self._may_have_tokens(tokens_of(text)) for text in texts
        )

    def _may_have_grams(self, text: bytes) -> bool:
        bits = np.frombuffer(self.grams, np.uint8)
        return bool(_are_set(bits, gram_hashes(np.frombuffer(text, np.uint8))).all())

    def _may_have_tokens(self, hashes: Hashes) -> bool:
        bits = np.frombuffer(self.tokens, np.uint8)
        return all(bool(_are_set(bits, positions).all()) for positions in _positions(hashes, len(bits) * 8))


class FilterBuilder:
    def __init__(self) -> None:
        self._grams = np.zeros(1 << GRAM_BITS, bool)
        self._tokens: Hashes = np.empty(0, np.uint64)
        self._escapes = False

    def add(self, payloads: pa.Array) -> None:
        for values, starts in _steps(payloads):
            self._grams[gram_hashes(values)] = True
            self._tokens = np.union1d(self._tokens, token_hashes(values, starts))
            self._escapes = self._escapes or bool((values == ord("\\")).any())

    def to_filter(self) -> PayloadFilter:
        wanted = int(len(self._tokens) * BITS_PER_TOKEN).bit_length()
        size = 1 << min(max(wanted, TOKEN_BITS_LEAST), TOKEN_BITS_MOST)
        tokens = np.zeros(size, bool)
        for positions in _positions(self._tokens, size):
            tokens[positions] = True
        return PayloadFilter(np.packbits(self._grams).tobytes(), np.packbits(tokens).tobytes(), self._escapes)


def _steps(payloads: pa.Array) -> Iterator[tuple[Bytes, npt.NDArray[np.int64]]]:
    """The concatenated bytes of some messages, and the start of each message."""
    _, edges, data = payloads.buffers()
    if not len(payloads) or data is None:
        return
    bounds = np.frombuffer(edges, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.int64)
    values = np.frombuffer(data, np.uint8)
    first = 0
    while first < len(payloads):
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + STEP_BYTES, "right")) - 1)
        yield values[bounds[first] : bounds[last]], bounds[first:last] - bounds[first]
        first = last


# -- hashes ----------------------------------------------------------------------------------------------


def gram_hashes(values: Bytes) -> npt.NDArray[np.uint32]:
    """Includes grams that span two messages: possible false positives, never false negatives."""
    count = len(values) - GRAM_BYTES + 1
    if count <= 0:
        return np.empty(0, np.uint32)
    found = values[:count].astype(np.uint32)
    for index in range(1, GRAM_BYTES):
        found |= values[index : index + count].astype(np.uint32) << np.uint32(8 * index)
    return np.asarray((found * GRAM_SPREAD) >> np.uint32(32 - GRAM_BITS))


def token_hashes(values: Bytes, starts: npt.NDArray[np.int64]) -> Hashes:
    """One hash per occurrence of a token. A token never spans two messages."""
    inside = IN_TOKENS[values]
    starts_token = inside.copy()
    starts_token[1:] &= ~inside[:-1]
    edges = starts[starts < len(values)]
    starts_token[edges] = inside[edges]
    firsts = np.flatnonzero(starts_token)
    if not len(firsts):
        return np.empty(0, np.uint64)
    positions = np.arange(len(values)) - np.repeat(
        np.concatenate([[0], firsts]), np.diff(np.concatenate([[0], firsts, [len(values)]]))
    )
    weighted = (values.astype(np.uint64) + np.uint64(1)) * WEIGHTS[positions % len(WEIGHTS)]
    weighted[~inside] = 0
    # the sum of a token at the end of a message stops at the start of the next token
    return _mixed(np.add.reduceat(weighted, firsts))


def _mixed(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(31))) * SPREAD
    return np.asarray(hashes ^ (hashes >> np.uint64(29)))


def tokens_of(text: bytes) -> Hashes:
    return token_hashes(np.frombuffer(text, np.uint8), np.zeros(1, np.int64))


def inner_tokens(text: bytes) -> Hashes:
    """Tokens that are delimited on both sides."""
    values = np.frombuffer(text, np.uint8)
    others = np.flatnonzero(~IN_TOKENS[values])
    if len(others) < 2:
        return np.empty(0, np.uint64)
    return tokens_of(text[others[0] : others[-1] + 1])


def _positions(hashes: Hashes, size: int) -> Iterable[npt.NDArray[np.int64]]:
    """Two bits per hash."""
    mask = np.uint64(size - 1)
    return ((hashes & mask).astype(np.int64), ((hashes >> np.uint64(32)) & mask).astype(np.int64))


def _are_set(bits: Bytes, positions: npt.NDArray[np.uint32] | npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    where = positions.astype(np.int64)
    return np.asarray((bits[where >> 3] >> (7 - (where & 7))) & 1, bool)
