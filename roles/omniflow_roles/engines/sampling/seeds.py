"""The random numbers of draws: one for each (seed, completion, position), and none of them depends on any other draw.

A generator with a state, as torch's is, gives a sequence other numbers when something else draws between its tokens. These
are computed from the place instead, so that a token is the same in whatever batch and step its turn comes, and after a
preemption.

    key(seed, completion) ── + position * golden ratio ── mix ─▶ 53 bits ─▶ [0, 1)

The mix is splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): for one key,
positions 0, 1, 2 ... give exactly the output of that generator, which passes BigCrush. numpy's Philox is counter-based as
well, but constructing one for each number costs 20 µs, this half a microsecond; a step draws for many rows.
"""

from __future__ import annotations

import secrets

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, odd: multiples of it visit all of the 64 bits' values before they repeat."""


def request_seed(seed: int | None) -> int:
    """The seed of a request: the caller's, or a random one of 64 bits that nobody can guess. Ask once a request."""
    return secrets.randbits(64) if seed is None else seed


def draw_key(seed: int, completion: int) -> int:
    """What `uniform` needs of a sequence. Completions of one seed have keys that are mixed apart."""
    return _mix(_mix(seed + _GAMMA) + completion)


def uniform(key: int, position: int) -> float:
    """A number in [0, 1) for the token at a position (0, 1, 2 ...), a multiple of 2**-53."""
    return (_mix(key + (position + 1) * _GAMMA) >> 11) * 2.0**-53


def _mix(value: int) -> int:
    """splitmix64's finaliser: a bijection of 64 bits in which each input bit reaches every output bit."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
